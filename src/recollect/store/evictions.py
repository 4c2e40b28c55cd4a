"""Sessions whose raw detail was dropped: what stays known of them, and how it is kept from coming back.

An eviction has hashes of a session's events, by which a file that is read again, was moved or copied tells nothing
new, and the session's row as it was, to which whatever the session does later is added. It lies in memory.db and, with
the digest that preceded it, in the ledger. What a session used stays in cache.db, so that a fork is paid once.
"""

from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from sys import byteorder
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.clock import now_ms
from recollect.schema import HISTORY_LANE, STAND_IN_LANE, name_half
from recollect.store import packs
from recollect.store.batch import Batch, EventRow, StreamBatch
from recollect.store.counted import Counted, read_counted, redacted_counted, restore_counted
from recollect.store.digests import Digests, restore_digest, rewrite_digest, seal_digest, unseal_digest
from recollect.store.flags import IS_PROVISIONAL
from recollect.store.fulltext import Fulltext
from recollect.store.intake import second_uid
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.omission import leave_out_events
from recollect.store.rewriting import rewrite
from recollect.store.sessions import SessionRow
from recollect.store.sqlite import Database, translated
from recollect.store.tombstones import event_key

KIND = "eviction"  # of the ledger's lines
SKIPPED = "evicted"  # what the sweep's report counts left-out events as
DATA_LOSS = "data_loss"
LAST_COPY_EVICTED = "last_copy_evicted"

Name = tuple[str, str]  # agent, native id

_KEY_BYTES = 8
_UID = EventRow._fields.index("event_uid")
_HASH = EventRow._fields.index("payload_hash")
_LANE, _TS_MS = EventRow._fields.index("lane"), EventRow._fields.index("ts_ms")
_KEY = "agent = ? AND native_session_id = ?"
_FIND_STREAM = "SELECT id FROM streams WHERE agent = ? AND native_id = ?"
_ROW_COLUMNS = ", ".join(f'"{name}"' for name in SessionRow._fields)
_TOKENS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens", "reasoning_tokens")
# What each session used as far as it is held, of those that nobody noted: tokens, and money as the agent tells it.
_USED = (
    f"SELECT s.id, s.agent, s.native_id, {', '.join(f'total({name})' for name in _TOKENS)}, max(total(usd),"
    " (SELECT coalesce(max(c.usd), 0) FROM cost_totals c WHERE c.stream = s.id))"
    " FROM streams s LEFT JOIN usage u ON u.stream = s.id AND NOT u.is_copy"
    " WHERE s.id NOT IN (SELECT stream FROM evicted_streams) GROUP BY s.id"
)
_CENT = 0.01


class Eviction(NamedTuple):
    """A session whose raw detail goes. `digest` is what was read back of it, None if there is none: `loss` says so."""

    agent: str
    native_session_id: str
    reason: str
    bytes: int
    digest: dict[str, Any] | None
    loss: str | None = None

    @property
    def name(self) -> Name:
        return self.agent, self.native_session_id


class RetentionEvent(NamedTuple):
    """Something that went and cannot be had again: `data_loss` or `last_copy_evicted`."""

    at_ms: int
    event: str
    session_uid: str
    bytes: int


class Keys:
    """The events of an evicted session, by hashes."""

    def __init__(self, packed: bytes) -> None:
        self._keys = array("Q")
        self._keys.frombytes(packed)
        if byteorder == "little":
            self._keys.byteswap()  # they are sorted as bytes

    def hold(self, event_uid: bytes, payload_hash: bytes) -> bool:
        """Whether an event was dropped; one that was still growing then is another when it has grown."""
        return self._has(event_uid[_KEY_BYTES:]) or self._has(second_uid(event_uid, payload_hash)[_KEY_BYTES:])

    def hold_copy(self, copy_key: int) -> bool:
        """Whether a record with this key was dropped."""
        return self._has(copy_key.to_bytes(_KEY_BYTES, "big", signed=True))

    def _has(self, half: bytes) -> bool:
        key = int.from_bytes(half, "big")
        place = bisect_left(self._keys, key)
        return place < len(self._keys) and self._keys[place] == key


