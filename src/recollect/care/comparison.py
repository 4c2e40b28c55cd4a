"""What is read of a file held against what is stored of it."""

from recollect.redact import without_rules
from recollect.schema import HISTORY_LANE, QUEUE_ONLY, STAND_IN_LANE
from recollect.store import (
    HIDES_LEARNED,
    IS_PROVISIONAL,
    MAY_REPEAT,
    Batch,
    EventRow,
    RawCache,
    StreamBatch,
    second_uid,
    unpack_entry,
)

_STAND_INS = (HISTORY_LANE, STAND_IN_LANE)  # dropped once the log itself is held


def count_changed(raw: RawCache, batch: Batch) -> int:
    """How many events of a file are held as something else."""
    agent = batch.source.agent
    # Not one that was forgotten, nor one that other rules have redacted.
    kept = (stream for stream in batch.streams if raw.rules(agent, stream.native_id) == batch.redacted_with)
    return sum(_changed_events(raw, agent, stream) for stream in kept)


def _changed_events(raw: RawCache, agent: str, stream: StreamBatch) -> int:
    rows = [EventRow._make(row) for row in stream.rows]
    held = raw.stored([row.event_uid for row in rows])
    missing, other = 0, []
    for row in rows:
        stored = held.get(row.event_uid)
        if stored is None:
            is_dropped = row.lane in _STAND_INS or row.status == QUEUE_ONLY or row.flags & MAY_REPEAT
            missing += not is_dropped
        elif (
            not (row.flags | stored.flags) & (IS_PROVISIONAL | HIDES_LEARNED)
            and stored.payload_hash != row.payload_hash
        ):
            other += [] if raw.stored([second_uid(row.event_uid, row.payload_hash)]) else [row]
    return missing + (_differing(raw, agent, stream, other) if other else 0)


def _differing(raw: RawCache, agent: str, stream: StreamBatch, rows: list[EventRow]) -> int:
    """How many of these tell something else than what is held, whichever rule found a secret in it first."""
    held = raw.find(agent, stream.native_id)
    if held is None:
        return 0  # forgotten meanwhile
    content = b"".join(part.payloads for frame in stream.frames if (part := unpack_entry(frame.entry)))
    read = {row.event_uid: content[row.payload_start : row.payload_start + row.payload_bytes] for row in rows}
    stored = {row.event_uid: payload or b"" for row, payload in raw.iter_events(held)}
    return sum(without_rules(stored.get(uid, b"")) != without_rules(new) for uid, new in read.items())
