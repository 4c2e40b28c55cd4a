"""Substrings and regular expressions: the index narrows down where it can, the texts of events decide.

A regular expression may run for years (`(a+)+$`), and no thread of Python can stop it: it is matched by a process of
its own, which is killed when its time is up.
"""

import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, cast

from recollect.model.errors import RecollectError, UsageError
from recollect.model.text import CJK_RUN
from recollect.recall import pattern_worker
from recollect.recall.pattern_worker import LENGTH, NOWHERE, PLACE
from recollect.recall.query import MOST_CHARS, WEIGHTS
from recollect.recall.snippets import Span, Texts, folded
from recollect.store import EventFilter, OutOfTime, Scored, Store, Term, Wanted

_EVENTS_AT_ONCE = 200
_MOST_WORDS = 2000  # that may have a piece inside, to ask for each
_MOST_CANDIDATES = 5000
_OF_SESSION = 1000  # events
_MOST_MATCHES = 300
_LEAST_LITERAL = 3
_SECONDS_AT_ONCE = 5.0  # for a batch of events: what takes longer is an expression that never ends
_SECONDS_FOR_WORDS = 5.0  # for looking through all words there are
_WORD = re.compile(r"[^\W_]+")
_ROOT = str(Path(pattern_worker.__file__).parents[2])  # which has this package; may be a zip

Finder = Callable[[Sequence[str], float], list[Span | None]]  # texts and seconds -> the first match of each


class TooSlow(Exception):
    """The expression was not done with the texts in time."""


def read_literal(text: str, is_regex: bool, notes: list[str]) -> re.Pattern[str]:
    """Compile the pattern; raises UsageError for an invalid regular expression."""
    if len(text) > MOST_CHARS:
        notes.append(f"Only the first {MOST_CHARS} characters were searched for")
        text = text[:MOST_CHARS]
    if is_regex:
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            hint = "`recollect search --substring` searches for a text as it is written"
            raise UsageError(f"Invalid regular expression ({error}): {text}", hint) from error
    return re.compile(re.escape(text), re.IGNORECASE)


class Scan:
    """Looks for a pattern in the texts of events, for some seconds. Made for one search.

    `events` are those in whose text it was found, `spans` the places.
    """

    def __init__(
        self,
        store: Store,
        pattern: re.Pattern[str],
        is_regex: bool,
        seconds: float,
        progress: Callable[[int, int], None],
        notes: list[str],
    ) -> None:
        self._store = store
        self._index = store.words
        self._pattern = pattern
        self._is_regex = is_regex
        self._end = time.monotonic() + seconds
        self._progress = progress
        self._notes = notes
        self._seen: set[int] = set()
        self.events: list[Scored] = []
        self.spans: dict[int, Span] = {}
        self.is_partial = False  # whether there were more events to look at

    def run(self, chosen: EventFilter) -> None:
        """Find events that have it: by its words, then by words it is a part of, else by reading all, newest first."""
        total = sum(self._index.months().values())
        piece = _longest_text(self._pattern)
        with self._finder() as find:
            try:
                if _WORD.search(piece):
                    term = Term(piece, is_prefix=_WORD.match(piece[-1]) is not None)
                    self._look_through(self._candidates(Wanted(((term,),)), chosen), find)
                inside = self._prefilter(piece) if not self._is_done() else None
                if inside is not None:
                    self._look_through(self._candidates(inside, chosen), find)
                elif not self._is_done():
                    self._notes.append("The index cannot narrow this down: reading the sessions, newest first")
                    self._look_through(self._all_events(chosen), find, total)
            except TooSlow:
                self.is_partial = True
                is_late = time.monotonic() > self._end  # which says nothing about the expression
                advice = "filters such as `since:` narrow it down" if is_late else "avoid nested `*` and `+`"
                self._notes.append(
                    f"The {'search' if is_late else 'expression'} took too long and was stopped: {advice}"
                )

    @contextmanager
    def _finder(self) -> Iterator[Finder]:
        """What looks for the pattern: here, if it is a piece of text, else in a process."""
        if self._is_regex:
            with _PatternProcess(self._pattern.pattern) as process:
                yield process.find
        else:
            search = self._pattern.search
            yield lambda texts, seconds: [match.span() if (match := search(text)) else None for text in texts]

    def _is_done(self) -> bool:
        return len(self.events) >= _MOST_MATCHES or time.monotonic() > self._end

    def _look_through(self, batches: Iterator[list[Scored]], find: Finder, total: int = 0) -> None:
        waiting = list(batches) if not total else batches
        total = total or len(self._seen) + sum(map(len, waiting))
        for batch in waiting:
            self._look_at([event for event in batch if event.id not in self._seen], find)
            self._seen |= {event.id for event in batch}
            self._progress(min(len(self._seen), total), total)
            if self._is_done():
                self.is_partial = True
                if len(self._seen) < total:
                    looked = f"Looked at {len(self._seen):,} of {total:,} events"
                    self._notes.append(f"{looked}; filters such as `since:` narrow it down")
                return

    def _look_at(self, events: Sequence[Scored], find: Finder) -> None:
        texts = Texts(self._store)  # made for these only: all texts of a store are too many to remember
        texts.read([event.id for event in events])
        held = [event for event in events if event.id in texts]
        seconds = min(_SECONDS_AT_ONCE, self._end - time.monotonic())
        for event, span in zip(held, find([texts[event.id] for event in held], seconds), strict=True):
            if span is not None:
                self.events.append(event)
                self.spans[event.id] = span

    def _candidates(self, wanted: Wanted, chosen: EventFilter) -> Iterator[list[Scored]]:
        found = [self._index.find(month, wanted, WEIGHTS, chosen, _OF_SESSION) for month in self._index.months()]
        events = sorted((event for month in found for event in month), key=lambda event: -event.score)
        for start in range(0, min(len(events), _MOST_CANDIDATES), _EVENTS_AT_ONCE):
            yield events[start : start + _EVENTS_AT_ONCE]

    def _all_events(self, chosen: EventFilter) -> Iterator[list[Scored]]:
        below: int | None = None
        while batch := self._index.newest(chosen, _EVENTS_AT_ONCE, below):
            yield batch
            below = batch[-1].id

    def _prefilter(self, piece: str) -> Wanted | None:
        """What every event has that has the piece; None if the index cannot tell."""
        if re.fullmatch(CJK_RUN, piece):
            return Wanted(((Term(piece),),))
        words = list(_WORD.finditer(piece))
        if not words or re.search(CJK_RUN, piece):
            return None
        is_open = words[-1].end() == len(piece)
        whole = words if words[0].start() > 0 else words[1:]  # the first may be the end of a longer word
        if whole:
            return Wanted(((Term(piece[whole[0].start() :], is_prefix=is_open),),))
        having = self._words_with(folded(words[0][0]), at_end=not is_open)
        return None if having is None else Wanted((tuple(Term(word) for word in having),))

    def _words_with(self, part: str, at_end: bool) -> list[str] | None:
        """The words that have a piece inside; None if there are too many, or looking for them takes too long."""
        self._index.limit_time(_SECONDS_FOR_WORDS)
        try:
            having = self._index.words_with(part, _MOST_WORDS, at_end=at_end)
        except OutOfTime:
            return None
        finally:
            self._index.limit_time(None)
        return having if len(having) < _MOST_WORDS else None


