"""One source: read it from its cursor and make batches that the store takes as they are.

Runs in reader processes: everything costly (parsing, hashing, compressing) is done before a batch is
handed over, so that the one writer only appends bytes and inserts rows.
"""

import dataclasses
import json
from collections.abc import Iterator
from hashlib import blake2b
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
from recollect.schema import HISTORY_LANE
from recollect.store.batch import (
    IS_ERROR,
    IS_PROVISIONAL,
    IS_RETRY,
    TOLD_RETRY,
    Batch,
    CostTotalRow,
    EventRow,
    ProblemRow,
    SourceRow,
    StreamBatch,
    UsageRow,
    compress,
)
from recollect.store.events import merge_infos


class Task(NamedTuple):
    """A source to read. `row` has the file's signature now and, if it can be gone on from, its cursor."""

    source: Source
    row: SourceRow
    has_cursor: bool


def read_batches(adapter: Adapter, task: Task) -> Iterator[Batch]:
    """Yield what is new in a source, cut at the adapter's checkpoints."""
    builder = _Builder(adapter.agent, adapter.version)
    for record in adapter.read(task.source, _cursor(task)):
        if isinstance(record, EventRecord):
            builder.add_event(record)
        elif isinstance(record, Checkpoint):
            yield builder.take(record, task.row)
        else:
            builder.add(record)


def _cursor(task: Task) -> Cursor | None:
    row = task.row
    return Cursor(row.offset, row.line, row.head, row.tail, orjson.loads(row.state)) if task.has_cursor else None


class _Builder:
    """Collects the records between two checkpoints."""

    def __init__(self, agent: str, reader: int) -> None:
        self._agent = agent
        self._reader = reader
        self._last_record: tuple[str, str] | None = None
        self._last_block = 0
        self._last_uid = b""
        self._clear()

    def _clear(self) -> None:
        self._streams: dict[str, _Stream] = {}
        self._infos: dict[str, dict[str, Any]] = {}
        self._usage: list[UsageRow] = []
        self._cost_totals: list[CostTotalRow] = []
        self._problems: list[ProblemRow] = []
        self._skipped: dict[str, int] = {}

    def add_event(self, event: EventRecord) -> None:
        stream = self._streams.get(event.native_session_id)
        if stream is None:
            stream = self._streams[event.native_session_id] = _Stream(event.native_session_id)
        prefix = f"{self._agent}\x1f{event.native_session_id}\x1f"
        uid = _hash16(f"{prefix}{event.native_id}\x1f{event.block}")
        parent = self._parent(event, prefix)
        self._last_record, self._last_block, self._last_uid = (
            (event.native_session_id, event.native_id),
            event.block,
            uid,
        )
        stream.add(event, uid, parent, self._copy_key(event), self._reader)

    def _parent(self, event: EventRecord, prefix: str) -> bytes | None:
        if self._last_record == (event.native_session_id, event.native_id) and event.block > self._last_block:
            return self._last_uid  # a further block of the same record
        if event.parent_native_id is None:
            return None
        return _hash16(f"{prefix}{event.parent_native_id}\x1f0")

    def _copy_key(self, event: EventRecord) -> int | None:
        if event.is_provisional or event.lane == HISTORY_LANE:
            return None
        key = f"{self._agent}\x1f{event.copy_key or event.native_id}\x1f{event.block}"
        digest = blake2b(key.encode("utf-8", "replace"), digest_size=8).digest()
        return int.from_bytes(digest, "big", signed=True)

    def add(self, record: Record) -> None:
        match record:
            case SessionInfo():
                self._add_info(record)
            case Usage():
                self._usage.append(UsageRow(*(getattr(record, name) for name in _USAGE_FIELDS)))
            case CostTotal():
                self._cost_totals.append(
                    CostTotalRow(record.native_session_id, record.ledger, record.usd, record.ts_ms)
                )
            case BadLine():
                self._problems.append(ProblemRow(record.line, record.offset, record.reason, record.raw))
            case Skipped():
                self._skipped[record.native_type] = self._skipped.get(record.native_type, 0) + record.count

    def _add_info(self, info: SessionInfo) -> None:
        told = {name: getattr(info, name) for name in _INFO_FIELDS if getattr(info, name) is not None}
        if info.title:
            told[f"title_{info.title_rank}"] = info.title
        first = {name: value for name, value in told.items() if name in FIRST_WINS}
        last = {name: value for name, value in told.items() if name not in FIRST_WINS}
        news = {"first": first, "last": last}
        known = self._infos.get(info.native_session_id)
        self._infos[info.native_session_id] = merge_infos(known, news) if known else news

    def take(self, checkpoint: Checkpoint, row: SourceRow) -> Batch:
        """The batch up to a checkpoint; the builder starts anew."""
        cursor = checkpoint.cursor
        state = encode(cursor.state)
        if len(state) > STATE_LIMIT_BYTES:
            raise AssertionError(f"adapter state of {len(state)} bytes: {row.agent}")
        batch = Batch(
            source=row._replace(
                offset=cursor.offset,
                line=cursor.line,
                head=cursor.head,
                tail=cursor.tail,
                state=state.decode(),
                reader=self._reader,
            ),
            streams=[stream.finish() for stream in self._streams.values()],
            infos={native_id: encode(info).decode() for native_id, info in self._infos.items()},
            usage=self._usage,
            cost_totals=self._cost_totals,
            problems=self._problems,
            skipped=self._skipped,
            lines=checkpoint.lines,
            bytes=checkpoint.bytes,
        )
        self._clear()
        return batch


