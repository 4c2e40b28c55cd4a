"""Copies of stored text that lie elsewhere: backups, exports, damaged files that were set aside.

Recollect cannot reach into them, so it remembers where they were made: whoever forgets a session is told.
"""

from pathlib import Path
from typing import NamedTuple

import apsw

from recollect.clock import now_ms
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.sqlite import Database


class Copy(NamedTuple):
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
        copy = Copy(kind, str(path.absolute()), now_ms())
        with self._database.transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO copies (kind, path, made_ms) VALUES (?, ?, ?)", copy)
        self._ledger.append("copy", copy._asdict())

    def drop_copy(self, path: Path) -> None:
        """Strike out a copy that was never finished."""
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM copies WHERE path = ?", (str(path.absolute()),))
        self._ledger.rewrite(lambda record: record.kind != "copy" or record.data["path"] != str(path.absolute()))

    def copies(self) -> list[Copy]:
        """All that were made, oldest first; some may be gone by now."""
        rows = self._database.rows("SELECT kind, path, made_ms FROM copies ORDER BY made_ms, path")
        return [Copy(*row) for row in rows]


def restore_copy(connection: apsw.Connection, record: LedgerRecord) -> None:
    copy = Copy(**record.data)
    connection.execute("INSERT OR IGNORE INTO copies (kind, path, made_ms) VALUES (?, ?, ?)", copy)
