"""From ranked sessions to what is shown: names, snippets from the packs, the events around a match."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import orjson

from recollect import kinds
from recollect.clock import rfc3339
from recollect.recall.answers import Glimpse, Match, SessionHit, hit_of
from recollect.recall.candidates import Candidate, Coverage, Sessions
from recollect.recall.query import Phrase, bare
from recollect.recall.snippets import Pattern, Span, Texts, folded, is_exact, is_there, snippet, snippet_at
from recollect.store import EventHeader, Scored, SessionFilter, SessionHeader, Store
from recollect.text import begins_with

_VERIFIED_AT_ONCE = 50
_MOST_VERIFIED = 200  # events whose texts are read to see whether they have a path or a flag as it was typed
_MOST_WORDS = 8
_MOST_PLACES = 50  # of a text, where each of them is looked for
_MOST_OPEN_ENDS = 3
_OPEN_LISTS = (("todos", "to do"), ("questions", "asked"), ("next_steps", "next"))
_INTERRUPTED = "interrupted"


class Hits:
    """Makes hits for one search."""

    def __init__(self, store: Store, sessions: Sessions, matches: int, context: int) -> None:
        self._store = store
        self._sessions = sessions
        self._matches = matches
        self._context = context
        self._texts = Texts(store)
        self._inexact: set[int] = set()
        self._spans: Mapping[int, Span] = {}
        self._streams: dict[kinds.SessionKey, int] = {}
        self._ends: dict[int, tuple[EventHeader | None, EventHeader | None]] = {}

    def of(
        self,
        candidates: Sequence[Candidate],
        limit: int,
        coverage: Coverage | None = None,
        spans: Mapping[int, Span] | None = None,
    ) -> list[SessionHit]:
        """The best sessions. `spans` says where in an event's text a match is that no word of a query made."""
        shown: list[Candidate] = []
        for candidate in candidates:
            if len(shown) == limit:
                break
            candidate.events = candidate.events or self._first_request(candidate)
            if candidate.events or candidate.header.evicted_ms is not None:
                shown.append(candidate)
        if coverage is not None:
            coverage.choose(shown, self._texts, self._matches)
        for candidate in shown:
            candidate.events = candidate.events[: self._matches]
        self._texts.read({event.id for candidate in shown for event in candidate.events})
        self._spans = spans or {}
        patterns = coverage.patterns if coverage is not None else []
        self._read_ends([candidate.header for candidate in shown])
        return [self._hit(candidate, patterns) for candidate in shown]

    def _first_request(self, candidate: Candidate) -> list[Scored]:
        """The request to show a session by that only its digest found; none if the digest quotes another session's."""
        stream = self._stream(candidate.header)
        if stream is None or candidate.header.evicted_ms is not None:
            return []
        first, own = (self._store.events.request(stream, is_own=is_own) for is_own in (False, True))
        if first is None or own is None:
            return []
        self._sessions.load({stream})
        is_foreign = first.id != own.id and begins_with(first.summary, candidate.header.title or first.summary)
        return [] if is_foreign else [Scored(own.id, 0.0, stream, own.ts_ms, own.flags, own.kind)]

    def _stream(self, header: SessionHeader) -> int | None:
        if header.key not in self._streams:
            self._streams |= self._store.events.streams([header.key])
        return self._streams.get(header.key)

    def verify(self, candidates: Sequence[Candidate], phrases: Sequence[Phrase]) -> bool:
        """Mark what has paths, URLs and the like as they were typed; False if none of the best events has them.

        The words of `--no-verify` are in many places.
        """
        exact = [phrase for phrase in phrases if is_exact(phrase)]
        lacking = {phrase.text for phrase in exact}
        having = [candidate for candidate in candidates if not lacking.intersection(candidate.missing)]
        events = [event for candidate in having for event in candidate.events] if exact else []
        events.sort(key=lambda event: (-event.score, -event.id))
        verified: set[int] = set()
        for start in range(0, min(len(events), _MOST_VERIFIED), _VERIFIED_AT_ONCE):
            batch = [event.id for event in events[start : start + _VERIFIED_AT_ONCE]]
            self._texts.read(batch)
            held = [event for event in batch if event in self._texts]
            verified |= {event for event in held if all(is_there(phrase, self._texts[event]) for phrase in exact)}
            self._inexact |= set(batch) - verified
            if len(verified) >= _VERIFIED_AT_ONCE:
                break
        for candidate in candidates:
            candidate.is_verbatim |= any(event.id in verified for event in candidate.events)
            candidate.events.sort(key=lambda event: event.id not in verified)
        return bool(verified) or not exact

    def _read_ends(self, headers: Sequence[SessionHeader]) -> None:
        self._streams |= self._store.events.streams([header.key for header in headers])
        self._ends = self._store.events.ends(self._streams.values())

    def _ends_of(self, header: SessionHeader) -> tuple[Glimpse | None, Glimpse | None]:
        """The first request of a session, and the last event that says how it ended."""
        first, last = self._ends.get(self._streams.get(header.key, 0), (None, None))
        return first and _glimpse(first), last and _glimpse(last)

    def _hit(self, candidate: Candidate, patterns: Sequence[Pattern]) -> SessionHit:
        header = candidate.header
        matches = [self._match(event, patterns) for event in candidate.events if event.id in self._texts]
        why = f"{len(matches)} best matches shown"
        first, last = self._ends_of(header)
        if header.evicted_ms is not None:  # what is held is how it went on
            first = self._digested_ends(header)[0] or first
        if candidate.digest is not None and not any(match.words for match in matches):
            quoted = self._digest_matches(candidate.digest, patterns)
            if not matches or quoted[0].snippet != header.title:  # which is shown anyway
                matches, first, last = quoted, None, None
                why = f"its digest has {'some of' if candidate.missing else 'all'} the words"
        missing = tuple(map(bare, candidate.missing))
        return hit_of(header, candidate.score, matches, why, first_request=first, ending=last, missing=missing)

    def _match(self, event: Scored, patterns: Sequence[Pattern]) -> Match:
        header = self._texts.headers[event.id]
        near = self._store.events.near
        before = near(header, count=self._context, is_before=True)[::-1] if self._context else []
        after = near(header, count=self._context) if self._context else []
        text, lowered, span = self._texts[event.id], self._texts.folded(event.id), self._spans.get(event.id)
        words = (lowered[slice(*span)],) if span else _words(lowered, patterns)
        return Match(
            event_uid=header.event_uid.hex(),
            seq=header.seq,
            kind=header.kind,
            ts=rfc3339(header.ts_ms),
            snippet=snippet_at(text, span[0]) if span else snippet(text, patterns, lowered),
            before=list(map(_glimpse, before)),
            after=list(map(_glimpse, after)),
            session_uid=self._sessions.header(header.stream).session_uid,
            score=round(event.score, 4),
            is_exact=event.id not in self._inexact,
            why=f"{header.kind}: {', '.join(words)}" if words else header.kind,
            words=words,
        )

    def _digest_matches(self, header: SessionHeader, patterns: Sequence[Pattern]) -> list[Match]:
        """What a digest quotes that matches; its last event with the title, if no quote does."""
        digest = orjson.loads(self._store.digests.text(header.key) or "{}")
        matching = [
            quote
            for quote in quotes(digest)
            if not patterns or any(pattern.search(folded(quote["text"])) for pattern in patterns)
        ]
        last = digest["covers"]["last_event_uid"]
        shown = [(quote.get("event_uid") or last, quote["text"]) for quote in matching] or [(last, header.title or "")]
        return [
            Match(
                uid,
                0,
                "digest",
                None,
                snippet(text, patterns, folded(text)),
                [],
                [],
                header.session_uid,
                0.0,
                why="digest",
            )
            for uid, text in dict.fromkeys(shown[: self._matches])
        ]

    def recent(self, criteria: SessionFilter, limit: int, offset: int = 0) -> list[SessionHit]:
        """The sessions that were active last, each with its last request, how it ended and what it left to do."""
        headers = self._store.sessions.recent(limit, criteria, offset)
        self._read_ends(headers)
        return [self._recent_hit(header) for header in headers]

    def _recent_hit(self, header: SessionHeader) -> SessionHit:
        stream = self._streams.get(header.key)
        first, ending = self._ends_of(header)
        last = self._store.events.request(stream, is_last=True) if stream is not None else None
        request = None if last is None else _glimpse(last)
        if header.evicted_ms is not None:  # what is held, if anything, is how it went on
            begun, asked, answer = self._digested_ends(header)
            first, request, ending = begun or first, request or asked, ending or answer
        return hit_of(
            header,
            0.0,
            [Match(*request, [], [], header.session_uid, 0.0)] if request else [],
            "recent",
            first_request=first,
            ending=ending,
            open_ends=tuple(open_ends(self._store, header)[:_MOST_OPEN_ENDS]),
        )

    def _digested_ends(self, header: SessionHeader) -> tuple[Glimpse | None, Glimpse | None, Glimpse | None]:
        """The first request, the last one and the last answer, as a session's digest quotes them."""
        digest = orjson.loads(self._store.digests.text(header.key) or "{}")
        requests = digest.get("requests") or [None]
        first, last = (_quoted(request, kinds.USER_MSG) for request in (requests[0], requests[-1]))
        return first, last, _quoted(digest.get("final_answer"), kinds.ASSISTANT_MSG)


