"""Erasing sessions: what is held of them, who shares it, and how no byte of it stays."""

import os
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

import apsw

from recollect.model.files import replace_file
from recollect.model.home import RESCUED_NAME, SPOOL_NAME
from recollect.model.kinds import SessionKey, name_half
from recollect.store.payloads import packs
from recollect.store.payloads.writer import tidy_packs
from recollect.store.sqlite.database import Database
from recollect.store.sqlite.room import delete_in_steps, give_back_pages, is_short
from recollect.store.sqlite.snapshot import keep_copy, rewrite
from recollect.store.tables import declared
from recollect.store.tables.events import CONTENT
from recollect.store.tables.fulltext import Fulltext
from recollect.store.tables.table import (
    BY_NATIVE_ID,
    BY_SOURCE,
    BY_STREAM,
    CACHE,
    MEMORY,
    drop_rows,
    json_keys,
    json_list,
)
from recollect.store.tables.tombstones import HIDDEN, event_key, hidden_path, is_line, line_name, pack, unpack

# Folders of files that name sessions, in whatever words their writers chose.
_FOLDERS = (SPOOL_NAME, RESCUED_NAME, "logs")
_SCRUB_DUE = "scrub.due"

_STREAM = "SELECT id FROM streams WHERE agent = ? AND native_id = ?"
_SOURCES = f"SELECT source FROM stream_sources WHERE {BY_STREAM} UNION SELECT source FROM infos WHERE {BY_NATIVE_ID}"
_CHOSEN = "IN (SELECT value FROM json_each(?))"
_COPIED = "copy_of IS NOT NULL AND substr(copy_of, 1, 8) = ?"  # an event_uid begins with a hash of its session's key
_EVICTED_KEYS = "SELECT event_keys FROM evictions WHERE agent = ? AND native_session_id = ?"
_SESSIONS_AT_ONCE = 50  # others wait to write meanwhile


