"""What the declared columns hold as text: where given words are found, and redacting what is stored already."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from recollect.model.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables import declared
from recollect.store.tables.events import EVENTS
from recollect.store.tables.table import BY_SOURCE, BY_STREAM, CACHE, REDACTED_AS_NAMES, SEARCHED, Role, Table, hash_of
from recollect.store.tables.tombstones import line_name

if TYPE_CHECKING:
    from recollect.redact import KnownValues, Redactor

    Rules = Redactor | KnownValues


class UnreadLine(NamedTuple):
    """A line that could not be read, with its bytes."""

    agent: str
    source: int
    path: str
    line: int | None
    raw: bytes

    @property
    def key(self) -> SessionKey:
        """Return the name of its tombstone."""
        return SessionKey(self.agent, line_name(self.raw))


class Texts:
    """The words in a store's rows."""

    def __init__(self, cache: Database, memory: Database) -> None:
        self._cache = cache
        self._memory = memory
        self._statements: dict[tuple[Role, ...], list[tuple[Database, str]]] = {}  # made once: there are many sessions

    def of_session(self, key: SessionKey) -> Iterator[str]:
        """All that is held of a session beside its payloads: of its events, row, digest and so on."""
        return self._texts(key, *SEARCHED)

    def ids(self, key: SessionKey) -> Iterator[str]:
        """Ids that its agent gave to it, to its records, calls and responses."""
        yield key.native_id
        yield from self._texts(key, Role.IDENTIFIER)

    def _texts(self, key: SessionKey, *roles: Role) -> Iterator[str]:
        if roles not in self._statements:
            databases = (self._cache, self._memory)
            self._statements[roles] = [(base, sql) for base in databases for sql in _statements(base, roles)]
        for database, sql in self._statements[roles]:
            for (text,) in database.iter_rows(sql, key):
                yield text

    def of_sources(self) -> Iterator[tuple[int, str]]:
        """Paths of the agents' files, and what tables hold of files rather than of sessions; each with its file."""
        yield from self._cache.iter_rows("SELECT id, path FROM sources")
        for table in declared(CACHE):
            for name in table.names(Role.TEXT) if table.owner == BY_SOURCE else ():
                for source, content in self._cache.iter_rows(f"SELECT source, {name} FROM {table.name}"):
                    yield source, content.decode("utf-8", "replace") if isinstance(content, bytes) else content

    def owners(self) -> dict[int, SessionKey | None]:
        """Map each source to its session, or to None if it holds several unrelated ones."""
        keys: dict[int, set[SessionKey]] = defaultdict(set)
        rows = self._cache.iter_rows(
            "SELECT source, agent, native_id FROM infos UNION"
            " SELECT t.source, s.agent, s.native_id FROM stream_sources t JOIN streams s ON s.id = t.stream"
        )
        for source, agent, native_id in rows:
            keys[source].add(SessionKey(agent, native_id))
        return {source: _common_root(of_source) for source, of_source in keys.items()}

    def unread_lines(self) -> Iterator[UnreadLine]:
        """Every line that could not be read and whose bytes are held."""
        rows = self._cache.iter_rows(
            "SELECT s.agent, s.id, s.path, p.line, p.raw FROM problems p JOIN sources s ON s.id = p.source"
            " WHERE p.raw <> x''"
        )
        return (UnreadLine(*row) for row in rows)


def _statements(database: Database, roles: tuple[Role, ...]) -> list[str]:
    """Build the statements that select a session's columns of these roles, table by table."""
    return [
        f"SELECT concat_ws(' ', {', '.join(names)}) FROM {table.name} WHERE {table.owner}"
        for table in declared(database.path.name)
        if table.owner is not None and table.is_of_session and (names := table.names(*roles))
    ]


def _common_root(keys: Collection[SessionKey]) -> SessionKey | None:
    """Return the only one of these sessions, or the one whose sub-agents they are."""
    if len(keys) == 1:
        return next(iter(keys))
    roots = {key.root for key in keys}
    return roots.pop() if len(roots) == 1 else None


