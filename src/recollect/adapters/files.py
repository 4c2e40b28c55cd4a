"""Opening an agent's files without being led astray.

Below a root no link is followed, and only regular files of the user are read: a planted link to a
private key, a FIFO or a device must never be opened for reading (measured: a naive open does both).
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from recollect.errors import SourceUnreadable

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_beneath(root: Path, path: Path) -> int:
    """Open a regular file below `root` for reading and return its descriptor.

    Raises SourceUnreadable for links, devices, hard links and files of other users.
    """
    try:
        fd = _open_without_links(root, path)
    except OSError as error:
        raise SourceUnreadable(f"cannot be opened: {error.strerror}") from error
    refusal = _refusal(os.fstat(fd))
    if refusal:
        os.close(fd)
        raise SourceUnreadable(refusal)
    return fd


def _open_without_links(root: Path, path: Path) -> int:
    *folders, name = path.relative_to(root).parts
    directory = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for folder in folders:
            below = os.open(folder, _DIRECTORY, dir_fd=directory)
            os.close(directory)
            directory = below
        return os.open(name, _FILE, dir_fd=directory)
    finally:
        os.close(directory)


def _refusal(info: os.stat_result) -> str | None:
    if not stat.S_ISREG(info.st_mode):
        return "is not a regular file"
    if info.st_nlink != 1:
        return "has more than one hard link"
    if info.st_uid != os.geteuid():
        return "belongs to another user"
    return None


def iter_files(folder: Path) -> Iterator[Path]:
    """Walk below `folder` in name order without following links, not even `folder`; an unreadable one is left out."""
    if folder.is_symlink():
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return
    for entry in entries:
        if entry.is_dir(follow_symlinks=False):
            yield from iter_files(Path(entry.path))
        elif not entry.is_symlink():
            yield Path(entry.path)
