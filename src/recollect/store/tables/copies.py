"""Copies of stored text outside the databases: backups, exports, documents, damaged files that were set aside.

Recollect cannot reach into them, so it remembers where they were made: it lists them to whoever forgets a session, and
a session leads to its documents and back.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from recollect.clock import now_ms
from recollect.errors import NotFound, RecollectError
from recollect.kinds import SessionKey
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.files import sync
from recollect.store.tables import column
from recollect.store.tables.sources import path_key
from recollect.store.tables.table import BY_SESSION, MEMORY, Table

COPIES = Table(
    "copies",
    MEMORY,
    (
        *column.plain("path", "kind"),
        *column.numbers("made_ms"),
    ),
    key=("path",),
)

COPY = "copy"  # of the ledger's lines
SET_ASIDE = "set aside"
UNFINISHED = "unfinished copy"  # a backup or export that was killed: its work files are beside its path


class Copy(NamedTuple):
    """A backup, an export or what was set aside, which nobody but its owner can change."""

    kind: str
    path: str
    made_ms: int


class Copies:
    """The copies that were made of a store."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger

    def note_copy(self, kind: str, path: Path) -> None:
        """Remember a copy; the same path again is the same copy."""
        self.put(note_ahead(self._ledger, kind, path))

    def put(self, copy: Copy) -> None:
        """Remember a copy that the ledger has already."""
        self._database.write("INSERT OR REPLACE INTO copies (kind, path, made_ms) VALUES (?, ?, ?)", copy)

    @contextmanager
    def noting(self, kind: str, path: Path) -> Iterator[None]:
        """Remember a copy before it is made: what is forgotten meanwhile may be in it. Struck out if it fails.

        A store that cannot be written cannot remember, but can be copied all the same.
        """
        if self._database.read_only:
            yield
            return
        was_known = path_key(path.absolute()) in {copy.path for copy in self.copies()}
        self.note_copy(kind, path)
        try:
            yield
        except BaseException:
            if not was_known:
                with suppress(RecollectError):
                    self.drop_copy(path)
            raise

    def drop_copy(self, path: Path) -> None:
        """Strike out a copy that was never finished."""
        self._database.write("DELETE FROM copies WHERE path = ?", (path_key(path.absolute()),))
        self._ledger.rewrite(lambda record: record.kind != COPY or record.data["path"] != path_key(path.absolute()))

    def copies(self) -> list[Copy]:
        """All that were made, oldest first; some may be gone by now."""
        return self._database.read(Copy, "SELECT kind, path, made_ms FROM copies ORDER BY made_ms, path")

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """All of them as lines of the ledger."""
        return [(COPY, copy._asdict()) for copy in self.copies()]


def note_ahead(ledger: Ledger, kind: str, path: Path) -> Copy:
    """Write down a copy in the ledger alone: memory.db may be what is about to be moved."""
    copy = Copy(kind, path_key(path.absolute()), now_ms())
    ledger.append(COPY, copy._asdict())
    return copy


def restore_copy_record(connection: apsw.Connection, record: LedgerRecord) -> None:
    copy = Copy(**record.data)
    connection.execute("INSERT OR IGNORE INTO copies (kind, path, made_ms) VALUES (?, ?, ?)", copy)


ARCHIVES = Table(
    "archives",
    MEMORY,
    (
        *column.labels("agent"),
        *column.identifiers("native_session_id"),
        *column.paths("path"),
        *column.plain("format"),
        *column.numbers("made_ms"),
    ),
    owner=BY_SESSION,
    key=("path",),
    extras=("CREATE INDEX archives_of_session ON archives (agent, native_session_id)",),
)


class ArchiveRow(NamedTuple):
    """A document of one session."""

    key: SessionKey
    path: str
    format: str
    made_ms: int


class ArchiveTable:
    """The documents of all sessions. Some may have been moved or deleted since."""

    def __init__(self, database: Database, writer: "Callable[[], tuple[Database, Ledger]]") -> None:
        self._database = database
        self._writer = writer

    def put(self, key: SessionKey, path: str, format: str) -> ArchiveRow:
        """Remember a document; the same path again is the same document."""
        row = ArchiveRow(key, path, format, now_ms())
        if not self._database.value("SELECT 1 FROM sessions WHERE agent = ? AND native_session_id = ?", key):
            raise NotFound(f"No session has this id: {':'.join(key)}")
        self._writer()[0].write(
            "INSERT OR REPLACE INTO archives (agent, native_session_id, path, format, made_ms) VALUES (?, ?, ?, ?, ?)",
            (*key, path, format, row.made_ms),
        )
        return row

    def of(self, keys: Iterable[SessionKey]) -> list[ArchiveRow]:
        """The documents of these sessions, oldest first."""
        rows = (
            ArchiveRow(key, *row)
            for key in keys
            for row in self._database.rows(
                "SELECT path, format, made_ms FROM archives WHERE agent = ? AND native_session_id = ?", key
            )
        )
        return sorted(rows, key=lambda row: (row.made_ms, row.path))

    def named(self, name: str) -> list[SessionKey]:
        """The sessions of documents with this path, or with this file name."""
        return self._database.read(
            SessionKey,
            "SELECT DISTINCT agent, native_session_id FROM archives WHERE path = ?1"
            " OR substr(path, -length(?1) - 1) = '/' || ?1",
            (name,),
        )


def files_of(database: Path) -> list[Path]:
    """A database with its log."""
    return [database.with_name(database.name + suffix) for suffix in ("-wal", "-shm", "")]


class Quarantine:
    """The folder that damaged files are moved into; made when the first one comes."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.folder = store / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        self.copy: Copy | None = None

    def note(self) -> None:
        """Have the ledger know the folder before there is one: whatever stops this, a later `forget` knows of it."""
        if self.copy is None:
            self.copy = note_ahead(Ledger(self._store), SET_ASIDE, self.folder)
            self.folder.mkdir(mode=0o700)
            sync(self._store)

    def take(self, path: Path) -> None:
        """Move a file of the store here, under the same name; if the write lock is held, `note` first."""
        if path.exists():
            self.note()
            target = self._target(path)
            path.rename(target)
            sync(target.parent)
            sync(path.parent)

    def take_database(self, path: Path) -> None:
        """Move a database here with its log, which goes first: alone it would be taken for that of the next one."""
        for file in files_of(path):
            self.take(file)

    def keep_copy(self, path: Path, content: bytes) -> None:
        with open(os.open(self._target(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def keep_file(self, path: Path) -> None:
        """Keep a copy of a file that stays in use, once."""
        self.note()
        if not self._target(path).exists():
            self.keep_copy(path, path.read_bytes())

    def _target(self, path: Path) -> Path:
        target = self.folder / path.relative_to(self._store)
        for folder in reversed(target.parents):
            if folder.is_relative_to(self.folder):
                folder.mkdir(mode=0o700, exist_ok=True)
        return target
