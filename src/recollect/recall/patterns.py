"""Looking for a text or a regular expression in texts.

A regular expression may take longer than anybody lives (`(a+)+$`), and nothing inside Python ends it from another
thread: it is matched by a process of its own, which is killed when its time is up.
"""

import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, cast

from recollect.errors import RecollectError
from recollect.recall import pattern_process
from recollect.recall.hits import Place
from recollect.recall.pattern_process import LENGTH, NOWHERE, PLACE

Finder = Callable[[Sequence[str], float], list[Place | None]]  # texts and seconds -> the first match of each


class TooSlow(Exception):
    """The expression was not done with the texts in time."""


@contextmanager
def finder(pattern: re.Pattern[str], *, is_regex: bool) -> Iterator[Finder]:
    """What looks for a pattern: here, if it is but a piece of text, else in a process."""
    if not is_regex:
        yield lambda texts, seconds: [found.span() if (found := pattern.search(text)) else None for text in texts]
        return
    with _PatternProcess(pattern.pattern) as process:
        yield process.find


class _PatternProcess:
    def __init__(self, pattern: str) -> None:
        # Neither the user's site packages nor our own are needed: it starts in a few milliseconds.
        command = [sys.executable, "-I", "-S", pattern_process.__file__]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise RecollectError(
                f"Cannot start the process that matches expressions ({error.strerror}): {sys.executable}",
                "`--substring` needs none",
            ) from error
        self._asked, self._answers = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        self._tell(pattern)

    def __enter__(self) -> "_PatternProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def find(self, texts: Sequence[str], seconds: float) -> list[Place | None]:
        """The first match in each text; raises TooSlow, and is of no more use then."""
        watch = threading.Timer(max(0.0, seconds), self._process.kill)
        watch.start()
        try:
            return [self._answer(text) for text in texts]
        except BrokenPipeError:
            raise TooSlow from None
        finally:
            watch.cancel()

    def _answer(self, text: str) -> Place | None:
        self._tell(text)
        told = self._answers.read(PLACE.size)
        if len(told) < PLACE.size:
            raise TooSlow
        place: Place = PLACE.unpack(told)
        return None if place == NOWHERE else place

    def _tell(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogatepass")
        self._asked.write(LENGTH.pack(len(raw)) + raw)
        self._asked.flush()
