"""Which records of the ledger become which rows of memory.db, when it has to be made anew.

A kind of record that memory.db must not lose has its function here. Each takes rows as they were written by any
version, and changes nothing that is already there: it may be run at any time.
"""

from collections import Counter
from collections.abc import Callable, Iterable

import apsw

from recollect.store.copies import restore_copy
from recollect.store.evictions import KIND as EVICTION
from recollect.store.evictions import restore_eviction
from recollect.store.ledger import LedgerRecord
from recollect.store.tombstones import KIND, restore_tombstone

Restorer = Callable[[apsw.Connection, LedgerRecord], None]

RESTORERS: dict[str, Restorer] = {"copy": restore_copy, KIND: restore_tombstone, EVICTION: restore_eviction}

# What was true whatever older state a store is put back to: it is carried over into a restored one.
OUTLIVES_RESTORE = frozenset({KIND, "copy"})


def restore_records(connection: apsw.Connection, records: Iterable[LedgerRecord]) -> Counter[str]:
    """Put records of the ledger back as rows; how many of each kind. Kinds of a newer version stay in the ledger."""
    restored: Counter[str] = Counter()
    for record in records:
        if record.kind in RESTORERS:
            RESTORERS[record.kind](connection, record)
            restored[record.kind] += 1
    return restored
