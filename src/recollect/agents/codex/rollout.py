"""A Codex rollout while it is read.

Everything that a later line needs of earlier ones is in `State`, which goes into the cursor: a file read at once and a
file read in pieces pass through the same states and yield the same events.
Beside it is what says who a session is: its origin, its relations to others, its model, instructions and tokens.
"""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from recollect.agentkit.log import Log
from recollect.agentkit.protocol import EventRecord, Record, SessionInfo, Usage
from recollect.agentkit.values import as_mapping, as_text, parse_time_ms, positive_int, remember, short_hash, storable
from recollect.agents.codex.text import Instructions, name_instructions
from recollect.model.kinds import AUTOMATION, HUMAN, LIFECYCLE, SUB_AGENT, USER_MSG

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


class Meta(msgspec.Struct, gc=False):
    """Who a session is. The vendor's instructions (20 KB in every file) are not even decoded."""

    id: Any = None
    session_id: Any = None
    timestamp: Any = None
    cwd: Any = None
    originator: Any = None
    cli_version: Any = None
    source: Any = None
    model_provider: Any = None
    git: Any = None
    instructions: Any = None
    parent_thread_id: Any = None
    agent_nickname: Any = None
    agent_role: Any = None
    agent_path: Any = None
    forked_from_id: Any = None
    forked_from_ordinal_exclusive: Any = None
    history_base: Any = None


class Item(msgspec.Struct, gc=False):
    """What is read of any record or item but `Meta`; older events have `call_id`, `stdout` and `success`."""

    type: Any = None
    id: Any = None
    call_id: Any = None
    content: Any = None
    phase: Any = None
    text: Any = None
    summary_text: Any = None
    raw_content: Any = None
    command: Any = None
    cwd: Any = None
    parsed_cmd: Any = None
    source: Any = None
    status: Any = None
    success: Any = None
    aggregated_output: Any = None
    exit_code: Any = None
    duration: Any = None
    changes: Any = None
    stdout: Any = None
    stderr: Any = None
    server: Any = None
    tool: Any = None
    arguments: Any = None
    invocation: Any = None
    result: Any = None
    error: Any = None
    kind: Any = None
    agent_thread_id: Any = None
    agent_path: Any = None
    receiver_thread_ids: Any = None
    new_thread_id: Any = None
    query: Any = None
    action: Any = None
    results: Any = None
    path: Any = None
    saved_path: Any = None
    revised_prompt: Any = None
    content_items: Any = None
    review: Any = None
    fragments: Any = None
    role: Any = None
    author: Any = None
    recipient: Any = None
    internal_chat_message_metadata_passthrough: Any = None
    summary: Any = None
    turn_id: Any = None
    message: Any = None
    reason: Any = None
    codex_error_info: Any = None
    duration_ms: Any = None
    num_turns: Any = None
    thread_name: Any = None
    window_id: Any = None
    window_number: Any = None
    previous_window_id: Any = None
    images: Any = None
    local_images: Any = None
    name: Any = None
    namespace: Any = None
    input: Any = None
    output: Any = None
    tools: Any = None
    model: Any = None
    state: Any = None
    response_id: Any = None
    usage: Any = None
    info: Any = None


def add_first_line(rollout: Rollout, meta: Meta) -> None:
    """The first line of a bare log has its only time, which the first event takes."""
    rollout.state.start_ms = parse_time_ms(meta.timestamp)
    add_meta(rollout, meta)


def add_meta(rollout: Rollout, meta: Meta) -> None:
    state = rollout.state
    own = bounded(meta.id) or bounded(meta.session_id)
    if own is None:
        return
    if not state.lineage and (own == state.thread or not state.has_name or rollout.offset == 0):
        # The first `session_meta` is the file's identity: whatever follows may be a copy of another session's.
        # A rewind's file is named <thread>_<segment>; elsewhere the id in the name is the thread's.
        state.unit = state.unit if state.unit != state.thread else own
        state.thread = state.lineage = own
    elif own != state.thread:
        if state.has_events:
            rollout.skip("session_meta (of a copied session)")
        else:  # the file begins with a copy of that session
            state.lineage = own
            rollout.add_info(base_native_id=own)
        return
    _add_facts(rollout, meta)


def _add_facts(rollout: Rollout, meta: Meta) -> None:
    state = rollout.state
    state.provider = bounded(meta.model_provider) or state.provider
    git = as_mapping(meta.git)
    rollout.add_info(
        born_ms=rollout.ts_ms or parse_time_ms(meta.timestamp),
        cwd=as_text(meta.cwd),
        git_remote=as_text(git.get("repository_url")),
        git_branch=as_text(git.get("branch")),
        agent_version=as_text(meta.cli_version),
        provider=state.provider,
        **_relations(rollout, meta),
    )
    state.has_cwd = state.has_cwd or as_text(meta.cwd) is not None
    if isinstance(meta.instructions, str) and meta.instructions.strip():
        add_instructions(rollout, name_instructions(None, meta.instructions))


