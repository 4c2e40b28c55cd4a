"""Sessions that a host appends to while it runs: which session a key stands for, and what lists show of it at once.

A row is an index over the session's own facts and events, written in the transaction that stores them, so that it can
be made again from them (`restore`). The session's lasting row in memory.db follows within seconds.
"""

import os
import random
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

import apsw

from recollect.model.errors import Busy
from recollect.model.kinds import ASSISTANT_MSG, KIND_FAMILY, TOOL_CALL, USER_MSG, SessionKey
from recollect.store.batch import Batch, EventRow, UsageRow
from recollect.store.intake import Intake, Written
from recollect.store.payloads.writer import LivePack, Moved
from recollect.store.sqlite.database import Database, translated
from recollect.store.sqlite.locks import announce_live
from recollect.store.tables.fulltext import Fulltext
from recollect.store.tables.sources import Sources
from recollect.store.tables.table import BY_NATIVE_ID, BY_STREAM, CACHE, Table, column
from recollect.store.tables.tombstones import TombstoneTable

LIVE = Table(
    "live",
    CACHE,
    (
        *column.plain("agent", "native_id", "parent?"),
        *column.identifiers("key", "channel?", "chat_id?", "user_id?", "character_id?"),
        *column.texts("title?"),
        *column.documents("metadata", "state"),
        *column.numbers("created_ms", "updated_ms", "archived_ms?", "shown_ms"),
        *column.numbers("last_position", "first_position", "messages", "turns", "tool_calls", "media", "tokens"),
    ),
    owner=BY_NATIVE_ID,
    key=("agent", "native_id"),
    unique=("agent", "key"),
    extras=("CREATE INDEX live_by_time ON live (updated_ms)",),
)


class LiveRow(NamedTuple):
    """A live session. Its history begins at `first_position`; `state` is the host's own, kept with each append."""

    agent: str
    native_id: str
    parent: str | None
    key: str
    channel: str | None
    chat_id: str | None
    user_id: str | None
    character_id: str | None
    title: str | None
    metadata: str
    state: str
    created_ms: int
    updated_ms: int
    archived_ms: int | None
    shown_ms: int
    last_position: int
    first_position: int
    messages: int
    turns: int
    tool_calls: int
    media: int
    tokens: int


class MessageRow(NamedTuple):
    """A message as its event has it; its content is in the payload."""

    event_uid: bytes
    native_id: str
    position: int
    ts_ms: int | None
    role: str | None
    content_type: str
    payload_start: int
    payload_bytes: int
    model: str | None
    provider: str | None
    input_tokens: int | None
    output_tokens: int | None
    metadata: str | None


