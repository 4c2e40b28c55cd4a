"""Versions of the tables, as functions that are only ever added to.

The first makes the tables as they are declared today. A later one changes a store of the version before it, and finds
its change made already in a new store. Each imports the table it is about: whoever opens a store needs none of them.
"""

import apsw

from recollect.store.tables import declared
from recollect.store.tables.table import BOTH, Table, column
from recollect.store.tables.table import CACHE as CACHE_NAME
from recollect.store.tables.table import MEMORY as MEMORY_NAME

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


def m001_cache(connection: apsw.Connection) -> None:
    _create(connection, CACHE_NAME)


def m001_memory(connection: apsw.Connection) -> None:
    _create(connection, MEMORY_NAME)


def m002_views(connection: apsw.Connection) -> None:
    from recollect.store.tables.groups import VIEWS

    connection.execute(VIEWS.create.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))


def m002_named_values(connection: apsw.Connection) -> None:
    from recollect.store.tables.streams import NAMED_VALUES

    connection.execute(NAMED_VALUES.create.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    for statement in NAMED_VALUES.extras:
        connection.execute(statement)


def m003_moved(connection: apsw.Connection) -> None:
    from recollect.store.tables.kept import RULES

    if "has_moved" not in {row[1] for row in connection.execute("PRAGMA table_info(rules)")}:
        connection.execute("ALTER TABLE rules ADD COLUMN has_moved INTEGER")
        for statement in RULES.extras:
            connection.execute(statement)


def m003_events_by_number(connection: apsw.Connection) -> None:
    from recollect.store.tables.events import EVENTS_BY_NUMBER

    connection.execute(EVENTS_BY_NUMBER)


def m004_sessions_by_names(connection: apsw.Connection) -> None:
    from recollect.store.tables.session_rows import SESSIONS_BY_NAMES

    for statement in SESSIONS_BY_NAMES:
        connection.execute(statement)


def m004_minutes(connection: apsw.Connection) -> None:
    """What is kept of closed parts was counted by hours."""
    connection.execute("DELETE FROM kept")


def m005_minutes(connection: apsw.Connection) -> None:
    """What was counted by hours and days, until it is counted again from events that are still held."""
    from recollect.store.tables.activity import ACTIVITY, OLD_SPANS

    for name, old in (("activity", "hour"), ("tool_use", "day"), ("command_use", "day")):
        if old in {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}:
            span = OLD_SPANS[old]
            connection.execute(f"ALTER TABLE {name} RENAME COLUMN {old} TO minute")
            if name != ACTIVITY.name:
                connection.execute(f"ALTER TABLE {name} ADD COLUMN event TEXT")
            connection.execute(f"ALTER TABLE {name} ADD COLUMN span INTEGER NOT NULL DEFAULT 1")
            connection.execute(f"UPDATE {name} SET minute = minute * {span}, span = {span} WHERE minute >= 0")
            if name == ACTIVITY.name:
                connection.execute("DROP INDEX activity_by_hour")
                connection.execute(ACTIVITY.extras[0])


def m006_sessions_by_class(connection: apsw.Connection) -> None:
    from recollect.store.tables.session_rows import SESSIONS_BY_CLASS

    connection.execute(SESSIONS_BY_CLASS)


def _create(connection: apsw.Connection, database: str) -> None:
    tables = declared(database)
    for table in tables:
        connection.execute(table.create)
    for statement in (extra for table in tables for extra in table.extras):  # a trigger is about two tables
        connection.execute(statement)


CACHE = (m001_cache, m002_named_values, m003_events_by_number, m004_minutes)
MEMORY = (m001_memory, m002_views, m003_moved, m004_sessions_by_names, m005_minutes, m006_sessions_by_class)
