"""The command `group`: workspaces, and the conversations in them."""

import shlex
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import recollect
from recollect.api import open_memory
from recollect.cli.output import command, confirm, emit, print_json, yes_option
from recollect.cli.terminal import grey, local_time, one_line, padded, printable, width
from recollect.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from recollect.api import Memory
    from recollect.groups import Answered, Bookmark, Cleared, Group, Mount

_POLL_SECONDS = 0.2
group_option = click.option("--group", metavar="NAME", help="The group; by default the one whose folder you are in.")


def _home_options(command: "Callable[..., None]") -> "Callable[..., None]":
    """The settings of a new home, as `recollect.HomeSettings` has them."""
    for option in (
        click.option("--auto-memory/--no-auto-memory", default=None, help="Turn auto memory on or off in a new home."),
        click.option(
            "--add-dir", "directories", multiple=True, metavar="DIR", help="Let a new home use DIR too; repeatable."
        ),
        click.option("--agent-teams", is_flag=True, help="Turn on agent teams in a new home."),
    ):
        command = option(command)
    return command


@click.group("group")
def group_() -> None:
    """Keep workspaces apart, and put conversations aside.

    \b
    recollect group add family --path ~/family
    recollect group run "What did we plan for Saturday?"
    recollect group clear "tax research"
    """


@command("add", below=group_)
@click.argument("name")
@click.option("--path", type=click.Path(file_okay=False), required=True, help="The group's folder.")
@click.option("--agent", metavar="NAME", help="The agent that works there.")
@click.option("--home", type=click.Path(file_okay=False), help="The agent's home; by default one in the store.")
@click.option("--write", is_flag=True, help="Put the paragraph into the file that the agent reads at its start.")
@yes_option
def add_group(name: str, path: str, agent: str | None, home: str | None, write: bool, yes: bool, as_json: bool) -> None:
    """Create a group for a folder.

    Sessions of that folder belong to it, including those read before. Prints a paragraph about past conversations for
    the group's agent; `--write` puts it into the file of the folder that the agent reads at its start.

    \b
    recollect group add family --path ~/family
    recollect group add dev --path ~/dev --write
    """
    with open_memory() as memory:
        was_there = name in [known.name for known in memory.groups.all()]
        added = memory.groups.add(name, Path(path).expanduser(), agent=agent, home=home)
        target, text = memory.groups.paragraph(name)
    if not as_json:
        click.echo(f"{'Added before:' if was_there else 'Added'} {added.name}: {added.path}")
        click.echo(f"\n{target}:\n\n{text}" if write else f"\nAdd this to {target}:\n\n{text}")
    if write:
        confirm(f"Write {target}?", f"change {target}", yes)
        target.write_text(text, encoding="utf-8")
    emit(added, as_json, lambda added: [f"Wrote {target}"] if write else [])


@command("list", below=group_)
def list_groups(as_json: bool) -> None:
    """List groups with their folders and active sessions."""
    with open_memory(create=False, read_only=True) as memory:
        groups = memory.groups.all()
    emit(groups, as_json, _group_lines)


def _group_lines(groups: "Sequence[Group]") -> Iterator[str]:
    columns = max(width(group.name) for group in groups)
    for group in groups:
        active = group.session_uid or "no active session"
        yield f"{padded(group.name, columns)}  {group.agent}  {one_line(group.path)}  {grey(active)}"


@command("remove", below=group_)
@click.argument("name")
@yes_option
def remove_group(name: str, yes: bool, as_json: bool) -> None:
    """Remove a group with its bookmarks; its sessions and files stay."""
    with open_memory(create=False) as memory:
        memory.groups.get(name)
        confirm(f"Remove group {name} and its bookmarks?", f"remove group {name}", yes)
        removed = memory.groups.remove(name)
    emit(removed, as_json, lambda removed: [f"Removed {removed.name}; its files stay: {removed.path}"])


@command("mounts", below=group_)
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["json", "docker"]), default="json", help="How to print them.")
@_home_options
def mounts(name: str, form: str, as_json: bool, **settings: Any) -> None:
    """Print the mounts that a sandbox of the group needs.

    Creates the folders that are missing, and gives the agent's home settings and the group's skills, as `group run`
    does.

    \b
    docker run $(recollect group mounts family --format docker) my-agent
    """
    with open_memory(create=False) as memory:
        listed = memory.groups.mounts(name, recollect.HomeSettings(**settings))
    emit(listed, as_json or form == "json", _docker_lines)


def _docker_lines(mounts: "Sequence[Mount]") -> Iterator[str]:
    for mount in mounts:
        ending = ":ro" if mount.mode == "ro" else ""
        yield f"-v {shlex.quote(f'{mount.host}:{mount.sandbox}{ending}')}"


