"""From ranked sessions to what is shown: names, snippets from the packs, the events around a match.

Answers are named tuples: making a dataclass takes longer than a search may.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from recollect.agents import resume_command
from recollect.model import kinds
from recollect.model.clock import as_datetime, rfc3339
from recollect.model.text import begins_with
from recollect.recall.query import Phrase, bare
from recollect.recall.ranking import Candidate, Coverage, Sessions
from recollect.recall.snippets import Pattern, Span, Texts, folded, is_exact, is_there, snippet, snippet_at
from recollect.store import EventHeader, Scored, SessionFilter, SessionHeader, Store

if TYPE_CHECKING:
    from datetime import datetime


class Glimpse(NamedTuple):
    """An event in a line: next to a match, or at a session's ends."""

    event_uid: str
    seq: int
    kind: str
    ts: str | None
    snippet: str

    @property
    def at(self) -> "datetime | None":
        return as_datetime(self.ts)

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Match(NamedTuple):
    """An event that matches, with its neighbours in its lane. It may be in a sub-agent of the hit's session."""

    event_uid: str
    seq: int
    kind: str
    ts: str | None
    snippet: str
    before: list[Glimpse]
    after: list[Glimpse]
    session_uid: str
    score: float
    is_exact: bool = True  # matches exactly as typed, not only by its words
    why: str = ""
    words: tuple[str, ...] = ()  # what of its text was looked for, small and without accents

    @property
    def at(self) -> "datetime | None":
        return as_datetime(self.ts)

    def to_json(self, hit_uid: str | None = None, *, explain: bool = False) -> dict[str, Any]:
        """A match as every interface prints it; inside a hit, its session is named only if it is another."""
        fields: dict[str, Any] = Glimpse(*self[:5]).to_json()
        fields |= {name: [item.to_json() for item in getattr(self, name)] for name in ("before", "after")}
        if explain or self.session_uid != hit_uid:
            fields["session_uid"] = self.session_uid  # its seq counts there
        if explain:
            fields |= {"score": self.score, "is_exact": self.is_exact, "why": self.why}
        return fields


_ALWAYS_SHOWN = ("session_uid", "title", "agent", "repo", "cwd", "resume_command", "started_at", "score", "evicted")


class SessionHit(NamedTuple):
    """A session with its best matches. `evicted`: its raw events are gone, and everything shown is from its digest."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    started_at: str | None
    score: float
    evicted: bool
    matches: list[Match]
    first_request: Glimpse | None = None
    ending: Glimpse | None = None
    ended_at: str | None = None
    why: str = ""
    outcome: str | None = None  # None until its digest is made
    open_ends: tuple[str, ...] = ()  # of a recent session: what it left to do
    cwd: str | None = None
    resume_command: str | None = None  # the agent's own, to be run in `cwd`
    missing: tuple[str, ...] = ()  # words of the query that the session does not have, the rarest among them
    superseded_by: str | None = None  # the session that amended what this one decided
    decided: str | None = None  # what it decided, in place of what an earlier session had
    key: str | None = None  # of a live session: the name that its host knows it by
    channel: str | None = None
    chat_id: str | None = None

    @property
    def started(self) -> "datetime | None":
        return as_datetime(self.started_at)

    @property
    def ended(self) -> "datetime | None":
        return as_datetime(self.ended_at)

    @property
    def is_recent(self) -> bool:
        """Whether it is listed for its age, and not for words of a query."""
        return self.why == "recent"

    def to_json(self, *, explain: bool = False) -> dict[str, Any]:
        """A hit as every interface prints it; `explain` adds why it was found and how the session began and ended."""
        fields: dict[str, Any] = {name: getattr(self, name) for name in _ALWAYS_SHOWN}
        fields["matches"] = [match.to_json(self.session_uid, explain=explain) for match in self.matches]
        if self.key is not None:
            fields |= {"key": self.key, "channel": self.channel, "chat_id": self.chat_id}
        if self.missing:
            fields["missing"] = list(self.missing)
        fields |= {name: value for name in ("superseded_by", "decided") if (value := getattr(self, name))}
        if self.outcome is not None:
            fields["outcome"] = self.outcome
        if self.is_recent:
            fields["open_ends"] = list(self.open_ends)
        if explain:
            ends = {"first_request": self.first_request, "ending": self.ending}
            bookends = {name: end and end.to_json() for name, end in ends.items()}
            fields |= {"ended_at": self.ended_at, "why": self.why, "bookends": bookends}
        return fields


def identity(header: "SessionHeader") -> dict[str, Any]:
    """Return what names the session of a header, and the agent's command that continues it; a sub-agent has none."""
    is_root = header.session_uid == header.root_session_uid
    names = {name: getattr(header, name) for name in ("session_uid", "title", "agent", "repo", "cwd")}
    return names | {"resume_command": resume_command(*header.key, header.path) if is_root else None}


