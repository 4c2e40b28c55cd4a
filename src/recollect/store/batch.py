"""What a reader hands to the writer: rows and compressed payloads, ready to be stored as they are.

Readers run in processes of their own and do all the costly work; the writer adds what only it knows:
the stream's number, the next seq, and where in the stream the payloads begin.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple

from recollect.model.text import Columns
from recollect.redact import NamedValue
from recollect.store.payloads.packs import Frame
from recollect.store.tables.sources import SourceRow as SourceRow


class EventRow(NamedTuple):
    """An event as stored, but for its stream; `seq` and `payload_start` count from the batch's start."""

    seq: int
    event_uid: bytes
    parent_uid: bytes | None
    lane: str
    position: int
    native_id: str
    ts_ms: int | None
    kind: str
    role: str | None
    tool: str | None
    call_id: str | None
    status: str | None
    flags: int
    copy_key: int | None
    retry_key: bytes | None
    summary: str
    payload_start: int
    payload_bytes: int
    payload_hash: bytes
    model: str | None
    provider: str | None
    content_type: str | None
    input_tokens: int | None
    output_tokens: int | None
    reader: int
    metadata: str | None


class Facts(NamedTuple):
    """What was read along with a session's events: what the source says of the session (JSON), tokens and money."""

    info: str | None = None
    usage: Sequence[tuple[Any, ...]] = ()  # with the fields of UsageRow
    cost_totals: Sequence[tuple[Any, ...]] = ()  # with the fields of CostTotalRow

    @property
    def is_empty(self) -> bool:
        return not (self.info or self.usage or self.cost_totals)


@dataclass(slots=True)
class StreamBatch:
    """What is new of one session: rows of events, and frames that hold them with their payloads and the facts.

    Rows have EventRow's fields but are plain tuples, which are quicker to make. `texts` are what the full text takes of
    each row; if there are none, the index unpacks the payloads itself.
    """

    native_id: str
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    frames: Sequence[Frame] = ()
    texts: Sequence[Columns | None] = ()
    facts: Facts = field(default_factory=Facts)
    named: Sequence[NamedValue] = ()  # values that were first marked by their names here
    has_events: bool = False  # even where none of them is new: then the source is one of the session's

    def __post_init__(self) -> None:
        self.has_events = self.has_events or bool(self.rows)


class Fresh(NamedTuple):
    """New events of one session whose words are at hand as they are stored: nobody has to unpack them again.

    They have consecutive numbers from `first_event` on; `bytes` and `seq` are the session's with them.
    """

    stream: int
    generation: int
    first_event: int
    texts: Sequence[Columns | None]
    bytes: int
    seq: int


class UsageRow(NamedTuple):
    usage_id: str
    ts_ms: int | None
    model: str | None
    provider: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usd: float | None
    includes_sub_agents: bool | int
    cache_write_1h_tokens: int
    web_searches: int
    requests: int


class CostTotalRow(NamedTuple):
    ledger: str
    usd: float
    ts_ms: int | None


class ProblemRow(NamedTuple):
    line: int | None
    offset: int | None
    reason: str
    raw: bytes


@dataclass(slots=True)
class Batch:
    """Everything between two checkpoints of one source: stored in one transaction, cursor included."""

    source: SourceRow
    streams: list[StreamBatch] = field(default_factory=list)
    problems: list[ProblemRow] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    bytes: int = 0
    redacted_with: str = ""  # the version of the rules
    is_adopted: bool = False  # another store read it, and may have marked secrets otherwise

    @property
    def events(self) -> int:
        return sum(len(stream.rows) for stream in self.streams)

    @property
    def infos(self) -> dict[str, str]:
        """What is said of sessions as JSON, by native id."""
        return {stream.native_id: stream.facts.info for stream in self.streams if stream.facts.info}


def hash_payload(payload: bytes) -> bytes:
    """Return what a payload is known by, as `payload_hash` of its event."""
    return sha256(payload).digest()[:16]  # most processors have instructions for it


def sessions_of(batch: Batch) -> set[str]:
    """Return every session a batch has anything of, by native id."""
    return {stream.native_id for stream in batch.streams}


def leave_out(batch: Batch, sessions: Collection[str], reason: str) -> Batch:
    """Return the batch without these sessions; their events are counted as skipped for that reason.

    Its source is settled, so that an unchanged file is not opened again, but keeps no cursor: a state may hold
    words, and a reader without one must see a file's beginning to know whose it is.
    """
    if not sessions:
        return batch
    streams = [stream for stream in batch.streams if stream.native_id not in sessions]
    left_out = batch.events - sum(len(stream.rows) for stream in streams)
    counted = {reason: batch.skipped.get(reason, 0) + left_out} if left_out else {}
    return replace(
        batch,
        source=batch.source._replace(offset=0, line=0, head="", tail="", state="{}"),
        streams=streams,
        problems=without_text(batch.problems),
        skipped=batch.skipped | counted,
    )


def without_text(problems: list[ProblemRow]) -> list[ProblemRow]:
    """Lines that could not be read, as place and reason only: it is unknown whose words they hold."""
    return [problem._replace(raw=b"") for problem in problems]