@command(below=group_)
@click.argument("name")
@group_option
def clear(name: str, group: str | None, as_json: bool) -> None:
    """Set a group's conversation aside under a name.

    The next prompt begins a new one. The transcript is archived in `conversations`, the session gets a bookmark, and a
    running agent is closed.

    \b
    recollect group clear "tax research"
    recollect resume "tax research"
    """
    with open_memory(create=False) as memory:
        cleared = memory.groups.clear(name, group or memory.groups.current(Path.cwd()))
    emit(cleared, as_json, _cleared_lines)


def _cleared_lines(cleared: "Cleared") -> Iterator[str]:
    again = "Was put" if cleared.was_done else "Put"
    yield f"{again} aside as {one_line(cleared.bookmark.name)} (bookmark {cleared.bookmark.id})"
    if cleared.archive:
        yield f"Archived: {cleared.archive}"


@command(below=group_)
@click.option("--group", metavar="NAME", help="Only this group's bookmarks.")
def bookmarks(group: str | None, as_json: bool) -> None:
    """List conversations that were set aside, newest first."""
    with open_memory(create=False, read_only=True) as memory:
        listed = memory.groups.bookmarks(group)
    emit(listed, as_json, _bookmark_lines)


def _bookmark_lines(bookmarks: "Sequence[Bookmark]") -> Iterator[str]:
    for mark in bookmarks:
        when = local_time(mark.archived_at)
        yield f"{mark.id:>4}  {grey(when)}  {mark.group}  {one_line(mark.name)}  {grey(mark.session_uid)}"
    if not bookmarks:
        yield "No bookmarks: `recollect group clear NAME` makes one"


@command(below=group_)
@click.argument("prompt")
@click.argument("arguments", nargs=-1)
@group_option
@click.option("--agent", metavar="NAME", help="Use this agent instead of the group's.")
@click.option(
    "--wait",
    "wait_seconds",
    metavar="SECONDS",
    type=click.FloatRange(0),
    default=0.0,
    help="Wait this long for follow-ups (0).",
)
@click.option("--at", "after_uuid", metavar="UUID", help="Continue after this message, if the agent can.")
@click.option("--drops", metavar="UUID", help="With --at: the only prompt whose turn may be dropped.")
@_home_options
def run(
    prompt: str,
    arguments: tuple[str, ...],
    group: str | None,
    agent: str | None,
    wait_seconds: float,
    after_uuid: str | None,
    drops: str | None,
    as_json: bool,
    **settings: Any,
) -> None:
    """Send a prompt to a group's agent.

    Continues the active session, or begins one that becomes active. Follow-ups are files in the `input` folder of the
    group's IPC folder; a file `_close` there ends the agent. ARGUMENTS after `--` are passed to the agent.

    \b
    recollect group run --group family "What did we plan for Saturday?"
    recollect group run "Fix the test" -- --permission-mode acceptEdits
    """
    home = recollect.HomeSettings(**settings)
    how = recollect.Prompting(agent, arguments, wait_seconds, after_uuid, drops, home)
    with open_memory() as memory:
        name = group or memory.groups.current(Path.cwd())
        say = (lambda text: None) if as_json else (lambda text: click.echo(printable(text)))
        report = memory.groups.run(prompt, name, how, say=say)
    emit(report, as_json, lambda report: [])
    if not as_json:
        click.echo(grey(f"# {report.session_uid}"), err=True)


@command(below=group_)
@click.option("--group", metavar="NAME", help="Only this group's requests.")
@click.option("--once", is_flag=True, help="Answer waiting requests, then stop.")
def serve(group: str | None, once: bool, as_json: bool) -> None:
    """Answer requests of sandboxed agents, until you stop it.

    Requests are JSON files in `tasks`, answers have the same names in `answers`, in each group's IPC folder. Groups
    take turns. Answers expire after a day.
    """
    told, done = set[str](), set[tuple[str, str]]()
    with open_memory() as memory:
        for name in _served_groups(memory, group):
            with _reporting(name, told):
                memory.groups.write_snapshots(name)
    while True:
        before = len(done)
        with open_memory() as memory:
            for name in _served_groups(memory, group):
                with _reporting(name, told):
                    for answered in memory.groups.serve(name):
                        done.add((answered.group, answered.request))
                        _tell(answered, as_json)
        if not once:
            done.clear()
            time.sleep(_POLL_SECONDS)
        elif len(done) == before:
            return


def _served_groups(memory: "Memory", group: str | None) -> list[str]:
    return [group] if group else [one.name for one in memory.groups.all()]


@contextmanager
def _reporting(group: str, told: set[str]) -> Iterator[None]:
    """Go on with the next group if one's folder cannot be used, and say so once."""
    try:
        yield
    except (UsageError, OSError) as error:
        if (line := f"{group}: {error}") not in told:
            click.echo(one_line(line), err=True)
        told.add(line)


def _tell(answered: "Answered", as_json: bool) -> None:
    if as_json:
        print_json(recollect.to_json(answered), is_line=True)
    else:
        outcome = f"refused ({answered.error})" if answered.error else "done"
        click.echo(f"{answered.group}  {one_line(answered.request)}  {answered.action or '?'}  {outcome}")
    sys.stdout.flush()
