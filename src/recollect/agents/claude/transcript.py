"""What is decoded of a line of a Claude Code log, and what is remembered between lines and over a cursor.

Every field of a line is `Any`: a string where an object is usual must not cost the entry. Fields without a name here
are never built, which makes the bulk of a log (wire requests, twins of tool results) cheap.

Everything in a `Transcript` follows from the lines before, never from where a piece of the file ended, and every
collection drops its oldest entry at a fixed size: so any cut of a file yields the same events, and the state stays
below the contract's limit whatever a log holds (see `test_state_stays_small`).
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

import msgspec
import orjson

from recollect.agentkit.log import MALFORMED, Log
from recollect.agentkit.protocol import EventRecord
from recollect.agentkit.values import as_id, as_mapping, remember, storable
from recollect.model.kinds import is_queued_again, may_tell_queued


class Queue:
    """Prompts typed while Claude Code works, since the last checkpoint, that have no record of their own yet.

    Most come again as one. Some do not: up to about 2.1.40 a prompt sent to the model within a turn left no other
    record, and one that still waited when the program ended never does. Only those become events. Why a prompt left the
    queue is not clear from the log: `remove` is written for delivered and for withdrawn prompts, with or without the
    text.

    Nothing of it is kept over a cursor: if the record comes after the checkpoint, the store drops the queued one.
    """

    def __init__(self) -> None:
        self._waiting: list[EventRecord] = []

    def add(self, prompt: EventRecord) -> None:
        self._waiting.append(prompt)

    def settle(self, events: Iterable[EventRecord]) -> None:
        """Drop the prompts that came as these events."""
        if self._waiting:
            for event in events:
                self._waiting = [prompt for prompt in self._waiting if not _is_delivered(prompt, event)]

    def drain(self) -> list[EventRecord]:
        waiting, self._waiting = self._waiting, []
        return waiting


def _is_delivered(prompt: EventRecord, event: EventRecord) -> bool:
    if prompt.retry_key != event.retry_key or prompt.native_session_id != event.native_session_id:
        return False
    return may_tell_queued(event.ts_ms, prompt.ts_ms)


KEPT_SKIPPED = 360
KEPT_CHAINED = 110
KEPT_CALLS = 40
KEPT_SPAWNS = 16
KEPT_MESSAGES = 32
KEPT_LEAVES = 40
KEPT_QUEUED = 16
KEPT_AGENTS = 16
RECORD_CHARS = 44  # of an entry's id: a uuid has 36, and `request_` may precede it
NAME_CHARS = 80  # of any other name; a sub-agent's session id has about 60
# A position is the time of a record, its number within that millisecond, and the block.
_BLOCK_BITS, _TICK_BITS, _TIME_BITS = 8, 12, 42


class Transcript(Log):
    """What later entries of one log need of earlier ones."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()
        self.session: str | None = as_id(state.get("session"))
        self.last_time: str | None = as_id(state.get("time"))
        self.first_time: str | None = as_id(state.get("born"))
        self.is_warm_up = state.get("warm_up") is True
        self.has_worked = state.get("worked") is True
        self.asks_nobody = state.get("asks_nobody") is True  # in its mode the agent asks for no permission
        self.fork: list[str] | None = state.get("fork")
        self.last_model: str | None = as_id(state.get("model"))
        self._warm_ups: dict[str, Any] = dict.fromkeys(state.get("warm_ups") or ())
        self._skipped = _ungrouped(state.get("skipped"))
        self._chains = _ungrouped(state.get("chains"))
        self._calls: dict[str, Any] = dict(state.get("calls") or ())
        self._spawns: dict[str, Any] = dict(state.get("spawns") or ())
        self._messages: dict[str, Any] = dict.fromkeys(state.get("messages") or ())
        self._leaves = _ungrouped(state.get("leaves"))
        self._queued: dict[str, int] = dict(state.get("queued") or ())
        self._agents: dict[str, Any] = dict(state.get("agents") or ())
        self._clock_ms: int
        self._tick: int  # the records since the clock's last move
        self._back_ms: int  # by how much one of them was older than the clock
        self._clock_ms, self._tick, self._back_ms = state.get("clock") or (0, 0, 0)

    def dump(self) -> dict[str, Any]:
        """The state to hand to the cursor."""
        state = {
            "session": self.session,
            "time": self.last_time,
            "born": self.first_time,
            "warm_up": self.is_warm_up,
            "worked": self.has_worked,
            "asks_nobody": self.asks_nobody,
            "fork": self.fork,
            "model": self.last_model,
            "warm_ups": list(self._warm_ups),
            "skipped": _grouped(self._skipped),
            "chains": _grouped(self._chains),
            "calls": [list(pair) for pair in self._calls.items()],
            "spawns": [list(pair) for pair in self._spawns.items()],
            "messages": list(self._messages),
            "leaves": _grouped(self._leaves),
            "queued": [list(pair) for pair in self._queued.items()],
            "agents": [list(pair) for pair in self._agents.items()],
            "clock": [self._clock_ms, self._tick, self._back_ms],
        }
        return {name: value for name, value in state.items() if value}

    def note_warm_up(self, lane: str) -> None:
        """Remember that an inline sidechain only warms the prompt cache."""
        _keep(self._warm_ups, lane, None, KEPT_SPAWNS)

    def is_warm_up_lane(self, lane: str) -> bool:
        return lane in self._warm_ups

    def next_position(self, ts_ms: int | None) -> tuple[int, int]:
        """The position of the next record, and by how many milliseconds it is clamped.

        Records are in the order of their file, and among other files by their times: a session may be spread over
        several, so offsets say nothing. A time before that of an earlier record of the file counts as that one's.
        """
        if ts_ms is not None and self._clock_ms < ts_ms < 1 << _TIME_BITS:
            self._clock_ms, self._tick, self._back_ms = ts_ms, 0, 0
        else:
            self._back_ms = max(self._back_ms, 1 if ts_ms is None else self._clock_ms - ts_ms)
            self._tick += 1
            self._clock_ms += self._tick >> _TICK_BITS
            self._tick %= 1 << _TICK_BITS
        return ((self._clock_ms << _TICK_BITS) + self._tick) << _BLOCK_BITS, self._back_ms

    def is_queued_again(self, words: str | None, ts_ms: int | None) -> bool:
        """Whether a prompt just queued is one that the program put back: some versions do so every 80 ms."""
        if words is None or ts_ms is None:
            return False
        is_again = is_queued_again(ts_ms, self._queued.get(words))
        remember(self._queued, words, ts_ms, KEPT_QUEUED)
        return is_again

    def note_delivered(self, words: str | None, ts_ms: int | None) -> None:
        """Remember when a prompt that was queued came as a record of its own."""
        if words in self._queued and ts_ms is not None:
            self._queued[words] = ts_ms

    def is_delivered_again(self, words: str | None, ts_ms: int | None) -> bool:
        """Whether a queued prompt that just came inside a turn came so a moment ago."""
        return words is not None and self.is_queued_again(f"{words} delivered", ts_ms)

    def pass_over(self, uuid: str | None, parent: str | None) -> None:
        """Remember an entry that makes no event, so that what follows it follows its parent."""
        if uuid is not None:
            _keep(self._skipped, uuid, self.resolve(parent), KEPT_SKIPPED, RECORD_CHARS)

    def resolve(self, uuid: str | None) -> str | None:
        """The nearest entry that made an event; ancestors are resolved on the way in, so one step does."""
        return self._skipped.get(uuid, uuid) if uuid is not None else None

    def chain(self, uuid: str, parent: str | None) -> str:
        """The first entry of the inline sidechain that an entry belongs to (itself, if it starts one)."""
        first = self._chains.get(parent, uuid) if parent is not None else uuid
        _keep(self._chains, uuid, first, KEPT_CHAINED, RECORD_CHARS)
        return first or uuid

    def follow(self, session: str, uuid: str) -> str | None:
        """The record of a sub-agent that its next one follows, which the parent's log does not say."""
        last = self.last_of(session)
        _keep(self._agents, session, uuid, KEPT_AGENTS)
        return last

    def last_of(self, session: str) -> str | None:
        return self._agents.get(session)

    def open_call(self, call_id: str, tool: str) -> None:
        _keep(self._calls, call_id, tool, KEPT_CALLS)

    def close_call(self, call_id: str | None) -> str | None:
        """The tool of the call that a result answers, if known."""
        return self._calls.pop(call_id, None) if call_id is not None else None

    def spawn(self, prompt_key: str, call_id: str) -> None:
        _keep(self._spawns, prompt_key, call_id, KEPT_SPAWNS)

    def find_spawn(self, prompt_key: str) -> str | None:
        return self._spawns.get(prompt_key)

    def is_first_of_message(self, message_id: str | None) -> bool:
        """Whether this is the first event of a model's answer, which is written one block to a line."""
        if message_id is None or message_id in self._messages:
            return message_id is None
        _keep(self._messages, message_id, None, KEPT_MESSAGES)
        return True

    def remember(self, uuid: str, session: str) -> None:
        """Remember an entry that made events."""
        _keep(self._leaves, uuid, session, KEPT_LEAVES)

    def find_leaf(self, uuid: str | None) -> str | None:
        return self._leaves.get(uuid) if uuid is not None else None


