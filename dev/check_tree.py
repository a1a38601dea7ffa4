"""Checks the tracked files for what must not be in them: paths of one machine, hosts that are not public
documentation, names of one version of Catch2, files too long to read, files of tests/ outside its rooms, and links of a
page to a file or heading that is not there. Prints one line a finding; exit 1 if there is any.
"""

import pathlib
import re
import sys

import scripts_path  # noqa: F401
from check_includes import MAY_INCLUDE, ROOMS
from tracked_files import ROOT, check_files, show

# Character classes such as [k] keep these patterns from matching their own lines.
MACHINE_PATH = re.compile(r"(?<![\w.$}{-])/(?:wor[k]|roo[t]|hom[e]|User[s]|mn[t])/[\w.-]+")
URL = re.compile(r"https?://(?:[^@/\s]*@)?([A-Za-z0-9.-]+)")
INDEX_OPTION = re.compile(r"--(?:extra-)?index-ur[l]|--trusted-hos[t]|PIP_INDEX_UR[L]")
PUBLIC_HOSTS = (
    "apache.org", "arxiv.org", "creativecommons.org", "git-lfs", "github.com", "google.github.io",
    "huggingface.co", "json-schema.org", "matplotlib.org", "nvidia.com", "perfetto.dev", "purl.org", "pypi.org",
    "pythonhosted.org", "pytorch.org", "w3.org",
)
# Catch2 v2 and v3 use different names; tests/support/catch2.h hides the difference.
CATCH2 = re.compile(r"\bCatc[h]::")
CATCH2_FILES = ("tests/support/catch2.h", "tests/support/main.cpp")
# Allowed folders of tests/: one for each room, and these for what several tests share.
TEST_FOLDERS = {*MAY_INCLUDE, *ROOMS, "scripts", "dev",
                "change_costs", "fleet", "fuzz", "mutants", "new_engine", "plugins", "support"} - {"harness", "tests"}
# A link of Markdown to a file of this tree, or to a heading of a page.
LINK = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)(?:#([^)\s]+))?\)")
CODE_SUFFIXES = {".c", ".h", ".cpp", ".cu", ".cuh", ".py", ".sh", ".cmake"}
MAX_LINES = 450
# MAX_LINES leaves some room above the 400 lines that are wanted; LONGER gives single files a limit of their own.
LONGER: dict[str, int] = {}


def check_text(path: str, text: str) -> list[str]:
    """Findings of one text file, each as a line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for match in MACHINE_PATH.finditer(line):
            found.append(f"{path}:{number}: path of one machine: {match.group()}")
        for match in URL.finditer(line):
            host = match.group(1).lower()
            if not any(host == h or host.endswith("." + h) for h in PUBLIC_HOSTS):
                found.append(f"{path}:{number}: host that is not on the list of public ones: {host}")
        if INDEX_OPTION.search(line):
            found.append(f"{path}:{number}: an option or variable that names a package index")
        if CATCH2.search(line) and path not in CATCH2_FILES:
            found.append(f"{path}:{number}: a name of one version of Catch2, outside {CATCH2_FILES[0]}")
    if path.startswith("tests/") and path != "tests/CMakeLists.txt" and path.split("/")[1] not in TEST_FOLDERS:
        found.append(f"{path}: outside the folders of tests/: {', '.join(sorted(TEST_FOLDERS))}")
    length = text.count("\n")
    if pathlib.PurePosixPath(path).suffix in CODE_SUFFIXES and length > LONGER.get(path, MAX_LINES):
        found.append(f"{path}: {length} lines; more than {LONGER.get(path, MAX_LINES)} is too long to read")
    return found


def anchors(page: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.+?) *$", page, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def check_links(path: str, text: str, root: pathlib.Path) -> list[str]:
    """Links of the Markdown page `path` that lead nowhere, each as a line."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        for link, heading in LINK.findall(line):
            target = root / pathlib.Path(path).parent / link if link else root / path
            if not target.exists():
                found.append(f"{path}:{number}: link to a file that is not there: {link}")
            elif heading and heading not in anchors(target.read_text(encoding="utf-8")):
                found.append(f"{path}:{number}: link to a heading that is not there: {link}#{heading}")
    return found


def check_tree(root: pathlib.Path = ROOT) -> tuple[list[str], int]:
    """All findings under root, and the number of text files read."""
    def check(path: str, text: str) -> list[str]:
        return check_text(path, text) + (check_links(path, text, root) if path.endswith(".md") else [])

    return check_files(check, root)


def main() -> int:
    return show(*check_tree(), "{count} text files, {findings} findings")


if __name__ == "__main__":
    sys.exit(main())
