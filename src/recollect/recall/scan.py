"""Substrings and regular expressions: the index narrows down where it can, and the payloads decide."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from recollect.recall.hits import Place
from recollect.recall.patterns import Finder, TooSlow, finder
from recollect.recall.query import MOST_CHARS
from recollect.recall.ranking import WEIGHTS
from recollect.recall.snippets import folded
from recollect.recall.texts import Texts
from recollect.store import Store
from recollect.store.fulltext_search import EventFilter, OutOfTime, Scored, Term, Wanted
from recollect.text import CJK_RUN

_EVENTS_AT_ONCE = 200
_MOST_WORDS = 500  # that a part of a word may stand in, to be asked for each
_MOST_CANDIDATES = 5000
_MOST_MATCHES = 300
_LEAST_LITERAL = 3
_SECONDS_AT_ONCE = 5.0  # for a batch of events: what takes longer is an expression that never ends
_SECONDS_FOR_WORDS = 2.0  # for looking through all words there are
_WORD = re.compile(r"[^\W_]+")


class Literal(NamedTuple):
    """What is looked for letter by letter."""

    pattern: re.Pattern[str]
    is_regex: bool


class Placed(NamedTuple):
    """Events in whose text it was found, and where."""

    events: list[Scored]
    places: dict[int, Place]


def read_literal(text: str, is_regex: bool, notes: list[str]) -> Literal:
    """The pattern; a broken regular expression is looked for as it is written."""
    if len(text) > MOST_CHARS:
        notes.append(f"only the first {MOST_CHARS} characters were looked for")
        text = text[:MOST_CHARS]
    if is_regex:
        try:
            return Literal(re.compile(text), True)
        except (re.error, OverflowError, RecursionError) as error:
            notes.append(f"no regular expression ({error}): looked for as a piece of text")
    return Literal(re.compile(re.escape(text), re.IGNORECASE), False)


class Scan:
    """Looks for a literal in the payloads, for some seconds. Made for one search."""

    def __init__(
        self, store: Store, literal: Literal, seconds: float, progress: Callable[[int, int], None], notes: list[str]
    ) -> None:
        self._store = store
        self._literal = literal
        self._end = time.monotonic() + seconds
        self._progress = progress
        self._notes = notes

    def run(self, chosen: EventFilter) -> Placed:
        """Events in whose text it is found, those stored last first where the index could not help."""
        total = sum(self._store.fulltext_search.months().values())
        wanted = _prefilter(self._store, _longest_text(self._literal.pattern))
        if wanted is None:
            self._notes.append("the index cannot help with this: reading the sessions themselves, newest first")
            return self._look_through(_all_events(self._store, chosen), total)
        return self._look_through(_candidates(self._store, wanted, chosen), min(total, _MOST_CANDIDATES))

    def _look_through(self, candidates: Iterator[list[Scored]], total: int) -> Placed:
        found, looked_at = Placed([], {}), 0
        with finder(self._literal.pattern, is_regex=self._literal.is_regex) as find:
            for some in candidates:
                try:
                    self._look_at(some, find, found)
                except TooSlow:
                    self._notes.append("the expression takes too long and was stopped: nested `*` and `+` do that")
                    break
                looked_at += len(some)
                self._progress(min(looked_at, total), total)
                if len(found.events) >= _MOST_MATCHES or time.monotonic() > self._end:
                    self._say_how_far(looked_at, total)
                    break
        return found

    def _look_at(self, events: list[Scored], find: Finder, found: Placed) -> None:
        texts = Texts(self._store)  # made for these only: all texts of a store are too many to remember
        texts.read([event.id for event in events])
        held = [event for event in events if event.id in texts]
        seconds = min(_SECONDS_AT_ONCE, self._end - time.monotonic())
        for event, place in zip(held, find([texts[event.id] for event in held], seconds), strict=True):
            if place is not None:
                found.events.append(event)
                found.places[event.id] = place

    def _say_how_far(self, looked_at: int, total: int) -> None:
        if looked_at < total:
            told = f"looked at {looked_at:,} of {total:,} events"
            self._notes.append(f"{told}; filters such as `since:` narrow it down")


def _candidates(store: Store, wanted: Wanted, chosen: EventFilter) -> Iterator[list[Scored]]:
    index = store.fulltext_search
    found = [index.find(month, wanted, WEIGHTS, chosen, _MOST_CANDIDATES) for month in index.months()]
    events = sorted((event for some in found for event in some.events), key=lambda event: -event.score)
    for start in range(0, len(events), _EVENTS_AT_ONCE):
        yield events[start : start + _EVENTS_AT_ONCE]


def _all_events(store: Store, chosen: EventFilter) -> Iterator[list[Scored]]:
    below: int | None = None
    while some := store.fulltext_search.newest(chosen, _EVENTS_AT_ONCE, below):
        yield some
        below = some[-1].id


def _prefilter(store: Store, literal: str) -> Wanted | None:
    """What the index can be asked so that nothing that has the literal is missed; None if it cannot help."""
    if re.fullmatch(CJK_RUN, literal):
        return Wanted(((Term(literal),),))
    words = list(_WORD.finditer(literal))
    if not words or re.search(CJK_RUN, literal):
        return None
    is_open = words[-1].end() == len(literal)
    whole = words if words[0].start() > 0 else words[1:]  # the first may be the end of a longer word
    if whole:
        return Wanted(((Term(literal[whole[0].start() :], is_prefix=is_open),),))
    having = _words_with(store, folded(words[0][0]))
    return None if having is None else Wanted((tuple(Term(word) for word in having),))


def _words_with(store: Store, part: str) -> list[str] | None:
    """The words a piece may stand in; None if there are too many, or looking for them takes too long."""
    index = store.fulltext_search
    index.limit_time(_SECONDS_FOR_WORDS)
    try:
        having = index.words_with(part, _MOST_WORDS)
    except OutOfTime:
        return None
    finally:
        index.limit_time(None)
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
