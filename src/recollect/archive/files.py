"""New files in a folder that others may write to as well: complete or absent, never over another, never by a link.

Their names are made from what people and models wrote, and every file system takes them.
"""

import errno
import os
import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import date
from itertools import count
from pathlib import Path
from stat import S_ISREG

from recollect.errors import StoreUnwritable, UsageError
from recollect.files import drop_left_beside, work_name
from recollect.schema import Session

_SLUG_CHARS = 60
_SLUG_BYTES = 120  # some file systems take names of 143 bytes only, and a date, a number and an ending come with it
_NO_NAME = re.compile(r"[\W_]+")


def document_name(session: Session, today: date, suffix: str) -> str:
    """`2026-11-15-fix-the-failing-test.md`: the day of the session's last activity, and its title."""
    ended = session.ended
    day = ended.astimezone().date() if ended else today
    return f"{day:%Y-%m-%d}-{slug(session.title or '') or slug(session.native_session_id) or 'session'}.{suffix}"


def digest_name(session: Session) -> str:
    """A name that stays the same, whatever the session's title becomes."""
    return f"{slug(session.agent)}-{_NO_NAME.sub('-', session.native_session_id).strip('-')[:100] or 'session'}.md"


def slug(text: str) -> str:
    """The words of a text in small letters, joined by `-`: no separators, dots, spaces or control characters."""
    words = _NO_NAME.sub("-", unicodedata.normalize("NFC", text).lower()).strip("-")
    kept = words.encode(errors="ignore")[:_SLUG_BYTES].decode(errors="ignore")[:_SLUG_CHARS]
    whole_words = kept.rpartition("-")[0] if len(kept) < len(words) else kept
    return (whole_words or kept).strip("-")


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
        raise UsageError(f"{reason}: {folder}", "give the path of a real folder") from None
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
