"""`mkbench audit` on the CPU: sound engines pass, a library that skips rows of the head does not, and what is printed."""

import json
import os
import pathlib
import unittest

from support.cli_support import CliTest

PLUGINS = pathlib.Path(os.environ["PLUGINS"])
# The library knows the clock by so many tokens (tests/plugins/timing_faults.h).
FAULT_TOKENS = "31"


class AuditTest(CliTest):
    def audit(self, *args, **kwargs):
        return self.mkbench("audit", "--device", "cpu", "--model", "tiny", "-q", *args, **kwargs)

    def test_sound_engines_pass(self):
        result = self.audit("--tiles", "12", "--engine", f"host-twin,{PLUGINS}/naive_cpu.so,{PLUGINS}/naive_cpu_bare.so")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn("host-twin on cpu (tiny d=0 n=32, seed ", result.stdout)
        # By the snapshots of the first, the rows that the second shows, and neither.
        for name, told in [("host-twin", "ids and KV rows"), ("naive_cpu.so", "ids and KV rows"), ("naive_cpu_bare.so", "ids")]:
            self.assertRegex(result.stdout, rf"(?m)^\S*{name} on cpu .*: PASS by tiles, told by {told}$")
        self.assertIn("layers, 2.757 MB: 12 tiles, 0 not read, 0 more without effect (silent); at most 32 %",
                      result.stdout)

    def test_a_library_that_skips_rows_of_the_head(self):
        library = f"{PLUGINS}/timing-cpu/part_of_the_head.so"
        args = ("--engine", library, "-n", FAULT_TOKENS, "--tensors", "embed_tokens", "--seed", "1", "-o", "json")
        result = self.audit(*args, "--out", str(self.out))
        self.assertEqual(result.returncode, 8, result.stdout + result.stderr)
        told = json.loads(result.stdout)
        self.assertEqual(told["exit_code"], 8)
        self.assertEqual(told, json.loads((self.out / "audit.json").read_text()))
        [engine] = told["cases"][0]["engines"]
        self.assertEqual(engine["verdict"], "INTEGRITY")
        self.assertEqual(engine["method"], "tiles")
        self.assertIn("tiles are not read", engine["reasons"][0])
        [head] = engine["parts"]
        self.assertEqual((head["part"], head["tiles"]), ("head", 90))
        self.assertGreater(len(head["unread"]), 0)
        self.assertGreater(head["unread_share_at_most"], 0.05)
        skipped = 259 // 20
        for tile in head["unread"]:
            self.assertEqual(tile["tensor"], "model.embed_tokens.weight")
            self.assertGreaterEqual(tile["row"], 259 - skipped)
        # It skips them under the clock alone, and a seed gives the same tiles again.
        longer = self.audit("--engine", library, "-n", "32", "--tensors", "embed_tokens", "--tiles", "20")
        self.assertEqual(longer.returncode, 0, longer.stdout + longer.stderr)
        again = json.loads(self.audit(*args).stdout)
        self.assertEqual(again["cases"], told["cases"])

    def test_what_is_not_read_has_a_name(self):
        result = self.audit("--by-tensor", "--engine", f"{PLUGINS}/naive_cpu_theta.so,host-twin")
        self.assertEqual(result.returncode, 8, result.stdout + result.stderr)
        wrong, sound = result.stdout.split("host-twin on cpu")
        self.assertIn("  rope_theta: not read: ", wrong)
        self.assertRegex(wrong, r"(?m)^  read: .*self_attn\.q_norm\.weight, .*embed_tokens\.weight, history$")
        self.assertRegex(sound, r"(?m)^  read: .*embed_tokens\.weight, rope_theta, history$")
        told = json.loads(self.audit("--by-tensor", "--tiles", "1", "--tensors", "k_norm", "-o", "json").stdout)
        self.assertEqual([(p["part"], p["tiles"]) for p in told["cases"][0]["engines"][0]["parts"]],
                         [("self_attn.k_norm.weight", 1)])

    def test_an_engine_that_fails_has_its_own_verdict(self):
        engines = f"{PLUGINS}/naive_cpu_fails.so,{PLUGINS}/naive_cpu_crash.so,host-twin"
        result = self.audit("--tiles", "2", "--engine", engines)
        self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
        self.assertIn("naive_cpu_fails.so on cpu", result.stdout)
        self.assertIn("it gives", result.stdout)
        self.assertIn("signal 11", result.stdout)
        self.assertIn("PASS by tiles", result.stdout)

    def test_bad_flags(self):
        for args, text in (
                (("--engine", "no-such"), "'no-such' is unknown"),
                (("--tensors", "gates"), "--tensors: no tensor that a decode reads has gates"),
                (("-n", "5000"), "max_position_embeddings 4096")):
            with self.subTest(args=args):
                result = self.audit(*args)
                self.assertEqual(result.returncode, 2, result.stdout + result.stderr)
                self.assertIn(text, result.stderr)
                self.assertNotIn("PASS", result.stdout)

    def test_depth_lengthens_the_decode(self):
        result = self.audit("--tiles", "3", "-d", "40", "-n", "8", "-o", "json")
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        case = json.loads(result.stdout)["cases"][0]
        self.assertEqual((case["n_depth"], case["n_gen"]), (40, 8))
        self.assertEqual([p["tiles"] for p in case["engines"][0]["parts"]], [3, 3])


if __name__ == "__main__":
    unittest.main()
