"""The adapter of an agent whose folder has the modules `discover`, `log` and `edits`."""

from collections.abc import Iterator
from importlib import import_module
from typing import TYPE_CHECKING

from recollect.agentkit.profile import AgentProfile

if TYPE_CHECKING:  # a search loads the profiles, and must not pay for the contract
    from collections.abc import Mapping
    from pathlib import Path
    from typing import Any

    from recollect.agentkit.edits import FileChange
    from recollect.agentkit.protocol import Cursor, Record, Source


class FolderAdapter:
    """Reads an agent's files with `discover(root)`, `READERS` (by kind of source) and `changes` of its package.

    The modules load when they are first used: a search needs none, a sweep without news only the first.
    """

    def __init__(
        self, package: str, profile: AgentProfile, *, agent: str, home: str, home_variable: str, version: int
    ) -> None:
        self._package = package
        self.profile = profile
        self.agent = agent
        self.home = home
        self.home_variable = home_variable
        self.version = version

    def discover(self, root: "Path") -> "Iterator[Source]":
        sources: Iterator[Source] = import_module(f"{self._package}.discover").discover(root)
        return sources

    def read(self, source: "Source", cursor: "Cursor | None") -> "Iterator[Record]":
        records: Iterator[Record] = import_module(f"{self._package}.log").READERS[source.kind](source, cursor)
        return records

    def changes(self, call: "Mapping[str, Any]", result: "Mapping[str, Any] | None") -> "list[FileChange]":
        changed: list[FileChange] = import_module(f"{self._package}.edits").changes(call, result)
        return changed
