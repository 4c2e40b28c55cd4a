"""The records of the one schema that every agent's log is turned into.

A session is one conversation (a sub-agent's is a session of its own); an event is one thing that
happened in it. Records are frozen: adapters make them, the store keeps them, doors show them.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

SCHEMA_VERSION = 1

USER_MSG = "user_msg"
ASSISTANT_MSG = "assistant_msg"
THINKING = "thinking"
TOOL_CALL = "tool_call"
TOOL_RESULT = "tool_result"
ERROR = "error"
TEST_RUN = "test_run"
EDIT = "edit"
RETRY = "retry"
HUMAN_INTERVENTION = "human_intervention"
DECISION = "decision"
LIFECYCLE = "lifecycle"
COMPLETION = "completion"
OTHER = "other"

KINDS = (
    USER_MSG,
    ASSISTANT_MSG,
    THINKING,
    TOOL_CALL,
    TOOL_RESULT,
    ERROR,
    TEST_RUN,
    EDIT,
    RETRY,
    HUMAN_INTERVENTION,
    DECISION,
    LIFECYCLE,
    COMPLETION,
    OTHER,
)

# Asking for a kind also means what is a more specific case of it.
KIND_FAMILY: dict[str, tuple[str, ...]] = {
    TOOL_CALL: (TOOL_CALL, TEST_RUN, EDIT, RETRY),
    TOOL_RESULT: (TOOL_RESULT, ERROR, DECISION),
    ASSISTANT_MSG: (ASSISTANT_MSG, COMPLETION),
}

HUMAN = "human"
AUTOMATION = "automation"
SUB_AGENT = "sub-agent"
WARM_UP = "warm-up"
PROMPTS_ONLY = "prompts-only"
SESSION_CLASSES = (HUMAN, AUTOMATION, SUB_AGENT, WARM_UP, PROMPTS_ONLY)

SUCCESS = "success"
FAIL = "fail"
ABANDONED = "abandoned"
UNKNOWN = "unknown"
OUTCOMES = (SUCCESS, FAIL, ABANDONED, UNKNOWN)

SUMMARY_CHARS = 200
MAIN_LANE = ""
FILES_LANE = "files"  # side files of a session, which have no place in its order
HISTORY_LANE = "history"  # prompts known only from an agent's prompt history
STAND_IN_LANE = "stand-in"  # a conversation known only from a copy, because the agent's own log is missing


def session_uid(agent: str, native_session_id: str) -> str:
    return f"{agent}:{native_session_id}"


def event_uid(agent: str, native_session_id: str, native_id: str, block: int = 0) -> bytes:
    """The name by which everything cites an event: never made from content, path or arrival.

    One half names the session, so that its events lie side by side in an index; the other one the record,
    so that copies of it in other sessions are known by it.
    """
    return name_half(agent, native_session_id) + name_half(agent, f"{native_id}\x1f{block}")


def name_half(agent: str, name: str) -> bytes:
    return hashlib.blake2b(f"{agent}\x1f{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens and money of a session's own events: copies are counted where they were first made.

    `input_tokens` excludes what was read from or written to the prompt cache; `output_tokens`
    includes `reasoning_tokens`. `usd` is None where neither the agent nor the price list knows it,
    and on a sub-agent whose root's own figure already includes it.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    usd: float | None = None
    usd_is_estimate: bool = False
    wall_clock_s: float | None = None
    turns: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class SessionSource:
    """One place a session was read from."""

    path: str
    bytes: int
    host: str
    source_gone_at: str | None = None


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation with one agent. Times are RFC 3339 UTC with milliseconds, absent is None."""

    session_uid: str
    agent: str
    native_session_id: str
    root_session_uid: str
    parent_session_uid: str | None
    base_session_uid: str | None
    base_end: str | None
    session_class: str
    group: str
    host: str | None
    repo: str | None
    domain: str | None
    cwd: str | None
    git_branch: str | None
    model: str | None
    provider: str | None
    agent_version: str | None
    title: str | None
    instructions: tuple[Mapping[str, str], ...]
    started_at: str | None
    ended_at: str | None
    updated_at: str | None
    outcome: str
    cost: Cost
    message_count: int
    event_count: int
    task_ref: str | None
    sources: tuple[SessionSource, ...]
    schema_version: int
    content_hash: str | None
    spawn_call_id: str | None
    discovered_at: str | None
    ingested_at: str | None
    analyzed_at: str | None
    evicted_at: str | None
    key: str | None = None
    channel: str | None = None
    chat_id: str | None = None
    user_id: str | None = None
    character_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a session. `payload_ref` leads to its full content."""

    event_uid: str
    session_uid: str
    seq: int
    parent_event_uid: str | None
    lane: str
    position: int
    native_id: str
    ts: str | None
    kind: str
    role: str | None
    tool: str | None
    call_id: str | None
    status: str | None
    is_error: bool
    is_retry: bool
    is_abandoned: bool
    copy_of: str | None
    summary: str
    payload_ref: tuple[int, int] | None
    model: str | None
    provider: str | None
    content_type: str | None
    input_tokens: int | None
    output_tokens: int | None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """A line or file that could not be read, kept so that nothing vanishes silently."""

    agent: str
    path: str
    line: int | None
    offset: int | None
    reason: str
    excerpt: str
    found_at: str


def as_json(record: Session | Event | Problem) -> dict[str, Any]:
    """A record as every door prints it: the documented names, nested cost, None for what is absent."""
    found = asdict(record)
    if "session_class" in found:
        return {("class" if name == "session_class" else name): value for name, value in found.items()}
    return found
