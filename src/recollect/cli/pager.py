"""Long output goes through the user's pager on a terminal, and straight out elsewhere."""

import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import click

from recollect.config import has_colour, pager_command, pager_environment

_LINES_BEFORE_MARK = 6
no_pager_option = click.option("--no-pager", is_flag=True, help="Print directly, without $PAGER.")


def print_lines(lines: Iterable[str], *, no_pager: bool = False, mark: str | None = None) -> None:
    """Print lines one by one, through the pager if there is a terminal and nobody said no.

    `less` begins near the first line that has `mark` in it.
    """
    is_paged = not no_pager and sys.stdout.isatty()
    if mark is not None and is_paged:
        lines = list(lines)
        marked = next((number for number, line in enumerate(lines, start=1) if mark in line), 1)
    else:
        marked = 1
    pager = _start(marked) if is_paged else None
    if pager is None or pager.stdin is None:
        for line in lines:
            click.echo(line)
        return
    try:
        for line in lines:
            text = line if has_colour() else click.unstyle(line)
            pager.stdin.write(f"{text}\n".encode("utf-8", "replace"))
        pager.stdin.close()
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # whoever reads has seen enough
    _wait(pager)


def _start(marked: int) -> "subprocess.Popen[bytes] | None":
    """The pager, waiting for text; None if there is none."""
    try:
        words = shlex.split(pager_command())
        if words and Path(words[0]).name == "less" and marked > _LINES_BEFORE_MARK:
            words.append(f"+{marked - _LINES_BEFORE_MARK}")
        return subprocess.Popen(words, stdin=subprocess.PIPE, env=pager_environment()) if words else None
    except (OSError, ValueError):
        return None


def _wait(pager: "subprocess.Popen[bytes]") -> None:
    """Wait until the pager is left; Ctrl-C belongs to it."""
    while True:
        try:
            pager.wait()
            return
        except KeyboardInterrupt:
            continue
