"""hf_decoder.py with the angles of another RoPE theta: each single step looks plausible."""

import pathlib
import sys

sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "baselines"))
import hf_decoder  # noqa: E402


class Decoder(hf_decoder.Decoder):
    name = "hf-broken"

    def open(self, folder, device, max_context):
        super().open(folder, device, max_context)
        self.model.model.rotary_emb.inv_freq.pow_(2 / 3)  # theta of 1e6 becomes 1e4
