"""The commands of docs/install.md, for those who run them."""

import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def blocks(heading, language="sh"):
    """The blocks of one section of the page, in order."""
    section = re.split(r"^## ", PAGE[PAGE.index(f"\n## {heading}\n") + 4:], maxsplit=1, flags=re.MULTILINE)[0]
    return re.findall(rf"^```{language}\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
