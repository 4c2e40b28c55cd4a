"""Texts of the store read and written again, as when newer rules of redaction are applied to what is held.

A session's payloads go into a new pack beside the old one, and the rows change over in one transaction. The old
pack is unlinked only after that transaction is on the disk, so that at every moment one of them is whole and known.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from recollect.store import packs
from recollect.store.batch import hash_payload
from recollect.store.intake import INLINE_BYTES
from recollect.store.packs import FRAME_BYTES, Frame, compress
from recollect.store.sqlite import Database

# Texts of an event: of the first two any part may be a secret, the others are names and ids.
EVENT_TEXTS = ("summary", "metadata")
EVENT_NAMES = ("lane", "native_id", "role", "tool", "call_id", "status", "model", "provider", "content_type")
SESSION_TEXTS = ("title", "instructions", "metadata")
SESSION_NAMES = ("repo", "domain", "cwd", "git_root", "git_remote", "git_branch", "model", "provider", "task_ref")
# Stands for the version of the rules in a session whose old text is not yet gone from every byte.
UNFINISHED = "unfinished"
_USAGE_TEXTS = (("usage", "model"), ("usage", "provider"), ("usage", "usage_id"), ("cost_totals", "ledger"))
_INFO_LINKS = ("parent_native_id", "root_native_id", "base_native_id")
_PATHS_IN_MEMORY = ("session_sources", "exclusions")


class HeldStream(NamedTuple):
    """A session's stream, and the rules it was redacted with; None if it never was."""

    id: int
    agent: str
    native_id: str
    next_seq: int
    stream_bytes: int
    pack_generation: int
    pack_bytes: int
    redacted_with: str | None
    needs_rescan: int  # whatever rules it is said to have gone through


class HeldEvent(NamedTuple):
    id: int
    start: int
    bytes: int
    texts: tuple[str | None, ...]
    names: tuple[str | None, ...]


class SideText(NamedTuple):
    """A text beside the events: in which table, column and row it stands."""

    table: str
    column: str
    row: tuple[Any, ...]
    text: str | bytes


@dataclass(slots=True)
class NewStream:
    """What a session's rows are to become. `payloads` is None where the pack and its frames stay as they are."""

    texts: list[tuple[Any, ...]] = field(default_factory=list)  # EVENT_TEXTS, EVENT_NAMES, id
    payloads: "NewPayloads | None" = None
    side_texts: list[SideText] = field(default_factory=list)


