"""A Codex rollout while it is read.

Everything that a later line needs of earlier ones is in `State`, which goes into the cursor: a file read at once and a
file read in pieces pass through the same states and yield the same events.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from recollect.agentkit.log import Log
from recollect.agentkit.protocol import EventRecord, Record, SessionInfo
from recollect.agentkit.values import parse_time_ms, remember, short_hash, storable
from recollect.kinds import USER_MSG

BLOCKS = 256  # room for the blocks of one record in a position
# Room in a position for each millisecond between two rewinds: 2,048 ordinals.
SEGMENT_SPAN = 2**19
LAST_MS = 2**42  # in the year 2109; with the span it keeps a position below 2**62
_TIMED_ID = re.compile("([0-9a-f]{8})-([0-9a-f]{4})-7[0-9a-f]{3}-")  # a UUIDv7 begins with its time

# Bounds of what is remembered: together well below the 64 KiB a cursor may hold.
KEPT_CALLS = 160
KEPT_TEXTS = 600
KEPT_ECHOES = 16
KEPT_PROMPTS = 100
KEPT_CHARS = 64

# What is known of a call's result. CUT: the item has not all of it, and the output may have more.
OPEN, RUNNING, REFUSED, CUT, DONE = range(5)


class Call(msgspec.Struct, array_like=True, gc=False):
    """A call whose result may still come, and where the first report of its result was."""

    native_id: str
    tool: str
    result: int = OPEN
    position: int = 0
    ts_ms: int | None = None
    is_failed: bool = False
    chars: int = 0  # of the longest result so far
    head: str = ""  # of a result that is RUNNING: the hash of its text
    facts: dict[str, Any] = {}  # of a result that is CUT: what only the item has


class State(msgspec.Struct, omit_defaults=True, gc=False):
    """What is remembered from line to line. Every collection in it is bounded."""

    thread: str = ""
    unit: str = ""  # the file's own id: the thread's, or that of a rewind's segment
    lineage: str = ""  # whose records the file begins with: the thread itself, or what it is a copy of
    has_name: bool = False  # the file's name names the thread
    is_paginated: bool = False
    has_events: bool = False
    start_ms: int | None = None  # of a log without times: given to its first event
    ordinal: int = -1
    previous: str | None = None
    prompt: str | None = None
    prompt_parent: str | None = None
    model: str | None = None
    provider: str | None = None
    has_cwd: bool = False
    instructions: str | None = None
    scripts: dict[str, list[str]] = {}  # open scripts by call id: hashes of what they name
    commands: dict[str, list[str]] = {}  # open scripts by call id: hashes of the commands that were read off them
    printed: dict[str, list[int]] = {}  # open scripts by call id: whose each part of their output is
    shells: int = 0  # commands of the user read as items, whose twin messages are still to come
    totals: list[int] | None = None
    calls: dict[str, Call] = {}
    texts: dict[str, int] = {}
    echoes: list[list[str]] = []
    prompts: list[int] = []

    @property
    def origin(self) -> str:
        return self.lineage or self.thread


class Rollout(Log):
    """The record being read, and `out`: what it yields."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self.state = state
        self.out: list[Record] = []
        self.offset = 0
        self.position = 0
        self.is_lossy = False
        self.is_rewritten = False
        self._timestamp: Any = None
        self._ts_ms: int | None = None
        self._has_ordinal = False
        self._start = segment_start(state.unit) if state.unit != state.thread else 0

    def dump(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = msgspec.to_builtins(self.state)
        return state

    def move_to(self, offset: int, ordinal: Any, timestamp: Any) -> None:
        """Take the position of the next record: its ordinal where it has a good one, else its offset."""
        state = self.state
        self.offset = offset
        self._timestamp = timestamp
        self._ts_ms = None
        self._has_ordinal = ordinal.__class__ is int and state.ordinal < ordinal < 2**40
        if self._has_ordinal:
            state.ordinal, state.is_paginated = ordinal, True
            self.position = ordinal * BLOCKS + self._start
        elif state.is_paginated:  # an ordinal is missing, or came before: stay behind the last good one
            self.position = state.ordinal * BLOCKS + BLOCKS // 2 + self._start
        else:
            self.position = offset * BLOCKS + self._start

    @property
    def here(self) -> str:
        """The record's place as a native id. One without a good ordinal gets a name that no ordinal has."""
        state = self.state
        if self._has_ordinal:
            return f"{state.unit}:{state.ordinal}"
        return f"{state.unit}:@{self.offset}" if state.is_paginated else f"{state.unit}:{self.offset}"

    @property
    def ts_ms(self) -> int | None:
        """The record's time, parsed only for records that need it."""
        if self._ts_ms is None and self._timestamp is not None:
            self._ts_ms = parse_time_ms(self._timestamp)
            self._timestamp = None
        return self._ts_ms

    def add_info(self, **facts: Any) -> None:
        self.out.append(SessionInfo(self.state.thread, **facts))

    def add(
        self,
        kind: str,
        payload: Mapping[str, Any],
        summary: str,
        *,
        role: str | None = None,
        native_id: str | None = None,
        block: int = 0,
        position: int | None = None,
        ts_ms: int | None = None,
        parent: str | None = None,
        tool: str | None = None,
        call_id: str | None = None,
        status: str | None = None,
        is_provisional: bool = False,
        copy_key: str | None = None,
        retry_key: str | None = None,
        by_model: bool = False,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Add an event. `native_id`, `position` and time default to those of the record being read."""
        state = self.state
        if native_id is None:
            native_id = self.here
        parent = self._parent(parent, native_id, block, kind)
        if ts_ms is None:
            ts_ms = self.ts_ms
        if state.start_ms is not None:
            ts_ms, state.start_ms = ts_ms or state.start_ms, None
        if self.is_lossy:
            metadata = {**(metadata or {}), "lossy": True}
        state.previous, state.has_events = native_id, True
        self.out.append(
            EventRecord(
                state.thread,
                native_id,
                (self.position if position is None else position) + block,
                ts_ms,
                kind,
                payload,
                summary,
                block,
                "",
                parent,
                role,
                tool,
                call_id,
                status,
                status in _FAILED,
                status == "retrying",
                is_provisional or self.is_rewritten,
                copy_key,
                retry_key,
                state.model if by_model else None,
                state.provider if by_model else None,
                metadata=metadata,
            )
        )

    def _parent(self, parent: str | None, native_id: str, block: int, kind: str) -> str | None:
        """What an event follows: the one before it, unless `parent` is given."""
        state = self.state
        if parent is None:
            parent = state.previous
        if parent == native_id and not block:
            parent = None
        if kind == USER_MSG:
            # The second of two requests after one event follows the first, or they would look like one.
            if state.prompt is not None and parent == state.prompt_parent:
                parent = state.prompt
            else:
                state.prompt_parent = parent
            state.prompt = native_id
        return parent

    def copy_key(self, native_type: str, text: str) -> str | None:
        """The same for a record and its copy in a fork or resume, which share neither id nor position.

        It names the log the record comes from, so that equal words in unrelated sessions are no copies, and counts
        equal texts. Paginated logs refer to their base and copy nothing.
        """
        state = self.state
        if state.is_paginated:
            return None
        key = short_hash(state.origin, native_type, text)
        number = state.texts.get(key, 0)
        remember(state.texts, key, number + 1, KEPT_TEXTS)
        return f"{key}:{number}"

    def native_id(self, value: Any) -> str:
        """A record's own id if it can be trusted to be unique in its session, else its place."""
        return value if is_own_id(value) else self.here


_FAILED = frozenset({"failed", "denied", "retrying"})


def segment_start(unit: str) -> int:
    """Where the positions of a rewind's segment begin: after its base, whose ordinals it continues.

    Taken from the time in the segment's id, so that the order of reading does not matter. An id without a time begins
    at 0, among the base's events.
    """
    match = _TIMED_ID.match(unit)
    return min(int(match[1] + match[2], 16), LAST_MS) * SEGMENT_SPAN if match else 0


def native(**fields: Any) -> dict[str, Any]:
    """The native fields of a payload, without the absent ones."""
    return {
        name: value if value.__class__ is str else storable(value)
        for name, value in fields.items()
        if value is not None
    }


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
    """Whether an id looks unique: small models name every call `call_0`."""
    return value.__class__ is str and 16 <= len(value) <= KEPT_CHARS and value.isascii()


def bounded(value: Any) -> str | None:
    """A text short enough for the state."""
    return value if isinstance(value, str) and 0 < len(value) <= 128 else None


def state_key(call_id: str) -> str:
    return call_id if len(call_id) <= KEPT_CHARS and call_id.isascii() else short_hash(call_id)
