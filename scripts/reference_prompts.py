"""The prompts of the committed references: text, length, number of steps, set.

strict: the truth's margin is wide at every step, so every legitimate engine must give the same ids.
near-tie: greedy paths that run through steps where rounding may decide.
"""

import checkpoint_format
import synthetic_checkpoint as synthetic
import train_tiny
from hub_cache import BadInput
from hf_model import rope_theta

# Text that the tiny checkpoints were not trained on.
UNTRAINED = ("The capital of France is", "the ", "Row by column", "Zebra")
NEAR_TIE_TEXTS = {
    "tiny": UNTRAINED,
    "tiny-untied": (*UNTRAINED[:3], "1 2 3 4"),
    "tiny-llama": UNTRAINED,
    "tiny-qwen2": UNTRAINED,
}

# The prompts for a user's own model where none is named: text that has one obvious continuation.
TEXTS = (
    "The capital of France is",
    "1, 2, 3, 4, 5, 6, 7, 8, 9, 10,",
    "Monday, Tuesday, Wednesday, Thursday,",
    "a b c d e f g h i j k",
    "The quick brown fox jumps over the lazy dog. The quick brown fox jumps over the lazy dog. The quick brown",
)
STEPS = 32
SETS = ("strict", "near-tie", "auto")

EXPECTED = "Qwen/Qwen3-0.6B"
EXPECTED_DATA = checkpoint_format.DATA / "qwen3-0.6b"
# The keys of the published config that decide the arithmetic.
EXPECTED_KEYS = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads",
                 "head_dim", "vocab_size", "max_position_embeddings", "rms_norm_eps", "hidden_act", "tie_word_embeddings")

CAPITAL = {"text": "The capital of France is", "ids": [785, 6722, 315, 9625, 374]}
PUBLISHED = (
    {
        "name": "capital-of-france-fp32-mps",
        **CAPITAL,
        "tokens": [12095, 13, 576, 6722, 315, 15344, 374, 21718, 13, 576, 6722, 315, 17689, 374, 24081, 13, 576, 6722]
        + [315, 5616],
    },
    {
        "name": "capital-of-france-bf16-cuda",
        **CAPITAL,
        "tokens": [12095, 13, 576, 6722, 315, 9625, 374, 1083, 279, 6722, 315, 279, 5429, 315, 9625, 13, 576, 6722, 315]
        + [9625],
    },
)
PROVENANCE = (
    "Greedy continuations of Qwen/Qwen3-0.6B that others published: one from fp32 on Apple MPS, one from bf16 on CUDA. "
    "They part at generated token 5 (index 5 from 0), a near tie whose published top-2 gap is 0.003 to 0.007; both are "
    "legitimate. Ids only: nobody published logits, and mkbench did not run these weights."
)


def byte_text(token):
    """One id of the byte-level vocabulary in printable ASCII."""
    if token >= train_tiny.BOS:
        return {train_tiny.BOS: "<bos>", train_tiny.EOS: "<eos>", train_tiny.PAD: "<pad>"}[token]
    if token == ord("\n"):
        return "\\n"
    return chr(token) if 0x20 <= token < 0x7F else f"\\x{token:02x}"


def tiny(model):
    """Windows of the training text (strict), and text that was not trained on (near-tie)."""
    out = []
    for ids, steps in train_tiny.strict_prompts(train_tiny.corpus()):
        out.append({"name": f"corpus-{len(ids)}", "set": "strict", "ids": ids, "steps": steps})
    for i, text in enumerate(NEAR_TIE_TEXTS[model]):
        out.append({"name": f"other-{i + 1}", "set": "near-tie", "ids": list(text.encode()), "steps": 48})
    # Prefill takes 599 rows: more than one chunk, and far more than a window of the training.
    ids = train_tiny.window(train_tiny.corpus(), 300, 600)
    out.append({"name": "corpus-600", "set": "near-tie", "ids": ids, "steps": 16})
    return [{**p, "text": "".join(map(byte_text, p["ids"]))} for p in out]


