"""Settings, read once. The only place that looks at the environment.

Precedence: a flag, then the environment, then config.toml, then the default. A value is changed in config.toml by
itself: the rest of the file stays as it is, comments included.
"""

import json
import os
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from recollect import digest, lifecycle, redact, sessions
from recollect.agents import adapters, get_adapter, session_variables
from recollect.knowledge import graphiti
from recollect.model import failpoints
from recollect.model.errors import BadConfig, NotFound, NotInGroup, UsageError
from recollect.model.files import write_all, written_beside
from recollect.model.home import data_path, store_path
from recollect.recall import HOOK_DEFAULTS

if TYPE_CHECKING:
    from recollect.digest import ExchangeRules
    from recollect.knowledge.graphiti import GraphitiSettings
    from recollect.lifecycle import Limits
    from recollect.redact import RedactionRules
    from recollect.sessions import AccountRules


_SECTIONS = tuple(
    "agents archive capture domains exchanges graphiti hooks notify redact retention tasks".split()  # noqa: SIM905
)
_CAPTURE = ("enabled", "default", "allow", "exclude", "fresh")
CAPTURE_DEFAULTS = ("allow", "ask")  # whether sessions of a project nobody has allowed are stored
FRESH_MODES = ("auto", "warn", "off")  # what a reading command does if agents wrote since the last sweep


class Settings(NamedTuple):
    """Where things are, and the user's rules."""

    folder: Path
    config_path: Path
    host: str
    roots: Mapping[str, tuple[Path, ...]]
    given: Mapping[str, Any]  # what the settings file says, as it says it
    domains: Mapping[str, str]
    rules: "AccountRules"
    redaction: "RedactionRules"
    is_capturing: bool
    exclude: tuple[str, ...]  # patterns of folders and repositories whose sessions are not stored
    allow: tuple[str, ...] | None  # patterns of those whose sessions are; None for all
    exchanges: "ExchangeRules"
    limits: "Limits"
    graphiti: "GraphitiSettings"
    archive_message_chars: int  # longer messages are cut in Markdown archives
    notify: tuple[str, ...]  # the command that gets losses and warnings
    hooks: Mapping[str, bool | list[str]]  # what agents are told: yes, no, or the folders in which


def store_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Where the store is. All that a search needs to know, and quick: it loads no adapter and reads no file."""
    return _expanded(store_path(os.environ if environment is None else environment)).absolute()


def _expanded(path: str | PathLike[str]) -> Path:
    """A path with `~` and `~user` in full; raises BadConfig if there is no such user, or none with a home."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise BadConfig(f"Unknown home folder {Path(path).parts[0]}: {path}", "write the path in full") from None


def home_variable() -> str | None:
    """The store's folder if the environment names it: what agents start has to be given the same."""
    named = os.environ.get("RECOLLECT_HOME")
    return str(_expanded(named).absolute()) if named else None


def current_sessions() -> list[str]:
    """Native ids of the sessions this process runs in, as the agents' environment tells them."""
    return [os.environ[name] for name in session_variables() if os.environ.get(name)]


def process_group(named: str | None = None) -> str | None:
    """The group this process works for, None for `main`: it is set once, and nothing can ask for another later."""
    of_process = os.environ.get("RECOLLECT_GROUP") or None
    if of_process is None and os.environ.get("RECOLLECT_IPC"):
        raise NotInGroup(
            "RECOLLECT_IPC names a group's folder, but no group", "set RECOLLECT_GROUP to the group's name"
        )
    if named is not None and of_process not in (None, named):
        raise NotInGroup(f"This process works for group `{of_process}`, not for: {named}")
    group = named or of_process
    return None if group == "main" else group


def agent_environment(home_variable: str, home: Path, group: str, ipc: str) -> dict[str, str]:
    """The environment that a group's agent runs in: ours, with its own home, and what tells it of its group."""
    return {**os.environ, home_variable: str(home), **group_variables(group, ipc)}


def group_variables(group: str, ipc: str) -> dict[str, str]:
    """What tells a group's agent, and what it starts, of its group."""
    return {"RECOLLECT_GROUP": group, "RECOLLECT_IPC": ipc}


def refuse_in_group() -> None:
    """Raise NotInGroup in the process of a group: what is asked for is about the whole store."""
    if (group := process_group()) is not None:
        raise NotInGroup(f"Not available inside group `{group}`", "run it outside the group, without RECOLLECT_GROUP")


