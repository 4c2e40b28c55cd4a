"""Sessions found by the words of their digests: titles, requests, answers. Of some nothing else is left."""

from collections.abc import Collection, Iterator
from typing import Any

import orjson

from recollect.recall.answers import Match, SessionHit, hit_of
from recollect.recall.query import Phrase, Query
from recollect.recall.ranking import terms
from recollect.recall.scope import Scope
from recollect.recall.snippets import folded, pattern_of, snippet
from recollect.store import Store
from recollect.store.cards import Card, DigestCard, SessionKey
from recollect.store.fulltext_search import Wanted

_MOST_OPEN_ENDS = 3
_OPEN_LISTS = (("unanswered", "no answer"), ("todos", "to do"), ("questions", "asked"), ("next_steps", "next"))
_WHY = {"all": "its digest has all the words", "some": "its digest has some of the words"}
_OPEN_QUOTES = (("failing_tests", "tests fail"), ("interruption", "interrupted"))


def digest_hits(
    store: Store,
    query: Query,
    scope: Scope,
    limit: int,
    matches: int = 3,
    left_out: Collection[str] = (),
    *,
    of_words: str = "all",
) -> list[SessionHit]:
    """Sessions without raw detail in which "all" or "some" words of a query stand in the digest, best first.

    `left_out` are ids of sessions that are shown already.
    """
    phrases = [phrase for need in query.needs for phrase in need]
    asked = query._replace(needs=(tuple(phrases),)) if of_words == "some" else query
    found = _matching(store, asked, scope, limit + len(left_out), is_evicted=True)
    kept = [one for one in found if not {one.card.session_uid, one.card.root_session_uid} & set(left_out)]
    return [_hit(one, phrases, matches, _WHY[of_words]) for one in kept[:limit]]


def held_by_digest(store: Store, query: Query, limit: int, scope: Scope) -> dict[SessionKey, float]:
    """Sessions whose title, requests and answers have all words of a query, and how well they fit."""
    found = _matching(store, query, scope, limit, is_evicted=False)
    return {one.card.key: -one.rank for one in found}


def _matching(store: Store, query: Query, scope: Scope, limit: int, *, is_evicted: bool) -> list[DigestCard]:
    expression = store.fulltext_search.expression(Wanted(terms(query.needs), terms([query.excluded])[0]))
    if not expression or query.has_of_events:
        return []
    times = (scope.events.since_ms, scope.events.before_ms)
    return store.cards.by_digest(expression, scope.cards, *times, limit=limit, is_evicted=is_evicted)


def open_ends(store: Store, card: Card) -> tuple[str, ...]:
    """What a session left to do, in a line each; nothing if it has no digest yet."""
    told = store.cards.digest(card.key)
    left = orjson.loads(told).get("open", {}) if told else {}
    ends = [f"{label}: {quote['text']}" for name, label in _OPEN_LISTS for quote in left.get(name, ())]
    ends += [f"{label}: {left[name]['text']}" for name, label in _OPEN_QUOTES if left.get(name)]
    return tuple(ends[:_MOST_OPEN_ENDS])


def _hit(found: DigestCard, phrases: list[Phrase], matches: int, why: str) -> SessionHit:
    card, pattern = found.card, pattern_of(phrases)
    digest = orjson.loads(found.digest)
    fitting = [quote for quote in quotes(digest) if pattern is None or pattern.search(folded(quote["text"]))]
    last = digest["covers"]["last_event_uid"]
    told = [(quote.get("event_uid") or last, quote["text"]) for quote in fitting] or [(last, card.title or "")]
    found_in = [
        Match(uid, 0, "digest", None, snippet(text, pattern), [], [], card.session_uid, 0.0, why="digest")
        for uid, text in dict.fromkeys(told[:matches])
    ]
    return hit_of(card, -found.rank, found_in, why)


def quotes(value: Any) -> Iterator[dict[str, Any]]:
    """Every quote of a digest, wherever in it."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str) and "event_uid" in value:
            yield value
        for inner in value.values():
            yield from quotes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from quotes(inner)
