"""The vocabulary of the schema: kinds of events, classes and outcomes of sessions, lanes, signals.

Separate from its records because a search needs only these, and defining the records takes time.
"""

from typing import NamedTuple


class SessionKey(NamedTuple):
    """What identifies a session everywhere: its agent, and the id that the agent gave it."""

    agent: str
    native_id: str

    @property
    def root(self) -> "SessionKey":
        """The session that a sub-agent has in its id; of any other, itself."""
        return SessionKey(self.agent, self.native_id.partition("/")[0])


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

HANDED_PLAN = "Plan: "  # and its heading: the summary of a plan that a user gave an agent to implement
OPENED_PULL_REQUEST = "opened pull request "  # and its address: the summary of an agent's own record of it

# A query for a kind includes its more specific cases.
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
# A session's metadata says what its log does not record.
OUTPUT, UNRECORDED = "output_tokens", "not recorded"
SESSION_CLASSES = (HUMAN, AUTOMATION, SUB_AGENT, WARM_UP, PROMPTS_ONLY)

SUCCESS = "success"
FAIL = "fail"
ABANDONED = "abandoned"
UNKNOWN = "unknown"
OUTCOMES = (SUCCESS, FAIL, ABANDONED, UNKNOWN)

SUMMARY_CHARS = 200
MAIN_LANE = ""
FILES_LANE = "files"  # side files of a session, which are outside its order
HISTORY_LANE = "history"  # prompts known only from an agent's prompt history
STAND_IN_LANE = "stand-in"  # a conversation known only from a copy, because the agent's own log is missing

# The status of a prompt known only from an agent's queue: what became of it is unknown.
QUEUE_ONLY = "queue-only"
# The record of such a prompt may be dated slightly before it was typed; one dated days later is another prompt with the
# same words.
_QUEUE_SLACK_MS, _QUEUE_WAIT_MS = 60_000, 86_400_000


def may_tell_queued(recorded_ms: int | None, queued_ms: int | None) -> bool:
    """Whether a record from one time may be the prompt with the same words that was queued at the other."""
    if recorded_ms is None or queued_ms is None:
        return True
    return -_QUEUE_SLACK_MS <= recorded_ms - queued_ms <= _QUEUE_WAIT_MS


def is_queued_again(queued_ms: int, before_ms: int | None) -> bool:
    """Whether a prompt was queued so soon after the same words that it is the same prompt."""
    return before_ms is not None and abs(queued_ms - before_ms) <= _QUEUE_SLACK_MS


def session_uid(agent: str, native_session_id: str) -> str:
    return f"{agent}:{native_session_id}"


RETRY_LOOP = "retry_loop"
REPEATED_ERROR = "repeated_error"
TEST_FLIP = "test_flip"
EDIT_CHURN = "edit_churn"
HUMAN_CORRECTION = "human_correction"
PERMISSION_DENIED = "permission_denied"
CONTEXT_COMPACTED = "context_compacted"
COST_SPIKE = "cost_spike"
LONG_IDLE = "long_idle"
ABANDONED_TODO = "abandoned_todo"
SIGNALS = (
    RETRY_LOOP,
    REPEATED_ERROR,
    TEST_FLIP,
    EDIT_CHURN,
    HUMAN_CORRECTION,
    PERMISSION_DENIED,
    CONTEXT_COMPACTED,
    COST_SPIKE,
    LONG_IDLE,
    ABANDONED_TODO,
)


def signal_words(signal: str) -> str:
    """A signal as people read it."""
    return signal.replace("_", " ")


def name_half(agent: str, name: str) -> bytes:
    """Return eight bytes that name something of an agent: the first half of an event's id names its session."""
    from hashlib import blake2b  # takes milliseconds to load, and a search needs none

    return blake2b(f"{agent}\x1f{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