def _longest_text(pattern: re.Pattern[str]) -> str:
    """The longest piece of text that every match of the pattern has in it; empty if there is none."""
    from re import _parser  # type: ignore[attr-defined]

    pieces, piece = [], ""
    tree: Any = _parser.parse(pattern.pattern, pattern.flags)
    for operation, value in tree:
        if str(operation) == "LITERAL":
            piece += chr(value)
        else:
            pieces.append(piece)
            piece = ""
    best = max([*pieces, piece], key=len)
    return best if len(best) >= _LEAST_LITERAL or re.fullmatch(CJK_RUN, best) else ""


class _PatternProcess:
    def __init__(self, pattern: str) -> None:
        # Neither the user's site packages nor our own are needed: it starts in a few milliseconds. Imported by name, as
        # a module in a zip is no file that Python could run.
        start = f"import sys; sys.path.append({_ROOT!r}); from {pattern_worker.__name__} import run; run()"
        command = [sys.executable, "-I", "-S", "-c", start]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        except OSError as error:
            raise RecollectError(
                f"Cannot start the process that matches expressions ({error.strerror}): {sys.executable}",
                "use `--substring` instead",
            ) from error
        self._input, self._output = cast(IO[bytes], self._process.stdin), cast(IO[bytes], self._process.stdout)
        self._send(pattern)

    def __enter__(self) -> "_PatternProcess":
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()

    def find(self, texts: Sequence[str], seconds: float) -> list[Span | None]:
        """The first match in each text; raises TooSlow, and is of no more use then."""
        watch = threading.Timer(max(0.0, seconds), self._process.kill)
        watch.start()
        try:
            return [self._answer(text) for text in texts]
        except BrokenPipeError:
            raise TooSlow from None
        finally:
            watch.cancel()

    def _answer(self, text: str) -> Span | None:
        self._send(text)
        packed = self._output.read(PLACE.size)
        if len(packed) < PLACE.size:
            raise TooSlow
        span: Span = PLACE.unpack(packed)
        return None if span == NOWHERE else span

    def _send(self, text: str) -> None:
        raw = text.encode("utf-8", "surrogatepass")
        self._input.write(LENGTH.pack(len(raw)) + raw)
        self._input.flush()
