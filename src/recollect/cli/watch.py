"""The command that keeps the store up to date as agents write: watch."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING

import click

import recollect
from recollect.api import watch as watch_homes
from recollect.cli.output import json_option, print_json, reports_errors, root_option
from recollect.cli.terminal import local_time, one_line, plural
from recollect.clock import now_ms, rfc3339

if TYPE_CHECKING:
    from recollect.watch import Attempt


@click.command()
@root_option
@click.option(
    "--every",
    "every_minutes",
    type=click.FloatRange(min=0, min_open=True),
    metavar="MINUTES",
    help="Sweep every N minutes instead of whenever files change.",
)
@click.option("--once", is_flag=True, help="Sweep once and stop.")
@json_option
@reports_errors
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
            print_json(_attempt_json(attempt), is_line=True)
        elif line := _attempt_line(attempt):
            click.echo(f"{local_time(rfc3339(now_ms()))}  {line}")

    with _set_by_signals(stop), suppress(BrokenPipeError):
        watch_homes(stop, tell, roots=roots, every_minutes=every_minutes)


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


def _attempt_json(attempt: "Attempt") -> dict[str, object]:
    error = attempt.error and {"code": attempt.error.code, "message": attempt.error.message}
    return {"files": attempt.files, "sweep": recollect.to_json(attempt.report), "error": error}


def _attempt_line(attempt: "Attempt") -> str | None:
    """A line about a sweep; None if it found nothing new."""
    if attempt.error is not None:
        return f"Not swept, will try again: {one_line(attempt.error.message)}"
    report = attempt.report
    if report is None or not (report.bytes_read or report.sources_gone or report.failures):
        return None
    new = f"{plural(report.events_new, 'new event')}, {plural(report.sessions_new, 'new session')}"
    skipped = f", skipped {plural(len(report.failures), 'file')}" if report.failures else ""
    return f"Read {plural(report.sources_changed, 'file')}: {new}{skipped}"


COMMANDS = (watch,)