class Base(NamedTuple):
    """An evicted session as it was. `is_usage_held`: what it used is still known response by response."""

    row: SessionRow
    keys: Keys
    is_usage_held: bool


class EvictionTable:
    """The evictions of a store."""

    def __init__(self, cache: Database, memory: Database, ledger: Ledger) -> None:
        self._cache = cache
        self._memory = memory
        self._ledger = ledger
        self.awaited: set[Name] = set()  # evicted sessions that may come back

    def names(self) -> set[Name]:
        rows = self._memory.rows("SELECT agent, native_session_id FROM evictions")
        return {(agent, native_id) for agent, native_id in rows}

    def keys(self, name: Name) -> Keys:
        return Keys(self._packed_keys(name))

    def at_ms(self, name: Name) -> int:
        """When a session was evicted last."""
        return int(self._memory.value(f"SELECT at_ms FROM evictions WHERE {_KEY}", name) or 0)

    def _packed_keys(self, name: Name) -> bytes:
        found = self._memory.value(f"SELECT event_keys FROM evictions WHERE {_KEY}", name)
        return b"" if found is None else bytes(found)

    def base(self, agent: str, native_id: str, stream: int) -> Base | None:
        """What a session was when its raw detail was dropped; None if it never was."""
        for packed, row in self._memory.rows(
            f"SELECT event_keys, base FROM evictions WHERE {_KEY}", (agent, native_id)
        ):
            is_held = self._cache.value("SELECT 1 FROM evicted_streams WHERE stream = ?", (stream,)) is not None
            with translated(self._memory.path):
                return Base(_session_row(orjson.loads(row)), Keys(packed), is_held)
        return None

    def later_counts(self) -> dict[Name, int]:
        """How many events of evicted sessions came after that, by their rows."""
        count = "s.event_count - (e.base ->> '$.event_count')"
        rows = self._memory.rows(
            f"SELECT agent, native_session_id, {count} FROM sessions s JOIN evictions e"
            f" USING (agent, native_session_id) WHERE {count} > 0"
        )
        return {(agent, native_id): number for agent, native_id, number in rows}

    def note_held_usage(self) -> int:
        """Note of which evicted sessions all that they used is held, as a cache that was made anew does not know.

        Returns how many those are.
        """
        held = {(row[1], row[2]): row for row in self._cache.rows(_USED)}
        names = sorted(name for name in self.names() & held.keys() if _is_all(held[name][3:], self._base(name)))
        with self._cache.transaction() as connection:
            for name in names:
                connection.execute("INSERT INTO evicted_streams VALUES (?, ?)", (held[name][0], name_half(*name)))
                connection.execute("UPDATE streams SET is_dirty = 1 WHERE id = ?", held[name][:1])
        return len(names)

    def add(self, evictions: Sequence[Eviction], at_ms: int) -> None:
        """Note that raw detail is about to go: on the disk, and in the ledger with the digests, when this returns."""
        renewed = self.names() & {eviction.name for eviction in evictions}
        rows = {eviction.name: self._row(eviction.name) for eviction in evictions}
        keys = {eviction.name: self._all_keys(eviction.name) for eviction in evictions}
        counted = {eviction.name: read_counted(self._memory, eviction.name) for eviction in evictions}
        self._ledger.extend(
            [(KIND, self._data(one, at_ms, keys[one.name], rows[one.name], counted[one.name])) for one in evictions]
        )
        with self._memory.transaction() as connection:
            for one in evictions:
                seal_digest(connection, one.name)
                connection.execute(f"UPDATE sessions SET evicted_ms = ? WHERE {_KEY}", (at_ms, *one.name))
                told = (*one.name, at_ms, one.reason, one.bytes, keys[one.name], _json(rows[one.name]))
                connection.execute("INSERT OR REPLACE INTO evictions VALUES (?, ?, ?, ?, ?, ?, ?, NULL)", told)
                if one.loss is not None:
                    _note_loss(connection, one.name, rows[one.name]["session_uid"], (at_ms, one.loss, one.bytes))
        if renewed:
            self._ledger.rewrite(lambda record: not _is_older(record, renewed, at_ms))

    def _data(
        self, eviction: Eviction, at_ms: int, keys: bytes, row: dict[str, Any], counted: Counted
    ) -> dict[str, Any]:
        """What the ledger has of an eviction, with all that was ever lost of the session."""
        losses = self._memory.rows(f"SELECT at_ms, event, bytes FROM retention_events WHERE {_KEY}", eviction.name)
        new = [] if eviction.loss is None else [(at_ms, eviction.loss, eviction.bytes)]
        return {
            "agent": eviction.agent,
            "native_session_id": eviction.native_session_id,
            "at_ms": at_ms,
            "reason": eviction.reason,
            "bytes": eviction.bytes,
            "event_keys": b64encode(keys).decode(),
            "session": row,
            "digest": eviction.digest,
            "counted": counted,
            "losses": [*losses, *new],
        }

    def _row(self, name: Name) -> dict[str, Any]:
        rows = self._memory.rows(f"SELECT {_ROW_COLUMNS}, analyzed_ms FROM sessions WHERE {_KEY}", name)
        return dict(zip((*SessionRow._fields, "analyzed_ms"), rows[0], strict=True))

    def _all_keys(self, name: Name) -> bytes:
        """Hashes of all that was ever held of a session."""
        packed = self._packed_keys(name)
        keys = {packed[start : start + _KEY_BYTES] for start in range(0, len(packed), _KEY_BYTES)}
        return b"".join(sorted(keys | self._held_keys(name)))

    def _held_keys(self, name: Name) -> set[bytes]:
        found: set[bytes] = set()
        for uid, payload_hash, flags, copy_key, kind, summary in self._cache.iter_rows(
            "SELECT event_uid, payload_hash, flags, copy_key, coalesce(base_kind, kind), summary FROM events"
            " WHERE stream = (SELECT id FROM streams WHERE agent = ? AND native_id = ?)",
            name,
        ):
            uid = second_uid(uid, payload_hash) if flags & IS_PROVISIONAL else uid
            found.add(uid[_KEY_BYTES:])
            if copy_key is not None:
                found.add(copy_key.to_bytes(_KEY_BYTES, "big", signed=True))
                found.add(event_key(copy_key, kind, summary))  # a tombstone recognises copies by it
        return found

    def drop_raw(self, names: Collection[Name]) -> None:
        """Delete events and payloads of evicted sessions. Half done, it can be done again.

        What a session holds that its eviction does not know of came later, and stays.
        """
        with self._cache.transaction() as connection:
            for name in names:
                _drop_stream(connection, name, self.keys(name))
        for agent, native_id in names:
            if not self._cache.value(
                "SELECT pack_bytes FROM streams WHERE agent = ? AND native_id = ?", (agent, native_id)
            ):
                packs.drop_all(self._cache.path.parent, agent, native_id)

    def unfinished(self) -> set[Name]:
        """Sessions whose eviction may have stopped half-way."""
        rows = self._memory.rows("SELECT agent, native_session_id FROM evictions WHERE finished_ms IS NULL")
        return {(agent, native_id) for agent, native_id in rows}

    def unfinished_since_ms(self) -> int | None:
        """When the oldest of them was begun; None if there are none."""
        found = self._memory.value("SELECT min(at_ms) FROM evictions WHERE finished_ms IS NULL")
        return None if found is None else int(found)

    def leave_no_word(self) -> None:
        """Have the words of what was dropped gone from the index, and the room they took given back."""
        Fulltext(self._cache).leave_no_byte_of_gone()
        self._cache.rows("PRAGMA incremental_vacuum")

    def leave_no_byte(self) -> None:
        """Have the last bytes of what was dropped gone from cache.db; raises StoreUnwritable, Busy if it cannot be."""
        rewrite(self._cache)

    def finish(self, names: Collection[Name]) -> None:
        """Note that nothing is left of what these sessions were."""
        with self._memory.transaction() as connection:
            connection.executemany(
                f"UPDATE evictions SET finished_ms = ? WHERE {_KEY}", [(now_ms(), *name) for name in names]
            )

    @contextmanager
    def awaiting(self, name: Name) -> Iterator[None]:
        """Have a session's sources read again whole, and let in what was dropped of it.

        The eviction stands until something came: whatever keeps the sources from being read costs nothing.
        """
        with self._cache.transaction() as connection:
            connection.execute(
                "UPDATE sources SET size = -1, offset = 0, line = 0, head = '', tail = '', state = '{}'"
                f" WHERE gone_ms IS NULL AND id IN (SELECT source FROM stream_sources WHERE stream = ({_FIND_STREAM}))",
                name,
            )
        self.awaited.add(name)
        try:
            yield
        finally:
            self.awaited.discard(name)

    def lift_awaited(self) -> None:
        """Have sessions that are back be like all others."""
        for name in sorted(self.awaited & self.names()):
            if self._is_back(name):
                self._lift(name)

    def _is_back(self, name: Name) -> bool:
        keys = self.keys(name)
        rows = self._cache.rows(f"SELECT event_uid, payload_hash FROM events WHERE stream = ({_FIND_STREAM})", name)
        return any(keys.hold(uid, payload_hash) for uid, payload_hash in rows)

    def _lift(self, name: Name) -> None:
        """Forget that a session was evicted; its row and its digest are to be made from all of it."""
        with self._cache.transaction() as connection:
            connection.execute("UPDATE streams SET is_dirty = 1 WHERE agent = ? AND native_id = ?", name)
        with self._memory.transaction() as connection:
            unseal_digest(connection, name)
            connection.execute(f"DELETE FROM evictions WHERE {_KEY}", name)
            connection.execute(f"UPDATE sessions SET evicted_ms = NULL, analyzed_ms = NULL WHERE {_KEY}", name)
        # Not before: without this row, but with an eviction, what it used would be counted twice.
        with self._cache.transaction() as connection:
            connection.execute(f"DELETE FROM evicted_streams WHERE stream = ({_FIND_STREAM})", name)
        self._ledger.rewrite(lambda record: record.kind != KIND or _name(record) != name)

    def rewrite_texts(self, changed: Callable[[bytes], bytes], changed_text: Callable[[str], str]) -> int:
        """Put what is kept of evicted sessions through newer rules of redaction; return how many changed.

        `changed` takes documents of JSON. Nobody else can: what they were made from is gone.
        """
        count = 0
        for name in sorted(self.names()):
            digest, row = self._digest(name), self._base(name)
            new_row = orjson.loads(changed(orjson.dumps(row)))
            new = None if digest is None else _redacted(digest, changed, changed_text)
            counted = read_counted(self._memory, name, is_sealed=True)
            new_counted = redacted_counted(counted, changed_text)
            if (new_row, new, new_counted) != (row, digest, counted):
                self._rewrite_texts(name, new_row, new, new_counted)
                count += 1
        return count

    def _digest(self, name: Name) -> dict[str, Any] | None:
        return Digests(self._memory).read_back(*name)

    def _base(self, name: Name) -> dict[str, Any]:
        with translated(self._memory.path):
            told: dict[str, Any] = orjson.loads(self._memory.value(f"SELECT base FROM evictions WHERE {_KEY}", name))
            return told

    def _rewrite_texts(self, name: Name, row: dict[str, Any], digest: dict[str, Any] | None, counted: Counted) -> None:
        reason, size, at_ms = self._memory.rows(f"SELECT reason, bytes, at_ms FROM evictions WHERE {_KEY}", name)[0]
        data = self._data(Eviction(*name, reason, size, digest), at_ms + 1, self._packed_keys(name), row, counted)
        self._ledger.append(KIND, data)
        with self._memory.transaction() as connection:
            connection.execute(f"UPDATE evictions SET at_ms = ?, base = ? WHERE {_KEY}", (at_ms + 1, _json(row), *name))
            if digest is not None:
                rewrite_digest(connection, name, digest)
            restore_counted(connection, name, counted)
        self._ledger.rewrite(lambda record: not _is_older(record, {name}, at_ms + 1))

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """All of them as lines of the ledger."""
        rows = self._memory.rows("SELECT agent, native_session_id, reason, bytes, at_ms FROM evictions ORDER BY at_ms")
        found = []
        for agent, native_id, reason, size, at_ms in rows:
            name = (agent, native_id)
            eviction = Eviction(agent, native_id, reason, size, self._digest(name))
            counted = read_counted(self._memory, name, is_sealed=True)
            found.append((KIND, self._data(eviction, at_ms, self._packed_keys(name), self._base(name), counted)))
        return found

    def losses(self, limit: int | None = None) -> list[RetentionEvent]:
        """What went and cannot be had again, newest first."""
        columns = ", ".join(RetentionEvent._fields)
        cut = "" if limit is None else f" LIMIT {limit:d}"
        rows = self._memory.rows(f"SELECT {columns} FROM retention_events ORDER BY at_ms DESC, id DESC{cut}")
        return [RetentionEvent(*row) for row in rows]

    def loss_counts(self) -> dict[str, int]:
        rows = self._memory.rows("SELECT event, count(*) FROM retention_events GROUP BY event")
        return dict(rows)

    def last_look_ms(self) -> int | None:
        """When ages were last looked at."""
        found = self._memory.value("SELECT at_ms FROM retention_clock")
        return None if found is None else int(found)

    def set_last_look(self, at_ms: int) -> None:
        with self._memory.transaction() as connection:
            connection.execute("DELETE FROM retention_clock")
            connection.execute("INSERT INTO retention_clock VALUES (?)", (at_ms,))

    def mark_copies(self, stream: int, agent: str, owner: str) -> None:
        """Mark what a session has copied from an evicted one: those records were counted there."""
        keys = self.keys((agent, owner))
        rows = self._cache.rows(
            "SELECT id, copy_key FROM events WHERE stream = ? AND copy_of IS NULL AND copy_key IS NOT NULL", (stream,)
        )
        copies = [
            (name_half(agent, owner) + copy_key.to_bytes(_KEY_BYTES, "big", signed=True), number)
            for number, copy_key in rows
            if keys.hold_copy(copy_key)
        ]
        if copies:
            with self._cache.transaction() as connection:
                connection.executemany("UPDATE events SET copy_of = ? WHERE id = ?", copies)


