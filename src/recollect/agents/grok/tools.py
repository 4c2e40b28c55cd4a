"""What Grok's tools did: kinds, summaries and the readable text of their results."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec import Raw

from recollect.agentkit.calls import error_line, shell_kind
from recollect.agentkit.files import open_beneath
from recollect.agentkit.values import as_list, as_mapping, summarise, text_in
from recollect.agents.grok.discover import ID_CHARS
from recollect.agents.grok.records import Content, Output, Update, loads, media_of
from recollect.model.errors import SourceUnreadable
from recollect.model.kinds import DECISION, EDIT, ERROR, HUMAN_INTERVENTION, TOOL_CALL, TOOL_RESULT

LOG_LIMIT_BYTES = 8 * 1024 * 1024
SHELL = "run_terminal_command"
EDIT_KINDS = frozenset({"edit", "write", "delete", "move"})
EDIT_TOOLS = frozenset(
    {"search_replace", "write", "edit", "multi_edit", "apply_patch", "write_file", "create_file"}
    | {"delete_file", "str_replace", "notebook_edit"}
)
QUESTION_KINDS = frozenset({"ask_user", "exit_plan", "exit_plan_mode", "plan_approval"})
QUESTION_TOOLS = frozenset({"ask_user_question", "ask_user", "exit_plan_mode"})
# What the agent writes instead of a result when the user did not let the tool run.
REFUSALS = (
    "User cancelled the execution for tool",
    "User rejected the execution for tool",
    "The user elected to avoid running the",
)
_DECLINED = ("cancel", "reject", "declin", "dismiss", "denied")

_PATHS = ("file_path", "target_file", "path", "target_directory", "notebook_path")
_VERBS = {
    SHELL: ("ran", ("command",)),
    "read_file": ("read", _PATHS),
    "list_dir": ("listed", _PATHS),
    "grep": ("searched for", ("pattern", "query")),
    "web_search": ("searched the web for", ("query",)),
    "x_search": ("searched X for", ("query",)),
    "web_fetch": ("fetched", ("url",)),
    "spawn_subagent": ("started a sub-agent:", ("description", "prompt")),
    "use_tool": ("called", ("tool_name",)),
    "get_command_or_subagent_output": ("looked at background output", ()),
    "todo_write": ("updated the todo list", ()),
}


def tool_name(update: Update) -> str:
    """The tool's native name; old lines have it only as the call's title."""
    name = update.tool.get("name") or update.title
    return name[:ID_CHARS] if isinstance(name, str) else ""


def call_kind(name: str, tool_kind: Any, arguments: Any) -> str:
    if tool_kind in EDIT_KINDS or name in EDIT_TOOLS:
        return EDIT
    if tool_kind == "execute" or name == SHELL:
        return shell_kind(command_of(arguments))
    return TOOL_CALL


def command_of(arguments: Any) -> str:
    command = as_mapping(arguments).get("command")
    if isinstance(command, list):
        return " ".join(str(part) for part in command)
    return command if isinstance(command, str) else ""


def is_question(name: str, tool_kind: Any) -> bool:
    return tool_kind in QUESTION_KINDS or name in QUESTION_TOOLS


def call_summary(name: str, kind: str, arguments: Any) -> str:
    given = as_mapping(arguments)
    if name in QUESTION_TOOLS:
        return summarise(f"asked: {_question(given)}")
    verb, keys = _VERBS.get(name) or ("edited" if kind == EDIT else f"called {name}", _PATHS)
    for key in keys:
        if isinstance(given.get(key), str):
            return summarise(f"{verb} {given[key]}")
    return summarise(verb)


def _question(given: Mapping[str, Any]) -> str:
    questions = as_list(given.get("questions"))
    first = as_mapping(questions[0]) if questions else given
    question = first.get("question") or first.get("plan") or "approval of the plan"
    return question if isinstance(question, str) else ""


class Result(NamedTuple):
    """What came out of a call, by its last update."""

    output: Any
    media: list[dict[str, Any]]
    native: dict[str, Any]


def read_result(update: Update, full_log: str | None = None) -> Result:
    """The readable part of a result: what the model saw, as text where there is any."""
    result = update.rawOutput
    items = (item.content for item in as_list(update.content) if isinstance(item, Content))
    blocks = [content for content in items if isinstance(content, Content)]
    text: Any = "\n".join([text_in(block.text) for block in blocks if block.text is not None])
    media = [media_of(block) for block in blocks if isinstance(block.data, str)]
    if isinstance(result, Output):
        text = _better_text(result) or text or _text_of(result)
    elif isinstance(result, str):
        text = text or result
    native = _native(result) if isinstance(result, Output) else {}
    # Where an edit replaced what, with the lines around it: the call has only the texts.
    applied = as_mapping(loads(result.EditsApplied)) if isinstance(result, Output) else {}
    if edits := as_list(as_mapping(applied.get("edits")).get("details")):
        native["edits"] = edits
    return Result(full_log or text, media, native)


_NATIVE = (
    *("type", "exit_code", "signal", "timed_out", "truncated", "total_bytes", "current_dir"),
    *("is_error", "server_name", "tool_name", "subagent_id"),
)


def _native(result: Output) -> dict[str, Any]:
    native = {}
    for name in _NATIVE:
        value = getattr(result, name)
        if value is not None and value is not False and isinstance(value, str | int):
            native[name] = value
    return native


def _better_text(result: Output) -> Any:
    """Where the update's own text is only a note for the screen ("found 3 matches", a diff)."""
    if result.type == "GrepSearch":
        return bytes_text(result.stdout)
    if result.type == "SearchReplace":
        return as_mapping(loads(result.EditsApplied)).get("tool_output_for_prompt")
    return None


