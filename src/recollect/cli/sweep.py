"""Commands that read the agents' files, and what came of it: sweep, watch, status, demo."""

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

import click

import recollect
from recollect import api, digest
from recollect.agents import adapters
from recollect.api import Memory, open_memory
from recollect.cli.output import command, emit, print_json, root_option
from recollect.cli.terminal import (
    READING_IS_OFF,
    fitted,
    grey,
    local_time,
    money,
    number,
    one_line,
    plural,
    printable,
    session_counts,
    short_ids,
    shown_progress,
    size,
    wrapped,
)
from recollect.config import require_folders
from recollect.model.clock import now_ms, rfc3339

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable

    from recollect.care import Status
    from recollect.lifecycle import BudgetReport
    from recollect.model.schema import Problem, Session
    from recollect.sweep_report import SweepReport
    from recollect.watch import Attempt


_SKIPPED_SOURCES = 3  # exit code: done, but some sources were skipped
_INTERRUPTED = 1  # exit code
_WHERE = "`recollect doctor` shows where Recollect looks for them"


@command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False))
@root_option
@click.option("--verify", is_flag=True, help="Open every file, even if it looks unchanged.")
def sweep(files: tuple[str, ...], roots: tuple[str, ...], verify: bool, as_json: bool) -> None:
    """Read what is new in your agents' sessions.

    Given FILES, read only those of them that belong to an agent.

    \b
    recollect sweep
    recollect sweep --root AGENT=~/backup/its-home
    """
    require_folders(roots)
    try:
        with open_memory(roots=roots) as memory, shown_progress() as show:
            report = memory.sweep(show, verify=verify, only=files or None)
            is_reading = memory.settings.is_capturing
            ignored = memory.ignored_rules() if report.bytes_read and not as_json else []
    except KeyboardInterrupt:
        click.echo("\nStopped. What was read is kept; `recollect sweep` continues", err=True)
        sys.exit(_INTERRUPTED)
    emit(report, as_json, _sweep_lines if is_reading else [READING_IS_OFF])
    if not as_json:
        print_budget_warnings(report.budget)
        for path, reason in report.failures:
            click.echo(f"Skipped {one_line(path)}: {one_line(reason)}", err=True)
    if ignored:
        click.echo(f"Ignore files have {plural(len(ignored), 'line')} without effect: `recollect doctor` lists them")
    if report.failures:
        sys.exit(_SKIPPED_SOURCES)


def _sweep_lines(report: "SweepReport") -> Iterator[str]:
    if report.bytes_read:
        read = f"{plural(report.sources_changed, 'file')} ({size(report.bytes_read)})"
        yield f"Read {read} in {report.seconds:.1f} s: {_news(report)}"
    elif report.sources:
        yield f"Nothing new in {plural(report.sources, 'file')} ({report.seconds:.1f} s)"
    elif report.sessions:
        yield "No files to read: `recollect doctor` shows where Recollect looks for them"
    else:
        yield f"No sessions found: {_WHERE}"
    if report.sources_gone:
        yield f"{plural(report.sources_gone, 'file')} deleted since the last sweep; what was read from them is kept"
    if report.bad_lines:
        yield f"Skipped {plural(report.bad_lines, 'unreadable line')}: `recollect status --problems` lists them"
    for reason, sessions in sorted(report.left_out.items()):
        yield f"Left out {plural(len(sessions), f'{reason} session')}"
    if "unlisted" in report.left_out:
        yield "`recollect track` lists the projects that wait for your answer"
    yield from budget_lines(report.budget)
    if report.sessions:
        yield f"{session_counts(report.sessions, report.sub_agents, report.warm_ups)} in the store"


@command()
@click.option("--problems", "is_problems", is_flag=True, help="List lines and files that could not be read, and why.")
def status(is_problems: bool, as_json: bool) -> None:
    """Show what the store holds and how large it is."""
    if is_problems:
        with open_memory(read_only=True) as memory:
            unread = memory.problems()
        emit(unread, as_json, _problem_lines, "No problems: every line of every file was read")
        return
    with open_memory(create=False) as memory:
        current = memory.status()
    emit(current, as_json, _status_lines)


