"""Commands about Recollect itself: config, exclude, track, completion."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect import api
from recollect.api import change_setting, open_memory, settings_in_force
from recollect.cli.options import REPO
from recollect.cli.output import command, emit, print_json, reports_errors
from recollect.cli.terminal import READING_IS_OFF, grey, one_line, padded, plural
from recollect.config import load_settings
from recollect.errors import NotFound, UsageError

if TYPE_CHECKING:
    from recollect.api import Tracking

_PROGRAM = "recollect"
_SHELLS = ("bash", "zsh", "fish")


@command()
@click.argument("key", required=False)
@click.argument("value", required=False)
def config(key: str | None, value: str | None, as_json: bool) -> None:
    """Show the settings and where they are, or set one.

    \b
    recollect config
    recollect config retention.raw_soft_cap
    recollect config retention.raw_soft_cap 8GiB
    recollect config import tracking-config.json
    """
    if key == "import":
        _import(value, as_json)
        return
    if key is not None and value is not None:
        change_setting(key, value)
    settings = load_settings()
    values = settings_in_force()
    if key is not None and key not in values:
        raise NotFound(f"No such setting: {key}", "`recollect config` lists them")
    shown = values if key is None else {key: values[key]}
    if as_json:
        print_json({"file": str(settings.config_path), "store": str(settings.folder), "settings": shown})
        return
    if key is None:
        is_there = "" if settings.config_path.exists() else " (not written yet)"
        click.echo(f"settings  {one_line(str(settings.config_path))}{is_there}")
        click.echo(f"store     {one_line(str(settings.folder))}")
    click.echo("\n".join(_setting_lines(shown)))


def _import(path: str | None, as_json: bool) -> None:
    if path is None:
        raise UsageError("Give the file to import", "recollect config import tracking-config.json")
    translated = api.import_tracking_config(Path(path))
    emit(translated, as_json, (f"{one_line(item.key)}: {one_line(item.note)}" for item in translated))


def _setting_lines(settings: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    columns = max(map(len, settings))
    for name, setting in settings.items():
        origin = "" if setting["is_default"] else "  (set)"
        yield f"{padded(name, columns)}  {one_line(_text(name, setting['value']))}{grey(origin)}"


def _text(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if name.endswith("_cap") and isinstance(value, int):
        return f"{value / 2**30:g}GiB"
    return (", ".join(map(str, value)) if isinstance(value, list) else str(value)) or "–"


@command()
@click.argument("what", required=False, type=REPO)
@click.option("--remove", is_flag=True, help="Store its sessions again.")
def exclude(what: str | None, remove: bool, as_json: bool) -> None:
    """Keep a repository or folder out of the store.

    Without WHAT, lists exclusions. WHAT is a repository's name, a folder, or a pattern (see forgetting.md). Sessions
    that are already stored stay until you delete them.

    \b
    recollect exclude shop-api
    recollect exclude ~/secret
    recollect exclude .
    """
    patterns = list(load_settings().given.get("capture", {}).get("exclude", []))
    if what is None and remove:
        raise UsageError("Name what to store again", "`recollect exclude` lists what is excluded")
    if what is not None:
        if not remove:
            _require_folder(what)
        patterns = _without(patterns, what) if remove else list(dict.fromkeys([*patterns, _pattern(what)]))
        change_setting("capture.exclude", patterns)
    if as_json:
        print_json({"exclude": patterns})
        return
    if what is not None and not remove:
        click.echo(f"Excluded: {one_line(patterns[-1])}")
        if not (_is_glob_or_path(patterns[-1]) or _repos_named(patterns[-1])):
            click.echo(grey("note: no stored session belongs to a repository of this name"))
        click.echo(grey("To delete sessions stored before: `recollect forget --excluded`"))
        return
    click.echo("\n".join(map(one_line, patterns)) if patterns else "Nothing is excluded")


def _require_folder(what: str) -> None:
    """Raise NotFound for a plain path that is no folder: a misspelt one would exclude nothing, without a word."""
    if (
        what.startswith((".", "/", "~"))
        and not any(char in what for char in "*?[{")
        and not Path(_pattern(what)).is_dir()
    ):
        raise NotFound(f"No such folder: {what}", "a pattern such as `/old/place/**` excludes a folder that is gone")


def _without(patterns: list[str], what: str) -> list[str]:
    left = [pattern for pattern in patterns if pattern not in (what, _pattern(what))]
    if len(left) == len(patterns):
        raise NotFound(f"Not excluded: {what}", f"excluded: {', '.join(patterns) or 'none'}")
    return left


def _pattern(what: str) -> str:
    """A folder by its whole path; a part of a repository's name as the whole name, if there is such a repository."""
    if what.startswith((".", "/", "~")):
        return str(Path(what).expanduser().absolute().resolve())
    names = [] if _is_glob_or_path(what) else _repos_named(what)
    return names[0] if len(names) == 1 else what


