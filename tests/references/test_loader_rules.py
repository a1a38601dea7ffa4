"""docs/dev/loader-rules.md, row by row: each change is made to a small checkpoint, which transformers, the loader and
`mkbench inspect` then open. The page says what its cells mean."""

import copy
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM
from transformers.utils import logging as hf_logging

ROOT = pathlib.Path(__file__).resolve().parents[2]
DATA = ROOT / "references" / "data"
PAGE = ROOT / "docs" / "dev" / "loader-rules.md"
SINGLE, INDEX = "model.safetensors", "model.safetensors.index.json"
IDS = torch.tensor([[72, 101, 108, 108, 111, 32, 119, 111]])
READ_ALIKE = ("hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim", "rope_theta",
              "RoPE scaling", "rms_norm_eps", "KV cache")

torch.set_num_threads(1)
hf_logging.set_verbosity(hf_logging.CRITICAL)
hf_logging.disable_progress_bar()


class Link(str):
    """A symbolic link's target."""


def rows():
    """The cells of each row of the page's tables."""
    for number, line in enumerate(PAGE.read_text().splitlines(), 1):
        cells = [cell.strip().replace("\\|", "|") for cell in line[2:-1].split(" | ")]
        if line.startswith("| ") and cells[0] != "rule":
            if len(cells) != 5:
                raise ValueError(f"{PAGE}:{number}: {len(cells)} cells, wanted 5")
            yield number, cells


def read_alike(found):
    """What must be read alike wherever a model has the logits of the unchanged one."""
    return {f["field"]: f["found"] for f in found["findings"] if f["field"] in READ_ALIKE}


class Folder:
    """A checkpoint that a row changes; the names that a change may use are those of names()."""

    committed = {}

    def __init__(self):
        self.f, self.index, self.place = {}, None, "."
        self.c, self.t = {}, {}
        self.use("tiny")

    def use(self, name):
        if name not in self.committed:
            self.committed[name] = (json.loads((DATA / name / "config.json").read_text()), load_file(DATA / name / SINGLE))
        config, tensors = self.committed[name]
        self.name = name
        for held, wanted in ((self.c, copy.deepcopy(config)), (self.t, tensors)):
            held.clear()
            held.update(wanted)

    def shards(self):
        names = sorted(self.t)
        self.index = {"metadata": {"total_size": sum(t.nbytes for t in self.t.values())}, "weight_map": {
            n: f"model-0000{1 + (i >= len(names) // 2)}-of-00002.safetensors" for i, n in enumerate(names)}}
        return self.index

    def at(self, place):
        self.place = place

    def names(self):
        return {"c": self.c, "t": self.t, "f": self.f, "use": self.use, "at": self.at, "shards": self.shards, "Link": Link, "torch": torch,
                "json": json, "inv_freq": lambda theta, dim=128: 1 / theta ** (torch.arange(0, dim, 2) / dim),
                "old": lambda: (DATA / "tiny-untied" / SINGLE).read_bytes(), "layer": "model.layers.{}.self_attn.".format}

    def write(self, path):
        path /= self.place
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(self.c))
        parts = {SINGLE: self.t}
        if self.index:
            self.index = json.loads(json.dumps(self.index))  # what a change refers to twice becomes two
            places = self.index["weight_map"]
            first = min(places.values())
            parts = {shard: {n: t for n, t in self.t.items() if places.get(n, first) == shard} for shard in set(places.values())}
            (path / INDEX).write_text(json.dumps(self.index))
        for name, tensors in parts.items():
            save_file({n: t.clone().contiguous() for n, t in tensors.items()}, path / name, metadata={"format": "pt"})
        for name, content in self.f.items():
            file = path / name
            file.unlink(missing_ok=True)
            file.parent.mkdir(parents=True, exist_ok=True)
            if content is None:
                continue
            if isinstance(content, Link):
                file.symlink_to(content)
            else:
                file.write_bytes(content.encode() if isinstance(content, str) else content)
        return path


@torch.inference_mode()
def logits(path):
    model = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager")
    return model(IDS).logits


def judged(paths):
    """What the loader and `mkbench inspect` make of each folder."""
    done = subprocess.run([os.environ["LOAD_PROBE"], "--judge", *paths], capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


class LoaderRules(unittest.TestCase):
    def check_transformers(self, wanted, path, base):
        kind, _, words = wanted.partition(": ")
        try:
            found = logits(path)
        except Exception as error:
            self.assertEqual(kind, "refuses", error)
            self.assertIn(words, f"{type(error).__name__} {error}")
            return
        self.assertEqual(kind, "same" if torch.equal(found, base) else "other")

    def check_mkbench(self, wanted, found, base):
        kind, _, words = wanted.partition(": ")
        texts = [f["text"] for f in found["findings"] if f["severity"] in ("fatal", "unsupported")]
        if kind == "refuses":
            self.assertIn(words, "; ".join(texts))
            self.assertIn(words, found["refusal"])
            return
        self.assertEqual((found["refusal"], texts), ("", []))
        self.assertEqual(len([f for f in found["findings"] if f["text"] in found["notes"]]), len(found["notes"]))
        if kind == "note":
            self.assertIn(words, "; ".join(found["notes"]))
        self.assertEqual((kind, len(found["notes"])), ("note", 1) if words else ("runs", 0))
        if base is not None:
            self.assertEqual(read_alike(found), read_alike(base))
            self.assertEqual(found["sha256"], base["sha256"])

    def test_every_row(self):
        root = pathlib.Path(tempfile.mkdtemp(prefix="mkbench_rules_"))
        self.addCleanup(shutil.rmtree, root)
        table, paths, bases = list(rows()), [], {}
        self.assertGreaterEqual(len(table), 60)
        for number, (_, change, *_) in table:
            folder = Folder()
            exec(change.strip("`"), folder.names())
            paths.append(folder.write(root / str(number)))
            bases[number] = folder.name
        for name in set(bases.values()):
            folder = Folder()
            folder.use(name)
            paths.append(folder.write(root / name))
        found = dict(zip(paths, judged(paths)))
        truth = {name: logits(root / name) for name in set(bases.values())}
        for (number, (rule, _, hf, we, why)), path in zip(table, paths):
            with self.subTest(line=number, rule=rule):
                self.check_transformers(hf, path, truth[bases[number]])
                self.check_mkbench(we, found[path], found[root / bases[number]] if hf == "same" else None)
                self.assertTrue(why or hf.startswith("refuses") == we.startswith("refuses"), "a reason is missing")


if __name__ == "__main__":
    unittest.main()
