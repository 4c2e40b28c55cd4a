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
    "global.session_log_sources.mapping": "a session's project is read from its log",
    "session_tracking.incremental": "a sweep reads only what is new",
    "session_tracking.mode": "every agent that is installed is read",
    "session_tracking.chunking.strategy": "a chunk is an exchange: a request and everything until the next one",
    "session_tracking.filtering.keep_user_messages": "`exchanges` keeps what you said",
    "session_tracking.filtering.keep_agent_responses": "`exchanges` keeps what the agent answered",
    "session_tracking.filtering.omit_tool_outputs": "`exchanges` reduces a long result to its size",
    "session_tracking.filtering.omit_file_contents": "`exchanges` reduces a long result to its size",
    "projects.jsonl_path": "logs are found below their agent's home",
    "projects.session_tracking.source": "every agent that is installed is read",
}
_SETTINGS = {
    "global.track_session_logs": "capture.enabled",
    "session_tracking.enabled": "capture.enabled",
    "session_tracking.chunking.max_chunk_tokens": "exchanges.max_tokens",
    "session_tracking.filtering.max_output_summary_chars": "exchanges.max_result_chars",
    "session_tracking.filtering.keep_tool_structure": "exchanges.keep_tool_calls",
}
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
    projects = config.get("projects", {})
    denied = [*_denied(projects)] if isinstance(projects, dict) else []
    indexing = {}
    for key, value in _leaves(config):
        if key in _SETTINGS:
            yield Translated(key, f"{_SETTINGS[key]} = {json.dumps(value)}", _SETTINGS[key], value)
        elif key in _ALWAYS:
            yield Translated(key, _ALWAYS[key])
        elif key.startswith("session_tracking.indexing."):
            indexing[key.rpartition(".")[2]] = value
        elif key == "global.session_log_sources.base_path":
            yield _source(key, value)
        elif not key.startswith("projects."):
            yield Translated(key, "unknown here: ignored")
    if indexing:
        yield Translated("session_tracking.indexing", _schedule(indexing))
    if denied:
        yield Translated("projects", f"capture.exclude = {', '.join(denied)}", "capture.exclude", denied)
    elif projects:
        yield Translated("projects", "every project is remembered")


def _leaves(value: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Each value below, by its path; the members of lists and projects share one."""
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _leaves(below, above if above == "projects" else f"{above}.{name}".lstrip("."))
    elif isinstance(value, list):
        for below in value:
            yield from _leaves(below, above)
    else:
        yield above, value


def _denied(projects: Mapping[str, Any]) -> Iterator[str]:
    for project in projects.values():
        tracking = project.get("session_tracking", {}) if isinstance(project, dict) else {}
        is_enabled = tracking.get("enabled", True) and project.get("session_tracking_enabled", True)
        if not is_enabled and isinstance(project.get("project_root"), str):
            yield project["project_root"]


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
