"""How well sessions match.

One query over all events and one over all digests, each the OR of the words, ranked by BM25; a word in what a person
asked weighs more than one that a tool printed. A session scores as its best event and its best digest together. Above
the score there are ranks: what is there as it was typed comes first, then, for a query of two words, what has both.
Every figure here was chosen by `bench/known_item.py`; what it did not earn (further events of a session, coverage of
the words, neighbouring words, BM25 over whole sessions, other forms of a word) is not here.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from recollect.model import kinds
from recollect.recall.filters import Scope
from recollect.recall.query import COMMON_EVENTS, FEW_WORDS, WEIGHTS, Terms, Word, terms_of
from recollect.recall.snippets import Pattern, Texts, folded, pattern_of
from recollect.store import BEST_EVENTS, IS_ABANDONED, EventFilter, Scored, SessionHeader, Store, Wanted


class Sessions:
    """Which session a stream of events belongs to. Remembers what it has read."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._headers: dict[int, SessionHeader] = {}
        self._roots: dict[str, SessionHeader] = {}

    def load(self, streams: Collection[int]) -> None:
        """Have these at hand, with the sessions that started them."""
        missing = set(streams) - self._headers.keys()
        if not missing:
            return
        keys = self._store.events.keys(missing)
        headers = self._store.sessions.of(keys.values())
        for stream, key in keys.items():
            header = self._headers[stream] = headers.get(key) or nameless(kinds.session_uid(*key))
            if header.session_uid == header.root_session_uid:
                self._roots[header.session_uid] = header
        self.named({self._headers[stream].root_session_uid for stream in keys})

    def named(self, uids: Collection[str]) -> Mapping[str, SessionHeader]:
        """Sessions by their ids, those among them that are known."""
        self._roots |= self._store.sessions.named(set(uids) - self._roots.keys())
        return self._roots

    def header(self, stream: int) -> SessionHeader:
        if stream not in self._headers:
            self.load({stream})
        return self._headers[stream]

    def root(self, stream: int) -> SessionHeader:
        """The session that a sub-agent's events are shown under."""
        header = self.header(stream)
        return self._roots.get(header.root_session_uid, header)

    def streams_below(self, uids: Collection[str]) -> set[int]:
        """The streams at hand of these sessions and their sub-agents."""
        return {stream for stream in self._headers if self.root(stream).session_uid in uids} if uids else set()


class Candidate:
    """A session that matches, with its best events, the best first, and the best digest of it and its sub-agents."""

    def __init__(self, header: SessionHeader) -> None:
        self.header = header
        self.events: list[Scored] = []
        self.digest: SessionHeader | None = None
        self.score = 0.0
        self.is_verbatim = False
        self.is_complete = True
        self.missing: tuple[str, ...] = ()

    def order(self) -> tuple[Any, ...]:
        """By what candidates are sorted; the newer one wins a tie."""
        last_ms = max((event.ts_ms or 0 for event in self.events), default=self.header.ended_ms or 0)
        return (not self.is_verbatim, not self.is_complete, -self.score, -last_ms, self.header.session_uid)


def nameless(uid: str) -> SessionHeader:
    """A session that a sweep has begun to read and has not accounted for yet."""
    agent, _, native_id = uid.partition(":")
    return SessionHeader(agent, native_id, uid, uid, None, None, None, None, None)


