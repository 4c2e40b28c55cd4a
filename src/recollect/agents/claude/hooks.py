"""Claude Code's hooks: failed calls have an event of their own, and everything that hooks add reaches the model."""

from recollect.agentkit.adapter import AgentHooks

TYPE_CHECKING = False  # see recollect.agentkit.adapter
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


def _failure(payload: "Mapping[str, Any]") -> str:
    error = payload.get("error")
    is_interrupt = payload.get("is_interrupt") in (True, "true")  # a server gets every field as text
    return error if isinstance(error, str) and not is_interrupt else ""


HOOKS = AgentHooks(
    "claude",
    client="claude",
    session_variable="CLAUDE_CODE_SESSION_ID",
    failure=_failure,
    edit_tools=("Edit", "Write", "MultiEdit", "NotebookEdit"),
)
