"""Commands that set Recollect up or serve it: install, mcp, hooks, live, web, config, exclude, track, completion."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import recollect
from recollect import api, archive, hooks
from recollect.api import change_setting, open_memory, settings_in_force
from recollect.cli.options import REPO
from recollect.cli.output import (
    command,
    confirm,
    emit,
    first_lines,
    limit_option,
    print_json,
    reports_errors,
    yes_option,
)
from recollect.cli.terminal import READING_IS_OFF, fitted_time, grey, one_line, padded, plural
from recollect.config import load_settings, refuse_in_group
from recollect.model.errors import NotFound, RecollectError, UsageError

if TYPE_CHECKING:
    from recollect.care import Installation
    from recollect.hooks import LogEntry
    from recollect.live import LiveStatus

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
    columns = max(map(len, shown))
    for name, setting in shown.items():
        origin = "" if setting["is_default"] else "  (set)"
        click.echo(f"{padded(name, columns)}  {one_line(_text(name, setting['value']))}{grey(origin)}")


def _import(path: str | None, as_json: bool) -> None:
    if path is None:
        raise UsageError("Give the file to import", "recollect config import tracking-config.json")
    translated = api.import_tracking_config(Path(path))
    emit(translated, as_json, (f"{one_line(item.key)}: {one_line(item.note)}" for item in translated))


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
        pattern = _pattern(what)
        left = [known for known in patterns if known not in (what, pattern)]
        if remove and len(left) == len(patterns):
            raise NotFound(f"Not excluded: {what}", f"excluded: {', '.join(patterns) or 'none'}")
        is_path = what.startswith((".", "/", "~")) and not any(char in what for char in "*?[{")
        if not remove and is_path and not Path(pattern).is_dir():  # a misspelt one would exclude nothing, silently
            hint = "a pattern such as `/old/place/**` excludes a folder that is gone"
            raise NotFound(f"No such folder: {what}", hint)
        patterns = left if remove else list(dict.fromkeys([*patterns, pattern]))
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
        tracking = projects.tracking()
    everything = "every project that is not denied" if tracking.default == "allow" else "only what is allowed"
    waiting = ((plural(count, "session"), one_line(folder)) for folder, count in tracking.undecided.items())
    lines = (
        None if tracking.is_enabled else READING_IS_OFF,
        f"Remembered: {everything}",
        *(f"  allowed  {one_line(pattern)}" for pattern in tracking.allowed),
        *(f"  denied   {one_line(pattern)}" for pattern in tracking.denied),
        *(f"  waiting  {sessions}  {folder or '(no folder)'}" for sessions, folder in waiting),
    )
    emit(tracking, as_json, lines)


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


_SHOWN = 20
_WRITE_TOOLS = "Offer tools to record decisions, and to ask you to forget."


@click.command()
@click.option("--repo", metavar="PATH", type=click.Path(file_okay=False), help="Never answer from outside this folder.")
@click.option("--group", metavar="NAME", help="Never answer from outside this group.")
@click.option("--write-tools", is_flag=True, help=_WRITE_TOOLS)
@click.option("--tools", type=click.Choice(["all", "core"]), default="all", help="Offer all tools, or only three.")
@click.option(
    "--ipc",
    metavar="DIR",
    type=click.Path(file_okay=False),
    help="In a sandbox: send requests to the host as files there.",
)
@click.option("--http", is_flag=True, help="Serve over HTTP instead, on this machine only, with a token.")
@click.option("--port", type=click.IntRange(1, 65535), metavar="PORT", help="With --http: this port (7392, or any).")
@reports_errors
def mcp(
    repo: str | None,
    group: str | None,
    write_tools: bool,
    tools: str,
    ipc: str | None,
    http: bool,
    port: int | None,
) -> None:
    """Serve an agent over MCP, on standard input and output.

    Agents start it themselves. It searches the repository of the current folder, and others if the agent asks. With
    --repo or --group, it never searches anything else. `--tools core` offers `session_search`, `get_session` and
    `recall_decisions` alone, which leaves more of the context to the task.

    \b
    YOUR-AGENT mcp add recollect -- recollect mcp
    """
    from recollect.mcp import serve, serve_http, serve_sandbox  # not at the top, because help needs none of it

    if repo and group:
        raise UsageError("Cannot use `--repo` and `--group` together")
    is_core = tools == "core"
    if ipc:
        if repo or group or write_tools or http or is_core:
            raise UsageError("`--ipc` takes no other options: the folder belongs to one group")
        serve_sandbox(ipc)
        return
    if http:
        if find_spec("uvicorn") is None:
            raise RecollectError("Serving over HTTP needs the extra `mcp-http`", "pip install 'recollect[mcp-http]'")

        def announce(address: str, token: str) -> None:
            click.echo(f"{address}\nAuthorization: Bearer {token}")
            click.echo(grey("Ctrl-C stops the server"), err=True)

        serve_http(repo, group, can_write=write_tools, is_core=is_core, port=port, announce=announce)
        return
    if port:
        raise UsageError("`--port` needs `--http`")
    serve(repo, group, can_write=write_tools, is_core=is_core)


@click.group("hooks")
def hook_commands() -> None:
    """Show what hooks added to your agents' sessions."""


@command("log", below=hook_commands)
@limit_option("answers", _SHOWN)
def log(limit: int | None, as_json: bool) -> None:
    """List what hooks added to your agents' sessions, and its effect.

    Newest first. For a fix, shows whether the session had that error again; for a brief, how the session ended.

    \b
    recollect hooks log --limit 5
    """
    empty = "Hooks have added nothing yet; `recollect doctor` shows whether they are installed"
    emit(hooks.read_hook_log(limit), as_json, _log_lines, empty)


