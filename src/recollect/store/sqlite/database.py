"""SQLite as this project needs it: a version that is safe, settings that are read back, short transactions.

Never open, copy or hash a database file in a process that has it open: closing any descriptor of
the file drops SQLite's locks on it (measured: the live writer's lock goes from 1 to 0).

Every page has a checksum, so that a flipped bit is noticed and never taken for content: SQLite's own checks look at
structure, and of 60 flipped bytes they found 2. The checksums are kept by a file system layer of SQLite that comes with
apsw; where a build lacks it, databases work without.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import apsw
import orjson

from recollect.model import failpoints
from recollect.model.errors import RecollectError, StoreDamaged, StoreTooNew, StoreUnusable, UsageError
from recollect.model.files import is_full, sync, unwritable
from recollect.store.sqlite.locks import NOTE_BYTES, queue_of, turn_to_write, write_lock

APPLICATION_ID = 0x52636C74  # "Rclt"
BUSY_MS = 20_000
OLDEST_SQLITE = (3, 51, 3)  # 3.7.0 to 3.51.2 have a WAL race that corrupts
NETWORK_FILE_SYSTEMS = frozenset(
    {"nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "fuse.sshfs", "glusterfs"}
)

PAGE_BYTES = 4096  # of every database, whatever a damaged header says
RESERVED_BYTES = 8  # room for the checksum at the end of each page: cannot be added later
_LAYER = "cksmvfs"
_LAYER_FILES = ("cksumvfs.so", "cksumvfs.dylib", "cksumvfs.dll")
# Whether all pages of a database have checksums. Words, so that no flipped byte turns one into the other.
_CHECKSUMS_KEPT, _CHECKSUMS_NONE = "kept", "none"

Migration = Callable[[apsw.Connection], None]
_T = TypeVar("_T")

_LOG_PAGES = 12_000
_NORMAL = 1  # commits are in the log, which is flushed before it moves into the database
_FULL = 2  # the log is flushed with each commit
_PRAGMAS = (
    ("journal_mode", "wal"),
    ("secure_delete", 1),
    ("trusted_schema", 0),
    ("cell_size_check", 1),
    ("mmap_size", 0),
    ("journal_size_limit", 64 * 1024 * 1024),
    # A first import touches all of its indexes all the time: with the defaults it takes three times as long.
    ("wal_autocheckpoint", _LOG_PAGES),
    ("cache_size", -48 * 1024),
    ("temp_store", 2),
)


# SQLite's errors for a full-text index whose own tables are damaged
_BROKEN_INDEX = ("invalid fts5 file format", "vtable constructor failed")


class Database:
    """One database file of the store. All writing goes through `transaction`."""

    def __init__(self, path: Path, migrations: Sequence[Migration], synchronous: str, *, read_only: bool) -> None:
        self.path = path
        # Each transaction needs these, while it keeps others waiting; a Path is slow to give them.
        self._file, self._name, self._queue = str(path), path.stem, queue_of(path)
        self._migrations = migrations
        self.read_only = read_only
        self.is_new = False
        self._log_pages, self._long_pages = 0, _LOG_PAGES
        self.connection = connect(path, read_only=read_only)
        self._inode = path.stat().st_ino
        self._refuse_truncated()
        if read_only or not self._is_new():
            self._check_version()  # before anything is changed in a file that may be somebody else's
        self._verify_pages()
        if not read_only:
            self._prepare(synchronous)
            self._check_version()

    def _refuse_truncated(self) -> None:
        """SQLite takes missing bytes of the last page for zeros. With a write-ahead log, they may be in that."""
        wal = self.path.with_name(f"{self.path.name}-wal")
        with translated(self.path):
            if (not wal.exists() or not wal.stat().st_size) and self.path.stat().st_size % PAGE_BYTES:
                raise _damaged(self.path)

    def _prepare(self, synchronous: str) -> None:
        with translated(self.path), write_lock(self.path.parent):
            self.is_new = self._is_new()
            if self.is_new:
                self.connection.pragma("page_size", PAGE_BYTES)
                self.connection.reserve_bytes(reserve=RESERVED_BYTES)
                self.connection.pragma("auto_vacuum", 2)
                self.connection.pragma("application_id", APPLICATION_ID)
            for name, value in (*_PRAGMAS, ("synchronous", {"NORMAL": _NORMAL, "FULL": _FULL}[synchronous])):
                self.connection.pragma(name, value)
                if self.connection.pragma(name) != value:
                    raise StoreUnusable(f"SQLite rejected the setting `{name}`: {value}")
            self._migrate()
            self._keep_checksums()

    def _migrate(self) -> None:
        version = self._version()
        for number, migration in enumerate(self._migrations[version:], start=version + 1):
            with self.connection:
                migration(self.connection)
                self.connection.pragma("user_version", number)
                failpoints.hit("before-migration-commit")
            failpoints.hit("after-migration-commit")

    def _verify_pages(self) -> None:
        """Check every page that is read from here on, and read again those that were read before."""
        if self.has_checksums():
            self.connection.execute("PRAGMA shrink_memory")
            _set_verification(self.connection, True)

    def _keep_checksums(self) -> None:
        """Note whether every page has a checksum; writing all pages anew adds those that are missing."""
        has_layer = checksum_layer() is not None
        if self.has_checksums() == has_layer:
            return
        if has_layer and not self.is_new:
            try:
                self.connection.execute("VACUUM")
            except apsw.FullError:
                return  # no room now; the next process tries again
        state = _CHECKSUMS_KEPT if has_layer else _CHECKSUMS_NONE
        self.connection.execute("UPDATE history SET checksums = ?", (state,))
        self._verify_pages()

    def has_checksums(self) -> bool:
        """Whether all pages have checksums; a new database has none yet."""
        with translated(self.path):
            if not self.connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'history'").get:
                return False
            state = self.connection.execute("SELECT checksums FROM history").get
        if state not in (_CHECKSUMS_KEPT, _CHECKSUMS_NONE):
            raise _damaged(self.path)
        return bool(state == _CHECKSUMS_KEPT)

    def _is_new(self) -> bool:
        with translated(self.path):
            tables = self.connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").get
            return tables is None and self._version() == 0

    def _version(self) -> int:
        return int(self.connection.execute("PRAGMA user_version").get)

    def is_outdated(self) -> bool:
        """Whether an older version wrote it: whoever opens it for writing brings it up to date."""
        with translated(self.path):
            return self._version() < len(self._migrations)

    def _check_version(self) -> None:
        with translated(self.path):
            if self.connection.pragma("application_id") != APPLICATION_ID:
                raise StoreDamaged(f"Not a Recollect database: {self.path}", "move it elsewhere, then sweep again")
            self._refuse_newer()

    def _refuse_newer(self) -> None:
        version = self._version()
        if version > len(self._migrations):
            raise StoreTooNew(
                f"Store was written by a newer version: schema {version}, this one reads {len(self._migrations)}",
                "upgrade `recollect`",
            )

    @contextmanager
    def transaction(self) -> Iterator[apsw.Connection]:
        """Wait for the turn to write, then begin; raises StoreTooNew if another process upgraded the store."""
        if self.read_only:
            raise unwritable(self.path.parent, "it was opened read-only")
        with translated(self.path), turn_to_write(self._queue) as queue:
            if self.path.stat().st_ino != self._inode:
                raise StoreUnusable(f"Store was replaced while in use: {self.path.parent}", "run the command again")
            self.connection.execute("BEGIN IMMEDIATE")
            try:
                self._refuse_newer()
                before = self.connection.total_changes()
                yield self.connection
                commit = self._count_commit() if self.connection.total_changes() != before else None
                failpoints.hit(f"before-{self._name}-commit")
                self.connection.execute("COMMIT")
                failpoints.hit(f"after-{self._name}-commit")
            except BaseException:
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK")
                raise
            if commit is not None:
                with suppress(OSError):  # a hint only: a full disk must not undo what is stored
                    os.pwrite(queue, orjson.dumps((*commit, _boot_id())).ljust(NOTE_BYTES), 0)

    def _count_commit(self) -> tuple[int, str]:
        """Number the transaction that is about to be committed, and give it a name that no other history has."""
        token = os.urandom(8).hex()
        sql = "UPDATE history SET commits = commits + 1, token = ? RETURNING commits"
        return int(self.connection.execute(sql, (token,)).get), token

    def commits(self) -> int:
        """How many transactions there were."""
        return int(self.value("SELECT commits FROM history"))

    def lost_commits(self) -> str | None:
        """Describe commits since the machine's start that are not in the database; None if all are.

        Every commit is noted in the file by which writers queue, which is never synced: after a power cut the database
        may rightly be behind its note.
        """
        try:
            number, token, boot = orjson.loads(Path(self._queue).read_bytes())
        except (OSError, ValueError):
            return None
        commits, last = self.rows("SELECT commits, token FROM history")[0]
        if boot is None or boot != _boot_id() or last == token or commits > number:
            return None
        name = self.path.name
        return f"{name} is at commit {commits} but was at {number}: its write-ahead log was lost, truncated or replaced"

    @contextmanager
    def flushing(self, *, is_on: bool) -> Iterator[None]:
        """Let commits in the block wait for the disk, or not: a power cut may undo what can be made again."""
        synchronous = self.connection.pragma("synchronous")
        self.connection.pragma("synchronous", _FULL if is_on else _NORMAL)
        try:
            yield
        finally:
            self.connection.pragma("synchronous", synchronous)

    def rows(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        with translated(self.path):
            return list(self.connection.execute(sql, bindings))

    def iter_rows(self, sql: str, bindings: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        with translated(self.path):
            yield from self.connection.execute(sql, bindings)

    def read(self, make: Callable[..., _T], sql: str, bindings: Sequence[Any] = ()) -> list[_T]:
        """What `make` makes of the columns of each row."""
        return [make(*row) for row in self.rows(sql, bindings)]

    def column(self, sql: str, bindings: Sequence[Any] = ()) -> list[Any]:
        """The first column of each row."""
        return [row[0] for row in self.rows(sql, bindings)]

    def value(self, sql: str, bindings: Sequence[Any] = ()) -> Any:
        """The first column of the first row, or None."""
        for row in self.rows(sql, bindings):
            return row[0]
        return None

    def write(self, sql: str, bindings: Sequence[Any] = ()) -> int:
        """Run one statement in a transaction of its own; returns how many rows it changed."""
        with self.transaction() as connection:
            connection.execute(sql, bindings)
            return connection.changes()

    def write_all(self, sql: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run one statement for each of the rows, in a transaction of its own."""
        with self.transaction() as connection:
            connection.executemany(sql, rows)

    def leave_log(self) -> None:
        """Have commits move nothing from the log into the database: `shorten_log` does, while nobody waits for it."""
        self.connection.set_wal_hook(self._note_log)

    def _note_log(self, connection: apsw.Connection, name: str, pages: int) -> int:
        self._log_pages = pages
        if pages < _LOG_PAGES:
            self._long_pages = _LOG_PAGES
        return int(apsw.SQLITE_OK)

    def make_durable(self) -> None:
        """Have all that was committed on the disk, without a lock: others may commit meanwhile.

        SQLite keeps no lock on its log, so that the log, unlike the database, may be opened and closed.
        """
        with suppress(FileNotFoundError):  # nothing was committed since it was emptied
            sync(self.path.with_name(f"{self.path.name}-wal"))

    def shorten_log(self) -> None:
        """Move a long log into the database: most of it while others write, then the rest, so that it begins anew.

        It does not while somebody reads. Then it is left alone until it has grown again.
        """
        if self._log_pages < self._long_pages:
            return
        self._long_pages = self._log_pages + _LOG_PAGES // 8
        with suppress(apsw.BusyError):  # another process is at it
            self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
            with turn_to_write(self._queue):
                self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def checkpoint(self) -> None:
        """Move the write-ahead log into the database and empty it."""
        if not self.read_only:
            with translated(self.path):
                failpoints.hit(f"before-{self.path.stem}-checkpoint")
                self.connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                failpoints.hit(f"after-{self.path.stem}-checkpoint")

    def close(self) -> None:
        self.connection.close()