class Coverage:
    """Chooses events for one search. `patterns` find its words in folded texts, the rarest first."""

    def __init__(self, store: Store, sessions: Sessions, terms: Terms, chosen: EventFilter) -> None:
        self._index = store.words
        self._sessions = sessions
        self._chosen = chosen
        words = sorted(terms.words, key=lambda word: word.total)
        self._sought = [(word, pattern) for word in words if (pattern := pattern_of(word.choice))]
        parts = [pattern for word in terms.parts if (pattern := pattern_of(word.choice))]
        self.patterns = [*(pattern for _, pattern in self._sought), *parts]
        self._any = terms_of([tuple(dict.fromkeys(phrase for word in words for phrase in word.choice))])
        self._excluded = terms_of([terms.excluded])[0]
        self._places: dict[int, set[int]] = {}  # of the words that an event has

    def choose(self, candidates: Sequence[Candidate], texts: Texts, most: int) -> None:
        """Put the events to show first. A word that none of a session's best events has brings one that has it."""
        pools = {candidate.header.session_uid: candidate.events[:most] for candidate in candidates}
        self._read([event for events in pools.values() for event in events], texts)
        for place, (word, _) in enumerate(self._sought[:FEW_WORDS]):
            lacking = {
                candidate.header.session_uid
                for candidate in candidates
                if word.text not in candidate.missing
                and not any(place in self._places[event.id] for event in pools[candidate.header.session_uid])
            }
            best = self._best_with(word, lacking)
            self._read([event for event in best.values() if event.id not in self._places], texts)
            for uid, event in best.items():
                self._places[event.id].add(place)  # the index knows spellings that a pattern does not
                pools[uid] += [event] if event.id not in {other.id for other in pools[uid]} else []
        for candidate in candidates:
            events = pools[candidate.header.session_uid]
            # What was typed as it is in the text stays the first.
            candidate.events = self._covering(events, int(candidate.is_verbatim))

    def _read(self, events: Sequence[Scored], texts: Texts) -> None:
        texts.read({event.id for event in events})
        for event in events:
            text = texts.folded(event.id) if event.id in texts else ""
            self._places[event.id] = {
                place for place, (_, pattern) in enumerate(self._sought) if pattern.search(text) is not None
            }

    def _best_with(self, word: Word, uids: Collection[str]) -> dict[str, Scored]:
        """The best event with a word of each session that has one."""
        streams = self._sessions.streams_below(uids) if 0 < word.total <= COMMON_EVENTS else set()
        if not streams:
            return {}
        wanted = Wanted((*terms_of([word.choice]), *self._any), self._excluded)
        chosen = self._chosen._replace(streams=tuple(sorted(streams)))
        events = [
            event for month in self._index.months() for event in self._index.find(month, wanted, WEIGHTS, chosen, 1)
        ]
        events.sort(key=lambda event: (event.score, event.id))
        return {self._sessions.root(event.stream).session_uid: event for event in events}

    def _covering(self, events: Sequence[Scored], fixed: int) -> list[Scored]:
        """The events, each time the one next that has the rarest of the words not shown yet."""
        chosen, rest = list(events[:fixed]), list(events[fixed:])
        shown = {place for event in chosen for place in self._places[event.id]}
        while rest:
            best = max(rest, key=lambda event: self._adds(event, shown))
            rest.remove(best)
            chosen.append(best)
            shown |= self._places[best.id]
        return chosen

    def _adds(self, event: Scored, shown: Collection[int]) -> list[bool]:
        places = self._places[event.id]
        return [place in places and place not in shown for place in range(len(self._sought))]


RANKED_EVENTS = 120_000  # that a query may match, which takes about 0.2 s
_EVICTED = 3.0  # what a digest counts where the events, which count about twice as much, are gone
_ABANDONED = 0.6  # what was rewound is still evidence, of what did not work
_OF_REPO = 1.5  # a session of a repository that the query names
_ALL_FIRST = 2  # words of a query for which sessions that have all of them come first
_TITLE = 0.15  # the most that a title adds: all of the words, by how rare each is
_RECENCY = 0.05  # the most that being new adds: enough to break a tie
_RECENCY_MS = 90 * 86_400_000