_ATTEMPTS = 8
_FIRST_WAIT_S = 0.005
_COLUMNS = ", ".join(f'"{name}"' for name in LiveRow._fields)
_KIND, _POSITION = map(EventRow._fields.index, ("kind", "position"))
_TOKENS = tuple(
    map(UsageRow._fields.index, ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens"))
)
MEDIA = "media"  # the content type of an event that is a reference to a file
SUMMARY = "summary"  # that of a message which stands for those before it
_CONTENT_TYPE = EventRow._fields.index("content_type")
_OF_SESSION = BY_STREAM
_T = TypeVar("_T")


class LiveSessions:
    """The live sessions of a store."""

    def __init__(
        self,
        cache: Database,
        memory: Database,
        intake: Intake,
        fulltext: Fulltext,
        pack: LivePack,
        tombstones: TombstoneTable,
    ) -> None:
        self._cache = cache
        self._memory = memory
        self._intake = intake
        self._fulltext = fulltext
        self._pack = pack
        self._tombstones = tombstones
        self._announced = -1

    def announce(self) -> None:
        """Make sweeps hold the turn to write for shorter, and no commit wait for the log, until this is closed."""
        if self._announced < 0:
            self._announced = announce_live(self._cache.path.parent)
            self._cache.leave_log()

    def recover(self) -> None:
        """Store what hosts appended and a power cut took out of the database, from the packs."""
        forgotten: set[SessionKey] | None = None
        for batch in self._pack.iter_lost():
            forgotten = self._tombstones.names() if forgotten is None else forgotten
            key = SessionKey(batch.source.agent, batch.streams[0].native_id)
            if forgotten.isdisjoint((key, key.root)):
                put = partial(self._append, row=self.find_session(*key), batch=batch, changes={})
                with suppress(Moved):  # it was archived: then nobody was told that the message is stored
                    self._write(put)

    def find(self, agent: str, key: str) -> LiveRow | None:
        """Return the session that a key stands for now."""
        return next(iter(self._select("agent = ? AND key = ?", (agent, key))), None)

    def find_session(self, agent: str, native_id: str) -> LiveRow | None:
        return next(iter(self._select("agent = ? AND native_id = ?", (agent, native_id))), None)

    def all(
        self,
        agent: str | None = None,
        *,
        prefix: str = "",
        channel: str | None = None,
        with_archived: bool = True,
        limit: int = -1,
        offset: int = 0,
    ) -> list[LiveRow]:
        """Live sessions, the one active last first."""
        conditions, bindings = ["substr(key, 1, ?) = ?"], [len(prefix), prefix]
        for test, value in (("agent = ?", agent), ("channel = ? COLLATE NOCASE", channel)):
            if value is not None:
                conditions.append(test)
                bindings.append(value)
        if not with_archived:
            conditions.append("archived_ms IS NULL")
        order = f"ORDER BY updated_ms DESC, created_ms DESC, native_id LIMIT {limit:d} OFFSET {offset:d}"
        return self._select(f"{' AND '.join(conditions)} {order}", bindings)

    def _select(self, rest: str, bindings: Sequence[Any]) -> list[LiveRow]:
        return self._cache.read(LiveRow, f"SELECT {_COLUMNS} FROM live WHERE {rest}", bindings)

    def open(self, row: LiveRow) -> LiveRow:
        """Make a session for a key, or find the one that another process has just made."""

        def insert(connection: apsw.Connection) -> None:
            marks = ", ".join("?" * len(row))
            connection.execute(f"INSERT OR IGNORE INTO live ({_COLUMNS}) VALUES ({marks})", row)

        self._write(insert)
        opened = self.find(row.agent, row.key)
        if opened is None:  # another key has this native id
            raise Moved
        return opened

    def append(self, row: LiveRow, batch: Batch, changes: Mapping[str, Any]) -> Written:
        """Store what was read of one live session, and count it there; durable when this returns.

        `row` is the session as it was found, `updated_ms` when it was active; `changes` are columns to set. Raises
        Moved if the session is not live any more, or its state is another one; then nothing was stored.
        """
        with translated(self._cache.path):
            self._pack.place([batch])
            written = self._write(lambda connection: self._append(connection, row, batch, changes))
            # The rest is in the frame: `recover` makes it again. When a lasting row was written is no loss.
            if changes.keys() - {"shown_ms"} or written.events_new < batch.events:
                self._cache.make_durable()
            self._cache.shorten_log()
        return written

    def _append(
        self, connection: apsw.Connection, row: LiveRow | None, batch: Batch, changes: Mapping[str, Any]
    ) -> Written:
        written = self._intake.put_into(connection, [batch], Sources.save_unread)
        if row is not None:
            usage = [values for part in batch.streams for values in part.facts.usage]
            _count(connection, row, written.rows, usage, changes)
        self._fulltext.add(connection, written.fresh)
        return written

    def show(self, rows: Sequence[LiveRow]) -> list[LiveRow]:
        """Note in lasting rows when sessions were last active and how much was said; return those without one.

        Not flushed: until a sweep has written such a row, it can be made again from what was appended.
        """
        missing = []
        with self._memory.flushing(is_on=False), self._memory.transaction() as connection:
            for row in rows:
                connection.execute(
                    "UPDATE sessions SET ended_ms = max(coalesce(ended_ms, 0), ?1),"
                    " updated_ms = max(coalesce(updated_ms, 0), ?1), message_count = max(message_count, ?2),"
                    ' turns = max(turns, ?3), title = coalesce(title, ?4), "key" = iif("key" IS NULL, NULL, ?5)'
                    " WHERE agent = ?6 AND native_session_id = ?7",
                    (row.updated_ms, row.messages, row.turns, row.title, row.key, row.agent, row.native_id),
                )
                missing += [] if connection.changes() else [row]
        return missing

    def drop(self, row: LiveRow) -> None:
        """Delete the row of a session that holds nothing yet."""
        sql = "DELETE FROM live WHERE agent = ? AND native_id = ?"
        self._write(lambda connection: connection.execute(sql, (row.agent, row.native_id)))

    def unindexed(self, agent: str) -> list[tuple[str, str]]:
        """(native id, facts) of sessions without a row: they were imported, or the cache was made again from packs."""
        sql = (
            "SELECT s.native_id,"
            " (SELECT info FROM infos i WHERE i.agent = s.agent AND i.native_id = s.native_id LIMIT 1)"
            " FROM streams s LEFT JOIN live l ON l.agent = s.agent AND l.native_id = s.native_id"
            " WHERE s.agent = ? AND l.native_id IS NULL AND s.next_seq > 1"
        )
        return [(native_id, info) for native_id, info in self._cache.rows(sql, (agent,)) if info is not None]

    def figures(self, agent: str, native_id: str) -> dict[str, int]:
        """Return what a session's events add up to, for a row that is made again."""
        counts = (
            f"count(*) FILTER (WHERE coalesce(base_kind, kind) IN ('{USER_MSG}', '{ASSISTANT_MSG}')) messages",
            f"count(*) FILTER (WHERE coalesce(base_kind, kind) = '{USER_MSG}') turns",
            f"count(*) FILTER (WHERE kind IN {KIND_FAMILY[TOOL_CALL]}) tool_calls",
            f"count(*) FILTER (WHERE content_type = '{MEDIA}') media",
        )
        sql = f"SELECT {', '.join(counts)}, max(position), min(ts_ms), max(ts_ms) FROM events WHERE {_OF_SESSION}"
        row = self._cache.rows(sql, (agent, native_id))[0]
        names = ("messages", "turns", "tool_calls", "media", "last_position", "created_ms", "updated_ms")
        return dict(zip(names, (value or 0 for value in row), strict=True))

    def messages(self, row: LiveRow, last: int | None = None, *, of_summary: bool = False) -> list[MessageRow]:
        """Return the messages of the session's history, oldest first; with `last`, only so many from the end.

        `of_summary` instead: what stands for the messages before the history begins.
        """
        of_history = f"position >= {row.first_position:d} AND content_type NOT IN ('{MEDIA}', '{SUMMARY}')"
        return self._messages(row, f"content_type = '{SUMMARY}'" if of_summary else of_history, last)

    def messages_after(self, row: LiveRow, native_id: str | None, added: Collection[str]) -> list[MessageRow]:
        """Return the messages behind one of the session, and those of `added`, oldest first."""
        sql = f"SELECT position FROM events WHERE {_OF_SESSION} AND native_id = ?3"
        last = self._cache.value(sql, (row.agent, row.native_id, native_id)) if native_id is not None else None
        behind = self._messages(row, f"position > {0 if last is None else last:d} AND content_type <> '{MEDIA}'", None)
        missing = set(added) - {message.native_id for message in behind}
        if not missing:
            return behind
        early = [message for message in self.messages(row._replace(first_position=0)) if message.native_id in missing]
        return [*early, *behind]

    def message_ids(self, row: LiveRow) -> list[str]:
        """Return the ids of everything that was said in the session."""
        sql = f"SELECT native_id FROM events WHERE content_type IS NOT NULL AND {_OF_SESSION}"
        return self._cache.column(sql, (row.agent, row.native_id))

    def _messages(self, row: LiveRow, condition: str, last: int | None) -> list[MessageRow]:
        rows = self._cache.rows(
            f"SELECT {', '.join(MessageRow._fields)} FROM events WHERE {_OF_SESSION} AND lane = ''"
            f" AND content_type IS NOT NULL AND {condition} ORDER BY lane DESC, position DESC LIMIT ?3",
            (row.agent, row.native_id, -1 if last is None else last),
        )
        return [MessageRow(*values) for values in reversed(rows)]

    def places(self, row: LiveRow, reader: int | None = None) -> list[tuple[int, int]]:
        """Return where the payloads are of what a live host appended, in that order; else of references to files."""
        sql = f"SELECT payload_start, payload_bytes FROM events WHERE {_OF_SESSION} AND"
        sql += f" iif(?3 IS NULL, content_type = '{MEDIA}', reader = ?3) ORDER BY payload_start"
        return self._cache.rows(sql, (row.agent, row.native_id, reader))

    def close(self) -> None:
        """Let sweeps write at their own pace again."""
        if self._announced >= 0:
            os.close(self._announced)
            self._announced = -1

    def _write(self, change: Callable[[apsw.Connection], _T]) -> _T:
        """Write in one short transaction; a writer that the queue does not know of is waited for, with jitter."""
        for attempt in range(_ATTEMPTS):
            try:
                with self._cache.transaction() as connection:
                    return change(connection)
            except apsw.BusyError:
                time.sleep(_FIRST_WAIT_S * 2**attempt * random.uniform(0.5, 1.5))
        raise Busy("The store stayed locked by another program", "close what else has it open")


def _count(
    connection: apsw.Connection,
    row: LiveRow,
    new: Sequence[tuple[Any, ...]],
    usage: Sequence[tuple[Any, ...]],
    changes: Mapping[str, Any],
) -> None:
    kinds = [values[_KIND] for values in new]
    tokens = sum(values[index] for values in usage for index in _TOKENS) if new else 0
    sets = "".join(f", {name} = ?" for name in changes)
    connection.execute(
        "UPDATE live SET updated_ms = max(updated_ms, ?), last_position = max(last_position, ?),"
        " messages = messages + ?, turns = turns + ?, tool_calls = tool_calls + ?, media = media + ?,"
        f" tokens = tokens + ?{sets} WHERE agent = ? AND native_id = ? AND state = ? AND archived_ms IS NULL",
        (
            row.updated_ms,
            max((values[_POSITION] for values in new), default=0),
            sum(kind in (USER_MSG, ASSISTANT_MSG) for kind in kinds),
            kinds.count(USER_MSG),
            sum(kind in KIND_FAMILY[TOOL_CALL] for kind in kinds),
            sum(values[_CONTENT_TYPE] == MEDIA for values in new),
            tokens,
            *changes.values(),
            row.agent,
            row.native_id,
            row.state,
        ),
    )
    if not connection.changes():
        raise Moved
