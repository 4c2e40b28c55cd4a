"""Copies of stored text outside the databases: backups, exports, documents, damaged files that were set aside.

Recollect cannot reach into them, so it remembers where they were made: it lists them to whoever forgets a session, and
a session leads to its documents and back.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from recollect.model.clock import now_ms
from recollect.model.errors import NotFound, RecollectError
from recollect.model.files import left_beside
from recollect.model.kinds import SessionKey
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.sqlite.database import Database
from recollect.store.tables.sources import path_key
from recollect.store.tables.table import BY_SESSION, MEMORY, Table, column

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
_ASIDE = ("damaged-*", "before-restore-*")  # folders that a repair and a restore move the store's files into
UNFINISHED = "unfinished copy"  # a backup or export that was killed: its work files are beside its path


class Copy(NamedTuple):
    """A backup, an export or what was set aside, which nobody but its owner can change."""

    kind: str
    path: str
    made_ms: int


def _at(kind: str, path: Path) -> Copy:
    return Copy(kind, path_key(path), path.lstat().st_mtime_ns // 1_000_000)


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
        was_known = path_key(path.absolute()) in {copy.path for copy in self.noted()}
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

    def noted(self) -> list[Copy]:
        """All that were made, oldest first; some may be gone by now."""
        return self._database.read(Copy, "SELECT kind, path, made_ms FROM copies ORDER BY made_ms, path")

    def all(self) -> list[Copy]:
        """Add what was set aside in the store without a note, and what is left of unfinished copies."""
        noted, folder = self.noted(), self._database.path.parent.absolute()
        known = {copy.path for copy in noted}
        aside = [_at(SET_ASIDE, path) for pattern in _ASIDE for path in sorted(folder.glob(pattern))]
        unfinished = [_at(UNFINISHED, left) for copy in noted for left in left_beside(Path(copy.path))]
        return [*noted, *(copy for copy in aside if copy.path not in known), *unfinished]

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """All of them as lines of the ledger."""
        return [(COPY, copy._asdict()) for copy in self.noted()]


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
        """Return the documents of these sessions, oldest first."""
        rows = (
            ArchiveRow(key, *row)
            for key in keys
            for row in self._database.rows(
                "SELECT path, format, made_ms FROM archives WHERE agent = ? AND native_session_id = ?", key
            )
        )
        return sorted(rows, key=lambda row: (row.made_ms, row.path))

    def named(self, name: str) -> list[SessionKey]:
        """Return the sessions of documents with this path or file name."""
        return self._database.read(
            SessionKey,
            "SELECT DISTINCT agent, native_session_id FROM archives WHERE path = ?1"
            " OR substr(path, -length(?1) - 1) = '/' || ?1",
            (name,),
        )