def _log_lines(entries: "list[LogEntry]") -> Iterator[str]:
    for item in entries:
        then = f"  then: {item.then}" if item.then else ""
        yield f"{grey(fitted_time(item.at))}  {item.agent}  {item.session}  {item.event}{then}"
        yield from (f"    {one_line(line)}" for line in item.text.splitlines())
    if fixes := [item.then for item in entries if item.error]:
        yield f"Fixes shown: {len(fixes)}; the error did not come back: {fixes.count(hooks.NOT_MET_AGAIN)}"


@command("sweep", hidden=True, below=hook_commands)
def sweep(as_json: bool) -> None:
    """Read what hooks recorded; hooks start this themselves."""
    reports = hooks.drain_spool()
    emit(reports, as_json, [f"{sum(report.events_new for report in reports)} new events"])


@command()
@click.argument("agents", nargs=-1)
@click.option("--no-plugin", is_flag=True, help="Edit the agents' settings instead of installing a plugin.")
@click.option("--write-tools", is_flag=True, help=_WRITE_TOOLS)
@yes_option
def install(agents: tuple[str, ...], no_plugin: bool, write_tools: bool, yes: bool, as_json: bool) -> None:
    """Give your agents this memory: tools, briefs and fixes.

    Without AGENTS, installs into every agent it finds. Lists every command and file first, and asks. The settings
    `hooks.brief`, `hooks.fixes`, `hooks.edits` and `hooks.prompts` choose what agents get without asking, and in which
    projects.

    \b
    recollect install
    recollect install AGENT --no-plugin
    """
    made = api.installer(with_plugin=not no_plugin, can_write=write_tools)
    names = made.agents(agents)
    _confirm_steps(made.plan(names), "Install?", "change your agents' settings", yes, as_json)
    message = f"Installed for {', '.join(names)}: new sessions use it; `recollect doctor` tests each part"
    done = made.install(names)
    emit(done, as_json, [message, *map(one_line, done.advice)])


@command()
@click.argument("agents", nargs=-1)
@yes_option
def uninstall(agents: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove Recollect from your agents.

    \b
    recollect uninstall
    """
    made = api.installer()
    plan = made.plan_removal(agents)
    if not plan.steps:
        raise NotFound("Not installed for any agent", "`recollect install` installs it")
    _confirm_steps(plan, "Remove?", "change your agents' settings", yes, as_json)
    names = dict.fromkeys(step["agent"] for step in plan.steps if step["agent"])
    done = made.remove(agents)
    emit(done, as_json, [f"Removed from {', '.join(names)}", *map(one_line, done.advice)])


def _confirm_steps(plan: "Installation", question: str, action: str, yes: bool, as_json: bool) -> None:
    for step in plan.steps if not as_json else ():
        click.echo(f"{step['action']:<7} {one_line(step['target'])}")
    confirm(question, action, yes)


_MOST_FILES = 20


@click.group()
def live() -> None:
    """Show sessions that an agent host appends to."""


@command(below=live)
@click.argument("folder", type=click.Path(file_okay=False), required=False)
def status(folder: str | None, as_json: bool) -> None:
    """Show what live sessions hold, by channel.

    With FOLDER, also compares each JSONL file in it with the store.

    \b
    recollect live status
    recollect live status ~/.my-host/sessions
    """
    with open_memory(create=False) as memory:
        report = recollect.Live(memory).status(Path(folder) if folder else None)
    emit(report, as_json, _status_lines)


def _status_lines(report: "LiveStatus") -> Iterator[str]:
    archived = f", {report.archived:,} archived" if report.archived else ""
    if report.channels:
        yield f"{plural(report.sessions, 'live session')}{archived}, {plural(report.messages, 'message')}"
    else:
        yield "No live sessions yet: an agent host creates them (see agent-hosts.md)"
    for channel in report.channels:
        name = one_line(channel.channel or "no channel")
        yield f"  {name}: {plural(channel.sessions, 'session')}, {plural(channel.messages, 'message')}"
    behind = [file for file in report.files if file.state != "in step"]
    if report.files:
        yield f"{plural(len(report.files), 'file')}, {len(report.files) - len(behind):,} in step with the store"
    only = "{0.path}: {0.state}; {0.only_in_file:,} only in the file, {0.only_in_store:,} only in the store"
    yield from first_lines(map(one_line, map(only.format, behind)), _MOST_FILES, "and {} more")
    if any(file.only_in_file for file in behind):
        yield "`recollect import jsonl FOLDER` stores what is only in files"


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Use this port (7391, or any if it is taken)."
)
@click.option("--no-open", is_flag=True, help="Print the address instead of opening a browser.")
@click.option("--read-only", is_flag=True, help="Read only: no stars, tags, notes, names or forgetting.")
@reports_errors
def web(port: int | None, no_open: bool, read_only: bool) -> None:
    """Read your sessions in a browser, on this machine only.

    Only you can open the page: its address contains a code that works once. If the browser does not open it within 5
    seconds, the address is printed. Ctrl-C stops it.

    \b
    recollect web
    recollect web --no-open --port 8080
    """
    refuse_in_group()
    archive.require_web_parts()  # else the rest cannot be imported
    from recollect.loopback import bind
    from recollect.web.app import USUAL_PORT, serve  # needs the extra

    def tell(address: str) -> None:
        click.echo(f"Open this in your browser; it works once:\n{address}")

    with bind(port, USUAL_PORT) as opened:
        click.echo(grey("Ctrl-C stops the page"), err=True)
        serve(opened, tell, opens=not no_open, read_only=read_only)
