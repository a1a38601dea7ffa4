"""Quantised weights: the values that they stand for, as the libraries that store them read them, and what is refused."""

import importlib.util
import json
import pathlib
import sys
import tempfile
import unittest

from support.cli_support import DATA, ROOT

# [3, 43] normal numbers, packed by bitsandbytes 0.50.2 in NF4 with blocks of 64: bytes, the blocks' largest, and what it
# makes of some of the last row. Then with the largest in 8 bits themselves: what its table of 256 holds at these, their
# scale and offset.
NF4 = ("6281cc675470956d86f597ab8ea73269b0b48217513a69ce34b94598ccd6605a445108bde8b9b02e9454995c9ac953a869c47bc39687539922171558"
       "af46597ff7")
LARGEST = [0.26642000675201416, 0.262460321187973, 0.06367431581020355]
ENDS = {0: -0.04849569499492645, 1: 0.11566884070634842, 34: 0.06459471583366394, 41: 0.262460321187973, 42: 0.06367431581020355}
NESTED = ("72947c6315156674bde91dc67ccafba85c781155752da34b89da3e3c6486373de14829d8147964688816958442564809bd84743caa689a6c653c6c75cc"
          "285e68f7")
NESTED_TABLE, NESTED_SCALE, NESTED_OFFSET = [0.40234375, 0.5992187261581421, -0.992968738079071], 0.10586389154195786, 0.18835459649562836
NESTED_ENDS = {0: 0.020037541165947914, 1: -0.07161956280469894, 39: 0.1820334643125534, 42: 0.08323506265878677}


