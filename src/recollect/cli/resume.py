"""Commands to carry on with: resume a session, list what was left open."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.api import open_memory
from recollect.cli.filters import SESSION, filter_options
from recollect.cli.fresh import open_fresh
from recollect.cli.handoff import in_folder, obstacles, run_in, write_plan
from recollect.cli.output import emit, json_option, limit_option, print_json, reports_errors, yes_option
from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    local_time,
    one_line,
    repo_name,
    short_ids,
    width,
)
from recollect.errors import NotFound, UsageError

if TYPE_CHECKING:
    from recollect.api import Memory
    from recollect.groups import Resumed
    from recollect.recall import Filters, Unfinished
    from recollect.schema import Session

_SHOWN_OPEN = 20
_SHOWN_ENDS = 5
_SINCE = "30d"
_LEAST_COLUMNS = 12  # of a title


@click.command()
@click.argument("session", required=False, type=SESSION)
@click.option("--run", is_flag=True, help="Run the command instead of printing it.")
@click.option("--save-as", metavar="NAME", help="With a bookmark: bookmark the group's active session first.")
@click.option("--group", metavar="NAME", help="With a bookmark: its group; by default the one whose folder you are in.")
@yes_option
@json_option
@reports_errors
def resume(session: str | None, run: bool, save_as: str | None, group: str | None, yes: bool, as_json: bool) -> None:
    """Print the command that continues a session in its agent.

    Without SESSION, resumes the last session of the current folder, or the last of all. A sub-agent's session continues
    in the session that started it. If SESSION is the name or number of a bookmark (`recollect bookmarks`) or the file
    name of its archive, it becomes its group's active session again, and a running agent of the group is closed.

    If the agent has deleted the session, Recollect restores it from the store. It first lists what cannot be restored,
    and asks.

    \b
    recollect resume
    recollect resume 3f2a91c4 --run
    recollect resume "tax research" --save-as "holidays"
    """
    if run and as_json:
        raise UsageError("Cannot use `--run` and `--json` together", "choose one")
    if session and (resumed := _from_bookmark(session, group, save_as)):
        emit(resumed, as_json, _resumed_lines)
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


def _from_bookmark(name: str, group: str | None, save_as: str | None) -> "Resumed | None":
    """Make a bookmarked session the active one of its group; None if no bookmark is meant."""
    with open_memory(create=False, read_only=True) as memory:
        group = group or memory.groups.current(Path.cwd())
        if save_as is None and not memory.groups.is_bookmark(name, group):
            return None
    with open_memory(create=False) as memory:
        return memory.groups.resume(name, group, save_as=save_as)


def _resumed_lines(resumed: "Resumed") -> Iterator[str]:
    again = "Was made active before" if resumed.was_done else "Active again"
    yield f"{again} in group {resumed.group}: {one_line(resumed.name)}"
    if resumed.saved_as:
        yield f"Bookmarked the previous session: {one_line(resumed.saved_as)}"
    yield grey(f"recollect run --group {resumed.group} PROMPT continues it, or its own program:")
    if resumed.resume_command:
        yield in_folder(resumed.cwd, resumed.resume_command)


def _last(memory: "Memory") -> "Session":
    try:
        return memory.last_session(Path.cwd())
    except NotFound:
        return memory.last_session()


@click.command("open")
@filter_options
@limit_option("sessions", _SHOWN_OPEN)
@json_option
@reports_errors
def open_(filters: "Filters", limit: int | None, as_json: bool) -> None:
    """List what sessions left unfinished, newest first.

    Lists to-dos, unanswered questions, failing tests, requests without a response, and next steps. Covers the last 30
    days unless you give `--since`.

    \b
    recollect open
    recollect open --here --since "last week"
    """
    filters = filters if filters.since else filters._replace(since=_SINCE)
    shown = limit or _SHOWN_OPEN
    with open_fresh() as memory:
        sessions = memory.unfinished(filters, limit=limit if as_json else shown + 1)
    emit(sessions, as_json, lambda sessions: _open_lines(sessions, shown, str(filters.since)))


def _open_lines(sessions: "Sequence[Unfinished]", shown: int, since: str) -> Iterator[str]:
    columns, names = line_columns(), short_ids(session.session_uid for session in sessions)
    for number, session in enumerate(sessions[:shown]):
        yield from [""] if number else []
        name, when, repo = names[session.session_uid], local_time(session.ended_at)[:10], repo_name(session.repo)
        room = columns - sum(2 + width(word) for word in (when, session.agent, name, repo))
        title = click.style(fitted(one_line(session.title or "–"), max(_LEAST_COLUMNS, room)), bold=True)
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


COMMANDS = (resume, open_)
