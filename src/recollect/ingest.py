"""One source: read it from its cursor and make batches that the store takes as they are.

Runs in reader processes: everything costly (parsing, hashing, compressing) is done before a batch is
handed over, so that the one writer only appends bytes and inserts rows.
"""

import dataclasses
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import orjson

from recollect.adapters.protocol import (
    FIRST_WINS,
    STATE_LIMIT_BYTES,
    Adapter,
    BadLine,
    Checkpoint,
    CostTotal,
    Cursor,
    EventRecord,
    Record,
    SessionInfo,
    Skipped,
    Source,
    Usage,
)
from recollect.errors import SourceUnreadable
from recollect.protection import protected_json, protected_line, protected_names, without_parts, without_secrets
from recollect.redact.redactor import Redactor
from recollect.schema import HISTORY_LANE, name_half
from recollect.store.batch import Batch, CostTotalRow, EventRow, ProblemRow, SourceRow, StreamBatch, hash_payload
from recollect.store.flags import IS_ERROR, IS_PROVISIONAL, IS_RETRY, TOLD_RETRY
from recollect.store.intake import merge_infos, second_uid
from recollect.store.packs import compress
from recollect.text import columns_of


class Task(NamedTuple):
    """A source to read. `row` has the file's signature now and, if it can be gone on from, its cursor."""

    source: Source
    row: SourceRow
    has_cursor: bool


def read_batches(adapter: Adapter, task: Task, redactor: Redactor) -> Iterator[Batch]:
    """Yield what is new in a source, cut at the adapter's checkpoints.

    Only the last batch has the file's signature: until it is stored, the file counts as changed.
    """
    if task.source.failure:
        raise SourceUnreadable(task.source.failure)
    builder = _Builder(adapter.agent, adapter.version, redactor)
    owner = None if task.has_cursor else task.source.session
    waiting: Batch | None = None
    for record in adapter.read(task.source, _cursor(task)):
        if isinstance(record, Checkpoint):
            if waiting is not None:
                yield waiting
            waiting, owner = builder.take(record, unsettled(task.row), owner), None
        else:
            builder.add(record)
    if waiting is not None:
        waiting.source = waiting.source._replace(mtime_ns=task.row.mtime_ns)
        yield waiting


def unsettled(row: SourceRow) -> SourceRow:
    """A source that the next sweep must open again, whatever its file looks like then."""
    return row._replace(mtime_ns=-1)


def _cursor(task: Task) -> Cursor | None:
    row = task.row
    return Cursor(row.offset, row.line, row.head, row.tail, orjson.loads(row.state)) if task.has_cursor else None


