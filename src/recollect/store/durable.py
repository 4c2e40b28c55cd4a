"""Files that are whole or not there at all, whatever happens meanwhile."""

import os
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new one; only the user may read it."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            write_all(fd, content)
            os.fsync(fd)
        finally:
            os.close(fd)
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    sync(path.parent)


def sync(path: Path) -> None:
    """Have a file's bytes, or a folder's names, on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, content: bytes) -> None:
    """Write all of it, however little the system takes at once."""
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
