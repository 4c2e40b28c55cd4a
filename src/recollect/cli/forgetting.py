"""`recollect forget`: shows what would go, asks, and only then removes it."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from recollect.cli.output import json_option, print_json, reports_errors, yes_option
from recollect.cli.words import fitted, moment_ms, one_line, plural, size
from recollect.errors import NeedsAnswer, NotFound, UsageError

if TYPE_CHECKING:
    from recollect.forget import ForgetPlan, ForgottenSession
    from recollect.memory import Memory

_SHOWN = 20
_TITLE_COLUMNS = 60


@click.command()
@click.argument("sessions", nargs=-1)
@click.option("--repo", metavar="NAME", help="Everything of this repository; any ending of its name will do.")
@click.option("--before", metavar="WHEN", help="Sessions that ended before: 2026-11-01, 90d, yesterday.")
@click.option("--match", metavar="TEXT", help="Sessions in which this text stands anywhere, whatever its case.")
@click.option("--excluded", is_flag=True, help="Sessions that were stored before a rule of yours left them out.")
@click.option("--with-forks", is_flag=True, help="Forget the sessions that share its text, too.")
@click.option("--keep-forks", is_flag=True, help="Leave sessions that share its text their copies of it.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@yes_option
@json_option
@reports_errors
def forget(
    sessions: tuple[str, ...],
    before: str | None,
    excluded: bool,
    with_forks: bool,
    keep_forks: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **conditions: str | None,
) -> None:
    """Remove sessions for good, with their sub-agents.

    No byte of them stays in the store, and no later sweep brings them back. Your agents' own files are not touched.
    Conditions given together must all be met.

    \b
    recollect forget 3f2a91c4 --dry-run
    recollect forget --repo shop-api --before 90d
    recollect forget --match "words that should not be there"
    """
    from recollect.care import make_room
    from recollect.memory import open_memory

    if with_forks and keep_forks:
        raise UsageError("`--with-forks` and `--keep-forks` contradict each other", "give one of them")
    asking = _Asking(as_json, is_sure=yes)
    if not dry_run:
        make_room()
    with open_memory(create=False) as memory:
        told = conditions | {"before_ms": moment_ms("--before", before), "excluded": excluded}
        wanted = _Wanted(memory, sessions, told, dry_run)
        planned = wanted.plan(with_forks)
        asking.show(planned)
        if not dry_run and planned.forks and not keep_forks:
            keep_forks = asking.may_keep_forks(planned)
            if not keep_forks:
                planned = wanted.plan(with_forks=True)
                asking.show(planned)
        if not dry_run:
            asking.confirm(planned)
            planned = memory.forget(planned, keep_forks=keep_forks, also_new=yes)
    if as_json:
        print_json(_plan_json(planned) | {"is_done": not dry_run})
    else:
        click.echo(_last_words(planned, dry_run))


class _Wanted:
    """What is asked for, planned as often as an answer changes it."""

    def __init__(self, memory: "Memory", sessions: tuple[str, ...], conditions: dict[str, Any], dry_run: bool) -> None:
        self._memory = memory
        self._sessions = sessions
        self._conditions = conditions
        self._dry_run = dry_run

    def plan(self, with_forks: bool = False) -> "ForgetPlan":
        """What goes. Raises Busy where a running sweep may be about to store it, NotFound where there is nothing."""
        try:
            return self._plan(with_forks)
        except NotFound:
            if self._dry_run:
                raise
            with self._memory.without_sweeps():
                return self._plan(with_forks)

    def _plan(self, with_forks: bool) -> "ForgetPlan":
        from recollect.cli.progress import shown_progress

        with shown_progress() as show:
            planned = self._memory.plan_forgetting(
                *self._sessions, **self._conditions, with_forks=with_forks, progress=show
            )
        if not planned.names:
            raise NotFound("No sessions match, so there is nothing to forget", "`recollect sessions` lists them")
        return planned


class _Asking:
    """The questions before something goes for good; programs and pipes must have answered them with options."""

    def __init__(self, as_json: bool, *, is_sure: bool) -> None:
        self._as_json = as_json
        self._is_sure = is_sure

    def show(self, planned: "ForgetPlan") -> None:
        if not self._as_json:
            _print_plan(planned)

    def may_keep_forks(self, planned: "ForgetPlan") -> bool:
        """Whether forks keep their copies; they go too if the answer is no."""
        self._require_person(
            f"{plural(len(planned.forks), 'other session')} hold the same text: {planned.forks[0].session_uid}",
            "--with-forks forgets them too, --keep-forks leaves them their copies",
        )
        return not click.confirm("Forget the sessions that share the text, too?")

    def confirm(self, planned: "ForgetPlan") -> None:
        if self._is_sure:
            return
        count = _count(planned)
        self._require_person(f"Nobody can be asked whether {count} should go for good", "--yes says so")
        click.confirm(f"Forget {count} for good?", abort=True)

    def _require_person(self, message: str, hint: str) -> None:
        if self._as_json or self._is_sure or not sys.stdin.isatty():
            raise NeedsAnswer(message, hint)


def _print_plan(planned: "ForgetPlan") -> None:
    sub_agents = sum(session.is_sub_agent for session in planned.sessions)
    among = f", {plural(sub_agents, 'sub-agent')} among them" if sub_agents else ""
    what = f"{plural(planned.events, 'event')}, {size(planned.payload_bytes)}"
    if planned.sessions:
        click.echo(f"{plural(len(planned.sessions), 'session')}{among}: {what}")
        _print_lines(_session_line(session) for session in planned.sessions)
    if planned.lines:
        click.echo(f"{plural(len(planned.lines), 'line')} that cannot be read, of files that are no session's:")
        _print_lines(f"{line.path}:{line.line}" for line in planned.lines)
    if planned.forks:
        click.echo("These share text with them (forks, resumed copies, originals):")
        _print_lines(f"{_session_line(fork)}, {plural(fork.shared_events, 'shared event')}" for fork in planned.forks)
    if planned.copies:
        click.echo("Out of reach, and may hold the same text: delete them yourself if it must go from there too:")
        _print_lines(f"{copy.kind} {copy.path} ({copy.made_at})" for copy in planned.copies)
    if planned.files:
        click.echo("The agents' own files are not touched; delete them yourself if they must go too:")
        _print_lines(planned.files)


def _print_lines(lines: Any) -> None:
    every = list(lines)
    for line in every[:_SHOWN]:
        click.echo(f"  {one_line(line)}")
    if len(every) > _SHOWN:
        click.echo(f"  and {len(every) - _SHOWN:,} more: --json lists all")


def _session_line(session: "ForgottenSession") -> str:
    title = fitted(one_line(session.title or "–"), _TITLE_COLUMNS)
    return f"{session.session_uid}  {title}  {plural(session.events, 'event')}"


def _last_words(planned: "ForgetPlan", dry_run: bool) -> str:
    count = _count(planned)
    them = "it" if not planned.sessions and len(planned.lines) == 1 else "them"
    return f"Nothing was changed: {count} would go" if dry_run else f"Forgot {count}; no sweep brings {them} back"


def _count(planned: "ForgetPlan") -> str:
    sessions, lines = plural(len(planned.sessions), "session"), plural(len(planned.lines), "line")
    return " and ".join(([sessions] if planned.sessions else []) + ([lines] if planned.lines else []))


def _plan_json(planned: "ForgetPlan") -> dict[str, Any]:
    told = {name: value for name, value in asdict(planned).items() if name != "asked"}
    return told | {"events": planned.events, "payload_bytes": planned.payload_bytes}


COMMANDS = (forget,)
