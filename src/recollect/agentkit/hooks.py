"""What a hook needs to know of an agent. Loads nothing: an agent waits for its hooks."""

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any


class AgentHooks:
    """How one agent calls its hooks, and what reaches its model. Each is a constant of `agents/<name>/hooks.py`."""

    def __init__(
        self,
        agent: str,
        *,
        client: str,
        session_variable: str | None,
        failure: "Callable[[Mapping[str, Any]], str]",
        hears_start: bool = True,
        hears_prompt: bool = True,
        is_trusted_at_once: bool = True,
    ) -> None:
        self.agent = agent
        self.client = client  # how the name begins by which it introduces itself to a server
        self.session_variable = session_variable
        self.failure = failure  # the output of a call that failed, as far as the agent tells; else empty
        self.hears_start = hears_start  # what SessionStart adds reaches its model
        self.hears_prompt = hears_prompt  # what UserPromptSubmit adds does
        self.is_trusted_at_once = is_trusted_at_once  # its hooks run without being confirmed by hand