def analytic(lagset):
    """strict: random states, in prompts that are long enough for the closed form. near-tie: prompts with ids without a
    state, on which margins are small."""
    shortest = sum(synthetic.LAGS[lagset].values()) + 1
    out = []
    for length, steps in ((shortest, 24), (shortest + 1, 16), (17, 16), (33, 16), (65, 16)):
        ids = synthetic.prompt(length - 1, seed=1000 * length)
        out.append({"name": f"states-{length}", "set": "strict", "ids": ids, "steps": steps})
    stateless = [int(i) for i in (synthetic.states_of_ids() < 0).nonzero()[0]]
    mixed = stateless[2000:2008] + synthetic.prompt(7, seed=9)
    for name, ids in (("stateless-20", stateless[1000:1020]), ("mixed-16", mixed)):
        out.append({"name": name, "set": "near-tie", "ids": ids, "steps": 16})
    return [{**p, "text": ""} for p in out]


def of(model):
    """The prompts of a committed model."""
    kind, _, lagset = model.partition(":")
    if kind == "synthetic":
        return analytic(lagset)
    if kind in NEAR_TIE_TEXTS:
        return tiny(model)
    raise BadInput(f"{model}: has no committed prompts; give --prompts FILE.json")


def from_texts(texts, steps, tokenizer, folder):
    """One prompt for each text; margins will decide its set. Raises BadInput without a tokenizer."""
    if tokenizer is None:
        raise BadInput(f"{folder}: has no tokenizer.json; --prompts FILE.json names prompts by their ids")
    out = []
    for i, text in enumerate(texts):
        ids = tokenizer.ids(text)
        if not ids:
            raise BadInput(f"--prompt: '{text}' gives no token")
        out.append({"name": f"prompt-{i + 1}", "set": "auto", "ids": ids, "steps": steps or STEPS, "text": text})
    return out


def default(name, steps, tokenizer, folder):
    """The prompts of a model for which none are named; for Qwen/Qwen3-0.6B they are committed with their ids.
    Raises BadInput."""
    if name != EXPECTED:
        return from_texts(TEXTS, steps, tokenizer, folder)
    prompts = read(EXPECTED_DATA / "prompts.json", None)
    for p in prompts:
        if tokenizer and tokenizer.ids(p["text"]) != p["ids"]:
            raise BadInput(f"{tokenizer.path}: prompt '{p['name']}' gives {tokenizer.ids(p['text'])}, wanted {p['ids']}")
    return [p | {"steps": steps or p["steps"]} for p in prompts]


def read(path, tokenizer):
    """The prompts of a file. Raises BadInput naming prompt and field."""
    prompts = checkpoint_format.read_json(path)
    if isinstance(prompts, dict):
        prompts = prompts.get("prompts")
    if not isinstance(prompts, list) or not prompts or not all(isinstance(p, dict) for p in prompts):
        raise BadInput(f"{path}: wanted a list of prompts")
    names = [p.get("name") for p in prompts]
    out = []
    for i, p in enumerate(prompts):
        where = f"{path}: prompt {i + 1}"
        if not isinstance(p.get("name"), str) or not p["name"] or names.count(p["name"]) > 1:
            raise BadInput(f"{where}: name is {p.get('name')!r}, wanted a string that no other prompt has")
        if p.get("set") not in SETS:
            raise BadInput(f"{where}: set is {p.get('set')!r}, wanted one of {', '.join(SETS)}")
        if not is_count(p.get("steps")):
            raise BadInput(f"{where}: steps is {p.get('steps')!r}, wanted a whole number from 1")
        text, ids = p.get("text", ""), p.get("ids")
        if not isinstance(text, str):
            raise BadInput(f"{where}: text is {text!r}, wanted a string")
        if ids is None and tokenizer and text:
            ids = tokenizer.ids(text)
        if not isinstance(ids, list) or not ids or not all(is_count(id + 1) if isinstance(id, int) else False for id in ids):
            raise BadInput(f"{where}: ids is {str(ids)[:60]}, wanted a list of token ids (or a text and a tokenizer.json)")
        out.append({"name": p["name"], "set": p["set"], "ids": ids, "steps": p["steps"], "text": text})
    return out


def is_count(value):
    """True for a whole number from 1."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def check_expected(name, config, path):
    """Raises BadInput where a model calls itself Qwen/Qwen3-0.6B and has another config."""
    if name != EXPECTED:
        return
    wanted = checkpoint_format.read_json(EXPECTED_DATA / "config.json")
    for key in EXPECTED_KEYS:
        if config[key] != wanted[key]:
            raise BadInput(f"{path}: {key} is {config[key]!r}, wanted {wanted[key]!r} as in {EXPECTED_DATA / 'config.json'}")
    if rope_theta(config) != rope_theta(wanted):
        raise BadInput(f"{path}: rope_theta is {rope_theta(config)}, wanted {rope_theta(wanted)}")
