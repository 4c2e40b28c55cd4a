"""The plugin that agents install: one folder in the format they all take. Each copies it, so its paths are absolute."""

import json
import shlex
import shutil
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from recollect.recall.prompts import PROMPTS

MARKETPLACE, PLUGIN = "recollect-local", "recollect"
BRIEF, FIXES = "brief", "fixes"  # what agents are told without asking
_EVENTS_OF = {BRIEF: ("SessionStart",), FIXES: ("PostToolUse", "PostToolUseFailure")}
_EVENTS = {  # and how many seconds an agent may wait; one of them allows no more than 3 at a session's end
    "SessionStart": 5,
    "PostToolUse": 5,
    "PostToolUseFailure": 5,
    "PreCompact": 10,
    "Stop": 5,
    "SessionEnd": 3,
}
_ABOUT = "Memory of earlier sessions with coding agents"
_RUN = "from recollect.hooks.command import run; run()"
_README = """# Recollect

Gives a coding agent the memory of earlier sessions on this machine: tools to search them, a brief of what the last
session left when a new one starts, and a note to read a session once it ends. Everything stays in one local store.
`recollect install` wrote this folder; `recollect uninstall` removes it.
"""


def server_command(without: Collection[str] = (), *, can_write: bool = False) -> list[str]:
    """What an agent starts as its server."""
    options = [*(["--no-brief"] if BRIEF in without else []), *(["--write-tools"] if can_write else [])]
    return [sys.executable, "-I", "-m", "recollect", "mcp", *options]


def hook_command(home: str | None) -> str:
    """What an agent runs as a hook, as a line for a shell. `home` is the store's folder if it is not the usual one."""
    command = shlex.join([sys.executable, "-I", "-c", _RUN])
    return f"RECOLLECT_HOME={shlex.quote(home)} {command}" if home else command


def hooks_of_plugin(home: str | None, without: Collection[str] = ()) -> dict[str, Any]:
    """The hooks in the form that all agents read, but for those of what agents should not be told."""
    left_out = {event for name in without for event in _EVENTS_OF[name]}
    hook = {"type": "command", "command": hook_command(home)}
    return {
        "hooks": {
            event: [{"hooks": [hook | {"timeout": seconds}]}]
            for event, seconds in _EVENTS.items()
            if event not in left_out
        }
    }


def write_plugin(
    folder: Path,
    manifests: Collection[str],
    version: str,
    home: str | None,
    server_words: Sequence[str],
    without: Collection[str] = (),
) -> None:
    """Write the folder anew; `manifests` are the folders in which agents look for descriptions."""
    shutil.rmtree(folder, ignore_errors=True)
    plugin = folder / PLUGIN
    about = {"name": PLUGIN, "description": _ABOUT}
    market = {"name": MARKETPLACE, "owner": {"name": "Recollect"}, "plugins": [about | {"source": f"./{PLUGIN}"}]}
    server: dict[str, Any] = {"command": server_words[0], "args": list(server_words[1:])}
    server |= {"env": {"RECOLLECT_HOME": home}} if home else {}
    files: dict[Path, Any] = {
        plugin / ".mcp.json": {"mcpServers": {PLUGIN: server}},
        plugin / "hooks" / "hooks.json": hooks_of_plugin(home, without),
    }
    for name in manifests:
        files[folder / name / "marketplace.json"] = market
        files[plugin / name / "plugin.json"] = about | {"version": version, "author": {"name": "Recollect"}}
    texts = {path: json.dumps(content, indent=2) + "\n" for path, content in files.items()}
    texts |= {plugin / "skills" / prompt.name / "SKILL.md": prompt.skill() for prompt in PROMPTS.values()}
    for path, text in (texts | {plugin / "README.md": _README}).items():
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
