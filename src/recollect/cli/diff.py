"""What a session changed: the command `diff`, and the lines of a diff for people."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from recollect.cli.filters import session_argument
from recollect.cli.fresh import open_fresh
from recollect.cli.output import json_option, print_json, reports_errors
from recollect.cli.pager import no_pager_option, print_lines
from recollect.cli.terminal import fitted, grey, line_columns, local_time, one_line, plural, printable, short_ids
from recollect.errors import NotFound
from recollect.schema import Session

if TYPE_CHECKING:
    from recollect.recall import EditDiff, SessionDiff

_COLOURS = {"+": "green", "-": "red", "@": "cyan"}


@click.command()
@session_argument
@click.argument("file", required=False)
@no_pager_option
@json_option
@reports_errors
def diff(session: str, file: str | None, no_pager: bool, as_json: bool) -> None:
    """Show what a session changed, edit by edit, as a patch.

    SESSION is an id or title; the default is `last`. FILE shows only the edits of one file or folder; a part of its
    name is enough. Sub-agents are included; failed edits are not. Paths are relative to the session's folder, where
    you can use `git apply`.

    \b
    recollect diff last
    recollect diff 3f2a91c4 src/auth/login.ts
    recollect diff 3f2a91c4 | git apply
    """
    with open_fresh() as memory:
        chosen = memory.session(session)
        changed = memory.diff(chosen, file)
    if not changed.edits and chosen.evicted_at is not None:
        raise NotFound(
            f"The edits were evicted to stay within the budget: {chosen.session_uid}",
            "`recollect digest` names the files, `recollect rehydrate` reads the session again",
        )
    if as_json:
        print_json(changed.to_json())
        return
    print_lines(_session_lines(changed, chosen.title), no_pager=no_pager)
    for note in _notes(changed, chosen):
        click.echo(f"note: {note}", err=True)


def _session_lines(changed: "SessionDiff", title: str | None) -> Iterator[str]:
    """Each edit below a comment, which `git apply` passes over."""
    names = short_ids({edit.session_uid for edit in changed.edits} | {changed.session_uid})
    files = {edit.path for edit in changed.edits}
    about = f"{names[changed.session_uid]} {one_line(title or '–')}"
    if changed.edits:
        counts = f"{plural(len(changed.edits), 'edit')} of {plural(len(files), 'file')}"
        yield grey(fitted(f"# {about}", line_columns()))
        yield grey(f"# {counts} {counted(changed.edits)}")
    for edit in changed.edits:
        where = "" if edit.session_uid == changed.session_uid else f" in sub-agent {names[edit.session_uid]}"
        rewound = " [rewound]" if edit.is_abandoned else ""
        yield ""
        yield grey(f"# #{edit.seq}{where} {local_time(edit.ts)} {counted([edit])} {printable(edit.path)}{rewound}")
        yield from diff_lines(edit.diff)
    if not changed.edits:
        yield f"No edits: {about}"


def counted(edits: "Sequence[EditDiff]") -> str:
    """How many lines edits added and removed."""
    return f"+{sum(edit.added for edit in edits)} -{sum(edit.removed for edit in edits)}"


def diff_lines(diff: str) -> Iterator[str]:
    """The diff of a file in colour. Of control characters only tabs stay, and carriage returns that end lines."""
    is_head = True
    for line in diff.split("\n")[:-1]:
        text = printable(line) + ("\r" if line.endswith("\r") else "")
        is_head = is_head and not line.startswith("@@ ")
        colour = None if is_head else _COLOURS.get(line[:1])
        yield click.style(text, bold=is_head, fg=colour) if is_head or colour else text


def _notes(changed: "SessionDiff", session: Session) -> Iterator[str]:
    if changed.failed:
        yield f"{plural(changed.failed, 'edit')} left out: failed or refused"
    if changed.copied:
        yield f"{plural(changed.copied, 'edit')} left out: made in the session this one continues"
    inexact = sum(not edit.is_exact for edit in changed.edits)
    if inexact:
        yield f"{plural(inexact, 'edit')} without line numbers or old text in the log: `git apply` may refuse them"
    if session.evicted_at is not None:
        yield f"edits up to {local_time(session.evicted_at)} were evicted to stay within the budget"


COMMANDS = (diff,)
