"""Rows that this project never wrote. SQLite checks how a file is built, not what its rows say."""

from collections.abc import Iterator

from recollect.store.sqlite.database import Database
from recollect.store.tables import declared
from recollect.store.tables.column import Column, Role
from recollect.store.tables.table import Table, hash_of

_TYPES = {"INTEGER": "('integer')", "REAL": "('integer', 'real')", "TEXT": "('text')", "BLOB": "('blob')"}


def iter_faults(database: Database) -> Iterator[str]:
    """Describe tables with rows of the wrong type, broken JSON or a content that does not match its hash."""
    for table in declared(database.path.name):
        tests = " AND ".join(test for column in table.columns for test in _tests(column))
        if count := database.value(f"SELECT count(*) FROM {table.name} WHERE NOT ({tests})"):
            yield f"{count:,} rows of {table.name} are damaged"
        for column in table.columns:
            if count := _count_mismatches(database, table, column):
                yield f"{count:,} {table.name} are damaged"


def _tests(column: Column) -> Iterator[str]:
    yield f'(typeof("{column.name}") IN {_TYPES[column.type]} OR {int(column.is_optional)} AND "{column.name}" IS NULL)'
    if column.role is Role.DOCUMENT:
        yield f"ifnull(json_valid({column.name}), 1)"
    if column.check:
        yield column.check


def _count_mismatches(database: Database, table: Table, column: Column) -> int:
    if column.hash_of is None:
        return 0
    sql = f"SELECT {column.hash_of}, {column.name} FROM {table.name} WHERE {column.hash_of} IS NOT NULL"
    return sum(hash_of(content.encode()) != known for content, known in database.iter_rows(sql))
