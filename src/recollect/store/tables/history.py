"""How far a database has come, by its own rows; `sqlite/high_water` compares that with the mark outside."""

from recollect.store.tables import column
from recollect.store.tables.table import BOTH, Table

# One row: how many transactions there were, a name for the last, and whether every page has a checksum.
HISTORY = Table(
    "history",
    BOTH,
    (
        *column.numbers("commits"),
        *column.plain("token", "checksums"),
    ),
    extras=("INSERT INTO history VALUES (0, '', 'none')",),
)

# Tokens that a high-water mark has named: a database without the newest is an older one.
MARKS = Table(
    "marks",
    BOTH,
    (
        *column.plain("token"),
        *column.numbers("commits"),
    ),
    key=("token",),
)
