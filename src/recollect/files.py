"""A new file that is complete or absent, whatever happens while it is written."""

import os
import secrets
from pathlib import Path


def write_new(path: Path, content: bytes) -> None:
    """Write a file that only the user may read; raises FileExistsError if there is one already."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp.{secrets.token_hex(4)}")
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    sync(path.parent)


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