@cache
def checksum_layer() -> str | None:
    """The name of the layer that keeps checksums, loaded once in a process; None where there is none."""
    folder = Path(apsw.__file__).parent / "sqlite_extra_binaries"
    library = next((folder / name for name in _LAYER_FILES if (folder / name).exists()), None)
    if library is None:
        return None
    before = apsw.vfs_names()[0]
    connection = apsw.Connection(":memory:")
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_LOAD_EXTENSION, 1)
    try:
        connection.load_extension(str(library))
    except apsw.Error:
        return None  # built for another system
    finally:
        connection.close()
    apsw.set_default_vfs(before)  # other users of apsw in this process keep theirs
    return _LAYER


def _set_verification(connection: apsw.Connection, is_on: bool) -> None:
    """Verify each page when it is read. Checksums are written either way."""
    if checksum_layer() is not None:
        connection.execute(f"PRAGMA checksum_verification={'ON' if is_on else 'OFF'}")


def connect(path: Path, *, read_only: bool) -> apsw.Connection:
    """A connection that does not verify page checksums yet."""
    if tuple(map(int, apsw.sqlite_lib_version().split("."))) < OLDEST_SQLITE:
        raise StoreUnusable(f"SQLite {apsw.sqlite_lib_version()} can corrupt a store", "upgrade `apsw`")
    require_utf8(path)
    if (kind := file_system_type(path.parent)) in NETWORK_FILE_SYSTEMS:
        hint = "set RECOLLECT_HOME to a local folder"
        raise StoreUnusable(f"Store is on a network file system ({kind}): {path.parent}", hint)
    with translated(path):
        if read_only:
            connection = _connect_read_only(path)
        else:
            _create_private(path)
            connection = apsw.Connection(str(path), vfs=checksum_layer())
        _set_verification(connection, False)  # until it is known that all pages have theirs
        connection.set_busy_timeout(BUSY_MS)
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
        return connection


