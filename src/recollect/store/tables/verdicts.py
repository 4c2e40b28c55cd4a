"""What a user said of facts, and what a user wants remembered: lasting records, which the ledger has too."""

from collections.abc import Callable
from typing import Any, NamedTuple

import apsw

from recollect.clock import now_ms
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.table import MEMORY, Table

VERDICT = "verdict"  # of the ledger's lines
NOTE = "note"
PROMOTED, REJECTED, PINNED = "promoted", "rejected", "pinned"

VERDICTS = Table(
    "verdicts",
    MEMORY,
    (*column.plain("fact_uid", "group_name", "verdict"), *column.numbers("at_ms")),
    key=("fact_uid",),
    group_column="group_name",
)
# `origin` is where a note came from: `remember`, `agent` if one recorded it, or the name of a file that was imported.
NOTES = Table(
    "notes",
    MEMORY,
    (
        *column.plain("note_uid", "group_name"),
        *column.names("repo?", "origin"),
        *column.texts("topic", "text", "reason?"),
        *column.numbers("since_ms", "recorded_ms"),
    ),
    key=("note_uid",),
    group_column="group_name",
)


class Note(NamedTuple):
    """Something that was decided or is preferred, as the user or an agent wants it remembered."""

    note_uid: str
    group_name: str
    repo: str | None
    origin: str
    topic: str
    text: str
    reason: str | None
    since_ms: int
    recorded_ms: int


class Verdicts:
    """What users said, in a store."""

    def __init__(self, database: Database, writer: Callable[[], tuple[Database, Ledger]]) -> None:
        self._database = database
        self._writer = writer

    def judge(self, fact_uid: str, verdict: str, group: str) -> None:
        """Keep what a user says of a fact; it stays even if the fact is derived again."""
        data = {"fact_uid": fact_uid, "group_name": group, "verdict": verdict, "at_ms": now_ms()}
        database, ledger = self._writer()
        ledger.append(VERDICT, data)
        with database.transaction() as connection:
            _put_verdict(connection, data)

    def add_notes(self, notes: list[Note]) -> int:
        """Keep notes; one that is there already stays as it is. Returns how many are new."""
        known = {uid for (uid,) in self._database.rows("SELECT note_uid FROM notes")}
        new = [note for note in {note.note_uid: note for note in notes}.values() if note.note_uid not in known]
        if new:
            database, ledger = self._writer()
            ledger.extend([(NOTE, note._asdict()) for note in new])
            with database.transaction() as connection:
                for note in new:
                    _put_note(connection, note._asdict())
        return len(new)

    def notes(self) -> list[tuple[Note, str | None]]:
        """All notes with what the user said of them since, the oldest first."""
        columns = ", ".join(f"n.{name}" for name in Note._fields)
        rows = self._database.rows(
            f"SELECT {columns}, v.verdict FROM notes n LEFT JOIN verdicts v ON v.fact_uid = n.note_uid"
            " ORDER BY n.since_ms, n.note_uid"
        )
        return [(Note(*row[:-1]), row[-1]) for row in rows]

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """All of them as lines of the ledger."""
        names = [one.name for one in VERDICTS.columns]
        rows = self._database.rows(f"SELECT {', '.join(names)} FROM verdicts")
        verdicts = [(VERDICT, dict(zip(names, row, strict=True))) for row in rows]
        return verdicts + [(NOTE, note._asdict()) for note, _ in self.notes()]


def _put_verdict(connection: apsw.Connection, data: dict[str, Any]) -> None:
    connection.execute("INSERT OR REPLACE INTO verdicts VALUES (:fact_uid, :group_name, :verdict, :at_ms)", data)


def _put_note(connection: apsw.Connection, data: dict[str, Any]) -> None:
    marks = ", ".join(f":{name}" for name in Note._fields)
    connection.execute(f"INSERT OR IGNORE INTO notes VALUES ({marks})", data)


def restore_verdict(connection: apsw.Connection, record: LedgerRecord) -> None:
    _put_verdict(connection, record.data)


def restore_note(connection: apsw.Connection, record: LedgerRecord) -> None:
    _put_note(connection, record.data)
