"""Token ids as text, by a tokenizer.json that the tokenizers library writes here."""

import importlib.util
import json
import pathlib
import subprocess
import sys
import unittest

from support import cli_support
from support.cli_support import DATA, CliTest

import token_texts

HAS_TOKENIZERS = importlib.util.find_spec("tokenizers") is not None
# What a report must not pass on as it is: markup, a table's bar, a terminal's escape, half characters, a mark that
# turns the direction of writing round.
HOSTILE = ["<script>alert(1)</script>", "| `x` |", "**b**", "\x1b[31m", "\u202e", "a\nb", "back\\slash", "![i](h)"]


def byte_level(pieces):
    """A tokenizer whose ids stand for these bytes, in order."""
    from tokenizers import Tokenizer, decoders, models
    names = {byte: character for character, byte in token_texts.BYTES.items()}
    vocabulary = {"".join(names[byte] for byte in piece): i for i, piece in enumerate(pieces)}
    assert len(vocabulary) == len(pieces)
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@unittest.skipUnless(HAS_TOKENIZERS, "this Python has no tokenizers")
class PiecesTest(unittest.TestCase):
    def pieces(self, tokenizer, folder, ids):
        tokenizer.save(str(folder / "tokenizer.json"))
        answer = token_texts.answer(folder, ids)
        return [bytes.fromhex(answer["pieces"][str(i)]) for i in ids]

    def setUp(self):
        import tempfile
        temporary = tempfile.TemporaryDirectory(prefix="mkbench_text_")
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)


class Pieces(PiecesTest):
    def test_trained_byte_level(self):
        from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
        text = "naïve café, 你好 🙂 "
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        tokenizer.train_from_iterator([text], trainers.BpeTrainer(vocab_size=1, show_progress=False))
        tokenizer.add_tokens([AddedToken("<|end|>", special=True)])
        ids = tokenizer.encode(text + "<|end|>").ids
        pieces = self.pieces(tokenizer, self.folder, ids)
        self.assertTrue(any("\ufffd" in p.decode(errors="replace") for p in pieces))  # a part of a character
        self.assertEqual(b"".join(pieces).decode(), text + "<|end|>")

    def test_other_decoders_and_unknown_ids(self):
        from tokenizers import Tokenizer, decoders, models
        tokenizer = Tokenizer(models.BPE(vocab={"\u2581the": 0, "<0xE4>": 1, "cat": 2}, merges=[]))
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
        self.assertEqual(self.pieces(tokenizer, self.folder, [0, 1, 2, 77, -1]), [b" the", b"\xe4", b"cat", b"<77>", b"<-1>"])

    def test_defects_are_named(self):
        for content, reason in (("{", "EOF"), ("{}", "Model missing"), ('{"version": "7"}', "version")):
            (self.folder / "tokenizer.json").write_text(content)
            problem = token_texts.answer(self.folder, [1])["problem"]
            self.assertIn(f"{self.folder / 'tokenizer.json'}: no tokenizer: ", problem)
            self.assertIn(reason, problem)
            self.assertNotIn("\n", problem)


class TextTest(CliTest):
    """Runs of tiny's weights as a user's model with a tokenizer of its own."""

    def setUp(self):
        super().setUp()
        self.model = self.folder / "mine"
        self.model.mkdir()
        for name in ("config.json", "model.safetensors"):
            (self.model / name).symlink_to(DATA / "tiny" / name)

    def run_mine(self, *args, **env):
        done = self.mkbench("--compare", "eager", "--model", str(self.model), "--device", "cpu", "--n-gen", "6", "--blocks", "2",
                            "--no-plot", "--out", str(self.out), *args, env={"MKBENCH_PYTHON": sys.executable} | env)
        self.assertEqual(done.returncode, 0, done.stderr + done.stdout)
        return done, self.report()["cases"][0]

    def first_ids(self, case):
        return min((s for e in case["engines"] for s in e["samples"]), key=lambda s: s["start_ms"])["ids"]

    def verified(self, env):
        """exit code and output of verify, where no Python can be asked."""
        done = self.mkbench("verify", str(self.out), env={"MKBENCH_PYTHON": "/nowhere/python"} | env)
        return done.returncode, done.stdout + done.stderr


