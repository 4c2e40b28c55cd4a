"""Batches without the sessions that must not be stored."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from recollect.store.batch import Batch, EventRow, ProblemRow, StreamBatch
from recollect.store.packs import compress, decompress


def sessions_of(batch: Batch) -> set[str]:
    """Every session a batch tells anything of, by native id."""
    told = {stream.native_id for stream in batch.streams} | set(batch.infos)
    return told | {row[0] for row in batch.usage} | {row.native_id for row in batch.cost_totals}


def leave_out(batch: Batch, sessions: Collection[str], reason: str) -> Batch:
    """The batch without these sessions; their events are counted as skipped for that reason.

    Its source is settled, so that an unchanged file is not opened again, but keeps no cursor: a state may hold
    words, and a reader without one must see a file's beginning to know whose it is.
    """
    if not sessions:
        return batch
    streams = [stream for stream in batch.streams if stream.native_id not in sessions]
    left_out = batch.events - sum(len(stream.rows) for stream in streams)
    return replace(
        batch,
        source=batch.source._replace(offset=0, line=0, head="", tail="", state="{}"),
        streams=streams,
        infos={name: info for name, info in batch.infos.items() if name not in sessions},
        usage=[row for row in batch.usage if row[0] not in sessions],
        cost_totals=[row for row in batch.cost_totals if row.native_id not in sessions],
        problems=without_text(batch.problems),
        skipped=_counted(batch.skipped, reason, left_out),
    )


def without_text(problems: list[ProblemRow]) -> list[ProblemRow]:
    """Lines that could not be read, as place and reason only: nobody can say whose words they hold."""
    return [problem._replace(raw=b"") for problem in problems]


def leave_out_events(stream: StreamBatch, rows: list[tuple[Any, ...]]) -> StreamBatch:
    """The stream with these of its rows only, and only their payloads."""
    content = decompress(frame.content for frame in stream.frames)
    kept: list[tuple[Any, ...]] = []
    pieces: list[bytes] = []
    start = 0
    for seq, row in enumerate(map(EventRow._make, rows)):
        pieces.append(content[row.payload_start : row.payload_start + row.payload_bytes])
        kept.append(tuple(row._replace(seq=seq, payload_start=start)))
        start += row.payload_bytes
    return StreamBatch(stream.native_id, kept, compress(b"".join(pieces)))


def _counted(skipped: dict[str, int], reason: str, count: int) -> dict[str, int]:
    return skipped | {reason: skipped.get(reason, 0) + count} if count else skipped
