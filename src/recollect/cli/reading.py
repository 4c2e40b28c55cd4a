"""Reading and looking: `sweep`, `status`, `sessions`, `show`, `problems`, `demo`."""

import sys
from collections import deque
from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from recollect.cli import retaining
from recollect.cli.output import (
    Renamed,
    agent_option,
    json_option,
    limit_option,
    print_json,
    repo_option,
    reports_errors,
    root_option,
)
from recollect.cli.words import fitted, moment_ms, number, one_line, plural, printable, size
from recollect.errors import UsageError
from recollect.kinds import OUTCOMES, SESSION_CLASSES

if TYPE_CHECKING:
    from recollect.memory import Memory
    from recollect.schema import Event, Problem, Session
    from recollect.status import DistilledTotals, SourceTotals
    from recollect.transcript import TranscriptItem

SHOWN_SESSIONS = 20
SKIPPED_SOURCES = 3  # exit code: done, but some sources were skipped


@click.command()
@root_option
@click.option("--verify", is_flag=True, help="Open every file, even if it looks unchanged.")
@json_option
@reports_errors
def sweep(roots: tuple[str, ...], verify: bool, as_json: bool) -> None:
    """Read what is new in your agents' sessions.

    \b
    recollect sweep
    recollect sweep --root AGENT=~/backup/its-home
    """
    from recollect.cli.progress import shown_progress
    from recollect.config import require_folders
    from recollect.memory import open_memory

    require_folders(roots)
    with open_memory(roots=roots) as memory, shown_progress() as show:
        report = memory.sweep(show, verify=verify)
        unusable = memory.unusable_rules() if report.bytes_read and not as_json else []
    if as_json:
        print_json(_sweep_json(report))
    else:
        _print_sweep(report)
    if unusable:
        click.echo(
            f"Ignore files have {plural(len(unusable), 'line')} without a meaning: `recollect doctor` lists them"
        )
    if report.failures:
        sys.exit(SKIPPED_SOURCES)


def to_json(record: "Session | Event | Problem") -> dict[str, Any]:
    from recollect.schema import as_json  # takes time to load, which a search does not have

    return as_json(record)


def _sweep_json(report: Any) -> dict[str, Any]:
    counted = {why: len(sessions) for why, sessions in sorted(report.left_out.items())}
    return asdict(report) | {"skipped": dict(sorted(report.skipped.items())), "left_out": counted}


def _print_sweep(report: Any) -> None:
    if report.bytes_read:
        files = f"{plural(report.sources_changed, 'file')} ({size(report.bytes_read)})"
        new = f"{plural(report.events_new, 'new event')}, {plural(report.sessions_new, 'new session')}"
        click.echo(f"Read {files} in {report.seconds:.1f} s: {new}")
    elif report.sources:
        click.echo(f"Nothing new in {plural(report.sources, 'file')} ({report.seconds:.1f} s)")
    else:
        click.echo("No sessions found: `recollect doctor` says where they were looked for")
    if report.sources_gone:
        click.echo(f"{plural(report.sources_gone, 'file')} gone since the last sweep; what was read from them stays")
    if report.bad_lines:
        click.echo(f"Skipped {plural(report.bad_lines, 'line')} that cannot be read: `recollect problems` lists them")
    for why, sessions in sorted(report.left_out.items()):
        click.echo(f"Left out {plural(len(sessions), f'{why} session')}")
    retaining.print_budget(report.budget)
    for path, reason in report.failures:
        click.echo(f"Skipped {one_line(path)}: {one_line(reason)}", err=True)
    if report.sessions:
        click.echo(f"{plural(report.sessions, 'session')} in the store")


@click.command()
@json_option
@reports_errors
def status(as_json: bool) -> None:
    """What the store holds, and how big it is."""
    from recollect.cli.listing import total_line
    from recollect.memory import open_memory

    with open_memory(create=False) as memory:
        found = memory.status()
    if as_json:
        print_json(asdict(found))
        return
    for agent in found.agents:
        click.echo(total_line(agent))
    if not found.agents:
        click.echo("No sessions yet: `recollect doctor` says where they are looked for")
    held, read = size(found.size_bytes["total"]), size(found.sources.source_bytes)
    click.echo(f"{'store':<8} {held} for {read} of logs: {found.folder}")
    _print_distilled(found.distilled)
    _print_source_notes(found.sources)
    retaining.print_retention_status(found.retention)
    for alarm in found.alarms:
        click.echo(f"{click.style('alarm'.ljust(8), fg='red')} {one_line(alarm)}: `recollect doctor --repair`")