def open_ends(store: Store, header: SessionHeader) -> list[str]:
    """What a session left to do by its digest, in a line each."""
    left = orjson.loads(store.digests.text(header.key) or "{}").get("open", {})
    ends = [(quote.get("note") or "no answer", quote) for quote in left.get("unanswered", ())]
    is_told = any(label == _INTERRUPTED for label, _ in ends)
    ends += [(label, quote) for name, label in _OPEN_LISTS for quote in left.get(name, ())]
    ends += [("tests fail", quote) for quote in (left.get("failing_tests"),) if quote]
    ends += [(_INTERRUPTED, quote) for quote in (left.get("interruption"),) if quote and not is_told]
    return [f"{label}: {quote['text']}" if any(map(str.isalnum, quote["text"])) else label for label, quote in ends]


def quotes(value: Any) -> Iterator[dict[str, Any]]:
    """Every quote of a digest, wherever in it."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str) and "event_uid" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            yield from quotes(inner)


def _glimpse(header: EventHeader) -> Glimpse:
    return Glimpse(header.event_uid.hex(), header.seq, header.kind, rfc3339(header.ts_ms), header.summary)


def _quoted(quote: dict[str, Any] | None, kind: str) -> Glimpse | None:
    """What a digest quotes of an event, which has no number any more."""
    return Glimpse(quote["event_uid"], 0, kind, None, snippet_at(quote["text"], 0)) if quote else None


def _words(lowered: str, patterns: Sequence[Pattern]) -> tuple[str, ...]:
    matches = (match for pattern in patterns for match in islice(pattern.finditer(lowered), _MOST_PLACES))
    return tuple(sorted({match[0] for match in matches})[:_MOST_WORDS])
