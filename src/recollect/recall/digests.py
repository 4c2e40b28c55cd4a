"""Sessions found by the words of their digests: titles, requests, answers. Of some nothing else is left."""

from collections.abc import Collection, Iterator
from typing import Any

import orjson

from recollect.recall.answers import Match, SessionHit, hit_of
from recollect.recall.query import Phrase, Query
from recollect.recall.ranking import terms
from recollect.recall.scope import card_filter
from recollect.recall.snippets import folded, pattern_of, snippet
from recollect.store import Store
from recollect.store.cards import Card, DigestCard, SessionKey
from recollect.store.fulltext_search import Wanted

# Filters that only events can answer.
_OF_EVENTS = ("kind", "tool", "role", "is", "has")
_MOST_OPEN_ENDS = 3
_OPEN_LISTS = (("unanswered", "no answer"), ("todos", "to do"), ("questions", "asked"), ("next_steps", "next"))
_WHY = {"all": "its digest has all the words", "some": "its digest has some of the words"}
_OPEN_QUOTES = (("failing_tests", "tests fail"), ("interruption", "interrupted"))

Times = tuple[int | None, int | None]  # active since, begun before


def digest_hits(
    store: Store,
    query: Query,
    limit: int,
    matches: int = 3,
    times: Times = (None, None),
    left_out: Collection[str] = (),
    *,
    of_words: str = "all",
) -> list[SessionHit]:
    """Sessions without raw detail in which "all" or "some" words of a query stand in the digest, best first.

    `times` bound when a session was active; `left_out` are ids of sessions that are shown already or not wanted.
    """
    phrases = [phrase for need in query.needs for phrase in need]
    asked = query._replace(needs=(tuple(phrases),)) if of_words == "some" else query
    found = _matching(store, asked, times, limit + len(left_out), is_evicted=True)
    sessions = set(query.values("session"))
    kept = [one for one in found if _is_chosen(one, sessions, left_out)]
    return [_hit(one, phrases, matches, _WHY[of_words]) for one in kept[:limit]]


def held_by_digest(store: Store, query: Query, limit: int, times: Times) -> dict[SessionKey, float]:
    """Sessions whose title, requests and answers have all words of a query, and how well they fit."""
    found = _matching(store, query, times, limit, is_evicted=False)
    return {one.card.key: -one.rank for one in found}


def _matching(store: Store, query: Query, times: Times, limit: int, *, is_evicted: bool) -> list[DigestCard]:
    of_events = [item for item in query.filters if item.name in _OF_EVENTS and item.value != "open"]
    expression = _expression(store, query)
    if not expression or of_events:
        return []
    return store.cards.by_digest(expression, card_filter(query), *times, limit=limit, is_evicted=is_evicted)


def _is_chosen(found: DigestCard, sessions: Collection[str], left_out: Collection[str]) -> bool:
    names = {found.card.session_uid, found.card.native_session_id, found.card.root_session_uid}
    is_wanted = not sessions or any(name.startswith(told) or name.endswith(told) for name in names for told in sessions)
    return is_wanted and not names & set(left_out)


def _expression(store: Store, query: Query) -> str:
    """The query in the words of FTS5; files are names like others in a digest."""
    needs = [*query.needs, *((Phrase(path),) for path in query.values("file"))]
    excluded = [*query.excluded, *(Phrase(path) for path in query.values("file", is_excluded=True))]
    return store.fulltext_search.expression(Wanted(terms(needs), terms([excluded])[0]))


def open_ends(store: Store, card: Card) -> tuple[str, ...]:
    """What a session left to do, in a line each; nothing if it has no digest yet."""
    told = store.cards.digest(card.key)
    left = orjson.loads(told)["open"] if told else {}
    ends = [f"{label}: {quote['text']}" for name, label in _OPEN_LISTS for quote in left.get(name, ())]
    ends += [f"{label}: {left[name]['text']}" for name, label in _OPEN_QUOTES if left.get(name)]
    return tuple(ends[:_MOST_OPEN_ENDS])


def _hit(found: DigestCard, phrases: list[Phrase], matches: int, why: str) -> SessionHit:
    card, pattern = found.card, pattern_of(phrases)
    digest = orjson.loads(found.digest)
    quotes = [quote for quote in _quotes(digest) if pattern is None or pattern.search(folded(quote["text"]))]
    last = digest["covers"]["last_event_uid"]
    told = [(quote.get("event_uid") or last, quote["text"]) for quote in quotes] or [(last, card.title or "")]
    found_in = [
        Match(uid, 0, "digest", None, snippet(text, pattern), [], [], card.session_uid, 0.0, why="digest")
        for uid, text in dict.fromkeys(told[:matches])
    ]
    return hit_of(card, -found.rank, found_in, why)


def _quotes(value: Any) -> Iterator[dict[str, Any]]:
    """Every quote of a digest, wherever in it."""
    if isinstance(value, dict):
        if isinstance(value.get("text"), str) and "event_uid" in value:
            yield value
        for inner in value.values():
            yield from _quotes(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _quotes(inner)