def _is_all(used: Sequence[float], base: dict[str, Any]) -> bool:
    """Whether what is held of a session's use is no less than its row told when it was evicted."""
    *tokens, usd = used
    is_told = base["usd"] is not None and not base["usd_is_estimate"]
    has_tokens = all(count >= base[name] for count, name in zip(tokens, _TOKENS, strict=True))
    return has_tokens and (not is_told or usd > base["usd"] - _CENT)


def _redacted(
    digest: dict[str, Any], changed: Callable[[bytes], bytes], changed_text: Callable[[str], str]
) -> dict[str, Any]:
    text = digest["digest"]
    new = None if text is None else changed(text.encode()).decode()
    return digest | {"digest": new, "line": changed_text(digest["line"]), "text": changed_text(digest["text"])}


def _drop_stream(connection: apsw.Connection, name: Name, keys: Keys) -> None:
    for (stream,) in list(connection.execute(_FIND_STREAM, name)):
        held = list(connection.execute("SELECT event_uid, payload_hash FROM events WHERE stream = ?", (stream,)))
        if not all(keys.hold(uid, payload_hash) for uid, payload_hash in held):
            continue
        connection.execute("INSERT OR REPLACE INTO evicted_streams VALUES (?, ?)", (stream, name_half(*name)))
        for table in ("events", "frames", "fulltext_marks"):
            connection.execute(f"DELETE FROM {table} WHERE stream = ?", (stream,))
        connection.execute("UPDATE streams SET stream_bytes = 0, pack_bytes = 0 WHERE id = ?", (stream,))
        connection.execute(
            "UPDATE problems SET raw = x'' WHERE source IN (SELECT source FROM stream_sources WHERE stream = ?)",
            (stream,),
        )


