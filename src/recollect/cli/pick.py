"""`recollect` alone on a terminal: the picker, and what is done with the session that is picked."""

import shlex
from collections.abc import Callable
from contextlib import suppress

import click

from recollect.cli.fresh import open_fresh
from recollect.cli.handoff import obstacles
from recollect.cli.output import reports_errors
from recollect.cli.picker import COPY, QUIT, RESUME, Picker, copy_to_clipboard, pick
from recollect.recall import SessionHit


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
            elif action == RESUME and (obstacle := _obstacle(hit)):
                picker.note = f"Cannot resume: {obstacle}"
            elif action == RESUME:
                run(action, hit.session_uid, "--run")
                return
            else:
                with suppress(SystemExit):  # the error is on the screen
                    run(action, hit.session_uid)
                click.pause(err=True)


def _obstacle(hit: SessionHit) -> str | None:
    """Why a session cannot be resumed here, if it cannot."""
    if hit.resume_command is None:
        return f"sessions of this agent: {hit.agent}"
    return next(obstacles(shlex.split(hit.resume_command), hit.cwd or ""), None)
