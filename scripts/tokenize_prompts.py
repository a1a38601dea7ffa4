#!/usr/bin/env python3
"""Writes references/data/qwen3-0.6b/prompts.json: the prompts of Qwen/Qwen3-0.6B with their ids, without the hub.

usage: tokenize_prompts.py QWEN_TIKTOKEN

QWEN_TIKTOKEN is the vocabulary that PyPI's package dashscope ships (dashscope/resources/qwen.tiktoken, 151,643 ranks);
this needs the package tiktoken. A capture that finds a tokenizer.json compares its ids with these.
"""

import json
import pathlib
import sys
import unicodedata

import tiktoken
import tiktoken.load

import checkpoint_format

OUT = checkpoint_format.DATA / "qwen3-0.6b" / "prompts.json"
VOCABULARY_SHA256 = "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186"
# Qwen's split of a text into words, and its first three special tokens.
PATTERN = (r"""(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"""
           r"""|\s+(?!\S)|\s+""")
SPECIAL = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<|im_end|>": 151645}

REFRAIN = "The rain in Spain stays mainly in the plain, and the snow in Norway stays mainly on the hills. "
# (name, text, tokens to generate). Text that repeats itself has wide margins, plain prose has near ties; the sets
# follow from the margins at capture.
PROMPTS = (
    ("capital-of-france", "The capital of France is", 32),
    ("one-token", "The", 32),
    ("count", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16,", 64),
    ("alphabet", "a b c d e f g h i j k l m n o p", 20),
    ("weekdays", "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday, " * 2 + "Monday, Tuesday,", 48),
    ("refrain-65", REFRAIN * 3 + "The rain in", 64),
    ("refrain-600", REFRAIN * 28 + "The rain in", 32),
    ("code", "def add(a, b):\n    return a + b\n\n\ndef subtract(a, b):\n    return a - b\n\n\ndef multiply(a, b):\n    return", 32),
    ("json", '{"a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g":', 32),
    ("chinese", "北京是中国的首都。东京是日本的首都。巴黎是法国的首都。" * 2 + "北京是", 32),
    ("emoji", "🙂🙃🥝🙂🙃🥝🙂🙃🥝🙂🙃🥝🙂🙃", 32),
    ("prose", "A megakernel is a single GPU kernel that", 48),
    ("chat", "<|im_start|>user\nRepeat: red, green, blue, red, green, blue<|im_end|>\n<|im_start|>assistant\n", 32),
)


def encoding(path):
    ranks = tiktoken.load.load_tiktoken_bpe(str(path), expected_hash=VOCABULARY_SHA256)
    return tiktoken.Encoding("qwen", pat_str=PATTERN, mergeable_ranks=ranks, special_tokens=SPECIAL)


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1]).is_file():
        raise SystemExit(__doc__.strip())
    encode = encoding(pathlib.Path(sys.argv[1]))
    prompts = []
    for name, text, steps in PROMPTS:
        ids = encode.encode(unicodedata.normalize("NFC", text), allowed_special="all")
        assert encode.decode(ids) == text, name
        prompts.append({"name": name, "set": "auto", "steps": steps, "text": text, "ids": ids})
    made = {
        "program": "scripts/tokenize_prompts.py",
        "tokenizer": "BPE ranks of PyPI's dashscope 1.24.6 (dashscope/resources/qwen.tiktoken), NFC, Qwen's split",
        "vocabulary_sha256": VOCABULARY_SHA256,
        "tiktoken": tiktoken.__version__,
    }
    text = json.dumps({"model": "Qwen/Qwen3-0.6B", "made": made, "prompts": prompts}, ensure_ascii=False)
    OUT.write_text(text.replace('{"name":', '\n{"name":') + "\n", encoding="utf-8")
    checkpoint_format.list_in_manifest(OUT)
    for p in prompts:
        print(f"{p['name']}: {len(p['ids'])} ids")


if __name__ == "__main__":
    main()
