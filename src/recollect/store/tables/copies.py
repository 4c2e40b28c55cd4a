"""Copies of stored text outside the databases: backups, exports, damaged files that were set aside.

Recollect cannot reach into them, so it remembers where they were made, and lists them to whoever forgets a session.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from recollect.clock import now_ms
from recollect.errors import RecollectError
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.sources import path_key
from recollect.store.tables.table import MEMORY, Table

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
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO copies (kind, path, made_ms) VALUES (?, ?, ?)", copy)

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
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM copies WHERE path = ?", (path_key(path.absolute()),))
        self._ledger.rewrite(lambda record: record.kind != COPY or record.data["path"] != path_key(path.absolute()))

    def copies(self) -> list[Copy]:
        """All that were made, oldest first; some may be gone by now."""
        rows = self._database.rows("SELECT kind, path, made_ms FROM copies ORDER BY made_ms, path")
        return [Copy(*row) for row in rows]

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
