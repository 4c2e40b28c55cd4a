"""The adapter of an agent whose folder has the modules `profile`, `discover`, `log` and `edits`; and its hooks.

Loads nothing: an agent waits for its hooks.
"""

from functools import cached_property
from importlib import import_module

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from typing import Any

    from recollect.agentkit.calls import FileChange
    from recollect.agentkit.profile import AgentProfile
    from recollect.agentkit.protocol import Cursor, Record, Source


class FolderAdapter:
    """Reads an agent's files with `discover(root)`, `READERS` (by kind of source) and `changes` of its package.

    The modules load when they are first used: a hook needs none, a search only `PROFILE`.
    """

    def __init__(self, package: str, *, agent: str, home: str, home_variable: str, version: int) -> None:
        self._package = package
        self.agent = agent
        self.home = home
        self.home_variable = home_variable
        self.version = version

    @cached_property
    def profile(self) -> "AgentProfile":
        profile: AgentProfile = import_module(f"{self._package}.profile").PROFILE
        return profile

    def discover(self, root: "Path") -> "Iterator[Source]":
        sources: Iterator[Source] = import_module(f"{self._package}.discover").discover(root)
        return sources

    def units(self, container: "Source") -> "list[Source]":
        units: list[Source] = import_module(f"{self._package}.discover").units(container)
        return units

    def read(self, source: "Source", cursor: "Cursor | None") -> "Iterator[Record]":
        records: Iterator[Record] = import_module(f"{self._package}.log").READERS[source.kind](source, cursor)
        return records

    @cached_property
    def changes(self) -> "Callable[[Mapping[str, Any], Mapping[str, Any] | None], list[FileChange]]":
        changes: Callable[..., list[FileChange]] = import_module(f"{self._package}.edits").changes
        return changes


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
        edit_tools: "tuple[str, ...]" = (),
    ) -> None:
        self.agent = agent
        self.client = client  # how the name begins by which it introduces itself to a server
        self.session_variable = session_variable
        self.failure = failure  # the output of a call that failed, as far as the agent reports it; else empty
        self.hears_start = hears_start  # what SessionStart adds reaches its model
        self.hears_prompt = hears_prompt  # what UserPromptSubmit adds does
        self.edit_tools = edit_tools  # its tools that change files, as its hooks name them
        self.is_trusted_at_once = is_trusted_at_once  # its hooks run without being confirmed by hand
