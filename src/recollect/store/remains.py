"""All that a store holds of a session, and how it goes.

What a new part of the store keeps about sessions gets a line in one of the lists here: this is the one place
that must know them all.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.schema import name_half
from recollect.store import packs
from recollect.store.copies import SET_ASIDE, UNFINISHED, Copy
from recollect.store.digests import drop_digests, leave_no_byte
from recollect.store.durable import replace_file
from recollect.store.fulltext import Fulltext
from recollect.store.leftovers import left_beside
from recollect.store.rewriting import rewrite
from recollect.store.sources import path_key
from recollect.store.sqlite import Database
from recollect.store.tombstones import HIDDEN, KEY_BYTES, Name, event_key, hidden_path, is_line, line_name

# Tables of cache.db whose rows belong to a stream, and those that know a session by its ids.
_BY_STREAM = ("events", "frames", "usage", "cost_totals", "stream_sources", "fulltext_marks", "evicted_streams")
_BY_NATIVE_ID = ("infos", "streams")
# Tables of memory.db that know a session by its ids.
_IN_MEMORY = ("sessions", "session_sources", "exclusions", "evictions", "retention_events")
# Folders of small files that name a session, in whatever words their writers chose.
_FOLDERS = ("spool", "logs")

# Folders that a repair and a restore move the store's files into.
_ASIDE = ("damaged-*", "before-restore-*")

_SCRUB_DUE = "scrub.due"

# An event_uid begins with what is made from its session's name.
_COPIED = "copy_of IS NOT NULL AND substr(copy_of, 1, 8) = ?"
_NAMED = "agent = ? AND native_session_id = ?"
_AT_ONCE = 50  # others wait to write meanwhile


class Held(NamedTuple):
    """How much is held of a session, and from which of the agent's files."""

    events: int
    payload_bytes: int
    files: tuple[str, ...]


