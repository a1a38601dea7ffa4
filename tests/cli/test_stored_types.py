"""`--model FOLDER` of a checkpoint in fp32, fp16 and bf16: it is judged as its bf16 twin, by the twin's reference."""

import json
import shutil
import unittest

import numpy as np

from support.cli_support import DATA, CliTest
from support.snapshot_files import Checkpoint


def stored_as(dtype, data):
    """bf16 `data` as fp32, moved by almost half a step, or as fp16, which must hold it exactly."""
    bits = np.frombuffer(data, np.uint16).astype(np.uint32) << 16
    if dtype == "F32":
        down = (np.arange(bits.size) % 2 == 1) & (bits << 1 != 0)
        return np.where(down, bits - 0x7fff, bits + 0x7fff).astype(np.uint32).tobytes()
    halves = bits.view(np.float32).astype(np.float16)
    assert np.array_equal(halves.astype(np.float32), bits.view(np.float32))
    return halves.tobytes()


class StoredTypes(CliTest):
    def test_is_judged_as_its_bf16_twin(self):
        checkpoint = Checkpoint.committed("tiny-untied")
        checkpoint.config["torch_dtype"] = "float32"
        for name, tensor in checkpoint.tensors.items():
            dtype = "F16" if name.endswith("norm.weight") else "BF16" if name == "lm_head.weight" else "F32"
            if dtype != "BF16":
                tensor[:] = [dtype, tensor[1], stored_as(dtype, tensor[2])]
        folder = checkpoint.write(self.folder / "mixed")
        shutil.copy(DATA / "tiny-untied" / "reference.json", folder)
        done = self.bench("--model", str(folder), "--engine", "host-twin", "--require-reference")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        case = self.report()["cases"][0]
        self.assertEqual((case["verdict"], case["reference"]["file"]), ("PASS", "reference.json"))
        model = case["model"]
        manifest = json.loads((DATA / "tiny-untied" / "manifest.json").read_text())
        self.assertEqual(model["weights_sha256"], manifest["weights_sha256"])
        self.assertEqual(model["rounded"], "17 F16, 29 F32 of 47 tensors")
        self.assertEqual(done.stdout.count("17 F16, 29 F32 of 47 tensors are rounded to bf16"), 1)


if __name__ == "__main__":
    unittest.main()
