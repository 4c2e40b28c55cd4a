"""One call of a hook, the same for all agents."""

import json
import os
from importlib import import_module

from recollect.agents import BUILT_IN

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from recollect.agentkit.adapter import AgentHooks

PRE_COMPACT = "PreCompact"
CHECK = "RecollectCheck"  # asked by `recollect doctor`, to see that a hook answers
_FILE_KEYS, _PATCH_KEYS = ("file_path", "notebook_path", "target_file", "path"), ("command", "input", "patch")
_PATCHED = "*** Update File: "
_ALIASES = {"transcript_path": "transcriptPath", "tool_use_id": "toolUseId"}  # of an agent that leaves out the first


class HookEvent:
    """What an agent passes to a hook. What it leaves out is empty."""

    def __init__(self, hooks: "AgentHooks", payload: "Mapping[str, Any]") -> None:
        self.hooks = hooks
        self.name = _text(payload, "hook_event_name")
        self.session = _text(payload, "session_id")
        self.folder = _text(payload, "cwd") or os.getcwd()
        self.transcript = _text(payload, "transcript_path")
        self.source = _text(payload, "source")
        self.prompt = _text(payload, "prompt") if self.name == "UserPromptSubmit" else ""
        turn = (_text(payload, key) for key in ("tool_use_id", "prompt_id", "turn_id"))
        self.turn = next(filter(None, turn), "")
        self.edited = _edited(hooks, payload) if self.name == "PreToolUse" else []
        self.edit = json.dumps(payload.get("tool_input", payload.get("toolInput"))) if self.edited else ""
        self.failure = hooks.failure(payload) if self.name.startswith("PostToolUse") else ""


def _text(payload: "Mapping[str, Any]", key: str) -> str:
    value = payload.get(key, payload.get(_ALIASES.get(key, key)))
    return value if isinstance(value, str) else ""


def _edited(hooks: "AgentHooks", payload: "Mapping[str, Any]") -> "list[str]":
    """The files that a tool is about to change, in full."""
    given = payload.get("tool_input", payload.get("toolInput"))
    if not isinstance(given, dict) or payload.get("tool_name", payload.get("toolName")) not in hooks.edit_tools:
        return []
    texts = {key: text for key, text in given.items() if isinstance(text, str)}
    names = [texts[key] for key in _FILE_KEYS if key in texts]
    for line in "\n".join(texts[key] for key in _PATCH_KEYS if key in texts).splitlines():
        names += [line.removeprefix(_PATCHED)] if line.startswith(_PATCHED) else []
    return [os.path.join(_text(payload, "cwd") or os.getcwd(), name) for name in names]


def all_hooks() -> "list[AgentHooks]":
    """Of every agent of this package that has hooks."""
    packages = [import_module(f"recollect.agents.{agent}") for agent in BUILT_IN]
    with_hooks = [package.__name__ for package in packages if os.path.exists(f"{package.__path__[0]}/hooks.py")]
    return [import_module(f"{name}.hooks").HOOKS for name in with_hooks]


def hooks_of(payload: "Mapping[str, Any]", variables: "Mapping[str, str]") -> "AgentHooks":
    """Whose hook this is. By the session that the environment names: agents also run hooks meant for others.

    One that names none in the environment is left when no other fits.
    """
    session, known = payload.get("session_id"), all_hooks()
    for hooks in known:
        if hooks.session_variable and session and variables.get(hooks.session_variable) == session:
            return hooks
    return next(hooks for hooks in known if not hooks.session_variable)


def hooks_of_agent(agent: str) -> "AgentHooks | None":
    """The hooks of an agent by its name."""
    return next((hooks for hooks in all_hooks() if hooks.agent == agent), None)


def hooks_of_client(name: str) -> "AgentHooks | None":
    """The agent that introduces itself to a server by this name."""
    return next((hooks for hooks in all_hooks() if name.lower().startswith(hooks.client)), None)
