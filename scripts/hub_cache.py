"""Names of hub models, the hub's local cache, and where a user's references lie: references/hub_cache.h and
references/user_folders.h in Python, with nothing but the standard library."""

import hashlib
import os
import pathlib
import re
import typing

WORD = r"[A-Za-z0-9_-][A-Za-z0-9._-]*"
HUB_NAME = re.compile(rf"({WORD}/{WORD})(?:@({WORD}(?:/{WORD})*))?")
COMMIT = re.compile(r"[0-9a-f]{40}")


class BadInput(Exception):
    """One line that names file, field, found and wanted; the program ends with exit code 2."""


class HubName(typing.NamedTuple):
    id: str  # "Org/Name"
    revision: str  # a branch, a tag or a commit id

    @property
    def text(self):
        """What a person writes after --model."""
        return self.id if self.revision == "main" else f"{self.id}@{self.revision}"


def parse_hub_name(text):
    """HubName of "Org/Name" or "Org/Name@REVISION"; None for every other form."""
    match = HUB_NAME.fullmatch(text)
    return HubName(match[1], match[2] or "main") if match else None


def folder_name(hub_id):
    """The name of a hub model's folder in a cache, and of its folder of references."""
    return "models--" + hub_id.replace("/", "--")


def caches():
    """The folders in which the hub's client may have put its cache; the one that it uses comes first."""
    places = [
        ("HF_HUB_CACHE", ""),
        ("HUGGINGFACE_HUB_CACHE", ""),
        ("HF_HOME", "hub"),
        ("XDG_CACHE_HOME", "huggingface/hub"),
        ("HOME", ".cache/huggingface/hub"),
    ]
    found = [pathlib.Path(os.environ[name]) / below for name, below in places if os.environ.get(name)]
    return found or [pathlib.Path.home() / ".cache" / "huggingface" / "hub"]


def find_snapshot(name):
    """(folder, commit) of the first cache that has the model. Raises BadInput naming what was tried."""
    tried = []
    for cache in caches():
        root = cache / folder_name(name.id)
        commit = name.revision
        if not COMMIT.fullmatch(commit):
            ref = root / "refs" / name.revision
            try:
                commit = ref.read_text().strip()
            except OSError as error:
                tried.append(f"{ref}: {error.strerror}")
                continue
            if not re.fullmatch(r"[0-9a-f]+", commit):
                tried.append(f"{ref} holds '{commit[:60]}', wanted a commit id")
                continue
        folder = root / "snapshots" / commit
        if folder.is_dir():
            return folder, commit
        tried.append(f"{folder} (not there)")
    raise BadInput(f"{name.text}: not in the local cache; tried {'; '.join(tried)}; to fetch it: mkbench fetch {name.text}")


def user_data_dir():
    """$XDG_DATA_HOME/mkbench, else ~/.local/share/mkbench."""
    data = os.environ.get("XDG_DATA_HOME")
    return (pathlib.Path(data) if data else pathlib.Path.home() / ".local" / "share") / "mkbench"


def reference_path(name, commit):
    """Where mkbench looks for the reference of a hub model."""
    return user_data_dir() / "references" / folder_name(name.id) / commit / "reference.json"


def git_blob_id(path):
    """The id under which git, and so the hub's cache, stores a small file."""
    data = pathlib.Path(path).read_bytes()
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
