"""tests/engines/triton_decoder.py by Triton's interpreter: its logits are those of HF transformers in fp32."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "engines"))

try:
    import triton_decoder  # the first to import Triton: it chooses the interpreter
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

# Of a logit: the KV rows are rounded to bf16. The logits reach 9.
TOLERANCE = 0.03


class TritonDecoder(unittest.TestCase):
    def test_logits(self):
        folder, device = ROOT / "references" / "data" / "tiny", torch.device("cpu")
        ids = torch.tensor([65, 32, 115, 109, 97, 108])
        model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        with torch.no_grad():
            wanted = model(ids[None]).logits[0]
            decoder = triton_decoder.Decoder()
            decoder.open(folder, device, max_context=128)
            logits = torch.full((3, decoder.vocab), float("nan"))
            decoder.prefill(ids[:4])
            emitted = decoder.decode(3, ids[3:], logits)
            self.assertLess((logits - wanted[3:]).abs().max(), TOLERANCE)
            self.assertEqual(emitted.tolist(), logits.argmax(-1).tolist())
            # Rewound, with another pending id: the rows in front of it stay.
            decoder.rewind(3)
            decoder.set_pending(int(ids[3]))
            again = torch.full((1, decoder.vocab), float("nan"))
            decoder.decode(1, None, again)
            self.assertTrue(torch.equal(again[0], logits[0]))
            self.assertEqual(decoder.position, 4)


if __name__ == "__main__":
    unittest.main()
