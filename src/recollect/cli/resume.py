"""Commands to carry on with: resume, handoff, open, and group, which keeps workspaces and their conversations."""

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import recollect
from recollect.agents import BUILT_IN, shell_line
from recollect.api import open_memory
from recollect.cli.options import SESSION, filter_options, open_fresh
from recollect.cli.output import command, confirm, emit, limit_option, print_json, yes_option
from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    local_time,
    one_line,
    padded,
    printable,
    repo_name,
    short_ids,
    width,
)
from recollect.model.errors import NotFound, UsageError
from recollect.model.schema import to_json
from recollect.sessions import has_subject

if TYPE_CHECKING:
    from recollect.api import HandoverPlan, Memory
    from recollect.groups import Answered, Resumed
    from recollect.model.schema import Session
    from recollect.recall import Filters, Unfinished


@command()
@click.argument("session", type=SESSION)
@click.option("--to", "agent", required=True, type=click.Choice(BUILT_IN), help="The agent that continues.")
@click.option("--run", is_flag=True, help="Start that agent instead of printing its command.")
@yes_option
def handoff(session: str, agent: str, run: bool, yes: bool, as_json: bool) -> None:
    """Continue a session in another agent.

    If that agent can take a whole session, Recollect writes a session file into its home. It first lists what the file
    will lack, and asks. Other agents get a brief as their first prompt.

    \b
    recollect handoff last --to AGENT
    recollect handoff 3f2a91c4 --to AGENT --run
    """
    if run and as_json:
        raise UsageError("Cannot use `--run` and `--json` together", "choose one")
    with open_fresh() as memory:
        plan = memory.handover.plan_handoff(memory.session(session), agent)
        write_plan(plan, yes=yes, is_quiet=as_json)
    if as_json:
        print_json(to_json(plan))
    elif run:
        run_in(list(plan.words), plan.cwd or "")
    else:
        click.echo(in_folder(plan.cwd, plan.command))


def in_folder(folder: str | None, command: str) -> str:
    """A command line that runs a command in a session's folder."""
    return f"cd {shlex.quote(folder)} && {command}" if folder else command


def write_plan(plan: "HandoverPlan", *, yes: bool, is_quiet: bool) -> None:
    """Show what a plan writes and what it lacks, ask, and write it."""
    if not is_quiet:
        for loss in plan.losses:
            click.echo(f"will be missing: {one_line(loss)}", err=True)
        for path in plan.files:
            click.echo(f"new file: {one_line(path)}", err=True)
    if plan.files:
        confirm("Write it into the agent's home?", f"write {plan.files[0]}", yes)
        with open_memory(create=False) as writable:
            writable.handover.write(plan)


def obstacles(words: Sequence[str], folder: str) -> Iterator[str]:
    """Why a command could not be run here; its first words may set variables."""
    program = next(word for word in words if "=" not in word)
    if folder and not Path(folder).is_dir():
        yield f"no such folder here: {folder}"
    if shutil.which(program) is None:
        yield f"not on your PATH: {program}"


def run_in(words: Sequence[str], folder: str) -> None:
    """Become the agent, in its folder and with its home."""
    for obstacle in obstacles(words, folder):
        raise NotFound(f"Cannot resume: {obstacle}", f"the command is: {shell_line(words)[:200]}")
    if folder:
        os.chdir(folder)
    # `env` sets the variables that the first words may name.
    os.execvp("env", ["env", *words])


_SHOWN_OPEN = 20
_SHOWN_ENDS = 5
_SINCE = "30d"
_LEAST_COLUMNS = 12  # of a title


