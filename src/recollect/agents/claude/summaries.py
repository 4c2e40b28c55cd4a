"""One line about a Claude Code call or result."""

from collections.abc import Callable, Mapping
from typing import Any

from recollect.agentkit.calls import error_line
from recollect.agentkit.values import as_list, as_mapping, summarise
from recollect.kinds import SUMMARY_CHARS

_HEAD_CHARS = SUMMARY_CHARS + 100
_EXIT = "Exit code "
_TOOL_ERROR = "<tool_use_error>"
REFUSED = "refused the call"
_REASON = "the user said:\n"
_REASON_WITHIN = 2000


def describe_call(tool: str, arguments: Any, cwd: Any) -> str:
    """What a call does: `ran pytest -q`, `edited src/auth.py`."""
    given = as_mapping(arguments)
    describe = _CALLS.get(tool)
    if describe is not None:
        return summarise(describe(given, cwd))
    if tool.startswith("mcp__"):
        return summarise("called " + tool[5:].replace("__", ".", 1))
    return summarise(f"called {tool}")


def _path(given: Mapping[str, Any], cwd: Any) -> str:
    path = str(given.get("file_path") or given.get("notebook_path") or given.get("path") or "a file")
    is_inside = isinstance(cwd, str) and path.startswith((f"{cwd}/", f"{cwd}\\"))
    return path[len(cwd) + 1 :] if is_inside else path


def _first(given: Mapping[str, Any], *names: str) -> str:
    value = next((given[name] for name in names if given.get(name)), "")
    return value[:_HEAD_CHARS] if isinstance(value, str) else str(value)[:_HEAD_CHARS]


def _questions(given: Mapping[str, Any], _: Any) -> str:
    texts = [as_mapping(question).get("question") for question in as_list(given.get("questions"))]
    return "asked: " + " / ".join(text for text in texts if isinstance(text, str))


def _todos(given: Mapping[str, Any], _: Any) -> str:
    todos = given.get("todos")
    return f"updated the to-do list: {len(todos)} items" if isinstance(todos, list) else "updated the to-do list"


def _saying(words: str, *names: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda given, _: f"{words} {_first(given, *names)}"


def _on_file(words: str) -> Callable[[Mapping[str, Any], Any], str]:
    return lambda given, cwd: f"{words} {_path(given, cwd)}"


_ran = _saying("ran", "command")
_delegated = _saying("started a sub-agent:", "description", "prompt", "subagent_type")
_CALLS: dict[str, Callable[[Mapping[str, Any], Any], str]] = {
    "Bash": _ran,
    "bash": _ran,
    "PowerShell": _ran,
    "Read": _on_file("read"),
    "Edit": _on_file("edited"),
    "MultiEdit": _on_file("edited"),
    "NotebookEdit": _on_file("edited"),
    "Write": _on_file("wrote"),
    "LS": _on_file("listed"),
    "Grep": _saying("searched for", "pattern"),
    "Glob": _saying("looked for files", "pattern"),
    "WebFetch": _saying("fetched", "url"),
    "WebSearch": _saying("searched the web for", "query"),
    "web_search": _saying("searched the web for", "query"),
    "ToolSearch": _saying("searched for tools:", "query"),
    "Task": _delegated,
    "Agent": _delegated,
    "Skill": _saying("used the skill", "skill", "command"),
    "SlashCommand": _saying("ran", "command"),
    "SendMessage": _saying("sent a message:", "summary", "message", "content"),
    "TaskCreate": _saying("added the task:", "subject", "description"),
    "TaskUpdate": lambda given, _: f"task {_first(given, 'taskId')}: {_first(given, 'status') or 'changed'}",
    "TodoWrite": _todos,
    "AskUserQuestion": _questions,
    "ExitPlanMode": _saying("proposed a plan:", "plan"),
    "BashOutput": _saying("looked at the output of", "bash_id"),
    "TaskOutput": _saying("looked at the output of", "task_id"),
    "KillShell": _saying("stopped", "shell_id"),
    "KillBash": _saying("stopped", "shell_id"),
}


def describe_result(text: str, media: int) -> str:
    return summarise(text) or (f"{media} images" if media > 1 else "an image" if media else "no output")


def describe_failure(text: str) -> str:
    """`exit 1: KeyError: 'x'`: the code, and the line that says what went wrong."""
    if text.startswith(_EXIT):
        code, _, rest = text[len(_EXIT) :].partition("\n")
        reason = error_line(rest)
        return summarise(f"exit {code.strip()}: {reason}" if reason else f"exit {code.strip()}")
    if text.startswith(_TOOL_ERROR):
        return summarise("failed: " + text[len(_TOOL_ERROR) : _HEAD_CHARS].partition("</")[0])
    return summarise(f"failed: {error_line(text)}")


def describe_refusal(reason: str | None) -> str:
    return summarise(f"refused: {reason}") if reason else REFUSED


def find_reason(text: str) -> str | None:
    """The user's own words in a refusal, if it holds any."""
    return text[:_REASON_WITHIN].partition(_REASON)[2].strip() or None


def describe_answers(answers: Any) -> str:
    """`answered: Which colour do you like? Green`."""
    pairs = [f"{question} {answer}" for question, answer in as_mapping(answers).items()]
    return summarise("answered: " + " / ".join(pairs)) if pairs else "approved the plan"
