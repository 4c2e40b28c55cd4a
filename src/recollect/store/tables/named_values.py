"""Values that sessions named, as the digits of their marks: what is read later is compared with them.

A value `is_due` until it is hidden in all that was stored of its session before it was named.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import apsw

from recollect.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.table import BY_STREAM, CACHE, Table

if TYPE_CHECKING:
    from recollect.redact import NamedValue
    from recollect.store.batch import Batch

NAMED_VALUES = Table(
    "named_values",
    CACHE,
    (*column.numbers("stream"), *column.plain("digits", "rule"), column.count("is_due", 1)),
    owner=BY_STREAM,
    key=("stream", "digits"),
    extras=("CREATE INDEX IF NOT EXISTS named_values_due ON named_values (stream) WHERE is_due",),
)


class NamedMark(NamedTuple):
    """A value that a session named, by the digits of its mark."""

    stream: int
    session: SessionKey
    digits: str
    rule: str


def note_named(connection: apsw.Connection, stream: int, values: "Sequence[NamedValue]") -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO named_values (stream, digits, rule) VALUES (?, ?, ?)",
        [(stream, value.digits, value.rule) for value in values],
    )


class NamedValues:
    """The named values of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.at_hand: dict[SessionKey, list[NamedValue]] = defaultdict(list)  # until they are settled

    def remember(self, batches: "Iterable[Batch]") -> None:
        """Have the values of batches at hand, which is in memory only."""
        for batch in batches:
            for part in batch.streams:
                if part.named:
                    self.at_hand[SessionKey(batch.source.agent, part.native_id).root] += part.named

    def all(self) -> dict[SessionKey, dict[str, str]]:
        """The rules of all values by the digits of their marks, for each session with its sub-agents."""
        return by_root(self._marks("1"))

    def due(self) -> list[NamedMark]:
        return self._marks("is_due")

    def _marks(self, condition: str) -> list[NamedMark]:
        rows = self._database.rows(
            "SELECT n.stream, s.agent, s.native_id, n.digits, n.rule FROM named_values n"
            f" JOIN streams s ON s.id = n.stream WHERE {condition}"
        )
        return [NamedMark(stream, SessionKey(*key), digits, rule) for stream, *key, digits, rule in rows]

    def settle(self, marks: Iterable[NamedMark]) -> None:
        """Note that values are hidden in all that is stored of their sessions."""
        self.at_hand.clear()
        self._database.write_all(
            "UPDATE named_values SET is_due = 0 WHERE stream = ? AND digits = ?",
            [(mark.stream, mark.digits) for mark in marks],
        )


def by_root(marks: Iterable[NamedMark]) -> dict[SessionKey, dict[str, str]]:
    rules: dict[SessionKey, dict[str, str]] = {}
    for mark in marks:
        rules.setdefault(mark.session.root, {})[mark.digits] = mark.rule
    return rules
