"""What OpenCode's tools did: kinds, summaries, and whether a call failed."""

from collections.abc import Mapping
from typing import Any

from recollect.agentkit.calls import error_line, shell_kind
from recollect.agentkit.values import as_list, as_mapping, as_text, summarise
from recollect.kinds import DECISION, EDIT, ERROR, HUMAN_INTERVENTION, TOOL_CALL, TOOL_RESULT

SHELL = "bash"
QUESTION = "question"
_EDITS = frozenset({"edit", "write", "patch", "multiedit", "apply_patch"})
_PATHS = ("filePath", "path")
_VERBS: dict[str, tuple[str, tuple[str, ...]]] = {
    SHELL: ("ran", ("command",)),
    "read": ("read", _PATHS),
    "list": ("listed", _PATHS),
    "glob": ("searched for", ("pattern",)),
    "grep": ("searched for", ("pattern",)),
    "webfetch": ("fetched", ("url",)),
    "websearch": ("searched the web for", ("query",)),
    "task": ("started a sub-agent:", ("description", "prompt")),
    "skill": ("read the skill", ("name",)),
    "todowrite": ("updated the todo list", ()),
    "todoread": ("read the todo list", ()),
}
# How the program words a call that the user did not allow.
_REFUSED = ("The user rejected permission", "The user has specified a rule which prevents you")
_INTERRUPTED = "Tool execution aborted"


def call_kind(tool: str, arguments: Mapping[str, Any]) -> str:
    if tool in _EDITS:
        return EDIT
    return shell_kind(as_text(arguments.get("command")) or "") if tool == SHELL else TOOL_CALL


def call_summary(tool: str, kind: str, arguments: Mapping[str, Any]) -> str:
    if tool == QUESTION:
        first = next(map(as_mapping, as_list(arguments.get("questions"))), {})
        return summarise(f"asked: {as_text(first.get('question')) or ''}")
    verb, keys = _VERBS.get(tool) or ("edited" if kind == EDIT else f"called {tool}", _PATHS)
    target = next((value for key in keys if (value := as_text(arguments.get(key)))), "")
    return summarise(f"{verb} {target}".rstrip())


def result_kind(tool: str, state: Mapping[str, Any], output: str) -> tuple[str, str]:
    """The kind and the status of a finished call's result."""
    if state.get("status") == "error":
        if output.startswith(_REFUSED):
            return HUMAN_INTERVENTION, "denied"
        return ERROR, "interrupted" if output.startswith(_INTERRUPTED) else "failed"
    if tool == QUESTION:
        return DECISION, "ok"
    is_failed = tool == SHELL and as_mapping(state.get("metadata")).get("exit") not in (None, 0)
    return (ERROR, "failed") if is_failed else (TOOL_RESULT, "ok")


def result_summary(kind: str, state: Mapping[str, Any], output: str) -> str:
    exit_code = as_mapping(state.get("metadata")).get("exit")
    if kind == ERROR:
        return summarise(f"exit {exit_code}: {error_line(output)}" if exit_code else f"failed: {output}")
    return summarise(output) or "done"
