"""Which events a session is shown by: together they have the words of the query, the rarest first."""

from collections.abc import Collection, Sequence

from recollect.recall.candidates import Candidate, Sessions
from recollect.recall.snippets import Texts, pattern_of
from recollect.recall.terms import COMMON_EVENTS, FEW_WORDS, WEIGHTS, Terms, Word, terms_of
from recollect.store import EventFilter, Scored, Store, Wanted


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