def graphiti_secrets() -> tuple[str | None, str | None]:
    """The password of the graph database and the key of the model; no settings file has them."""
    return os.environ.get("RECOLLECT_GRAPH_PASSWORD"), os.environ.get("OPENAI_API_KEY")


def quiet_graphiti() -> None:
    """Keep Graphiti from reporting to its makers, and from reading a `.env` file; before it is first imported."""
    os.environ.update(GRAPHITI_TELEMETRY_ENABLED="false", PYTHON_DOTENV_DISABLED="1")


def load_settings(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> Settings:
    """Read all settings. `roots` are `AGENT=PATH`; they replace that agent's default, and only they are then swept."""
    environment = os.environ if environment is None else environment
    failpoints.arm(environment.get("RECOLLECT_FAILPOINT", ""))
    named = folder or environment.get("RECOLLECT_HOME")
    home = _expanded(named).absolute() if named else None
    config_path = (home or _config_folder()) / "config.toml"
    config = _read(config_path)
    configured = _configured_roots(config.get("agents", {}), config_path)
    values = _values(config, config_path)
    read = _roots_of_flags(roots) if roots else _roots(configured, environment)
    return Settings(
        folder=home or _expanded(data_path(environment)).absolute(),
        config_path=config_path,
        host=os.uname().nodename or "localhost",
        roots=read if values["is_capturing"] else {},
        given=config,
        **values,
    )


def _values(config: Mapping[str, Any], config_path: Path) -> dict[str, Any]:
    """What the sections of the settings file say, checked."""
    capture = _capture(config.get("capture", {}), config_path)
    return capture | {name: read(config.get(section, {}), config_path) for name, (section, read) in _READ.items()}


def read_hooks(path: Path) -> Mapping[str, bool | list[str]]:
    """What a settings file says about hooks at this moment."""
    return _hooks(_read(path).get("hooks", {}), path)


def check_settings(text: str, path: Path) -> None:
    """Raise BadConfig if a settings file with this text could not be read."""
    config = _only(_parse_toml(text), _SECTIONS, "", path)
    _configured_roots(config.get("agents", {}), path)
    _values(config, path)
    _fresh(config.get("capture", {}), path)


def freshness_mode() -> str:
    """`[capture] fresh`, without loading the other settings: every reading command asks for it."""
    home = os.environ.get("RECOLLECT_HOME")
    path = (_expanded(home).absolute() if home else _config_folder()) / "config.toml"
    if not path.exists():
        return FRESH_MODES[0]
    return _fresh(_read(path).get("capture", {}), path)


def _fresh(capture: Any, path: Path) -> str:
    mode = _only(capture, _CAPTURE, "capture", path).get("fresh", FRESH_MODES[0])
    return _one_of(FRESH_MODES, mode, "capture.fresh", path)


def require_folders(flags: Sequence[str]) -> None:
    """Raise NotFound if a folder given as `AGENT=PATH` is not there: what is typed by hand may be mistyped."""
    for path in (path for paths in _roots_of_flags(flags).values() for path in paths):
        if not os.access(f"{path}/", os.F_OK):  # with the slash a file does not count
            raise NotFound(f"No such folder: {path}", "`--root` takes AGENT=PATH, where PATH is the agent's home")


def terminal_columns(otherwise: int) -> int:
    """The width of the terminal. `shutil` says the same, after loading compressors."""
    return _terminal_size("COLUMNS", 0) or otherwise


def terminal_rows(otherwise: int) -> int:
    """The height of the terminal."""
    return _terminal_size("LINES", 1) or otherwise


def _terminal_size(variable: str, index: int) -> int:
    """As the variable has it, else as the terminal does; 0 if neither does."""
    size = os.environ.get(variable, "")
    if size.isdecimal() and int(size):
        return int(size)
    try:
        return os.get_terminal_size(1)[index]
    except OSError:
        return 0


def has_colour() -> bool:
    """Whether colours may be used on a terminal (https://no-color.org)."""
    return not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def pager_command() -> str:
    """What long output goes through on a terminal; empty for nothing."""
    return "" if os.environ.get("TERM") == "dumb" else os.environ.get("PAGER", "less")


def pager_environment() -> dict[str, str]:
    """The environment with `less` set, as Git sets it, to show colours and to leave a short text on the screen."""
    return {"LESS": "FRX", **os.environ}


def _config_folder() -> Path:
    if sys.platform == "linux":  # as platformdirs has it, which takes long to load
        return _expanded(os.environ.get("XDG_CONFIG_HOME", "").strip() or "~/.config") / "recollect"
    from platformdirs import user_config_path

    return user_config_path("recollect", appauthor=False)


def _parse_toml(text: str) -> dict[str, Any]:
    """Parse TOML; raises ValueError."""
    import tomllib  # most stores have no settings of their own, and need not wait for it

    return tomllib.loads(text)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
        config = _parse_toml(text)
    except FileNotFoundError:
        return {}
    except NotADirectoryError as error:
        file = next(place for place in path.parents if place.exists())
        raise BadConfig(
            f"Not a folder: {file}",
            "set RECOLLECT_HOME to a folder",
        ) from error
    except PermissionError as error:
        if not os.access(path.parent, os.X_OK):
            raise BadConfig(
                f"No permission to read the store's folder: {path.parent}",
                "set RECOLLECT_HOME to a folder you own",
            ) from error
        raise BadConfig(f"No permission to read the settings: {path}", "make it readable, or remove it") from error
    except (OSError, ValueError, RecursionError) as error:
        raise BadConfig(f"Cannot read the settings ({error}): {path}", "fix the file, or remove it") from error
    return _only(config, _SECTIONS, "", path)


def _section(value: Any, name: str, path: Path) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise BadConfig(f"Not a section: {name} in {path}", f"write [{name}] on a line of its own")
    return value


def _only(value: Any, known: Collection[str], name: str, path: Path) -> Mapping[str, Any]:
    """The section `name`, if it holds nothing but known settings."""
    section = _section(value, name, path)
    for key in section:
        if key not in known:
            setting = f"{name}.{key}" if name else key
            raise BadConfig(f"Unknown setting in {path}: {setting}", f"known: {', '.join(known)}")
    return section


def _texts(value: Any, name: str, path: Path) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise BadConfig(f"Not a list of strings in {path}: {name}", "write ['one', 'two']")
    return value


def _configured_roots(agents: Any, path: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if not agents:
        return found
    for agent, section in _only(agents, adapters(), "agents", path).items():
        settings = _only(section, ("roots",), f"agents.{agent}", path)
        if "roots" in settings:
            found[agent] = _texts(settings["roots"], f"agents.{agent}.roots", path)
    return found


def _roots(configured: Mapping[str, list[str]], environment: Mapping[str, str]) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for agent, adapter in adapters().items():
        variable, _, below = adapter.home_variable.partition("/")  # as in `XDG_DATA_HOME/name`
        home = environment.get(variable)
        roots = [f"{home}/{below}".rstrip("/")] if home else configured.get(agent, [adapter.home])
        found[agent] = tuple(_expanded(root).absolute() for root in roots)
    return found


def _roots_of_flags(flags: Sequence[str]) -> dict[str, tuple[Path, ...]]:
    found: dict[str, tuple[Path, ...]] = {}
    for flag in flags:
        agent, equals, path = flag.partition("=")
        if not equals or not path:
            raise UsageError(f"`--root` takes AGENT=PATH: {flag}", f"agents: {', '.join(adapters())}")
        get_adapter(agent)
        found[agent] = (*found.get(agent, ()), _expanded(path).absolute())
    return found


def _domains(domains: Any, path: Path) -> Mapping[str, str]:
    section = _section(domains, "domains", path)
    for repo, domain in section.items():
        if not isinstance(domain, str):
            raise BadConfig(f"Not a string in {path}: domains.{repo}", 'write "owner/name" = "what it is about"')
    return section


def _capture(capture: Any, path: Path) -> dict[str, Any]:
    section = _only(capture, _CAPTURE, "capture", path)
    is_enabled = section.get("enabled", True)
    if not isinstance(is_enabled, bool):
        raise BadConfig(f"Wrong type in {path}: capture.enabled", "write true or false")
    default = _one_of(CAPTURE_DEFAULTS, section.get("default", CAPTURE_DEFAULTS[0]), "capture.default", path)
    allow, exclude = _patterns(section, "allow", path), _patterns(section, "exclude", path)
    is_asking = default == CAPTURE_DEFAULTS[1]
    return {"is_capturing": is_enabled, "exclude": exclude, "allow": allow if is_asking else None}


def _hooks(hooks: Any, path: Path) -> dict[str, bool | list[str]]:
    """Which things agents are told without asking: everywhere, nowhere, or in some folders."""
    section = _only(hooks, HOOK_DEFAULTS, "hooks", path)
    found: dict[str, bool | list[str]] = {}
    for kind, default in HOOK_DEFAULTS.items():
        value = section.get(kind, default)
        folders = value if isinstance(value, bool) else _texts(value, f"hooks.{kind}", path)
        found[kind] = folders if isinstance(folders, bool) else [os.path.realpath(_expanded(one)) for one in folders]
    return found


def _patterns(section: Mapping[str, Any], name: str, path: Path) -> tuple[str, ...]:
    patterns = [pattern.strip() for pattern in _texts(section.get(name, []), f"capture.{name}", path)]
    if not all(pattern.strip("/* ") for pattern in patterns):
        raise BadConfig(f"Pattern in capture.{name} matches everything: {path}", "name a folder or a repository")
    for pattern in patterns:
        if pattern.startswith((".", "!")):
            raise BadConfig(
                f"Pattern in capture.{name} of {path} matches nothing: {pattern}",
                "start a folder with / or ~, a repository with its name; `!` cannot re-include anything",
            )
    return tuple(str(_expanded(pattern)) if pattern.startswith("~") else pattern for pattern in patterns)


def _rules(tasks: Any, path: Path) -> "AccountRules":
    if "patterns" not in _only(tasks, ("patterns",), "tasks", path):
        return sessions.AccountRules()
    patterns = _texts(tasks["patterns"], "tasks.patterns", path)
    try:
        return sessions.AccountRules(task_patterns=tuple(re.compile(pattern) for pattern in patterns))
    except re.error as error:
        raise BadConfig(
            f"Invalid regular expression in tasks.patterns ({error}): {path}", f"the pattern: {error.pattern!r}"
        ) from error


def _redaction(given: Any, path: Path) -> "RedactionRules":
    section = _only(given, ("rules", "allow"), "redact", path)
    rules = _section(section.get("rules", {}), "redact.rules", path)
    for name, pattern in rules.items():
        if not isinstance(pattern, str):
            raise BadConfig(f"Not a string in {path}: redact.rules.{name}", "write name = 'regular expression'")
        redact.UserRule(name, pattern)
    allow = tuple(_texts(section.get("allow", []), "redact.allow", path))
    redact.AllowList(allow)
    return redact.RedactionRules(rules, allow)


def _exchange_rules(exchanges: Any, path: Path) -> "ExchangeRules":
    return digest.ExchangeRules(**_fields_of(digest.ExchangeRules, exchanges, "exchanges", path))


def _graphiti(given: Any, path: Path) -> "GraphitiSettings":
    settings = graphiti.GraphitiSettings(**_fields_of(graphiti.GraphitiSettings, given, "graphiti", path))
    if problem := settings.problem():
        raise BadConfig(f"Invalid setting in {path}: {problem}", "see docs/graphiti.md")
    return settings


def _limits(given: Any, path: Path) -> "Limits":
    section = dict(_section(given, "retention", path))
    for name in [name for name in section if name.endswith("_cap")]:
        section[name] = _size(section[name], f"retention.{name}", path)
    limits = lifecycle.Limits(**_fields_of(lifecycle.Limits, section, "retention", path))
    _one_of(lifecycle.CADENCES, limits.cadence, "retention.cadence", path)
    if limits.raw_soft_cap > limits.raw_hard_cap:
        raise BadConfig(
            f"retention.raw_soft_cap is above raw_hard_cap in {path}", "eviction starts at the soft cap: lower it"
        )
    return limits


def _fields_of(kind: Any, given: Any, name: str, path: Path) -> Mapping[str, Any]:
    """The section, if it gives nothing but fields of a dataclass."""
    known = {item.name: item.default for item in fields(kind)}
    return _of_kinds(_only(given, known, name, path), known, name, path)


def _one_of(known: Collection[str], value: Any, name: str, path: Path) -> str:
    if value not in known:
        raise BadConfig(f"Unknown value in {path}: {name} = {value!r}", f"known: {', '.join(known)}")
    return str(value)


def _of_kinds(section: Mapping[str, Any], known: Mapping[str, Any], name: str, path: Path) -> Mapping[str, Any]:
    """The section, if its values are of the kinds of the defaults; numbers count something: none is below 1."""
    for key, value in section.items():
        if type(value) is not type(known[key]):
            example = "true or false" if isinstance(known[key], bool) else f"something like {known[key]!r}"
            raise BadConfig(f"Wrong type in {path}: {name}.{key}", f"write {example}")
        if type(value) is int and value < 1:
            raise BadConfig(f"Too small in {path}: {name}.{key}", "write 1 or more")
    return section


def _size(value: Any, name: str, path: Path) -> Any:
    """Bytes, given as a number or as a text with a unit."""
    if not isinstance(value, str):
        return value
    try:
        return lifecycle.parse_size(value)
    except ValueError:
        raise BadConfig(
            f"Invalid size in {path}: {name} = {value!r}", 'write "4GiB", "500MB" or a number of bytes'
        ) from None


def _archive(archive: Any, path: Path) -> int:
    known = {"message_chars": 2000}
    section = _of_kinds(_only(archive, known, "archive", path), known, "archive", path)
    return int(section.get("message_chars", known["message_chars"]))


def _notify(notify: Any, path: Path) -> tuple[str, ...]:
    import shlex

    command = _only(notify, ("command",), "notify", path).get("command", [])
    if not isinstance(command, str):
        return tuple(_texts(command, "notify.command", path))
    try:
        return tuple(shlex.split(command))
    except ValueError as error:
        raise BadConfig(
            f"Invalid command in {path} ({error}): notify.command", "write ['program', 'argument']"
        ) from error


# By the name of a setting its section, and what reads that.
_READ = {
    "domains": ("domains", _domains),
    "rules": ("tasks", _rules),
    "redaction": ("redact", _redaction),
    "exchanges": ("exchanges", _exchange_rules),
    "graphiti": ("graphiti", _graphiti),
    "limits": ("retention", _limits),
    "hooks": ("hooks", _hooks),
    "archive_message_chars": ("archive", _archive),
    "notify": ("notify", _notify),
}
_ADVICE = "edit the file by hand"


def with_value(text: str, key: str, value: Any) -> str:
    """The text of a settings file with `section.key` set. Raises BadConfig if that would change anything else."""
    section, _, name = key.rpartition(".")
    lines = text.splitlines()
    start = next((place for place, line in enumerate(lines) if _is_header(line, section)), None)
    if start is None:
        lines += [*([""] if lines else []), f"[{section}]", f"{name} = {_toml(value)}"]
    else:
        end = next((place for place in range(start + 1, len(lines)) if lines[place].startswith("[")), len(lines))
        first, last = _span(lines, start + 1, end, name)
        lines[first:last] = [f"{name} = {_toml(value)}"]
    changed = "\n".join(lines) + "\n"
    _require(text, changed, key, value)
    return changed


def _is_header(line: str, section: str) -> bool:
    return re.fullmatch(rf"\[\s*{re.escape(section)}\s*\]\s*(#.*)?", line) is not None


def _span(lines: list[str], start: int, end: int, name: str) -> tuple[int, int]:
    """The lines that hold a value, which may be several; where it belongs if it is not there."""
    first = next((n for n in range(start, end) if re.match(rf"\s*{re.escape(name)}\s*=", lines[n])), None)
    if first is None:
        return start, start
    for last in range(first + 1, end + 1):
        try:
            _parse_toml("\n".join(lines[first:last]))
        except ValueError:
            continue
        return first, last
    return first, first + 1


def _toml(value: Any) -> str:
    """A text, a number, a switch or a list of texts as TOML writes it, which is as JSON does."""
    return json.dumps(value, ensure_ascii=False)


def _require(before: str, after: str, key: str, value: Any) -> None:
    try:
        old, new = _parse_toml(before), _parse_toml(after)
    except ValueError as error:
        raise BadConfig(f"Cannot change `{key}` in this file ({error})", _ADVICE) from None
    if values_of(new) != values_of(old) | {key: value}:
        raise BadConfig(f"Cannot change only `{key}` in this file", _ADVICE)


def values_of(config: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Every value of a settings file by its full name."""
    values: dict[str, Any] = {}
    for name, value in config.items():
        values |= values_of(value, f"{above}{name}.") if isinstance(value, dict) else {f"{above}{name}": value}
    return values


def read_value(text: str) -> Any:
    """What was typed as a value: TOML if it is some (`45`, `true`, `["a", "b"]`), else a text."""
    try:
        return _parse_toml(f"value = {text}")["value"]
    except ValueError:
        return text


def write_settings(path: Path, text: str) -> None:
    """Replace the file at once: a crash leaves the old one or the new one, with the rights it had."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with written_beside(path) as fd:
        write_all(fd, text.encode())
        if path.exists():
            os.fchmod(fd, path.stat().st_mode & 0o777)
