"""The prompts of the committed references: text, length, number of steps, set.

strict: the truth's margin is wide at every step, so every legitimate engine must give the same ids.
near-tie: greedy paths that run through steps where rounding may decide.
"""

import synthetic_checkpoint as synthetic
import train_tiny

# Text that the tiny checkpoints were not trained on.
NEAR_TIE_TEXTS = {
    "tiny": ("The capital of France is", "the ", "Row by column", "Zebra"),
    "tiny-untied": ("The capital of France is", "the ", "Row by column", "1 2 3 4"),
}

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
    """Random states in prompts from the shortest with a closed form on (strict), and ids without a state, on which
    margins are small (near-tie)."""
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
    raise SystemExit(f"{model}: has no committed prompts; give --prompts FILE.json")
