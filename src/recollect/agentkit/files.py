"""What is read and from where on, and how it is opened safely: all of the contract that a sweep without news loads.

Below a root no link is followed, and only the user's own regular files are opened: a naive open reads a planted link to
a private key and hangs on a FIFO.

Another program's SQLite database is read while that program may be writing to it: nothing is created, locked or changed
beside it. Without a write-ahead log it is opened as immutable. With
one, SQLite would want to lock the database and to share an index of the log in a `-shm` file: here it keeps the index
in its own memory and all files are opened for reading only. Because nothing is locked, the program may move pages from
the log into the database under our reading; the database's times or the log's header then differ afterwards, and what
was read is thrown away.
"""

import errno
import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from recollect.model.errors import SourceUnreadable

FOLDER = "folder"  # the kind of a source that is a folder nobody may read
CONTAINER = "container"  # the kind under which a source that holds units is known


@dataclass(frozen=True, slots=True)
class Source:
    """One file that holds a session, a part of one, or facts about several.

    `kind` is the adapter's own word for what the file is; `history` is a prompt history, read after the sessions whose
    prompts it repeats. An agent replaces `is_rewritten` files as a whole: they have no offset and are read again when
    their content hash changes. A source with a `failure` is reported and not opened. `session` is the owner by the
    file's name or folder, if they show it: a file in which no line can be read belongs to that session.

    A source that `holds_units` (a database of many sessions) is not read itself: its adapter lists its units, which are
    sources of their own. `unit` is a session's id in it; its `stamp` changes whenever the session does.
    """

    agent: str
    kind: str
    root: Path
    path: Path
    is_rewritten: bool = False
    failure: str | None = None
    session: str | None = None
    holds_units: bool = False
    unit: str | None = None
    stamp: str = ""

    @property
    def files(self) -> tuple[Path, ...]:
        """The files whose change may mean news: a database changes in its write-ahead log first."""
        return (self.path, self.path.with_name(f"{self.path.name}-wal")) if self.holds_units else (self.path,)


@dataclass(frozen=True, slots=True)
class Cursor:
    """Where to resume reading a source, and the adapter's own state at that point.

    `line` counts the complete lines before `offset`. `head` and `tail` are hashes of the file's first bytes and of the
    bytes just before `offset`: if either has changed, the file is read again from its start.
    """

    offset: int = 0
    line: int = 0
    head: str = ""
    tail: str = ""
    state: Mapping[str, Any] = field(default_factory=dict)


_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_beneath(root: Path, path: Path) -> int:
    """Open a regular file below `root` for reading and return its descriptor.

    Raises SourceUnreadable for links, devices and files of other users. A file with several hard links is read: homes
    copied with `cp -al` consist of them, and only the user can have made them.
    """
    try:
        fd = _open_without_links(root, path)
    except OSError as error:
        raise SourceUnreadable(f"cannot be opened: {error.strerror}") from error
    info = os.fstat(fd)
    if stat.S_ISREG(info.st_mode) and info.st_uid == os.geteuid():
        return fd
    os.close(fd)
    is_file = stat.S_ISREG(info.st_mode)
    raise SourceUnreadable("belongs to another user" if is_file else "is not a regular file")


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


def resolve_root(root: Path) -> Path:
    """The folder that a root names, links followed; raises OSError for a loop of links."""
    resolved = Path(os.path.realpath(root))
    try:
        is_link = stat.S_ISLNK(os.lstat(resolved).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return resolved
    if is_link:
        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), str(root))
    return resolved


def iter_files(folder: Path, unreadable: list[OSError] | None = None) -> Iterator[Path]:
    """Walk below `folder` in name order without following links, not even `folder`.

    A folder that cannot be read is left out; the error that names it is added to `unreadable`.
    """
    waiting = [] if folder.is_symlink() else [(folder, True)]
    while waiting:  # not by recursion: folders may be nested a thousand deep
        path, is_folder = waiting.pop()
        if not is_folder:
            yield path
            continue
        try:
            waiting += _entries(path)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if unreadable is not None:
                unreadable.append(OSError(error.errno, error.strerror, str(path)))


def _entries(folder: Path) -> list[tuple[Path, bool]]:
    """Files and folders in a folder, the last first, and whether each is a folder; links are left out."""
    with os.scandir(folder) as scan:
        entries = sorted(scan, key=lambda entry: entry.name, reverse=True)
    if not os.access(folder, os.X_OK):  # only its names can be read
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return [(Path(entry.path), entry.is_dir(follow_symlinks=False)) for entry in entries if not entry.is_symlink()]


