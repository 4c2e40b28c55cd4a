"""The command that writes sessions as documents: archive."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from recollect.archive import FORMATS
from recollect.cli.filters import SESSION
from recollect.cli.fresh import open_fresh
from recollect.cli.output import emit, json_option, reports_errors
from recollect.cli.terminal import no_sessions, one_line, plural, shown_progress
from recollect.errors import NotFound, UsageError

if TYPE_CHECKING:
    from recollect.api import Archive, Memory
    from recollect.schema import Session

_SHOWN = 20
_NAMED = "the file is named after the day and the title"


@click.command()
@click.argument("sessions", nargs=-1, type=SESSION)
@click.option(
    "--format", "format_", type=click.Choice(list(FORMATS)), default="md", help="Write md (default), html or json."
)
@click.option("--tools", is_flag=True, help="In Markdown: add a line for each tool call and its result.")
@click.option("--diffs", is_flag=True, help="In Markdown: add what each edit changed.")
@click.option("--all", "is_all", is_flag=True, help="Archive every session except sub-agents and those without work.")
@click.option(
    "--to",
    "-o",
    "folder",
    metavar="DIR",
    type=click.Path(),
    default="conversations",
    help="Write into DIR (conversations).",
)
@json_option
@reports_errors
def archive(
    sessions: tuple[str, ...], format_: str, tools: bool, diffs: bool, is_all: bool, folder: str, as_json: bool
) -> None:
    """Write sessions as documents to read, keep or share.

    A file is named after the day and the title: conversations/2026-11-15-fix-the-failing-test.md. It never replaces
    an existing file. Commands then accept its name for the session:
    `recollect show 2026-11-15-fix-the-failing-test.md`.

    \b
    recollect archive last
    recollect archive 3f2a91c4 --tools --diffs --to ~/notes
    recollect archive 3f2a91c4 --format html
    recollect archive --all --format json --to ~/backup
    """
    if is_all == bool(sessions):
        raise UsageError("Give either sessions or `--all`", "`recollect sessions` lists ids and titles")
    if Path(folder).suffix.lstrip(".") in FORMATS and not Path(folder).is_dir():
        raise UsageError(f"`--to` takes a folder, not a file: {folder}", _NAMED)
    with open_fresh(read_only=False) as memory, shown_progress() as show:
        named = [_named(memory, name) for name in sessions]
        chosen = named or memory.sessions(roots_only=True, is_idle=False)
        written = memory.archives.write_all(chosen, folder, format_, tools=tools, diffs=diffs, progress=show)
    emit(written, as_json, _lines)


def _named(memory: "Memory", name: str) -> "Session":
    try:
        return memory.session(name)
    except NotFound:
        if Path(name).suffix.lstrip(".") not in FORMATS:
            raise
        raise UsageError(f"No session is called {name}; `--to DIR` names the folder to write into", _NAMED) from None


def _lines(written: "list[Archive]") -> Iterator[str]:
    yield from (f"Archived: {one_line(document.path)}" for document in written[:_SHOWN])
    if len(written) > _SHOWN:
        yield f"and {plural(len(written) - _SHOWN, 'more session')}"
    if not written:
        yield no_sessions()


COMMANDS = (archive,)