def _print_distilled(found: "DistilledTotals") -> None:
    if not found.log_tokens or not found.raw_tokens:
        return
    click.echo(f"{'digests':<8} {size(found.bytes)} of {plural(found.sessions, 'session')}")
    of_logs, of_said = 1 - found.kept_tokens / found.log_tokens, 1 - found.kept_tokens / found.raw_tokens
    logs = f"{of_logs:.0%} less than the logs ({number(found.log_tokens)})"
    said = f"{of_said:.0%} less than the texts, calls and results in them"
    click.echo(f"{'filtered':<8} about {number(found.kept_tokens)} tokens in exchanges: {logs}, {said}")


def _print_source_notes(sources: "SourceTotals") -> None:
    if sources.sources_gone:
        click.echo(f"{'kept':<8} {plural(sources.sources_gone, 'file')} that the agents have deleted since")
    if problems := sources.bad_lines + sources.sources_failed:
        click.echo(f"{'problems':<8} {number(problems)}: `recollect problems` lists them")


@click.command()
@agent_option
@repo_option
@click.option("--branch", metavar="NAME", help="Only this git branch.")
@click.option("--model", metavar="TEXT", help="Only models with this in their name.")
@click.option("--outcome", type=click.Choice(OUTCOMES), help="Only sessions that ended so.")
@click.option("--class", "session_class", type=click.Choice(SESSION_CLASSES), help="Only sessions of this class.")
@click.option("--since", metavar="WHEN", help="Active since: 2026-11-01, 7d, 2h, today, yesterday.")
@click.option("--before", "--until", "before", cls=Renamed, metavar="WHEN", help="Begun before.")
@click.option("--all", "with_sub_agents", is_flag=True, help="List sub-agents too; --json always does.")
@limit_option("sessions", SHOWN_SESSIONS)
@click.argument("text", required=False)
@json_option
@reports_errors
def sessions(as_json: bool, since: str | None, before: str | None, with_sub_agents: bool, **wanted: Any) -> None:
    """List sessions, newest first; TEXT is looked for in titles.

    \b
    recollect sessions --since 7d --repo shop-api
    recollect sessions "failing test" --before yesterday
    """
    from recollect.memory import open_memory

    wanted |= {"since_ms": moment_ms("--since", since), "before_ms": moment_ms("--before", before)}
    wanted["roots_only"] = not as_json and not with_sub_agents and not wanted["session_class"]
    shown = wanted["limit"] or SHOWN_SESSIONS
    if not as_json:
        wanted["limit"] = shown + 1  # one more tells whether the list is cut
    with open_memory(create=False) as memory:
        found = memory.sessions(**wanted)
        known = [agent.agent for agent in memory.status().agents] if not found and not as_json else []
    if as_json:
        print_json([to_json(session) for session in found])
        return
    if not found:
        click.echo(_no_match(known))
    _print_sessions(found[:shown])
    if len(found) > shown:
        click.echo(click.style("there are more: --limit N, --since, --repo", fg="bright_black"))


def _no_match(agents: list[str]) -> str:
    if not agents:
        return "No sessions yet: `recollect doctor` says where they are looked for"
    return f"No sessions match; agents with sessions: {', '.join(agents)}"


def _print_sessions(found: "list[Session]") -> None:
    from recollect.cli.listing import session_lines

    for line in session_lines(found):
        click.echo(line)


