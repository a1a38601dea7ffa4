"""tests/engines/extension_decoder.py, built here for the CPU: its logits are those of HF transformers in bf16, bit for
bit, because it rounds where HF does."""

import os
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "engines"))

try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)


class ExtensionDecoder(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        os.environ["TORCH_EXTENSIONS_DIR"] = holder.name
        os.environ["CUDA_VISIBLE_DEVICES"] = ""

    def test_logits(self):
        import extension_decoder  # builds the extension

        folder, device = ROOT / "references" / "data" / "tiny", torch.device("cpu")
        ids = torch.tensor([65, 32, 115, 109, 97, 108])
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).eval()
        with torch.no_grad():
            wanted = model(ids[None]).logits[0].float()
            decoder = extension_decoder.Decoder()
            decoder.open(folder, device, max_context=16)
            logits = torch.full((3, wanted.shape[1]), float("nan"))
            decoder.prefill(ids[:4])
            emitted = decoder.decode(3, ids[3:], logits)
            self.assertTrue(torch.equal(logits, wanted[3:]))
            self.assertEqual(emitted.tolist(), wanted[3:].argmax(-1).tolist())
            # Rewound, with another pending id: the rows in front of it stay.
            decoder.rewind(3)
            decoder.set_pending(int(ids[3]))
            again = torch.full((1, wanted.shape[1]), float("nan"))
            decoder.decode(1, None, again)
            self.assertTrue(torch.equal(again[0], logits[0]))
            self.assertEqual(decoder.position, 4)
            with self.assertRaisesRegex(RuntimeError, "KV rows: found 17, wanted at most 16"):
                decoder.decode(13)


if __name__ == "__main__":
    unittest.main()
