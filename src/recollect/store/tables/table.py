"""What a table declares of itself.

A declaration is all a new table needs: erasing a session, finding a text, applying redaction rules, checking, exporting
and measuring loop over the declarations (`recollect.store.tables.declared`) and do what each column's role asks for.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.kinds import SessionKey
from recollect.store.tables.column import Column, Role

CACHE = "cache.db"
MEMORY = "memory.db"
BOTH = "*"


class Owner(NamedTuple):
    """How rows belong to a session. `of_session` selects a session's rows: ?1 is its agent, ?2 its native id."""

    of_session: str


BY_NATIVE_ID = Owner("agent = ?1 AND native_id = ?2")
BY_SESSION = Owner("agent = ?1 AND native_session_id = ?2")
BY_STREAM = Owner("stream = (SELECT id FROM streams WHERE agent = ?1 AND native_id = ?2)")
# Rows of a file, which may hold several sessions: erasing one blanks their texts, and drops them if no other is left.
BY_SOURCE = Owner(
    "source IN (SELECT t.source FROM stream_sources t JOIN streams s ON s.id = t.stream"
    " WHERE s.agent = ?1 AND s.native_id = ?2)",
)
_DIGEST = "SELECT id FROM digests WHERE agent = ?1 AND native_session_id = ?2"
BY_DIGEST = Owner(f"digest IN ({_DIGEST})")
BY_DIGEST_ROWID = Owner(f"rowid IN ({_DIGEST})")  # of a full-text table
PARTS_OF_DIGEST = (BY_DIGEST, BY_DIGEST_ROWID)


class Table(NamedTuple):
    """A table of one database, or of both.

    `owner` is None for rows that belong to no session, or must outlive it. `is_raw` marks what eviction drops,
    `is_exported` what an export of a session carries, `is_derived` what a sweep makes again from the session's events.
    `sums` are added up where two rows come to have the same key.
    `extras` are statements that follow the CREATE TABLE: indexes, triggers, settings, first rows.
    """

    name: str
    database: str
    columns: tuple[Column, ...]
    owner: Owner | None = None
    key: tuple[str, ...] = ()
    has_rowid: bool = False  # although it has a key
    unique: tuple[str, ...] = ()
    is_raw: bool = False
    is_exported: bool = False
    is_derived: bool = False
    sums: tuple[str, ...] = ()
    tokenizer: str | None = None  # of a full-text table
    group_column: str | None = None  # names the group that alone may see a row; else the owner's group may
    extras: tuple[str, ...] = ()

    @property
    def create(self) -> str:
        if self.tokenizer is not None:
            listed = ", ".join(column.name for column in self.columns)
            return f"CREATE VIRTUAL TABLE {self.name} USING fts5({listed}, tokenize = '{self.tokenizer}')"
        lines = [column.sql for column in self.columns]
        lines += [f"PRIMARY KEY ({', '.join(self.key)})"] if self.key else []
        lines += [f"UNIQUE ({', '.join(self.unique)})"] if self.unique else []
        ending = " WITHOUT ROWID" if self.key and not self.has_rowid else ""
        return f"CREATE TABLE {self.name} (\n    " + ",\n    ".join(lines) + f"\n){ending}"

    @property
    def is_bulky(self) -> bool:
        """Return whether a session may have many rows, whose order of going does not matter."""
        return self.owner in (BY_STREAM, BY_DIGEST) and all(column.name != "source" for column in self.columns)

    @property
    def delete_some(self) -> str:
        """SQL that deletes rows of a session; the last binding is how many at most."""
        key = ", ".join(self.row_key)
        owned = self.owner.of_session if self.owner else "0"
        return f"DELETE FROM {self.name} WHERE ({key}) IN (SELECT {key} FROM {self.name} WHERE {owned} LIMIT ?3)"

    @property
    def row_key(self) -> tuple[str, ...]:
        """Return the columns that identify a row."""
        return self.key if self.key and not self.has_rowid else ("rowid",)

    @property
    def adding(self) -> str:
        """SQL for an upsert that adds what it brings to the row with the same key."""
        return ", ".join(f"{name} = coalesce({name} + excluded.{name}, {name}, excluded.{name})" for name in self.sums)

    @property
    def is_of_session(self) -> bool:
        """Return True if each row belongs to one session."""
        return self.owner not in (None, BY_SOURCE)

    @property
    def is_part(self) -> bool:
        """Return True if its rows are known by the number of a stream or a digest, so that they go before it."""
        return self.owner in (BY_STREAM, BY_DIGEST, BY_DIGEST_ROWID)

    def role(self, name: str) -> Role:
        return next(column.role for column in self.columns if column.name == name)

    def names(self, *roles: Role) -> tuple[str, ...]:
        """Return the columns that have one of these roles."""
        return tuple(column.name for column in self.columns if column.role in roles)


def drop_rows(connection: apsw.Connection, tables: Iterable[Table], keys: Sequence[SessionKey]) -> None:
    """Delete the rows of sessions from tables whose rows belong to one."""
    for table in sorted(tables, key=lambda table: not table.is_part):
        if table.owner is not None:
            connection.executemany(f"DELETE FROM {table.name} WHERE {table.owner.of_session}", keys)


def hash_of(content: bytes) -> bytes:
    """Compute the value of a `hash_of` column."""
    from hashlib import blake2b  # takes milliseconds to load, and a search needs none

    return blake2b(content, digest_size=16).digest()


def json_list(values: Iterable[Any]) -> str:
    """Values for `json_each`, sorted."""
    return orjson.dumps(sorted(values)).decode()


# The sessions that a statement is about, as its first binding: see `json_keys`.
KEYS = "WITH keys (agent, native_id) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(?1)) "


def json_keys(keys: Iterable[tuple[str, str]]) -> str:
    """Sessions for `json_each`, sorted."""
    return orjson.dumps(sorted(map(tuple, keys))).decode()