class NewPayloads:
    """A session's payloads one after another, compressed as they come."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.places: list[tuple[int, int, bytes, int]] = []  # start, bytes, hash, event
        self.size = 0
        self._waiting = bytearray()

    def add(self, event: int, payload: bytes) -> None:
        self.places.append((self.size, len(payload), hash_payload(payload), event))
        self.size += len(payload)
        self._waiting += payload
        if len(self._waiting) >= FRAME_BYTES:
            self.finish()

    def finish(self) -> None:
        self.frames += compress(bytes(self._waiting))
        self._waiting.clear()


class Rewrites:
    """The write side of applying rules to a whole store."""

    def __init__(self, cache: Database, memory: Database, folder: Path) -> None:
        self._cache = cache
        self._memory = memory
        self._folder = folder

    def streams(self) -> list[HeldStream]:
        columns = ", ".join(HeldStream._fields)
        return [HeldStream(*row) for row in self._cache.rows(f"SELECT {columns} FROM streams ORDER BY id")]

    def has_unredacted(self) -> bool:
        return self._cache.value("SELECT 1 FROM streams WHERE redacted_with IS NULL LIMIT 1") is not None

    def events(self, stream: HeldStream) -> list[HeldEvent]:
        """A session's events in the order of their payloads."""
        columns = ", ".join((*EVENT_TEXTS, *EVENT_NAMES))
        rows = self._cache.rows(
            f"SELECT id, coalesce(payload_start, 0), coalesce(payload_bytes, 0), {columns} FROM events"
            " WHERE stream = ? ORDER BY payload_start",
            (stream.id,),
        )
        names = 3 + len(EVENT_TEXTS)
        return [HeldEvent(row[0], row[1], row[2], row[3:names], row[names:]) for row in rows]

    def side_texts(self, stream: HeldStream | None) -> Iterator[SideText]:
        """What the sources of a session tell of it and could not be read of; None for what belongs to no stream."""
        sources = "SELECT source FROM stream_sources" + ("" if stream is None else f" WHERE stream = {stream.id:d}")
        which = "NOT IN" if stream is None else "IN"
        for source, *texts in self._cache.rows(
            f"SELECT id, failure, state, kind FROM sources WHERE id {which} ({sources})"
        ):
            for column, text in zip(("failure", "state", "kind"), texts, strict=True):
                if text is not None:
                    yield SideText("sources", column, (source,), text)
        for problem, reason, raw in self._cache.rows(
            f"SELECT id, reason, raw FROM problems WHERE source {which} ({sources})"
        ):
            yield SideText("problems", "reason", (problem,), reason)
            yield SideText("problems", "raw", (problem,), raw)
        yield from self._infos(stream)
        if stream is not None:
            yield from self._usage(stream)

    def _usage(self, stream: HeldStream) -> Iterator[SideText]:
        for table, column in _USAGE_TEXTS:
            sql = f"SELECT DISTINCT {column} FROM {table} WHERE stream = ? AND {column} IS NOT NULL"
            for (text,) in self._cache.rows(sql, (stream.id,)):
                yield SideText(table, column, (stream.id, text), text)

    def paths(self) -> list[str]:
        """The path of every file that is known in either database."""
        found = {path for (path,) in self._cache.rows("SELECT path FROM sources")}
        for table in _PATHS_IN_MEMORY:
            found |= {path for (path,) in self._memory.rows(f"SELECT path FROM {table}")}
        return sorted(found)

    def rename_paths(self, renamed: Sequence[tuple[str, str]]) -> None:
        """Have files known under other paths: (new, old) of each."""
        with self._cache.transaction() as connection:
            for new, old in renamed:
                _rename_sources(connection, new, old)
        with self._memory.transaction() as connection:
            for table in _PATHS_IN_MEMORY:
                connection.executemany(f"UPDATE OR REPLACE {table} SET path = ? WHERE path = ?", renamed)

    def _infos(self, stream: HeldStream | None) -> Iterator[SideText]:
        of, key = "(agent, native_id) NOT IN (SELECT agent, native_id FROM streams)", []
        if stream is not None:
            of, key = "agent = ? AND native_id = ?", [stream.agent, stream.native_id]
        for agent, native_id, source, info in self._cache.rows(
            f"SELECT agent, native_id, source, info FROM infos WHERE {of}", key
        ):
            yield SideText("infos", "info", (agent, native_id, source), info)

    def replace(self, stream: HeldStream, new: NewStream) -> list[Path]:
        """Write a session's new texts; returns packs to `drop` after the next checkpoint. `finish` ends it.

        Nothing is written if the session has grown meanwhile: it is then looked at again another time.
        """
        if new.payloads is not None:
            return self._replace_payloads(stream, new, new.payloads)
        with self._cache.transaction() as connection:
            if _is_same(connection, stream):
                _write_texts(connection, new)
                connection.execute(
                    "UPDATE streams SET redacted_with = ?, needs_rescan = 0, is_dirty = max(is_dirty, ?) WHERE id = ?",
                    (UNFINISHED, bool(new.texts or new.side_texts), stream.id),
                )
        return []

    def _replace_payloads(self, stream: HeldStream, new: NewStream, payloads: NewPayloads) -> list[Path]:
        """The pack of the next generation is on the disk before the transaction that has rows point into it."""
        payloads.finish()
        frames, packed = _frame_rows(stream.id, payloads)
        old, path = (
            packs.pack_path(self._folder, stream.agent, stream.native_id, generation)
            for generation in (stream.pack_generation, stream.pack_generation + 1)
        )
        if packed:
            packs.append(path, 0, packed)
            packs.make_durable([path])
        with self._cache.transaction() as connection:
            if not _is_same(connection, stream):
                return [path] if packed else []
            _write_texts(connection, new)
            _write_payloads(connection, stream.id, payloads, frames)
            _leave_the_index(connection, stream.id)
            connection.execute(
                "UPDATE streams SET stream_bytes = ?, pack_generation = ?, pack_bytes = ?, redacted_with = ?,"
                " needs_rescan = 0, is_dirty = 1 WHERE id = ?",
                (payloads.size, stream.pack_generation + 1, sum(map(len, packed)), UNFINISHED, stream.id),
            )
        return [old]

    def mark(self, streams: Sequence[HeldStream], version: str) -> None:
        """Note the rules that were applied to sessions in which they changed nothing."""
        with self._cache.transaction() as connection:
            for stream in streams:
                if _is_same(connection, stream):
                    sql = "UPDATE streams SET redacted_with = ?, needs_rescan = 0 WHERE id = ?"
                    connection.execute(sql, (version, stream.id))

    def finish(self, streams: Sequence[HeldStream], version: str) -> None:
        """Note the rules of those that were replaced: nothing is left of what they were."""
        with self._cache.transaction() as connection:
            connection.executemany(
                "UPDATE streams SET redacted_with = ?, needs_rescan = 0 WHERE id = ? AND redacted_with = ?",
                [(version, stream.id, UNFINISHED) for stream in streams],
            )

    def write_side_texts(self, texts: Sequence[SideText]) -> None:
        with self._cache.transaction() as connection:
            _write_texts(connection, NewStream(side_texts=list(texts)))

    def sessions(self) -> Iterator[tuple[Any, ...]]:
        """Agent and native id of every session, then its SESSION_TEXTS and SESSION_NAMES."""
        columns = ", ".join(("agent", "native_session_id", *SESSION_TEXTS, *SESSION_NAMES))
        yield from self._memory.rows(f"SELECT {columns} FROM sessions")

    def write_sessions(self, rows: Sequence[tuple[Any, ...]]) -> None:
        """Write SESSION_TEXTS and SESSION_NAMES, then agent and native id, of each."""
        updates = ", ".join(f"{name} = ?" for name in (*SESSION_TEXTS, *SESSION_NAMES))
        with self._memory.transaction() as connection:
            connection.executemany(f"UPDATE sessions SET {updates} WHERE agent = ? AND native_session_id = ?", rows)

    def drop(self, old: Sequence[Path]) -> None:
        """Have all that was written on the disk, leave nothing of what it replaced, then unlink packs."""
        for database in (self._cache, self._memory):
            database.rows("PRAGMA incremental_vacuum")
            database.checkpoint()
        for path in old:
            path.unlink(missing_ok=True)

    def leftovers(self) -> list[Path]:
        """Packs that a process left behind which died before it could unlink them."""
        rows = self._cache.rows("SELECT agent, native_id, pack_generation FROM streams WHERE pack_generation > 1")
        older = (
            packs.pack_path(self._folder, agent, native_id, number)
            for agent, native_id, generation in rows
            for number in range(1, generation)
        )
        return [path for path in older if path.exists()]


