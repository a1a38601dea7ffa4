"""The published Qwen3 shapes in Python, read from the one table that C++ compiles: references/model/published.h."""

import dataclasses
import re

import checkpoint_format

TABLE = checkpoint_format.ROOT / "references" / "model" / "published.h"
NAMED_SHAPE = checkpoint_format.ROOT / "references" / "model" / "shape.h"
FIELDS = ("hidden", "intermediate", "layers", "heads", "kv_heads", "head_dim", "vocab")


@dataclasses.dataclass(frozen=True)
class Shape:
    """One row. dataclasses.replace(row, layers=4) is a cut of it."""

    name: str
    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    theta: float
    max_positions: int

    def config(self):
        """config.json of HF transformers."""
        return {
            "architectures": ["Qwen3ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 151643 if self.vocab > 151645 else None,
            "dtype": "bfloat16",
            "eos_token_id": 151645 if self.vocab > 151645 else None,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "initializer_range": 0.02,
            "intermediate_size": self.intermediate,
            "max_position_embeddings": self.max_positions,
            "model_type": "qwen3",
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": 1e-6,
            "rope_parameters": {"rope_type": "default", "rope_theta": int(self.theta)},
            "tie_word_embeddings": self.tied,
            "use_cache": True,
            "use_sliding_window": False,
            "vocab_size": self.vocab,
        }


def named_shape(name):
    """The seven dimensions of a constant in shape.h."""
    body = re.search(rf"ModelShape {name}\{{(.*?)\}}", NAMED_SHAPE.read_text(), re.S)
    if not body:
        raise ValueError(f"{NAMED_SHAPE}: has no shape {name}")
    values = dict(re.findall(r"\.(\w+) = (\d+)", body[1]))
    return [int(values[field]) for field in FIELDS]


def read():
    """Every row of the table by its name, in its order. Raises ValueError if the table has another form."""
    body = re.search(r"kShapeTable\[\] = \{\n(.*?)\n\};", TABLE.read_text(), re.S)
    if not body:
        raise ValueError(f"{TABLE}: has no kShapeTable")
    rows = {}
    for line in body[1].splitlines():
        row = re.fullmatch(r'\s*\{"([^"]+)", (\w+|\{[\d, ]+\}), (true|false), ([\d.e+]+), (\d+)\},', line)
        if not row:
            raise ValueError(f"{TABLE}: found '{line.strip()}', wanted {{name, shape, tied, rope_theta, max_positions}}")
        name, shape, tied, theta, positions = row.groups()
        dims = [int(x) for x in shape[1:-1].split(",")] if shape.startswith("{") else named_shape(shape)
        rows[name] = Shape(name, *dims, tied == "true", float(theta), int(positions))
    return rows


ROWS = read()
