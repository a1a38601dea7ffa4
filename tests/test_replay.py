"""A failure leaves a file in its report, and `mkbench parity --only` repeats the step that failed."""

import json
import shlex
import unittest

from cli_support import CliTest


class Replay(CliTest):
    def failed(self, *flags):
        """The report of a run with a planted fault, and its one file of a failed step."""
        result = self.bench("--plant-fault", "rope_interleaved", "--reference", str(self.short_reference()), *flags)
        self.assertEqual(result.returncode, 3, result.stderr)
        (file,) = (self.out / "failures").iterdir()
        return result, file, json.loads(file.read_text())

    def only(self, step, *flags):
        out = self.folder / f"only-{len(list(self.folder.iterdir()))}"
        result = self.mkbench("parity", "--device", "cpu", "--only", str(step), "--out", str(out), *flags)
        return result, json.loads((out / "report.json").read_text()) if (out / "report.json").exists() else None

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
        self.assertIn("where: ", again.stdout)

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


if __name__ == "__main__":
    unittest.main()
