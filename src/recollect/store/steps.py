"""What the distiller reads of a session: its events as light rows, its responses' tokens, single payloads."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from recollect.store.batch import IS_ABANDONED, IS_ERROR, IS_RETRY
from recollect.store.events import Events
from recollect.store.sqlite import Database


class Step(NamedTuple):
    """One event, without its payload: of a big store a hundred thousand of these are read in a sweep."""

    event_uid: bytes
    lane: str
    ts_ms: int | None
    kind: str
    role: str | None
    tool: str | None
    call_id: str | None
    status: str | None
    flags: int
    is_copy: int
    retry_key: bytes | None
    summary: str
    payload_start: int
    payload_bytes: int
    model: str | None

    @property
    def uid(self) -> str:
        return self.event_uid.hex()

    @property
    def is_error(self) -> bool:
        return bool(self.flags & IS_ERROR)

    @property
    def is_retry(self) -> bool:
        return bool(self.flags & IS_RETRY)

    @property
    def is_abandoned(self) -> bool:
        return bool(self.flags & IS_ABANDONED)


class Spent(NamedTuple):
    """The tokens of one response of the model."""

    ts_ms: int | None
    model: str | None
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    reasoning_tokens: int
    usd: float | None


_COLUMNS = ", ".join("copy_of IS NOT NULL" if name == "is_copy" else name for name in Step._fields)
_SELECT_STEPS = f"SELECT {_COLUMNS} FROM events WHERE stream = ? ORDER BY lane, position, event_uid"
_SELECT_SPENT = (
    f"SELECT {', '.join(Spent._fields)} FROM usage WHERE stream = ? AND NOT is_copy ORDER BY ts_ms, usage_id"
)


class Steps:
    """Whole sessions of Tier 1, as the distiller sees them."""

    def __init__(self, database: Database, events: Events) -> None:
        self._database = database
        self._events = events

    def of(self, stream: int) -> list[Step]:
        """A session's events in reading order."""
        return list(map(Step._make, self._database.rows(_SELECT_STEPS, (stream,))))

    def spent(self, stream: int) -> list[Spent]:
        """What a session's own responses used, oldest first; copies are counted where they were made."""
        return list(map(Spent._make, self._database.rows(_SELECT_SPENT, (stream,))))

    def payloads(self, agent: str, native_id: str, steps: Iterable[Step]) -> dict[bytes, dict[str, Any]]:
        """The payloads of some events, by event; each frame is unpacked once."""
        wanted = sorted(steps, key=lambda step: step.payload_start)
        return dict(self._iter_payloads(agent, native_id, wanted))

    def _iter_payloads(
        self, agent: str, native_id: str, wanted: Sequence[Step]
    ) -> Iterator[tuple[bytes, dict[str, Any]]]:
        if not wanted:
            return
        places = [(step.payload_start, step.payload_bytes) for step in wanted]
        for step, raw in zip(wanted, self._events.iter_payloads(agent, native_id, places), strict=True):
            yield step.event_uid, orjson.loads(raw) if raw else {}
