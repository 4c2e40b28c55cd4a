"""Adding Recollect to agents and taking it out again: their own commands, shown first, their settings backed up.

What an agent's settings were before is kept beside them until it is removed. If nobody changed them in between, they
are put back byte for byte; else the agent's own command has removed what it added, and the backup stays.
"""

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from recollect.agentkit.plugin import Command, PluginHost
from recollect.agents import adapters, find_plugin_host
from recollect.care.plugin import PLUGIN, hooks_of_agent, server_command, write_plugin
from recollect.errors import NotFound, RecollectError
from recollect.home import GROUP_VARIABLE
from recollect.settings_file import with_value

RECORD_NAME = "installed.json"
FOLDER_NAME = "plugin"
_BACKUP = ".before-recollect"
_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that installing or removing does: `run` a command, or `write`, `change` or `remove` a file."""

    agent: str
    action: str
    target: str


@dataclass(frozen=True, slots=True)
class Installation:
    """What is to be done for some agents, or was; `advice` is what is left for the user."""

    steps: list[Step] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Installer:
    """Installs into the homes of agents. `home` is the store's folder if it is not the usual one."""

    folder: Path
    roots: Mapping[str, Sequence[Path]]
    version: str
    home: str | None = None
    with_plugin: bool = True
    can_write: bool = False  # whether they get tools that record something

    def agents(self, names: Sequence[str]) -> list[str]:
        """The agents named, or all whose program is found. Raises NotFound if there is none."""
        known = _hosts()
        for name in names:
            if name not in known:
                raise NotFound(f"Unknown agent: {name}", f"known: {', '.join(known)}")
        agents = list(names) or [agent for agent, host in known.items() if shutil.which(host.program)]
        if not agents:
            raise NotFound(
                "No agent's program was found", f"looked for: {', '.join(h.program for h in known.values())}"
            )
        return agents

    def plan(self, agents: Sequence[str]) -> Installation:
        """What installing would do. Changes nothing."""
        plan = Installation([Step("", "write", str(self._marketplace))] if self.with_plugin else [])
        for agent in agents:
            host = _host(agent)
            plan.steps.extend(Step(agent, "change", str(path)) for path in self._configs(agent))
            plan.steps.extend(Step(agent, "run", shlex.join(words)) for words in self._commands(agent))
            plan.steps.extend(Step(agent, "write", str(path)) for path in self._own_files(agent))
            plan.advice.extend([host.advice] if host.advice else [])
        return plan

    def install(self, agents: Sequence[str]) -> Installation:
        """Do it. Raises RecollectError if an agent's command fails, after putting its settings back."""
        plan = self.plan(agents)
        for agent in agents:
            if agent in self._record():
                self.remove([agent])
        if self.with_plugin:
            server = server_command(can_write=self.can_write)
            write_plugin(self._marketplace, _hosts(), self.version, self.home, server, _variables())
        record = self._record()
        for agent in agents:
            configs = self._configs(agent)
            before = {str(path): _back_up(path) for path in configs}
            try:
                for words in self._commands(agent):
                    _run(words)
                self._name_variables(agent)
                self._add_hooks(agent)
            except RecollectError:
                for path in configs:
                    _put_back(path, had_file=before[str(path)])
                raise
            files = {str(path): {"had_file": before[str(path)], "after": _hash(path)} for path in configs}
            record[agent] = {"with_plugin": self.with_plugin, "files": files}
            self._write_record(record)
        return plan

    def _name_variables(self, agent: str) -> None:
        host = _host(agent)
        if not self.with_plugin and host.server_variables:
            path = self._root(agent) / host.config[0]
            _write(path, with_value(path.read_text("utf-8"), host.server_variables, _variables()))

    def _add_hooks(self, agent: str) -> None:
        host = _host(agent)
        hooks = hooks_of_agent(agent, host.events, PLUGIN if host.plugin_server else None, self.home)
        for path in self._own_files(agent):
            _write(path, json.dumps(hooks, indent=2) + "\n")
        if not self.with_plugin and host.settings_hooks and host.settings_hooks != host.hooks_file:
            path = self._root(agent) / host.settings_hooks
            settings = json.loads(path.read_text("utf-8")) if path.exists() else {}
            merged = dict(settings.get("hooks") or {})
            for event, entries in hooks["hooks"].items():
                merged[event] = [*merged.get(event, []), *entries]
            _write(path, json.dumps(settings | {"hooks": merged}, indent=2, ensure_ascii=False) + "\n")

    def plan_removal(self, agents: Sequence[str]) -> Installation:
        """What removing would do; of all agents that it was installed for if none is named."""
        record = self._record()
        for name in agents:
            if name not in record:
                raise NotFound(f"Not installed for this agent: {name}", f"installed for: {', '.join(record) or 'none'}")
        plan = Installation()
        for agent in agents or record:
            installer = self._as_recorded(record[agent])
            plan.steps.extend(Step(agent, "run", shlex.join(words)) for words in installer._removal(agent))
            plan.steps.extend(Step(agent, "change", path) for path in record[agent]["files"])
            plan.steps.extend(Step(agent, "remove", str(path)) for path in installer._own_files(agent))
            left = [str(self._root(agent) / name) for name in _host(agent).leftovers]
            plan.advice.extend(
                f"{adapters()[agent].profile.display_name} keeps caches of its own: {path}" for path in left
            )
        return plan

    def remove(self, agents: Sequence[str]) -> Installation:
        """Take it out again, and put the settings back as they were."""
        plan = self.plan_removal(agents)
        record = self._record()
        for agent in list(agents or record):
            files = record[agent]["files"]
            unchanged = {path for path, state in files.items() if _hash(Path(path)) == state["after"]}
            installer = self._as_recorded(record[agent])
            for words in installer._removal(agent):
                with suppress(RecollectError):  # an agent that is gone, or was told to remove it by hand
                    _run(words)
            for path in installer._own_files(agent):
                path.unlink(missing_ok=True)
            for path, state in files.items():
                if path in unchanged:
                    _put_back(Path(path), had_file=state["had_file"])
                else:
                    plan.advice.append(f"Changed since it was installed, so the agent's own command cleaned it: {path}")
            (self.folder / "answering" / agent).unlink(missing_ok=True)
            del record[agent]
            self._write_record(record)
        if not record:
            shutil.rmtree(self._marketplace, ignore_errors=True)
            (self.folder / RECORD_NAME).unlink(missing_ok=True)
        return plan

    def _as_recorded(self, record: Mapping[str, Any]) -> "Installer":
        return replace(self, with_plugin=record["with_plugin"])

    @property
    def _marketplace(self) -> Path:
        return self.folder / FOLDER_NAME

    def _root(self, agent: str) -> Path:
        return self.roots[agent][0]

    def _configs(self, agent: str) -> list[Path]:
        host = _host(agent)
        names = dict.fromkeys(host.config)
        if not self.with_plugin and host.settings_hooks and host.settings_hooks != host.hooks_file:
            names[host.settings_hooks] = None
        return [self._root(agent) / name for name in names]

    def _own_files(self, agent: str) -> Iterator[Path]:
        if name := _host(agent).hooks_file:
            yield self._root(agent) / name

    def _commands(self, agent: str) -> list[list[str]]:
        host = _host(agent)
        if not self.with_plugin:
            store = ["env", f"RECOLLECT_HOME={self.home}"] if self.home else []
            return [[host.program, *host.add_server, *store, *server_command(can_write=self.can_write)]]
        return [[host.program, *self._filled(words)] for words in host.install]

    def _removal(self, agent: str) -> list[list[str]]:
        host = _host(agent)
        commands = host.uninstall if self.with_plugin else (host.remove_server,)
        return [[host.program, *self._filled(words)] for words in commands]

    def _filled(self, words: Command) -> list[str]:
        places = {"marketplace": str(self._marketplace), "plugin": str(self._marketplace / "recollect")}
        return [word.format(**places) for word in words]

    def _record(self) -> dict[str, Any]:
        try:
            record: dict[str, Any] = json.loads((self.folder / RECORD_NAME).read_text("utf-8"))
            return record
        except FileNotFoundError:
            return {}

    def _write_record(self, record: Mapping[str, Any]) -> None:
        _write(self.folder / RECORD_NAME, json.dumps(record, indent=2) + "\n")


