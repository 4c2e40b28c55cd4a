"""Where a session's words stand beside its payloads, so that a text can be looked for in all that is held.

What a new part of the store says of sessions gets a line here, as it does in `remains`.
"""

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import NamedTuple

from recollect.store.sqlite import Database
from recollect.store.tombstones import Name, line_name

_NAMED = "agent = ? AND native_session_id = ?"
Texts = tuple[str, ...]  # statements that each yield one column of text

_TEXTS_OF_STREAM = (
    "SELECT concat_ws(' ', summary, metadata, tool, status, model, provider) FROM events WHERE stream = ?",
    "SELECT concat_ws(' ', model, provider) FROM usage WHERE stream = ?",
)
_IDS_OF_STREAM = (
    "SELECT concat_ws(' ', native_id, call_id) FROM events WHERE stream = ?",
    "SELECT usage_id FROM usage WHERE stream = ?",
    "SELECT ledger FROM cost_totals WHERE stream = ?",
)
_TEXTS_OF_NAME = ("SELECT info FROM infos WHERE agent = ? AND native_id = ?",)
_DIGEST = f"digest IN (SELECT id FROM digests WHERE {_NAMED})"
_TEXTS_OF_SESSION = (
    "SELECT concat_ws(' ', title, cwd, git_root, git_remote, git_branch, model, provider, task_ref, metadata)"
    f" FROM sessions WHERE {_NAMED}",
    f"SELECT path FROM session_sources WHERE {_NAMED}",
    f"SELECT concat_ws(' ', line, digest, sealed) FROM digests WHERE {_NAMED}",
    f"SELECT concat_ws(' ', detail, evidence) FROM signals WHERE {_DIGEST}",
    f"SELECT name FROM tool_use WHERE {_DIGEST}",
    f"SELECT name FROM command_use WHERE {_DIGEST}",
    f"SELECT base FROM evictions WHERE {_NAMED}",
)


class UnreadLine(NamedTuple):
    """A line that could not be read, with its bytes."""

    agent: str
    source: int
    path: str
    line: int | None
    raw: bytes

    @property
    def name(self) -> Name:
        """What it is known by when it was forgotten."""
        return self.agent, line_name(self.raw)


class Mentions:
    """What a store says of sessions in its rows."""

    def __init__(self, cache: Database, memory: Database) -> None:
        self._cache = cache
        self._memory = memory

    def texts(self, name: Name) -> Iterator[str]:
        """What is held of a session beside its payloads: of its events, sources, row and digest."""
        yield from self._told(name, _TEXTS_OF_STREAM, _TEXTS_OF_NAME, _TEXTS_OF_SESSION)

    def ids(self, name: Name) -> Iterator[str]:
        """Names that its agent gave to it, to its records, calls and responses."""
        yield name[1]
        yield from self._told(name, _IDS_OF_STREAM, (), ())

    def _told(self, name: Name, of_stream: Texts, of_name: Texts, of_session: Texts) -> Iterator[str]:
        stream = self._cache.value("SELECT id FROM streams WHERE agent = ? AND native_id = ?", name)
        for database, statements, bindings in (
            (self._cache, of_stream, (stream,)),
            (self._cache, of_name, name),
            (self._memory, of_session, name),
        ):
            for sql in statements:
                for (text,) in database.iter_rows(sql, bindings):
                    yield text

    def owners(self) -> dict[int, Name | None]:
        """The session that each source is a file of; None for one that tells of several that are no family."""
        told: dict[int, set[Name]] = defaultdict(set)
        rows = self._cache.iter_rows(
            "SELECT source, agent, native_id FROM infos UNION"
            " SELECT t.source, s.agent, s.native_id FROM stream_sources t JOIN streams s ON s.id = t.stream"
        )
        for source, agent, native_id in rows:
            told[source].add((agent, native_id))
        return {source: _one_of(names) for source, names in told.items()}

    def paths(self) -> Iterator[tuple[int, str]]:
        """Every source with its path."""
        return self._cache.iter_rows("SELECT id, path FROM sources")

    def unread_lines(self) -> Iterator[UnreadLine]:
        """Every line that could not be read and whose bytes are held."""
        rows = self._cache.iter_rows(
            "SELECT s.agent, s.id, s.path, p.line, p.raw FROM problems p JOIN sources s ON s.id = p.source"
            " WHERE p.raw <> x''"
        )
        return (UnreadLine(*row) for row in rows)


def _one_of(names: Collection[Name]) -> Name | None:
    """The only one of these sessions, or the one whose sub-agents they are."""
    if len(names) == 1:
        return next(iter(names))
    roots = {(agent, native_id.partition("/")[0]) for agent, native_id in names}
    return roots.pop() if len(roots) == 1 else None
