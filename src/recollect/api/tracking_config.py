"""Importing the settings of another tracker, given as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.agents import adapters
from recollect.api.settings import change_setting
from recollect.errors import BadConfig

_ALWAYS = {
    "version": "only the keys count",
    "global.session_log_sources.type": "the agent is known by its logs",
    "global.session_log_sources.mapping": "a session's project is read from its log",
    "session_tracking.incremental": "a sweep reads only what is new",
    "session_tracking.mode": "every agent that is installed is read",
    "session_tracking.chunking.strategy": "a chunk is an exchange: a request and everything until the next one",
    "session_tracking.filtering.keep_user_messages": "`exchanges` keeps what you said",
    "session_tracking.filtering.keep_agent_responses": "`exchanges` keeps what the agent answered",
    "session_tracking.filtering.omit_tool_outputs": "`exchanges` reduces a long result to its size",
    "session_tracking.filtering.omit_file_contents": "`exchanges` reduces a long result to its size",
}
_SETTINGS = {
    "global.track_session_logs": "capture.enabled",
    "session_tracking.enabled": "capture.enabled",
    "session_tracking.chunking.max_chunk_tokens": "exchanges.max_tokens",
    "session_tracking.filtering.max_output_summary_chars": "exchanges.max_result_chars",
    "session_tracking.filtering.keep_tool_structure": "exchanges.keep_tool_calls",
}
_FIXED = {key for key in _ALWAYS if key.startswith("session_tracking.filtering.")} | {"session_tracking.incremental"}
_OWN = {"filtering", "chunking", "mode"}  # of a project
# A comment follows what has no open string on its line.
_COMMENT = re.compile(r'^((?:[^"\n]|"(?:[^"\\\n]|\\.)*")*?)//.*$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Translated:
    """What a key became: a setting with its value, or only a note if it needs none or has no equivalent."""

    key: str
    note: str
    setting: str | None = None
    value: Any = None


def import_tracking_config(path: Path) -> list[Translated]:
    """Import the settings of a tracking configuration; returns what each key became. Raises BadConfig."""
    translated = list(translate(_read(path)))
    for item in translated:
        if item.setting is not None:
            change_setting(item.setting, item.value)
    return translated


def _read(path: Path) -> Mapping[str, Any]:
    try:
        config = json.loads(_COMMENT.sub(r"\1", path.read_text(encoding="utf-8")))
    except (OSError, ValueError, RecursionError) as error:
        raise BadConfig(f"Cannot read the tracking configuration ({error}): {path}", "give a JSON file") from None
    if not isinstance(config, dict):
        raise BadConfig(f"Not a tracking configuration: {path}", "it is an object with `session_tracking` or `global`")
    return config


def translate(config: Mapping[str, Any]) -> Iterator[Translated]:
    """What each key of a configuration means here. Changes nothing."""
    projects = config.get("projects")
    projects = {n: p for n, p in projects.items() if isinstance(p, dict)} if isinstance(projects, dict) else {}
    allowed, denied = _roots(projects, is_enabled=True), _roots(projects, is_enabled=False)
    indexing = {}
    for key, value in _leaves({name: below for name, below in config.items() if name != "projects"}):
        if allowed and value is False and _SETTINGS.get(key) == "capture.enabled":
            yield Translated(key, "capture.default = ask", "capture.default", "ask")
        elif value is False and key in _FIXED:
            yield Translated(key, f"not followed: {_ALWAYS[key]}")
        elif key in _SETTINGS:
            yield Translated(key, f"{_SETTINGS[key]} = {json.dumps(value)}", _SETTINGS[key], value)
        elif key in _ALWAYS:
            yield Translated(key, _ALWAYS[key])
        elif key.startswith("session_tracking.indexing."):
            indexing[key.rpartition(".")[2]] = value
        elif key == "global.session_log_sources.base_path":
            yield _source(key, value)
        else:
            yield Translated(key, "unknown here: ignored")
    if indexing:
        yield Translated("session_tracking.indexing", _schedule(indexing))
    if any(_OWN & {*project, *(project.get("session_tracking") or ())} for project in projects.values()):
        yield Translated("projects", "not followed: filtering, chunking and mode are the same for all projects")
    is_off = any(value is False and _SETTINGS.get(key) == "capture.enabled" for key, value in _leaves(config))
    if denied:
        yield Translated("projects", f"capture.exclude = {', '.join(denied)}", "capture.exclude", denied)
    if allowed and is_off:
        yield Translated("projects", f"capture.allow = {', '.join(allowed)}", "capture.allow", allowed)
    elif projects and not denied:
        yield Translated("projects", "no project is remembered" if is_off else "every project is remembered")


def _leaves(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Each value below, by its path; the members of a list share one."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _leaves(below, f"{above}.{name}".lstrip("."))
    elif isinstance(value, list):
        for below in value:
            yield from _leaves(below, above)
    else:
        yield above, value


def _roots(projects: Mapping[str, Any], *, is_enabled: bool) -> list[str]:
    """The folders of the projects that are switched on, or off."""
    roots = []
    for project in projects.values():
        tracking = project.get("session_tracking")
        tracking = tracking if isinstance(tracking, dict) else {}
        given = {tracking.get("enabled"), project.get("session_tracking_enabled")} - {None}
        if given and all(given) is is_enabled and isinstance(project.get("project_root"), str):
            roots.append(project["project_root"])
    return roots


def _source(key: str, base_path: Any) -> Translated:
    """A folder of logs becomes one of its agent's homes, unless it is below one already."""
    path = Path(str(base_path)).expanduser().absolute()
    for agent, adapter in adapters().items():
        home = Path(adapter.home).expanduser().absolute()
        if path.is_relative_to(home):
            return Translated(key, f"{home} is already read")
        if path.is_dir() and next(iter(adapter.discover(path)), None) is not None:
            setting = f"agents.{agent}.roots"
            return Translated(key, f"{setting} = {home}, {path}", setting, [str(home), str(path)])
    return Translated(key, f"no agent's logs found: ignored ({path})")


def _schedule(indexing: Mapping[str, Any]) -> str:
    if indexing.get("frequency") == "batch":
        return f"run `recollect watch --every {indexing.get('batch_interval_minutes', 5)}`"
    return "run `recollect schedule --watch`"
