"""What the distiller reads of a session: its events as light rows, its responses' tokens, single payloads."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from recollect.schema import FILES_LANE
from recollect.store.events import Events
from recollect.store.flags import IS_ABANDONED, IS_ERROR, IS_RETRY
from recollect.store.sqlite import Database


class Step(NamedTuple):
    """One event, without its payload: of a big store a hundred thousand of these are read in a sweep."""

    event_uid: bytes
    ts_ms: int | None
    kind: str
    role: str | None
    tool: str | None
    call_id: str | None
    status: str | None
    flags: int
    is_copy: int
    retry_key: bytes | None  # of retries only
    summary: str
    payload_start: int
    payload_bytes: int

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


_SELECTED = {"is_copy": "copy_of IS NOT NULL", "retry_key": f"iif(flags & {IS_RETRY}, retry_key, NULL)"}
_SELECT_STEPS = (
    f"SELECT {', '.join(_SELECTED.get(name, name) for name in Step._fields)} FROM events"
    f" WHERE stream = ? AND lane <> '{FILES_LANE}' ORDER BY lane, position, event_uid"
)
_SELECT_SPENT = f"SELECT {', '.join(Spent._fields)} FROM usage WHERE stream = ? AND NOT is_copy ORDER BY usage_id"


class Steps:
    """Whole sessions of Tier 1, as the distiller sees them."""

    def __init__(self, database: Database, events: Events) -> None:
        self._database = database
        self._events = events

    def of(self, stream: int) -> list[Step]:
        """A session's events in reading order, but for side files, which have no place in it."""
        return list(map(Step._make, self._database.rows(_SELECT_STEPS, (stream,))))

    def count(self, stream: int) -> int:
        """How many events are held of a session, side files included."""
        return int(self._database.value("SELECT count(*) FROM events WHERE stream = ?", (stream,)))

    def spent(self, stream: int) -> list[Spent]:
        """What a session's own responses used; copies are counted where they were made."""
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
