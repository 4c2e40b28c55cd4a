"""From Grok's updates to events: what is remembered from line to line, and the order in which events happened.

Messages, calls and results wait in a queue of the agent before they are written; everything else (retries,
compactions, sub-agents) bypasses that queue and so may come before what happened earlier. Those events are held until
the queue has caught up. A message streamed in several lines is open until something ends it.

While anything is open or held the cursor stays before its line. What was read after that is read again by the next
sweep, with the same result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct, field

from recollect.agentkit.log import NOTHING
from recollect.agentkit.protocol import EventRecord, Record, Usage
from recollect.agentkit.values import as_mapping, as_text, positive_int, remember, summarise, text_in
from recollect.agents.grok.records import Content, Update, UpdateRecord, grok_id, media_of, moment_ms
from recollect.model.kinds import ASSISTANT_MSG, THINKING, USER_MSG

PROMPTS = 200
CALLS = 48
NUMBERS = 4096  # event numbers kept apart within one millisecond


class Call(Struct, array_like=True):
    """A tool call: what its result needs of it.

    `unfinished` (native id, position, moment, parent) is set while its arguments are unknown.
    """

    tool: str
    tool_kind: str | None = None
    is_user: bool = False
    unfinished: tuple[str, int, int | None, str | None] | None = None


class State(Struct):
    """The end of the line of events, the model in use, prompts to go back to and recent calls.

    It goes into a cursor's state, so every collection is bounded and every text in it is short: the state stays below
    64 KiB whatever the file holds.
    """

    session: str | None = None
    model: str | None = None
    top: int = 0  # highest position so far
    tip: str | None = None  # the event that the next one follows
    is_busy: bool = False  # between a turn's first update and its end
    prompts: dict[int, tuple[int, str | None]] = field(default_factory=dict)  # position and parent, by index
    calls: dict[str, Call] = field(default_factory=dict)

    def follow(self, event: EventRecord) -> None:
        """Put an event at the end of the line."""
        event.parent_native_id = self.tip
        self.tip = event.native_id
        self.top = max(self.top, event.position)

    def add_prompt(self, index: Any, position: int, parent: str | None) -> None:
        if type(index) is int and 0 <= index < 2**53:
            remember(self.prompts, index, (position, parent), PROMPTS)

    def rewind(self, target: Any) -> int | None:
        """Go back to before a prompt; return the position of that prompt, None if it is unknown."""
        left = [index for index in self.prompts if isinstance(target, int) and index >= target]
        if not left:
            return None
        position, self.tip = self.prompts[min(left)]
        for index in left:
            del self.prompts[index]
        return position

    def add_call(self, call_id: str, call: Call) -> None:
        remember(self.calls, call_id, call, CALLS)

    def mark(self) -> dict[str, Any]:
        """What must be as it was when lines are read again; prompts and calls may be added twice."""
        return {"model": self.model, "top": self.top, "tip": self.tip, "is_busy": self.is_busy}

    def dump(self) -> dict[str, Any]:
        state: dict[str, Any] = msgspec.to_builtins(self, str_keys=True)
        return state

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> "State":
        return msgspec.convert(dict(state), cls, str_keys=True)


# Native types that make no event, and why.
SKIPPED = {
    "plan": "twin of the todo_write call",
    "background_tasks": "list of what task_backgrounded and task_completed hold one by one",
    "available_commands_update": "the harness's own command list",
    "tool_call_delta_chunk": "pieces of a tool_call that follows whole",
    "subagent_progress": "counters; the child has its own session",
    "session_summary_generated": "twin of summary.json",
    "last_turn_summary": "twin of summary.json",
    "session_status": "state of the screen",
    "hooks_changed": "state of the screen",
    "plugins_changed": "state of the screen",
    "pending_interaction": "state of the screen; the call and its result have it",
    "interaction_resolved": "state of the screen; the call and its result have it",
    "hook_execution": "a hook's report; nothing that happened in the session",
    "response_started": "timing",
    "response_completed": "timing",
    "image_compressed": "timing",
}
TOOL_DETAILS = "tool_call_update (details)"  # title, paths and progress between a call and its result
BASH_PROMPT = "user_message_chunk (bash)"  # twin of the tool_call that follows
RETRIES_FAILED = "retry_state (failed)"  # the end of the turn has it
EMPTY = "empty"
LIFECYCLE_TYPES = frozenset(
    {"compaction_checkpoint", "hook_annotation", "current_mode_update", "git_branch_update"}
    | {"model_changed", "model_auto_switched", "auto_continue_completed", "session_recap", "diff_review"}
    | {"subagent_spawned", "subagent_finished", "task_backgrounded", "task_completed", "monitor_event"}
    | {"workflow_updated", "goal_updated"}
)
LIFECYCLE_FAMILIES = ("auto_compact_", "auto_recovery_", "memory_", "scheduled_task_")


def usages(event: EventRecord, update: Update, model: str | None) -> list[Usage]:
    """The tokens of a turn, for each model that worked on it."""
    total = update.usage
    if not isinstance(total, dict):
        return []
    usage_id = grok_id(update.prompt_id) or event.native_id
    models = as_mapping(total.get("modelUsage"))
    if len(models) < 2:
        return [_usage(event, usage_id, next(iter(models), model), total)]
    return [_usage(event, f"{usage_id}:{name}", name, as_mapping(tokens)) for name, tokens in sorted(models.items())]


def _usage(event: EventRecord, usage_id: str, model: str | None, tokens: Mapping[str, Any]) -> Usage:
    cached, created = positive_int(tokens.get("cachedReadTokens")), positive_int(tokens.get("cacheCreationTokens"))
    ticks = tokens.get("costUsdTicks")
    return Usage(
        event.native_session_id,
        usage_id,
        event.ts_ms,
        model,
        provider_of(model),
        max(0, positive_int(tokens.get("inputTokens")) - cached - created),
        positive_int(tokens.get("outputTokens")),
        cached,
        created,
        positive_int(tokens.get("reasoningTokens")),
        ticks / 1e10 if isinstance(ticks, int | float) and 0 < ticks < 2**63 else None,
        includes_sub_agents=True,
        requests=max(1, positive_int(tokens.get("modelCalls"))),
    )


def provider_of(model: str | None) -> str | None:
    """Grok may use the models of other services; only its own are known by their name."""
    return "xai" if model and model.startswith("grok") else None


def native_of(record: UpdateRecord) -> dict[str, Any]:
    """What a rebuild of the update needs and no column holds."""
    meta, native = record.meta, {}
    if record.event_id:
        native["eventId"] = record.event_id
    if isinstance(meta.promptId, str):
        native["promptId"] = meta.promptId
    if moment_ms(meta.streamStartMs):
        native["streamStartMs"] = meta.streamStartMs
    return native


def scalars(**facts: Any) -> dict[str, Any]:
    """Those of the facts that are text or a number of 64 bits."""
    return {
        name: value
        for name, value in facts.items()
        if isinstance(value, str) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    }


def answer_variant(record: UpdateRecord, call: Call) -> str:
    """How a question was answered: the tool's result is an object with one key for each way."""
    if call.tool_kind != "ask_user" and "plan" not in call.tool and "ask" not in call.tool:
        return ""
    output = as_mapping(record.plain().get("rawOutput"))
    return " ".join(str(name) for name in output if name != "type")[:200]


