"""Reading another program's SQLite database while that program may be writing to it.

Nothing is created, locked or changed beside the database. Without a write-ahead log it is opened as immutable. With
one, SQLite would want to lock the database and to share an index of the log in a `-shm` file: here it keeps the index
in its own memory and all files are opened for reading only. Because nothing is locked, the program may move pages from
the log into the database under our reading; the database's times or the log's header then differ afterwards, and what
was read is thrown away.
"""

import os
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw

from recollect.agentkit.files import open_beneath
from recollect.errors import SourceUnreadable

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
