"""Commands to carry on with: resume a session, list what was left open."""

import os
import shlex
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.cli.filters import SESSION, filter_options
from recollect.cli.fresh import open_fresh
from recollect.cli.output import emit, json_option, limit_option, print_json, reports_errors
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
    from recollect.recall import Filters, Unfinished
    from recollect.schema import Session

_SHOWN_OPEN = 20
_SHOWN_ENDS = 5
_SINCE = "30d"
_LEAST_COLUMNS = 12  # of a title


@click.command()
@click.argument("session", required=False, type=SESSION)
@click.option("--run", is_flag=True, help="Run the command instead of printing it.")
@json_option
@reports_errors
def resume(session: str | None, run: bool, as_json: bool) -> None:
    """Print the command that continues a session in its agent.

    Without SESSION, the session active last in the current folder, else the last of all. A sub-agent's session is
    continued in the one that started it.

    \b
    recollect resume
    recollect resume 3f2a91c4 --run
    """
    if run and as_json:
        raise UsageError("Cannot use `--run` and `--json` together", "choose one")
    with open_fresh() as memory:
        chosen = _root(memory, memory.session(session) if session else _last(memory))
    command, folder = _require_command(chosen), chosen.cwd or ""
    if as_json:
        print_json({"session_uid": chosen.session_uid, "cwd": chosen.cwd, "resume_command": command})
    elif run:
        _run(command, folder)
    else:
        click.echo(f"cd {shlex.quote(folder)} && {command}" if folder else command)
        click.echo(grey(f"# {local_time(chosen.ended_at)}  {one_line(chosen.title or '–')}"), err=True)
        for note in _obstacles(command, folder):
            click.echo(f"note: {note}", err=True)


def _last(memory: "Memory") -> "Session":
    try:
        return memory.last_session(Path.cwd())
    except NotFound:
        return memory.last_session()


def _root(memory: "Memory", session: "Session") -> "Session":
    is_root = session.parent_session_uid is None or session.root_session_uid == session.session_uid
    return session if is_root else memory.session(session.root_session_uid)


def _require_command(session: "Session") -> str:
    """The session's command; raises NotFound if its agent has none, or has lost the log."""
    hint = f"`recollect digest {session.native_session_id} --for-agent` prints a brief to start a new session with"
    if session.resume_command is None:
        raise NotFound(f"No command is known that resumes sessions of this agent: {session.agent}", hint)
    if session.sources and all(source.source_gone_at for source in session.sources):
        raise NotFound(f"The agent has deleted the log: {session.sources[0].path}", hint)
    return session.resume_command


def _obstacles(command: str, folder: str) -> Iterator[str]:
    program = shlex.split(command)[0]
    if folder and not Path(folder).is_dir():
        yield f"no such folder here: {folder}"
    if shutil.which(program) is None:
        yield f"not on your PATH: {program}"


def _run(command: str, folder: str) -> None:
    for obstacle in _obstacles(command, folder):
        raise NotFound(f"Cannot resume: {obstacle}", f"the command is: {command}")
    words = shlex.split(command)
    if folder:
        os.chdir(folder)
    os.execvp(words[0], words)


@click.command("open")
@filter_options
@limit_option("sessions", _SHOWN_OPEN)
@json_option
@reports_errors
def open_(filters: "Filters", limit: int | None, as_json: bool) -> None:
    """List what sessions left unfinished, newest first.

    To-dos, questions nobody answered, failing tests, requests the agent never acted on, next steps it named. Without
    `--since`, of the last 30 days.

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
        yield grey(f"recollect resume {names[sessions[0].session_uid]} carries on with the first")
    else:
        yield f"Nothing was left open since {since}"


COMMANDS = (resume, open_)
