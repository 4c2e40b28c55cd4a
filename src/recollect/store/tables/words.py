"""What is known of the full text; `store/words` makes its tables `fts_<month>` and reads them."""

from recollect.store.tables import column
from recollect.store.tables.table import BY_STREAM, CACHE, Table

# Up to where a session's stream of payloads is indexed, and the highest seq among them.
FULLTEXT_MARKS = Table(
    "fulltext_marks",
    CACHE,
    (
        column.row_number("stream"),
        *column.numbers("generation", "bytes", "seq"),
    ),
    owner=BY_STREAM,
    is_raw=True,
)

# A row for each table `fts_<month>`, which is made when its month has its first event.
FULLTEXT_MONTHS = Table(
    "fulltext_months",
    CACHE,
    (
        *column.plain("month"),
        *column.numbers("events", "text_bytes"),
    ),
    key=("month",),
    is_raw=True,
)

# Events that were deleted and may still be in the index: their numbers are used again.
FULLTEXT_GONE = Table(
    "fulltext_gone",
    CACHE,
    (column.row_number("id"),),
    is_raw=True,
    extras=(
        "CREATE TRIGGER events_leave_the_index AFTER DELETE ON events BEGIN"
        " INSERT OR IGNORE INTO fulltext_gone VALUES (OLD.id); END",
    ),
)
