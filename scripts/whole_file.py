"""Files that appear whole or not at all, for readers in other processes."""

import os
import pathlib
import tempfile


def put(path: pathlib.Path, content: str | bytes) -> None:
    """Writes a file with `content`, in place of an older one."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}", delete=False) as file:
        try:
            file.write(content.encode() if isinstance(content, str) else content)
            file.flush()
            os.fsync(file.fileno())
            os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            os.unlink(file.name)
            raise