def _is_same(connection: apsw.Connection, stream: HeldStream) -> bool:
    columns = ", ".join(HeldStream._fields)
    row = connection.execute(f"SELECT {columns} FROM streams WHERE id = ?", (stream.id,)).fetchone()
    return row is not None and HeldStream(*row) == stream


def _frame_rows(stream: int, payloads: NewPayloads) -> tuple[list[tuple[Any, ...]], list[bytes]]:
    rows: list[tuple[Any, ...]] = []
    packed: list[bytes] = []
    start = offset = 0
    for frame in payloads.frames:
        if len(frame.content) <= INLINE_BYTES:
            rows.append((stream, start, frame.length, None, len(frame.content), frame.content))
        else:
            rows.append((stream, start, frame.length, offset, len(frame.content), None))
            packed.append(frame.content)
            offset += len(frame.content)
        start += frame.length
    return rows, packed


def _rename_sources(connection: apsw.Connection, new: str, old: str) -> None:
    """A file that is known by its new path too is one source: that one takes over what is linked to the other."""
    sql = (
        "SELECT o.id, n.id FROM sources o LEFT JOIN sources n ON n.host = o.host AND n.agent = o.agent AND n.path = ?"
        " WHERE o.path = ?"
    )
    for source, known in list(connection.execute(sql, (new, old))):
        for table in ("stream_sources", "infos", "problems") if known is not None else ():
            connection.execute(f"UPDATE OR IGNORE {table} SET source = ? WHERE source = ?", (known, source))
            connection.execute(f"DELETE FROM {table} WHERE source = ?", (source,))
        if known is not None:
            connection.execute("DELETE FROM sources WHERE id = ?", (source,))
        connection.execute("UPDATE sources SET path = ? WHERE id = ?", (new, source))


def _leave_the_index(connection: apsw.Connection, stream: int) -> None:
    """Have a session's events indexed anew: their old words must not be found."""
    connection.execute("INSERT OR IGNORE INTO fulltext_gone SELECT id FROM events WHERE stream = ?", (stream,))
    connection.execute("DELETE FROM fulltext_marks WHERE stream = ?", (stream,))


def _write_payloads(
    connection: apsw.Connection, stream: int, payloads: NewPayloads, frames: Sequence[tuple[Any, ...]]
) -> None:
    connection.execute("DELETE FROM frames WHERE stream = ?", (stream,))
    connection.executemany("INSERT INTO frames VALUES (?, ?, ?, ?, ?, ?)", frames)
    connection.executemany(
        "UPDATE events SET payload_start = ?, payload_bytes = ?, payload_hash = ? WHERE id = ?", payloads.places
    )


def _row(side: SideText) -> str:
    if side.table in ("usage", "cost_totals"):
        return f"stream = ? AND {side.column} = ?"
    return "agent = ? AND native_id = ? AND source = ?" if side.table == "infos" else "id = ?"


def _write_texts(connection: apsw.Connection, new: NewStream) -> None:
    updates = ", ".join(f"{name} = ?" for name in (*EVENT_TEXTS, *EVENT_NAMES))
    connection.executemany(f"UPDATE events SET {updates} WHERE id = ?", new.texts)
    for side in new.side_texts:
        # An id with a secret in it may stand beside the same one that was redacted when it came.
        sql = f"UPDATE OR REPLACE {side.table} SET {side.column} = ? WHERE {_row(side)}"
        connection.execute(sql, (side.text, *side.row))
        if side.table == "infos":
            links = ", ".join(f"{name} = info ->> '$.first.{name}'" for name in _INFO_LINKS)
            connection.execute(f"UPDATE infos SET {links} WHERE {_row(side)}", side.row)
