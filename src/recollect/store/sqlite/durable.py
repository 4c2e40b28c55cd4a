"""Files that are complete or absent, whatever happens meanwhile."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recollect.store.sqlite.leftovers import work_name


def replace_file(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new one; only the user may read it."""
    with written_beside(path) as fd:
        write_all(fd, content)
        os.fsync(fd)
    sync(path.parent)


@contextmanager
def written_beside(path: Path) -> Iterator[int]:
    """A new file to write to; it takes the path at the end of the block, and is removed if that fails."""
    beside = path.with_name(work_name(path.name))
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        try:
            yield fd
        finally:
            os.close(fd)
        beside.replace(path)
    except BaseException:
        with suppress(OSError):  # the first error is the one to report
            beside.unlink()
        raise


def sync(path: Path) -> None:
    """Flush a file's bytes, or a folder's names, to the disk."""
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
