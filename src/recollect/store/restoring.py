"""Which records of the ledger become which rows of memory.db, when it has to be made anew.

A kind of record that memory.db must not lose has its function here. Each takes rows as they were written by any
version, and changes nothing that is already there: it may be run at any time.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import apsw

from recollect.store.copies import KIND as COPY
from recollect.store.copies import restore_copy
from recollect.store.evictions import KIND as EVICTION
from recollect.store.evictions import restore_eviction
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.tombstones import KIND, restore_tombstone

Restorer = Callable[[apsw.Connection, LedgerRecord], None]

RESTORERS: dict[str, Restorer] = {COPY: restore_copy, KIND: restore_tombstone, EVICTION: restore_eviction}

# What was true whatever older state a store is put back to: it is carried over into a restored one.
OUTLIVES_RESTORE = frozenset({KIND, COPY})


def restore_records(connection: apsw.Connection, records: Iterable[LedgerRecord]) -> Counter[str]:
    """Put records of the ledger back as rows; how many of each kind. Kinds of a newer version stay in the ledger."""
    restored: Counter[str] = Counter()
    for record in records:
        if record.kind in RESTORERS:
            RESTORERS[record.kind](connection, record)
            restored[record.kind] += 1
    return restored


class Recorded(Protocol):
    """A table of memory.db whose rows the ledger has too."""

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """Every row as the kind and data of a line of the ledger."""
        ...


def missing_records(ledger: Ledger, tables: Iterable[Recorded]) -> list[tuple[str, dict[str, Any]]]:
    """Rows that have no line in the ledger, as what would be their lines."""
    told = [record for table in tables for record in table.records()]  # first: lines are written before rows
    known = {_subject(record.kind, record.data) for record in ledger.records()}
    return [(kind, data) for kind, data in told if _subject(kind, data) not in known]


def _subject(kind: str, data: dict[str, Any]) -> tuple[str | None, ...]:
    """What a record is about: a session, or the path of a copy."""
    return kind, data.get("agent"), data.get("native_session_id"), data.get("path")
