"""New files in a folder that others may write to as well: complete or absent, never over another, never by a link."""

import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from stat import S_ISREG

from recollect.errors import StoreUnwritable, UsageError
from recollect.store import drop_left_beside, work_name

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)  # file systems without hard links


def write_new(folder: Path, name: str, content: bytes) -> Path:
    """Write a file under this name, or with `-2`, `-3` … where it is taken; returns the path.

    A file of such a name that has this content already is that file.
    """
    stem, _, suffix = name.rpartition(".")
    names = (name if number == 1 else f"{stem}-{number}.{suffix}" for number in count(1))
    with _opened(folder) as fd:
        drop_left_beside(folder / name)
        return folder / next(taken for taken in names if _read(fd, taken) == content or _place(fd, taken, content))


def write_named(folder: Path, name: str, content: bytes, is_ours: Callable[[bytes], bool]) -> bool:
    """Write or replace a file of our own; False if somebody else's has the name."""
    with _opened(folder) as fd:
        drop_left_beside(folder / name)
        held = _read(fd, name)
        if held is None:
            return _place(fd, name, content)
        if held != content and is_ours(held):
            with _beside(fd, name, content) as beside:
                os.replace(beside, name, src_dir_fd=fd, dst_dir_fd=fd)
                os.fsync(fd)
        return is_ours(held)


@contextmanager
def _opened(folder: Path) -> Iterator[int]:
    """The folder itself, made if need be: it may not be a link, whoever put it there."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except (FileExistsError, NotADirectoryError):
        reason = "A link, not a folder" if folder.is_symlink() else "Not a folder"
        raise UsageError(f"{reason}: {folder}", "give the path of a folder itself") from None
    try:
        yield fd
    except OSError as error:
        raise StoreUnwritable(f"Cannot write ({error.strerror}): {folder}", "choose another folder") from error
    finally:
        os.close(fd)


def _read(folder: int, name: str) -> bytes | None:
    """What a regular file holds; None if there is none of this name, nothing for what is no regular file."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EACCES, errno.ENXIO):
            return b""
        raise
    if not S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return b""
    with open(fd, "rb") as file:
        return file.read()


def _place(folder: int, name: str, content: bytes) -> bool:
    """Write a new file; False if the name is taken."""
    with _beside(folder, name, content) as beside:
        try:
            os.link(beside, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            return False
        except OSError as error:
            if error.errno not in _NO_LINKS:
                raise
            os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder))
            os.replace(beside, name, src_dir_fd=folder, dst_dir_fd=folder)
    os.fsync(folder)
    return True


@contextmanager
def _beside(folder: int, name: str, content: bytes) -> Iterator[str]:
    beside = work_name(name)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        yield beside
    finally:
        with suppress(FileNotFoundError):
            os.unlink(beside, dir_fd=folder)
