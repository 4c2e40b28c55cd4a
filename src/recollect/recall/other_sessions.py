"""From one session to others."""

import math
from collections import Counter
from dataclasses import dataclass
from itertools import islice

from recollect.clock import AsDatetime, rfc3339
from recollect.recall.answers import identity
from recollect.recall.filters import Filters
from recollect.recall.hits import open_ends
from recollect.recall.scope import sessions_of
from recollect.store import SessionFilter, SessionHeader, Store, Term, Wanted

_COMMON_SHARE = 0.2  # of all digests: a word in more says little,
_FEW_DIGESTS = 5  # but not if these are all
_WORDS_TOLD = 5
_WORDS = 25  # the most telling of a session, by which others like it are found
_SHORT = 2  # letters of a word that tells nothing
_RANKED = 200  # digests, several of which may be of one session and its sub-agents
_NOT_FAR_BEHIND = 0.4  # of the best one's score


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
    cwd: str | None
    resume_command: str | None

    started = AsDatetime("started_at")


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """A session of a timeline, which is in the order sessions began."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    started_at: str | None
    ended_at: str | None
    outcome: str | None
    cwd: str | None
    resume_command: str | None

    started = AsDatetime("started_at")
    ended = AsDatetime("ended_at")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A session that left something open, and what."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    ended_at: str | None
    outcome: str | None
    open_ends: list[str]
    cwd: str | None
    resume_command: str | None

    ended = AsDatetime("ended_at")


def timeline(store: Store, filters: Filters, limit: int | None = None, offset: int = 0) -> list[TimelineEntry]:
    """Sessions active in a time, in the order they began; if there are too many, the latest."""
    headers = store.sessions.recent(-1 if limit is None else limit, sessions_of(store, filters), offset)
    return [
        TimelineEntry(
            **identity(header),
            started_at=rfc3339(header.started_ms),
            ended_at=rfc3339(header.ended_ms),
            outcome=header.outcome,
        )
        for header in sorted(headers, key=lambda header: (header.started_ms or 0, header.session_uid))
    ]


def unfinished(store: Store, filters: Filters, limit: int | None = None) -> list[Unfinished]:
    """Sessions whose digests say that something was left open, newest first."""
    found = (
        Unfinished(
            **identity(header),
            ended_at=rfc3339(header.ended_ms),
            outcome=header.outcome,
            open_ends=ends,
        )
        for header in store.sessions.recent(-1, sessions_of(store, filters))
        if (ends := open_ends(store, header))
    )
    return list(islice(found, limit))


def related(store: Store, session_uid: str, limit: int) -> list[Related]:
    """Lineage first (what it was forked from, its forks), then sessions that are about the same."""
    kin = [(header, why) for header, why in store.sessions.kin(session_uid) if header.session_uid != session_uid]
    found = [_related(header, 1.0, why) for header, why in kin]
    known = {header.session_uid for header, _ in kin} | {session_uid}
    return [*found, *(other for other in _alike(store, session_uid, limit) if other.session_uid not in known)][:limit]


def _related(header: SessionHeader, score: float, why: str) -> Related:
    return Related(
        **identity(header),
        started_at=rfc3339(header.started_ms),
        score=round(score, 4),
        why=why,
    )


def _alike(store: Store, session_uid: str, limit: int) -> list[Related]:
    """Sessions whose digests have the words that tell of this one's, sub-agents by their roots; none far behind."""
    words = _telling_words(store, session_uid)
    wanted = Wanted((tuple(Term(word) for word in words),))
    expression = store.words.expression(wanted) if words else ""
    own = store.sessions.named({session_uid})[session_uid].root_session_uid
    best: dict[str, tuple[SessionHeader, float]] = {}
    ranked = store.digests.search(expression, SessionFilter(), most=_RANKED) if expression else ()
    for header, score in ranked:
        best.setdefault(header.root_session_uid, (header, score))
    others = [scored for root, scored in best.items() if root != own][:limit]
    texts = store.digests.words({header.session_uid for header, _ in others})
    roots = store.sessions.named({header.root_session_uid for header, _ in others})
    found = []
    for header, score in others:
        if score >= others[0][1] * _NOT_FAR_BEHIND:
            here = set(store.words.tokens(texts.get(header.session_uid, "")))
            shared = [word for word in words if word in here][:_WORDS_TOLD]
            found.append(_related(roots.get(header.root_session_uid, header), score, f"shares {', '.join(shared)}"))
    return found


def _telling_words(store: Store, session_uid: str) -> list[str]:
    """Words of a session's digest, or of its requests, that stand there often and in few other digests."""
    streams = store.events.streams(store.sessions.households({session_uid})).values()
    texts = store.digests.words({session_uid})
    text = texts.get(session_uid) or "\n".join(store.events.requests(streams))
    tokens = store.words.tokens(text)
    here = Counter(token for token in tokens if len(token) > _SHORT and not token.isdecimal())
    counts, total = store.digests.word_counts(here), store.digests.count()
    most = max(_COMMON_SHARE * total, _FEW_DIGESTS)
    weights = {
        word: (1 + math.log(here[word])) * math.log(1 + total / count)
        for word, count in counts.items()
        if 1 < count <= most
    }
    return sorted(weights, key=lambda word: (-weights[word], word))[:_WORDS]
