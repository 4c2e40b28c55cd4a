"""The settings in force, and changing one."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from recollect import analysis
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
from recollect.errors import BadConfig


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
