"""What a search answers with. Named tuples, for making a dataclass takes time that a search has not."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from recollect.clock import rfc3339

if TYPE_CHECKING:
    from recollect.store.cards import Card


class Glimpse(NamedTuple):
    """An event told in a line: what stands around a match, or at a session's ends."""

    event_uid: str
    seq: int
    kind: str
    ts: str | None
    snippet: str


class Match(NamedTuple):
    """An event that fits, with what stands around it in its lane. It may lie in a sub-agent of the hit's session."""

    event_uid: str
    seq: int
    kind: str
    ts: str | None
    snippet: str
    before: list[Glimpse]
    after: list[Glimpse]
    session_uid: str
    score: float
    is_exact: bool = True  # what was asked for stands there letter by letter, not only its words
    why: str = ""
    words: tuple[str, ...] = ()  # what of its text was looked for, small and without accents


class SessionHit(NamedTuple):
    """A session with its best matches. `evicted`: its raw events are gone, and all that is shown is from its digest."""

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
    outcome: str | None = None  # of a recent session
    open_ends: tuple[str, ...] = ()  # of a recent session: what it left to do


def hit_of(card: "Card", score: float, matches: list[Match], why: str, **told: Any) -> SessionHit:
    """A hit on the session of a card; `told` is what else there is to say of it."""
    return SessionHit(
        session_uid=card.session_uid,
        title=card.title,
        agent=card.agent,
        repo=card.repo,
        started_at=rfc3339(card.started_ms),
        score=round(score, 4),
        evicted=card.evicted_ms is not None and not any(match.seq for match in matches),
        matches=matches,
        ended_at=rfc3339(card.ended_ms),
        why=why,
        **told,
    )


class SearchAnswer(NamedTuple):
    """Sessions, best first. `suggestion` is the query as it was probably meant; `notes` say what else was done."""

    query: str
    took_ms: float
    hits: list[SessionHit]
    suggestion: str | None = None
    notes: Sequence[str] = ()
    is_cut: bool = False  # more was found than the budget allows


def as_json(answer: SearchAnswer, *, explain: bool = False) -> dict[str, Any]:
    """An answer as every door prints it; `explain` adds why each thing was found and what was noted."""
    found: dict[str, Any] = {
        "query": answer.query,
        "took_ms": answer.took_ms,
        "hits": [_hit(hit, explain) for hit in answer.hits],
        "suggestion": answer.suggestion,
    }
    return found | {"notes": list(answer.notes)} if explain else found


def _hit(hit: SessionHit, explain: bool) -> dict[str, Any]:
    found: dict[str, Any] = {
        "session_uid": hit.session_uid,
        "title": hit.title,
        "agent": hit.agent,
        "repo": hit.repo,
        "started_at": hit.started_at,
        "score": hit.score,
        "evicted": hit.evicted,
        "matches": [_match(match, hit.session_uid, explain) for match in hit.matches],
    }
    if hit.outcome is not None:
        found |= {"outcome": hit.outcome, "open_ends": list(hit.open_ends)}
    if explain:
        ends = {"first_request": _maybe(hit.first_request), "ending": _maybe(hit.ending)}
        found |= {"ended_at": hit.ended_at, "why": hit.why, "bookends": ends}
    return found


def _match(match: Match, session_uid: str, explain: bool) -> dict[str, Any]:
    found = _glimpse(match) | {
        "before": [_glimpse(item) for item in match.before],
        "after": [_glimpse(item) for item in match.after],
    }
    if explain or match.session_uid != session_uid:
        found["session_uid"] = match.session_uid  # its seq counts there
    if explain:
        found |= {"score": match.score, "is_exact": match.is_exact, "why": match.why}
    return found


def _maybe(item: Glimpse | None) -> dict[str, Any] | None:
    return None if item is None else _glimpse(item)


def _glimpse(item: Glimpse | Match) -> dict[str, Any]:
    return {
        "event_uid": item.event_uid,
        "seq": item.seq,
        "kind": item.kind,
        "ts": item.ts,
        "snippet": item.snippet,
    }


def within_budget(answer: SearchAnswer, tokens: int) -> SearchAnswer:
    """As much of an answer as an agent can afford: the best first, cut between matches, never inside one.

    It costs what it takes as JSON on one line; what `explain` adds comes on top.
    """
    left = tokens - _cost(as_json(answer._replace(hits=[])))
    hits: list[SessionHit] = []
    for hit in answer.hits:
        left -= _cost(_hit(hit._replace(matches=[]), explain=False))
        kept, left = _affordable(hit, left)
        if left < 0 or (hit.matches and not kept):
            break
        hits.append(hit._replace(matches=kept))
    if len(hits) == len(answer.hits):
        return answer._replace(hits=hits)
    note = f"cut to {tokens} tokens: {len(hits)} of {len(answer.hits)} sessions"
    return answer._replace(hits=hits, notes=[*answer.notes, note], is_cut=True)


def _affordable(hit: SessionHit, left: int) -> tuple[list[Match], int]:
    """The best matches for so many tokens, and what is left of these; what stands around them goes first."""
    kept: list[Match] = []
    for match in hit.matches:
        for told in (match, match._replace(before=[], after=[])):
            cost = _cost(_match(told, hit.session_uid, explain=False))
            if cost <= left:
                kept.append(told)
                left -= cost
                break
        else:
            break
    return kept, left


_BYTES_OF_TOKEN = 4  # of UTF-8: about four letters of English or code, one and a third of CJK


def _cost(told: dict[str, Any]) -> int:
    return -(-len(orjson.dumps(told)) // _BYTES_OF_TOKEN)
