"""Find sessions by what was said, done and printed in them. See docs/search.md."""

import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import NamedTuple

from recollect.recall.answers import SearchAnswer, SessionHit, within_budget
from recollect.recall.digests import digest_hits, held_by_digest
from recollect.recall.hits import Hits
from recollect.recall.query import Filter, Phrase, Query, parse_query, without_filters
from recollect.recall.ranking import Needs, Ranked, Ranking, combined, grouped
from recollect.recall.scope import OF_SESSIONS, Scope, scope_of
from recollect.recall.snippets import is_exact
from recollect.recall.spelling import suggestion
from recollect.store import Store
from recollect.store.fulltext_search import EventFilter, Found, OutOfTime, Scored

ENOUGH = 5  # sessions; fewer with all the words in one event, and those with some of them are shown too
_SHARE_OF_DIGESTS = 4  # of the hits shown, one in so many may be a session of which only the digest is left
_BY_DIGEST = 20  # sessions whose digest has all the words
_WEIGHT_OF_DIGEST = 2.0  # against an event: it tells what the session is about
_SESSIONS_AT_ONCE = 100
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
    filters = tuple(Filter(name, value) for name, value in told if value is not None)
    notes: list[str] = []
    scope = scope_of(store, Query("", filters=filters), datetime.now().astimezone(), exclude, notes)
    hits = Hits(store, 1, 0).recent(limit, scope)
    return SearchAnswer("", round((time.perf_counter() - begun) * 1000, 3), hits, notes=notes)


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
        scope = scope_of(self._store, query, self._now, self._options.exclude, self._notes)
        if not query.is_empty and not self._store.fulltext_search.months() and not self._store.cards.digest_count():
            self._notes.append("nothing is indexed yet: `recollect sweep` does it")
        index = self._store.fulltext_search
        index.limit_time(SECONDS)
        try:
            found, meant = self._found(query, scope)
        except OutOfTime:
            self._notes.append(f"gave up after {SECONDS} s: fewer or rarer words are quicker")
            found, meant = Ranked(), None
        finally:
            index.limit_time(None)
        if query.has_of_events:
            self._say_what_is_gone(scope, "filters of events")
        return self._shown(query, found, scope, meant)

    def _say_what_is_gone(self, scope: Scope, what: str) -> None:
        times = (scope.events.since_ms, scope.events.before_ms)
        if gone := self._store.cards.evicted_count(scope.cards, *times):
            told = "1 session is" if gone == 1 else f"{gone:,} sessions are"
            self._notes.append(f"{told} left as digests only, which {what} cannot look into")

    def _found(self, query: Query, scope: Scope) -> tuple[Ranked, Query | None]:
        """Sessions for a query, and the query as it was probably meant if it has a word that nothing has."""
        if query.is_empty:
            return Ranked(), None
        if not self._needs(query):
            return self._newest(query, scope.events), None
        ranking = Ranking(self._store.fulltext_search, scope.events, round(self._now.timestamp() * 1000))
        found, meant = self._with_all(ranking, query), None
        by_digest = {} if found.scores and _is_exact(query) else self._by_digest(query, scope)
        is_found = found.scores or by_digest or self._evicted(query, scope, 1)
        if not is_found and (meant := self._corrected(query)):
            found, by_digest = self._with_all(ranking, meant), self._by_digest(meant, scope)
        needs = self._needs(meant or query)
        if len(needs) > 1 and len(found.scores) < min(ENOUGH, self._options.limit):
            found = self._with_some(ranking, needs, query, found)
        if found.is_partial:
            self._notes.append("very many events match: only the newest were ranked")
        return self._with_digests(found, by_digest), meant

    def _needs(self, query: Query) -> Needs:
        """What of a query has words in it."""
        index = self._store.fulltext_search
        return [need for need in query.needs if any(index.tokens(phrase.text) for phrase in need)]

    def _with_all(self, ranking: Ranking, query: Query) -> Ranked:
        needs = self._needs(query)
        events = ranking.all_of(needs, query.excluded)
        found = grouped(events, self._hits.roots({event.stream for event in events.events}))
        self._hits.verify(found, [phrase for need in needs if len(need) == 1 for phrase in need], self._notes)
        return found

    def _with_some(self, ranking: Ranking, needs: Needs, query: Query, found: Ranked) -> Ranked:
        """Sessions by what they have of the words, those among them that have all in one event."""
        needs = ranking.rare(ranking.apart(needs))
        by_need = ranking.any_of(needs, query.excluded)
        roots = self._hits.roots({event.stream for some in by_need for event in some.events})
        others = combined(by_need, [ranking.rarity(need) for need in needs], roots, self._hits.relative_length)
        for session, events in others.events.items():
            found.events.setdefault(session, events)
            found.scores[session] = max(found.scores.get(session, 0.0), others.scores[session])
        return found

    def _by_digest(self, query: Query, scope: Scope) -> dict[int, float]:
        """Sessions whose digest has all the words, above all in the title, and how well it fits."""
        found = held_by_digest(self._store, query, _BY_DIGEST, scope)
        return {stream: found[key] for key, stream in self._store.excerpts.streams(found.keys()).items()}

    def _with_digests(self, found: Ranked, by_digest: Mapping[int, float]) -> Ranked:
        """What fits by its digest is better for it, and is shown by its first request if no event of it fits."""
        roots = self._hits.roots(by_digest.keys())
        for session, score in ((roots[stream], score) for stream, score in by_digest.items()):
            begun = None if session in found.events else self._hits.begun_with(session)
            if begun is not None:
                found.events[session] = [begun]
            if session in found.events:
                found.scores[session] = found.scores.get(session, 0.0) + score * _WEIGHT_OF_DIGEST
        return found

    def _newest(self, query: Query, chosen: EventFilter) -> Ranked:
        """No word in the query: the last events that the filters let through, of the sessions active last."""
        if not query.filters:
            self._notes.append("there is no word in it to look up; `--substring` finds signs too")
        if not query.filters or _is_of_sessions(query):
            return Ranked()
        events: list[Scored] = []
        place, roots = 0, self._hits.root_of
        while keys := self._store.cards.latest(_SESSIONS_AT_ONCE, place):
            place += len(keys)
            streams = set(self._store.excerpts.streams(keys.keys()).values())
            some = tuple(sorted(streams if chosen.streams is None else streams & set(chosen.streams)))
            events += self._store.fulltext_search.latest(chosen._replace(streams=some), self._options.matches)
            roots = self._hits.roots({event.stream for event in events})
            # Sessions that ended earlier have no newer events than these.
            newest = {roots[event.stream] for event in events if (event.ts_ms or 0) >= min(keys.values())}
            if len(newest) >= self._options.limit:
                break
        events.sort(key=lambda event: -(event.ts_ms or 0))
        return grouped(Found(events, False), roots)

    def _corrected(self, query: Query) -> Query | None:
        """The query with words that nothing has put right; None if there is nothing to put right."""
        index = self._store.fulltext_search
        changes: dict[Phrase, Phrase] = {}
        for phrase in (phrase for need in query.needs for phrase in need if not phrase.is_prefix):
            tokens = index.tokens(phrase.text)
            unknown = [token for token in tokens if not index.has(token) and not self._counts([token])]
            better = {token: meant for token in unknown if (meant := suggestion(self._counts, token))}
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

    def _counts(self, words: Collection[str]) -> Counter[str]:
        """In how many events and digests each of these words stands."""
        counted = Counter(self._store.cards.word_counts(words))
        for found in self._store.fulltext_search.frequencies(words).values():
            counted.update(found)
        return counted

    def _shown(self, query: Query, found: Ranked, scope: Scope, meant: Query | None) -> SearchAnswer:
        phrases = [phrase for need in (meant or query).needs for phrase in need]
        if query.is_empty or (not phrases and _is_of_sessions(query)):
            recent = self._hits.recent(self._options.limit, scope)
            return SearchAnswer(query.text, 0.0, recent, None, self._notes)
        hits = self._hits.of(found, phrases, self._options.limit)
        hits = self._with_evicted(meant._replace(filters=query.filters) if meant else query, scope, hits)
        return SearchAnswer(query.text, 0.0, hits, meant.text if meant else None, self._notes)

    def _with_evicted(self, query: Query, scope: Scope, hits: list[SessionHit]) -> list[SessionHit]:
        """Sessions of which only a digest is left have the room that is free, and some of it if none is."""
        limit = self._options.limit
        found = self._evicted(query, scope, max(limit - len(hits), limit // _SHARE_OF_DIGESTS), hits)
        hits = [*hits[: limit - len(found)], *found]
        if len(query.needs) > 1 and len(hits) < min(ENOUGH, limit):
            hits += self._evicted(query, scope, limit - len(hits), hits, of_words="some")
        return hits

    def _evicted(
        self, query: Query, scope: Scope, limit: int, shown: Collection[SessionHit] = (), of_words: str = "all"
    ) -> list[SessionHit]:
        left_out = [hit.session_uid for hit in shown]
        return digest_hits(self._store, query, scope, limit, self._options.matches, left_out, of_words=of_words)

    def literal(self, text: str) -> SearchAnswer:
        """Substrings and regular expressions, verified in the payloads."""
        from recollect.recall.scan import Scan, read_literal

        wanted, filters = without_filters(text, self._now)
        query = Query(wanted, filters=filters)
        scope = scope_of(self._store, query, self._now, self._options.exclude, self._notes)
        literal = read_literal(wanted, self._options.mode == "regex", self._notes)
        scan = Scan(self._store, literal, self._options.scan_seconds, self._progress, self._notes)
        placed = scan.run(scope.events)
        self._say_what_is_gone(scope, f"`--{self._options.mode}`")
        found = grouped(Found(placed.events, False), self._hits.roots({event.stream for event in placed.events}))
        hits = self._hits.of(found, [], self._options.limit, placed.places)
        return SearchAnswer(text, 0.0, hits, None, self._notes)


def _is_exact(query: Query) -> bool:
    """Whether anything is to be found as it is written: a digest that only has its words is no better for it."""
    return any(is_exact(phrase) for need in query.needs for phrase in need)


def _is_of_sessions(query: Query) -> bool:
    """Whether the filters ask for sessions only, whatever is in them."""
    names = {item.name for item in query.filters if (item.name, item.value) != ("is", "open")}
    return names <= {*OF_SESSIONS, "session", "file", "has", "since", "before"}
