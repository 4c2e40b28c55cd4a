"""From one session to others, and to one place in it."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from recollect.clock import rfc3339
from recollect.errors import Ambiguous, NotFound
from recollect.store import Store
from recollect.store.cards import Card, CardFilter, DigestCard
from recollect.store.excerpts import EventCard
from recollect.store.fulltext_search import Term, Wanted

_COMMON_SHARE = 0.2  # of all digests: a word that stands in more says little,
_FEW_DIGESTS = 5  # but not if these are all
_WORDS_TOLD = 5
_WORDS = 25  # the most telling of a session, by which others like it are found
_SHORT = 2  # letters of a word that tells nothing
_HOUSEHOLD = 5  # sub-agents that may stand for one session
_NOT_FAR_BEHIND = 0.4  # of the best one's score
_LEAST_OF_A_UID = 6
_MOST_OF_A_SEQ = 11  # digits; digests cite events by twelve of their uid
_DROPPED = "`recollect digest` tells what is left, `recollect rehydrate` reads it again if its agent still has it"


@dataclass(frozen=True, slots=True)
class Related:
    """Another session, and why it is named."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    started_at: str | None
    score: float
    why: str


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A session in the order they began."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class EventPlace:
    session_uid: str
    event_uid: str
    lane: str


def timeline(
    store: Store,
    *,
    since_ms: int | None = None,
    before_ms: int | None = None,
    repo: str | None = None,
    agent: str | None = None,
    limit: int | None = None,
) -> list[TimelineEntry]:
    """Sessions active in a time, in the order they began; if there are too many, the latest."""
    told = (("repo", repo), ("agent", agent))
    wanted = CardFilter(tuple((name, (value,)) for name, value in told if value is not None))
    cards = store.cards.recent(-1 if limit is None else limit, wanted, since_ms=since_ms, before_ms=before_ms)
    return [
        TimelineEntry(
            card.session_uid, card.title, card.agent, card.repo, rfc3339(card.started_ms), rfc3339(card.ended_ms)
        )
        for card in sorted(cards, key=lambda card: (card.started_ms or 0, card.session_uid))
    ]


def related(store: Store, session_uid: str, limit: int) -> list[Related]:
    """Lineage first (what it was forked from, its forks), then sessions that are about the same."""
    kin = [(card, why) for card, why in store.cards.kin(session_uid) if card.session_uid != session_uid]
    found = [_related(card, 1.0, why) for card, why in kin]
    known = {card.session_uid for card, _ in kin} | {session_uid}
    return [*found, *(other for other in _alike(store, session_uid, limit) if other.session_uid not in known)][:limit]


def _related(card: Card, score: float, why: str) -> Related:
    return Related(card.session_uid, card.title, card.agent, card.repo, rfc3339(card.started_ms), round(score, 4), why)


def _alike(store: Store, session_uid: str, limit: int) -> list[Related]:
    """Sessions whose digests have the words that tell of this one's, sub-agents by their roots; none far behind."""
    words = _telling_words(store, session_uid)
    wanted = Wanted((tuple(Term(word) for word in words),))
    expression = store.fulltext_search.expression(wanted) if words else ""
    own = store.cards.named({session_uid})[session_uid].root_session_uid
    best: dict[str, DigestCard] = {}
    for found in store.cards.by_digest(expression, CardFilter(), limit=limit * _HOUSEHOLD) if expression else ():
        best.setdefault(found.card.root_session_uid, found)
    others = [found for root, found in best.items() if root != own]
    roots = store.cards.named({found.card.root_session_uid for found in others})
    return [
        _related(roots.get(found.card.root_session_uid, found.card), -found.rank, _shared(store, found.card, words))
        for found in others[:limit]
        if found.rank <= others[0].rank * _NOT_FAR_BEHIND
    ]


def _shared(store: Store, card: Card, words: Sequence[str]) -> str:
    here = set(store.fulltext_search.tokens(store.cards.digest_words(card.session_uid)))
    return f"shares {', '.join([word for word in words if word in here][:_WORDS_TOLD])}"


def _telling_words(store: Store, session_uid: str) -> list[str]:
    """Words of a session's digest, or of its requests, that stand there often and in few other digests."""
    streams = store.excerpts.streams(store.cards.households({session_uid})).values()
    told = store.cards.digest_words(session_uid) or "\n".join(store.excerpts.requests(streams))
    tokens = store.fulltext_search.tokens(told)
    here = Counter(token for token in tokens if len(token) > _SHORT and not token.isdecimal())
    counts, total = store.cards.word_counts(here), store.cards.digest_count()
    most = max(_COMMON_SHARE * total, _FEW_DIGESTS)
    weights = {
        word: (1 + math.log(here[word])) * math.log(1 + total / count)
        for word, count in counts.items()
        if 1 < count <= most
    }
    return sorted(weights, key=lambda word: (-weights[word], word))[:_WORDS]


def find_event(store: Store, session_uid: str, at: str) -> EventPlace:
    """An event of a session by its seq, or of it or its sub-agents by the beginning or end of its event_uid."""
    card = store.cards.named({session_uid})[session_uid]
    streams = store.excerpts.streams(store.cards.households({session_uid}))
    found = _events_at(store, streams.values(), streams.get(card.key), at)
    if len(found) > 1:
        raise Ambiguous(f"{len(found)} events of `{session_uid}` begin or end with `{at}`", "give more of the uid")
    if not found and card.evicted_ms is not None:
        raise NotFound(f"The raw detail of `{session_uid}` was dropped, and no event of it is held at `{at}`", _DROPPED)
    if not found:
        raise NotFound(f"No event of `{session_uid}` is numbered or named `{at}`", "`recollect show --json` lists them")
    (event,) = found
    keys = {stream: key for key, stream in streams.items()}
    owner = store.cards.of([keys[event.stream]])[keys[event.stream]]
    return EventPlace(owner.session_uid, event.event_uid.hex(), event.lane)


def _events_at(store: Store, streams: Collection[int], main: int | None, at: str) -> list[EventCard]:
    is_number = at.isascii() and at.isdecimal() and len(at) <= _MOST_OF_A_SEQ
    numbered = store.excerpts.numbered(main, int(at)) if is_number and main is not None else []
    return numbered or (store.excerpts.named(streams, at) if len(at) >= _LEAST_OF_A_UID else [])
