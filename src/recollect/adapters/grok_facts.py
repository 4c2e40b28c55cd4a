"""Small pure pieces of reading Grok's updates: usage, native fields, what is said of rare kinds."""

from typing import Any

import msgspec

from recollect.adapters.commands import as_mapping, positive_int, summarise
from recollect.adapters.grok_lineage import Call
from recollect.adapters.grok_records import Record, Tokens, Update, moment_ms, safe_id
from recollect.adapters.protocol import EventRecord, Usage

# Native types that make no event, and why.
SKIPPED = {
    "plan": "twin of the todo_write call",
    "background_tasks": "list of what task_backgrounded and task_completed tell one by one",
    "available_commands_update": "the harness's own command list",
    "tool_call_delta_chunk": "pieces of a tool_call that follows whole",
    "subagent_progress": "counters; the child has its own session",
    "session_summary_generated": "twin of summary.json",
    "last_turn_summary": "twin of summary.json",
    "session_status": "state of the screen",
    "hooks_changed": "state of the screen",
    "plugins_changed": "state of the screen",
    "pending_interaction": "state of the screen; the call and its result tell it",
    "interaction_resolved": "state of the screen; the call and its result tell it",
    "hook_execution": "a hook's report; nothing that happened in the session",
    "response_started": "timing",
    "response_completed": "timing",
    "image_compressed": "timing",
}
TOOL_DETAILS = "tool_call_update (details)"  # title, paths and progress between a call and its result
BASH_PROMPT = "user_message_chunk (bash)"  # twin of the tool_call that follows
RETRIES_FAILED = "retry_state (failed)"  # the end of the turn tells it
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
    if not isinstance(total, Tokens):
        return []
    usage_id = safe_id(update.prompt_id) or event.native_id
    models = as_mapping(total.modelUsage)
    if len(models) < 2:
        return [_usage(event, usage_id, next(iter(models), model), total)]
    told = {name: msgspec.convert(as_mapping(tokens), Tokens) for name, tokens in sorted(models.items())}
    return [_usage(event, f"{usage_id}:{name}", name, tokens) for name, tokens in told.items()]


def _usage(event: EventRecord, usage_id: str, model: str | None, told: Tokens) -> Usage:
    cached, created = positive_int(told.cachedReadTokens), positive_int(told.cacheCreationTokens)
    ticks = told.costUsdTicks
    return Usage(
        event.native_session_id,
        usage_id,
        event.ts_ms,
        model,
        provider_of(model),
        max(0, positive_int(told.inputTokens) - cached - created),
        positive_int(told.outputTokens),
        cached,
        created,
        positive_int(told.reasoningTokens),
        ticks / 1e10 if isinstance(ticks, int | float) and 0 < ticks < 2**63 else None,
        includes_sub_agents=True,
    )


def provider_of(model: str | None) -> str | None:
    """Grok can be pointed at other services' models; only its own are told by their name."""
    return "xai" if model and model.startswith("grok") else None


def native_of(record: Record) -> dict[str, Any]:
    """What a rebuild of the record needs and no column holds."""
    meta, native = record.meta, {}
    if record.event_id:
        native["eventId"] = record.event_id
    if isinstance(meta.promptId, str):
        native["promptId"] = meta.promptId
    if moment_ms(meta.streamStartMs):
        native["streamStartMs"] = meta.streamStartMs
    return native


def plain(**facts: Any) -> dict[str, Any]:
    """Those of the facts that are text or a number a column takes."""
    return {
        name: value
        for name, value in facts.items()
        if isinstance(value, str) or (isinstance(value, int) and -(2**63) <= value < 2**63)
    }


def answer_variant(record: Record, call: Call) -> str:
    """How a question was answered: the tool's result is an object with one key for each way."""
    if call.tool_kind != "ask_user" and "plan" not in call.tool and "ask" not in call.tool:
        return ""
    told = as_mapping(record.plain().get("rawOutput"))
    return " ".join(str(name) for name in told if name != "type")[:200]


def text_of(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def without(told: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: value for name, value in told.items() if name not in names}


def without_output(told: dict[str, Any]) -> dict[str, Any]:
    """A sub-agent's answer stands in its own session, a task's output is the event's text."""
    if isinstance(told.get("task_snapshot"), dict):
        told = {**told, "task_snapshot": without(told["task_snapshot"], "output")}
    return without(told, "output")


def new_model(told: dict[str, Any]) -> str | None:
    for name in ("model_id", "modelId", "model", "to", "new_model"):
        if model := safe_id(told.get(name)):
            return model
    return None


def lifecycle_summary(kind: str, told: dict[str, Any]) -> str:
    name = kind.replace("_", " ")
    snapshot = as_mapping(told.get("task_snapshot"))
    for key in ("description", "error", "reason", "command", "status"):
        if text := text_of(told.get(key)) or text_of(snapshot.get(key)):
            return summarise(f"{name}: {text}")
    return summarise(name)