class Erasure:
    """The sessions of a store as things that can be erased."""

    def __init__(self, cache: Database, memory: Database, folder: Path) -> None:
        self._cache = cache
        self._memory = memory
        self._folder = folder
        # Where a session may be known by its key.
        self._known = (
            (cache, "streams", "native_id"),
            (cache, "infos", "native_id"),
            (memory, "sessions", "native_session_id"),
        )

    def size(self, key: SessionKey) -> tuple[int, int]:
        """Count the events that are held of a session, and the bytes of their payloads."""
        sql = f"SELECT count(*), coalesce(sum(payload_bytes), 0) FROM events WHERE {BY_STREAM}"
        count, size = self._cache.rows(sql, key)[0]
        return count, size

    def files(self, key: SessionKey) -> list[str]:
        """Return which of the agent's files have to do with a session."""
        return self._cache.column(f"SELECT path FROM sources WHERE id IN ({_SOURCES}) ORDER BY path", key)

    def keys(self) -> list[SessionKey]:
        """Every session that anything is held of."""
        return sorted(self._select("1", ()))

    def existing(self, keys: Collection[SessionKey]) -> set[SessionKey]:
        """Return those of the sessions that something is still held of."""
        condition = "(agent, {native_id}) IN (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
        return self._select(condition, (json_keys(keys),))

    def named_after(self, key: SessionKey) -> set[SessionKey]:
        """Sub-agents that have their session's id in their own."""
        bounds = (key.agent, f"{key.native_id}/", f"{key.native_id}0")  # "0" comes just after "/"
        return self._select("agent = ? AND {native_id} > ? AND {native_id} < ?", bounds)

    def _select(self, condition: str, bindings: Sequence[Any]) -> set[SessionKey]:
        keys: set[SessionKey] = set()
        for database, table, column in self._known:
            where = condition.format(native_id=column)
            rows = database.rows(f"SELECT DISTINCT agent, {column} FROM {table} WHERE {where}", bindings)
            keys |= {SessionKey(*row) for row in rows}
        return keys

    def heirs(self, forgotten: Collection[SessionKey]) -> set[SessionKey]:
        """Sessions that name one of these as their parent or root, and are none of them."""
        if not forgotten:
            return set()
        rows = self._cache.rows(
            "WITH gone (agent, native_id) AS MATERIALIZED (SELECT value ->> 0, value ->> 1 FROM json_each(?))"
            " SELECT i.agent, i.native_id FROM gone g JOIN infos i"
            " ON i.agent = g.agent AND i.parent_native_id = g.native_id UNION"
            " SELECT i.agent, i.native_id FROM gone g JOIN infos i"
            " ON i.agent = g.agent AND i.root_native_id = g.native_id",
            (json_keys(forgotten),),
        )
        return {SessionKey(*row) for row in rows} - set(forgotten)

    def empty_forks(self, key: SessionKey) -> set[SessionKey]:
        """Forks of a session that were never continued: all they hold is what they took over."""
        return set(
            self._cache.read(
                SessionKey,
                "SELECT DISTINCT agent, native_id FROM infos i WHERE agent = ? AND base_native_id = ? AND NOT EXISTS"
                " (SELECT 1 FROM streams s JOIN events e ON e.stream = s.id"
                " WHERE s.agent = i.agent AND s.native_id = i.native_id)",
                key,
            )
        )

    def sharing(self, keys: Collection[SessionKey]) -> dict[SessionKey, int]:
        """Other sessions that hold records of these, and how many: forks, resumed copies, originals."""
        streams = [stream for key in keys for (stream,) in self._cache.rows(_STREAM, key)]
        counts = self._counts(
            "SELECT s.agent, s.native_id, count(DISTINCT o.id) FROM events e"
            " JOIN events o ON o.copy_key = e.copy_key AND o.stream <> e.stream"
            f" AND {CONTENT.format('o.')} = {CONTENT.format('e.')}"
            " AND coalesce(o.base_kind, o.kind) = coalesce(e.base_kind, e.kind)"
            " JOIN streams s ON s.id = o.stream"
            " WHERE e.copy_key IS NOT NULL AND e.stream IN (SELECT value FROM json_each(?1))"
            " AND o.stream NOT IN (SELECT value FROM json_each(?1)) GROUP BY s.id ORDER BY 1, 2",
            (json_list(streams),),
        )
        for key in keys:
            if self._memory.value(_EVICTED_KEYS, key) is not None:  # its records were marked as copied from it
                counts |= self._counts(
                    "SELECT s.agent, s.native_id, count(*) FROM events e JOIN streams s ON s.id = e.stream"
                    f" WHERE {_COPIED} AND s.agent = ? GROUP BY s.id",
                    (name_half(*key), key.agent),
                )
        return {other: count for other, count in counts.items() if other not in keys}

    def _counts(self, sql: str, bindings: Sequence[Any]) -> Counter[SessionKey]:
        rows = self._cache.rows(sql, bindings)
        return Counter({SessionKey(agent, native_id): count for agent, native_id, count in rows})

    def event_keys(self, key: SessionKey, but_for: Iterable[SessionKey] = ()) -> bytes:
        """Hashes that recognise copies of a session's records, without those that `but_for` hold too."""
        shared = {hashed for other in but_for if other.agent == key.agent for hashed in self._event_keys(other)}
        return pack(self._event_keys(key) - shared)

    def _event_keys(self, key: SessionKey) -> set[bytes]:
        """Hash its events; add the hashes it was evicted with."""
        evicted = self._memory.value(_EVICTED_KEYS, key) or b""
        rows = self._cache.iter_rows(
            f"SELECT copy_key, coalesce(base_kind, kind), {CONTENT.format('')} FROM events"
            f" WHERE {BY_STREAM} AND copy_key IS NOT NULL",
            key,
        )
        return unpack(evicted) | {event_key(*row) for row in rows}

    def drop(self, keys: Collection[SessionKey]) -> None:
        """Delete all that is held of these sessions. Safe to run again after it was stopped.

        Rows go before packs, so that nobody who reads meanwhile meets a row without its payload.
        """
        chosen = sorted(keys)
        for start in range(0, len(chosen), _SESSIONS_AT_ONCE):
            chunk = chosen[start : start + _SESSIONS_AT_ONCE]
            if is_short(self._folder):
                self._drop_bulk(chunk)
            with self._cache.transaction() as connection:
                _drop_from_cache(connection, chunk)
            for agent, native_id in chunk:
                packs.drop_own_packs(self._folder, agent, native_id)
            with self._memory.transaction() as connection:
                drop_rows(connection, [table for table in declared(MEMORY) if table.is_of_session], chunk)
        self._drop_files(chosen)

    def _drop_bulk(self, keys: Sequence[SessionKey]) -> None:
        """Delete what takes most room, packs first, so that the rest has room: their tombstones are on the disk."""
        for agent, native_id in keys:
            packs.drop_own_packs(self._folder, agent, native_id)
        with self._cache.transaction() as connection:
            streams = [stream for key in keys for (stream,) in connection.execute(_STREAM, key)]
            _release_copies(connection, streams, keys)
        for database in (self._cache, self._memory):
            for table in declared(database.path.name):
                for key in keys if table.is_bulky else ():
                    delete_in_steps(database, table.delete_some, key)

    def _drop_files(self, keys: Iterable[SessionKey]) -> None:
        """Delete files that name one of the sessions, in their own name or in what they hold."""
        names = [key.native_id.encode() for key in keys]
        for path in (path for folder in _FOLDERS for path in sorted((self._folder / folder).rglob("*"))):
            if path.is_file() and any(name in os.fsencode(path) or name in path.read_bytes() for name in names):
                path.unlink()

    def leave_no_word(self, *, of_all: bool = False) -> None:
        """Remove the words of deleted events from the index and packs, and give back the room they took.

        `of_all` also removes those of events that left the index before.
        """
        Fulltext(self._cache).leave_no_byte(of_all=of_all)
        give_back_pages(self._cache)
        tidy_packs(self._cache, self._folder)

    def scrub(self) -> None:
        """Leave no byte of deleted rows in either database: words stay in an index until it is written anew."""
        self.leave_no_word(of_all=True)
        with self._memory.transaction() as connection:
            for table in declared(MEMORY):
                if table.tokenizer is not None:
                    connection.execute(f"INSERT INTO {table.name} ({table.name}) VALUES ('optimize')")
        give_back_pages(self._memory)
        rewrite(self._memory)
        rewrite(self._cache)
        keep_copy(self._memory, is_due=True)
        self.owe_no_scrub()

    def owe_scrub(self) -> None:
        """Note, before rows are replaced, that a scrub must follow: if this one is stopped, the next sweep does it."""
        replace_file(self._folder / _SCRUB_DUE, b"")

    def owe_no_scrub(self) -> None:
        (self._folder / _SCRUB_DUE).unlink(missing_ok=True)

    def scrub_if_due(self) -> None:
        if (self._folder / _SCRUB_DUE).exists():
            self.scrub()


