"""From one session to others, and to one place in it."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from recollect.clock import rfc3339
from recollect.errors import NotFound
from recollect.recall.hits import Hits
from recollect.recall.query import Phrase
from recollect.recall.ranking import COMMON_SHARE, Ranking, combined
from recollect.store import Store
from recollect.store.cards import Card, CardFilter
from recollect.store.fulltext_search import EventFilter

_FEW_EVENTS = 50  # a word that stands in no more is never too common
_WORDS_TOLD = 5
_WORDS = 14  # the most telling of a session, by which others like it are found
_SHORT = 2  # letters of a word that tells nothing


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
    limit: int = 200,
) -> list[TimelineEntry]:
    """Sessions active in a time, in the order they began; if there are too many, the latest."""
    told = (("repo", repo), ("agent", agent))
    wanted = CardFilter(tuple((name, (value,)) for name, value in told if value is not None))
    cards = store.cards.recent(limit, wanted, since_ms=since_ms, before_ms=before_ms)
    return [
        TimelineEntry(
            card.session_uid, card.title, card.agent, card.repo, rfc3339(card.started_ms), rfc3339(card.ended_ms)
        )
        for card in sorted(cards, key=lambda card: (card.started_ms or 0, card.session_uid))
    ]


def related(store: Store, session_uid: str, limit: int) -> list[Related]:
    """Lineage first (what it was forked from, its forks), then sessions that share its telling words."""
    kin = [(card, why) for card, why in store.cards.kin(session_uid) if card.session_uid != session_uid]
    found = [_related(card, 1.0, why) for card, why in kin]
    known = {card.session_uid for card, _ in kin} | {session_uid}
    return [*found, *(other for other in _alike(store, session_uid, limit) if other.session_uid not in known)][:limit]


def _related(card: Card, score: float, why: str) -> Related:
    return Related(card.session_uid, card.title, card.agent, card.repo, rfc3339(card.started_ms), round(score, 4), why)


def _alike(store: Store, session_uid: str, limit: int) -> list[Related]:
    own = tuple(sorted(store.excerpts.streams(store.cards.households({session_uid})).values()))
    words = _telling_words(store, session_uid, own)
    if not words:
        return []
    hits = Hits(store, 0, 0)
    now_ms = round(datetime.now().timestamp() * 1000)
    ranking = Ranking(store.fulltext_search, EventFilter(excluded_streams=own), now_ms)
    needs = [(Phrase(word),) for word in words]
    by_need = ranking.any_of(needs, ())
    roots = hits.roots({event.stream for some in by_need for event in some.events})
    ranked = combined(by_need, [ranking.rarity(need) for need in needs], roots, hits.relative_length)
    order = sorted(ranked.scores, key=lambda session: -ranked.scores[session])[: limit + len(own)]
    shared: dict[int, list[str]] = {}
    for word, some in zip(words, by_need, strict=True):
        for session in dict.fromkeys(roots[event.stream] for event in some.events):
            shared.setdefault(session, []).append(word)
    return [_related(hits.card(session), ranked.scores[session], _why(shared[session])) for session in order]


def _why(words: Sequence[str]) -> str:
    return f"shares {', '.join(words[:_WORDS_TOLD])}"


def _telling_words(store: Store, session_uid: str, streams: Sequence[int]) -> list[str]:
    """Words of a session's digest, or of its requests, that stand there often and elsewhere seldom, but do."""
    index = store.fulltext_search
    told = store.cards.digest_words(session_uid) or "\n".join(store.excerpts.requests(streams))
    here = Counter(token for token in index.tokens(told) if len(token) > _SHORT and not token.isdecimal())
    counts: Counter[str] = Counter()
    for words in index.frequencies(here).values():
        counts.update(words)
    total = sum(index.months().values())
    most = max(COMMON_SHARE * total, _FEW_EVENTS)
    weights = {
        word: (1 + math.log(here[word])) * math.log(1 + total / count)
        for word, count in counts.items()
        if 1 < count <= most
    }
    return sorted(weights, key=lambda word: (-weights[word], word))[:_WORDS]


def find_event(store: Store, session_uid: str, at: str) -> EventPlace:
    """An event of a session by its seq, or of it or its sub-agents by the beginning of its event_uid."""
    card = store.cards.named({session_uid})[session_uid]
    streams = store.excerpts.streams(store.cards.households({session_uid}))
    event = store.excerpts.find(streams.values(), streams.get(card.key), at)
    if event is None:
        raise NotFound(f"No event of `{session_uid}` is numbered or named `{at}`", "`recollect show --json` lists them")
    keys = {stream: key for key, stream in streams.items()}
    owner = store.cards.of([keys[event.stream]])[keys[event.stream]]
    return EventPlace(owner.session_uid, event.event_uid.hex(), event.lane)