def _status_lines(status: "Status") -> Iterator[str]:
    for agent in status.agents:
        counts = session_counts(agent.sessions, agent.sub_agents, agent.warm_ups)
        usd = money(agent.usd, agent.usd_is_estimate, agent.usd_is_incomplete)
        since = f", since {local_time(agent.started_at)[:10]}" if agent.started_at else ""
        yield from _wrapped(f"{agent.agent:<8} {counts}, {plural(agent.events, 'event')}, {usd}{since}")
    if not status.agents:
        yield f"No sessions yet: {_WHERE if status.swept_at else '`recollect sweep` reads them'}"
    stored, read = size(status.size_bytes["total"]), size(status.sources.source_bytes)
    yield f"{'store':<8} {stored} for {read} of logs: {status.folder}"
    yield f"{'swept':<8} {local_time(status.swept_at) if status.swept_at else 'never, or not to the end'}"
    if status.watch:
        how = f"every {status.watch.every_minutes:g} minutes" if status.watch.every_minutes else "as agents write"
        yield f"{'watched':<8} {how}, since {local_time(status.watch.since_at)} by process {status.watch.pid}"
    distilled = status.distilled
    if distilled.log_tokens and distilled.raw_tokens:
        yield from _wrapped(f"{'digests':<8} {plural(distilled.sessions, 'digest')}, {size(distilled.bytes)}")
        kept = distilled.kept_tokens
        logs = f"{1 - kept / distilled.log_tokens:.0%} less than the logs ({number(distilled.log_tokens)})"
        text = f"{1 - kept / distilled.raw_tokens:.0%} less than their messages, calls and results"
        yield from _wrapped(f"{'filtered':<8} about {number(kept)} tokens in exchanges: {logs}, {text}")
    if status.sources.sources_gone:
        yield f"{'kept':<8} {plural(status.sources.sources_gone, 'file')} that the agents have since deleted"
    if problems := status.sources.bad_lines + status.sources.sources_failed:
        yield f"{'problems':<8} {number(problems)}: `recollect status --problems` lists them"
    retention = status.retention
    yield f"{'raw':<8} {size(retention.raw_bytes)} of at most {size(retention.raw_hard_cap)}"
    if retention.distilled_bytes > retention.distilled_cap:
        over = f"{size(retention.distilled_bytes)}, over retention.distilled_cap ({size(retention.distilled_cap)})"
        yield f"{click.style('kept'.ljust(8), fg='yellow')} digests take {over}; they are never evicted"
    if retention.sessions_evicted:
        yield f"{'evicted':<8} {plural(retention.sessions_evicted, 'session')} kept as digests only"
    for event, count in retention.losses.items():
        yield f"{click.style('lost'.ljust(8), fg='red')} {event}: {plural(count, 'session')} {_LOSSES[event]}"
    for alarm in status.alarms:
        yield f"{click.style('alarm'.ljust(8), fg='red')} {one_line(alarm)}: `recollect doctor --repair`"


_wrapped = partial(wrapped, after=" " * 9, rows=9)


def _problem_lines(unread: "list[Problem]") -> Iterator[str]:
    for problem in unread:
        where = f"{problem.path}:{problem.line}" if problem.line else problem.path
        yield f"{one_line(where)}  {one_line(problem.reason)}"
        if problem.excerpt:
            yield grey(f"    {fitted(one_line(problem.excerpt), 100)}")


@command()
def demo(as_json: bool) -> None:
    """Try Recollect on bundled sample sessions.

    Your own sessions are not read, and nothing is kept.
    """
    with _sample_memory() as memory:
        report = memory.sweep()
        sessions = memory.sessions(roots_only=True)
        if as_json:
            print_json({"sweep": recollect.to_json(report), "sessions": recollect.to_json(sessions)})
        else:
            _print_demo(memory, report, sessions)


@contextmanager
def _sample_memory() -> Iterator[Memory]:
    """An empty temporary memory whose agents' homes are the samples."""
    from importlib.resources import files  # both take time to load, which a sweep must not wait for
    from tempfile import TemporaryDirectory

    with TemporaryDirectory(prefix="recollect-") as temporary:
        homes = Path(temporary) / "homes"
        # An installer may have linked them from its cache, and links are not read; or they are in a zip.
        _copy(files("recollect") / "samples", homes)
        roots = [f"{agent}={homes / agent}" for agent in adapters() if (homes / agent).is_dir()]
        with open_memory(Path(temporary) / "store", roots) as memory:
            yield memory


def _copy(source: "Traversable", target: Path) -> None:
    if not source.is_dir():
        target.write_bytes(source.read_bytes())
        return
    target.mkdir()
    for entry in source.iterdir():
        _copy(entry, target / entry.name)