def require_utf8(path: Path) -> None:
    """Raise UsageError for a path that SQLite cannot take."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        raise UsageError(f"Path is not valid UTF-8: {path}", "choose another path") from None


def _connect_read_only(path: Path) -> apsw.Connection:
    """Open for reading; in a folder that cannot be written, take the file as it is.

    `immutable` ignores the write-ahead log, so it is right only when the log is empty.
    """
    if os.access(path.parent, os.W_OK) and not is_full(path.parent):
        return apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs=checksum_layer())
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        hint = "run `recollect sweep` where it is writable"
        raise StoreUnusable(f"Store is read-only and was not closed cleanly: {path.parent}", hint)
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    return apsw.Connection(f"file:{path}?immutable=1", flags=flags, vfs=checksum_layer())


def _create_private(path: Path) -> None:
    """Make the file before SQLite does, so that it (and the log beside it) is the user's alone."""
    if not path.exists():
        fd = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        os.fchmod(fd, 0o600)  # whatever the user's umask takes away
        os.close(fd)


@cache
def file_system_type(folder: Path) -> str | None:
    """The type of the file system that holds `folder`; None where the system does not say."""
    try:
        mounts = Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    best, kind = "", None
    path = f"{os.path.realpath(folder)}/"
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        point = fields.split(" ")[4]
        if "\\" in point:  # a space in it
            point = point.encode().decode("unicode_escape", "replace")
        if len(point) >= len(best) and path.startswith(f"{point.rstrip('/')}/"):
            best, kind = point, rest.split(" ")[0]
    return kind


@cache
def _boot_id() -> str | None:
    """A name for the time since the machine started; None where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return None


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turn database errors that a user can act on into ours; the others are bugs and stay as they are."""
    try:
        yield
    except (apsw.FullError, apsw.ReadOnlyError, apsw.CantOpenError, apsw.IOError, apsw.PermissionsError) as error:
        if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_DATA:
            raise _damaged(path) from error
        raise unwritable(path.parent, str(error), no_room=isinstance(error, apsw.FullError)) from error
    except (apsw.CorruptError, apsw.NotADBError, UnicodeDecodeError, orjson.JSONDecodeError) as error:
        raise _damaged(path) from error  # the last two: a text that was never written
    except apsw.SQLError as error:
        if any(message in str(error) for message in _BROKEN_INDEX):
            raise _damaged(path) from error
        raise
    except OSError as error:
        raise unwritable(path.parent, error) from error


def _damaged(path: Path) -> RecollectError:
    return StoreDamaged(f"Database is damaged: {path}", "`recollect doctor --repair` rebuilds what it can")


def escaped(text: str) -> str:
    """Text for LIKE ... ESCAPE, its wildcards taken literally."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_")