def _note_loss(connection: apsw.Connection, name: Name, session_uid: str, loss: tuple[int, str, int]) -> None:
    """Note what was lost of a session (when, which event, bytes), once."""
    at_ms, event, size = loss
    connection.execute(
        "INSERT INTO retention_events (at_ms, event, agent, native_session_id, session_uid, bytes)"
        " SELECT ?1, ?2, ?3, ?4, ?5, ?6 WHERE NOT EXISTS (SELECT 1 FROM retention_events"
        " WHERE at_ms = ?1 AND event = ?2 AND agent = ?3 AND native_session_id = ?4)",
        (at_ms, event, *name, session_uid, size),
    )


def _name(record: LedgerRecord) -> Name:
    return record.data["agent"], record.data["native_session_id"]


def _is_older(record: LedgerRecord, names: Collection[Name], at_ms: int) -> bool:
    return record.kind == KIND and _name(record) in names and record.data["at_ms"] != at_ms


def restore_eviction(connection: apsw.Connection, record: LedgerRecord) -> None:
    """Put back a session that only the ledger knows: its row, its digest, and what keeps it from coming back."""
    data, name = record.data, _name(record)
    row = {name: value for name, value in data["session"].items() if name in (*SessionRow._fields, "analyzed_ms")}
    row["evicted_ms"] = data["at_ms"]
    listed = ", ".join(f'"{column}"' for column in row)
    marks = ", ".join("?" * len(row))
    connection.execute(f"INSERT OR IGNORE INTO sessions ({listed}) VALUES ({marks})", list(row.values()))
    if data["digest"] is not None:
        restore_digest(connection, name, data["digest"])
        known = connection.execute(f"SELECT at_ms FROM evictions WHERE {_KEY}", name).get
        if "counted" in data and known in (None, data["at_ms"]):  # else it tells also of what is not sealed yet
            restore_counted(connection, name, data["counted"])
    for loss in data.get("losses", ()):
        _note_loss(connection, name, data["session"]["session_uid"], loss)
    told = (*name, data["at_ms"], data["reason"], data["bytes"], b64decode(data["event_keys"]), _json(data["session"]))
    connection.execute(
        "INSERT INTO evictions VALUES (?, ?, ?, ?, ?, ?, ?, NULL) ON CONFLICT DO UPDATE SET at_ms = excluded.at_ms,"
        " event_keys = excluded.event_keys, base = excluded.base WHERE excluded.at_ms > at_ms",
        told,
    )