def without(fields: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if name not in names}


def without_output(fields: dict[str, Any]) -> dict[str, Any]:
    """A sub-agent's answer is in its own session, a task's output is the event's text."""
    if isinstance(fields.get("task_snapshot"), dict):
        fields = {**fields, "task_snapshot": without(fields["task_snapshot"], "output")}
    return without(fields, "output")


def new_model(fields: dict[str, Any]) -> str | None:
    for name in ("model_id", "modelId", "model", "to", "new_model"):
        if model := grok_id(fields.get(name)):
            return model
    return None


def lifecycle_summary(kind: str, fields: dict[str, Any]) -> str:
    name = kind.replace("_", " ")
    snapshot = as_mapping(fields.get("task_snapshot"))
    for key in ("description", "error", "reason", "command", "status"):
        if text := as_text(fields.get(key)) or as_text(snapshot.get(key)):
            return summarise(f"{name}: {text}")
    return summarise(name)


USER_CHUNK = "user_message_chunk"
CHUNKS = {
    USER_CHUNK: (USER_MSG, "user"),
    "agent_message_chunk": (ASSISTANT_MSG, "assistant"),
    "agent_thought_chunk": (THINKING, "assistant"),
}

Piece = tuple[int, str | None, str]  # position, event id, text


@dataclass(slots=True)
class OpenMessage:
    """A message that is streamed in several lines, while it is read."""

    key: tuple[Any, ...]
    event: EventRecord
    pieces: list[Piece]
    media: list[dict[str, Any]]

    def add(self, piece: Piece, media: list[dict[str, Any]], is_lossy: bool) -> None:
        if piece == self.pieces[-1]:  # the same line written twice
            return
        self.pieces.append(piece)
        self.media.extend(media)
        if is_lossy:
            self.event.metadata = {"lossy": True}

    def joined(self) -> EventRecord:
        """The message as one event, its pieces in the order of their moments."""
        self.pieces.sort(key=lambda piece: piece[0])
        text = "".join(text for _, _, text in self.pieces)
        media = {"media": self.media} if self.media else {}
        self.event.payload = {"text": text, **media, **self.event.payload}
        self.event.summary = summarise(text or (f"sent {self.media[0]['kind']}" if media else ""))
        return self.event