def _is_glob_or_path(pattern: str) -> bool:
    return any(char in pattern for char in "*?[{/")


def _repos_named(name: str) -> list[str]:
    """The stored repositories that a name stands for; none if there is no store."""
    try:
        with open_memory(create=False, read_only=True) as memory:
            return memory.repos_named(name)
    except NotFound:
        return []


@command()
@click.argument("action", metavar="[ACTION]", type=click.Choice(("allow", "deny", "list")), default="list")
@click.argument("project", required=False, type=REPO)
@click.option("--logs", type=click.Path(), metavar="DIR", help="Read, or do not read, the agent's logs in this folder.")
def track(action: str, project: str | None, logs: str | None, as_json: bool) -> None:
    """Choose which projects are remembered.

    ACTION is allow, deny or list; PROJECT is a repository's name or a folder. By default, every project is remembered
    unless you deny it. With `recollect config capture.default ask`, only projects you allow are; sessions of others are
    counted but not stored.

    \b
    recollect track
    recollect track allow ~/code/shop-api
    recollect track deny diary
    recollect track allow --logs /mnt/old-laptop/agent-home
    """
    if action != "list" and not (project or logs):
        raise UsageError(f"Name what to {action}", f"recollect track {action} PROJECT, or --logs DIR")
    with open_memory() as memory:
        projects = memory.projects
        if project and action != "list":
            (projects.allow if action == "allow" else projects.deny)(_pattern(project))
        if logs and action != "list":
            (projects.add_logs if action == "allow" else projects.remove_logs)(logs)
        emit(projects.tracking(), as_json, _tracking_lines)


def _tracking_lines(tracking: "Tracking") -> Iterator[str]:
    if not tracking.is_enabled:
        yield READING_IS_OFF
    everything = "every project that is not denied" if tracking.default == "allow" else "only what is allowed"
    yield f"Remembered: {everything}"
    yield from (f"  allowed  {one_line(pattern)}" for pattern in tracking.allowed)
    yield from (f"  denied   {one_line(pattern)}" for pattern in tracking.denied)
    for folder, sessions in tracking.undecided.items():
        yield f"  waiting  {plural(sessions, 'session')}  {one_line(folder) or '(no folder)'}"


@click.command()
@click.argument("shell", metavar="SHELL", type=click.Choice(_SHELLS))
@reports_errors
def completion(shell: str) -> None:
    """Print a script that completes commands, ids and names.

    SHELL is bash, zsh or fish.

    \b
    eval "$(recollect completion bash)"                       in ~/.bashrc
    eval "$(recollect completion zsh)"                        in ~/.zshrc
    recollect completion fish > ~/.config/fish/completions/recollect.fish
    """
    from click.shell_completion import get_completion_class  # only here

    root = click.get_current_context().find_root().command
    completer = get_completion_class(shell)
    if completer is not None:
        click.echo(completer(root, {}, _PROGRAM, f"_{_PROGRAM.upper()}_COMPLETE").source())