class _Builder:
    """Collects the records between two checkpoints."""

    def __init__(self, agent: str, reader: int, redactor: Redactor) -> None:
        self._agent = agent
        self._reader = reader
        self._redactor = redactor
        self._add = {
            EventRecord: self._add_event,
            SessionInfo: self._add_info,
            Usage: self._add_usage,
            CostTotal: self._add_cost_total,
            BadLine: self._add_bad_line,
            Skipped: self._add_skipped,
        }
        self._clear()

    def _clear(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._usage: list[tuple[Any, ...]] = []
        self._cost_totals: list[CostTotalRow] = []
        self._problems: list[ProblemRow] = []
        self._skipped: dict[str, int] = {}

    def add(self, record: Record) -> None:
        self._add[record.__class__](record)  # type: ignore[operator]

    def _add_event(self, event: EventRecord) -> None:
        stream = self._streams.get(event.native_session_id)
        if stream is None:
            stream = self._streams[event.native_session_id] = _Stream(
                self._agent, event.native_session_id, self._reader, self._redactor
            )
        stream.add(event)

    def _add_usage(self, usage: Usage) -> None:
        row = (
            usage.native_session_id,
            usage.usage_id,
            usage.ts_ms,
            usage.model,
            usage.provider,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.reasoning_tokens,
            usage.usd,
            usage.includes_sub_agents,
        )
        self._usage.append(row)

    def _add_cost_total(self, total: CostTotal) -> None:
        ledger = self._redactor.text(total.ledger)
        self._cost_totals.append(CostTotalRow(total.native_session_id, ledger, total.usd, total.ts_ms))

    def _add_bad_line(self, bad: BadLine) -> None:
        raw = protected_line(self._redactor, bad.raw)
        self._problems.append(ProblemRow(bad.line, bad.offset, self._redactor.text(bad.reason), raw))

    def _add_skipped(self, skipped: Skipped) -> None:
        self._skipped[skipped.native_type] = self._skipped.get(skipped.native_type, 0) + skipped.count

    def _add_info(self, info: SessionInfo) -> None:
        told = {name: value for name in _INFO_FIELDS if (value := getattr(info, name)) is not None}
        if info.title:
            told[f"title_{info.title_rank}"] = info.title
        first = {name: value for name, value in told.items() if name in FIRST_WINS}
        last = {name: value for name, value in told.items() if name not in FIRST_WINS}
        news = {"first": first, "last": last}
        known = self._infos.get(info.native_session_id)
        self._infos[info.native_session_id] = merge_infos(known, news) if known else news

    def take(self, checkpoint: Checkpoint, row: SourceRow, owner: str | None = None) -> Batch:
        """The batch up to a checkpoint; the builder starts anew. One that names nobody is of the session `owner`."""
        if owner is not None and not (self._streams or self._infos or self._usage or self._cost_totals):
            self._infos[owner] = {"first": {}, "last": {}}
        cursor = checkpoint.cursor
        told = [encode(cursor.state), *(encode(info) for info in self._infos.values())]
        state, *infos = protected_json(self._redactor, told)
        if len(state) > STATE_LIMIT_BYTES:
            raise AssertionError(f"adapter state of {len(state)} bytes: {row.agent}")
        source = row._replace(reader=self._reader, state=state.decode(), head=cursor.head, tail=cursor.tail)
        batch = Batch(
            source=source._replace(offset=cursor.offset, line=cursor.line),
            streams=[stream.finish() for stream in self._streams.values()],
            infos={native_id: info.decode() for native_id, info in zip(self._infos, infos, strict=True)},
            usage=self._protected_usage(),
            cost_totals=self._cost_totals,
            problems=self._problems,
            skipped=self._skipped,
            lines=checkpoint.lines,
            bytes=checkpoint.bytes,
            redacted_with=self._redactor.version,
        )
        self._clear()
        return batch

    def _protected_usage(self) -> list[tuple[Any, ...]]:
        for number in self._redactor.suspects([f"{row[1]}\n{row[3]}\n{row[4]}" for row in self._usage]):
            session, *told = self._usage[number]
            self._usage[number] = (session, *protected_names(self._redactor, tuple(told)))
        return self._usage


_NO_FACTS = frozenset({"native_session_id", "title", "title_rank"})
_INFO_FIELDS = tuple(item.name for item in dataclasses.fields(SessionInfo) if item.name not in _NO_FACTS)
_place = EventRow._fields.index
_LANE, _KIND, _FLAGS, _SUMMARY = _place("lane"), _place("kind"), _place("flags"), _place("summary")
_NATIVE_ID, _TOOL, _CALL_ID, _STATUS = (_place(name) for name in ("native_id", "tool", "call_id", "status"))
_MODEL, _PROVIDER = 0, 1  # of the second half of a row
_HANDED_BYTES = 4 * 1024 * 1024
_METADATA = -1  # the last of a row, and of its second half


class _Stream:
    """The new events of one session, and their payloads one after another.

    A row is made in two halves: between them stand its payload's place and hash, known when secrets are out of it.
    """

    def __init__(self, agent: str, native_id: str, reader: int, redactor: Redactor) -> None:
        self._agent = agent
        self._native_id = native_id
        self._session_half = name_half(agent, native_id)
        self._reader = reader
        self._redactor = redactor
        self._numbers: dict[bytes, int] = {}
        self._heads: list[tuple[Any, ...]] = []
        self._tails: list[tuple[Any, ...]] = []
        self._payloads: list[bytes] = []
        self._texts: list[tuple[str, ...] | None] = []
        self._has_words = True
        self._first_blocks: dict[str, bytes] = {}
        self._last: tuple[str, int, bytes] = ("", 0, b"")

    def add(self, event: EventRecord) -> None:
        native_id, block = event.native_id, event.block
        half = name_half(self._agent, f"{native_id}\x1f{block}")
        uid = self._session_half + half
        parent = self._parent(native_id, block, event.parent_native_id)
        self._last = (native_id, block, uid)
        if block == 0:
            self._first_blocks[native_id] = uid
        if event.is_provisional:
            _hide_beginning(self._redactor, event)
        payload, content = encoded(event.payload)
        number = self._numbers.get(uid)
        if number is not None and not self._heads[number][_FLAGS] & IS_PROVISIONAL:
            if event.is_provisional or payload == self._payloads[number]:
                return
            uid, number = second_uid(uid, self._hash(payload)), None
            if uid in self._numbers:
                return
        words = self._words(event.kind, payload, content)
        if number is None:
            self._numbers[uid] = number = len(self._heads)
            self._heads.append(self._head(number, uid, parent, event, half))
            self._tails.append(self._tail(event))
            self._payloads.append(payload)
            self._texts.append(words)
        else:
            self._heads[number] = self._head(number, uid, parent, event, half)
            self._tails[number], self._payloads[number], self._texts[number] = self._tail(event), payload, words

    def _head(self, number: int, uid: bytes, parent: bytes | None, event: EventRecord, half: bytes) -> tuple[Any, ...]:
        return (
            number,
            uid,
            parent,
            event.lane,
            event.position,
            event.native_id,
            event.ts_ms,
            event.kind,
            event.role,
            event.tool,
            event.call_id,
            event.status,
            _flags(event) if event.is_error or event.is_retry or event.is_provisional else 0,
            self._copy_key(event, half),
            bytes.fromhex(event.retry_key) if event.retry_key else None,
            event.summary,
        )

    def _tail(self, event: EventRecord) -> tuple[Any, ...]:
        return (
            event.model,
            event.provider,
            event.content_type,
            event.input_tokens,
            event.output_tokens,
            self._reader,
            encode(event.metadata).decode() if event.metadata else None,
        )

    def _words(self, kind: str, payload: bytes, content: Any) -> tuple[str, ...] | None:
        """What the full text takes of an event; it unpacks by itself what would have to be held here many times."""
        if len(payload) > _HANDED_BYTES:
            self._has_words = False
        columns = columns_of(kind, content) if self._has_words else None
        return None if columns is None else tuple(columns)

    def _hash(self, payload: bytes) -> bytes:
        """The hash of a payload as it will be stored."""
        return hash_payload(self._redactor.payloads([payload]).get(0, payload))

    def _parent(self, native_id: str, block: int, parent: str | None) -> bytes | None:
        last_id, last_block, last_uid = self._last
        if block > last_block and last_id == native_id:
            return last_uid  # a further block of the same record
        if parent is None:
            return None
        return self._first_blocks.get(parent) or self._session_half + name_half(self._agent, f"{parent}\x1f0")

    def _copy_key(self, event: EventRecord, half: bytes) -> int | None:
        """What the record's copies in other sessions have too."""
        if event.is_provisional or event.lane == HISTORY_LANE:
            return None
        if event.copy_key:
            half = name_half(self._agent, f"{event.copy_key}\x1f{event.block}")
        return _number(half)

    def finish(self) -> StreamBatch:
        self._redact()
        rows = []
        start = 0
        for head, tail, payload in zip(self._heads, self._tails, self._payloads, strict=True):
            rows.append((*head, start, len(payload), hash_payload(payload), *tail))
            start += len(payload)
        # Prompts of a history go again when their session is read: they are indexed only if that does not happen.
        texts = self._texts if self._has_words and self._heads[0][_LANE] != HISTORY_LANE else []
        return StreamBatch(self._native_id, rows, compress(b"".join(self._payloads)), texts)

    def _redact(self) -> None:
        for number, content, secrets in self._redactor.iter_changed(self._payloads):
            self._payloads[number] = content
            if self._has_words:
                self._texts[number] = self._words(self._heads[number][_KIND], content, orjson.loads(content))
            self._heads[number] = without_secrets(self._redactor, self._heads[number], secrets)
        names = [
            f"{head[_SUMMARY]}\n{head[_NATIVE_ID]}\n{head[_TOOL]}\n{head[_CALL_ID]}\n{head[_STATUS]}"
            f"\n{tail[_MODEL]}\n{tail[_PROVIDER]}\n{tail[_METADATA]}"
            for head, tail in zip(self._heads, self._tails, strict=True)
        ]
        for number in self._redactor.suspects(names):
            self._heads[number] = protected_names(self._redactor, self._heads[number])
            self._tails[number] = protected_names(self._redactor, self._tails[number])


def _hide_beginning(redactor: Redactor, event: EventRecord) -> None:
    """Have an event that is not complete not end with a piece of a secret, which is not known by its look yet."""
    text = event.payload.get("text") if isinstance(event.payload, dict) else None
    found = redactor.beginning(text) if isinstance(text, str) else None
    if found is not None:
        event.payload = {**event.payload, "text": found[0]}
        event.summary = without_parts(event.summary, [found[1]])


def _number(half: bytes) -> int:
    return int.from_bytes(half, "big", signed=True)


def _flags(event: EventRecord) -> int:
    flags = IS_ERROR if event.is_error else 0
    if event.is_retry:
        flags |= IS_RETRY | TOLD_RETRY
    return flags | IS_PROVISIONAL if event.is_provisional else flags


def encode(value: Any) -> bytes:
    """JSON bytes; what orjson refuses (lone surrogates, numbers over 64 bits) is replaced, never lost whole."""
    return encoded(value)[0]


def encoded(value: Any) -> tuple[bytes, Any]:
    """JSON bytes, and what they hold: the value itself, but for what had to be replaced."""
    try:
        return orjson.dumps(value), value
    except TypeError:
        raw = _encode_loosely(value)
        return raw, orjson.loads(raw)


def _encode_loosely(value: Any) -> bytes:
    try:
        text = json.dumps(value, ensure_ascii=False, default=str)
    except (RecursionError, ValueError):
        return orjson.dumps({"text": "", "unreadable": "nested too deeply, or a number without end"})
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
