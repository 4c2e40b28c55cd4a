"""Which projects are remembered: what the user allowed and denied, and what is undecided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from recollect import ingest
from recollect.agents import adapters
from recollect.api.settings import change_setting
from recollect.config import CAPTURE_DEFAULTS
from recollect.errors import NotFound

if TYPE_CHECKING:
    from os import PathLike

    from recollect.config import Settings
    from recollect.store import Store


@dataclass(frozen=True, slots=True)
class Tracking:
    """What is remembered. `undecided` counts the sessions that were left out, by folder: see `capture.default`."""

    is_enabled: bool
    default: str
    allowed: list[str]
    denied: list[str]
    undecided: dict[str, int]


class Projects:
    """What the settings say about projects and folders of logs, and how to change it."""

    def __init__(self, store: Store, load: Callable[[], Settings]) -> None:
        self._store = store
        self._load = load  # again each time: every change is in the file at once

    def tracking(self) -> Tracking:
        """What is remembered now, and what is undecided."""
        settings = self._load()
        default = CAPTURE_DEFAULTS[settings.allow is not None]
        undecided = dict(ingest.unlisted(self._store).most_common())
        return Tracking(settings.is_capturing, default, self._patterns("allow"), self._patterns("exclude"), undecided)

    def allow(self, project: str) -> None:
        """Remember a project, by folder or repository; the next sweep reads its sessions that were left out so far."""
        self._move(project, to="allow", out_of="exclude")
        ingest.lift_unlisted(self._store)

    def deny(self, project: str) -> None:
        """Keep a project out. Stored sessions stay until you forget them."""
        self._move(project, to="exclude", out_of="allow")

    def _patterns(self, name: str) -> list[str]:
        return list(self._load().given.get("capture", {}).get(name, []))

    def _move(self, project: str, *, to: str, out_of: str) -> None:
        path = self._load().config_path
        if project in (others := self._patterns(out_of)):
            change_setting(f"capture.{out_of}", [other for other in others if other != project], path)
        change_setting(f"capture.{to}", list(dict.fromkeys([*self._patterns(to), project])), path)

    def add_logs(self, folder: str | PathLike[str]) -> str:
        """Read the logs in this folder too; returns their agent. Raises NotFound if no agent wrote them."""
        path = Path(folder).expanduser().absolute()
        agent = _agent_of(path)
        self._change_roots(agent, [*self._load().roots[agent], path])
        return agent

    def remove_logs(self, folder: str | PathLike[str]) -> str:
        """Stop reading the logs in this folder; returns their agent. Stored sessions stay."""
        path = Path(folder).expanduser().absolute()
        for agent, roots in self._load().roots.items():
            if path in roots:
                self._change_roots(agent, [root for root in roots if root != path])
                return agent
        raise NotFound(f"Not among the folders that are read: {path}", "`recollect doctor` lists them")

    def _change_roots(self, agent: str, roots: list[Path]) -> None:
        change_setting(f"agents.{agent}.roots", list(dict.fromkeys(map(str, roots))), self._load().config_path)


def _agent_of(folder: Path) -> str:
    for agent, adapter in adapters().items():
        if folder.is_dir() and next(iter(adapter.discover(folder)), None) is not None:
            return agent
    raise NotFound(f"No agent's logs in this folder: {folder}", "give an agent's home, or a folder with its logs")
