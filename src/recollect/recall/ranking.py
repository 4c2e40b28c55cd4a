"""How well events and sessions fit.

An event is ranked by BM25, with more weight for what a person said than for what a tool printed. A session is
ranked by its best events. Where no event has all the words, a session counts by the best place of each
word: a conversation about something seldom says it all in one breath.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from recollect.recall.query import MOST_WORDS, Phrase
from recollect.store.flags import IS_ABANDONED
from recollect.store.fulltext_search import RANKED_ROWS, EventFilter, Found, FulltextSearch, Scored, Term, Wanted
from recollect.text import Columns

_WEIGHTS = {"got": 1.0, "said": 2.0, "did": 1.5, "asked": 3.0, "parts": 0.7}
WEIGHTS = tuple(_WEIGHTS[column] for column in Columns._fields)
COMMON_SHARE = 0.1  # of all events: a word that stands in more says little,
COMMON_EVENTS = 5_000  # and is left out if looking at it takes long
EVENTS_RANKED = 500  # best ones looked at of a question
EVENTS_OF_SESSION = 5  # of them, so that one session does not hide the others
EVENTS_OF_WORD = 1000  # the same for each word by itself
_NEXT_BEST = 0.25  # how much a session's second best event counts, and so on
_WHOLE = 1.5  # what says just this, against what says it among other things
_ABANDONED = 0.6  # what was rewound is still evidence, of what did not work
_RECENCY = 0.05  # the most that being new adds: enough to break a tie
_SATURATION, _LENGTH_COUNTS = 1.2, 0.75  # BM25's usual k1 and b, of whole sessions
_RECENCY_MS = 90 * 86_400_000

Needs = Sequence[Sequence[Phrase]]


class Words:
    """How common words are, by month and all together. Counted when asked for: a very common word takes a while."""

    def __init__(self, index: FulltextSearch) -> None:
        self._index = index
        self._counted: dict[str, dict[str, int]] = {}
        self.events = index.months()
        self.total = sum(self.events.values())

    def by_month(self, token: str) -> Mapping[str, int]:
        if token not in self._counted:
            found = self._index.frequencies([token])
            self._counted[token] = {month: words.get(token, 0) for month, words in found.items()}
        return self._counted[token]

    def count(self, token: str) -> int:
        return sum(self.by_month(token).values())

    def scale(self, month: str, tokens: Sequence[str]) -> float:
        """What makes a month's scores comparable: how rare the words are in all, against how rare in it."""
        if len(self.events) == 1:
            return 1.0
        here = sum(_rarity(self.by_month(token).get(month, 0), self.events[month]) for token in tokens)
        overall = sum(_rarity(self.count(token), self.total) for token in tokens)
        return overall / here if here > 0 else 1.0


def _rarity(having: int, total: int) -> float:
    """As FTS5's bm25() has it, which never lets a word count for nothing."""
    return max(math.log((total - having + 0.5) / (having + 0.5)), 1e-6)


class Ranked:
    """Events by session's stream, best first, and the score of each session."""

    def __init__(self, is_partial: bool = False) -> None:
        self.events: dict[int, list[Scored]] = {}
        self.scores: dict[int, float] = {}
        self.is_partial = is_partial


