"""Versions of the tables, as functions that are only ever added to.

The first makes the tables as they are declared today. A later one changes a store of the version before it, and finds
its change made already in a new store.
"""

import apsw

from recollect.store.tables import declared
from recollect.store.tables.named_values import NAMED_VALUES
from recollect.store.tables.rules import RULES
from recollect.store.tables.table import CACHE as CACHE_NAME
from recollect.store.tables.table import MEMORY as MEMORY_NAME
from recollect.store.tables.views import VIEWS


def m001_cache(connection: apsw.Connection) -> None:
    _create(connection, CACHE_NAME)


def m001_memory(connection: apsw.Connection) -> None:
    _create(connection, MEMORY_NAME)


def m002_views(connection: apsw.Connection) -> None:
    connection.execute(VIEWS.create.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))


def m002_named_values(connection: apsw.Connection) -> None:
    connection.execute(NAMED_VALUES.create.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    for statement in NAMED_VALUES.extras:
        connection.execute(statement)


def m003_moved(connection: apsw.Connection) -> None:
    if "has_moved" not in {row[1] for row in connection.execute("PRAGMA table_info(rules)")}:
        connection.execute("ALTER TABLE rules ADD COLUMN has_moved INTEGER")
        for statement in RULES.extras:
            connection.execute(statement)


def m004_sessions_by_names(connection: apsw.Connection) -> None:
    from recollect.store.tables.sessions import SESSIONS_BY_NAMES  # loads much that a search does not need

    for statement in SESSIONS_BY_NAMES:
        connection.execute(statement)


def _create(connection: apsw.Connection, database: str) -> None:
    tables = declared(database)
    for table in tables:
        connection.execute(table.create)
    for statement in (extra for table in tables for extra in table.extras):  # a trigger is about two tables
        connection.execute(statement)


CACHE = (m001_cache, m002_named_values)
MEMORY = (m001_memory, m002_views, m003_moved, m004_sessions_by_names)