def message_key(record: UpdateRecord) -> tuple[Any, ...]:
    """Equal for the pieces of one message: same speaker, same prompt, same model response."""
    if record.kind == USER_CHUNK:
        facts = record.update.facts
        index = facts.promptIndex
        return (USER_CHUNK, index.__class__, index, facts.hideFromScrollback)  # True is no prompt 1
    return (record.kind, record.meta.promptId, record.meta.streamStartMs)


def content_of(content: Content) -> tuple[str, list[dict[str, Any]]]:
    if text := text_in(content.text):
        return text, []
    if isinstance(content.data, str):
        return "", [media_of(content)]
    resource = as_mapping(content.resource)
    return text_in(resource.get("text") or resource.get("uri") or content.uri), []


# A message's last piece, or what a held event waits for, may be late; but not more lines than this.
LATE_LINES = 200


class Order:
    """What is ready to be yielded, what waits, and from where to read again if it still waits at the end."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.ready: list[Record] = []
        self.open: OpenMessage | None = None
        self._held: list[EventRecord] = []
        self.since: tuple[tuple[int, int], dict[str, Any]] | None = None  # line and offset, state there
        self._last_line = 0
        self.skips: list[str] = []  # of lines that are not read again
        self._skips_since: list[str] = []

    def expire(self, record: UpdateRecord) -> None:
        """End waits that the next record shows to be in vain."""
        if record.number - self._last_line > LATE_LINES:
            self.settle()
        # A prompt ends with the next line of another kind; an answer may be followed by its last piece.
        elif self.open and self.open.key[0] == USER_CHUNK and record.kind != USER_CHUNK:
            self.close()

    def skip(self, name: str) -> None:
        (self.skips if self.since is None else self._skips_since).append(name)

    def put(self, event: EventRecord) -> None:
        """Take the next event of the queue."""
        self.close()
        self._release(event.position)
        self._follow(event)
        self.state.is_busy = True

    def hold(self, record: UpdateRecord, event: EventRecord) -> None:
        """Take an event that bypassed the queue; between turns the queue is empty."""
        if self.state.is_busy:
            self._wait(record)
            self._held.append(event)
            self.state.top = max(self.state.top, event.position)
        else:
            self._follow(event)

    def begin(self, record: UpdateRecord, message: OpenMessage) -> None:
        """Take the first piece of a message, the next event of the queue."""
        self.close()
        self._release(message.event.position)
        self._wait(record)
        self.state.follow(message.event)
        self.state.is_busy = True
        self.open = message

    def add(self, record: UpdateRecord, piece: Piece, media: list[dict[str, Any]]) -> None:
        """Take a piece of the open message."""
        assert self.open is not None
        self.open.add(piece, media, record.is_lossy)
        self._last_line = record.number

    def close(self) -> None:
        if self.open:
            self.ready.append(self.open.joined())
            self.open = None
            self._rest()

    def end(self, event: EventRecord) -> None:
        """Take an event that nothing earlier can follow: the queue is empty."""
        self.settle()
        self._follow(event)
        self.state.is_busy = False

    def settle(self) -> None:
        """End all waits."""
        self.close()
        self._release(None)

    def _release(self, position: int | None) -> None:
        """Release what was held and happened before a position."""
        if self._held:
            self._held.sort(key=lambda event: event.position)
            while self._held and (position is None or self._held[0].position < position):
                self._follow(self._held.pop(0))
            self._rest()

    def _follow(self, event: EventRecord) -> None:
        self.state.follow(event)
        self.ready.append(event)

    def _wait(self, record: UpdateRecord) -> None:
        if self.since is None:
            self.since = (record.number - 1, record.offset), self.state.mark()
            self._last_line = record.number

    def _rest(self) -> None:
        if self.open is None and not self._held:
            self.since = None
            self.skips += self._skips_since
            self._skips_since.clear()

    def take(self) -> Sequence[Record]:
        """What is ready, once."""
        if not self.ready:
            return NOTHING
        ready, self.ready = self.ready, []
        return ready