def unreadable_folders(agent: str, root: Path, errors: Iterable[OSError]) -> Iterator[Source]:
    """The folders that `iter_files` left out, as sources with the reason."""
    for error in errors:
        yield Source(agent, FOLDER, root, Path(error.filename), failure=unreadable_reason(error))


def unreadable_reason(error: OSError) -> str:
    return f"cannot be read: {error.strerror or error}"


T = TypeVar("T")
_READS = {apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE}
_LOGS = apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_MAIN_JOURNAL
_LOG_HEADER_BYTES = 32
_TRIES = 3


def read_database(
    root: Path, path: Path, columns: Mapping[str, Collection[str]], read: Callable[[apsw.Connection], T]
) -> T:
    """Return what `read` makes of the database as it was at one moment.

    Only the listed columns of the listed tables can be read: what a program keeps beside its sessions may be secret.
    Raises SourceUnreadable if the file is no database of that shape, or was written to in each of several tries.
    """
    for _ in range(_TRIES):
        before = _state(root, path)
        try:
            with closing(_open(path, columns, has_log=bool(before[1]))) as connection:
                result = read(connection)
        except (apsw.Error, UnicodeDecodeError) as error:
            if before == _state(root, path):
                raise SourceUnreadable(f"cannot be read as a database: {error}") from error
            continue
        if before == _state(root, path):
            return result
    raise SourceUnreadable("is being written to: the next sweep tries again")


def signature_of(path: Path, info: os.stat_result) -> tuple[int, int, int, int]:
    """What changes with each commit: size, times and inode of the database, and the times of its write-ahead log.

    A program that writes to a log of a fixed size changes nothing but the log's time.
    """
    try:
        log = os.lstat(f"{path}-wal")
    except OSError:
        return info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino
    times = (max(info.st_mtime_ns, log.st_mtime_ns), max(info.st_ctime_ns, log.st_ctime_ns))
    return info.st_size + log.st_size, *times, info.st_ino


def _state(root: Path, path: Path) -> tuple[tuple[int, int, int], bytes]:
    """What moving pages from the log into the database changes; raises SourceUnreadable for an unsafe file."""
    with os.fdopen(open_beneath(root, path), "rb") as file:
        info = os.fstat(file.fileno())
    log_path = path.with_name(f"{path.name}-wal")
    header = b""
    if os.path.lexists(log_path):
        with os.fdopen(open_beneath(root, log_path), "rb") as log:
            header = log.read(_LOG_HEADER_BYTES)
    return (info.st_size, info.st_mtime_ns, info.st_ino), header


def _open(path: Path, columns: Mapping[str, Collection[str]], *, has_log: bool) -> apsw.Connection:
    if has_log:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=_unlocked().name)
        connection.pragma("locking_mode", "exclusive")  # keeps the log's index in memory
    else:
        address = f"{path.absolute().as_uri()}?immutable=1"
        connection = apsw.Connection(address, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    connection.config(apsw.SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0)

    def authorize(operation: int, table: Any, column: Any, *_: Any) -> int:
        is_listed = operation == apsw.SQLITE_READ and (not column or column in columns.get(table, ()))
        return apsw.SQLITE_OK if is_listed or operation in _READS else apsw.SQLITE_DENY

    connection.authorizer = authorize
    return connection


@cache
def _unlocked() -> "_Unlocked":
    return _Unlocked()


class _Unlocked(apsw.VFS):
    """Files that are read without a lock and cannot be changed."""

    def __init__(self) -> None:
        self.name = "recollect-unlocked"
        super().__init__(self.name, "")

    def xOpen(self, name: Any, flags: Any) -> apsw.VFSFile:
        return _UnlockedFile(name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        raise apsw.ReadOnlyError(filename)


class _UnlockedFile(apsw.VFSFile):
    def __init__(self, name: Any, flags: Any) -> None:
        flags[0] = flags[0] & ~(apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE) | apsw.SQLITE_OPEN_READONLY
        if flags[0] & _LOGS:  # as root, SQLite would set the owner of a file that it knows as a log
            flags[0] = flags[0] & ~_LOGS | apsw.SQLITE_OPEN_SUPER_JOURNAL
        super().__init__("", name, flags)

    def xLock(self, level: int) -> None:
        pass

    def xUnlock(self, level: int) -> None:
        pass

    def xCheckReservedLock(self) -> bool:
        return False
