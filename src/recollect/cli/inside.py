"""Commands that bring the memory into the agents and their hosts: install, uninstall, mcp, hooks, live."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect import hooks
from recollect.api import installer, open_memory
from recollect.cli.output import command, confirm, emit, first_lines, limit_option, reports_errors, yes_option
from recollect.cli.terminal import fitted_time, grey, one_line, plural
from recollect.errors import NotFound, RecollectError, UsageError
from recollect.live import Live

if TYPE_CHECKING:
    from recollect.care import Installation
    from recollect.hooks import LogEntry
    from recollect.live import LiveStatus

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
        _require_http()
        serve_http(repo, group, can_write=write_tools, is_core=is_core, port=port, announce=_print_address)
        return
    if port:
        raise UsageError("`--port` needs `--http`")
    serve(repo, group, can_write=write_tools, is_core=is_core)


def _require_http() -> None:
    from importlib.util import find_spec

    if find_spec("uvicorn") is None:
        raise RecollectError("Serving over HTTP needs the extra `mcp-http`", "pip install 'recollect[mcp-http]'")


def _print_address(address: str, token: str) -> None:
    click.echo(f"{address}\nAuthorization: Bearer {token}")
    click.echo(grey("Ctrl-C stops the server"), err=True)


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
    emit(hooks.read_hook_log(limit), as_json, _log_lines)


def _log_lines(entries: "list[LogEntry]") -> Iterator[str]:
    for item in entries:
        then = f"  then: {item.then}" if item.then else ""
        yield f"{grey(fitted_time(item.at))}  {item.agent}  {item.session}  {item.event}{then}"
        yield from (f"    {one_line(line)}" for line in item.text.splitlines())
    if fixes := [item.then for item in entries if item.error]:
        yield f"Fixes shown: {len(fixes)}; the error did not come back: {fixes.count(hooks.NOT_MET_AGAIN)}"
    if not entries:
        yield "Hooks have added nothing yet; `recollect doctor` shows whether they are installed"


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
    made = installer(with_plugin=not no_plugin, can_write=write_tools)
    names = made.agents(agents)
    _confirm_steps(made.plan(names), "Install?", "change your agents' settings", yes, as_json)
    message = f"Installed for {', '.join(names)}: new sessions use it; `recollect doctor` tests each part"
    emit(made.install(names), as_json, lambda done: _done_lines(done, message))


@command()
@click.argument("agents", nargs=-1)
@yes_option
def uninstall(agents: tuple[str, ...], yes: bool, as_json: bool) -> None:
    """Remove Recollect from your agents.

    \b
    recollect uninstall
    """
    made = installer()
    plan = made.plan_removal(agents)
    if not plan.steps:
        raise NotFound("Not installed for any agent", "`recollect install` installs it")
    _confirm_steps(plan, "Remove?", "change your agents' settings", yes, as_json)
    names = dict.fromkeys(step.agent for step in plan.steps if step.agent)
    emit(made.remove(agents), as_json, lambda done: _done_lines(done, f"Removed from {', '.join(names)}"))


def _confirm_steps(plan: "Installation", question: str, action: str, yes: bool, as_json: bool) -> None:
    for step in plan.steps if not as_json else ():
        click.echo(f"{step.action:<7} {one_line(step.target)}")
    confirm(question, action, yes)


def _done_lines(done: "Installation", message: str) -> Iterator[str]:
    yield message
    yield from map(one_line, done.advice)


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
        report = Live(memory).status(Path(folder) if folder else None)
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
