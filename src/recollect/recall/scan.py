"""Substrings and regular expressions: the index narrows down where it can, and the payloads decide."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from recollect.recall.ranking import WEIGHTS
from recollect.recall.snippets import folded
from recollect.recall.texts import Texts
from recollect.store import Store
from recollect.store.fulltext_search import EventFilter, Scored, Term, Wanted
from recollect.text import CJK_RUN

_EVENTS_AT_ONCE = 200
_MOST_WORDS = 500  # that a part of a word may stand in, to be asked for each
_MOST_CANDIDATES = 5000
_MOST_MATCHES = 300
_LEAST_LITERAL = 3
_WORD = re.compile(r"[^\W_]+")


def compiled(text: str, is_regex: bool, notes: list[str]) -> re.Pattern[str]:
    """The pattern; a broken regular expression is looked for as it is written."""
    if is_regex:
        try:
            return re.compile(text)
        except (re.error, OverflowError, RecursionError) as error:
            notes.append(f"no regular expression ({error}): looked for as a piece of text")
    return re.compile(re.escape(text), re.IGNORECASE)


def literal_matches(
    store: Store,
    pattern: re.Pattern[str],
    seconds: float,
    chosen: EventFilter,
    progress: Callable[[int, int], None],
    notes: list[str],
) -> list[Scored]:
    """Events in whose text the pattern is found, newest first where the index could not help."""
    end = time.monotonic() + seconds
    wanted = _prefilter(store, _literal(pattern))
    total = sum(store.fulltext_search.months().values())
    if wanted is None:
        notes.append("the index cannot help with this: reading the sessions themselves, newest first")
        candidates = _all_events(store, chosen)
    else:
        candidates = _candidates(store, wanted, chosen)
        total = min(total, _MOST_CANDIDATES)
    texts = Texts(store)
    found: list[Scored] = []
    looked_at = 0
    for some in candidates:
        texts.read([event.id for event in some])
        found += [event for event in some if event.id in texts and pattern.search(texts[event.id])]
        looked_at += len(some)
        progress(min(looked_at, total), total)
        if len(found) >= _MOST_MATCHES or time.monotonic() > end:
            if looked_at < total:
                notes.append(f"looked at {looked_at:,} of {total:,} events; filters such as `since:` narrow it down")
            break
    return found


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
    having = store.fulltext_search.words_with(folded(words[0][0]), _MOST_WORDS)
    return Wanted((tuple(Term(word) for word in having),)) if len(having) < _MOST_WORDS else None


def _literal(pattern: re.Pattern[str]) -> str:
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
