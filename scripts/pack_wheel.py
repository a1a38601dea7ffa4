"""Packs the programs of build/wheel into a wheel; scripts/wheel.sh builds them and starts this.

usage: pack_wheel.py FOLDER

scikit-build-core makes the wheel. auditwheel adds Debian's libraries that other systems lack (libfmt, libcrypto), finds
in the programs' symbols the oldest glibc that they run with, and names the wheel after it. libtorch and CUDA's
libraries stay outside: they come with torch.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import pinned_wheels
from tracked_files import ROOT

# Left out of the wheel: $ORIGIN-relative run paths (cmake/MkbenchInstall.cmake) find them in torch and in the packages
# that it depends on.
FROM_TORCH = ("libtorch*", "libc10*", "libcudart.so.*", "libcupti.so.*")


def run(command: list[str], environment: dict[str, str]) -> None:
    print("+", *command[:6], "..." if len(command) > 6 else "", file=sys.stderr, flush=True)
    subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=True)


def pack(folder: pathlib.Path) -> pathlib.Path:
    tools = pinned_wheels.installed("wheel", "scikit-build-core and auditwheel")
    environment = {**os.environ, "PYTHONPATH": str(tools), "PATH": f"{tools / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory(prefix="mkbench-wheel-") as scratch:
        plain, done = pathlib.Path(scratch, "plain"), pathlib.Path(scratch, "done")
        run([sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps",
             "--no-build-isolation", "--wheel-dir", str(plain), str(ROOT)], environment)
        exclude = [argument for name in FROM_TORCH for argument in ("--exclude", name)]
        run([sys.executable, "-m", "auditwheel", "repair", *exclude, "--wheel-dir", str(done),
             *map(str, plain.glob("*.whl"))], environment)
        wheel = next(done.glob("*.whl"))
        folder.mkdir(parents=True, exist_ok=True)
        # Older wheels are removed from the build folder only; a folder of the user's keeps its files.
        for old in folder.glob("mkbench-*.whl") if folder.resolve().is_relative_to(ROOT / "build") else ():
            old.unlink()
        target = folder / wheel.name
        target.write_bytes(wheel.read_bytes())
    return target


def main() -> int:
    parser = argparse.ArgumentParser(usage=__doc__.split("usage: ", 1)[1].split("\n", 1)[0])
    parser.add_argument("folder", type=pathlib.Path)
    wheel = pack(parser.parse_args().folder)
    with zipfile.ZipFile(wheel) as archive:
        unpacked = sum(file.file_size for file in archive.infolist())
    print(f"{wheel}: {wheel.stat().st_size / 1e6:.1f} MB, {unpacked / 1e6:.1f} MB unpacked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
