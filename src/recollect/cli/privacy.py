"""Commands for privacy: forget, redact."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from recollect.api import check_text, make_room, open_memory
from recollect.cli.options import SESSION
from recollect.cli.output import command, confirm, emit, first_lines, yes_option
from recollect.cli.terminal import fitted, local_time, one_line, plural, shown_progress, size
from recollect.model.errors import NeedsAnswer, NotFound, UsageError

if TYPE_CHECKING:
    from recollect.api import Memory
    from recollect.lifecycle import ForgetPlan, ForgottenSession

_SHOWN = 20
_TITLE_COLUMNS = 60


@command()
@click.argument("sessions", nargs=-1, type=SESSION)
@click.option("--repo", metavar="NAME", help="Everything from this repository: its name, or the end of it.")
@click.option("--before", metavar="WHEN", help="Sessions that ended before: 2026-11-01, 90d, yesterday.")
@click.option("--match", metavar="TEXT", help="Sessions that contain TEXT anywhere, in upper or lower case.")
@click.option("--excluded", is_flag=True, help="Sessions stored before one of your rules excluded them.")
@click.option("--pending", is_flag=True, help="Sessions that agents asked you to forget, with their reasons.")
@click.option("--dismiss", is_flag=True, help="With --pending: drop the requests and forget nothing.")
@click.option("--with-forks", is_flag=True, help="Also forget sessions that share their text.")
@click.option("--keep-forks", is_flag=True, help="Keep sessions that share their text, with their copies of it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be deleted.")
@yes_option
def forget(
    sessions: tuple[str, ...],
    pending: bool,
    dismiss: bool,
    with_forks: bool,
    keep_forks: bool,
    dry_run: bool,
    yes: bool,
    as_json: bool,
    **conditions: Any,
) -> None:
    """Delete sessions and their sub-agents for good.

    Deletes every byte of them from the store; no later sweep brings them back. Your agents' own files are not
    changed. Sessions must meet all conditions given.

    \b
    recollect forget 3f2a91c4 --dry-run
    recollect forget --repo shop-api --before 90d
    recollect forget --match "words that should not be there"
    recollect forget --pending
    """
    if with_forks and keep_forks:
        raise UsageError("Cannot use `--with-forks` and `--keep-forks` together", "choose one")
    if dismiss > pending or (pending and (sessions or any(conditions.values()))):
        raise UsageError("`--pending` takes no other conditions, and `--dismiss` needs it")
    if dismiss:
        with open_memory(create=False) as memory:
            dropped = memory.annotations.drop_forget_requests()
        emit({"dismissed": dropped}, as_json, [f"Dismissed {plural(dropped, 'request')}"])
        return
    sessions = _asked(as_json) if pending else sessions
    if not dry_run:
        make_room()
    with open_memory(create=False) as memory:
        finished = 0 if dry_run else memory.finish_forgetting()
        if finished and not as_json:
            click.echo(f"Finished an interrupted deletion: {plural(finished, 'session')}")
        if not dry_run and _is_done(memory, sessions, finished, conditions):
            nothing = {"sessions": [], "lines": [], "events": 0, "is_done": True, "finished": finished}
            emit(nothing, as_json, ["Nothing is left to delete"])
            return
        plan = partial(_plan, memory, sessions, conditions, dry_run=dry_run, as_json=as_json)
        planned = plan(with_forks)
        if not dry_run:
            if planned.forks and not keep_forks:
                keep_forks = _may_keep_forks(planned, can_ask=not as_json and not yes and sys.stdin.isatty())
                planned = planned if keep_forks else plan(True)
            count = _count(planned)
            if as_json and not yes:
                raise NeedsAnswer(f"Refusing to delete {count} without `--yes`", "with `--json` there is no prompt")
            confirm(f"Delete {count} for good?", f"delete {count}", yes)
            planned = memory.forget(planned, keep_forks=keep_forks, also_new=yes)
    count = _count(planned)
    done = f"Nothing was changed: {count} would be deleted" if dry_run else f"Deleted {count} for good"
    emit(planned.to_json() | {"is_done": not dry_run}, as_json, [done])


def _asked(as_json: bool) -> tuple[str, ...]:
    """The sessions that agents asked to have forgotten, shown with their reasons; raises NotFound if there are none."""
    with open_memory(create=False) as memory:
        requests = memory.annotations.forget_requests()
    if not requests:
        raise NotFound("No agent has asked you to forget a session")
    for request in requests if not as_json else ():
        click.echo(f"Asked {local_time(request.asked_at)}: {one_line(request.session_uid)}, {one_line(request.reason)}")
    return tuple(request.session_uid for request in requests)


def _is_done(memory: "Memory", sessions: tuple[str, ...], finished: int, conditions: dict[str, Any]) -> bool:
    """Whether an earlier run of the same command has deleted everything: it may have been killed at its very end."""
    for name in sessions:
        with suppress(NotFound):
            memory.session(name)
            return False
    if sessions:
        return all(map(memory.is_forgotten, sessions))
    return bool(finished) and not memory.plan_forgetting(**conditions).keys


def _plan(
    memory: "Memory",
    sessions: tuple[str, ...],
    conditions: dict[str, Any],
    with_forks: bool,
    *,
    dry_run: bool,
    as_json: bool,
) -> "ForgetPlan":
    """Plan and show it. Raises NotFound if nothing matches, and Busy while a running sweep may still store a match."""

    def plan() -> "ForgetPlan":
        with shown_progress() as show:
            planned = memory.plan_forgetting(*sessions, **conditions, with_forks=with_forks, progress=show)
        if not planned.keys:
            raise NotFound("No sessions match, nothing to forget", _nearest(memory, conditions.get("repo")))
        return planned

    try:
        planned = plan()
    except NotFound:
        if dry_run:
            raise
        with memory.without_sweeps():
            planned = plan()
    if not as_json:
        click.echo("\n".join(_plan_lines(planned)))
    return planned


def _nearest(memory: "Memory", repo: str | None) -> str:
    """What to try instead. Part of a repository's name is enough to find sessions, not to delete them."""
    if repo is None:
        return "`recollect sessions` lists sessions"
    try:
        return f"did you mean `--repo {one_line(memory.repos_named(repo)[0])}`?"
    except NotFound as error:
        return error.hint or "`recollect stats --by repo` lists repositories"


