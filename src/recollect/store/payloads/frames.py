"""Frames: the payloads of some events of a session, and beside them the rows that describe them.

A frame describes itself: whose it is, which rules of redaction it went through, its events as the adapter read them,
and what was read along with them of tokens, money and the session. So cache.db can be made again from the packs alone.
"""

from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

from recollect.store.batch import Batch, CostTotalRow, EventRow, Facts, StreamBatch, UsageRow
from recollect.store.payloads.packs import Content, Frame, pack_frame, unpack_entry

if TYPE_CHECKING:
    from msgspec import msgpack

FRAME_BYTES = 256 * 1024


class Origin(NamedTuple):
    """Whose frame it is, and which file it was read from."""

    agent: str
    native_id: str
    redacted_with: str
    host: str
    source_kind: str
    source_hash: bytes  # of its path, which may be renamed


class _TypedFacts(NamedTuple):
    info: str | None
    usage: list[UsageRow]
    cost_totals: list[CostTotalRow]


class Description(NamedTuple):
    """What a frame says of itself."""

    origin: Origin
    rows: list[EventRow]
    facts: Facts


@cache
def _codec() -> "tuple[msgpack.Encoder, msgpack.Decoder[tuple[Origin, list[EventRow], _TypedFacts]]]":
    from msgspec import msgpack  # takes time to load, and most sweeps make no frame

    return msgpack.Encoder(), msgpack.Decoder(tuple[Origin, list[EventRow], _TypedFacts])


def origin_of(batch: Batch, native_id: str) -> Origin:
    source = batch.source
    return Origin(
        source.agent, native_id, batch.redacted_with, source.host, source.kind, hash_source(source.host, source.path)
    )


def hash_source(host: str, path: str) -> bytes:
    return sha256(f"{host}\0{path}".encode()).digest()[:8]


def make_frames(
    origin: Origin, rows: Sequence[tuple[Any, ...]], payloads: Sequence[bytes], facts: Facts
) -> list[Frame]:
    """Frames for rows, each with its payload beside it; the facts are in the last one, which may hold nothing else."""
    frames: list[Frame] = []
    begin = size = 0
    for number, payload in enumerate(payloads, start=1):
        size += len(payload)
        if size >= FRAME_BYTES and number < len(payloads):
            frames.append(_frame(origin, rows[begin:number], Facts(), payloads[begin:number]))
            begin, size = number, 0
    if begin < len(payloads) or not facts.is_empty:
        frames.append(_frame(origin, rows[begin:], facts, payloads[begin:]))
    return frames


def _frame(origin: Origin, rows: Sequence[tuple[Any, ...]], facts: Facts, payloads: Sequence[bytes]) -> Frame:
    return pack_frame(_codec()[0].encode((origin, rows, facts)), payloads)


def take_rows(
    origin: Origin, part: StreamBatch, rows: Sequence[tuple[Any, ...]]
) -> tuple[list[tuple[Any, ...]], list[Frame]]:
    """Some rows of a batch, numbered and placed one after another, in frames with their payloads and the facts."""
    stream = b"".join(content.payloads for frame in part.frames if (content := unpack_entry(frame.entry)))
    kept: list[tuple[Any, ...]] = []
    payloads: list[bytes] = []
    start = 0
    for row in map(EventRow._make, rows):
        payloads.append(stream[row.payload_start : row.payload_start + row.payload_bytes])
        kept.append(tuple(row._replace(seq=len(kept), payload_start=start)))
        start += row.payload_bytes
    return kept, make_frames(origin, kept, payloads, part.facts)


def describe(content: Content) -> Description:
    """What a frame says of itself, its rows placed from its own beginning on; raises ValueError if it is not ours."""
    origin, rows, (info, usage, cost_totals) = _codec()[1].decode(content.head)
    start = 0
    for number, row in enumerate(rows):
        rows[number] = row._replace(seq=number, payload_start=start)
        start += row.payload_bytes
    if start != len(content.payloads) or any(row.payload_bytes < 0 for row in rows):
        raise ValueError("rows and payloads of a frame do not fit")
    return Description(origin, rows, Facts(info, usage, cost_totals))


def leave_out_events(batch: Batch, part: StreamBatch, rows: list[tuple[Any, ...]]) -> StreamBatch:
    """A session's part of a batch with these of its rows only, and only their payloads."""
    if len(rows) == len(part.rows):
        return part
    kept, frames = take_rows(origin_of(batch, part.native_id), part, rows)
    return StreamBatch(part.native_id, kept, frames, facts=part.facts, named=part.named, has_events=True)
