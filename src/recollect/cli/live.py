"""Commands for the owner of an agent host: what its live sessions hold, and its JSONL files beside them."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.api import open_memory
from recollect.cli.output import emit, json_option, reports_errors
from recollect.cli.terminal import one_line, plural
from recollect.live import Live

if TYPE_CHECKING:
    from recollect.live import LiveStatus

_MOST_FILES = 20


@click.group()
def live() -> None:
    """Show sessions that an agent host appends to."""


@live.command()
@click.argument("folder", type=click.Path(file_okay=False), required=False)
@json_option
@reports_errors
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
    for file in behind[:_MOST_FILES]:
        only = f"{file.only_in_file:,} only in the file, {file.only_in_store:,} only in the store"
        yield f"  {one_line(file.path)}: {file.state}; {only}"
    if len(behind) > _MOST_FILES:
        yield f"  and {len(behind) - _MOST_FILES:,} more"
    if any(file.only_in_file for file in behind):
        yield "`recollect import jsonl FOLDER` stores what is only in files"


COMMANDS = (live,)