class Ranking:
    """Ranks sessions for one search."""

    def __init__(self, store: Store, scope: Scope, sessions: Sessions, now_ms: int, matches: int) -> None:
        self._store = store
        self._index = store.words
        self._scope = scope
        self._sessions = sessions
        self._now_ms = now_ms
        self._of_session = matches
        self._months = self._index.months()
        self.is_partial = False  # whether sessions may match that were not looked at

    def candidates(self, terms: Terms, with_digests: bool, notes: list[str]) -> list[Candidate]:
        """Sessions that have any of the words, to be sorted by `Candidate.order`."""
        candidates: dict[str, Candidate] = {}
        used, columns = self._affordable([*terms.words, *terms.parts], notes)
        wanted = self._wanted(used, terms, columns)
        most = max(sum(word.events.get(month, 0) for word in used) for month in self._months) if self._months else 0
        self.is_partial = most > BEST_EVENTS or columns is not None or len(used) < len(terms.words) + len(terms.parts)
        self._add_events(candidates, self._find(wanted, used, self._scope.events))
        if with_digests:
            self._add_digests(candidates, self._wanted([*terms.words, *terms.parts], terms))
        having = self._having(terms.words, with_digests)
        complete = self._complete(terms.words, having)
        self._add_events_of(candidates, complete - candidates.keys(), wanted, used)
        if terms.sentence is not None:
            self._add_verbatim(candidates, terms.sentence)
        titled = self._title_words(terms.words)
        for uid, candidate in candidates.items():
            candidate.is_complete = uid in complete
            self._settle(candidate, terms.words, having, titled)
        required = [roots for word, roots in having if word.is_required]
        return [candidate for uid, candidate in candidates.items() if all(uid in roots for roots in required)]

    def _affordable(self, words: Sequence[Word], notes: list[str]) -> tuple[list[Word], tuple[str, ...] | None]:
        """The rarer words, as far as all events that match can be ranked, and the columns to look in."""
        by_rarity = sorted(words, key=lambda word: word.total)
        kept: list[Word] = []
        total = 0
        for word in by_rarity:
            total += word.total
            if kept and total > RANKED_EVENTS:
                break
            kept.append(word)
        left_out = [f"`{word.text}`" for word in by_rarity[len(kept) :] if word in words]
        if left_out:
            notes.append(f"Too common for ranking events: {', '.join(left_out)}")
        if kept and kept[0].total > RANKED_EVENTS:
            notes.append(f"`{kept[0].text}` is in {kept[0].total:,} events: only requests were ranked")
            return kept, ("asked",)
        return kept, None

    def _wanted(self, words: Iterable[Word], terms: Terms, columns: tuple[str, ...] | None = None) -> Wanted:
        choices = tuple(dict.fromkeys(phrase for word in words for phrase in word.choice))
        return Wanted(terms_of([choices]), terms_of([terms.excluded])[0], columns)

    def _find(self, wanted: Wanted, words: Sequence[Word], chosen: EventFilter) -> list[Scored]:
        events: list[Scored] = []
        for month in self._months:
            scale = self._scale(month, words)
            found = self._index.find(month, wanted, WEIGHTS, chosen, self._of_session)
            events += [self._adjusted(event, scale) for event in found]
        return events

    def _scale(self, month: str, words: Sequence[Word]) -> float:
        """What makes a month's scores comparable: how rare the words are in all, against how rare in it."""
        if len(self._months) == 1:
            return 1.0
        everywhere = sum(self._months.values())
        here = sum(_rarity(word.events.get(month, 0), self._months[month]) for word in words)
        overall = sum(_rarity(word.total, everywhere) for word in words)
        return overall / here if here > 0 else 1.0

    def _adjusted(self, event: Scored, scale: float) -> Scored:
        age_ms = max(0, self._now_ms - (event.ts_ms or 0))
        recency = 1 + _RECENCY * math.exp(-age_ms / _RECENCY_MS)
        rewound = _ABANDONED if event.flags & IS_ABANDONED else 1.0
        return event._replace(score=event.score * scale * recency * rewound)

    def _add_events(self, candidates: dict[str, Candidate], events: Sequence[Scored]) -> None:
        self._sessions.load({event.stream for event in events})
        for event in sorted(events, key=lambda event: (-event.score, -event.id)):
            self._candidate(candidates, event).events.append(event)
        for candidate in candidates.values():
            candidate.score = candidate.events[0].score

    def _candidate(self, candidates: dict[str, Candidate], event: Scored) -> Candidate:
        root = self._sessions.root(event.stream)
        return candidates.setdefault(root.session_uid, Candidate(root))

    def _add_digests(self, candidates: dict[str, Candidate], wanted: Wanted) -> None:
        """Add what the best digest of each session and its sub-agents scores; they come best first."""
        expression = self._index.expression(wanted)
        found = self._store.digests.search(expression, self._scope.timed) if expression else []
        roots = self._sessions.named({header.root_session_uid for header, _ in found})
        for header, score in found:
            root = roots.get(header.root_session_uid, header)
            candidate = candidates.setdefault(root.session_uid, Candidate(root))
            if candidate.digest is None:
                candidate.digest = header
                candidate.score += score * (_EVICTED if header.evicted_ms is not None else 1.0)

    def _having(self, words: Sequence[Word], with_digests: bool) -> list[tuple[Word, set[str]]]:
        """The sessions that have each of a few words; of more, those with the rarest, and what is required."""
        if len(words) == 1:
            return []  # all candidates have it
        rarest = sorted(words, key=lambda word: word.total)[:1]
        looked_up = [word for word in words if len(words) <= FEW_WORDS or word in rarest or word.is_required]
        return [
            (word, self._sessions_with(word, with_digests))
            for word in looked_up
            if word.is_required or word.total <= COMMON_EVENTS
        ]

    def _sessions_with(self, word: Word, with_digests: bool) -> set[str]:
        wanted = Wanted(terms_of([word.choice]))
        streams = self._index.sessions_with(wanted, self._scope.events)
        self._sessions.load(streams)
        roots = {self._sessions.root(stream).session_uid for stream in streams}
        if with_digests:
            roots |= self._store.digests.roots(self._index.expression(wanted))
        if word.is_repo:
            roots |= self._store.sessions.roots_of_repo(word.text)
        return roots

    def _complete(self, words: Sequence[Word], having: Sequence[tuple[Word, set[str]]]) -> set[str]:
        """The sessions that come first for having all of a few words: of more than two, only one that is alone in that.

        Long sessions have three words somewhere, whatever they are about.
        """
        if len(words) > FEW_WORDS or not having:
            return set()
        complete = set.intersection(*(roots for _, roots in having))
        return complete if len(words) <= _ALL_FIRST or len(complete) == 1 else set()

    def _add_events_of(
        self, candidates: dict[str, Candidate], uids: set[str], wanted: Wanted, used: Sequence[Word]
    ) -> None:
        """Add sessions none of whose events is among the best."""
        streams = self._sessions.streams_below(uids)
        if streams:
            chosen = self._scope.events._replace(streams=tuple(sorted(streams)))
            others: dict[str, Candidate] = {}
            self._add_events(others, self._find(wanted, used, chosen))
            candidates.update(others)

    def _add_verbatim(self, candidates: dict[str, Candidate], sentence: Word) -> None:
        """Mark the sessions in which the query stands as a whole, and have those events shown first."""
        wanted = Wanted(terms_of([sentence.choice]))
        events = self._find(wanted, [sentence], self._scope.events)
        self._sessions.load({event.stream for event in events})
        for event in sorted(events, key=lambda event: (event.score, event.id)):
            candidate = self._candidate(candidates, event)
            candidate.is_verbatim = True
            candidate.events = [event, *(other for other in candidate.events if other.id != event.id)]

    def _title_words(self, words: Sequence[Word]) -> list[tuple[Pattern, float]]:
        """What finds each word in a folded title, and its share of the query."""
        everywhere = sum(self._months.values())
        rarity = {word.choice: _rarity(word.total, everywhere) for word in words}
        patterns = [(pattern_of(choice), share / sum(rarity.values())) for choice, share in rarity.items()]
        return [(pattern, share) for pattern, share in patterns if pattern is not None]

    def _settle(
        self,
        candidate: Candidate,
        words: Sequence[Word],
        having: Sequence[tuple[Word, set[str]]],
        titled: Sequence[tuple[Pattern, float]],
    ) -> None:
        uid = candidate.header.session_uid
        missing = [word for word, roots in having if uid not in roots]
        candidate.missing = tuple(word.text for word in missing)
        if any(candidate.header.is_of_repo(word.text) for word in words if word.is_repo):
            candidate.score *= _OF_REPO
        if candidate.header.title:
            title = folded(candidate.header.title)
            candidate.score *= 1 + _TITLE * sum(share for pattern, share in titled if pattern.search(title))


def _rarity(having: int, total: int) -> float:
    """As FTS5's bm25() has it, which never lets a word count for nothing."""
    return max(math.log((total - having + 0.5) / (having + 0.5)), 1e-6)
