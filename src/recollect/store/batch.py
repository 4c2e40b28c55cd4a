"""What a reader hands to the writer: rows and compressed payloads, ready to be stored as they are.

Readers run in processes of their own and do all the costly work; the writer adds what only it knows:
the stream's number, the next seq, and where in the stream the payloads begin.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from recollect.store.packs import Frame


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


@dataclass(slots=True)
class StreamBatch:
    """New events of one session.

    Rows have EventRow's fields but are plain tuples: named ones take five times as long to hand over. So have `texts`
    those of the full text's columns, one for each row or none at all: then the index unpacks the payloads itself.
    """

    native_id: str
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    frames: list[Frame] = field(default_factory=list)
    texts: list[tuple[str, ...] | None] = field(default_factory=list)


class Fresh(NamedTuple):
    """New events of one session whose words are at hand as they are stored: nobody has to unpack them again.

    They have consecutive numbers from `first_event` on; `bytes` and `seq` are the session's with them.
    """

    stream: int
    generation: int
    first_event: int
    texts: Sequence[tuple[str, ...] | None]  # with Columns' fields
    bytes: int
    seq: int


class SourceRow(NamedTuple):
    """What is remembered of a file: its signature, and the cursor up to which it was read."""

    host: str
    agent: str
    path: str
    kind: str
    size: int
    mtime_ns: int
    ctime_ns: int
    inode: int
    reader: int
    offset: int
    line: int
    head: str
    tail: str
    state: str


class UsageRow(NamedTuple):
    native_id: str
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
    includes_sub_agents: bool


class CostTotalRow(NamedTuple):
    native_id: str
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
    infos: dict[str, str] = field(default_factory=dict)  # native session id -> JSON
    usage: list[tuple[Any, ...]] = field(default_factory=list)  # with UsageRow's fields
    cost_totals: list[CostTotalRow] = field(default_factory=list)
    problems: list[ProblemRow] = field(default_factory=list)
    skipped: dict[str, int] = field(default_factory=dict)
    lines: int = 0
    bytes: int = 0
    redacted_with: str = ""  # the version of the rules
    is_adopted: bool = False  # another store read it, and may have marked secrets otherwise

    @property
    def events(self) -> int:
        return sum(len(stream.rows) for stream in self.streams)


def hash_payload(payload: bytes) -> bytes:
    """What a payload is known by, as `payload_hash` of its event."""
    return sha256(payload).digest()[:16]  # most processors have instructions for it
