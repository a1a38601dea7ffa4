"""The committed inputs of the fuzz targets: corpus/<target>.tar.xz, one archive a target, which the build unpacks.

corpus.py list TARGET          prints the names and sizes of the inputs
corpus.py add TARGET FILE...   adds inputs, each named after its hash; the same inputs make the same archive
"""

import hashlib
import io
import pathlib
import sys
import tarfile

CORPUS = pathlib.Path(__file__).resolve().parent / "corpus"


def read(archive: pathlib.Path) -> dict[str, bytes]:
    with tarfile.open(archive) as tar:
        return {member.name: tar.extractfile(member).read() for member in tar}


def write(archive: pathlib.Path, inputs: dict[str, bytes]) -> None:
    with tarfile.open(archive, "w:xz", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in sorted(inputs.items()):
            member = tarfile.TarInfo(name)  # owner, times and mode are those of every new TarInfo
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def main(argv: list[str]) -> int:
    if len(argv) < 2 or argv[0] not in ("list", "add"):
        print(__doc__, file=sys.stderr)
        return 2
    archive = CORPUS / f"{argv[1]}.tar.xz"
    inputs = read(archive)
    if argv[0] == "list":
        print("\n".join(f"{name} {len(data)}" for name, data in inputs.items()))
        return 0
    for path in map(pathlib.Path, argv[2:]):
        data = path.read_bytes()
        inputs[hashlib.sha256(data).hexdigest()[:16]] = data
    write(archive, inputs)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
