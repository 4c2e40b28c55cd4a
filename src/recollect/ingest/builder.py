"""Reads one source from its cursor and makes batches that the store takes as they are.

Runs in reader processes: everything costly (parsing, hashing, compressing) happens before a batch is
handed over, so that the one writer only appends bytes and inserts rows. That includes redaction of what a batch holds
beside its payloads: every text stored with an event, a session or a bad line.
"""

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain, takewhile
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recollect.agentkit.protocol import (
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
from recollect.agentkit.values import storable
from recollect.model.errors import SourceUnreadable
from recollect.model.kinds import HISTORY_LANE, SessionKey, name_half
from recollect.model.text import Columns, columns_of
from recollect.redact import HYPERSCAN, Learned, NamedBefore, RedactionRules, Redactor, load_key
from recollect.store import (
    HIDES_LEARNED,
    IS_CLAMPED,
    IS_ERROR,
    IS_PROVISIONAL,
    IS_REBUILT,
    IS_RETRY,
    MAY_REPEAT,
    TOLD_RETRY,
    Batch,
    CostTotalRow,
    EventRow,
    Facts,
    Origin,
    ProblemRow,
    SourceRow,
    StreamBatch,
    UsageRow,
    hash_payload,
    make_frames,
    merge_infos,
    origin_of,
    second_uid,
)

_SUMMARY, _COPY_KEY, _RETRY_KEY = map(EventRow._fields.index, ("summary", "copy_key", "retry_key"))
_APART = "\n\0\n"  # no secret reaches from one name into the next
_SHARED_CHARS = 6  # this many characters of a secret in a row are a part of it


class Protection(NamedTuple):
    """How a store is protected; each process that reads makes its own redactor from it."""

    folder: Path
    rules: RedactionRules
    named: NamedBefore | None = None

    def redactor(self) -> Redactor:
        return Redactor(self.rules, load_key(self.folder), folder=self.folder, named=self.named)

    def compile_rules(self) -> None:
        """Compile the rules once for all readers, which find them in the store's folder."""
        with suppress(ImportError):  # without Hyperscan there is nothing to compile
            Redactor(self.rules, load_key(self.folder), HYPERSCAN, folder=self.folder)


def without_secrets(redactor: Redactor, values: Sequence[Any], secrets: list[str]) -> list[Any]:
    """The row of an event whose payload held secrets: hashes of them are keyed, pieces of them cut out."""
    row = list(values)
    row[_SUMMARY] = without_parts(redactor.text(row[_SUMMARY]), secrets)
    if row[_RETRY_KEY] is not None:
        row[_RETRY_KEY] = redactor.keyed(row[_RETRY_KEY])
    if row[_COPY_KEY] is not None:
        keyed = redactor.keyed(row[_COPY_KEY].to_bytes(8, "big", signed=True))
        row[_COPY_KEY] = int.from_bytes(keyed, "big", signed=True)
    return row


def without_parts(text: str, secrets: list[str]) -> str:
    """A shortened text without pieces of secrets: cut in the middle, they are not known by their look any more."""
    for secret in secrets:
        line = " ".join(secret.split())
        for start in range(len(line) - _SHARED_CHARS + 1):
            piece = line[start : start + _SHARED_CHARS]
            while (offset := text.find(piece)) >= 0:
                pairs = zip(text[offset:], line[start:], strict=False)
                shared = len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
                text = text[:offset] + "…" + text[offset + shared :]
    return text


def protected_line(redactor: Redactor, raw: bytes) -> bytes:
    """A line that could not be read, without its secrets; its bytes need not be text."""
    try:
        return redactor.text(raw.decode()).encode()
    except UnicodeDecodeError:
        return redactor.text(raw.decode("latin-1")).encode("latin-1", "replace")


def protected_json(redactor: Redactor, documents: list[bytes]) -> list[bytes]:
    changed = redactor.payloads(documents)
    return [changed.get(number, document) for number, document in enumerate(documents)] if changed else documents


def protected_names(redactor: Redactor, values: Sequence[Any]) -> tuple[Any, ...]:
    """A row with the secrets in its own texts replaced; in names and ids only their look gives them away."""
    return tuple(redactor.text(value) if isinstance(value, str) else value for value in values)


def protect_names(redactor: Redactor, rows: list[list[Any]], names_of: Callable[[list[Any]], tuple[Any, ...]]) -> None:
    """Take secrets out of the names in rows.

    Most names are clean and many the same, so first all different ones are looked at together.
    """
    names = set(chain.from_iterable(map(names_of, rows))) - {None}
    if names and redactor.suspects([_APART.join(names)]):
        for number in redactor.suspects([_APART.join(filter(None, names_of(row))) for row in rows]):
            rows[number] = list(protected_names(redactor, rows[number]))


KEPT_BAD_LINES = 1000  # of a file; further ones are only counted


class Task(NamedTuple):
    """A source to read. `row` has the file's current signature and, if reading can continue, its cursor."""

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
    for record in adapter.read(task.source, cursor_of(task)):
        if isinstance(record, Checkpoint):
            if waiting is not None:
                yield waiting
            waiting, owner = builder.take(record, unsettled(task.row), owner), None
        else:
            builder.add(record)
    if waiting is not None:
        waiting.source = waiting.source._replace(mtime_ns=task.row.mtime_ns)
        yield waiting


def batch_of(records: Iterable[Record], row: SourceRow, reader: int, redactor: Redactor) -> Batch:
    """A batch of records that no file holds: a live host has just made them."""
    builder = _Builder(row.agent, reader, redactor)
    for record in records:
        builder.add(record)
    return builder.take(Checkpoint(Cursor(), 0, 0), row)


def unsettled(row: SourceRow) -> SourceRow:
    """A source that the next sweep must open again, whatever its file looks like then."""
    return row._replace(mtime_ns=-1)


def cursor_of(task: Task) -> Cursor | None:
    row = task.row
    return Cursor(row.offset, row.line, row.head, row.tail, orjson.loads(row.state)) if task.has_cursor else None


class _Builder:
    """Collects the records between two checkpoints."""

    def __init__(self, agent: str, reader: int, redactor: Redactor) -> None:
        self._agent = agent
        self._reader = reader
        self._redactor = redactor
        self._bad_lines = 0
        self._learned: dict[SessionKey, Learned] = {}  # of a session with its sub-agents, while a file is read
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
        self._usage: dict[str, list[list[Any]]] = {}
        self._cost_totals: dict[str, list[CostTotalRow]] = {}
        self._problems: list[ProblemRow] = []
        self._skipped: dict[str, int] = {}

    def add(self, record: Record) -> None:
        self._add[record.__class__](record)  # type: ignore[operator]

    def _add_event(self, event: EventRecord) -> None:
        stream = self._streams.get(event.native_session_id)
        if stream is None:
            root = SessionKey(self._agent, event.native_session_id).root
            if root not in self._learned:
                self._learned[root] = self._redactor.learned(root)
            stream = self._streams[event.native_session_id] = _Stream(
                self._agent,
                event.native_session_id,
                self._reader,
                self._redactor,
                self._learned[root],
            )
        stream.add(event)

    def _add_usage(self, usage: Usage) -> None:
        self._usage.setdefault(usage.native_session_id, []).append(list(_usage_row(usage)))

    def _add_cost_total(self, total: CostTotal) -> None:
        row = CostTotalRow(self._redactor.text(total.ledger), total.usd, total.ts_ms)
        self._cost_totals.setdefault(total.native_session_id, []).append(row)

    def _add_bad_line(self, bad: BadLine) -> None:
        self._bad_lines += 1
        if self._bad_lines > KEPT_BAD_LINES:
            self._add_skipped(Skipped(f"unreadable line after the first {KEPT_BAD_LINES:,}"))
            return
        raw = protected_line(self._redactor, bad.raw)
        self._problems.append(ProblemRow(bad.line, bad.offset, self._redactor.text(bad.reason), raw))

    def _add_skipped(self, skipped: Skipped) -> None:
        self._skipped[skipped.native_type] = self._skipped.get(skipped.native_type, 0) + skipped.count

    def _add_info(self, info: SessionInfo) -> None:
        facts = {name: value for name in _INFO_FIELDS if (value := getattr(info, name)) is not None}
        if info.title:
            facts[f"title_{info.title_rank}"] = info.title
        first = {name: value for name, value in facts.items() if name in FIRST_WINS}
        last = {name: value for name, value in facts.items() if name not in FIRST_WINS}
        later = {"first": first, "last": last}
        earlier = self._infos.get(info.native_session_id)
        self._infos[info.native_session_id] = merge_infos(earlier, later) if earlier else later

    def take(self, checkpoint: Checkpoint, row: SourceRow, owner: str | None = None) -> Batch:
        """The batch up to a checkpoint; the builder starts anew. A batch that names no session belongs to `owner`."""
        if owner is not None and not (self._streams or self._infos or self._usage or self._cost_totals):
            self._infos[owner] = {"first": {}, "last": {}}
        cursor = checkpoint.cursor
        documents = [encode(cursor.state), *(encode(info) for info in self._infos.values())]
        state, *infos = protected_json(self._redactor, documents)
        if len(state) > STATE_LIMIT_BYTES:
            raise AssertionError(f"adapter state of {len(state)} bytes: {row.agent}")
        source = row._replace(reader=self._reader, state=state.decode(), head=cursor.head, tail=cursor.tail)
        batch = Batch(
            source=source._replace(offset=cursor.offset, line=cursor.line),
            problems=self._problems,
            skipped=self._skipped,
            lines=checkpoint.lines,
            bytes=checkpoint.bytes,
            redacted_with=self._redactor.version,
        )
        texts = {native_id: info.decode() for native_id, info in zip(self._infos, infos, strict=True)}
        for native_id in dict.fromkeys([*self._streams, *texts, *self._usage, *self._cost_totals]):
            usage = self._usage.get(native_id, [])
            protect_names(self._redactor, usage, _usage_names)
            facts = Facts(texts.get(native_id), list(map(tuple, usage)), self._cost_totals.get(native_id, ()))
            origin, stream = origin_of(batch, native_id), self._streams.get(native_id)
            batch.streams.append(
                stream.finish(origin, facts)
                if stream
                else StreamBatch(native_id, frames=make_frames(origin, (), (), facts), facts=facts)
            )
        self._clear()
        return batch


_NO_FACTS = frozenset({"native_session_id", "title", "title_rank"})
_INFO_FIELDS = tuple(item.name for item in dataclasses.fields(SessionInfo) if item.name not in _NO_FACTS)
_usage_row = attrgetter(*UsageRow._fields)
_NUMBERED = ("lane", "position", "kind", "flags", "payload_start")
_LANE, _POSITION, _KIND, _FLAGS, _PAYLOAD = map(EventRow._fields.index, _NUMBERED)
_EVENT_NAMES = ("summary", "native_id", "tool", "call_id", "status", "model", "provider", "metadata")
_event_names = itemgetter(*map(EventRow._fields.index, _EVENT_NAMES))
_usage_names = itemgetter(*map(UsageRow._fields.index, ("usage_id", "model", "provider")))
_MOST_TEXT_BYTES = 4 * 1024 * 1024


class _Stream:
    """The new events of one session: a row each, with its payload and its words beside it."""

    def __init__(self, agent: str, native_id: str, reader: int, redactor: Redactor, learned: Learned) -> None:
        self._agent = agent
        self._native_id = native_id
        self._learned = learned
        self._session_half = name_half(agent, native_id)
        self._reader = reader
        self._redactor = redactor
        self._numbers: dict[bytes, int] = {}
        self._rows: list[list[Any]] = []
        self._payloads: list[bytes] = []
        self._texts: list[Columns | None] = []
        self._has_texts = True
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
        if number is not None and not self._rows[number][_FLAGS] & IS_PROVISIONAL:
            if event.is_provisional or payload == self._payloads[number]:
                row = self._rows[number]
                if not event.is_clamped and (row[_FLAGS] & IS_CLAMPED or event.position > row[_POSITION]):
                    row[_POSITION], row[_FLAGS] = event.position, row[_FLAGS] & ~IS_CLAMPED
                return
            stored = self._redactor.payloads([payload]).get(0, payload)
            uid, number = second_uid(uid, hash_payload(stored)), None
            if uid in self._numbers:
                return
        texts = self._texts_of(event.kind, payload, content)
        if number is None:
            self._numbers[uid] = number = len(self._rows)
            self._rows.append(self._row(number, uid, parent, event, half))
            self._payloads.append(payload)
            self._texts.append(texts)
        else:
            self._rows[number] = self._row(number, uid, parent, event, half)
            self._payloads[number], self._texts[number] = payload, texts

    def _row(self, number: int, uid: bytes, parent: bytes | None, event: EventRecord, half: bytes) -> list[Any]:
        """An EventRow; `finish` fills in where its payload is and its hash, once secrets are out of it."""
        return [
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
            _flags(event),
            self._copy_key(event, half),
            bytes.fromhex(event.retry_key) if event.retry_key else None,
            event.summary,
            0,
            0,
            b"",
            event.model,
            event.provider,
            event.content_type,
            event.input_tokens,
            event.output_tokens,
            self._reader,
            encode(event.metadata).decode() if event.metadata else None,
        ]

    def _texts_of(self, kind: str, payload: bytes, content: Any) -> Columns | None:
        """What the full text takes of an event. It unpacks a large payload itself: here it would be held many times."""
        if len(payload) > _MOST_TEXT_BYTES:
            self._has_texts = False
        return columns_of(kind, content) if self._has_texts else None

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
        return int.from_bytes(half, "big", signed=True)

    def finish(self, origin: Origin, facts: Facts) -> StreamBatch:
        self._redact()
        start = 0
        for row, payload in zip(self._rows, self._payloads, strict=True):
            row[_PAYLOAD : _PAYLOAD + 3] = start, len(payload), hash_payload(payload)
            start += len(payload)
        rows = list(map(tuple, self._rows))
        # Prompts of a history go again when their session is read: they are indexed only if that does not happen.
        texts = self._texts if self._has_texts and rows[0][_LANE] != HISTORY_LANE else []
        frames, named = make_frames(origin, rows, self._payloads, facts), self._learned.take_new()
        return StreamBatch(self._native_id, rows, frames, texts, facts, named=named)

    def _redact(self) -> None:
        for number, content, secrets, is_learned in self._redactor.changes(self._payloads, self._learned):
            self._payloads[number] = content
            if self._has_texts:
                self._texts[number] = self._texts_of(self._rows[number][_KIND], content, orjson.loads(content))
            row = self._rows[number] = without_secrets(self._redactor, self._rows[number], secrets)
            row[_FLAGS] |= HIDES_LEARNED if is_learned else 0
        protect_names(self._redactor, self._rows, _event_names)


def _hide_beginning(redactor: Redactor, event: EventRecord) -> None:
    """Cut from the end of an unfinished event what may be the beginning of a secret."""
    text = event.payload.get("text") if isinstance(event.payload, dict) else None
    beginning = redactor.beginning(text) if isinstance(text, str) else None
    if beginning is not None:
        redacted, secret = beginning
        event.payload = {**event.payload, "text": redacted}
        event.summary = without_parts(event.summary, [secret])


def _flags(event: EventRecord) -> int:
    flags = (IS_ERROR if event.is_error else 0) | (IS_REBUILT if event.is_rebuilt else 0)
    if event.is_retry:
        flags |= IS_RETRY | TOLD_RETRY
    flags |= (IS_CLAMPED if event.is_clamped else 0) | (MAY_REPEAT if event.may_repeat else 0)
    return flags | IS_PROVISIONAL if event.is_provisional else flags


def encode(value: Any) -> bytes:
    """JSON bytes; what orjson refuses (lone surrogates, numbers over 64 bits) is replaced, never lost whole."""
    return encoded(value)[0]


def encoded(value: Any) -> tuple[bytes, Any]:
    """JSON bytes, and what they hold: the value itself, but for what had to be replaced."""
    try:
        return orjson.dumps(value), value
    except TypeError:
        value = storable(value)
        return orjson.dumps(value), value