def _session_row(told: dict[str, Any]) -> SessionRow:
    return SessionRow._make(told.get(name) for name in SessionRow._fields)


def _json(row: dict[str, Any]) -> str:
    return orjson.dumps(row).decode()


class Evicted:
    """The evictions as a sweep needs them: names loaded once, keys when one of the sessions turns up."""

    def __init__(self, table: EvictionTable) -> None:
        self._table = table
        self._names: dict[str, set[str]] = defaultdict(set)
        for agent, native_id in table.names() - table.awaited:
            self._names[agent].add(native_id)
        self._last: tuple[Name, Keys, int] | None = None

    def without(self, batch: Batch) -> Batch:
        """The batch without events that were dropped; the same batch if none of its sessions was ever evicted."""
        names = self._names.get(batch.source.agent)
        if not names or not any(stream.native_id in names for stream in batch.streams):
            return batch
        before = batch.events
        batch.streams = [
            self._new_part(batch.source.agent, stream) if stream.native_id in names else stream
            for stream in batch.streams
        ]
        if dropped := before - batch.events:
            batch.skipped = batch.skipped | {SKIPPED: batch.skipped.get(SKIPPED, 0) + dropped}
        return batch

    def _new_part(self, agent: str, stream: StreamBatch) -> StreamBatch:
        """What a session has done since. Even if that is nothing, its source is one of the session's sources."""
        name = (agent, stream.native_id)
        if self._last is None or self._last[0] != name:
            self._last = (name, self._table.keys(name), self._table.at_ms(name))
        _, keys, at_ms = self._last
        kept = [row for row in stream.rows if not keys.hold(row[_UID], row[_HASH]) and not _stood_in_before(row, at_ms)]
        return stream if len(kept) == len(stream.rows) else leave_out_events(stream, kept)


def _stood_in_before(row: Sequence[Any], at_ms: int) -> bool:
    """Whether an event stands in for one that was evicted: a history told again has prompts of a log that is gone."""
    return row[_LANE] in (HISTORY_LANE, STAND_IN_LANE) and (row[_TS_MS] or 0) <= at_ms


def names_of(evictions: Iterable[Eviction]) -> list[Name]:
    return [eviction.name for eviction in evictions]
