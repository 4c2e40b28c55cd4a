"""Find sessions by what was said, done and printed in them. See docs/search.md."""

import time
from collections.abc import Callable, Collection
from datetime import datetime
from typing import NamedTuple

from recollect.recall.answers import SearchAnswer, SessionHit, within_budget
from recollect.recall.hits import Hits
from recollect.recall.query import Phrase, Query, parse_query
from recollect.recall.ranking import Needs, Ranked, Ranking, combined, grouped
from recollect.recall.scope import card_filter, event_filter
from recollect.recall.spelling import suggestion
from recollect.store import Store
from recollect.store.cards import CardFilter
from recollect.store.fulltext_search import EventFilter, Found, OutOfTime

ENOUGH = 5  # sessions; fewer with all the words in one event, and those with some of them are shown too
_SHARE_OF_DIGESTS = 4  # of the hits shown, one in so many may be a session of which only the digest is left
SECONDS = 0.8  # of the processor, after which a question to the index is given up

Progress = Callable[[int, int], None]


class Options(NamedTuple):
    """How much to show, and what to leave out."""

    limit: int = 10
    matches: int = 3
    context: int = 2
    budget_tokens: int | None = None
    exclude: Collection[str] = ()  # sessions that are not to be found, by id
    mode: str = "words"  # or "substring", "regex"
    scan_seconds: float = 20.0


def search(
    store: Store,
    text: str,
    options: Options | None = None,
    now: datetime | None = None,
    progress: Progress = lambda done, total: None,
) -> SearchAnswer:
    """Answer a query; never fails for what is in it. An empty one shows recent sessions."""
    options, begun = options or Options(), time.perf_counter()
    asked = _Search(store, options, now or datetime.now().astimezone(), progress)
    answer = asked.literal(text) if options.mode != "words" and text.strip() else asked.answer(text)
    answer = answer._replace(took_ms=round((time.perf_counter() - begun) * 1000, 3))
    return within_budget(answer, options.budget_tokens) if options.budget_tokens is not None else answer


def recent_sessions(
    store: Store, limit: int, *, repo: str | None = None, agent: str | None = None, exclude: Collection[str] = ()
) -> SearchAnswer:
    """The sessions that were active last, each with its last request."""
    begun = time.perf_counter()
    told = (("repo", repo), ("agent", agent))
    wanted = CardFilter(tuple((name, (value,)) for name, value in told if value is not None))
    left_out = event_filter(store, Query(""), datetime.now().astimezone(), exclude, []).excluded_streams
    hits = Hits(store, 1, 0).recent(limit, wanted, left_out)
    return SearchAnswer("", round((time.perf_counter() - begun) * 1000, 3), hits)