@click.command()
@click.argument("session")
@click.option("--kind", metavar="KIND", help="Only events of this kind: user_msg, edit, error …")
@click.option("--tail", metavar="N", type=click.IntRange(1), help="Only the last N events.")
@click.option("--at", metavar="SEQ", help="Only round this event: its number, or either end of its uid.")
@click.option(
    "--context",
    "--window",
    "context",
    cls=Renamed,
    metavar="N",
    type=click.IntRange(0),
    default=10,
    help="With --at: N events each side (10).",
)
@click.option("--raw", is_flag=True, help="Every event's full content as stored, one JSON object per line.")
@json_option
@reports_errors
def show(
    session: str, kind: str | None, tail: int | None, at: str | None, context: int, raw: bool, as_json: bool
) -> None:
    """Show one session as it went, its sub-agents in their places.

    SESSION is an id, the beginning or end of one (6 characters or more), or a title.

    \b
    recollect show 3f2a91c4
    recollect show "Fix the failing test" --kind error
    recollect show 3f2a91c4 --at 120 --context 5
    """
    from recollect.cli.transcript import transcript_lines
    from recollect.memory import open_memory

    if at is not None and kind is not None:
        raise UsageError("`--at` shows events of every kind", "leave `--kind` out")
    with open_memory(create=False) as memory:
        found = memory.session(session)
        items: Iterable[TranscriptItem]
        items = memory.transcript(found, kind) if at is None else memory.window(found, at, context)
        items = deque(items, maxlen=tail) if tail else items
        digest = retaining.find_digest_of_evicted(memory, found)
        if as_json:
            told = {"session": to_json(found), "events": [_item_json(item) for item in items]}
            print_json(told | ({"digest": digest} if digest else {}))
        elif raw:
            for item in items:
                print_json(_item_json(item), is_line=True)
            retaining.note_evicted(found)
        else:
            without = "No events of that kind" if kind else "No events are held" if digest else "No events"
            for line in transcript_lines(found, items, without):
                click.echo(line)
            retaining.print_evicted(memory, found)


def _item_json(item: Any) -> dict[str, Any]:
    return to_json(item.event) | {"depth": item.depth, "payload": item.payload}


@click.command()
@json_option
@reports_errors
def problems(as_json: bool) -> None:
    """List lines and files that could not be read, and why."""
    from recollect.memory import open_memory

    with open_memory(create=False) as memory:
        found = memory.problems()
    if as_json:
        print_json([to_json(problem) for problem in found])
        return
    for problem in found:
        place = f"{problem.path}:{problem.line}" if problem.line else problem.path
        click.echo(f"{one_line(place)}  {one_line(problem.reason)}")
        if problem.excerpt:
            click.echo(click.style(f"    {fitted(one_line(problem.excerpt), 100)}", fg="bright_black"))
    if not found:
        click.echo("No problems: every line of every file was read")


@click.command()
@json_option
@reports_errors
def demo(as_json: bool) -> None:
    """Try it on bundled sample sessions.

    Nothing of yours is read, and nothing is kept.
    """
    from recollect.demo import run_demo

    with run_demo() as memory:
        report = memory.sweep()
        found = memory.sessions(roots_only=True)
        if as_json:
            print_json({"sweep": _sweep_json(report), "sessions": [to_json(session) for session in found]})
            return
        _print_demo(memory, report, found)


def _print_demo(memory: "Memory", report: Any, found: "list[Session]") -> None:
    from recollect.cli.found import answer_lines
    from recollect.cli.transcript import transcript_lines
    from recollect.distill.markdown import render

    parent = max(found, key=lambda session: len(memory.sub_agents(session)))
    longest = max(found, key=lambda session: session.event_count)
    click.echo(click.style("$ recollect sweep", bold=True))
    _print_sweep(report)
    _print_prompt("sessions")
    _print_sessions(found)
    _print_prompt("search AssertionError")
    click.echo("\n".join(answer_lines(memory.answer("AssertionError", limit=2))))
    _print_prompt(f"show {parent.native_session_id[-8:]}")
    click.echo("\n".join(transcript_lines(parent, memory.transcript(parent))))
    _print_prompt(f"digest {longest.native_session_id[-8:]}")
    click.echo(printable(render(memory.digest(longest), None)), nl=False)
    click.echo(click.style("\nNow yours: recollect sweep", bold=True))


def _print_prompt(command: str) -> None:
    click.echo(click.style(f"\n$ recollect {command}", bold=True))


COMMANDS = (sweep, status, sessions, show, problems, demo)
