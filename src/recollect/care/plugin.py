"""The plugin that agents install: one folder in the format they all take. Each copies it, so its paths are absolute."""

import json
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from recollect.agentkit.profile import PluginHost
from recollect.home import HOOK_TOOL
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