class Ranking:
    """Asks the index and orders what it finds. Made for one search."""

    def __init__(self, index: FulltextSearch, chosen: EventFilter, now_ms: int) -> None:
        self._index = index
        self._chosen = chosen
        self._now_ms = now_ms
        self.words = Words(index)

    def all_of(self, needs: Needs, excluded: Sequence[Phrase]) -> Found:
        """Events that have everything."""
        whole = " ".join(need[0].text for need in needs)
        wanted = Wanted(terms(needs), terms([excluded])[0], whole=whole)
        return self._find(wanted, EVENTS_RANKED, RANKED_ROWS, EVENTS_OF_SESSION)

    def any_of(self, needs: Needs, excluded: Sequence[Phrase]) -> list[Found]:
        """For each need, the events that have it."""
        left_out = terms([excluded])[0]
        rows = max(RANKED_ROWS // 4 // max(1, len(needs)), 1000)
        return [self._find(Wanted(terms([need]), left_out), EVENTS_OF_WORD, rows) for need in needs]

    def rare(self, needs: Needs) -> Needs:
        """Those worth asking for by themselves; if all are common, all are."""
        most = max(COMMON_SHARE * self.words.total, COMMON_EVENTS)

        def is_rare(need: Sequence[Phrase]) -> bool:
            return any(self._rarest(phrase) <= most for phrase in need)

        return [need for need in needs if is_rare(need)] or needs

    def apart(self, needs: Needs) -> Needs:
        """The needs, and of what was written as one (`action-taking`) its words too: elsewhere they stand apart."""
        written = [need[0] for need in needs if len(need) == 1 and not (need[0].is_quoted or need[0].is_prefix)]
        words = [(Phrase(token),) for phrase in written if len(tokens := self._index.tokens(phrase.text)) > 1
                 for token in tokens]  # fmt: skip
        return list(dict.fromkeys([*map(tuple, needs), *words]))[:MOST_WORDS]

    def rarity(self, need: Sequence[Phrase]) -> float:
        """How telling a need is: by the least common word of the most common phrase."""
        having = max(self._rarest(phrase) for phrase in need)
        return math.log(1 + (self.words.total - having + 0.5) / (having + 0.5))

    def _rarest(self, phrase: Phrase) -> int:
        return min((self.words.count(token) for token in self._index.tokens(phrase.text)), default=0)

    def _find(self, wanted: Wanted, limit: int, rows: int, of_session: int = RANKED_ROWS) -> Found:
        words = self.words
        tokens = [token for need in wanted.needs for term in need for token in self._index.tokens(term.text)]
        events: list[Scored] = []
        is_partial = False
        for month in words.events:
            found = self._index.find(month, wanted, WEIGHTS, self._chosen, limit, rows, of_session)
            scale = words.scale(month, tokens)
            events += [self._adjusted(event, scale) for event in found.events]
            is_partial |= found.is_partial
        return Found(sorted(events, key=lambda event: (-event.score, -event.id))[:limit], is_partial)

    def _adjusted(self, event: Scored, scale: float) -> Scored:
        age_ms = max(0, self._now_ms - (event.ts_ms or 0))
        recency = 1 + _RECENCY * math.exp(-age_ms / _RECENCY_MS)
        rewound = _ABANDONED if event.flags & IS_ABANDONED else 1.0
        whole = _WHOLE if event.is_whole else 1.0
        return event._replace(score=event.score * scale * recency * rewound * whole)


def terms(needs: Needs) -> tuple[tuple[Term, ...], ...]:
    return tuple(tuple(Term(phrase.text, phrase.is_prefix) for phrase in need) for need in needs)


def grouped(found: Found, session_of: Mapping[int, int]) -> Ranked:
    """Events that each have all that was asked for: a session is as good as its best, and a little for the next."""
    ranked = Ranked(is_partial=found.is_partial)
    for event in found.events:
        ranked.events.setdefault(session_of[event.stream], []).append(event)
    for session, events in ranked.events.items():
        ranked.scores[session] = sum(event.score * _NEXT_BEST**place for place, event in enumerate(events[:5]))
    return ranked


def combined(
    by_need: Sequence[Found],
    rarities: Sequence[float],
    session_of: Mapping[int, int],
    length_of: Callable[[int], float],
) -> Ranked:
    """Sessions by the event that has most of the words, and by BM25 of the session as a whole.

    For the latter a word counts by the number of events that have it; `length_of` tells a session's against the usual.
    """
    ranked = Ranked(is_partial=any(found.is_partial for found in by_need))
    whole: dict[int, Scored] = {}
    counts: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for number, found in enumerate(by_need):
        for event in found.events:
            known = whole.get(event.id)
            whole[event.id] = event if known is None else known._replace(score=known.score + event.score)
            counts[session_of[event.stream]][number] += 1
    for event in sorted(whole.values(), key=lambda event: -event.score):
        ranked.events.setdefault(session_of[event.stream], []).append(event)
    for session, having in counts.items():
        length = 1 - _LENGTH_COUNTS + _LENGTH_COUNTS * length_of(session)
        overall = sum(
            rarities[number] * count * (_SATURATION + 1) / (count + _SATURATION * length)
            for number, count in having.items()
        )
        # What a session lacks, rare words above all, it loses: else short events with most of the words win.
        covered = sum(rarities[number] for number in having) / sum(rarities)
        ranked.scores[session] = (ranked.events[session][0].score + overall) * covered
    return ranked
