"""Records of the ledger as rows of memory.db, when it has to be made anew.

Each kind of record has its function here. It changes nothing that exists already, so it may run at any time.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import apsw

from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.tables.copies import COPY, restore_copy_record
from recollect.store.tables.eviction_records import KIND as EVICTION
from recollect.store.tables.eviction_records import restore_eviction
from recollect.store.tables.facts import NOTE, VERDICT, restore_note, restore_verdict
from recollect.store.tables.groups import BOOKMARK, GROUP, restore_bookmark, restore_group
from recollect.store.tables.tombstones import TOMBSTONE, restore_tombstone

Restorer = Callable[[apsw.Connection, LedgerRecord], None]

RESTORERS: dict[str, Restorer] = {
    COPY: restore_copy_record,
    TOMBSTONE: restore_tombstone,
    EVICTION: restore_eviction,
    VERDICT: restore_verdict,
    NOTE: restore_note,
    GROUP: restore_group,
    BOOKMARK: restore_bookmark,
}

# What stays true when an older state of the store is put back: a restored one takes it over.
OUTLIVES_RESTORE = frozenset({TOMBSTONE, COPY, VERDICT, NOTE})


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
    rows = [record for table in tables for record in table.records()]  # first: lines are written before rows
    known = {_subject(record.kind, record.data) for record in ledger.records()}
    return [(kind, data) for kind, data in rows if _subject(kind, data) not in known]


def _subject(kind: str, data: dict[str, Any]) -> tuple[str | None, ...]:
    """What a record is about: a session, the path of a copy, a group and its part in it, a fact, a note."""
    names = ("agent", "native_session_id", "path", "group", "fact_uid", "note_uid")
    return kind, *map(data.get, names)
