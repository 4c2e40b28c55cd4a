"""What a column of a table declares of itself."""

from enum import Enum
from functools import partial
from typing import NamedTuple

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


numbers = partial(_columns, "INTEGER", Role.PLAIN)
reals = partial(_columns, "REAL", Role.PLAIN)
blobs = partial(_columns, "BLOB", Role.PLAIN)
plain = partial(_columns, "TEXT", Role.PLAIN)
texts = partial(_columns, "TEXT", Role.TEXT)
text_bytes = partial(_columns, "BLOB", Role.TEXT)  # which may not be UTF-8
documents = partial(_columns, "TEXT", Role.DOCUMENT)
names = partial(_columns, "TEXT", Role.NAME)
identifiers = partial(_columns, "TEXT", Role.IDENTIFIER)
labels = partial(_columns, "TEXT", Role.LABEL)
paths = partial(_columns, "TEXT", Role.PATH)


def row_number(name: str) -> Column:
    return Column(name, "INTEGER", constraint=PRIMARY_KEY)


def lasting_number(name: str) -> Column:
    """A row's number that no other row gets, even after the row is gone."""
    return Column(name, "INTEGER", constraint=f"{PRIMARY_KEY} AUTOINCREMENT")


def count(name: str, default: int) -> Column:
    return Column(name, "INTEGER", constraint=f"NOT NULL DEFAULT {default}")


def hashes(name: str) -> Column:
    """Hashes of eight bytes each, one after another."""
    return Column(name, "BLOB", check=f"length({name}) % 8 = 0")


def hash_of(content: str, name: str) -> Column:
    return Column(name, "BLOB", constraint="", hash_of=content)


def derived(name: str, sql: str) -> Column:
    return Column(name, "TEXT", constraint="", derived=sql)
