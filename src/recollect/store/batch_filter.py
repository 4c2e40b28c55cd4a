"""Batches without the sessions that must not be stored."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from recollect.store.batch import Batch, ProblemRow, StreamBatch
from recollect.store.payloads.frames import origin_of, take_rows


def sessions_of(batch: Batch) -> set[str]:
    """Every session a batch has anything of, by native id."""
    return {stream.native_id for stream in batch.streams}


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
        problems=without_text(batch.problems),
        skipped=_counted(batch.skipped, reason, left_out),
    )


def without_text(problems: list[ProblemRow]) -> list[ProblemRow]:
    """Lines that could not be read, as place and reason only: nobody can say whose words they hold."""
    return [problem._replace(raw=b"") for problem in problems]


def leave_out_events(batch: Batch, part: StreamBatch, rows: list[tuple[Any, ...]]) -> StreamBatch:
    """A session's part of a batch with these of its rows only, and only their payloads."""
    if len(rows) == len(part.rows):
        return part
    kept, frames = take_rows(origin_of(batch, part.native_id), part, rows)
    return StreamBatch(part.native_id, kept, frames, facts=part.facts, named=part.named, has_events=True)


def _counted(skipped: dict[str, int], reason: str, count: int) -> dict[str, int]:
    return skipped | {reason: skipped.get(reason, 0) + count} if count else skipped
