"""Files that appear whole or not at all, for readers in other processes."""

import os
import pathlib
import tempfile


def put(path: pathlib.Path, text: str) -> None:
    """Writes a file with `text`, in place of an older one."""
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=f".{path.name}", delete=False) as file:
        try:
            file.write(text)
            file.close()
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
