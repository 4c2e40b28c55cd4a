"""The words of the schema: kinds of events, classes and outcomes of sessions, lanes.

Apart from its records, because a search needs the words only and making the records takes time.
"""

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

# The status of a prompt that waited in an agent's queue and that no other record tells: what came of it is not known.
QUEUE_ONLY = "queue-only"
# A record that tells such a prompt may bear a somewhat earlier time than the moment it was typed; one of days later is
# another prompt of the same words.
_QUEUE_SLACK_MS, _QUEUE_WAIT_MS = 60_000, 86_400_000


def may_tell_queued(told_ms: int | None, queued_ms: int | None) -> bool:
    """Whether a record of that time may tell a prompt of the same words that was queued then."""
    if told_ms is None or queued_ms is None:
        return True
    return -_QUEUE_SLACK_MS <= told_ms - queued_ms <= _QUEUE_WAIT_MS


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
