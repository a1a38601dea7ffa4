"""The truth of transformers whose layers stay in the host's memory, and its walk along given ids."""

import gc
import importlib.util
import sys
import unittest
from unittest import mock

from support.cli_support import ROOT

MODEL = ROOT / "tests" / "engines" / "models" / "hybrid"


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class HostLayers(unittest.TestCase):
    def setUp(self):
        sys.path.insert(0, str(ROOT / "baselines"))
        self.addCleanup(sys.path.remove, str(ROOT / "baselines"))
        import hf_decoder
        import host_layers
        import torch
        self.hf, self.host_layers, self.torch = hf_decoder, host_layers, torch

    def truth(self, **how):
        decoder = self.hf.Decoder()
        decoder.open(str(MODEL), self.torch.device("cpu"), 300, precision="fp32", **how)
        return decoder

    def steps(self, decoder, n, forced=None):
        logits = self.torch.empty(n, 259)
        decoder.prefill(self.torch.arange(20))
        ids = decoder.decode(n, forced, logits)
        return ids, logits

    def test_layers_are_on_the_device_while_they_compute_and_no_longer(self):
        whole, kept = self.truth(), self.truth(layers="host")
        self.assertNotIn("layers=", whole.settings)
        self.assertIn(" layers=host", kept.settings)
        held = [[parameter.data_ptr() for parameter in layer.parameters()] for layer in kept.layers]
        seen = []

        def look(layer, _inputs):
            seen.append([[p.data_ptr() for p in one.parameters()] for one in kept.layers])
        for layer in kept.layers:
            layer.register_forward_pre_hook(look)
        ids, logits = self.steps(whole, 4)
        same, equal = self.steps(kept, 4)
        self.assertTrue(self.torch.equal(ids, same))
        self.assertTrue(self.torch.equal(logits, equal))
        self.assertEqual(len(seen), 2 * (1 + 4))  # the prefill, and four steps
        for at, now in enumerate(seen):
            for layer, (found, own) in enumerate(zip(now, held)):
                self.assertEqual([a != b for a, b in zip(found, own)], [layer == at % 2] * len(own), (at, layer))
        self.assertEqual([[p.data_ptr() for p in layer.parameters()] for layer in kept.layers], held)

    def test_a_walk_is_the_steps(self):
        truth = self.truth()
        free, rows = self.steps(truth, 70)
        self.assertEqual(truth.cache.get_seq_length(), 89)
        forced = self.torch.cat((self.torch.tensor([19]), free[:-1]))
        for walked in (1, 64, 69, 70, 71):
            with self.subTest(walked=walked), mock.patch.object(self.hf, "WALKED", walked):
                ids, logits = self.steps(truth, 70, forced)
                self.assertTrue(self.torch.equal(ids, free))
                self.assertLess(float((logits - rows).abs().max()), 1e-3)
                self.assertEqual((truth.cache.get_seq_length(), truth.pending.tolist()), (89, free[-1:].tolist()))

    def test_the_lowest_index_among_equals(self):
        truth = self.truth()
        rows = self.torch.zeros(3, 259)
        rows[0, 7] = rows[0, 9] = rows[1, 258] = 1
        rows[2, 3] = float("nan")
        self.assertEqual(truth.lowest(rows).tolist(), [7, 258, 258])
        self.assertEqual(truth.lowest(rows[0]).tolist(), 7)

    def test_a_class_whose_layers_are_not_known_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "Linear: its layers are not known") as caught:
            self.host_layers.keep_on_host(self.torch.nn.Linear(1, 1), [], None)
        self.assertEqual(caught.exception.mkbench_kind, "env_unfit")

    def test_on_a_card_opened_anew(self):
        if not self.torch.cuda.is_available():
            self.skipTest("no GPU")
        card, rows = self.torch.device("cuda", 0), []
        for where in ("host", "host", "device"):
            decoder = self.hf.Decoder()
            decoder.open(str(MODEL), card, 300, precision="fp32", layers=where)
            logits = self.torch.empty(4, 259, device=card)
            decoder.prefill(self.torch.arange(20, device=card))
            decoder.decode(4, None, logits)
            rows.append(logits)
            del decoder
            gc.collect()
        self.assertTrue(self.torch.equal(rows[0], rows[1]))
        self.assertTrue(self.torch.equal(rows[0], rows[2]))
        tensor = self.torch.ones(1 << 16)
        self.assertEqual(len(self.host_layers.lock([tensor])), 1)
        self.assertEqual(self.host_layers.lock([tensor]), [])  # it is locked already
        self.assertEqual(float(self.torch.ones(3, device=card).sum()), 3)  # and the next kernel runs
        self.host_layers.unlock([tensor])
        self.assertEqual(len(self.host_layers.lock([tensor])), 1)
        self.host_layers.unlock([tensor])


if __name__ == "__main__":
    unittest.main()