_ROWS_AT_ONCE = 1000
_UNHELD = "(agent, native_id) NOT IN (SELECT agent, native_id FROM streams)"
_REDACTED = (Role.TEXT, Role.DOCUMENT, *REDACTED_AS_NAMES)


_Change = tuple[tuple[Any, ...], dict[str, Any]]  # the key of a row as it was, and the values that change, by column


class Redaction:
    """The rows of a store as things that rules are applied to. A dry run counts and writes nothing."""

    def __init__(self, cache: Database, memory: Database) -> None:
        self._cache = cache
        self._memory = memory

    def redact_session(
        self, key: SessionKey, rules: "Rules", *, with_memory: bool = False, dry_run: bool = False
    ) -> tuple[set[int], bool]:
        """Apply rules to the rows that cache.db holds of a session, or to all that are held of it.

        Returns which events changed, and if any row did.
        """
        events, has_changed = set[int](), False
        for database in (self._cache, self._memory) if with_memory else (self._cache,):
            for table in declared(database.path.name):
                if table.owner is not None and table.is_of_session:
                    changes = _redact(database, table, rules, table.owner, key, dry_run=dry_run)
                    has_changed |= bool(changes)
                    events |= {row[0] for row, _ in changes} if table is EVENTS else set()
        return events, has_changed

    def redact_others(self, redactor: "Redactor", *, dry_run: bool) -> bool:
        """Apply rules to all other rows: of memory.db, of files, of sessions without events; say if any changed."""
        has_changed = self._redact_paths(redactor, dry_run=dry_run)
        for database in (self._cache, self._memory):
            for table in declared(database.path.name):
                if table.owner == BY_STREAM:
                    continue
                is_done = table.is_of_session and database is self._cache
                changes = _redact(database, table, redactor, _UNHELD if is_done else "1", (), dry_run=dry_run)
                has_changed |= bool(changes)
        return has_changed

    def _redact_paths(self, redactor: "Redactor", *, dry_run: bool) -> bool:
        """Change the path of a file in every table alike."""
        columns = [
            (database, table.name, name)
            for database in (self._cache, self._memory)
            for table in declared(database.path.name)
            for name in table.names(Role.PATH)
        ]
        paths = {path for database, table, name in columns for (path,) in database.rows(f"SELECT {name} FROM {table}")}
        renamed = _renamed(redactor, sorted(filter(None, paths)))
        for database, table, name in columns if renamed and not dry_run else ():
            with database.transaction() as connection:
                if table == "sources":
                    _rename_sources(connection, renamed)
                else:
                    sql = f"UPDATE OR REPLACE {table} SET {name} = ? WHERE {name} = ?"
                    connection.executemany(sql, [(new, old) for old, new in renamed.items()])
        return bool(renamed)


def _redact(
    database: Database, table: Table, rules: "Rules", condition: str, bindings: Sequence[Any], *, dry_run: bool
) -> list[_Change]:
    """Gather the rows that change first: SQLite does not like tables that change while they are read."""
    columns = table.names(*_REDACTED)
    if not columns:
        return []
    listed = ", ".join(f'"{name}"' for name in (*table.row_key, *columns))
    rows = database.iter_rows(f"SELECT {listed} FROM {table.name} WHERE {condition}", bindings)
    changes: list[_Change] = []
    while chunk := list(islice(rows, _ROWS_AT_ONCE)):
        changes += _changed_rows(table, rules, columns, chunk)
    if changes and not dry_run:
        with database.transaction() as connection:
            for key, values in changes:
                (_add_up if table.sums else _update)(connection, table, key, values)
    return changes


def _changed_rows(
    table: Table, redactor: "Rules", columns: tuple[str, ...], rows: Sequence[tuple[Any, ...]]
) -> Iterator[_Change]:
    size = len(table.row_key)
    changes: dict[int, dict[str, Any]] = {}
    for index, name in enumerate(columns, start=size):
        held = [(number, row[index]) for number, row in enumerate(rows) if row[index] is not None]
        for number, value in redacted(redactor, table.role(name), [value for _, value in held]):
            changes.setdefault(held[number][0], {})[name] = value
    for number, values in changes.items():
        yield rows[number][:size], values | hashes_of(table, values)


