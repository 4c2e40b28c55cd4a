"""The sessions that match, while they are ranked, and the events that each is shown by."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from recollect import kinds
from recollect.recall.snippets import Texts, pattern_of
from recollect.recall.words import COMMON_EVENTS, FEW_WORDS, WEIGHTS, Terms, Word, terms_of
from recollect.store import EventFilter, Scored, SessionHeader, Store, Wanted


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
        return self._headers[stream]

    def root(self, stream: int) -> SessionHeader:
        """The session that a sub-agent's events are shown under."""
        header = self._headers[stream]
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
