"""Long output goes through the user's pager on a terminal, and straight out elsewhere."""

import shlex
import subprocess
import sys
from collections.abc import Iterable

import click

from recollect.config import has_colour, pager_command, pager_environment

no_pager_option = click.option("--no-pager", is_flag=True, help="Print directly, without $PAGER.")


def print_lines(lines: Iterable[str], *, no_pager: bool = False) -> None:
    """Print lines one by one, through the pager if there is a terminal and nobody said no."""
    pager = None if no_pager or not sys.stdout.isatty() else _start()
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


def _start() -> "subprocess.Popen[bytes] | None":
    """The pager, waiting for text; None if there is none."""
    try:
        words = shlex.split(pager_command())
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
