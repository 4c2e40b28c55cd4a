"""The one memory of a Codex rollout while it is read: a fold over its lines.

Everything that a later line needs to know of earlier ones is in `State`, which goes into the cursor.
So a file read at once and a file read in pieces pass through the same states and give the same events.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec
import orjson

from recollect.adapters.codex_text import short_hash
from recollect.adapters.commands import parse_time_ms
from recollect.adapters.protocol import EventRecord, Record, SessionInfo
from recollect.schema import USER_MSG

AGENT = "codex"
BLOCKS = 256  # room for the blocks of one record in a position
# Room in a position for each millisecond between two rewinds: 2,048 ordinals.
SEGMENT_SPAN = 2**19
LAST_MS = 2**42  # in the year 2109; with the span it keeps a position below 2**62
_TIMED_ID = re.compile("([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-")  # a UUIDv7 begins with its time

# Bounds of what is remembered: together well below the 64 KiB a cursor may carry.
KEPT_CALLS = 160
KEPT_TEXTS = 600
KEPT_ECHOES = 16
KEPT_PROMPTS = 100
KEPT_CHARS = 64

# What the decoders raise on a damaged record; bytes that are no UTF-8 are no DecodeError to msgspec.
MALFORMED = (msgspec.DecodeError, UnicodeDecodeError, orjson.JSONDecodeError, RecursionError)

# How much of a call's result has been told.
OPEN, RUNNING, REFUSED, TOLD = range(4)


class Call(msgspec.Struct, array_like=True):
    """A call whose result may still come, and where the result was first told."""

    native_id: str
    tool: str
    told: int = OPEN
    position: int = 0
    ts_ms: int | None = None


class State(msgspec.Struct, omit_defaults=True):
    """What is remembered from line to line. Every collection in it is bounded."""

    thread: str = ""
    unit: str = ""  # the file's own id: the thread's, or that of a rewind's segment
    lineage: str = ""  # whose records the file begins with: the thread itself, or what it is a copy of
    has_name: bool = False  # whether the file's name says which thread it is
    is_paginated: bool = False
    has_events: bool = False
    is_sub_agent: bool = False
    start_ms: int | None = None  # of a log without times: given to its first event
    ordinal: int = -1
    previous: str | None = None
    prompt: str | None = None
    prompt_parent: str | None = None
    model: str | None = None
    provider: str | None = None
    cwd: str | None = None
    instructions: str | None = None
    scripts: dict[str, list[str]] = {}  # open scripts by call id: hashes of what they name
    shells: int = 0  # commands of the user told as an item, whose twin message is still to come
    totals: dict[str, int] | None = None
    calls: dict[str, Call] = {}
    texts: dict[str, int] = {}
    echoes: list[list[str]] = []
    prompts: list[int] = []

    @property
    def origin(self) -> str:
        return self.lineage or self.thread


class Fold:
    """Reads one record after the other; `out` collects what they tell."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.out: list[Record] = []
        self.skipped: dict[str, int] = {}
        self._timestamp: Any = None
        self.position = 0
        self.here = ""
        self.is_lossy = False
        self.is_rewritten = False
        self.is_at_start = False
        self._start = segment_start(state.unit) if state.unit != state.thread else 0

    def move_to(self, offset: int, ordinal: Any, timestamp: Any) -> None:
        """Take the place of the next record: its ordinal where it has a good one, else its offset."""
        state = self.state
        self.is_at_start = offset == 0
        self._timestamp = timestamp
        if type(ordinal) is int and state.ordinal < ordinal < 2**40:
            state.ordinal, state.is_paginated = ordinal, True
            self.position, self.here = ordinal * BLOCKS, f"{state.unit}:{ordinal}"
        elif state.is_paginated:
            # An ordinal lost or told twice: stay behind the last good one, under a name no ordinal has.
            self.position, self.here = state.ordinal * BLOCKS + BLOCKS // 2, f"{state.unit}:@{offset}"
        else:
            self.position, self.here = offset * BLOCKS, f"{state.unit}:{offset}"
        self.position += self._start

    @property
    def ts_ms(self) -> int | None:
        """The record's time, parsed only for records that tell something."""
        return parse_time_ms(self._timestamp) if self._timestamp is not None else None

    def skip(self, native_type: str) -> None:
        self.skipped[native_type] = self.skipped.get(native_type, 0) + 1

    def inform(self, **facts: Any) -> None:
        self.out.append(SessionInfo(self.state.thread, **facts))

    def tell(self, kind: str, payload: dict[str, Any], summary: str, **fields: Any) -> EventRecord:
        """Add an event. `native_id`, `position` and times default to those of the record being read."""
        state = self.state
        block = fields.get("block", 0)
        event = EventRecord(
            state.thread,
            fields.pop("native_id", None) or self.here,
            fields.pop("position", self.position) + block,
            fields.pop("ts_ms") if "ts_ms" in fields else self.ts_ms,
            kind,
            payload,
            summary,
            **fields,
        )
        if event.parent_native_id is None:
            event.parent_native_id = state.previous
        if event.parent_native_id == event.native_id and not block:
            event.parent_native_id = None
        if kind == USER_MSG:
            self._chain_prompt(event)
        self._finish(event)
        return event

    def _chain_prompt(self, event: EventRecord) -> None:
        """Two requests after the same event would look like one asked again: the second follows the first."""
        state = self.state
        if state.prompt is not None and event.parent_native_id == state.prompt_parent:
            event.parent_native_id = state.prompt
        else:
            state.prompt_parent = event.parent_native_id
        state.prompt = event.native_id

    def _finish(self, event: EventRecord) -> None:
        state = self.state
        if state.start_ms is not None:
            event.ts_ms, state.start_ms = event.ts_ms or state.start_ms, None
        if self.is_lossy:
            event.metadata = {**(event.metadata or {}), "lossy": True}
        event.is_provisional = event.is_provisional or self.is_rewritten
        state.previous, state.has_events = event.native_id, True
        self.out.append(event)

    def copy_key(self, native_type: str, text: str) -> str | None:
        """The same for a record and its copy in a fork or resume, which have neither id nor place in common.

        It names the log the record comes from, so that equal words in unrelated sessions are no copies,
        and counts equal texts. Paginated logs refer to their base and copy nothing.
        """
        state = self.state
        if state.is_paginated:
            return None
        key = short_hash(state.origin, native_type, text)
        number = state.texts.pop(key, 0)
        state.texts[key] = number + 1
        if len(state.texts) > KEPT_TEXTS:
            del state.texts[next(iter(state.texts))]
        return f"{key}:{number}"

    def assistant(self) -> dict[str, Any]:
        return {"role": "assistant", "model": self.state.model, "provider": self.state.provider}

    def native_id(self, value: Any) -> str:
        """A record's own id if it can be trusted to be unique in its session, else its place."""
        return value if is_own_id(value) else self.here


