"""Adding Recollect to agents and taking it out again: their own commands, shown first, their settings backed up.

What an agent's settings were before is kept beside them until it is removed. If nobody changed them in between, they
are put back byte for byte; else the agent's own command has removed what it added, and the backup stays.

`broken_pieces` tries what was installed, by a round trip through each piece.

The plugin that agents install: one folder in the format they all take. Each copies it, so its paths are absolute.
"""

import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from recollect.agentkit.profile import Command, PluginHost
from recollect.agents import adapters, find_plugin_host, get_adapter
from recollect.config import Settings, with_value, write_settings
from recollect.model.errors import NotFound, RecollectError
from recollect.model.home import GROUP_VARIABLE, HOOK_TOOL
from recollect.recall import AGENT_PROMPTS

MARKETPLACE, PLUGIN = "recollect-local", "recollect"
_TIMEOUT_S = 5  # how long an agent may wait for a hook
_TIMEOUTS_S = {"PreCompact": 10, "SessionEnd": 3}  # it copies; one agent allows no more
_ALWAYS_PASSED = ("session_id", "cwd", "transcript_path")
_ABOUT = "Memory of earlier sessions with coding agents"
_RUN = "from recollect.hooks.command import run; run()"
_README = """# Recollect

Gives a coding agent the memory of earlier sessions on this machine: tools to search them, a brief of what the last
session left when a new one starts, and a note to read a session once it ends. Everything stays in one local store.
`recollect install` wrote this folder; `recollect uninstall` removes it.
"""


def server_command(*, can_write: bool = False) -> list[str]:
    """What an agent starts as its server."""
    return [sys.executable, "-I", "-m", "recollect", "mcp", *(["--write-tools"] if can_write else [])]


def hook_command(home: str | None) -> str:
    """What an agent runs as a hook, as a line for a shell. `home` is the store's folder if it is not the usual one."""
    command = shlex.join([sys.executable, "-I", "-c", _RUN])
    return f"RECOLLECT_HOME={shlex.quote(home)} {command}" if home else command


def hooks_of_agent(agent: str, host: PluginHost, server: str | None, home: str | None) -> dict[str, Any]:
    """An agent's hooks in the form that all agents read; calls of `server` where they can be."""
    hooks = {}
    for event, fields in host.events.items():
        if server and fields is not None:
            inputs = {name: f"${{{name}}}" for name in (*_ALWAYS_PASSED, *fields)}
            hook: dict[str, Any] = {"type": "mcp_tool", "server": server, "tool": HOOK_TOOL}
            hook |= {"input": {"agent": agent, "hook_event_name": event, **inputs}}
        else:
            hook = {"type": "command", "command": hook_command(home)}
        matcher = {"matcher": host.matchers[event]} if event in host.matchers else {}
        hooks[event] = [matcher | {"hooks": [hook | {"timeout": _TIMEOUTS_S.get(event, _TIMEOUT_S)}]}]
    return {"hooks": hooks}


