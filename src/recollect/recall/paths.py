"""Where a path is met: in which events it was edited, called upon or mentioned, and in which digests.

The index knows words only, and `common.go` has the words of `push_common.go`. So what it finds is looked at again.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import orjson

from recollect.kinds import EDIT, KIND_FAMILY, TOOL_CALL
from recollect.recall.digests import quotes
from recollect.recall.edits import absolute, changes, is_same, slashed
from recollect.recall.ranking import WEIGHTS
from recollect.recall.texts import Texts
from recollect.store import Store
from recollect.store.cards import Card, CardFilter
from recollect.store.excerpts import EventCard
from recollect.store.fulltext_search import EventFilter, Scored, Term, Wanted
from recollect.text import CJK, evidence, payload_text

_MOST_EVENTS = 20_000
_READ_AT_ONCE = 20
_CALLS = KIND_FAMILY[TOOL_CALL]
MENTION = "mention"
_DID = ("did",)
_SEPARATOR = re.compile(r"[/\\]+")


class Meeting(NamedTuple):
    """An event that has to do with a path: an edit of it, another call that names it, or a mention."""

    event: EventCard
    how: str


class Remembered(NamedTuple):
    """What the digest of a session without raw detail says of a path."""

    card: Card
    edits: int
    calls: int
    mentions: int


def events_with(store: Store, *words: str, columns: tuple[str, ...] | None = None) -> list[Scored]:
    """Events that have each of these words or phrases; whether it is the same path is not known yet."""
    wanted = Wanted(tuple((Term(some),) for some in words), columns=columns)
    index = store.fulltext_search
    return [
        event
        for month in index.months()
        for event in index.find(month, wanted, WEIGHTS, EventFilter(), _MOST_EVENTS).events
    ]


def by_session(store: Store, events: Sequence[Scored]) -> Iterator[tuple[list[EventCard], str | None]]:
    """The events by session, in the order their payloads lie, with the folder they were told from."""
    by_stream: dict[int, list[EventCard]] = {}
    for card in store.excerpts.of({event.id for event in events}).values():
        by_stream.setdefault(card.stream, []).append(card)
    cwds = store.cards.cwds(store.excerpts.keys(by_stream))
    for stream, cards in by_stream.items():
        yield sorted(cards, key=lambda card: card.payload_start), cwds.get(stream)


def base_name(path: str) -> str:
    return _SEPARATOR.split(path.rstrip("/\\"))[-1]


class PathMeetings:
    """Looks up where one path is met."""

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self._path = path
        self._pattern = _pattern(path)
        self._texts = Texts(store)

    def all(self) -> Iterator[Meeting]:
        """Every event that has to do with the path."""
        # A call may tell the path from its working folder, so that only the name of the file stands in it.
        found = [*events_with(self._store, base_name(self._path), columns=_DID), *events_with(self._store, self._path)]
        for cards, cwd in by_session(self._store, found):
            for card, payload in zip(cards, self._texts.payloads(cards), strict=True):
                if how := self._how(card, payload, cwd):
                    yield Meeting(card, how)

    def streams(self) -> Iterator[int]:
        """Sessions with a call that names the path."""
        for cards, cwd in by_session(self._store, events_with(self._store, base_name(self._path), columns=_DID)):
            if self._is_called(cards, cwd):
                yield cards[0].stream

    def remembered(self) -> Iterator[Remembered]:
        """Sessions without raw detail that tell of the path in their digests."""
        expression = self._store.fulltext_search.expression(Wanted(((Term(base_name(self._path)),),)))
        if not expression:
            return
        found = self._store.cards.by_digest(expression, CardFilter(), limit=_MOST_EVENTS, is_evicted=True)
        cwds = self._store.cards.cwds({number: one.card.key for number, one in enumerate(found)})
        for number, one in enumerate(found):
            digest = orjson.loads(one.digest)
            files, commands = digest.get("files", ()), digest.get("commands", ())
            edits = sum(told["count"] for told in files if self._is_meant(absolute(told["name"], cwds[number])))
            calls = sum(told["count"] for told in commands if self._pattern.search(told["name"]))
            told = [quote["text"] for quote in quotes(digest)]
            mentions = sum(self._pattern.search(text) is not None for text in told)
            if edits or calls or mentions:
                yield Remembered(one.card, edits, calls, mentions)

    def _is_called(self, cards: Sequence[EventCard], cwd: str | None) -> bool:
        """Whether any of these calls names the path; most say so in their summaries, and no payload is read."""
        calls = [card for card in cards if card.kind in _CALLS]
        if any(self._pattern.search(card.summary) for card in calls):
            return True
        for start in range(0, len(calls), _READ_AT_ONCE):
            some = calls[start : start + _READ_AT_ONCE]
            if any(map(self._how, some, self._texts.payloads(some), [cwd] * len(some))):
                return True
        return False

    def _how(self, card: EventCard, payload: dict[str, Any], cwd: str | None) -> str | None:
        is_call = card.kind in _CALLS
        is_named = is_call and any(self._is_meant(absolute(told.path, cwd)) for told in changes(payload))
        if is_named and card.kind == EDIT and not self._store.excerpts.has_failed(card):
            return EDIT
        text = evidence(payload_text(card.kind, payload)) or card.summary
        if not is_named and not self._pattern.search(text):
            return None
        return TOOL_CALL if is_call else MENTION

    def _is_meant(self, told: str) -> bool:
        """Whether a path is the one asked for, or lies below it."""
        wanted = slashed(self._path).removeprefix("./").rstrip("/")
        below = told.startswith(f"{wanted}/") if wanted.startswith("/") else f"/{wanted}/" in f"/{told}"
        return below or is_same(told, wanted)


def _pattern(path: str) -> re.Pattern[str]:
    """What finds the path in a text, and not a longer name that ends or begins with it.

    Between CJK letters a name stands without a space, and both kinds of slash separate folders.
    """
    path = re.sub(r"^(\./)+", "", path.rstrip("/\\")) or path
    parts = [re.escape(part) for part in _SEPARATOR.split(path)]
    before = r"(?<![\w.\-])" if re.match(f"[{CJK}]", path) else rf"(?:(?<![\w.\-])|(?<=[{CJK}]))"
    after = rf"(?:(?![\w~]|-(?!\d)|\.\w)|(?=[{CJK}]))"
    return re.compile(before + r"[/\\]+".join(parts) + after, re.IGNORECASE)