@unittest.skipUnless(HAS_TOKENIZERS, "this Python has no tokenizers")
class WithTokenizer(TextTest):
    def test_texts_are_shown_sealed_and_verified(self):
        pieces = [HOSTILE[i % len(HOSTILE)].encode() + b"%d" % i for i in range(259)]
        pieces[1::2] = [bytes([0xc3 if i % 4 == 1 else 0xa9]) * (1 + i // 4) for i in range(1, 259, 2)]
        tokenizer = byte_level(pieces)
        tokenizer.save(str(self.model / "tokenizer.json"))
        done, case = self.run_mine("--parity-table")
        ids = self.first_ids(case)
        texts = {one["id"]: one["text"] for one in case["token_texts"]}
        self.assertTrue(set(ids) <= set(texts))
        for row in next(e for e in case["engines"] if e["role"] == "candidate")["parity"]["rows"]:
            self.assertTrue(row["mk_text"])
        # The library's own decoder puts U+FFFD where bytes are no character; they are escaped here.
        decoded = tokenizer.decode(ids, skip_special_tokens=False)
        shown = case["generated_text"]
        for escape, meant in (("\\\\", "\\"), ("\\n", "\n"), ("\\x1b", "\x1b"), ("\\u{202e}", "\u202e")):
            shown = shown.replace(escape, meant)
        if "\ufffd" not in decoded:
            self.assertEqual(shown, decoded)
        self.assertNotIn("\ufffd", shown)
        everything = done.stdout + (self.out / "report.md").read_text() + json.dumps(case, ensure_ascii=False)
        for forbidden in ("\x1b", "\u202e"):
            self.assertNotIn(forbidden, everything)
        # Markup stands inside of code spans alone: the text outside of them has none.
        outside = "".join(self.outside_code(line) for line in (self.out / "report.md").read_text().splitlines(True))
        for markup in ("<script", "**b**", "![i]"):
            self.assertNotIn(markup, outside)
        self.assertEqual(self.verified({})[0], 0, self.verified({})[1])
        self.check_edits()

    @staticmethod
    def outside_code(line):
        """The parts of a line that are in no code span."""
        out, at = "", 0
        while at < len(line):
            fence = len(line[at:]) - len(line[at:].lstrip("`"))
            end = line.find("`" * fence, at + fence) if fence else -1
            if end < 0:
                out, at = out + line[at], at + 1
            else:
                at = end + fence
        return out

    def check_edits(self):
        """A text that was changed is found, by the seal and by the sum of its parts."""
        path = self.out / "report.json"
        kept = path.read_text()
        for edit in (lambda c: c.update(generated_text="something else"), lambda c: c["token_texts"][0].update(text="\\q"),
                     lambda c: c["token_texts"].clear()):
            report = json.loads(kept)
            edit(report["cases"][0])
            path.write_text(json.dumps(report))
            code, output = self.verified({})
            self.assertEqual(code, 8, output)
        path.write_text(kept)


@unittest.skipUnless(HAS_TOKENIZERS, "this Python has no tokenizers")
class WithoutText(TextTest):
    def told(self, *args, **env):
        done, case = self.run_mine(*args, **env)
        self.assertEqual(case["token_texts"], [])
        notes = [w for w in self.report()["meta"]["warnings"] if "without text" in w]
        self.assertEqual(done.stderr.count("ids are shown without text"), len(notes))
        self.assertEqual(self.verified({})[0], 0)
        cli_support.shutil.rmtree(self.out)
        return notes

    def test_ids_stay_and_one_note_says_why(self):
        self.assertEqual(self.told(), [])  # no tokenizer.json, nothing to say
        (self.model / "tokenizer.json").write_text('{"version": ')
        path = self.model / "tokenizer.json"
        notes = self.told("--n-depth", "0,3")
        self.assertEqual(len(notes), 1)
        self.assertIn(f"{path}: no tokenizer: ", notes[0])
        byte_level([b"%d " % i for i in range(259)]).save(str(path))
        self.assertEqual(self.told(MKBENCH_PYTHON="/nowhere/python"),
                         ["ids are shown without text: cannot run /nowhere/python"])
        # A Python without the library, as far as a script can tell.
        (self.folder / "bare").write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
        (self.folder / "bare").chmod(0o755)
        probe = subprocess.run([self.folder / "bare", "-c", "import tokenizers"], check=False, capture_output=True)
        if probe.returncode != 0:
            [note] = self.told(MKBENCH_PYTHON=str(self.folder / "bare"))
            self.assertIn("No module named 'tokenizers'", note)


if __name__ == "__main__":
    sys.exit(unittest.main())
