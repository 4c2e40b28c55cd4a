"""From ranked events to what is shown: sessions by name, snippets out of the packs, what stands around."""

import re
import time
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from typing import Any

import orjson

from recollect.clock import rfc3339
from recollect.kinds import ASSISTANT_MSG, USER_MSG, session_uid
from recollect.recall.answers import Glimpse, Match, SessionHit, hit_of
from recollect.recall.digests import open_ends
from recollect.recall.query import Phrase
from recollect.recall.ranking import Ranked
from recollect.recall.scope import Scope
from recollect.recall.snippets import folded, is_exact, is_there, pattern_of, snippet, snippet_at
from recollect.recall.surroundings import Surroundings
from recollect.recall.texts import Texts
from recollect.store import Store
from recollect.store.cards import Card
from recollect.store.excerpts import EventCard
from recollect.store.fulltext_search import Scored
from recollect.text import begins_with

Place = tuple[int, int]  # where in a text something begins and ends

VERIFY_SECONDS = 0.15
_VERIFIED_AT_ONCE = 50
_MOST_WORDS = 8
_CHARS_OF_WORDS = 100_000  # of a long text, in which they are looked for
_INEXACT = 0.1  # what an event counts for whose words are there, but not as they were written


class Hits:
    """Makes hits. Made for one search, and remembers what it has read."""

    def __init__(self, store: Store, matches: int, context: int) -> None:
        self._store = store
        self._matches = matches
        self._context = context
        self._cards: dict[int, Card] = {}
        self.root_of: dict[int, int] = {}
        self._texts = Texts(store)
        self._inexact: set[int] = set()
        self._places: Mapping[int, Place] = {}
        self._lengths: dict[int, int] = {}
        self._surroundings: dict[int, Surroundings] = {}
        self._neighbours: dict[int, EventCard] = {}

    def roots(self, streams: Collection[int]) -> dict[int, int]:
        """The session each one is shown under: a sub-agent's root, by any of its streams."""
        missing = set(streams) - self.root_of.keys()
        if missing:
            keys = self._store.excerpts.keys(missing)
            cards = self._store.cards.of(keys.values())
            for stream, key in keys.items():
                self._cards[stream] = cards.get(key) or _nameless(*key)
            self._name_roots(missing & keys.keys())
        return self.root_of

    def _name_roots(self, streams: Collection[int]) -> None:
        """Sub-agents count for their root, be it held any more or not."""
        roots = self._store.cards.named({self._cards[stream].root_session_uid for stream in streams})
        held = self._store.excerpts.streams({card.key for card in roots.values()})
        for stream in streams:
            root = roots.get(self._cards[stream].root_session_uid)
            number = held.get(root.key) if root else None
            self.root_of[stream] = stream if number is None else number
            if root is not None and number is not None:
                self._cards[number] = root

    def relative_length(self, session: int) -> float:
        """A session's events, with those of its sub-agents that were met, against what is usual."""
        if session not in self._lengths:
            self._lengths = defaultdict(int)
            for stream, root in self.root_of.items():
                self._lengths[root] += self._cards[stream].event_count
        return self._lengths[session] / self._usual_length

    @cached_property
    def _usual_length(self) -> float:
        return self._store.cards.usual_length()

    def of(
        self,
        found: Ranked,
        phrases: Sequence[Phrase],
        limit: int,
        places: Mapping[int, Place] | None = None,
    ) -> list[SessionHit]:
        """The best sessions. `places` tells where in an event's text that was found which is no phrase."""
        order = sorted(found.scores, key=lambda session: (-found.scores[session], -_last_ms(found, session), -session))
        chosen = {session: found.events[session][: self._matches] for session in order[:limit]}
        self._texts.read({event.id for events in chosen.values() for event in events})
        pattern, self._places = pattern_of(phrases), places or {}
        self._read_surroundings(chosen)
        return [self._hit(session, found.scores[session], chosen[session], pattern) for session in chosen]

    def _read_surroundings(self, chosen: Mapping[int, Sequence[Scored]]) -> None:
        """Have what stands round the chosen events at hand, and the ends of their sessions, with few questions."""
        streams = {event.stream for events in chosen.values() for event in events} | chosen.keys()
        for stream in streams:
            self._surroundings[stream] = Surroundings(self._store.excerpts.outline(stream), self._context)
        wanted = {end for session in chosen for end in self._surroundings[session].ends if end is not None}
        for event in (event for events in chosen.values() for event in events):
            before, after = self._surroundings[event.stream].around(event.id)
            wanted |= {*before, *after}
        self._neighbours |= self._store.excerpts.of(wanted)

    def verify(self, found: Ranked, phrases: Sequence[Phrase], notes: list[str]) -> None:
        """Put events first that have paths, URLs and the like letter by letter.

        The words of `--no-verify` stand in many places. The best are looked at, until time is up.
        """
        exact = [phrase for phrase in phrases if is_exact(phrase)]
        if not exact:
            return
        events = sorted((event for some in found.events.values() for event in some), key=lambda event: -event.score)
        inexact: set[int] = set()
        seen: set[int] = set()
        end = time.monotonic() + VERIFY_SECONDS
        for start in range(0, len(events), _VERIFIED_AT_ONCE):
            some = [event.id for event in events[start : start + _VERIFIED_AT_ONCE]]
            self._texts.read(some)
            seen |= set(some)
            inexact |= {event for event in some if not self._has_all(event, exact)}
            if time.monotonic() > end or len(seen) - len(inexact) >= _VERIFIED_AT_ONCE:
                break
        self._inexact |= inexact
        if seen and seen == inexact:
            notes.append("nowhere letter by letter: found by its words")
            return
        for session, held in found.events.items():
            found.events[session] = sorted(held, key=lambda event: event.id in inexact or event.id not in seen)
            if found.events[session][0].id in inexact:
                found.scores[session] *= _INEXACT

    def _has_all(self, event: int, phrases: Sequence[Phrase]) -> bool:
        return event in self._texts and all(is_there(phrase, self._texts[event]) for phrase in phrases)

    def card(self, stream: int) -> Card:
        return self._cards[stream]

    def _hit(
        self,
        session: int,
        score: float,
        events: Sequence[Scored],
        pattern: re.Pattern[str] | None,
    ) -> SessionHit:
        card = self._cards[session]
        first, last = (self._told(end) for end in self._surroundings[session].ends)
        if card.evicted_ms is not None:  # what is held is how it went on
            first = self._digested_ends(card)[0] or first
        matches = [self._match(event, pattern) for event in events if event.id in self._texts]
        why = f"{len(events)} best of its matches shown"
        return hit_of(card, score, matches, why, first_request=first, ending=last)

    def _match(self, event: Scored, pattern: re.Pattern[str] | None) -> Match:
        card = self._texts.cards[event.id]
        before, after = self._surroundings[event.stream].around(event.id)
        text, place = self._texts[event.id], self._places.get(event.id)
        words = (folded(text[slice(*place)]),) if place else _words(text, pattern)
        return Match(
            event_uid=card.event_uid.hex(),
            seq=card.seq,
            kind=card.kind,
            ts=rfc3339(card.ts_ms),
            snippet=snippet_at(text, place[0]) if place else snippet(text, pattern),
            before=[told for other in before if (told := self._told(other))],
            after=[told for other in after if (told := self._told(other))],
            session_uid=self._cards[card.stream].session_uid,
            score=round(event.score, 4),
            is_exact=event.id not in self._inexact,
            why=f"{card.kind}: {', '.join(words)}" if words else card.kind,
            words=words,
        )

    def _told(self, event: int | None) -> Glimpse | None:
        card = self._neighbours.get(event) if event is not None else None
        return _glimpse(card) if card else None

    def begun_with(self, session: int) -> Scored | None:
        """The request to show a session by; None if it has none, or is called by one that it took over."""
        first, own = (self._store.excerpts.first_request(session, is_own=is_own) for is_own in (False, True))
        if first is None or own is None:
            return None
        is_foreign = first.id != own.id and begins_with(first.summary, self._cards[session].title or first.summary)
        return None if is_foreign else Scored(own.id, 0.0, session, own.ts_ms, own.flags, own.kind)

    def recent(self, limit: int, scope: Scope) -> list[SessionHit]:
        """The sessions that were active last, each with its last request, how it ended and what it left to do."""
        times = {"since_ms": scope.events.since_ms, "before_ms": scope.events.before_ms}
        cards = self._store.cards.recent(limit, scope.cards, **times)
        streams = self._store.excerpts.streams({card.key for card in cards})
        return [self._recent_hit(card, streams.get(card.key)) for card in cards]

    def _recent_hit(self, card: Card, stream: int | None) -> SessionHit:
        ends = Surroundings(self._store.excerpts.outline(stream), 0).ends if stream is not None else (None, None)
        self._neighbours |= self._store.excerpts.of({end for end in ends if end is not None})
        first, ending = map(self._told, ends)
        last = self._store.excerpts.last_request(stream) if stream is not None else None
        request = None if last is None else _glimpse(last)
        if card.evicted_ms is not None:  # what is held, if anything, is how it went on
            begun, asked, answer = self._digested_ends(card)
            first, request, ending = begun or first, request or asked, ending or answer
        return hit_of(
            card,
            0.0,
            [Match(*request, [], [], card.session_uid, 0.0)] if request else [],
            "recent",
            first_request=first,
            ending=ending,
            outcome=card.outcome,
            open_ends=open_ends(self._store, card),
        )

    def _digested_ends(self, card: Card) -> tuple[Glimpse | None, Glimpse | None, Glimpse | None]:
        """The first request, the last one and the last answer, as a session's digest quotes them."""
        told = self._store.cards.digest(card.key)
        digest = orjson.loads(told) if told else {}
        requests = digest.get("requests") or [None]
        return _quoted(requests[0], USER_MSG), _quoted(requests[-1], USER_MSG), _quoted(digest.get("final_answer"))


def _nameless(agent: str, native_id: str) -> Card:
    """A session that a sweep has begun to read and has not accounted for yet."""
    uid = session_uid(agent, native_id)
    return Card(agent, native_id, uid, uid, None, None, None, None, None)


def _glimpse(card: EventCard) -> Glimpse:
    return Glimpse(card.event_uid.hex(), card.seq, card.kind, rfc3339(card.ts_ms), card.summary)


def _quoted(quote: dict[str, Any] | None, kind: str = ASSISTANT_MSG) -> Glimpse | None:
    """What a digest quotes of an event, which has no number any more."""
    return Glimpse(quote["event_uid"], 0, kind, None, snippet(quote["text"], None)) if quote else None


def _words(text: str, pattern: re.Pattern[str] | None) -> tuple[str, ...]:
    found = {match[0] for match in pattern.finditer(folded(text[:_CHARS_OF_WORDS]))} if pattern else set()
    return tuple(sorted(found)[:_MOST_WORDS])


def _last_ms(found: Ranked, session: int) -> int:
    return max((event.ts_ms or 0 for event in found.events[session]), default=0)