def _relations(rollout: Rollout, meta: Meta) -> dict[str, Any]:
    """What the session is to others: a sub-agent, a fork, a rewind, or none of these."""
    thread = rollout.state.thread
    base = as_mapping(meta.history_base)
    forked_from = bounded(meta.forked_from_id)
    facts: dict[str, Any] = {"session_class": _session_class(meta), **_sub_agent(meta, thread)}
    if forked_from and forked_from != thread:
        end = meta.forked_from_ordinal_exclusive
        end = base.get("end_ordinal_exclusive") if end is None else end
        facts |= {"base_native_id": forked_from, "base_end": str(end) if type(end) is int else None}
    # A fork's base is history too, but not its own; a fork that was rewound has both.
    if (not forked_from or rollout.state.unit != thread) and type(base.get("end_ordinal_exclusive")) is int:
        _add_rewind(rollout, meta, base)
    return facts


def _session_class(meta: Meta) -> str:
    if isinstance(meta.source, dict) and "subagent" in meta.source:
        return SUB_AGENT
    return AUTOMATION if meta.originator == "codex_exec" or meta.source == "exec" else HUMAN


def _sub_agent(meta: Meta, thread: str) -> dict[str, Any]:
    spawn = as_mapping(as_mapping(as_mapping(meta.source).get("subagent")).get("thread_spawn"))
    parent = bounded(meta.parent_thread_id) or bounded(spawn.get("parent_thread_id"))
    if parent is None:
        return {}
    root = bounded(meta.session_id)
    names = {
        "nickname": as_text(meta.agent_nickname or spawn.get("agent_nickname")),
        "role": as_text(meta.agent_role or spawn.get("agent_role")),
        "path": as_text(meta.agent_path or spawn.get("agent_path")),
    }
    return {
        "parent_native_id": parent,
        "root_native_id": root if root and root != thread else parent,
        # A task given by path is encrypted: the last part of the path is all that says what it is.
        "title": names["path"].rpartition("/")[2] if names["path"] else None,
        "title_rank": 1,
        "metadata": {name: value for name, value in names.items() if value} or None,
    }


def _add_rewind(rollout: Rollout, meta: Meta, base: Any) -> None:
    """A segment of the same thread: the base's events from there on are left behind."""
    end = base["end_ordinal_exclusive"]
    if not 0 <= end < 2**40 or rollout.state.has_events:
        return
    # The base is a segment of this thread, or the thread's first file. An id older than the thread names what the
    # thread was forked from: then all of its own file is left behind.
    unit = bounded(base.get("thread_id")) or ""
    start = segment_start(unit) if unit > rollout.state.thread else 0
    rollout.add(
        LIFECYCLE,
        {"text": "rewound", "native": native(history_base=base)},
        "rewound",
        role="system",
        ts_ms=parse_time_ms(meta.timestamp),
        metadata={"rewind_to": start + end * BLOCKS},
    )


def add_context(rollout: Rollout, context: Item) -> None:
    state = rollout.state
    model = bounded(context.model)
    if model and model != state.model:
        state.model = model
        rollout.add_info(model=model, provider=state.provider)
    add_cwd(rollout, as_text(context.cwd))


def add_cwd(rollout: Rollout, cwd: str | None) -> None:
    if cwd and not rollout.state.has_cwd:
        rollout.state.has_cwd = True
        rollout.add_info(cwd=cwd)


def add_world_state(rollout: Rollout, world: Item) -> None:
    file = as_mapping(as_mapping(world.state).get("agents_md"))
    if isinstance(file.get("text"), str) and file["text"].strip():
        add_instructions(rollout, name_instructions(as_text(file.get("directory")), file["text"]))


def add_instructions(rollout: Rollout, instructions: Instructions | None) -> None:
    if instructions and rollout.state.instructions != instructions["sha256"]:
        rollout.state.instructions = instructions["sha256"]
        rollout.add_info(instructions=(instructions,))


_FIGURES = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


def add_record(rollout: Rollout, record: Item) -> None:
    _add(rollout, _figures(record.usage), bounded(record.response_id) or rollout.here)


def _figures(usage: Any) -> list[int]:
    get = as_mapping(usage).get
    return [positive_int(get(name)) for name in _FIGURES]


def _add(rollout: Rollout, figures: list[int], usage_id: str) -> None:
    """Tokens of one response; the log counts cached input as input, the schema does not."""
    if not any(figures):
        return
    state = rollout.state
    sent, cached, written, output, reasoning = figures
    sent = max(0, sent - cached - written)
    model, provider = state.model, state.provider
    rollout.out.append(
        Usage(state.thread, usage_id, rollout.ts_ms, model, provider, sent, output, cached, written, reasoning)
    )


def add_totals(rollout: Rollout, record: Item) -> None:
    """Tokens since the last total. The first total, and one that is smaller than the last, starts a new count."""
    state, info = rollout.state, as_mapping(record.info)
    totals = as_mapping(info.get("total_token_usage"))
    if not totals:
        return
    now = _figures(totals)
    last, state.totals = state.totals, now
    if last == now:
        return
    if last and all(new >= old for new, old in zip(now, last, strict=True)):
        spent = [new - old for new, old in zip(now, last, strict=True)]
    elif response := as_mapping(info.get("last_token_usage")):
        spent = _figures(response)
    else:
        spent = now
    _add(rollout, spent, f"{state.origin}:total:{now[0]}/{now[3]}")
