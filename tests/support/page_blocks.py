"""The commands of the pages for users, for the tests that run them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parents[2]


def blocks(page, heading="", language="sh"):
    """The blocks of a page, or of one of its sections, in order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    if heading:
        text = re.split(r"^## ", text[text.index(f"\n## {heading}\n") + 4:], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
