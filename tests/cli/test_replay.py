"""A failure leaves a file in its report, and `mkbench parity --only` repeats the step that failed."""

import json
import os
import pathlib
import shlex
import unittest

from support.cli_support import CliTest

PLUGINS = pathlib.Path(os.environ["PLUGINS"])


class ReplayTest(CliTest):
    def the_file(self):
        """The one file of a failed step, and what it holds."""
        (file,) = (self.out / "failures").iterdir()
        return file, json.loads(file.read_text())

    def failed(self, *flags, fault="rope_interleaved"):
        """The report of a run with a planted fault, and its one file of a failed step."""
        result = self.bench("--plant-fault", fault, "--reference", str(self.short_reference()), *flags)
        self.assertEqual(result.returncode, 3, result.stderr)
        return result, *self.the_file()

    def only(self, step, *flags):
        out = self.folder / f"only-{len(list(self.folder.iterdir()))}"
        result = self.mkbench("parity", "--device", "cpu", "--only", str(step), "--out", str(out), *flags)
        return result, json.loads((out / "report.json").read_text()) if (out / "report.json").exists() else None


class Replay(ReplayTest):
    def test_the_command_of_a_failure_repeats_it(self):
        result, file, step = self.failed()
        self.assertIn(f"again: `{step['command']}`", result.stdout)
        self.assertEqual((step["engine"], step["model"], step["match"]), ("host-twin", "tiny", "WRONG"))
        self.assertNotEqual(step["expected"], step["found"])
        for name, top in (("expected", step["expected_top"]), ("found", step["found_top"])):
            self.assertEqual(len(top), 5)
            self.assertEqual(top[0]["id"], step[name])
            self.assertEqual(sorted(top, key=lambda one: -one["logit"]), top)
        self.assertEqual(len(step["prompt_ids"]) + len(step["forced_ids"]), step["position"] + 1)
        self.assertIn("layer 0", step["localised"])
        command = shlex.split(step["command"])
        self.assertEqual(command[:2], ["mkbench", "parity"])
        # The command of a sound engine's step passes; with the fault it fails as before.
        out = self.folder / "again"
        sound = self.mkbench(*command[1:], "--out", str(out))
        self.assertEqual(sound.returncode, 0, sound.stdout + sound.stderr)
        again, report = self.only(f"{step['prompt']}:{step['position']}", "--model", "tiny",
                                  "--plant-fault", "rope_interleaved")
        self.assertEqual(again.returncode, 3, again.stderr)
        repeated = self.engine(report, "host-twin")["parity"]["failed_step"]
        for field in ("expected", "found", "expected_top", "found_top", "prompt_ids", "forced_ids"):
            self.assertEqual(repeated[field], step[field])
        self.assertIn("bug: the logits are those of: RoPE", again.stdout)

    def test_the_file_alone_is_enough(self):
        _, file, step = self.failed()
        result, report = self.only(file)  # model and engine stand in it
        self.assertEqual(result.returncode, 0, result.stderr)
        (engine,) = report["cases"][0]["engines"]
        self.assertEqual((engine["name"], engine["verdict"]), ("host-twin", "PASS"))
        self.assertEqual(engine["parity"]["failed_step"]["expected"], step["expected"])
        result, _ = self.only(file, "--plant-fault", "rope_interleaved")
        self.assertEqual(result.returncode, 3, result.stderr)

    def test_what_cannot_be_repeated_is_refused(self):
        _, file, step = self.failed()
        cases = [("corpus-99", "found no prompt 'corpus-99', wanted one"), ("corpus-17:x", "'x' is not"),
                 ("nobody:17", "found no step 'nobody:17', wanted one of the prompts"),
                 ("corpus-17:9999", "'corpus-17' 16-"), (self.folder / "none.json", "cannot open")]
        for change, wanted in (({"weights_sha256": "00"}, "weights_sha256: found 00"),
                               ({"prompt_ids": []}, "prompt_ids: found none"),
                               ({"position": "x"}, "position")):
            path = self.folder / f"{len(cases)}.json"
            path.write_text(json.dumps(step | change))
            cases.append((path, wanted))
        for only, wanted in cases:
            with self.subTest(only=only):
                result, _ = self.only(only, "--model", "tiny")
                self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                self.assertIn(wanted, result.stderr)

    def test_logits_that_are_not_finite(self):
        _, file, step = self.failed(fault="slot_unwritten")
        self.assertIn((None, "not finite: nan"), [(one["logit"], one.get("logit_reason")) for one in step["found_top"]])
        result, report = self.only(file, "--plant-fault", "slot_unwritten")
        self.assertEqual(result.returncode, 3, result.stderr)
        again = self.engine(report, "host-twin")["parity"]["failed_step"]
        self.assertEqual((again["found"], again["found_top"]), (step["found"], step["found_top"]))
        result, _ = self.only(file)
        self.assertEqual(result.returncode, 0, result.stderr)
        # Every number may be missing with its reason, and none without.
        for name in ("error_norm", "baseline_error_norm", "margin"):
            path = self.folder / f"{name}.json"
            path.write_text(json.dumps(step | {name: None, f"{name}_reason": "not finite: inf"}))
            self.assertEqual(self.only(path)[0].returncode, 0, name)

    def test_an_id_that_its_own_logits_do_not_say(self):
        _, file, step = self.failed(fault="argmax_early")
        self.assertNotEqual(step["found"], step["found_top"][0]["id"])
        result, report = self.only(file, "--plant-fault", "argmax_early")
        self.assertEqual(result.returncode, 3, result.stderr)
        self.assertEqual(self.engine(report, "host-twin")["verdict"], "FAIL_SELF")
        self.assertEqual(self.only(file)[0].returncode, 0)