def _keep(entries: dict[str, Any], key: str, value: str | None, limit: int, chars: int = NAME_CHARS) -> None:
    if len(key) <= chars and (value is None or len(value) <= chars):
        remember(entries, key, value, limit)


def _grouped(entries: Mapping[str, str | None]) -> list[list[Any]]:
    """Entries in their order, equal values side by side written once: most come in long runs."""
    groups: list[list[Any]] = []
    for key, value in entries.items():
        if groups and groups[-1][0] == value:
            groups[-1][1].append(key)
        else:
            groups.append([value, [key]])
    return groups


def _ungrouped(groups: Iterable[tuple[str | None, list[str]]] | None) -> dict[str, str | None]:
    return {key: value for value, keys in groups or () for key in keys}


# Every JSON value but an object: with it a field takes whatever a log holds.
_NoObject = str | int | float | bool | list[msgspec.Raw] | None


_NOTHING = msgspec.Raw()


class ResultFacts(msgspec.Struct, gc=False, omit_defaults=True):
    """The fields of `toolUseResult` that the text of the result, its twin, does not have."""

    status: Any = None
    isAsync: Any = None
    agentId: Any = None
    agentType: Any = None
    resolvedModel: Any = None
    totalDurationMs: Any = None
    totalTokens: Any = None
    totalToolUseCount: Any = None
    interrupted: Any = None
    returnCodeInterpretation: Any = None
    backgroundTaskId: Any = None
    persistedOutputPath: Any = None
    persistedOutputSize: Any = None
    type: Any = None
    filePath: Any = None
    userModified: Any = None
    structuredPatch: Any = None
    # The texts that `structuredPatch` is from: needed to restore its tabs, and not kept.
    originalFile: msgspec.Raw = _NOTHING
    originalFileContents: msgspec.Raw = _NOTHING
    content: msgspec.Raw = _NOTHING
    oldString: Any = None
    newString: Any = None
    replaceAll: Any = None
    edits: Any = None
    answers: Any = None
    annotations: Any = None
    taskId: Any = None
    shellId: Any = None
    exitCode: Any = None
    durationSeconds: Any = None
    searchCount: Any = None