def _print_demo(memory: Memory, report: "SweepReport", sessions: "list[Session]") -> None:
    from recollect.cli.find import answer_lines  # `sweep` and `status` need none of these
    from recollect.cli.knowledge import rehearsal_lines
    from recollect.cli.listing import session_lines
    from recollect.cli.transcript import transcript_lines

    parent = max(sessions, key=lambda session: len(memory.sub_agents(session)))
    longest = max(sessions, key=lambda session: session.event_count)
    names = short_ids(session.session_uid for session in sessions)
    outputs = {
        "sweep": _sweep_lines(report),
        "sessions": session_lines(sessions),
        "search AssertionError": answer_lines(memory.answer("AssertionError", limit=2, context=0)),
        "knowledge rehearse": rehearsal_lines(memory.knowledge.rehearse(), 1),
        f"show {names[parent.session_uid]}": transcript_lines(parent, memory.transcript(parent)),
        f"digest {names[longest.session_uid]}": [printable(digest.render_digest(memory.digest(longest), None))],
    }
    for words, lines in outputs.items():
        click.echo(click.style(f"$ recollect {words}", bold=True))
        click.echo("\n".join(lines) + "\n")
    click.echo(click.style("Now try your own: recollect sweep", bold=True))


_LOSSES = {
    "data_loss": "evicted without a digest",
    "last_copy_evicted": "evicted whose files your agents have deleted; their digests are kept",
}


def budget_lines(report: "BudgetReport") -> Iterator[str]:
    """What a sweep prints about the budget: nothing if nothing was evicted."""
    if report.sessions_evicted:
        freed = f"{plural(report.sessions_evicted, 'session')} ({size(report.bytes_evicted)})"
        yield f"Evicted the raw detail of {freed} to stay within the budget; digests are kept"


def print_budget_warnings(report: "BudgetReport") -> None:
    for count, event in ((report.data_loss, "data_loss"), (report.last_copies_evicted, "last_copy_evicted")):
        if count:
            click.echo(f"{click.style(event, fg='red')}: {plural(count, 'session')} {_LOSSES[event]}", err=True)
    for warning in report.warnings:
        click.echo(f"{click.style('warning', fg='yellow')}: {one_line(warning)}", err=True)


@command()
@root_option
@click.option(
    "--every",
    "every_minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Sweep every N minutes instead of whenever files change.",
)
@click.option("--once", is_flag=True, help="Sweep once and stop.")
def watch(roots: tuple[str, ...], every_minutes: float | None, once: bool, as_json: bool) -> None:
    """Read sessions as your agents write them.

    Search finds a new line about a second later. Ctrl-C stops watching. `recollect schedule --watch` starts it when you
    log in.

    \b
    recollect watch
    recollect watch --every 5
    """
    stop = Event()

    def tell(attempt: "Attempt") -> None:
        if once:
            stop.set()
        if as_json:
            error = attempt.error and {"code": attempt.error.code, "message": attempt.error.message}
            report = recollect.to_json(attempt.report)
            print_json({"files": attempt.files, "sweep": report, "error": error}, is_line=True)
        elif line := _attempt_line(attempt):
            click.echo(f"{local_time(rfc3339(now_ms()))}  {line}")

    with _set_by_signals(stop), suppress(BrokenPipeError):
        api.watch(stop, tell, roots=roots, every_minutes=every_minutes)


@contextmanager
def _set_by_signals(stop: Event) -> Iterator[None]:
    """Let a sweep come to its end when the program is asked to stop."""

    def end(number: int, frame: FrameType | None) -> None:
        stop.set()

    before = {name: signal.signal(name, end) for name in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def _attempt_line(attempt: "Attempt") -> str | None:
    """A line about a sweep; None if it found nothing new."""
    if attempt.error is not None:
        return f"Not swept, will try again: {one_line(attempt.error.message)}"
    report = attempt.report
    if report is None or not (report.bytes_read or report.sources_gone or report.failures):
        return None
    skipped = f", skipped {plural(len(report.failures), 'file')}" if report.failures else ""
    return f"Read {plural(report.sources_changed, 'file')}: {_news(report)}{skipped}"


def _news(report: "SweepReport") -> str:
    return f"{plural(report.events_new, 'new event')}, {plural(report.sessions_new, 'new session')}"