class Remains:
    """The sessions of a store as things that can be removed."""

    def __init__(self, cache: Database, memory: Database, folder: Path) -> None:
        self._cache = cache
        self._memory = memory
        self._folder = folder

    def held(self, name: Name) -> Held:
        stream = self._stream(name)
        count, size = self._cache.rows(
            "SELECT count(*), coalesce(sum(payload_bytes), 0) FROM events WHERE stream = ?", (stream,)
        )[0]
        rows = self._cache.rows(
            "SELECT path FROM sources WHERE id IN (SELECT source FROM stream_sources WHERE stream = ?"
            " UNION SELECT source FROM infos WHERE agent = ? AND native_id = ?) ORDER BY path",
            (stream, *name),
        )
        return Held(count, size, tuple(path for (path,) in rows))

    def _stream(self, name: Name) -> int | None:
        found = self._cache.value("SELECT id FROM streams WHERE agent = ? AND native_id = ?", name)
        return None if found is None else int(found)

    def named_after(self, name: Name) -> set[Name]:
        """Sub-agents that have their session's id in their own."""
        agent, native_id = name
        found: set[Name] = set()
        for database, table, column in (
            (self._cache, "streams", "native_id"),
            (self._cache, "infos", "native_id"),
            (self._memory, "sessions", "native_session_id"),
        ):
            sql = f"SELECT DISTINCT {column} FROM {table} WHERE agent = ? AND {column} > ? AND {column} < ?"
            rows = database.rows(sql, (agent, f"{native_id}/", f"{native_id}0"))  # "0" comes just after "/"
            found |= {(agent, below) for (below,) in rows}
        return found

    def empty_forks(self, name: Name) -> set[Name]:
        """Forks of a session that were never gone on with: there is nothing of them but what they took over."""
        rows = self._cache.rows(
            "SELECT DISTINCT agent, native_id FROM infos i WHERE agent = ? AND base_native_id = ? AND NOT EXISTS"
            " (SELECT 1 FROM streams s JOIN events e ON e.stream = s.id"
            " WHERE s.agent = i.agent AND s.native_id = i.native_id)",
            name,
        )
        return {(agent, native_id) for agent, native_id in rows}

    def sharing(self, names: Collection[Name]) -> dict[Name, int]:
        """Other sessions that hold records of these, and how many: forks, resumed copies, originals."""
        found = self._sharing_events(names)
        for name in names:
            for other, count in self._sharing_with_evicted(name).items():
                if other not in names:
                    found[other] = max(count, found.get(other, 0))
        return found

    def _sharing_with_evicted(self, name: Name) -> dict[Name, int]:
        """Sessions with records of one whose raw detail was dropped: they were marked as its copies."""
        if not self._memory.value(f"SELECT 1 FROM evictions WHERE {_NAMED}", name):
            return {}
        rows = self._cache.rows(
            "SELECT s.agent, s.native_id, count(*) FROM events e JOIN streams s ON s.id = e.stream"
            f" WHERE {_COPIED} AND s.agent = ? GROUP BY s.id",
            (name_half(*name), name[0]),
        )
        return {(agent, native_id): count for agent, native_id, count in rows}

    def _sharing_events(self, names: Collection[Name]) -> dict[Name, int]:
        chosen = self._streams(names)
        rows = self._cache.rows(
            "SELECT s.agent, s.native_id, count(DISTINCT o.id) FROM events e"
            " JOIN events o ON o.copy_key = e.copy_key AND o.stream <> e.stream AND o.summary = e.summary"
            " AND coalesce(o.base_kind, o.kind) = coalesce(e.base_kind, e.kind)"
            " JOIN streams s ON s.id = o.stream"
            " WHERE e.copy_key IS NOT NULL AND e.stream IN (SELECT value FROM json_each(?1))"
            " AND o.stream NOT IN (SELECT value FROM json_each(?1)) GROUP BY s.id ORDER BY 1, 2",
            (_json(chosen),),
        )
        return {(agent, native_id): count for agent, native_id, count in rows}

    def event_keys(self, name: Name, but_for: Iterable[Name] = ()) -> bytes:
        """Hashes by which copies of a session's records are recognised, but for what those named hold too."""
        shared = {key for other in but_for if other[0] == name[0] for key in self._keys(other)}
        return b"".join(sorted(self._keys(name) - shared))

    def _keys(self, name: Name) -> set[bytes]:
        """Those of its events, and those it was evicted with."""
        evicted = self._memory.value(f"SELECT event_keys FROM evictions WHERE {_NAMED}", name) or b""
        keys = {evicted[start : start + KEY_BYTES] for start in range(0, len(evicted), KEY_BYTES)}
        rows = self._cache.iter_rows(
            "SELECT copy_key, coalesce(base_kind, kind), summary FROM events WHERE stream = ? AND copy_key IS NOT NULL",
            (self._stream(name),),
        )
        return keys | {event_key(*row) for row in rows}

    def names(self) -> list[Name]:
        """Every session that anything is held of."""
        rows = self._cache.rows("SELECT agent, native_id FROM streams UNION SELECT agent, native_id FROM infos")
        more = self._memory.rows("SELECT agent, native_session_id FROM sessions")
        return sorted({(agent, native_id) for agent, native_id in (*rows, *more)})

    def copies(self) -> list[Copy]:
        """Backups and exports that were made of this store, and what was ever set aside in it, noted or not."""
        noted: list[Copy] = []
        if self._memory.value("SELECT 1 FROM sqlite_schema WHERE name = 'copies'") is not None:
            rows = self._memory.rows("SELECT kind, path, made_ms FROM copies ORDER BY made_ms")
            noted = [Copy(*row) for row in rows]
        known = {copy.path for copy in noted}
        aside = [copy for copy in self._set_aside() if copy.path not in known]
        return [*noted, *aside, *(_found(UNFINISHED, left) for copy in noted for left in left_beside(Path(copy.path)))]

    def _set_aside(self) -> Iterator[Copy]:
        for pattern in _ASIDE:
            for path in sorted(self._folder.absolute().glob(pattern)):
                yield _found(SET_ASIDE, path)

    def existing(self, names: Collection[Name]) -> set[Name]:
        """Those of the sessions that something is still held of."""
        wanted = orjson.dumps(sorted(names)).decode()
        found: set[Name] = set()
        for database, table, column in (
            (self._cache, "streams", "native_id"),
            (self._cache, "infos", "native_id"),
            (self._memory, "sessions", "native_session_id"),
        ):
            rows = database.rows(
                f"SELECT DISTINCT agent, {column} FROM {table} WHERE (agent, {column}) IN"
                " (SELECT value ->> 0, value ->> 1 FROM json_each(?))",
                (wanted,),
            )
            found |= {(agent, native_id) for agent, native_id in rows}
        return found

    def drop(self, names: Collection[Name]) -> None:
        """Delete all that is held of these sessions. Half done, it can be done again.

        Rows go before packs, so that whoever reads meanwhile never meets a row without its payload.
        """
        chosen = sorted(names)
        for start in range(0, len(chosen), _AT_ONCE):
            some = chosen[start : start + _AT_ONCE]
            with self._cache.transaction() as connection:
                _drop_from_cache(connection, some)
            for agent, native_id in some:
                packs.drop_all(self._folder, agent, native_id)
            with self._memory.transaction() as connection:
                drop_digests(connection, some)
                for table in _IN_MEMORY:
                    sql = f"DELETE FROM {table} WHERE agent = ? AND native_session_id = ?"
                    connection.executemany(sql, some)
        self._drop_files(chosen)

    def _drop_files(self, names: Iterable[Name]) -> None:
        """Delete small files that name one of the sessions."""
        marks = [native_id.encode() for _, native_id in names]
        for folder in _FOLDERS:
            for path in sorted((self._folder / folder).rglob("*")):
                if path.is_file() and any(mark in path.read_bytes() for mark in marks):
                    path.unlink()

    def scrub(self) -> None:
        """Leave no byte of deleted rows in either database: words stay in an index until it is written anew."""
        Fulltext(self._cache).leave_no_byte()
        leave_no_byte(self._memory)
        rewrite(self._cache)
        rewrite(self._memory)
        self.owe_no_scrub()

    def owe_scrub(self) -> None:
        """Note, before rows are replaced, that a scrub must follow: if this is stopped, the next one does it."""
        replace_file(self._folder / _SCRUB_DUE, b"")

    def owe_no_scrub(self) -> None:
        (self._folder / _SCRUB_DUE).unlink(missing_ok=True)

    def scrub_if_due(self) -> None:
        if (self._folder / _SCRUB_DUE).exists():
            self.scrub()

    def _streams(self, names: Iterable[Name]) -> list[int]:
        return [stream for name in names if (stream := self._stream(name)) is not None]


