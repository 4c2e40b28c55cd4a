"""Settings, read once. The only place that looks at the environment.

Precedence: a flag, then the environment, then config.toml, then the default.
"""

import os
import re
import socket
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.account import AccountRules
from recollect.adapters import adapters, get_adapter
from recollect.errors import BadConfig, UsageError

_KNOWN_KEYS = {"agents", "domains", "tasks"}


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are, and the user's rules."""

    folder: Path
    config_path: Path
    host: str
    roots: Mapping[str, tuple[Path, ...]]
    domains: Mapping[str, str] = field(default_factory=dict)
    rules: AccountRules = field(default_factory=AccountRules)


def load_settings(
    folder: Path | None = None, roots: Sequence[str] = (), environment: Mapping[str, str] | None = None
) -> Settings:
    """Read all settings. `roots` are `AGENT=PATH`; they replace that agent's default, and only they are then swept."""
    environment = os.environ if environment is None else environment
    home = folder or (Path(environment["RECOLLECT_HOME"]) if environment.get("RECOLLECT_HOME") else None)
    config_path = (home or _config_folder()) / "config.toml"
    config = _read(config_path)
    return Settings(
        folder=(home or _data_folder()).expanduser().absolute(),
        config_path=config_path,
        host=socket.gethostname() or "localhost",
        roots=_roots(roots, config.get("agents", {}), environment),
        domains={str(repo): str(domain) for repo, domain in config.get("domains", {}).items()},
        rules=_rules(config.get("tasks", {}), config_path),
    )


def _data_folder() -> Path:
    from platformdirs import user_data_path

    return user_data_path("recollect", appauthor=False)


def _config_folder() -> Path:
    from platformdirs import user_config_path

    return user_config_path("recollect", appauthor=False)


def _read(path: Path) -> dict[str, Any]:
    try:
        config = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadConfig(
            f"Cannot read the settings ({error}): {path}", "docs/configuration.md has the format"
        ) from error
    for name in config:
        if name not in _KNOWN_KEYS or not isinstance(config[name], dict):
            raise BadConfig(
                f"No such section of settings in {path}: {name}", f"known: {', '.join(sorted(_KNOWN_KEYS))}"
            )
    return config


def _roots(
    flags: Sequence[str], configured: Mapping[str, Any], environment: Mapping[str, str]
) -> dict[str, tuple[Path, ...]]:
    if flags:
        return _roots_of_flags(flags)
    found: dict[str, tuple[Path, ...]] = {}
    for agent, adapter in adapters().items():
        told = configured.get(agent, {}).get("roots") or [environment.get(adapter.home_variable) or adapter.home]
        if not isinstance(told, list) or not all(isinstance(root, str) for root in told):
            raise BadConfig(f"`roots` is not a list of paths: agents.{agent}", 'write roots = ["~/path"]')
        found[agent] = tuple(Path(root).expanduser().absolute() for root in told)
    return found


def _roots_of_flags(flags: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for flag in flags:
        agent, equals, path = flag.partition("=")
        if not equals or not path:
            raise UsageError(f"`--root` takes AGENT=PATH: {flag}", f"agents: {', '.join(adapters())}")
        get_adapter(agent)
        found[agent] = (*found.get(agent, ()), Path(path).expanduser().absolute())
    return found


def _rules(tasks: Mapping[str, Any], path: Path) -> AccountRules:
    if "patterns" not in tasks:
        return AccountRules()
    try:
        return AccountRules(task_patterns=tuple(re.compile(pattern) for pattern in tasks["patterns"]))
    except (re.error, TypeError) as error:
        raise BadConfig(
            f"A task pattern is no regular expression ({error}): {path}",
            "[tasks] patterns takes a list of them",
        ) from error
