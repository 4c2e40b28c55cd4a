"""What one group sees of a store: SQLite itself keeps the rest away from every query.

Each table is hidden by a temporary view of the same name that has the group's rows only, so that the queries of this
package need not know of groups. An authorizer refuses whatever is read beside the views: a table without one, a new
query that names its table in full, a word list, any write. What a table's rows belong to is in its declaration.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.model.errors import NotInGroup
from recollect.model.text import Columns
from recollect.store.search import table_of, terms_of
from recollect.store.sqlite.database import Database
from recollect.store.tables import declared, migrations
from recollect.store.tables.session_rows import SESSIONS
from recollect.store.tables.streams import STREAMS
from recollect.store.tables.table import (
    BY_DIGEST,
    BY_DIGEST_ROWID,
    BY_NATIVE_ID,
    BY_SESSION,
    BY_STREAM,
    CACHE,
    MEMORY,
    Table,
)

_K1, _B = 1.2, 0.75  # as FTS5 has them
_USUAL_TOKENS = 100  # of a row; the average is one over all groups


class _Query(NamedTuple):
    """What one query needs for every row."""

    rarities: Sequence[float]
    weights: Sequence[float]


def rank_by_own_rows(connection: apsw.Connection, rows: str, size: str) -> None:
    """Have `bm25()` and `rank` of this connection know only the rows whose number is an `id` of the view `rows`.

    `size` selects how many rows the group has.
    """
    own = f"SELECT count(*) FROM json_each(?) k CROSS JOIN {rows} r ON r.id = k.value"

    def count(api: apsw.FTS5ExtensionApi, phrase: int) -> int:
        found: list[int] = []
        api.query_phrase(phrase, lambda row, _: found.append(row.rowid), None)
        return int(connection.execute(own, (orjson.dumps(found).decode(),)).get)

    def bm25(api: apsw.FTS5ExtensionApi, *weights: Any) -> float:
        query: _Query | None = api.aux_data
        if query is None:
            total = int(connection.execute(size).get)
            having = [count(api, phrase) for phrase in range(api.phrase_count)]
            rarities = [max(math.log((max(total - n, 0) + 0.5) / (n + 0.5)), 1e-6) for n in having]
            query = api.aux_data = _Query(rarities, [*weights, *[1.0] * (api.column_count - len(weights))])
        return -_score(api, query)

    connection.register_fts5_function("bm25", bm25)


def _score(api: apsw.FTS5ExtensionApi, query: _Query) -> float:
    length = _K1 * (1 - _B + _B * api.column_size(-1) / _USUAL_TOKENS)
    score = 0.0
    for phrase, rarity in enumerate(query.rarities):
        places = api.phrase_locations(phrase)
        times = sum(weight * len(found) for weight, found in zip(query.weights, places, strict=True))
        score += rarity * times * (_K1 + 1) / (times + length)
    return score


_IN_SCOPE = "IN (SELECT id FROM temp.scope_streams)"
_OF_GROUP = "FROM main.sessions s WHERE s.\"group\" = '{group}' AND s.agent = {0}.agent"
# What makes a row the group's own, by whom it belongs to; `t` is the row.
_CONDITIONS: dict[str | None, str] = {
    BY_STREAM: f"t.stream {_IN_SCOPE}",
    BY_NATIVE_ID: "EXISTS (SELECT 1 FROM main.streams s WHERE s.agent = t.agent AND s.native_id = t.native_id"
    f" AND s.id {_IN_SCOPE})",
    BY_SESSION: f"EXISTS (SELECT 1 {_OF_GROUP.format('t', group='{group}')}"
    " AND s.native_session_id = t.native_session_id)",
}
for _owner, _key in ((BY_DIGEST, "digest"), (BY_DIGEST_ROWID, "rowid")):
    _CONDITIONS[_owner] = (
        f"EXISTS (SELECT 1 FROM main.digests d WHERE d.id = t.{_key} AND EXISTS (SELECT 1"
        f" {_OF_GROUP.format('d', group='{group}')} AND s.native_session_id = d.native_session_id))"
    )
# Months and how many events they hold, which a search weighs words by: those of the group, in each month.
_MONTHS = "SELECT month, (SELECT events FROM temp.scope_size) AS events, 0 AS text_bytes FROM main.fulltext_months"
_IS_HELD = f"EXISTS (SELECT 1 FROM main.events e WHERE e.id = t.rowid AND e.stream {_IN_SCOPE})"
_ALL_TERMS = "all_terms_"  # begins the names of the word lists behind the views

_ALLOWED = frozenset({apsw.SQLITE_SELECT, apsw.SQLITE_FUNCTION, apsw.SQLITE_RECURSIVE})
# FTS5 reads its own tables by queries like any other.
_SHADOWS = ("_data", "_idx", "_docsize", "_config", "_content")
_OPEN_TABLES = frozenset({"sqlite_schema", "sqlite_master", "sqlite_temp_master", "json_each", "history"})
_OPEN_PRAGMAS = frozenset({"data_version", "user_version", "application_id"})


class ScopedDatabase(Database):
    """A database that shows the rows of one group, and writes nothing."""

    refresh: Callable[[], None] = staticmethod(lambda: None)
    lists_words = False  # a list of words is read: FTS5 makes it by a query of its own on the whole index

    def rows(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self.refresh()
        self.lists_words = f"temp.{terms_of('')}" in sql
        try:
            return super().rows(sql, bindings)
        except apsw.AuthError as error:
            raise NotInGroup(f"Not available inside a group: {error}") from error

    def iter_rows(self, sql: str, bindings: Sequence[Any] = ()) -> Iterator[tuple[Any, ...]]:
        yield from self.rows(sql, bindings)


class Scope:
    """Both databases of a store, narrowed to a group. New sessions of the group are seen as they come."""

    def __init__(self, folder: Path, group: str) -> None:
        self.cache = ScopedDatabase(folder / CACHE, migrations.CACHE, "NORMAL", read_only=True)
        self.memory = ScopedDatabase(folder / MEMORY, migrations.MEMORY, "FULL", read_only=True)
        self._group = group.replace("'", "''")
        self._secret = token_hex(16)
        self._version: tuple[int, int] | None = None
        self._months: set[str] = set()
        self._views: dict[str, set[str]] = {CACHE: set(), MEMORY: set()}
        self._indexes = [table.name for table in declared(MEMORY) if table.tokenizer is not None]
        self._hide_tables(self.memory, MEMORY)
        self._hide_tables(self.cache, CACHE)
        self.cache.connection.execute("CREATE TEMP TABLE scope_streams (id INTEGER PRIMARY KEY)")
        self.cache.connection.execute("CREATE TEMP TABLE scope_size (events INTEGER)")
        self._view(self.cache, "fulltext_months", _MONTHS)
        for database, rows, size in (
            (self.cache, "events", "SELECT events FROM temp.scope_size"),
            (self.memory, "digests", "SELECT count(*) FROM digests"),
        ):
            rank_by_own_rows(database.connection, rows, size)
        self.memory.connection.authorizer = self._authorizer(self.memory)
        self.cache.refresh = self._refresh
        self._refresh()

    def _hide_tables(self, database: Database, name: str) -> None:
        for table in declared(name):
            condition = _condition(table, self._group)
            if condition is None:
                continue
            if table.tokenizer is not None:
                self._hide_index(database, table.name, [column.name for column in table.columns], condition)
            else:
                columns = ", ".join(f't."{column.name}"' for column in table.columns)
                rowid = "t.rowid AS rowid, " if table.row_key == ("rowid",) else ""
                sql = f"SELECT {rowid}{columns} FROM main.{table.name} t WHERE {condition}"
                self._view(database, table.name, sql)

    def _hide_index(self, database: Database, table: str, columns: Sequence[str], condition: str) -> None:
        """Have a full-text table, and the list of its words, show what is in the group's rows."""
        listed = ", ".join(f"t.{name}" for name in columns)
        sql = f"SELECT t.rowid AS rowid, {listed}, t.{table}, t.rank FROM main.{table} t WHERE {condition}"
        self._view(database, table, sql)
        every = f"{_ALL_TERMS}{table}"
        database.connection.execute(f"CREATE VIRTUAL TABLE temp.{every} USING fts5vocab(main, {table}, row)")
        count = (
            f"(SELECT count(*) FROM main.{table} t WHERE t.{table} MATCH"
            f" '\"' || replace(v.term, '\"', '\"\"') || '\"' AND {condition})"
        )
        self._view(
            database, terms_of(table), f"SELECT v.term AS term, {count} AS doc FROM temp.{every} v WHERE {count} > 0"
        )

    def _view(self, database: Database, name: str, sql: str) -> None:
        """Hide a table. Only a view with a secret name reads it: any query may call a part of itself `events`."""
        secret = f"{name}_{self._secret}"
        database.connection.execute(f"CREATE TEMP VIEW {secret} AS {sql}")
        database.connection.execute(f"CREATE TEMP VIEW {name} AS SELECT * FROM temp.{secret}")
        self._views[database.path.name] |= {name}

    def _refresh(self) -> None:
        """Take in what other processes stored since the last query."""
        connection = self.cache.connection
        version = self.memory.connection.pragma("data_version"), connection.pragma("data_version")
        if version == self._version:
            return
        connection.authorizer = None
        try:
            self._read_sessions(connection)
        finally:
            connection.authorizer = self._authorizer(self.cache)
        self._version = version

    def _read_sessions(self, connection: apsw.Connection) -> None:
        keys = self.memory.rows("SELECT agent, native_session_id FROM sessions")
        connection.execute("DELETE FROM temp.scope_streams")
        connection.execute(
            "INSERT INTO temp.scope_streams SELECT s.id FROM json_each(?) k CROSS JOIN main.streams s"
            " ON s.agent = k.value ->> 0 AND s.native_id = k.value ->> 1",
            (orjson.dumps(keys).decode(),),
        )
        connection.execute("DELETE FROM temp.scope_size")
        size = f"SELECT coalesce(sum(next_seq), 0) FROM main.streams WHERE id {_IN_SCOPE}"
        connection.execute(f"INSERT INTO temp.scope_size {size}")
        months = {month for (month,) in connection.execute("SELECT month FROM main.fulltext_months")}
        for month in months - self._months:
            self._hide_index(self.cache, table_of(month), Columns._fields, _IS_HELD)
        self._months |= months

    def _authorizer(self, database: ScopedDatabase) -> Callable[..., int]:
        name = database.path.name
        indexes = tuple(f"{index}_" for index in ("fts", *self._indexes))
        tables = {table.name for table in declared(name)} - self._views[name]

        def authorize(
            action: int, table: str | None, detail: str | None, schema: str | None, inside: str | None
        ) -> int:
            if action in _ALLOWED or (action == apsw.SQLITE_PRAGMA and table in _OPEN_PRAGMAS and detail is None):
                return apsw.SQLITE_OK
            if action != apsw.SQLITE_READ or table is None:
                return apsw.SQLITE_DENY
            # Without a schema: counted only. A name in the query itself, or what an unqualified name stands for.
            is_view = table not in tables if schema is None else schema == "temp"
            is_open = is_view and not table.startswith(_ALL_TERMS) and not table.endswith(_SHADOWS)
            is_shadow = detail != "" and table.startswith(indexes) and table.endswith(_SHADOWS)
            is_listed = database.lists_words and table == detail and f"{table}_".startswith(indexes)
            is_inside = inside is not None and inside.endswith(self._secret)
            if is_inside or is_open or is_shadow or is_listed or table in _OPEN_TABLES:
                return apsw.SQLITE_OK
            return apsw.SQLITE_DENY

        return authorize


def _condition(table: Table, group: str) -> str | None:
    """What makes a row the group's own; None for a table that no group may see."""
    if table.name == SESSIONS.name:
        return f"t.\"group\" = '{group}'"
    if table.name == STREAMS.name:
        return f"t.id {_IN_SCOPE}"
    if table.group_column is not None:
        return f"t.{table.group_column} = '{group}'"
    condition = _CONDITIONS.get(table.owner)
    return None if condition is None else condition.replace("{group}", group)
