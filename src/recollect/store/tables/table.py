"""What a table declares of itself.

A declaration is all a new table needs: erasing a session, finding a text, applying redaction rules, checking, exporting
and measuring loop over the declarations (`recollect.store.tables.declared`) and do what each column's role asks for.
"""

from collections.abc import Iterable, Sequence
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.model.kinds import SessionKey

CACHE = "cache.db"
MEMORY = "memory.db"
BOTH = "*"
PRIMARY_KEY = "PRIMARY KEY"
# What a response, an hour or a session used.
TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")


class Role(Enum):
    """What a column holds, and so what the loops over tables do with it."""

    PLAIN = "our own words, keys and hashes: nobody's secrets, never searched"
    TEXT = "a user's or a model's words: every redaction rule applies"
    DOCUMENT = "JSON with such words in it"
    NAME = "the name of a model, tool, branch or folder: redacted by prefix and structure rules only"
    IDENTIFIER = "an id that the agent gave: redacted like a name, found by long texts only"
    LABEL = "a word that most rows share: redacted like a name, never searched"
    PATH = "the path of a file: redacted like a name, in every table alike"


REDACTED_AS_NAMES = (Role.NAME, Role.IDENTIFIER, Role.LABEL)
SEARCHED = (Role.TEXT, Role.DOCUMENT, Role.NAME, Role.PATH)


class Column(NamedTuple):
    """A column. `hash_of` names the column that it is a hash of; `derived` and `check` are SQL over the row.

    A derived column follows when the others are redacted; a row whose check fails was never written like that.
    """

    name: str
    type: str
    role: Role = Role.PLAIN
    constraint: str = "NOT NULL"
    hash_of: str | None = None
    derived: str | None = None
    check: str | None = None

    @property
    def is_optional(self) -> bool:
        return "NOT NULL" not in self.constraint

    @property
    def blank(self) -> str | None:
        """As SQL, what replaces a user's words; None for a column that has none."""
        if self.role is Role.DOCUMENT:
            return "'{}'"
        return {"TEXT": "''", "BLOB": "x''"}[self.type] if self.role is Role.TEXT else None

    @property
    def sql(self) -> str:
        return f'"{self.name}" {self.type} {self.constraint}'.rstrip()


def _columns(type: str, role: Role, *names: str) -> tuple[Column, ...]:
    """Columns of one kind; one whose name ends in `?` may be NULL."""
    return tuple(Column(name.removesuffix("?"), type, role, "" if name.endswith("?") else "NOT NULL") for name in names)


class column:
    """Makes the columns of a declaration: `column.texts("title")`."""

    numbers = staticmethod(partial(_columns, "INTEGER", Role.PLAIN))
    reals = staticmethod(partial(_columns, "REAL", Role.PLAIN))
    blobs = staticmethod(partial(_columns, "BLOB", Role.PLAIN))
    plain = staticmethod(partial(_columns, "TEXT", Role.PLAIN))
    texts = staticmethod(partial(_columns, "TEXT", Role.TEXT))
    text_bytes = staticmethod(partial(_columns, "BLOB", Role.TEXT))  # which may not be UTF-8
    documents = staticmethod(partial(_columns, "TEXT", Role.DOCUMENT))
    names = staticmethod(partial(_columns, "TEXT", Role.NAME))
    identifiers = staticmethod(partial(_columns, "TEXT", Role.IDENTIFIER))
    labels = staticmethod(partial(_columns, "TEXT", Role.LABEL))
    paths = staticmethod(partial(_columns, "TEXT", Role.PATH))

    @staticmethod
    def row_number(name: str) -> Column:
        return Column(name, "INTEGER", constraint=PRIMARY_KEY)

    @staticmethod
    def lasting_number(name: str) -> Column:
        """A row's number that no other row gets, even after the row is gone."""
        return Column(name, "INTEGER", constraint=f"{PRIMARY_KEY} AUTOINCREMENT")

    @staticmethod
    def count(name: str, default: int) -> Column:
        return Column(name, "INTEGER", constraint=f"NOT NULL DEFAULT {default}")

    @staticmethod
    def hashes(name: str) -> Column:
        """Hashes of eight bytes each, one after another."""
        return Column(name, "BLOB", check=f"length({name}) % 8 = 0")

    @staticmethod
    def hash_of(content: str, name: str) -> Column:
        return Column(name, "BLOB", constraint="", hash_of=content)

    @staticmethod
    def derived(name: str, sql: str) -> Column:
        return Column(name, "TEXT", constraint="", derived=sql)


# How rows belong to a session: a condition that selects them; ?1 is its agent, ?2 its native id.
BY_NATIVE_ID = "agent = ?1 AND native_id = ?2"
BY_SESSION = "agent = ?1 AND native_session_id = ?2"
BY_STREAM = "stream = (SELECT id FROM streams WHERE agent = ?1 AND native_id = ?2)"
# Rows of a file, which may hold several sessions: erasing one blanks their texts, and drops them if no other is left.
BY_SOURCE = (
    "source IN (SELECT t.source FROM stream_sources t JOIN streams s ON s.id = t.stream"
    " WHERE s.agent = ?1 AND s.native_id = ?2)"
)
_DIGEST = "SELECT id FROM digests WHERE agent = ?1 AND native_session_id = ?2"
BY_DIGEST = f"digest IN ({_DIGEST})"
BY_DIGEST_ROWID = f"rowid IN ({_DIGEST})"  # of a full-text table
PARTS_OF_DIGEST = (BY_DIGEST, BY_DIGEST_ROWID)
# The columns that say whose a row is: the session's key, or the number of its digest.
OWNER_KEYS: dict[str | None, tuple[str, ...]] = {
    BY_NATIVE_ID: ("agent", "native_id"),
    BY_SESSION: ("agent", "native_session_id"),
    BY_DIGEST: ("digest",),
    BY_DIGEST_ROWID: ("rowid",),
}


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
    owner: str | None = None
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
        owned = self.owner or "0"
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
            connection.executemany(f"DELETE FROM {table.name} WHERE {table.owner}", keys)


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
