"""The settings in force, changing one, which projects are remembered, and the settings of another tracker."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from recollect import analysis, ingest
from recollect.agents import adapters
from recollect.config import (
    CAPTURE_DEFAULTS,
    check_settings,
    freshness_mode,
    load_settings,
    read_value,
    refuse_in_group,
    values_of,
    with_value,
    write_settings,
)
from recollect.model.errors import BadConfig, NotFound

if TYPE_CHECKING:
    from os import PathLike

    from recollect.config import Settings
    from recollect.store import Store


def settings_in_force() -> dict[str, dict[str, Any]]:
    """Every setting by its name in the settings file: its value, and whether that is the default."""
    refuse_in_group()
    settings = load_settings()
    rules = {f"redact.rules.{name}": pattern for name, pattern in settings.redaction.rules.items()}
    values: dict[str, Any] = {
        **{f"agents.{agent}.roots": list(map(str, roots)) for agent, roots in settings.roots.items()},
        "archive.message_chars": settings.archive_message_chars,
        "capture.enabled": settings.is_capturing,
        "capture.default": CAPTURE_DEFAULTS[settings.allow is not None],
        "capture.allow": list(settings.allow or ()),
        "capture.exclude": list(settings.exclude),
        "capture.fresh": freshness_mode(),
        **{f"domains.{repo}": domain for repo, domain in settings.domains.items()},
        **{f"exchanges.{name}": value for name, value in asdict(settings.exchanges).items()},
        **{f"graphiti.{name}": value for name, value in asdict(settings.graphiti).items()},
        **{f"hooks.{kind}": value for kind, value in settings.hooks.items()},
        "notify.command": list(settings.notify),
        "redact.allow": list(settings.redaction.allow),
        **rules,
        **{f"retention.{name}": value for name, value in asdict(settings.limits).items()},
        "tasks.patterns": [pattern.pattern for pattern in settings.rules.task_patterns],
    }
    given = values_of(settings.given)
    return {name: {"value": given.get(name, value), "is_default": name not in given} for name, value in values.items()}


def change_setting(key: str, value: Any, path: Path | None = None) -> Path:
    """Set one value in the settings file, the user's or the one at `path`, and return its path.

    A string is read as it would be in the file: a number, true or false, a list, else a string. Raises BadConfig,
    and changes nothing, if the value is invalid.
    """
    refuse_in_group()
    path = path or load_settings().config_path
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    if "." not in key:
        raise BadConfig(f"No such setting: {key}", "`recollect config` lists them")
    changed = with_value(text, key, read_value(value) if isinstance(value, str) else value)
    try:
        check_settings(changed, path)
    except BadConfig as error:
        check_settings(text, path)  # if the file itself is at fault, it is named
        raise BadConfig(f"Invalid setting: {key} = {value}", error.hint) from None
    write_settings(path, changed)
    if key.startswith("hooks.") and (folder := load_settings().folder).is_dir():
        analysis.write_switches(folder, load_settings().hooks)
    return path


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
        if agent is None:
            raise NotFound(f"No agent's logs in this folder: {path}", "give an agent's home, or a folder with its logs")
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


def _agent_of(folder: Path) -> str | None:
    """The agent that wrote the logs in a folder."""
    found = (agent for agent, adapter in adapters().items() if next(iter(adapter.discover(folder)), None) is not None)
    return next(found, None) if folder.is_dir() else None


_ALWAYS = {
    "version": "only the keys count",
    "global.session_log_sources.type": "the agent is known by its logs",
    "global.session_log_sources.mapping": "a session's project is read from its log",
    "session_tracking.incremental": "a sweep reads only what is new",
    "session_tracking.mode": "every agent that is installed is read",
    "session_tracking.chunking.strategy": "a chunk is an exchange: a request and everything until the next one",
    "session_tracking.filtering.keep_user_messages": "`show --exchanges` keeps what you said",
    "session_tracking.filtering.keep_agent_responses": "`show --exchanges` keeps what the agent answered",
    "session_tracking.filtering.omit_tool_outputs": "`show --exchanges` reduces a long result to its size",
    "session_tracking.filtering.omit_file_contents": "`show --exchanges` reduces a long result to its size",
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
        every = indexing.get("batch_interval_minutes", 5)
        way = f"watch --every {every}" if indexing.get("frequency") == "batch" else "schedule --watch"
        yield Translated("session_tracking.indexing", f"run `recollect {way}`")
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
    homes = {agent: Path(adapter.home).expanduser().absolute() for agent, adapter in adapters().items()}
    if home := next((home for home in homes.values() if path.is_relative_to(home)), None):
        return Translated(key, f"{home} is already read")
    if agent := _agent_of(path):
        setting, home = f"agents.{agent}.roots", homes[agent]
        return Translated(key, f"{setting} = {home}, {path}", setting, [str(home), str(path)])
    return Translated(key, f"no agent's logs found: ignored ({path})")
