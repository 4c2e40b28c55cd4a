"""Codex's hooks: they get what a command printed, not whether it failed. They run once the user has trusted them."""

from recollect.agentkit.adapter import AgentHooks

TYPE_CHECKING = False  # see recollect.agentkit.adapter
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_SHELL = "Bash"  # what its hooks call every command


def _failure(payload: "Mapping[str, Any]") -> str:
    printed = payload.get("tool_response")
    return printed if payload.get("tool_name") == _SHELL and isinstance(printed, str) else ""


HOOKS = AgentHooks(
    "codex",
    client="codex",
    session_variable=None,
    failure=_failure,
    is_trusted_at_once=False,
    edit_tools=("apply_patch",),
)