def _variables() -> list[str]:
    """What of the environment has to reach the server: the group that it answers for, and where agents' homes are."""
    return [GROUP_VARIABLE, *(adapter.home_variable for adapter in adapters().values())]


def _hosts() -> dict[str, PluginHost]:
    return {agent: host for agent in adapters() if (host := find_plugin_host(agent))}


def _host(agent: str) -> PluginHost:
    host = find_plugin_host(agent)
    if host is None:
        raise NotFound(f"No way to install into this agent: {agent}")
    return host


def _run(words: Sequence[str]) -> None:
    """Run an agent's command; raises RecollectError with what it said."""
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=_PATIENCE_S, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise RecollectError(f"Cannot run this command ({error}): {shlex.join(words)}") from error
    if done.returncode:
        said = (done.stderr or done.stdout).strip().splitlines()
        raise RecollectError(f"Failed ({said[-1] if said else done.returncode}): {shlex.join(words)}", "run it by hand")


def _back_up(path: Path) -> bool:
    """Keep a copy beside a file, unless one is there from before; whether there was a file."""
    backup = path.with_name(path.name + _BACKUP)
    if path.exists() and not backup.exists():
        shutil.copy2(path, backup)
    return backup.exists()


def _put_back(path: Path, *, had_file: bool) -> None:
    backup = path.with_name(path.name + _BACKUP)
    if had_file:
        backup.replace(path)
    else:
        path.unlink(missing_ok=True)


def _hash(path: Path) -> str | None:
    return sha256(path.read_bytes()).hexdigest() if path.exists() else None


def _write(path: Path, text: str) -> None:
    """Replace a file at once: a crash leaves the old one or the new one."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = path.with_name(path.name + ".new")
    unfinished.write_text(text, encoding="utf-8")
    if path.exists():
        unfinished.chmod(path.stat().st_mode & 0o777)
    unfinished.replace(path)
