"""Commands with which a user says something about a session: star, tag, note, rename."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import click

from recollect.api import open_memory
from recollect.cli.filters import SESSION
from recollect.cli.output import emit, json_option, reports_errors
from recollect.cli.terminal import local_time, one_line

if TYPE_CHECKING:
    from recollect.api import Annotations, SessionAnnotations
    from recollect.schema import Session


@click.command()
@click.argument("session", type=SESSION)
@click.option("--remove", is_flag=True, help="Remove the star.")
@json_option
@reports_errors
def star(session: str, remove: bool, as_json: bool) -> None:
    """Star a session. `is:starred` finds it.

    \b
    recollect star 3f2a91c4
    recollect search is:starred
    """
    _change(session, as_json, lambda annotations, chosen: annotations.star(chosen, not remove))


@click.command()
@click.argument("session", type=SESSION)
@click.argument("tag")
@click.option("--remove", is_flag=True, help="Remove the tag.")
@json_option
@reports_errors
def tag(session: str, tag: str, remove: bool, as_json: bool) -> None:
    """Tag a session. `tag:NAME` finds it.

    \b
    recollect tag 3f2a91c4 release
    recollect search tag:release
    """
    _change(
        session,
        as_json,
        lambda annotations, chosen: annotations.untag(chosen, tag) if remove else annotations.tag(chosen, tag),
    )


@click.command()
@click.argument("session", type=SESSION)
@click.argument("text", nargs=-1, required=True)
@click.option("--remove", is_flag=True, help="Remove the note with this text.")
@json_option
@reports_errors
def note(session: str, text: tuple[str, ...], remove: bool, as_json: bool) -> None:
    """Add a note to a session.

    \b
    recollect note 3f2a91c4 "the migration that worked"
    """
    written = " ".join(text)
    _change(
        session,
        as_json,
        lambda annotations, chosen: (
            annotations.drop_note(chosen, written) if remove else annotations.note(chosen, written)
        ),
    )


@click.command()
@click.argument("session", type=SESSION)
@click.argument("name", nargs=-1, required=True)
@json_option
@reports_errors
def rename(session: str, name: tuple[str, ...], as_json: bool) -> None:
    """Rename a session in Recollect; its agent keeps the old title.

    \b
    recollect rename 3f2a91c4 "Pool timeouts"
    recollect search "pool timeouts"
    """
    _change(session, as_json, lambda annotations, chosen: annotations.rename(chosen, " ".join(name)))


def _change(name: str, as_json: bool, change: "Callable[[Annotations, Session], SessionAnnotations]") -> None:
    with open_memory(create=False) as memory:
        session = memory.session(name)
        changed = change(memory.annotations, session)
    emit(changed, as_json, lambda changed: _lines(changed, session))


def _lines(changed: "SessionAnnotations", session: "Session") -> Iterator[str]:
    star, name = "★ " if changed.is_starred else "", changed.name or session.title or session.session_uid
    yield f"{star}{one_line(name)}" + "".join(f"  #{one_line(tag)}" for tag in changed.tags)
    for written in changed.notes:
        yield f"  {local_time(written.made_at)}  {one_line(written.text)}"


COMMANDS = (star, tag, note, rename)