def _found(kind: str, path: Path) -> Copy:
    return Copy(kind, path_key(path), path.lstat().st_mtime_ns // 1_000_000)


def _drop_from_cache(connection: apsw.Connection, names: Sequence[Name]) -> None:
    streams = [row[0] for name in names for row in connection.execute(_FIND_STREAM, name)]
    sources = _sources_of(connection, streams, names)
    _release_copies(connection, streams, names)
    _touch_relatives(connection, names)
    chosen = _json(streams)
    for table in _BY_STREAM:
        connection.execute(f"DELETE FROM {table} WHERE stream IN (SELECT value FROM json_each(?))", (chosen,))
    for table in _BY_NATIVE_ID:
        connection.executemany(f"DELETE FROM {table} WHERE agent = ? AND native_id = ?", names)
    _scrub_sources(connection, sources)
    _blank_lines(connection, {name for name in names if is_line(name)})


def _blank_lines(connection: apsw.Connection, names: set[Name]) -> None:
    """Keep of forgotten lines only that they are there."""
    if not names:
        return
    held = connection.execute(
        "SELECT p.id, s.agent, p.raw FROM problems p JOIN sources s ON s.id = p.source WHERE p.raw <> x''"
    )
    ids = [(number,) for number, agent, raw in held if (agent, line_name(raw)) in names]
    connection.executemany("UPDATE problems SET raw = x'' WHERE id = ?", ids)


_FIND_STREAM = "SELECT id FROM streams WHERE agent = ? AND native_id = ?"


def _sources_of(connection: apsw.Connection, streams: list[int], names: Sequence[Name]) -> list[int]:
    sql = "SELECT source FROM stream_sources WHERE stream IN (SELECT value FROM json_each(?))"
    found = {source for (source,) in connection.execute(sql, (_json(streams),))}
    for name in names:
        found |= {s for (s,) in connection.execute("SELECT source FROM infos WHERE agent = ? AND native_id = ?", name)}
    return sorted(found)


def _release_copies(connection: apsw.Connection, streams: list[int], names: Sequence[Name]) -> None:
    """Copies of what goes are originals now, or somebody else's copies: their sessions are judged anew."""
    halves = [(name_half(*name),) for name in names]  # of one that was evicted there are no events to compare with
    marked = f"UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM events WHERE {_COPIED})"
    connection.executemany(marked, halves)
    connection.executemany(f"UPDATE events SET copy_of = NULL WHERE {_COPIED}", halves)
    copies = (
        "copy_of IS NOT NULL AND copy_of IN"
        " (SELECT event_uid FROM events WHERE stream IN (SELECT value FROM json_each(?)))"
    )
    chosen = (_json(streams),)
    connection.execute(
        f"UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM events WHERE {copies})", chosen
    )
    connection.execute(f"UPDATE events SET copy_of = NULL WHERE {copies}", chosen)
    connection.execute(
        "UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT u.stream FROM usage u WHERE u.is_copy AND u.usage_id IN"
        " (SELECT usage_id FROM usage WHERE stream IN (SELECT value FROM json_each(?))))",
        chosen,
    )


def _touch_relatives(connection: apsw.Connection, names: Sequence[Name]) -> None:
    """What a session costs, and what it is called, depends on those above and below it."""
    for agent, native_id in names:
        connection.execute(
            "UPDATE streams SET is_dirty = 1 WHERE agent = ?1 AND native_id IN ("
            " SELECT parent_native_id FROM infos WHERE agent = ?1 AND native_id = ?2 UNION"
            " SELECT root_native_id FROM infos WHERE agent = ?1 AND native_id = ?2 UNION"
            " SELECT native_id FROM infos WHERE agent = ?1 AND parent_native_id = ?2 UNION"
            " SELECT native_id FROM infos WHERE agent = ?1 AND root_native_id = ?2 UNION"
            " SELECT native_id FROM infos WHERE agent = ?1 AND base_native_id = ?2)",
            (agent, native_id),
        )


def _scrub_sources(connection: apsw.Connection, sources: list[int]) -> None:
    """Files stay known as read, but not what they said; one that told of nobody else loses its path too."""
    chosen = _json(sources)
    touched = "IN (SELECT value FROM json_each(?))"
    connection.execute(f"UPDATE problems SET raw = x'' WHERE source {touched}", (chosen,))
    connection.execute(
        "UPDATE sources SET offset = 0, line = 0, head = '', tail = '', state = '{}',"
        f" failure = iif(failure IS NULL, NULL, 'could not be read') WHERE id {touched}",
        (chosen,),
    )
    alone: list[tuple[int, str]] = list(
        connection.execute(
            f"SELECT id, path FROM sources s WHERE id {touched} AND path NOT LIKE '{HIDDEN}%'"
            " AND NOT EXISTS (SELECT 1 FROM stream_sources WHERE source = s.id)"
            " AND NOT EXISTS (SELECT 1 FROM infos WHERE source = s.id)",
            (chosen,),
        )
    )
    connection.executemany("DELETE FROM problems WHERE source = ?", [(source,) for source, _ in alone])
    connection.executemany(
        "UPDATE OR REPLACE sources SET path = ? WHERE id = ?", [(hidden_path(path), source) for source, path in alone]
    )


def _json(values: Iterable[Any]) -> str:
    return orjson.dumps(sorted(values)).decode()
