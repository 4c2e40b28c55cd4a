"""`recollect` alone on a terminal: the picker, and what is done with the session that is picked."""

from collections.abc import Callable

import click

from recollect.cli.fresh import open_fresh
from recollect.cli.output import reports_errors
from recollect.cli.picker import COPY, QUIT, RESUME, Picker, copy_to_clipboard, pick

_WORDS = {RESUME: ("--run",)}  # what a command is given beside the session


@reports_errors
def pick_session(run: Callable[..., object]) -> None:
    """Let the user pick sessions and `run` commands with them, until one is resumed or the picker is left."""
    with open_fresh() as memory:
        picker = Picker(memory)
        picker.search()
        while (action := pick(picker)) != QUIT and (hit := picker.selected):
            if action == COPY:
                copy_to_clipboard(hit.session_uid)
                picker.note = f"Copied: {hit.session_uid}"
                continue
            run(action, hit.session_uid, *_WORDS.get(action, ()))
            if action == RESUME:
                return
            click.pause(err=True)