_INFO_FIELDS = tuple(
    item.name
    for item in dataclasses.fields(SessionInfo)
    if item.name not in {"native_session_id", "title", "title_rank"}
)
_USAGE_FIELDS = ("native_session_id", *UsageRow._fields[1:])


class _Stream:
    """The new events of one session, and their payloads one after another."""

    def __init__(self, native_id: str) -> None:
        self._native_id = native_id
        self._rows: dict[bytes, EventRow] = {}
        self._payloads: list[bytes] = []
        self._bytes = 0

    def add(self, event: EventRecord, uid: bytes, parent: bytes | None, copy_key: int | None, reader: int) -> None:
        payload = encode(event.payload)
        payload_hash = blake2b(payload, digest_size=16).digest()
        known = self._rows.get(uid)
        if known is not None and not known.flags & IS_PROVISIONAL:
            if known.payload_hash == payload_hash:
                return
            uid = bytes(a ^ b for a, b in zip(uid, payload_hash, strict=True))
        self._rows[uid] = EventRow(
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
            _flags(event),
            copy_key,
            bytes.fromhex(event.retry_key) if event.retry_key else None,
            event.summary,
            self._bytes,
            len(payload),
            payload_hash,
            event.model,
            event.provider,
            event.content_type,
            event.input_tokens,
            event.output_tokens,
            reader,
            encode(event.metadata).decode() if event.metadata else None,
        )
        self._payloads.append(payload)
        self._bytes += len(payload)

    def finish(self) -> StreamBatch:
        return StreamBatch(self._native_id, list(self._rows.values()), compress(b"".join(self._payloads)))


def _flags(event: EventRecord) -> int:
    return (
        (IS_ERROR if event.is_error else 0)
        | (IS_RETRY | TOLD_RETRY if event.is_retry else 0)
        | (IS_PROVISIONAL if event.is_provisional else 0)
    )


def _hash16(key: str) -> bytes:
    return blake2b(key.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def encode(value: Any) -> bytes:
    """JSON bytes; what orjson refuses (lone surrogates, numbers over 64 bits) is replaced, never lost whole."""
    try:
        return orjson.dumps(value)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, default=str)
        return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace").encode()