def _drop_from_cache(connection: apsw.Connection, keys: Sequence[SessionKey]) -> None:
    streams = [stream for key in keys for (stream,) in connection.execute(_STREAM, key)]
    sources = sorted({source for key in keys for (source,) in connection.execute(_SOURCES, key)})
    _release_copies(connection, streams, keys)
    _touch_relatives(connection, keys)
    drop_rows(connection, [table for table in declared(CACHE) if table.is_of_session], keys)
    _scrub_sources(connection, sources)
    _blank_lines(connection, {key for key in keys if is_line(key)})


def _blank_lines(connection: apsw.Connection, keys: set[SessionKey]) -> None:
    """Keep nothing of forgotten lines but their places."""
    if not keys:
        return
    held = connection.execute(
        "SELECT p.id, s.agent, p.raw FROM problems p JOIN sources s ON s.id = p.source WHERE p.raw <> x''"
    )
    ids = [(number,) for number, agent, raw in held if (agent, line_name(raw)) in keys]
    connection.executemany("UPDATE problems SET raw = x'' WHERE id = ?", ids)


def _release_copies(connection: apsw.Connection, streams: list[int], keys: Sequence[SessionKey]) -> None:
    """Copies of what goes become originals, or somebody else's copies: their sessions are judged anew."""
    halves = [(name_half(*key),) for key in keys]  # an evicted session has no events to compare with
    chosen = [(json_list(streams),)]
    copied = f"copy_of IS NOT NULL AND copy_of IN (SELECT event_uid FROM events WHERE stream {_CHOSEN})"
    for condition, bindings in ((_COPIED, halves), (copied, chosen)):
        touched = f"UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM events WHERE {condition})"
        connection.executemany(touched, bindings)
        connection.executemany(f"UPDATE events SET copy_of = NULL WHERE {condition}", bindings)
    connection.executemany(
        "UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT u.stream FROM usage u WHERE u.is_copy AND u.usage_id IN"
        f" (SELECT usage_id FROM usage WHERE stream {_CHOSEN}))",
        chosen,
    )


def _touch_relatives(connection: apsw.Connection, keys: Sequence[SessionKey]) -> None:
    """A session's cost and title depend on those above and below it."""
    connection.executemany(
        "UPDATE streams SET is_dirty = 1 WHERE agent = ?1 AND native_id IN ("
        " SELECT parent_native_id FROM infos WHERE agent = ?1 AND native_id = ?2 UNION"
        " SELECT root_native_id FROM infos WHERE agent = ?1 AND native_id = ?2 UNION"
        " SELECT native_id FROM infos WHERE agent = ?1 AND parent_native_id = ?2 UNION"
        " SELECT native_id FROM infos WHERE agent = ?1 AND root_native_id = ?2 UNION"
        " SELECT native_id FROM infos WHERE agent = ?1 AND base_native_id = ?2)",
        keys,
    )


def _scrub_sources(connection: apsw.Connection, sources: list[int]) -> None:
    """Files stay known as read, but nothing of their content; one that held no other session loses its path too."""
    chosen = (json_list(sources),)
    tables = [table for table in declared(CACHE) if table.owner == BY_SOURCE]
    for table in tables:
        blank = ", ".join(f"{column.name} = {column.blank}" for column in table.columns if column.blank is not None)
        connection.execute(f"UPDATE {table.name} SET {blank} WHERE source {_CHOSEN}", chosen)
    connection.execute(
        "UPDATE sources SET offset = 0, line = 0, head = '', tail = '', state = '{}',"
        f" failure = iif(failure IS NULL, NULL, 'could not be read') WHERE id {_CHOSEN}",
        chosen,
    )
    alone: list[tuple[int, str]] = list(
        connection.execute(
            f"SELECT id, path FROM sources s WHERE id {_CHOSEN} AND path NOT LIKE '{HIDDEN}%'"
            " AND NOT EXISTS (SELECT 1 FROM stream_sources WHERE source = s.id)"
            " AND NOT EXISTS (SELECT 1 FROM infos WHERE source = s.id)",
            chosen,
        )
    )
    for table in tables:
        connection.executemany(f"DELETE FROM {table.name} WHERE source = ?", [(source,) for source, _ in alone])
    connection.executemany(
        "UPDATE OR REPLACE sources SET path = ? WHERE id = ?", [(hidden_path(path), source) for source, path in alone]
    )
