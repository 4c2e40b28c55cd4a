"""Sessions whose raw events are gone, found by the words of their digests."""

import re
from collections.abc import Collection, Iterator
from typing import Any

import orjson

from recollect.clock import rfc3339
from recollect.recall.answers import Match, SessionHit
from recollect.recall.query import Phrase, Query
from recollect.recall.scope import card_filter
from recollect.recall.snippets import folded, pattern_of, snippet
from recollect.store import Store
from recollect.store.cards import DigestCard

# Filters that only events can answer.
_OF_EVENTS = ("kind", "tool", "role", "is", "has")
_WORD = re.compile(r"\w")


def digest_hits(
    store: Store,
    query: Query,
    limit: int,
    matches: int = 3,
    times: tuple[int | None, int | None] = (None, None),
    left_out: Collection[str] = (),
) -> list[SessionHit]:
    """Sessions in which all words of a query stand in the digest, best first.

    `times` bound when a session was active; `left_out` are ids of sessions that are shown already or not wanted.
    """
    if limit < 1 or any(query.values(name) for name in _OF_EVENTS):
        return []
    expression = _expression(query)
    if not expression or not store.cards.has_evicted():
        return []
    wanted = card_filter(query)
    found = store.cards.evicted(expression, wanted, *times, limit=limit + len(left_out))
    sessions = set(query.values("session"))
    phrases = [phrase for need in query.needs for phrase in need]
    kept = [one for one in found if _is_chosen(one, sessions, left_out)]
    return [_hit(one, phrases, matches) for one in kept[:limit]]


def _is_chosen(found: DigestCard, sessions: Collection[str], left_out: Collection[str]) -> bool:
    names = {found.card.session_uid, found.card.native_session_id, found.card.root_session_uid}
    is_wanted = not sessions or any(name.startswith(told) or name.endswith(told) for name in names for told in sessions)
    return is_wanted and not names & set(left_out)


def _expression(query: Query) -> str:
    """The query in the words of FTS5; files are names like others in a digest."""
    needs = [_choice(need) for need in query.needs]
    needs += [_choice([Phrase(path)]) for path in query.values("file")]
    needs = [need for need in needs if need]
    excluded = _choice([*query.excluded, *(Phrase(path) for path in query.values("file", is_excluded=True))])
    if not needs:
        return ""
    return " AND ".join(needs) if not excluded else f"({' AND '.join(needs)}) NOT {excluded}"


def _choice(phrases: Collection[Phrase]) -> str:
    quoted = [
        '"' + phrase.text.replace('"', '""') + '"' + (" *" if phrase.is_prefix else "")
        for phrase in phrases
        if _WORD.search(phrase.text)
    ]
    return f"({' OR '.join(quoted)})" if quoted else ""


def _hit(found: DigestCard, phrases: list[Phrase], matches: int) -> SessionHit:
    card, pattern = found.card, pattern_of(phrases)
    digest = orjson.loads(found.digest)
    quotes = [quote for quote in _quotes(digest) if pattern is None or pattern.search(folded(quote["text"]))]
    last = digest["covers"]["last_event_uid"]
    told = [(quote.get("event_uid") or last, quote["text"]) for quote in quotes] or [(last, card.title or "")]
    return SessionHit(
        session_uid=card.session_uid,
        title=card.title,
        agent=card.agent,
        repo=card.repo,
        started_at=rfc3339(card.started_ms),
        score=round(-found.rank, 4),
        evicted=True,
        matches=[
            Match(uid, 0, "digest", None, snippet(text, pattern), [], [], card.session_uid, 0.0, why="digest")
            for uid, text in dict.fromkeys(told[:matches])
        ],
        ended_at=rfc3339(card.ended_ms),
        why="its digest has all the words",
    )


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