_TEXTS = ("originalFile", "originalFileContents", "content", "oldString", "newString", "replaceAll", "edits")


def take_texts(facts: ResultFacts) -> dict[str, Any]:
    """The texts of an edit, taken out of the facts that are kept; empty for one that has none."""
    texts = {name: getattr(facts, name) for name in _TEXTS}
    for name, value in texts.items():
        setattr(facts, name, _NOTHING if isinstance(value, msgspec.Raw) else None)
    return {name: _parsed(value) for name, value in texts.items()} if facts.structuredPatch else {}


def _parsed(value: Any) -> Any:
    if not isinstance(value, msgspec.Raw):
        return value
    try:
        return msgspec.json.decode(value) if value else None
    except MALFORMED:
        return None


class Attachment(msgspec.Struct, gc=False):
    """The attachments that are read: queued prompts, instruction files, reports of hooks."""

    type: Any = None
    prompt: Any = None
    commandMode: Any = None
    origin: Any = None
    files: Any = None


class Progress(msgspec.Struct, gc=False):
    """What a running tool reports: of a sub-agent each of its messages, as its own log has them."""

    type: Any = None
    agentId: Any = None
    message: msgspec.Raw = _NOTHING


class Message(msgspec.Struct, gc=False):
    """A message of the model's service. `usage` stays as written: it is mostly that of the entry before."""

    id: Any = None
    model: Any = None
    content: Any = None
    stop_reason: Any = None
    stop_sequence: Any = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


