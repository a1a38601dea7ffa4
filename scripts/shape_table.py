"""The published shapes in Python, read from the tables that C++ compiles: references/model/published.h."""

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

    eps: float = 1e-6
    llama3_factor: float = 1.0
    qk_norm: bool = True
    qkv_bias: bool = False

    @property
    def rope_parameters(self):
        """RoPE as config.json has it."""
        rope = {"rope_type": "default", "rope_theta": int(self.theta)}
        if self.llama3_factor == 1:
            return rope
        return rope | {"rope_type": "llama3", "factor": self.llama3_factor,
                       "low_freq_factor": float(llama3_value("LowFreqFactor")),
                       "high_freq_factor": float(llama3_value("HighFreqFactor")),
                       "original_max_position_embeddings": llama3_value("OriginalPositions")}

    @property
    def model_type(self):
        """The family that computes what a model of these layers computes."""
        return "qwen3" if self.qk_norm else "qwen2" if self.qkv_bias else "llama"

    def config(self):
        """config.json of HF transformers."""
        kind = self.model_type
        return {
            "architectures": [f"{kind.capitalize()}ForCausalLM"],
            **({} if kind == "qwen2" else {"attention_bias": False}),
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
            "model_type": kind,
            "num_attention_heads": self.heads,
            "num_hidden_layers": self.layers,
            "num_key_value_heads": self.kv_heads,
            "rms_norm_eps": self.eps,
            "rope_parameters": self.rope_parameters,
            "tie_word_embeddings": self.tied,
            "use_cache": True,
            **({} if kind == "llama" else {"use_sliding_window": False}),
            "vocab_size": self.vocab,
        }


def named_shape(name):
    """The seven dimensions of a constant in shape.h."""
    body = re.search(rf"ModelShape {name}\{{(.*?)\}}", NAMED_SHAPE.read_text(), re.S)
    if not body:
        raise ValueError(f"{NAMED_SHAPE}: has no shape {name}")
    values = dict(re.findall(r"\.(\w+) = (\d+)", body[1]))
    return [int(values[field]) for field in FIELDS]


def llama3_value(name):
    """A value of llama3 scaling that all rows share."""
    found = re.search(rf"kLlama3{name} = (\d+)\b", TABLE.read_text())
    if not found:
        raise ValueError(f"{TABLE}: has no kLlama3{name}")
    return int(found[1])


def read():
    """Every published row by its name, in order. Raises ValueError if a table has another form."""
    rows = {}
    for table in ("kShapeTable", "kLiveTable"):
        body = re.search(rf"{table}\[\] = \{{\n(.*?)\n\}};", TABLE.read_text(), re.S)
        if not body:
            raise ValueError(f"{TABLE}: has no {table}")
        for line in body[1].splitlines():
            row = re.fullmatch(r'\s*\{"([^"]+)", (\w+|\{[\w, ]+\}), (true|false), ([\d.e+]+), (\d+)((?:, [\d.e-]+)*)\},', line)
            if not row or row[2].count(",") > 8:  # fields behind qkv_bias have no reader here
                raise ValueError(f"{TABLE}: found '{line.strip()}', wanted {{name, shape, tied, rope_theta, max_positions[, "
                                 "rms_norm_eps[, llama3_factor]]}")
            name, shape, tied, theta, positions, rest = row.groups()
            fields = shape[1:-1].split(", ") if shape.startswith("{") else named_shape(shape)
            dims, parts = [int(x) for x in fields[:7]], [x == "true" for x in fields[7:]]
            optional = dict(zip(("eps", "llama3_factor"), map(float, rest.split(", ")[1:])))
            optional |= zip(("qk_norm", "qkv_bias"), parts)
            rows[name] = Shape(name, *dims, tied == "true", float(theta), int(positions), **optional)
    return rows


ROWS = read()
