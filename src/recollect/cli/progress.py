"""A progress line on a terminal, and nothing anywhere else."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from recollect.cli.words import size
from recollect.progress import Progress

_EVERY_SECONDS = 0.1


@contextmanager
def shown_progress() -> Iterator[Progress]:
    """A line that is there as long as the block runs."""
    line = _Line()
    try:
        yield line.show
    finally:
        line.clear()


class _Line:
    """One line of standard error that is written over."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._shown_at = 0.0
        self._width = 0

    def show(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if not self._is_terminal or not total or now - self._shown_at < _EVERY_SECONDS:
            return
        self._shown_at = now
        filled = round(30 * done / total)
        amount = f"{size(done)} of {size(total)}" if stage == "reading" else f"{done} of {total}"
        self._write(f"{stage:<9} {'━' * filled}{'╌' * (30 - filled)}  {amount}")

    def clear(self) -> None:
        if self._width:
            self._write("")
            sys.stderr.write("\r")

    def _write(self, text: str) -> None:
        sys.stderr.write("\r" + text.ljust(self._width))
        sys.stderr.flush()
        self._width = len(text)
