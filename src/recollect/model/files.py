"""Files that are complete or absent whatever happens, what dead processes leave of them, and why a write failed.

Work files are what processes write beside its place until it is complete. They are called `.<what>.<process>.tmp`,
maybe with an ending. A folder among them holds whole texts: its process holds a lock on it, because process numbers are
soon used again.
"""

import errno
import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from recollect.model.errors import StoreUnwritable

SHARED_INDEX_BYTES = 64 * 1024
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})


def is_full(folder: Path) -> bool:
    """Whether there is no room even for the small file that SQLite shares among its readers."""
    space = os.statvfs(folder)
    return space.f_bavail * space.f_frsize < SHARED_INDEX_BYTES or (space.f_files > 0 and space.f_favail == 0)


def unwritable(folder: Path, reason: str | OSError, *, no_room: bool = False) -> StoreUnwritable:
    """The error for a failed write: the disk is full, the folder is read-only, or `reason`."""
    if isinstance(reason, OSError):
        no_room, reason = reason.errno in _NO_ROOM, reason.strerror or str(reason)
    if no_room or (os.access(folder, os.F_OK) and is_full(folder)):
        return StoreUnwritable(f"Disk full: {folder}", "free some space, then try again; nothing has been lost")
    if not os.access(folder, os.W_OK):
        hint = "make it writable, or set RECOLLECT_HOME to another folder"
        return StoreUnwritable(f"Store is read-only: {folder}", hint)
    hint = "check the permissions of its files and its disk; nothing has been lost"
    return StoreUnwritable(f"Cannot use the store ({reason}): {folder}", hint)


_NAME = re.compile(r"\.(?P<what>.+)\.(?P<process>[0-9]+)\.tmp(?:[.-].*)?", re.DOTALL)


def work_name(what: str) -> str:
    """The name of this process's work file for `what`."""
    return f".{what}.{os.getpid()}.tmp"


def abandoned(folder: Path, ending: str = "") -> list[Path]:
    """Work files that dead processes left in a folder, for files with an ending; all of them in a folder of our own."""
    files = [path for name, path in _work_files(folder) if name["what"].endswith(ending)]
    return [path for path in files if (_is_free(path) if path.is_dir() else not _has_owner(path))]


def left_beside(path: Path) -> list[Path]:
    """Work files of any process for a path."""
    return [other for name, other in _work_files(path.parent) if name["what"] == path.name]


def drop_abandoned(folder: Path, ending: str = "") -> None:
    for path in abandoned(folder, ending):
        remove(path)


def drop_left_beside(path: Path) -> None:
    """Remove work files for a path of dead processes, or of an earlier one with this one's number."""
    for left in left_beside(path):
        if not _has_owner(left):
            remove(left)


def remove(path: Path) -> None:
    import shutil  # slow to load, and seldom needed

    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _work_files(folder: Path) -> Iterator[tuple[re.Match[str], Path]]:
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if name := _NAME.fullmatch(path.name):
                yield name, path


def _has_owner(path: Path) -> bool:
    """Whether the process that a name mentions is running, and is not this one."""
    name = _NAME.fullmatch(path.name)
    process = int(name["process"]) if name else 0
    if process in (0, os.getpid()):
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _is_free(folder: Path) -> bool:
    """Whether nobody works in a folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True


def replace_file(path: Path, content: bytes, *, is_durable: bool = True) -> None:
    """Write a file so that a crash leaves the old content or the new one; only the user may read it.

    What can be made again need not be durable: it does not wait for the disk.
    """
    with written_beside(path) as fd:
        write_all(fd, content)
        if is_durable:
            os.fsync(fd)
    if is_durable:
        sync(path.parent)


@contextmanager
def new_file(path: Path) -> Iterator[IO[bytes]]:
    """A new file that only the user may read, on the disk at the end of the block; raises FileExistsError."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def write_new(path: Path, content: bytes) -> None:
    """Write a file whole, on the disk when this returns; raises FileExistsError if there is one already."""
    beside = path.with_name(f"{work_name(path.name)}.{os.urandom(4).hex()}")
    try:
        with new_file(beside) as file:
            file.write(content)
        os.link(beside, path)
    finally:
        beside.unlink(missing_ok=True)
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