def redacted(redactor: "Rules", role: Role, values: Sequence[Any]) -> Iterator[tuple[int, Any]]:
    """Yield the values that change, with their index."""
    if role is Role.DOCUMENT:
        documents = redactor.payloads([value.encode() for value in values])
        yield from ((number, document.decode()) for number, document in documents.items())
    elif role is Role.TEXT:
        texts = [value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else value for value in values]
        for number, text in redactor.texts(texts).items():
            yield number, text.encode("utf-8", "surrogateescape") if isinstance(values[number], bytes) else text
    else:
        renamed = _renamed(redactor, sorted(set(values)))
        yield from ((number, renamed[value]) for number, value in enumerate(values) if value in renamed)


def _renamed(redactor: "Rules", names: Sequence[str]) -> dict[str, str]:
    """Map the names that change."""
    suspects = [names[number] for number in redactor.suspects(names)]
    return {name: new for name in suspects if (new := redactor.functional(name)) != name}


def hashes_of(table: Table, values: dict[str, Any]) -> dict[str, bytes]:
    """Compute the `hash_of` columns of a row."""
    hashed = ((column.name, values.get(column.hash_of)) for column in table.columns if column.hash_of)
    return {name: hash_of(content.encode()) for name, content in hashed if content is not None}


def _update(connection: apsw.Connection, table: Table, key: tuple[Any, ...], values: dict[str, Any]) -> None:
    # An id with a secret in it may be stored beside the same one that was redacted when it came.
    sets, where = (_assigned(values, ", "), _assigned(table.row_key, " AND "))
    sql = f"UPDATE OR REPLACE {table.name} SET {sets} WHERE {where}"
    connection.execute(sql, (*values.values(), *key))
    if derived := ", ".join(f"{column.name} = {column.derived}" for column in table.columns if column.derived):
        connection.execute(f"UPDATE {table.name} SET {derived} WHERE {where}", key)


def _add_up(connection: apsw.Connection, table: Table, key: tuple[Any, ...], values: dict[str, Any]) -> None:
    """Two names may have become the same: what was counted under each is added up."""
    where, names = _assigned(table.row_key, " AND "), [column.name for column in table.columns]
    row = dict(zip(names, connection.execute(f"SELECT * FROM {table.name} WHERE {where}", key).get, strict=True))
    connection.execute(f"DELETE FROM {table.name} WHERE {where}", key)
    connection.execute(
        f"INSERT INTO {table.name} VALUES ({', '.join('?' * len(names))}) ON CONFLICT DO UPDATE SET {table.adding}",
        list((row | values).values()),
    )


def _assigned(names: Iterable[str], separator: str) -> str:
    return separator.join(f'"{name}" = ?' for name in names)


def _rename_sources(connection: apsw.Connection, renamed: dict[str, str]) -> None:
    """A file that is known by its new path too is one source, which takes over what is linked to the other."""
    sql = (
        "SELECT o.id, n.id FROM sources o LEFT JOIN sources n ON n.host = o.host AND n.agent = o.agent AND n.path = ?"
        " WHERE o.path = ?"
    )
    linked = [table.name for table in declared(CACHE) if any(column.name == "source" for column in table.columns)]
    for old, new in renamed.items():
        for source, known in list(connection.execute(sql, (new, old))):
            for table in linked if known is not None else ():
                connection.execute(f"UPDATE OR IGNORE {table} SET source = ? WHERE source = ?", (known, source))
                connection.execute(f"DELETE FROM {table} WHERE source = ?", (source,))
            if known is not None:
                connection.execute("DELETE FROM sources WHERE id = ?", (source,))
            connection.execute("UPDATE sources SET path = ? WHERE id = ?", (new, source))