@unittest.skipIf(importlib.util.find_spec("transformers") is None, "this Python has no transformers")
class StoredWeights(unittest.TestCase):
    def setUp(self):
        for place in ("baselines", "tests/support"):
            sys.path.insert(0, str(ROOT / place))
            self.addCleanup(sys.path.remove, str(ROOT / place))
        import quantised_model
        import stored_parts
        import stored_weights
        import torch
        self.stored, self.parts, self.maker, self.torch = stored_weights, stored_parts, quantised_model, torch
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def random(self, *shape):
        return self.torch.randn(shape, generator=self.torch.Generator().manual_seed(1)) * 100

    def values(self, method, parts, **stated):
        return self.stored.METHODS[method].values(parts, stated, "layers.1.q_proj")

    def refused(self, text, call, *args, **kwargs):
        with self.assertRaisesRegex(ValueError, text) as caught:
            call(*args, **kwargs)
        self.assertEqual(getattr(caught.exception, "mkbench_kind", None), "bad_input")

    def test_every_value_has_the_scale_of_its_block(self):
        weight, scales = self.random(5, 7).to(self.torch.float8_e4m3fn), self.torch.arange(1, 13).float().reshape(3, 4) / 3
        found = self.parts.times_scales(weight, scales, [2, 2])
        self.assertEqual(found.dtype, self.torch.float32)
        for row in range(5):
            for column in range(7):
                self.assertEqual(found[row, column], weight[row, column].float() * scales[row // 2, column // 2])
        wide = self.parts.times_scales(weight, scales[:1, :3], [5, 3])
        self.assertEqual(wide[4, 6], weight[4, 6].float() * scales[0, 2])
        rows = self.parts.times_scales(weight, scales.flatten()[:5])
        self.assertTrue(self.torch.equal(rows, weight.float() * scales.flatten()[:5, None]))
        nan = self.torch.full((3, 4), float("nan"))
        for bad, block, text in ((scales[:2], [2, 2], r"of another shape: found \[2, 4\], wanted \[3, 4\]"), (nan, [2, 2], "NaN or Inf: found"),
                                 (scales, None, r"found \[3, 4\], wanted \['a divisor of 5', 'a divisor of 7'\]"),
                                 (scales[:1, :2], None, "'a divisor of 7'")):
            self.refused(text, self.parts.times_scales, weight, bad, block)

    def test_fp8_as_transformers_reads_it(self):
        from transformers.integrations.finegrained_fp8 import Fp8Dequantize

        # By powers of two, so that no type rounds a product.
        weight, scales = self.random(8, 12).to(self.torch.float8_e4m3fn), 2.0 ** self.torch.arange(6).reshape(2, 3)
        theirs = Fp8Dequantize(None)._dequantize_one(weight, scales)
        mine = self.values("fp8", {"weight": weight, "weight_scale_inv": scales}, weight_block_size=[4, 4])
        self.assertTrue(self.torch.equal(mine, theirs.float()))
        self.refused("is quantised and has no weight_scale_inv beside weight", self.values, "fp8", {"weight": weight}, weight_block_size=[4, 4])

    def test_compressed_tensors_words_of_four_and_eight_bits(self):
        # Packed by compressed-tensors 0.20.1: a row of 24 values in groups of eight.
        torch, words = self.torch, self.torch.tensor([[528188840, -1129354648, -2018765111]], dtype=self.torch.int32)
        wanted = [0, 2, -3, 0, 3, -1, 7, -7, 0, -2, 2, -2, 7, 2, 4, 3, 1, 4, -2, -7, 4, 2, -1, 0]
        parts = {"weight_packed": words, "weight_scale": torch.ones(1, 1), "weight_shape": torch.tensor([1, 24])}
        self.assertEqual(self.values("compressed-tensors", parts).tolist(), [wanted])
        self.assertEqual(self.values("compressed-tensors", parts | {"weight_shape": torch.tensor([1, 17])}).tolist(), [wanted[:17]])
        eight = parts | {"weight_packed": words[:, :2], "weight_shape": torch.tensor([1, 7])}
        self.assertEqual(self.values("compressed-tensors", eight).tolist(), [[40, 5, -5, -97, -24, -22, 47]])  # its bytes less 128
        scaled = parts | {"weight_scale": torch.tensor([[1.0, 10.0, 100.0]])}
        self.assertEqual(self.values("compressed-tensors", scaled).tolist(), [[w * 10.0 ** (i // 8) for i, w in enumerate(wanted)]])
        # Zero points are packed along the rows, 8 more than they are; an order of columns names each one's group.
        zeros = scaled | {"weight_zero_point": torch.tensor([[8 + 1, 8 - 2, 8 + 3]], dtype=torch.int32)}
        shifted = [(w - (1, -2, 3)[i // 8]) * 10.0 ** (i // 8) for i, w in enumerate(wanted)]
        self.assertEqual(self.values("compressed-tensors", zeros).tolist(), [shifted])
        order = torch.tensor([2] * 8 + [0] * 8 + [1] * 8, dtype=torch.int32)
        found = self.values("compressed-tensors", zeros | {"weight_g_idx": order}).tolist()[0]
        self.assertEqual(found, [(w - (1, -2, 3)[g]) * 10.0 ** g for w, g in zip(wanted, order.tolist())])
        self.assertEqual(self.values("compressed-tensors", zeros | {"weight_g_idx": order * 0 - 1}).tolist(), [shifted])
        for change, text in (({"weight_shape": torch.tensor([1, 25])}, r"words \[1, 3\] hold a matrix \[1, 25\]"),
                             ({"weight_shape": torch.tensor([2, 24])}, r"hold a matrix \[2, 24\] .weight_shape., wanted 4 or 8 bits"),
                             ({"weight_g_idx": order[:23]}, r"weight_g_idx names groups \[23\] up to 2, scales are \[1, 3\]"),
                             ({"weight_g_idx": order + 1}, "up to 3")):
            self.refused(text, self.values, "compressed-tensors", scaled | change)
        # Nine rows in two words of zero points; or zero points in int8, which is not 8 more.
        of_rows = torch.tensor([9, 6, 11, 8, 0, 15, 1, 2, 7], dtype=torch.int32)
        tall = {"weight_packed": words.repeat(9, 1), "weight_scale": torch.full((9, 1), 2.0), "weight_shape": torch.tensor([9, 24])}
        packed = sum(of_rows[i:i + 1].long() << 4 * i for i in range(8))
        packed = torch.stack((torch.where(packed >= 1 << 31, packed - (1 << 32), packed), of_rows[8:].long())).to(torch.int32)
        wanted_rows = [[2.0 * (w + 8 - zero) for w in wanted] for zero in of_rows.tolist()]
        self.assertEqual(self.values("compressed-tensors", tall | {"weight_zero_point": packed}).tolist(), wanted_rows)
        bytes_ = (of_rows[:, None] - 8).to(torch.int8)
        self.assertEqual(self.values("compressed-tensors", tall | {"weight_zero_point": bytes_}).tolist(), wanted_rows)
        for bad in (packed[:1], bytes_[:8], bytes_.to(torch.int16)):
            self.refused(r"weight_zero_point is torch.int\d+ .*, wanted int32 words of 4 bits along 9 rows, or int8 of the scales' shape, \[9, 1\]",
                         self.values, "compressed-tensors", tall | {"weight_zero_point": bad})
        parts.pop("weight_shape")
        self.refused("has no weight_shape beside weight_packed, weight_scale", self.values, "compressed-tensors", parts)

    def test_compressed_tensors_in_blocks_and_in_whole_bytes(self):
        eight = self.torch.tensor([[1, -2, 3]], dtype=self.torch.int8)
        parts = {"weight": eight, "weight_scale": self.torch.tensor([0.5])}
        self.assertEqual(self.values("compressed-tensors", parts).tolist(), [[0.5, -1, 1.5]])
        parts["weight_zero_point"] = self.torch.tensor([2], dtype=self.torch.int8)
        self.assertEqual(self.values("compressed-tensors", parts).tolist(), [[-0.5, -2, 0.5]])
        parts = {"weight": eight, "weight_scale": self.torch.tensor([[1.0, 10.0]])}
        groups = {"config_groups": {"group_0": {"weights": {"block_structure": [1, 2]}}}}
        self.assertEqual(self.values("compressed-tensors", parts, **groups).tolist(), [[1, -2, 30]])
        self.refused("'a divisor of 3'", self.values, "compressed-tensors", parts)

    def test_compressed_tensors_by_the_config_group_of_a_module(self):
        parts = {"weight": self.torch.ones(1, 6, dtype=self.torch.int8), "weight_scale": self.torch.tensor([[1.0, 10.0]])}
        uneven, even = [[1, 1, 1, 1, 10, 10]], [[1, 1, 1, 10, 10, 10]]

        def groups(*pairs):
            return {"config_groups": {str(i): {"targets": targets, "weights": weights} for i, (targets, weights) in enumerate(pairs)}}
        four, three = {"group_size": 4}, {"group_size": 3}
        for pairs, wanted in (([(["Linear"], four)], uneven), ([(["Linear"], {"group_size": None})], even), ([(["Linear"], {"block_structure": "1x4"})], uneven),
                              ([(["Linear"], three), (["re:.*q_proj"], four)], uneven), ([(["Linear"], three), (["layers.1.q_proj"], four)], uneven),
                              ([(["Linear"], three), (["re:q_proj", "q_proj"], four)], even), ([(["re:.*k_proj"], four)], even),
                              ([(["Linear"], {"group_size": -1})], even)):
            self.assertEqual(self.values("compressed-tensors", parts, **groups(*pairs)).tolist(), wanted, pairs)

    def test_awq(self):
        """As dequantize_gemm() of autoawq 0.2.6 reads two inputs of eight outputs in one group."""
        words = self.torch.tensor([[-957033423], [867841709]], dtype=self.torch.int32)
        parts = {"qweight": words, "qzeros": self.torch.tensor([[302606428]], dtype=self.torch.int32), "scales": self.torch.full((1, 8), 2.0)}
        wanted = [[-11, 1], [-5, 1], [-2, 5], [15, 11], [-4, -2], [4, 1], [7, -3], [11, 2]]
        self.assertEqual(self.values("awq", parts).tolist(), [[2.0 * value for value in row] for row in wanted])
        self.refused("do not divide", self.values, "awq", parts | {"scales": self.torch.ones(2, 8)})

    def test_gptq(self):
        """What auto-gptq 0.7.1 computes: scale * (stored - (zero point + 1)), inputs packed along the rows."""
        parts = {"qweight": self.torch.tensor([[0x76543210], [0x0EDCBA98]], dtype=self.torch.int32), "scales": self.torch.tensor([[1.0], [10.0]]),
                 "qzeros": self.torch.tensor([[2], [4]], dtype=self.torch.int32)}
        self.values_of(parts, [i - 3 for i in range(8)] + [10 * (i - 5) for i in (*range(8, 15), 0)])
        groups = self.torch.tensor([1, 0] * 8, dtype=self.torch.int32)
        self.values_of(parts | {"g_idx": groups}, [10 * (i - 5) if n % 2 == 0 else i - 3 for n, i in enumerate((*range(15), 0))])
        self.values_of(parts, [i - 2 for i in range(8)] + [10 * (i - 4) for i in (*range(8, 15), 0)], checkpoint_format="gptq_v2")
        # Eight bits, as "dynamic" may state them for some layers.
        eight = {"qweight": self.torch.tensor([[0x04030201]] * 4, dtype=self.torch.int32), "scales": self.torch.ones(1, 1),
                 "qzeros": self.torch.zeros(1, 1, dtype=self.torch.int32)}
        wide = {"qweight": eight["qweight"][:1].repeat(1, 4), "scales": self.torch.ones(1, 4), "qzeros": eight["qzeros"]}
        self.assertEqual(self.values("gptq", wide, bits=4)[0].tolist(), [0, 1, 2, 3])
        self.refused(r"qweight \[1, 32\] and qzeros \[1, 3\] are of 3 bits", self.values, "gptq",
                     {"qweight": wide["qweight"].repeat(1, 8), "qzeros": eight["qzeros"].repeat(1, 3), "scales": self.torch.ones(1, 32)})
        for change, text in (({"g_idx": groups + 1}, "groups up to 2"), ({"g_idx": groups[:15]}, "wanted finite ones of as many outputs"),
                             ({"g_idx": groups - 1}, "groups up to 0"), ({"scales": self.torch.full((2, 1), float("inf"))}, "wanted finite ones"),
                             ({"qzeros": self.torch.tensor([[2], [15]], dtype=self.torch.int32)}, "some kernels of auto-gptq read as 0 and others as 16")):
            self.refused(text, self.values_of, parts | change, [])

    def values_of(self, parts, wanted, **stated):
        # qzeros holds eight outputs a word: the other seven have no weights.
        wide = {"qweight": parts["qweight"].repeat(1, 8), "scales": parts["scales"].repeat(1, 8)}
        found = self.values("gptq", parts | wide, bits=4, **stated)
        self.assertEqual(found[0].tolist(), [float(value) for value in wanted])

    def test_bitsandbytes(self):
        torch, state = self.torch, {"quant_type": "nf4", "blocksize": 64, "dtype": "float32", "shape": [3, 43]}

        def parts(text, largest, **more):
            packed = {"weight": text, "weight.quant_state.bitsandbytes__nf4": json.dumps(state | more)}
            bytes_ = {"weight": bytes.fromhex(text), "weight.quant_state.bitsandbytes__nf4": packed["weight.quant_state.bitsandbytes__nf4"].encode()}
            return {name: torch.tensor(list(data), dtype=torch.uint8) for name, data in bytes_.items()} | {
                "weight.absmax": torch.tensor(largest), "weight.quant_map": torch.tensor(self.maker.NF4)}
        plain = parts(NF4, LARGEST)
        nested = parts(NESTED, [0, 1, 2], nested_blocksize=256, nested_offset=NESTED_OFFSET) | {
            "weight.nested_absmax": torch.tensor([NESTED_SCALE]), "weight.nested_quant_map": torch.tensor(NESTED_TABLE)}
        for of, ends in ((plain, ENDS), (nested, NESTED_ENDS)):
            row = self.values("bitsandbytes", of)[2]
            for column, wanted in ends.items():
                self.assertAlmostEqual(float(row[column]), wanted, places=7)
        rows = {"weight": torch.tensor([[127, 37], [-23, -127]], dtype=torch.int8), "SCB": torch.tensor([1.107421875, 0.91650390625])}
        self.assertEqual(self.values("bitsandbytes", rows).tolist(), [[1.107421875, 0.3226347267627716], [-0.16598102450370789, -0.91650390625]])
        called = plain | {"weight": plain["weight"][:64].view(torch.bfloat16), "weight.absmax": plain["weight.absmax"][:2]}
        short = json.dumps(state | {"shape": [2, 64]}).encode()
        called["weight.quant_state.bitsandbytes__nf4"] = torch.tensor(list(short), dtype=torch.uint8)
        self.assertEqual(self.values("bitsandbytes", called).flatten()[:128].tolist(), self.values("bitsandbytes", plain).flatten()[:128].tolist())
        self.refused("found the largest of 2 blocks, wanted those of 129 values", self.values, "bitsandbytes", parts(NF4, LARGEST[:2]))
        self.refused(r"found 128 values, wanted those of \[3, 43\]", self.values, "bitsandbytes", parts(NF4[:-2], LARGEST))
        plain.pop("weight.quant_state.bitsandbytes__nf4")
        self.refused("has no weight.quant_state.bitsandbytes__nf4", self.values, "bitsandbytes", plain)

    def test_a_folder_of_shards(self):
        from safetensors.torch import save_file

        weight, scales = self.random(4, 4).to(self.torch.float8_e4m3fn), self.torch.full((2, 2), 2.0)
        save_file({"a.weight": weight}, self.folder / "one.safetensors")
        save_file({"a.weight_scale_inv": scales, "norm.weight": self.torch.ones(3), "a.bias": self.torch.ones(4)}, self.folder / "two.safetensors")
        save_file({"b": scales}, self.folder / "consolidated.safetensors")  # which transformers does not read
        index = {"weight_map": {"a.weight": "one.safetensors", "a.weight_scale_inv": "two.safetensors", "norm.weight": "two.safetensors"}}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        (self.folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": "fp8", "weight_block_size": [2, 2]}}))
        found = dict(self.stored.stored_in(self.folder))
        self.assertEqual(sorted(found), ["a.bias", "a.weight", "norm.weight"])
        self.assertTrue(self.torch.equal(found["a.weight"], 2 * weight.float()))
        save_file({"a.weight_scale_inv": scales[:1]}, self.folder / "two.safetensors")
        self.refused(f"{self.folder}: weight 'a.weight', fp8: scales of another shape", lambda: dict(self.stored.stored_in(self.folder)))
        save_file({"a.weight_scale_inv": scales[:, 0].to(self.torch.uint8)}, self.folder / "two.safetensors")
        self.refused("weight 'a.weight', fp8: ", lambda: dict(self.stored.stored_in(self.folder)))

    def test_every_format_of_a_folder_is_near_what_was_quantised(self):
        from safetensors.torch import load_file
        import step_reads

        whole = load_file(DATA / "tiny" / "model.safetensors")
        name, values = "model.layers.3.mlp.down_proj.weight", 128 * 384
        most = {"fp8": 0.04, "int8": 0.01, "int4": 0.1, "awq": 0.1, "gptq": 0.1, "nf4": 0.12}  # of the deviation
        bits = {"fp8": 8 + 32 / 32 ** 2, "int8": 8 + 32 / 384, "int4": 4 + 32 / 16, "awq": 4 + 20 / 32, "gptq": 4 + 20 / 32, "nf4": 4 + 32 / 64}
        self.assertEqual(set(most), set(self.maker.STATED))
        for form, limit in most.items():
            with self.subTest(form=form):
                self.maker.make(DATA / "tiny", self.folder / form, form)
                stored = self.stored.stored_in(self.folder / form)
                found = dict(stored)
                self.assertEqual(sorted(found), sorted(whole))
                self.assertEqual({weight: stored.shape(weight) for weight in stored}, {weight: list(values.shape) for weight, values in whole.items()})
                self.assertEqual([weight for weight in stored if stored.is_stored(weight)], [weight for weight in stored if weight.endswith("_proj.weight")])
                off = (found[name] - whole[name].float()).square().mean().sqrt() / whole[name].float().std()
                self.assertGreater(limit, off)
                self.assertGreater(off, limit / 10)
                self.assertTrue(self.torch.equal(found["model.norm.weight"].float(), whole["model.norm.weight"].float()))
                self.assertEqual(step_reads.stored_bits(self.folder / form)[name], bits[form] * values)

    def test_products_keep_what_bf16_cannot_hold(self):
        import hf_decoder

        torch = self.torch
        model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False)), torch.nn.LayerNorm(2),
                                    torch.nn.RMSNorm(3), torch.nn.RMSNorm(3), torch.nn.Sequential(torch.nn.Embedding(2, 2)))
        model._keep_in_fp32_modules_strict = ["5"]
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) / 3)
            model[1][0].weight.copy_(torch.ones(2, 3))
            model[3].weight.fill_(1.5)
        in_thirds = model[4].weight.clone()
        wanted = [parameter.clone() for parameter in model[0].parameters()]
        rounded = hf_decoder.round_to(model, torch.bfloat16)
        self.assertIsInstance(rounded[0], hf_decoder.Fp32Product)
        self.assertTrue(torch.equal(rounded[0].weight, wanted[0]) and torch.equal(rounded[0].bias, wanted[1]))
        self.assertEqual([type(rounded[1][0]), rounded[1][0].weight.dtype, rounded[2].weight.dtype], [torch.nn.Linear, torch.bfloat16, torch.bfloat16])
        self.assertEqual([rounded[i].weight.dtype for i in (3, 4)] + [rounded[5][0].weight.dtype], [torch.bfloat16, torch.float32, torch.float32])
        self.assertTrue(torch.equal(rounded[4].weight, in_thirds))
        self.assertEqual(rounded[4](torch.ones(1, 3)).dtype, torch.bfloat16)
        x = torch.tensor([1.0, -2.0], dtype=torch.bfloat16)
        found = rounded[0](x)
        self.assertTrue(torch.equal(found, (wanted[0] @ x.float() + wanted[1]).to(torch.bfloat16)))
        self.assertEqual(found.dtype, torch.bfloat16)
        moved = rounded[0].to("meta")  # as to a card
        self.assertEqual((moved.weight.device.type, moved.bias.device.type), ("meta", "meta"))

    def test_what_is_stated(self):
        def form(method, **stated):
            (self.folder / "config.json").write_text(json.dumps({"quantization_config": {"quant_method": method} | stated}))
            found = self.stored.stored_in(self.folder)
            return None if found is None else found.form

        for method, stated, wanted in (("fp8", {"weight_block_size": [128, 64]}, "fp8"), ("awq", {"bits": 4}, "awq"),
                                       ("compressed-tensors", {"format": "int-quantized"}, "int-quantized"), ("awq", {"w_bit": 4, "version": "GEMM"}, "awq"),
                                       ("gptq", {"bits": 8, "checkpoint_format": "gptq_v2"}, "gptq"), ("gptq", {"bits": 2}, "gptq"),
                                       ("bitsandbytes", {"bnb_4bit_quant_type": "nf4"}, "nf4"), ("bitsandbytes", {"load_in_8bit": True}, "int8"),
                                       ("mxfp4", {}, None)):
            self.assertEqual(form(method, **stated), wanted)
        (self.folder / "config.json").write_text("{}")
        self.assertIsNone(self.stored.stored_in(self.folder))
        for size in (None, [128], [128, 0], [128, "1"], 128):
            self.refused("config.json: quantization_config: weight_block_size is .*, wanted two sizes", form, "fp8", weight_block_size=size)
        for method, stated, text in (("awq", {"bits": 8}, "bits and version are 8 and 'gemm', wanted 4 and 'gemm'"),
                                     ("awq", {"bits": 4, "version": "gemv"}, "are 4 and 'gemv'"), ("gptq", {"bits": 3}, "are 3 and 'gptq', wanted 2, 4 or 8"),
                                     ("gptq", {"bits": 4, "checkpoint_format": "marlin"}, "are 4 and 'marlin'"),
                                     ("compressed-tensors", {"format": "marlin-24"}, "format is 'marlin-24', wanted one of pack-quantized"),
                                     ("compressed-tensors", {"format": "int-quantized", "transform_config": {"config_groups": {}}}, "transform_config is True"),
                                     ("compressed-tensors", {"format": "int-quantized", "sparsity_config": {"format": "sparse-24-bitmask"}},
                                      "sparsity_config is 'sparse-24-bitmask', wanted none")):
            self.refused(text, form, method, **stated)


if __name__ == "__main__":
    unittest.main()