class Entry(msgspec.Struct, gc=False):
    """One line of a transcript, its fields in about the order Claude Code writes them."""

    parentUuid: Any = None
    logicalParentUuid: Any = None
    isSidechain: Any = None
    promptId: Any = None
    agentId: Any = None
    attachment: Attachment | _NoObject = None
    data: Progress | _NoObject = None
    parentToolUseID: Any = None
    message: Message | _NoObject = None
    thinkingDurationMs: Any = None
    apiBlockIndex: Any = None
    requestId: Any = None
    type: Any = None
    subtype: Any = None
    uuid: Any = None
    timestamp: Any = None
    isMeta: Any = None
    isCompactSummary: Any = None
    isVisibleInTranscriptOnly: Any = None
    toolUseResult: ResultFacts | _NoObject = None
    toolDenialKind: Any = None
    userFeedback: Any = None
    interruptedMessageId: Any = None
    interruptedByShutdown: Any = None
    permissionMode: Any = None
    origin: Any = None
    promptSource: Any = None
    turnOrigin: Any = None
    thinkingMetadata: Any = None
    imagePasteIds: Any = None
    sandboxed: Any = None
    sourceToolAssistantUUID: Any = None
    sourceToolUseID: Any = None
    permissionDecision: Any = None
    effort: Any = None
    advisorModel: Any = None
    attributionAgent: Any = None
    attributionSkill: Any = None
    attributionPlugin: Any = None
    attributionMcpServer: Any = None
    attributionMcpTool: Any = None
    isAbortedMidStream: Any = None
    error: Any = None
    errorDetails: Any = None
    isApiErrorMessage: Any = None
    apiErrorStatus: Any = None
    apiErrorType: Any = None
    entrypoint: Any = None
    cwd: Any = None
    sessionId: Any = None
    version: Any = None
    gitBranch: Any = None
    forkedFrom: Any = None
    summary: Any = None
    leafUuid: Any = None
    aiTitle: Any = None
    customTitle: Any = None
    totalCostUSD: Any = None
    startTime: Any = None


decode_entry = msgspec.json.Decoder(Entry).decode


def parse_whole(raw: bytes) -> Any:
    """Every field of an entry, for kinds that this version does not know."""
    try:
        return storable(msgspec.json.decode(raw))
    except MALFORMED:
        return raw.decode("utf-8", "replace")


_NO_MESSAGE = Message()


def message_of(entry: Entry) -> Message:
    """An entry's message; an empty one where the log has something else."""
    return entry.message if entry.message.__class__ is Message else _NO_MESSAGE


@lru_cache(maxsize=1)  # needed for the event and for the account, and the same in entry after entry
def parse_usage(raw: bytes) -> dict[str, Any]:
    """The tokens of a message; empty for what is no object. Not to be changed: it is shared."""
    return _parse_object(raw)


def join_spread_text(entry: Entry, raw: bytes) -> None:
    """Join a text that some versions spread over the message: {"0": "A", "1": "P", …}.

    Where the service's answer was not read as a stream, the text is that stream: then the answer in it is taken.
    """
    whole = parse_whole(raw)
    message = whole.get("message") if isinstance(whole, dict) else None
    if isinstance(message, dict) and "0" in message:
        text = "".join(str(message[key]) for key in message if key.isdecimal())
        answer = _read_stream(text)
        entry.message = msgspec.convert(answer, Message) if answer else Message(content=text)


def _read_stream(text: str) -> dict[str, Any]:
    """The message that a stream of server-sent events holds; empty if it is none."""
    message: dict[str, Any] = {}
    blocks: dict[Any, dict[str, Any]] = {}
    for line in text.splitlines():
        event = _parse_object(line.removeprefix("data:")) if line.startswith("data:") else {}
        if event.get("type") == "message_start":
            message |= as_mapping(event.get("message"))
        elif event.get("type") == "content_block_start":
            blocks[event.get("index")] = dict(as_mapping(event.get("content_block")))
        elif event.get("type") == "content_block_delta":
            _extend(blocks.setdefault(event.get("index"), {"type": "text"}), as_mapping(event.get("delta")))
        elif event.get("type") == "message_delta":
            message |= as_mapping(event.get("delta"))
            message["usage"] = {**as_mapping(message.get("usage")), **as_mapping(event.get("usage"))}
    for block in blocks.values():
        if partial := block.pop("partial_json", ""):
            block["input"] = _parse_object(partial) or partial
    usage = msgspec.Raw(orjson.dumps(message.get("usage")))
    return {**message, "content": list(blocks.values()), "usage": usage} if message and blocks else {}


def _extend(block: dict[str, Any], delta: Mapping[str, Any]) -> None:
    for name in ("text", "thinking", "signature", "partial_json"):
        if isinstance(delta.get(name), str):
            block[name] = f"{block.get(name) or ''}{delta[name]}"


def _parse_object(text: str | bytes) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}