def _text_of(result: Output) -> Any:
    """The text of a result whose update has none, or the result itself where it is no text."""
    if result.output_for_prompt:
        return loads(result.output_for_prompt)
    for raw, key in (
        (result.TodosUpdated, "summary_for_prompt"),
        (result.Content, "content"),
        (result.Result, "output"),
    ):
        if raw:
            inner = loads(raw)
            return as_mapping(inner).get(key) or inner
    return _only_value(result.output)


def _only_value(raw: Raw) -> Any:
    """MCP results are `{"OkayOutput": …}` or `{"Error": …}`; commands are a list of byte values."""
    if bytes(memoryview(raw)[:1]) == b"[":
        return bytes_text(raw)
    value = loads(raw)
    if isinstance(value, dict) and len(value) == 1:
        value = next(iter(value.values()))
    return "" if value is None else value


def bytes_text(raw: Raw) -> str:
    """Text that the agent wrote as a list of byte values."""
    values = loads(raw)
    if not isinstance(values, list):
        return values if isinstance(values, str) else ""
    try:
        return bytes(values).decode("utf-8", "replace")
    except (ValueError, TypeError):
        return ""


def is_failed(update: Update, is_shell: bool) -> bool:
    """Whether a call failed: a non-zero exit is still `completed`, and for a search it is no failure."""
    if update.status == "failed":
        return True
    result = update.rawOutput
    if not isinstance(result, Output):
        return False
    if result.is_error is True or result.timed_out is True:
        return True
    return (is_shell or result.type == "Bash") and (result.exit_code not in (None, 0) or result.signal is not None)


def result_kind(update: Update, output: Any, name: str, tool_kind: Any, raw_variant: str) -> tuple[str, str]:
    """The event kind and status of a call's result."""
    text = output if isinstance(output, str) else ""
    if update.status == "failed" and text.startswith(REFUSALS):
        return HUMAN_INTERVENTION, "denied"
    if is_question(name, tool_kind) and update.status != "failed":
        declined = any(word in raw_variant.lower() for word in _DECLINED)
        return (HUMAN_INTERVENTION, "denied") if declined else (DECISION, "ok")
    if is_failed(update, name == SHELL or tool_kind == "execute"):
        return ERROR, "failed"
    return TOOL_RESULT, "ok"


def result_summary(kind: str, output: Any, native: Mapping[str, Any]) -> str:
    text = output if isinstance(output, str) else ""
    if kind == ERROR and "exit_code" in native:
        return summarise(f"exit {native['exit_code']}: {error_line(text)}")
    if kind == ERROR:
        return summarise(f"failed: {text}")
    return summarise(text) or str(native.get("type") or "done")[:80]


def read_full_log(root: Path, session_folder: Path, call_id: str) -> str | None:
    """The whole output of a command whose update has only a part; None if it is gone."""
    if not call_id.replace("-", "").replace("_", "").isalnum():
        return None
    try:
        fd = open_beneath(root, session_folder / "terminal" / f"{call_id}.log")
    except SourceUnreadable:
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(LOG_LIMIT_BYTES).decode("utf-8", "replace") or None