def hit_of(header: "SessionHeader", score: float, matches: list[Match], why: str, **more: Any) -> SessionHit:
    """A hit on the session of a header; `more` are further fields."""
    return SessionHit(
        **identity(header),
        started_at=rfc3339(header.started_ms),
        score=round(score, 4),
        evicted=header.evicted_ms is not None and not any(match.seq for match in matches),
        matches=matches,
        ended_at=rfc3339(header.ended_ms),
        why=why,
        outcome=header.outcome,
        key=header.host_key,
        channel=header.channel,
        chat_id=header.chat_id,
        **more,
    )


class Amendment(NamedTuple):
    """What a session decided in place of an earlier one, when, and the event that says so."""

    session_uid: str
    event_uid: str
    text: str
    until_then: str
    ts: str | None


class SearchAnswer(NamedTuple):
    """Sessions, best first. `suggestion` is the query that was probably meant; `notes` explain what else was done."""

    query: str
    took_ms: float
    hits: list[SessionHit]
    suggestion: str | None = None
    notes: Sequence[str] = ()
    is_cut: bool = False  # more was found than the budget allows
    total: int | None = None  # sessions that match, shown or not
    is_least: bool = False  # not all were looked at: there may be more

    def to_json(self, *, explain: bool = False) -> dict[str, Any]:
        """An answer as every interface prints it; `explain` adds why each thing was found and what was noted."""
        fields: dict[str, Any] = {
            "query": self.query,
            "took_ms": self.took_ms,
            "total": self.total,
            "total_is_least": self.is_least,
            "hits": [hit.to_json(explain=explain) for hit in self.hits],
            "suggestion": self.suggestion,
        }
        return fields | {"notes": list(self.notes)} if explain else fields


def within_budget(answer: SearchAnswer, tokens: int) -> SearchAnswer:
    """As much of an answer as an agent can afford: the best first, cut between matches, never inside one.

    It costs what it takes as JSON on one line; what `explain` adds comes on top.
    """
    left = tokens - _cost(answer._replace(hits=[]).to_json())
    hits: list[SessionHit] = []
    for hit in answer.hits:
        left -= _cost(hit._replace(matches=[]).to_json())
        kept, left = _affordable(hit, left)
        if left < 0 or (hit.matches and not kept):
            break
        hits.append(hit._replace(matches=kept))
    if len(hits) == len(answer.hits):
        return answer._replace(hits=hits)
    note = f"Cut to {tokens} tokens: {len(hits)} of {len(answer.hits)} sessions"
    return answer._replace(hits=hits, notes=[*answer.notes, note], is_cut=True)


def _affordable(hit: SessionHit, left: int) -> tuple[list[Match], int]:
    """The best matches for so many tokens, and what is left of these; their neighbours go first."""
    kept: list[Match] = []
    for match in hit.matches:
        for shown in (match, match._replace(before=[], after=[])):
            cost = _cost(shown.to_json(hit.session_uid))
            if cost <= left:
                kept.append(shown)
                left -= cost
                break
        else:
            break
    return kept, left


_BYTES_OF_TOKEN = 4  # of UTF-8: about four letters of English or code, one and a third of CJK


def _cost(answer: dict[str, Any]) -> int:
    return -(-len(orjson.dumps(answer)) // _BYTES_OF_TOKEN)


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
        quoted = [
            Glimpse(uid, 0, "digest", None, snippet(text, patterns, folded(text)))
            for uid, text in dict.fromkeys(shown[: self._matches])
        ]
        return [Match(*event, [], [], header.session_uid, 0.0, why="digest") for event in quoted]

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