@command()
@click.argument("session", required=False, type=SESSION)
@click.option("--run", is_flag=True, help="Run the command instead of printing it.")
@click.option("--fork", "is_fork", is_flag=True, help="Continue a copy of the session, which itself does not change.")
@click.option("--at", metavar="SEQ", help="With --fork: end the copy at this event: its number, or part of its uid.")
@click.option("--save-as", metavar="NAME", help="With a bookmark: bookmark the group's active session first.")
@click.option("--group", metavar="NAME", help="With a bookmark: its group; by default the one whose folder you are in.")
@yes_option
def resume(
    session: str | None,
    run: bool,
    is_fork: bool,
    at: str | None,
    save_as: str | None,
    group: str | None,
    yes: bool,
    as_json: bool,
) -> None:
    """Print the command that continues a session in its agent.

    Without SESSION, resumes the last session of the current folder, or the last of all. A sub-agent's session continues
    in the session that started it. If SESSION is the name or number of a bookmark (`recollect group bookmarks`) or the
    file name of its archive, it becomes its group's active session again, and a running agent of the group is closed.

    If the agent has deleted the session, Recollect restores it from the store. It first lists what cannot be restored,
    and asks. `--fork --at` writes a session file that ends at an event, if the agent's sessions can be cut.

    \b
    recollect resume
    recollect resume 3f2a91c4 --run
    recollect resume 3f2a91c4 --fork --at 120
    recollect resume "tax research" --save-as "holidays"
    """
    if run and as_json:
        raise UsageError("Cannot use `--run` and `--json` together", "choose one")
    if is_fork or at is not None:
        if not is_fork or run or save_as or group:
            raise UsageError("`--at` needs `--fork`, which takes neither `--run`, `--save-as` nor `--group`")
        _fork(session, at, yes, as_json)
        return
    if session and (resumed := _from_bookmark(session, group, save_as)):
        again = "Was made active before" if resumed.was_done else "Active again"
        continued = f"recollect group run --group {resumed.group} PROMPT continues it, or its own program:"
        lines = (
            f"{again} in group {resumed.group}: {one_line(resumed.name)}",
            f"Bookmarked the previous session: {one_line(resumed.saved_as)}" if resumed.saved_as else None,
            grey(continued),
            in_folder(resumed.cwd, resumed.resume_command) if resumed.resume_command else None,
        )
        emit(resumed, as_json, lines)
        if run and resumed.resume_command:
            run_in(shlex.split(resumed.resume_command), resumed.cwd or "")
        return
    with open_fresh() as memory:
        chosen = memory.session(session) if session else _last(memory)
        if chosen.session_uid != chosen.root_session_uid:
            chosen = memory.session(chosen.root_session_uid)
        command, folder = chosen.resume_command, chosen.cwd or ""
        if command is None:
            hint = f"`recollect digest {chosen.argument} --for-agent` prints a brief to start a new session with"
            raise NotFound(f"Cannot resume a session of this agent, or with this id: {chosen.session_uid}", hint)
        if memory.handover.is_gone(chosen):
            write_plan(memory.handover.plan_rebuild(chosen), yes=yes, is_quiet=as_json)
    if as_json:
        print_json({"session_uid": chosen.session_uid, "cwd": chosen.cwd, "resume_command": command})
    elif run:
        run_in(shlex.split(command), folder)
    else:
        click.echo(in_folder(folder, command))
        click.echo(grey(f"# {local_time(chosen.ended_at)}  {one_line(chosen.title or '–')}"), err=True)
        for note in obstacles(shlex.split(command), folder):
            click.echo(f"note: {note}", err=True)


def _fork(session: str | None, at: str | None, yes: bool, as_json: bool) -> None:
    """Print the command that continues a copy of a session."""
    with open_fresh() as memory:
        chosen = memory.session(session) if session else _last(memory)
        if at is not None:
            confirm("Write a new session file beside this one?", "write a session file", yes)
        forked = memory.groups.fork(chosen, at)
    emit(forked, as_json, [in_folder(chosen.cwd, forked.command)])


def _from_bookmark(name: str, group: str | None, save_as: str | None) -> "Resumed | None":
    """Make a bookmarked session the active one of its group; None if no bookmark is meant."""
    with open_memory(create=False, read_only=True) as memory:
        group = group or memory.groups.current(Path.cwd())
        if save_as is None and not memory.groups.is_bookmark(name, group):
            return None
    with open_memory(create=False) as memory:
        return memory.groups.resume(name, group, save_as=save_as)


def _last(memory: "Memory") -> "Session":
    try:
        return memory.last_session(Path.cwd())
    except NotFound:
        return memory.last_session()


