"""Where a text may be found beside the payloads: every searched column of every table."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property
from typing import NamedTuple

from recollect.kinds import SessionKey
from recollect.store.sqlite.database import Database
from recollect.store.tables import declared
from recollect.store.tables.column import SEARCHED, Role
from recollect.store.tables.table import BY_SOURCE, CACHE
from recollect.store.tables.tombstones import line_name


class UnreadLine(NamedTuple):
    """A line that could not be read, with its bytes."""

    agent: str
    source: int
    path: str
    line: int | None
    raw: bytes

    @property
    def key(self) -> SessionKey:
        """What its tombstone is called."""
        return SessionKey(self.agent, line_name(self.raw))


class Texts:
    """The words in a store's rows."""

    def __init__(self, cache: Database, memory: Database) -> None:
        self._cache = cache
        self._memory = memory

    def of_session(self, key: SessionKey) -> Iterator[str]:
        """All that is held of a session beside its payloads: of its events, row, digest and so on."""
        return self._texts(self._searched, key)

    def ids(self, key: SessionKey) -> Iterator[str]:
        """Ids that its agent gave to it, to its records, calls and responses."""
        yield key.native_id
        yield from self._texts(self._identifiers, key)

    @cached_property
    def _searched(self) -> list[tuple[Database, str]]:
        return list(self._statements(*SEARCHED))

    @cached_property
    def _identifiers(self) -> list[tuple[Database, str]]:
        return list(self._statements(Role.IDENTIFIER))

    def _statements(self, *roles: Role) -> Iterator[tuple[Database, str]]:
        """What selects a session's columns of these roles, table by table."""
        for database in (self._cache, self._memory):
            for table in declared(database.path.name):
                if table.owner is not None and table.is_of_session and (names := table.names(*roles)):
                    columns = f"concat_ws(' ', {', '.join(names)})"
                    yield database, f"SELECT {columns} FROM {table.name} WHERE {table.owner.of_session}"

    def _texts(self, statements: Sequence[tuple[Database, str]], key: SessionKey) -> Iterator[str]:
        for database, sql in statements:
            for (text,) in database.iter_rows(sql, key):
                yield text

    def of_sources(self) -> Iterator[tuple[int, str]]:
        """Paths of the agents' files, and what tables hold of files rather than of sessions; each with its file."""
        yield from self._cache.iter_rows("SELECT id, path FROM sources")
        for table in declared(CACHE):
            for name in table.names(Role.TEXT) if table.owner is BY_SOURCE else ():
                for source, content in self._cache.iter_rows(f"SELECT source, {name} FROM {table.name}"):
                    yield source, content.decode("utf-8", "replace") if isinstance(content, bytes) else content

    def owners(self) -> dict[int, SessionKey | None]:
        """The session that each source is a file of; None for one that holds several unrelated sessions."""
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


def _common_root(keys: Collection[SessionKey]) -> SessionKey | None:
    """The only one of these sessions, or the one whose sub-agents they are."""
    if len(keys) == 1:
        return next(iter(keys))
    roots = {key.root for key in keys}
    return roots.pop() if len(roots) == 1 else None