def without_our_hooks(hooks: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of hooks without those that an installation of any version added."""
    kept = {event: [entry for entry in entries if not _is_ours(entry)] for event, entries in hooks.items()}
    return {event: entries for event, entries in kept.items() if entries}


def _is_ours(entry: Any) -> bool:
    words = json.dumps(entry)
    return _RUN in words or f'"tool": "{HOOK_TOOL}"' in words


def write_plugin(
    folder: Path,
    hosts: Mapping[str, PluginHost],
    version: str,
    home: str | None,
    server_words: Sequence[str],
    variables: Sequence[str],
) -> None:
    """Write the folder from scratch. `variables` of the environment have to reach the server."""
    shutil.rmtree(folder, ignore_errors=True)
    plugin = folder / PLUGIN
    about = {"name": PLUGIN, "description": _ABOUT}
    market = {"name": MARKETPLACE, "owner": {"name": "Recollect"}, "plugins": [about | {"source": f"./{PLUGIN}"}]}
    server: dict[str, Any] = {"command": server_words[0], "args": list(server_words[1:])}
    server |= {"env": {"RECOLLECT_HOME": home}} if home else {}
    server |= {"env_vars": list(variables)}  # for an agent that passes on no others
    files: dict[Path, Any] = {plugin / ".mcp.json": {"mcpServers": {PLUGIN: server}}}
    described = about | {"version": version, "author": {"name": "Recollect"}, "license": "Apache-2.0"}
    for agent, host in hosts.items():
        files[folder / host.manifests / "marketplace.json"] = market
        if host.plugin_server:
            files[plugin / "hooks" / f"{agent}.json"] = hooks_of_agent(agent, host, host.plugin_server, home)
            files[plugin / host.manifests / "plugin.json"] = described | {"hooks": f"./hooks/{agent}.json"}
    texts = {path: json.dumps(content, indent=2) + "\n" for path, content in files.items()}
    texts |= {plugin / "skills" / prompt.name / "SKILL.md": prompt.skill() for prompt in AGENT_PROMPTS.values()}
    for path, text in (texts | {plugin / "README.md": _README}).items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


RECORD_NAME = "installed.json"
FOLDER_NAME = "plugin"
_BACKUP = ".before-recollect"
_PATIENCE_S = 120


@dataclass(frozen=True, slots=True)
class Installation:
    """What is to be done for some agents, or was; `advice` is what is left for the user.

    Each step has the `agent`, an `action` and its `target`: `run` a command, or `copy`, `write`, `change` or `remove` a
    file.
    """

    steps: list[dict[str, str]] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def add(self, agent: str, action: str, *targets: object) -> None:
        self.steps.extend({"agent": agent, "action": action, "target": str(target)} for target in targets)


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
            programs = ", ".join(host.program for host in known.values())
            raise NotFound("No agent's program was found", f"looked for: {programs}")
        return agents

    def plan(self, agents: Sequence[str]) -> Installation:
        """What installing would do. Changes nothing."""
        plan = Installation()
        if self.with_plugin:
            plan.add("", "write", self._marketplace)
        for agent in agents:
            host = _host(agent)
            if self._commands(agent) and shutil.which(host.program) is None:
                raise NotFound(f"Program not found: {host.program}", "install it, or put its folder on your PATH")
            for path in self._configs(agent):
                if path.exists():
                    plan.add(agent, "copy", f"{path} to {_copy_of(path).name}")
                plan.add(agent, "change", path)
            plan.add(agent, "run", *map(shlex.join, self._commands(agent)))
            plan.add(agent, "write", *self._own_files(agent))
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
            files: dict[str, Any] = {str(path): {"had_file": _back_up(path)} for path in self._configs(agent)}
            record[agent] = {"with_plugin": self.with_plugin, "files": files}
            self._write_record(record)  # before anything is changed: if this is killed, `remove` knows what to put back
            try:
                for words in self._commands(agent):
                    _run(words)
                self._add_hooks(agent)
            except RecollectError:
                for path, state in files.items():
                    _put_back(Path(path), had_file=state["had_file"])
                del record[agent]
                self._write_record(record)
                raise
            for path, state in files.items():
                state["after"] = _hash(Path(path))
            self._write_record(record)
        return plan

    def _add_hooks(self, agent: str) -> None:
        host = _host(agent)
        if not self.with_plugin and host.server_variables:
            path = self._root(agent) / host.config[0]
            write_settings(path, with_value(path.read_text("utf-8"), host.server_variables, _variables()))
        hooks = hooks_of_agent(agent, host, PLUGIN if host.plugin_server else None, self.home)
        for path in self._own_files(agent):
            _write_json(path, hooks)
        if shared := self._settings_hooks(agent):
            settings = json.loads(shared.read_text("utf-8")) if shared.exists() else {}
            merged = dict(settings.get("hooks") or {})
            for event, entries in hooks["hooks"].items():
                merged[event] = [*merged.get(event, []), *entries]
            _write_json(shared, settings | {"hooks": merged})

    def _drop_hooks(self, agent: str, path: Path) -> None:
        """Take our hooks out of settings that somebody changed: no command of the agent does."""
        if path != self._settings_hooks(agent):
            return
        with suppress(OSError, ValueError):  # gone, or no settings any more
            settings = json.loads(path.read_text("utf-8"))
            kept = without_our_hooks(settings.pop("hooks", None) or {})
            _write_json(path, settings | ({"hooks": kept} if kept else {}))

    def plan_removal(self, agents: Sequence[str]) -> Installation:
        """What removing would do; of all agents that it was installed for if none is named."""
        record = self._record()
        for name in agents:
            if name not in record:
                raise NotFound(f"Not installed for this agent: {name}", f"installed for: {', '.join(record) or 'none'}")
        plan = Installation()
        for agent in agents or record:
            installer = replace(self, with_plugin=record[agent]["with_plugin"])
            plan.add(agent, "run", *map(shlex.join, installer._removal(agent)))
            plan.add(agent, "change", *record[agent]["files"])
            plan.add(agent, "remove", *installer._own_files(agent))
            name = adapters()[agent].profile.display_name
            left = [self._root(agent) / path for path in _host(agent).leftovers]
            plan.advice.extend(f"{name} keeps its own caches: {path}" for path in left)
        if record and self._marketplace.exists() and record.keys() <= set(agents or record):
            plan.add("", "remove", self._marketplace)
        return plan

    def remove(self, agents: Sequence[str]) -> Installation:
        """Take it out again, and put the settings back as they were."""
        plan = self.plan_removal(agents)
        record = self._record()
        for agent in list(agents or record):
            files = record[agent]["files"]
            # Without `after` an installation or a removal was killed, so any change since is its own.
            unchanged = {
                path for path, state in files.items() if "after" not in state or _hash(Path(path)) == state["after"]
            }
            for path in unchanged:
                files[path].pop("after", None)
                if files[path]["had_file"] and not _copy_of(Path(path)).exists():
                    _back_up(Path(path))  # a removal that was killed has put it back; the commands run once more
            self._write_record(record)  # before the agent's commands change those files
            installer = replace(self, with_plugin=record[agent]["with_plugin"])
            for words in installer._removal(agent):
                with suppress(RecollectError):  # the agent is gone, or the user removed the plugin by hand
                    _run(words)
            for path in installer._own_files(agent):
                path.unlink(missing_ok=True)
            for path, state in files.items():
                if path in unchanged:
                    _put_back(Path(path), had_file=state["had_file"])
                else:
                    installer._drop_hooks(agent, Path(path))
                    copy = f"; the earlier copy is {_copy_of(Path(path)).name}" if state["had_file"] else ""
                    plan.advice.append(f"Kept your changes since the installation in {path}{copy}")
            (self.folder / "answering" / agent).unlink(missing_ok=True)
            del record[agent]
            if not record:
                shutil.rmtree(self._marketplace, ignore_errors=True)
            self._write_record(record)  # last: until then, another removal does the rest
        return plan

    @property
    def _marketplace(self) -> Path:
        return self.folder / FOLDER_NAME

    def _root(self, agent: str) -> Path:
        return self.roots[agent][0]

    def _configs(self, agent: str) -> list[Path]:
        paths = [*(self._root(agent) / name for name in _host(agent).config), self._settings_hooks(agent)]
        return list(dict.fromkeys(path for path in paths if path))

    def _settings_hooks(self, agent: str) -> Path | None:
        """The settings that hooks are added to, if the agent takes them from no plugin and from no file of ours."""
        host = _host(agent)
        if self.with_plugin or not host.settings_hooks or host.settings_hooks == host.hooks_file:
            return None
        return self._root(agent) / host.settings_hooks

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
        path = self.folder / RECORD_NAME
        record: dict[str, Any] = json.loads(path.read_text("utf-8")) if path.exists() else {}
        return record

    def _write_record(self, record: Mapping[str, Any]) -> None:
        if record:
            _write_json(self.folder / RECORD_NAME, record)
        else:
            (self.folder / RECORD_NAME).unlink(missing_ok=True)


def _variables() -> list[str]:
    """What of the environment has to reach the server: the group that it answers for, and where agents' homes are."""
    homes = (adapter.home_variable.partition("/")[0] for adapter in adapters().values())  # of `XDG_DATA_HOME/name`
    return [GROUP_VARIABLE, *homes]


def _hosts() -> dict[str, PluginHost]:
    return {agent: host for agent in adapters() if (host := find_plugin_host(agent))}


def _host(agent: str) -> PluginHost:
    host = find_plugin_host(agent)
    if host is None:
        raise NotFound(f"Cannot install into this agent: {agent}")
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


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    write_settings(path, json.dumps(content, indent=2, ensure_ascii=False) + "\n")


def _back_up(path: Path) -> bool:
    """Keep a copy beside a file, in place of one from an earlier installation; whether there was a file."""
    if path.exists():
        beside = path.with_name(f"{_copy_of(path).name}.new")
        shutil.copy2(path, beside)
        beside.replace(_copy_of(path))
    return path.exists()


def _copy_of(path: Path) -> Path:
    return path.with_name(path.name + _BACKUP)


def _put_back(path: Path, *, had_file: bool) -> None:
    if had_file:
        _copy_of(path).replace(path)
    else:
        path.unlink(missing_ok=True)


def _hash(path: Path) -> str | None:
    return sha256(path.read_bytes()).hexdigest() if path.exists() else None


_ANSWER_S = 30
_ASKED = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n'
_EVENT = json.dumps({"hook_event_name": "RecollectCheck", "session_id": "doctor"}).encode()


def installed_agents(settings: Settings) -> Mapping[str, Any]:
    """The agents that `recollect install` was run for."""
    try:
        record: Mapping[str, Any] = json.loads((settings.folder / RECORD_NAME).read_bytes())
    except (OSError, ValueError):
        return {}
    return record


def broken_pieces(settings: Settings) -> Iterator[tuple[str, str]]:
    """(agent, what does not answer) of everything that was installed."""
    agents = installed_agents(settings)
    if not agents:
        return
    if b'"session_search"' not in _output(server_command(), _ASKED):
        yield "", "the MCP server"
    if b'"recollect"' not in _output(["/bin/sh", "-c", hook_command(str(settings.folder))], _EVENT):
        yield "", "the hook"
    for agent, record in agents.items():
        host = find_plugin_host(agent)
        if host is None:
            continue
        listing = host.listing if record["with_plugin"] else ("mcp", "list")
        if b"recollect" not in _output([host.program, *listing], b""):
            yield agent, f"{get_adapter(agent).profile.display_name} does not list it"


def _output(command: Sequence[str], given: bytes) -> bytes:
    try:
        return subprocess.run(command, input=given, capture_output=True, timeout=_ANSWER_S).stdout
    except (OSError, subprocess.TimeoutExpired):
        return b""
