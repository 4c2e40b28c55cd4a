"""Grok's hooks: outputs are lists of bytes, and what is added before the first tool call is thrown away."""

from recollect.agentkit.adapter import AgentHooks

TYPE_CHECKING = False  # see recollect.agentkit.adapter
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def _failure(payload: "Mapping[str, Any]") -> str:
    error = payload.get("error")
    if isinstance(error, str):
        return error
    result = payload.get("toolResult", payload.get("tool_response"))
    if not isinstance(result, dict) or not result.get("exit_code"):
        return ""
    output = result.get("output")
    try:
        return bytes(output).decode("utf-8", "replace") if isinstance(output, list) else str(output or "")
    except (TypeError, ValueError):
        return ""


HOOKS = AgentHooks(
    "grok",
    client="grok",
    session_variable="GROK_SESSION_ID",
    failure=_failure,
    hears_start=False,
    hears_prompt=False,
    edit_tools=("search_replace", "write", "edit", "multi_edit", "apply_patch"),
)
