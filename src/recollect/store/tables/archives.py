"""Documents that were written of sessions: where they are, so that a session leads to them and back."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, NamedTuple

from recollect.clock import now_ms
from recollect.errors import NotFound
from recollect.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.table import BY_SESSION, MEMORY, Table

if TYPE_CHECKING:
    from recollect.store.ledger import Ledger

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
        with self._writer()[0].transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO archives (agent, native_session_id, path, format, made_ms)"
                " VALUES (?, ?, ?, ?, ?)",
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
        rows = self._database.rows(
            "SELECT DISTINCT agent, native_session_id FROM archives WHERE path = ?1"
            " OR substr(path, -length(?1) - 1) = '/' || ?1",
            (name,),
        )
        return [SessionKey(*row) for row in rows]
