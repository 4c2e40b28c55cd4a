"""Commands that show and mark sessions outside of the terminal's lists: web, archive, mark."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from recollect.api import Annotations, open_memory
from recollect.archive import FORMATS, require_web_parts
from recollect.cli.options import SESSION, open_fresh
from recollect.cli.output import command, emit, reports_errors
from recollect.cli.terminal import grey, local_time, no_sessions, one_line, plural, shown_progress
from recollect.config import refuse_in_group
from recollect.errors import NotFound, UsageError

if TYPE_CHECKING:
    from recollect.api import Archive, Memory, SessionAnnotations
    from recollect.schema import Session

_SHOWN = 20
_NAMED = "the file is named after the day and the title"


@command()
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
    emit(written, as_json, _lines, no_sessions())


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


@click.command()
@click.option(
    "--port", type=click.IntRange(1, 65535), metavar="PORT", help="Use this port (7391, or any if it is taken)."
)
@click.option("--no-open", is_flag=True, help="Print the address instead of opening a browser.")
@click.option("--read-only", is_flag=True, help="Read only: no stars, tags, notes, names or forgetting.")
@reports_errors
def web(port: int | None, no_open: bool, read_only: bool) -> None:
    """Read your sessions in a browser, on this machine only.

    Only you can open the page: its address contains a code that works once. If the browser does not open it within 5
    seconds, the address is printed. Ctrl-C stops it.

    \b
    recollect web
    recollect web --no-open --port 8080
    """
    refuse_in_group()
    require_web_parts()  # else the rest cannot be imported
    from recollect.loopback import bind
    from recollect.web.app import USUAL_PORT, serve  # needs the extra

    def tell(address: str) -> None:
        click.echo(f"Open this in your browser; it works once:\n{address}")

    with bind(port, USUAL_PORT) as opened:
        click.echo(grey("Ctrl-C stops the page"), err=True)
        serve(opened, tell, opens=not no_open, read_only=read_only)


@click.group()
def mark() -> None:
    """Star, tag, rename a session, or add a note to it.

    \b
    recollect mark star 3f2a91c4
    recollect mark tag 3f2a91c4 release
    recollect mark note 3f2a91c4 "the migration that worked"
    recollect mark rename 3f2a91c4 "Pool timeouts"
    """


@command(below=mark)
@click.argument("session", type=SESSION)
@click.option("--remove", is_flag=True, help="Remove the star.")
def star(session: str, remove: bool, as_json: bool) -> None:
    """Star a session. `is:starred` finds it.

    \b
    recollect mark star 3f2a91c4
    recollect search is:starred
    """
    _mark(session, Annotations.star, not remove, as_json)


@command(below=mark)
@click.argument("session", type=SESSION)
@click.argument("tag")
@click.option("--remove", is_flag=True, help="Remove the tag.")
def tag(session: str, tag: str, remove: bool, as_json: bool) -> None:
    """Tag a session. `tag:NAME` finds it.

    \b
    recollect mark tag 3f2a91c4 release
    recollect search tag:release
    """
    _mark(session, Annotations.untag if remove else Annotations.tag, tag, as_json)


@command(below=mark)
@click.argument("session", type=SESSION)
@click.argument("text", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the note with this text.")
def note(session: str, text: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Add a note to a session.

    \b
    recollect mark note 3f2a91c4 "the migration that worked"
    """
    _mark(session, Annotations.drop_note if remove else Annotations.note, " ".join(text), as_json)


@command(below=mark)
@click.argument("session", type=SESSION)
@click.argument("name", nargs=-1, required=True)
def rename(session: str, name: tuple[str, ...], as_json: bool) -> None:
    """Rename a session in Recollect; its agent keeps the old title.

    \b
    recollect mark rename 3f2a91c4 "Pool timeouts"
    recollect search "pool timeouts"
    """
    _mark(session, Annotations.rename, " ".join(name), as_json)


def _mark(
    name: str, change: "Callable[[Annotations, Session, Any], SessionAnnotations]", to: Any, as_json: bool
) -> None:
    with open_memory(create=False) as memory:
        session = memory.session(name)
        changed = change(memory.annotations, session, to)
    emit(changed, as_json, lambda changed: _marked_lines(changed, session))


def _marked_lines(changed: "SessionAnnotations", session: "Session") -> Iterator[str]:
    star, name = "★ " if changed.is_starred else "", changed.name or session.title or session.session_uid
    yield f"{star}{one_line(name)}" + "".join(f"  #{one_line(tag)}" for tag in changed.tags)
    for written in changed.notes:
        yield f"  {local_time(written.made_at)}  {one_line(written.text)}"