class _Search:
    def __init__(self, store: Store, options: Options, now: datetime, progress: Progress) -> None:
        self._store = store
        self._options = options
        self._now = now
        self._progress = progress
        self._hits = Hits(store, options.matches, options.context)
        self._notes: list[str] = []

    def answer(self, text: str) -> SearchAnswer:
        query = parse_query(text, self._now)
        self._notes += query.notes
        chosen = event_filter(self._store, query, self._now, self._options.exclude, self._notes)
        if not self._store.fulltext_search.months() and not query.is_empty:
            self._notes.append("nothing is indexed yet: `recollect sweep` does it")
        index = self._store.fulltext_search
        index.limit_time(SECONDS)
        try:
            found, meant = self._found(query, chosen)
        except OutOfTime:
            self._notes.append(f"gave up after {SECONDS} s: fewer or rarer words are quicker")
            found, meant = Ranked(), None
        finally:
            index.limit_time(None)
        return self._shown(query, found, chosen, meant)

    def _found(self, query: Query, chosen: EventFilter) -> tuple[Ranked, Query | None]:
        """Sessions for a query, and the query as it was probably meant if it has a word that nothing has."""
        if query.is_empty:
            return Ranked(), None
        index = self._store.fulltext_search
        needs = [need for need in query.needs if any(index.tokens(phrase.text) for phrase in need)]
        if not needs:
            return self._newest(query, chosen), None
        ranking = Ranking(index, chosen, round(self._now.timestamp() * 1000))
        found = self._with_all(ranking, needs, query)
        meant = None if found.scores else self._corrected(query)
        if meant is not None:
            needs = [need for need in meant.needs if any(index.tokens(phrase.text) for phrase in need)]
            found = self._with_all(ranking, needs, query)
        if len(needs) > 1 and len(found.scores) < min(ENOUGH, self._options.limit):
            found = self._with_some(ranking, needs, query, found)
        if found.is_partial:
            self._notes.append("very many events match: only the newest were ranked")
        return found, meant

    def _with_all(self, ranking: Ranking, needs: Needs, query: Query) -> Ranked:
        events = ranking.all_of(needs, query.excluded)
        found = grouped(events, self._hits.roots({event.stream for event in events.events}))
        self._hits.verify(found, [phrase for need in needs if len(need) == 1 for phrase in need], self._notes)
        return found

    def _with_some(self, ranking: Ranking, needs: Needs, query: Query, found: Ranked) -> Ranked:
        """Sessions by what they have of the words, those among them that have all in one event."""
        needs = ranking.rare(needs)
        by_need = ranking.any_of(needs, query.excluded)
        roots = self._hits.roots({event.stream for some in by_need for event in some.events})
        others = combined(by_need, [ranking.rarity(need) for need in needs], roots, self._hits.relative_length)
        for session, events in others.events.items():
            found.events.setdefault(session, events)
            found.scores[session] = max(found.scores.get(session, 0.0), others.scores[session])
        return found

    def _newest(self, query: Query, chosen: EventFilter) -> Ranked:
        """No word in the query: what the filters let through, newest first."""
        if not query.filters:
            return Ranked()
        events = self._store.fulltext_search.newest(chosen, 300)
        found = grouped(Found(events, False), self._hits.roots({event.stream for event in events}))
        found.scores = {session: float(len(found.scores) - place) for place, session in enumerate(found.scores)}
        return found

    def _corrected(self, query: Query) -> Query | None:
        """The query with words that nothing has put right; None if there is nothing to put right."""
        index = self._store.fulltext_search
        changes: dict[Phrase, Phrase] = {}
        for phrase in (phrase for need in query.needs for phrase in need if not phrase.is_prefix):
            tokens = index.tokens(phrase.text)
            unknown = [token for token in tokens if not index.has(token)]
            better = {token: meant for token in unknown if (meant := suggestion(index, token))}
            if better:
                text = " ".join(better.get(token, token) for token in tokens)
                changes[phrase] = phrase._replace(text=text)
        if not changes:
            return None
        text = query.text
        for phrase, other in changes.items():
            text = text.replace(phrase.text, other.text)
        needs = tuple(tuple(changes.get(phrase, phrase) for phrase in need) for need in query.needs)
        return query._replace(text=text, needs=needs)

    def _shown(self, query: Query, found: Ranked, chosen: EventFilter, meant: Query | None) -> SearchAnswer:
        phrases = [phrase for need in (meant or query).needs for phrase in need]
        if query.is_empty:
            recent = self._hits.recent(self._options.limit, card_filter(query), chosen.excluded_streams)
            return SearchAnswer(query.text, 0.0, recent, None, self._notes)
        hits = self._hits.of(found, phrases, self._options.limit)
        hits = self._with_evicted(meant._replace(filters=query.filters) if meant else query, chosen, hits)
        return SearchAnswer(query.text, 0.0, hits, meant.text if meant else None, self._notes)

    def _with_evicted(self, query: Query, chosen: EventFilter, hits: list[SessionHit]) -> list[SessionHit]:
        """Sessions of which only a digest is left have the room that is free, and some of it if none is."""
        from recollect.recall.digests import digest_hits

        limit = self._options.limit
        shown = [*self._options.exclude, *(hit.session_uid for hit in hits)]
        room = max(limit - len(hits), limit // _SHARE_OF_DIGESTS)
        times = (chosen.since_ms, chosen.before_ms)
        found = digest_hits(self._store, query, room, self._options.matches, times, shown)
        return [*hits[: limit - len(found)], *found]

    def literal(self, text: str) -> SearchAnswer:
        """Substrings and regular expressions, verified in the payloads."""
        from recollect.recall.scan import compiled, literal_matches

        chosen = event_filter(self._store, Query(text), self._now, self._options.exclude, self._notes)
        pattern = compiled(text, self._options.mode == "regex", self._notes)
        seconds = self._options.scan_seconds
        events = literal_matches(self._store, pattern, seconds, chosen, self._progress, self._notes)
        found = grouped(Found(events, False), self._hits.roots({event.stream for event in events}))
        hits = self._hits.of(found, [], self._options.limit, pattern)
        return SearchAnswer(text, 0.0, hits, None, self._notes)