def segment_start(unit: str) -> int:
    """Where the positions of a rewind's segment begin: after its base, whose ordinals it counts on from.

    Taken from the time in the segment's id, so it is the same whichever file is read first.
    An id without a time begins at 0, among the base's events.
    """
    found = _TIMED_ID.match(unit)
    return min(int(found[1] + found[2], 16), LAST_MS) * SEGMENT_SPAN if found else 0


def native(**fields: Any) -> dict[str, Any]:
    """The native fields of a payload, without the absent ones."""
    return {name: plain(value) for name, value in fields.items() if value is not None}


def plain(value: Any, depth: int = 0) -> Any:
    """A value that any JSON writer takes: no number beyond 64 bits, no endless nesting."""
    if isinstance(value, str | bool | float) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if depth > 100:
        return "nested too deeply"
    if isinstance(value, list):
        return [plain(part, depth + 1) for part in value]
    return {str(key): plain(part, depth + 1) for key, part in value.items()}


def payload_of(
    key: str, value: Any, fields: Mapping[str, Any], media: list[dict[str, Any]] | None = None
) -> dict[str, Any]:
    payload: dict[str, Any] = {key: value}
    if media:
        payload["media"] = media
    if fields:
        payload["native"] = fields
    return payload


def is_own_id(value: Any) -> bool:
    """Whether an id looks made to be unique: small models call every call `call_0`."""
    return isinstance(value, str) and 16 <= len(value) <= KEPT_CHARS and value.isascii()


def bounded(value: Any) -> str | None:
    """A string fit for the state; others are as good as absent."""
    return value if isinstance(value, str) and 0 < len(value) <= 128 else None


def state_key(call_id: str) -> str:
    return call_id if len(call_id) <= KEPT_CHARS and call_id.isascii() else short_hash(call_id)
