"""What rows look like that this project has written. SQLite looks at how a file is built, and not at what it says."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recollect.store.digests import hash_of
from recollect.store.sqlite import Database

Values = list[Any]

TEXT_OF_DIGESTS = "digest_text_content"  # where the index of digests keeps their words
# About the file itself, or made again by the next sweep
_NOT_SAVED = ("history", "marks", "rules", "fulltext_marks", "fulltext_months", "fulltext_gone", "evicted_streams")

_TYPES: dict[str, tuple[type, ...]] = {"INTEGER": (int,), "REAL": (int, float), "TEXT": (str,), "BLOB": (bytes,)}
_TYPE_NAMES = {"INTEGER": "('integer')", "REAL": "('integer', 'real')", "TEXT": "('text')", "BLOB": "('blob')"}
_DOCUMENTS = {
    "sessions": ("instructions", "metadata"),
    "evictions": ("base",),
    "signals": ("evidence",),
    "infos": ("info",),
    "sources": ("state",),
    "events": ("metadata",),
}
_HASHES = {"evictions": ("event_keys",), "tombstones": ("event_keys",)}  # of eight bytes each, one after another


@dataclass(frozen=True, slots=True)
class Shape:
    """What a table's rows look like in its file. `number` is the place of the column that is the row's number."""

    columns: tuple[str, ...]
    types: tuple[str, ...]
    is_needed: tuple[bool, ...]
    number: int | None
    has_row_numbers: bool

    def fits(self, values: Values) -> bool:
        """Whether values may be a row of this table; columns that were added later may be missing."""
        if not max(1, sum(self.is_needed)) <= len(values) <= len(self.columns):
            return False
        return all(self._fits(place, value) for place, value in enumerate(values))

    def _fits(self, place: int, value: Any) -> bool:
        if value is None:
            return not self.is_needed[place] or place == self.number
        return place != self.number and isinstance(value, _TYPES[self.types[place]])

    @property
    def is_telling(self) -> bool:
        """Whether rows are known by their looks: those of a short table without row numbers may be an index's."""
        return self.has_row_numbers or len(self.columns) > 3


def tables(database: Database) -> list[tuple[str, bool]]:
    """The tables whose rows are worth saving, and whether they have no row numbers."""
    rows = database.rows("SELECT name, wr, type FROM pragma_table_list WHERE schema = 'main'")
    return [
        (name, bool(wr))
        for name, wr, kind in rows
        if name == TEXT_OF_DIGESTS or (kind == "table" and name not in _NOT_SAVED and not name.startswith("sqlite_"))
    ]


def shape_of(database: Database, table: str, has_no_rowid: bool) -> Shape:
    found = database.rows('SELECT name, type, "notnull", pk FROM pragma_table_info(?) ORDER BY cid', (table,))
    if has_no_rowid:
        count = len(found)
        found.sort(key=lambda column: column[3] or count)  # the columns of the key stand first
    names, types, is_needed, keys = zip(*found, strict=True)
    is_number = not has_no_rowid and sum(map(bool, keys)) == 1 and types[keys.index(1)] == "INTEGER"
    return Shape(
        columns=names,
        types=tuple(told or "TEXT" for told in types),
        is_needed=tuple(map(bool, is_needed)),
        number=keys.index(1) if is_number else None,
        has_row_numbers=not has_no_rowid,
    )


def iter_nonsense(database: Database) -> Iterator[str]:
    """In words, which tables have rows that this project never writes."""
    for table, has_no_rowid in tables(database):
        test = _test(table, shape_of(database, table, has_no_rowid))
        if count := database.value(f"SELECT count(*) FROM {table} WHERE NOT ({test})"):
            yield f"{count:,} rows of {table} are not what was stored"
    if count := len(_other_digests(database)):
        yield f"{count:,} digests are not what was stored"


def drop_nonsense(database: Database) -> None:
    """Delete such rows of a database that was saved: what they were about may be told elsewhere."""
    for table, has_no_rowid in tables(database):
        test = _test(table, shape_of(database, table, has_no_rowid))
        database.connection.execute(f"DELETE FROM {table} WHERE NOT ({test})")
    numbers = [(number,) for number in _other_digests(database)]
    database.connection.executemany("DELETE FROM digests WHERE id = ?", numbers)


def _test(table: str, shape: Shape) -> str:
    """As SQL, whether a row is one that may stand in the table."""
    columns = zip(shape.columns, shape.types, shape.is_needed, strict=True)
    tests = [
        f'(typeof("{name}") IN {_TYPE_NAMES[kind]} OR {int(not is_needed)} AND "{name}" IS NULL)'
        for name, kind, is_needed in columns
    ]
    tests += [f"ifnull(json_valid({name}), 1)" for name in _DOCUMENTS.get(table, ())]
    tests += [f"length({name}) % 8 = 0" for name in _HASHES.get(table, ())]
    return " AND ".join(tests)


def _other_digests(database: Database) -> list[int]:
    """The numbers of digests that do not have the hash which they were stored with."""
    if database.value("SELECT 1 FROM sqlite_schema WHERE name = 'digests'") is None:
        return []
    rows = database.iter_rows("SELECT id, digest, digest_hash FROM digests WHERE digest IS NOT NULL")
    return [number for number, digest, told in rows if hash_of(digest.encode()) != told]
