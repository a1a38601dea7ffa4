"""What an engine's file finds around it in host.py: as much as possible what it finds when it is started by hand."""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import pathlib
import pwd
import stat
import sys
import tempfile


def why_not_started(sockets, files) -> str:
    """Empty where these descriptors are open, as mkbench leaves them for its hosts."""
    def kind(fd):
        try:
            return stat.S_IFMT(os.fstat(fd).st_mode)
        except OSError:
            return None
    closed = [fd for fd in sockets if kind(fd) != stat.S_IFSOCK] + [fd for fd in files if kind(fd) is None]
    if not closed:
        return ""
    if len(sys.argv) < 2:
        return "host.py: is started by mkbench, not by hand"
    return (f"this Python closes the descriptors it was given ({', '.join(map(str, closed))}): give --python the interpreter "
            f"itself ({sys.executable}), or let its wrapper keep them open (exec, or close_fds=False)")


def vocab_size(folder: pathlib.Path) -> int:
    """The length of a row of logits: config.json's, or its text_config's, where a model has other parts too."""
    config = json.loads((folder / "config.json").read_text())
    text = config.get("text_config")
    return (text if isinstance(text, dict) else config)["vocab_size"]


def snapshot_stamp(folder: pathlib.Path) -> str:
    """The line that snapshot_stamp() of references/shared_snapshot.h writes."""
    files = []
    for path in folder.iterdir():
        if path.name in ("config.json", "model.safetensors.index.json") or path.name.endswith(".safetensors"):
            info = path.stat()
            files.append(f"'{path.name}' {info.st_size} {info.st_mtime_ns}")
    return ", ".join(sorted(files, key=os.fsencode))


def shadowed_package() -> str:
    """Which package PYTHONPATH has put in the place of this Python's own; empty for none."""
    given = [os.path.abspath(folder) for folder in os.environ.get("PYTHONPATH", "").split(os.pathsep) if folder]
    own = [folder for folder in sys.path if os.path.abspath(folder) not in given]
    for name in ("numpy", "torch", "transformers", "safetensors"):
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        if file.startswith(tuple(folder + os.sep for folder in given)) and importlib.machinery.PathFinder.find_spec(name, own):
            return f"by PYTHONPATH {name} is {file}, not this Python's own: unset PYTHONPATH"
    return ""


def complete_environment() -> None:
    """Programs of this Python's environment are found, and so is a name and a home for a user without an entry."""
    programs = os.path.dirname(os.path.abspath(sys.executable))
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    if programs not in folders:
        os.environ["PATH"] = os.pathsep.join([programs, *folders])
    try:
        pwd.getpwuid(os.getuid())
    except KeyError:  # a container started with --user
        for name in ("USER", "LOGNAME"):  # getpass.getuser(), by which torch names its caches
            os.environ.setdefault(name, f"uid{os.getuid()}")
        os.environ.setdefault("HOME", tempfile.gettempdir())


def engine_path(name: str) -> str:
    """The path that engine_path() of harness/engines/plugin_file.h gives."""
    try:
        return name if os.path.exists(name) else os.fsdecode(name.encode().decode("unicode_escape").encode("latin-1"))
    except ValueError:
        return name


def file_of_main(file: pathlib.Path) -> str:
    """The name under which to load an engine's file. A child that multiprocessing spawns runs __main__'s file under this
    name and looks there for what was pickled: this file becomes __main__'s, as if it had been started by hand."""
    importlib.import_module("multiprocessing")  # which gives the name to __main__ itself
    sys.modules["__main__"].__file__ = str(file)
    return "__mp_main__"


def load_file(name: str, path: str):
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look there
    spec.loader.exec_module(module)
    return module
