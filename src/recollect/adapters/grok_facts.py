"""Small pure pieces of reading Grok's updates: usage, native fields, what is said of rare kinds."""

from collections.abc import Iterator
from typing import Any

from recollect.adapters.commands import as_mapping, positive_int
from recollect.adapters.grok_lineage import Call
from recollect.adapters.grok_records import Record, Update, moment_ms, safe_id
from recollect.adapters.grok_tools import brief
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
    "response_started": "timing",
    "response_completed": "timing",
    "image_compressed": "timing",
}
TOOL_DETAILS = "tool_call_update (details)"  # title, paths and progress between a call and its result
BASH_PROMPT = "user_message_chunk (bash)"  # twin of the tool_call that follows
EMPTY = "empty"
LIFECYCLE_TYPES = frozenset(
    {"compaction_checkpoint", "hook_execution", "hook_annotation", "current_mode_update", "git_branch_update"}
    | {"model_changed", "model_auto_switched", "auto_continue_completed", "session_recap", "diff_review"}
    | {"subagent_spawned", "subagent_finished", "task_backgrounded", "task_completed", "monitor_event"}
    | {"workflow_updated", "goal_updated"}
)
LIFECYCLE_FAMILIES = ("auto_compact_", "auto_recovery_", "memory_", "scheduled_task_")


def usages(event: EventRecord, update: Update, model: str | None) -> Iterator[Usage]:
    """The tokens of a turn, for each model that worked on it."""
    usage = as_mapping(update.usage)
    if not usage:
        return
    usage_id = safe_id(update.prompt_id) or event.native_id
    models = {name: as_mapping(told) for name, told in as_mapping(usage.get("modelUsage")).items()}
    if len(models) > 1:
        for name, told in sorted(models.items()):
            yield _one_usage(event, f"{usage_id}:{name}", name, told)
    else:
        yield _one_usage(event, usage_id, next(iter(models), model), usage)


def _one_usage(event: EventRecord, usage_id: str, model: str | None, told: Any) -> Usage:
    cached = positive_int(told.get("cachedReadTokens"))
    created = positive_int(told.get("cacheCreationTokens"))
    ticks = told.get("costUsdTicks")
    return Usage(
        event.native_session_id,
        usage_id,
        event.ts_ms,
        model,
        provider_of(model),
        max(0, positive_int(told.get("inputTokens")) - cached - created),
        positive_int(told.get("outputTokens")),
        cached,
        created,
        positive_int(told.get("reasoningTokens")),
        ticks / 1e10 if isinstance(ticks, int | float) and 0 < ticks < 2**63 else None,
        includes_sub_agents=True,
    )


def provider_of(model: str | None) -> str | None:
    """Grok can be pointed at other services' models; only its own are told by their name."""
    return "xai" if model and model.startswith("grok") else None


def native_of(record: Record) -> dict[str, Any]:
    """What a rebuild of the record needs and no column holds."""
    native = {"eventId": record.event_id} if record.event_id else {}
    prompt, stream = record.meta.promptId, record.meta.streamStartMs
    if isinstance(prompt, str):
        native["promptId"] = prompt
    if moment_ms(stream):
        native["streamStartMs"] = stream
    return native


def only_plain(facts: Any, names: tuple[str, ...] | None) -> dict[str, Any]:
    chosen = facts if names is None else {name: facts.get(name) for name in names}
    return {
        name: value
        for name, value in chosen.items()
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
    if kind == "hook_execution":
        return brief(f"hook {text_of(told.get('event_name')) or ''} {_hook_status(told.get('runs'))}"[:260])
    snapshot = as_mapping(told.get("task_snapshot"))
    for name in ("description", "error", "reason", "command", "status"):
        if text := text_of(told.get(name)) or text_of(snapshot.get(name)):
            return brief(f"{kind.replace('_', ' ')}: {text[:300]}")
    return brief(kind.replace("_", " ")[:200])


def _hook_status(runs: Any) -> str:
    told = {
        text_of(as_mapping(as_mapping(run).get("status")).get("status"))
        for run in (runs if isinstance(runs, list) else ())
    }
    return ", ".join(sorted(status for status in told if status))