class ReplayPlugins(ReplayTest):
    """Failures that only the sweep of cache lengths or the clock sees, through hosts."""

    def agrees(self, file, step, faulty, sound):
        """The step fails again in the faulty library with the same id, and passes in the sound one."""
        result, report = self.only(file)  # the file names the library
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        again = self.engine(report, str(faulty))["parity"]["failed_step"]
        for field in ("position", "expected", "found", "forced_ids", "late_id", "free_tokens", "expected_top"):
            self.assertEqual(again[field], step[field], field)
        self.assertEqual(again["engine_sha256"], step["engine_sha256"])
        result, report = self.only(file, "--engine", str(sound))
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertEqual(self.engine(report, str(sound))["parity"]["failed_step"]["found"], step["expected"])

    def test_a_cache_length(self):
        faulty = PLUGINS / "naive_cpu_length.so"
        result = self.mkbench("parity", "--device", "cpu", "--model", "tiny", "--engine", str(faulty), "--out",
                              str(self.out), "--reference", str(self.short_reference()), "--time-budget", "20", timeout=190)
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        self.assertIn("200 rows (step by step)", result.stdout)
        file, step = self.the_file()
        self.assertIn(f"again: `mkbench parity --only {file}`", result.stdout)
        self.assertEqual((step["position"], step["engine"], step["model"]), (199, str(faulty), "tiny"))
        self.assertEqual(len(step["prompt_ids"]) + len(step["forced_ids"]), 200)
        self.assertRegex(step["engine_sha256"], "^[0-9a-f]{64}$")
        self.assertEqual([len(step["expected_top"]), len(step["found_top"])], [5, 5])
        self.assertEqual((step["found"], step["found_top"][0]["logit"]), (step["expected"] ^ 1, 1000))
        self.agrees(file, step, faulty, PLUGINS / "naive_cpu.so")

    def test_an_id_under_the_clock(self):
        faulty = PLUGINS / "timing-cpu" / "pads.so"
        result = self.bench("--engine", str(faulty), "--n-gen", "31", "--reference", str(self.short_reference()),
                            "--compare", "none")
        self.assertEqual(result.returncode, 3, result.stdout + result.stderr)
        file, step = self.the_file()
        self.assertIn(f"again: `mkbench parity --only {file}`", result.stdout)
        engine = self.engine(self.report(), str(faulty))
        self.assertIn(f"position {step['position']}: found {step['found']}, wanted {step['expected']}",
                      " ".join(engine["reasons"]))
        self.assertEqual((step["free_tokens"], step["match"]), (31, "WRONG"))
        self.assertIn(step["late_id"], [sample["late_id"] for sample in engine["samples"]])
        # The engine is right where it shows its logits.
        self.assertEqual(step["found_top"][0]["id"], step["expected"])
        self.agrees(file, step, faulty, PLUGINS / "timing-cpu" / "sound.so")


if __name__ == "__main__":
    unittest.main()