def _may_keep_forks(planned: "ForgetPlan", *, can_ask: bool) -> bool:
    """Whether forks keep their copies; if not, they are deleted too."""
    if not can_ask:
        verb = "shares" if len(planned.forks) == 1 else "share"
        raise NeedsAnswer(
            f"{plural(len(planned.forks), 'other session')} {verb} text with these: {planned.forks[0].session_uid}",
            "--with-forks deletes them too, --keep-forks keeps them with their copies",
        )
    return not click.confirm("Also delete the sessions that share the text?")


def _plan_lines(planned: "ForgetPlan") -> Iterator[str]:
    sub_agents = sum(session.is_sub_agent for session in planned.sessions)
    including = f", including {plural(sub_agents, 'sub-agent')}" if sub_agents else ""
    if planned.sessions:
        amount = f"{plural(planned.events, 'event')}, {size(planned.payload_bytes)}"
        yield f"{plural(len(planned.sessions), 'session')}{including}: {amount}"
        yield from _first(map(_session_line, planned.sessions))
    if planned.lines:
        yield f"{plural(len(planned.lines), 'unreadable line')} that belong to no single session:"
        yield from _first(f"{line.path}:{line.line}" for line in planned.lines)
    if planned.answers:
        yield f"{plural(planned.answers, 'answer')} to agents in sandboxes, which may quote any session"
    if planned.forks:
        yield "These share text with them (forks, resumed copies, originals):"
        shared = (f"{_session_line(fork)}, {plural(fork.shared_events, 'shared event')}" for fork in planned.forks)
        yield from _first(shared)
    if planned.copies:
        yield "These copies may hold the same text; Recollect cannot reach them, so delete them yourself if needed:"
        copies = (f"{copy.kind} {copy.path} ({local_time(copy.made_at)})" for copy in planned.copies)
        yield from _first(copies)
    if planned.files:
        yield "Your agents' own files are not changed; delete them yourself if needed:"
        yield from _first(planned.files)


def _first(lines: Iterable[str]) -> Iterator[str]:
    return first_lines(map(one_line, lines), _SHOWN)


def _session_line(session: "ForgottenSession") -> str:
    title = fitted(one_line(session.title or "–"), _TITLE_COLUMNS)
    return f"{session.session_uid}  {title}  {plural(session.events, 'event')}"


def _count(planned: "ForgetPlan") -> str:
    counts = {"session": len(planned.sessions), "line": len(planned.lines), "answer": planned.answers}
    return " and ".join(plural(count, thing) for thing, count in counts.items() if count)


@command()
@click.option("--rescan", is_flag=True, help="Apply the rules to sessions stored under older rules.")
@click.option("--dry-run", is_flag=True, help="With --rescan: only show what would be replaced.")
@click.option("--check", metavar="TEXT", help="Show what would be replaced in TEXT; - reads standard input.")
def redact(rescan: bool, dry_run: bool, check: str | None, as_json: bool) -> None:
    """Replace secrets in stored sessions, or try the rules.

    \b
    recollect redact --rescan
    recollect redact --check "password = hunter2hunter2"
    cat deploy.log | recollect redact --check -
    """
    if rescan == (check is not None) or (dry_run and not rescan):
        raise UsageError("Give either `--rescan` (with or without `--dry-run`) or `--check TEXT`")
    if check is not None:
        _check(sys.stdin.read() if check == "-" else check, as_json)
        return
    with open_memory(create=False) as memory, shown_progress() as show:
        report = memory.rescan(show, dry_run=dry_run)
    changed = f"{plural(report.events_changed, 'event')} in {plural(report.sessions_changed, 'session')}"
    lines = (
        f"Checked {plural(report.sessions, 'session')} stored under older rules",
        f"{'Would change' if dry_run else 'Changed'} {changed}" if report.sessions_changed else None,
        _rules(report.replaced) or "No secrets found",
        f"Skipped {plural(report.unscannable, 'text')} that could not be scanned" if report.unscannable else None,
    )
    emit(report, as_json, lines)


def _check(text: str, as_json: bool) -> None:
    checked = check_text(text)
    emit(checked, as_json, [checked["text"]])
    if not as_json:
        looks = ": it looks like a placeholder, not a secret; try a made-up value without `example`"
        nothing = f"Nothing would be replaced{looks if checked['is_placeholder'] else ''}"
        click.echo(_rules(checked["replaced"]) or nothing, err=True)


def _rules(replaced: dict[str, int]) -> str:
    return one_line(", ".join(f"{rule} {count}" for rule, count in sorted(replaced.items())))