@command("open")
@filter_options
@limit_option("sessions", _SHOWN_OPEN)
def open_(filters: "Filters", limit: int | None, as_json: bool) -> None:
    """List what sessions left unfinished, newest first.

    Lists to-dos, unanswered questions, failing tests, requests without a response, and next steps. Covers the last 30
    days unless you give `--since`.

    \b
    recollect open
    recollect open --here --since "last week"
    """
    filters = filters if filters.since else filters._replace(since=_SINCE)
    with open_fresh() as memory:
        sessions = memory.unfinished(filters, limit=limit if as_json else (limit or _SHOWN_OPEN) + 1)
    emit(sessions, as_json, _open_lines(sessions, limit or _SHOWN_OPEN, str(filters.since)))


def _open_lines(sessions: "Sequence[Unfinished]", shown: int, since: str) -> Iterator[str]:
    columns, names = line_columns(), short_ids(session.session_uid for session in sessions)
    for number, session in enumerate(sessions[:shown]):
        yield from [""] if number else []
        name, when, repo = names[session.session_uid], local_time(session.ended_at)[:10], repo_name(session.repo)
        room = columns - sum(2 + width(word) for word in (when, session.agent, name, repo))
        said = session.title if has_subject(session.title or "") else None
        title = click.style(fitted(one_line(said or "–"), max(_LEAST_COLUMNS, room)), bold=True)
        yield f"{grey(when)}  {session.agent}  {click.style(name, fg='yellow')}  {repo}  {title}"
        ends = session.open_ends
        yield from (fitted(f"  - {one_line(end)}", columns) for end in ends[:_SHOWN_ENDS])
        if len(ends) > _SHOWN_ENDS:
            yield grey(f"  … {len(ends) - _SHOWN_ENDS} more: recollect digest {names[session.session_uid]}")
    if len(sessions) > shown:
        yield grey("more: --limit N, --repo, --since")
    elif sessions:
        yield ""
        yield grey(f"recollect resume {names[sessions[0].session_uid]} continues the first")
    else:
        further = " in the last 30 days: `--since` looks further back" if since == _SINCE else ""
        yield f"Nothing left open{further}"


_POLL_SECONDS = 0.2
group_option = click.option("--group", metavar="NAME", help="The group; by default the one whose folder you are in.")


def _home_options(command: Callable[..., None]) -> Callable[..., None]:
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
    emit(added, as_json, [f"Wrote {target}"] if write else [])


@command("list", below=group_)
def list_groups(as_json: bool) -> None:
    """List groups with their folders and active sessions."""
    with open_memory(create=False, read_only=True) as memory:
        groups = memory.groups.all()
    columns = max(width(group.name) for group in groups)
    lines = (
        f"{padded(group.name, columns)}  {group.agent}  {one_line(group.path)}  "
        + grey(group.session_uid or "no active session")
        for group in groups
    )
    emit(groups, as_json, lines)


@command("remove", below=group_)
@click.argument("name")
@yes_option
def remove_group(name: str, yes: bool, as_json: bool) -> None:
    """Remove a group with its bookmarks; its sessions and files stay."""
    with open_memory(create=False) as memory:
        memory.groups.get(name)
        confirm(f"Remove group {name} and its bookmarks?", f"remove group {name}", yes)
        removed = memory.groups.remove(name)
    emit(removed, as_json, [f"Removed {removed.name}; its files stay: {removed.path}"])


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
    named = (f"{mount.host}:{mount.sandbox}{':ro' if mount.mode == 'ro' else ''}" for mount in listed)
    emit(listed, as_json or form == "json", (f"-v {shlex.quote(name)}" for name in named))


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
    again = "Was put" if cleared.was_done else "Put"
    done = f"{again} aside as {one_line(cleared.bookmark.name)} (bookmark {cleared.bookmark.id})"
    emit(cleared, as_json, [done, f"Archived: {cleared.archive}" if cleared.archive else None])


@command(below=group_)
@click.option("--group", metavar="NAME", help="Only this group's bookmarks.")
def bookmarks(group: str | None, as_json: bool) -> None:
    """List conversations that were set aside, newest first."""
    with open_memory(create=False, read_only=True) as memory:
        listed = memory.groups.bookmarks(group)
    lines = (
        f"{mark.id:>4}  {grey(local_time(mark.archived_at))}  {mark.group}  {one_line(mark.name)}  "
        + grey(mark.session_uid)
        for mark in listed
    )
    emit(listed, as_json, lines, "No bookmarks: `recollect group clear NAME` makes one")


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
    emit(report, as_json, [])
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
