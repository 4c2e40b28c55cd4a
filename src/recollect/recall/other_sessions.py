"""From one session to others, and from a topic to the exchanges that discussed it."""

import math
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import fsum
from operator import itemgetter
from typing import Any

from recollect import digest as digests
from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.kinds import (
    ASSISTANT_MSG,
    COMPLETION,
    DECISION,
    ERROR,
    HUMAN_INTERVENTION,
    KIND_FAMILY,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
    WARM_UP,
    SessionKey,
)
from recollect.model.text import CJK, cut_short, spaced
from recollect.recall.filters import Filters, sessions_of
from recollect.recall.hits import Match, SessionHit, identity, open_ends
from recollect.recall.lookup import Options, search
from recollect.recall.query import meaningful
from recollect.recall.snippets import Texts, folded
from recollect.store import EventHeader, SessionFilter, SessionHeader, Store, Term, Wanted

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


_BY_USER = (USER_MSG, DECISION, HUMAN_INTERVENTION)
_BY_AGENT = (ASSISTANT_MSG, COMPLETION)
_PRINTED = (ERROR, TOOL_RESULT)
_SESSIONS, _MATCHES = 8, 8  # among which the best exchanges are sought
_PASSAGE_CHARS, _REPLY_CHARS = 420, 160
_NEXT_STEPS = 3
_MOST_WORDS = 8  # of a topic; a match names no more
_LEAST_OF_TOPIC, _LEAST_OF_ERROR = 0.5, 0.75  # of the words
_END_CHARS = 240  # of an answer, in which it may ask something
_GOES_TO = re.compile(r"^.*?\bcd \S+ && ")
_NO_LETTERS = re.compile(r"[\W_]+")
_WORD = re.compile(r"[^\W_][\w./*-]*")


@dataclass(frozen=True, slots=True)
class Discussion:
    """An exchange that discussed a topic: what the user and the agent said, each where it comes nearest to the topic.

    `reply` is what the user said to a question or an offer at the end; `next_steps` are the calls that followed where
    the topic was printed, as an error is. `seq` and `event_uid` are of the event that
    matches best: `recollect show SESSION --at SEQ` opens it. Of an `evicted` session only the digest is left: the
    request and the answer are those it quotes.
    """

    session_uid: str
    agent: str
    repo: str | None
    title: str | None
    at: str | None
    request: str | None
    answer: str | None
    reply: str | None
    next_steps: tuple[str, ...]
    seq: int
    event_uid: str
    score: float
    evicted: bool = False

    discussed = AsDatetime("at")


def find_discussions(
    store: Store, topic: str, filters: Filters, limit: int, *, exclude: Collection[str] = (), is_error: bool = False
) -> list[Discussion]:
    """The exchanges that discussed a topic, the best match first; of an error also those in which it was printed."""
    kinds = (*_BY_USER, *_BY_AGENT, *(_PRINTED if is_error else ()))
    words = _WORD.findall(topic)[:_MOST_WORDS]
    of_kinds = " ".join([*(f"kind:{kind}" for kind in kinds), f"-class:{WARM_UP}"])
    # Of a run of CJK letters the index has the pairs; the last letter by itself says nothing.
    parts = [part for part in spaced(folded(" ".join(words))).split() if not re.fullmatch(f"[{CJK}]", part)]
    asked = set(map(_letters, meaningful(parts or words)))
    if not asked:
        return []
    least = (_LEAST_OF_ERROR if is_error else _LEAST_OF_TOPIC) * len(asked)
    options = Options(limit=_SESSIONS, matches=_MATCHES, context=0, filters=filters, exclude=exclude)
    # Of an error its whole line, too: its words may be common.
    line = topic.strip().partition("\n")[0].replace('"', "")
    queries = [f'"{line}"', " ".join(words)] if is_error else [" ".join(words)]
    hits = [hit for query in queries for hit in search(store, f"{query} {of_kinds}", options).hits]
    matches = [(match, hit) for hit in hits for match in sorted(hit.matches, key=lambda match: -match.score)]
    if not is_error:  # of an error, sessions that have it as it was typed come first
        matches.sort(key=lambda one: -one[0].score)
    events = store.events.by_uid([match.event_uid for match, _ in matches])
    exchanges: dict[tuple[str, str], list[tuple[Match, SessionHit]]] = {}
    for match, hit in matches:
        if event := events.get(match.event_uid):  # unless it was deleted meanwhile
            request = event if event.kind == USER_MSG else store.events.request_of(event)
            exchanges.setdefault((match.session_uid, request.summary if request else ""), []).append((match, hit))
    passages = _Passages(store)
    near = [
        exchange
        for exchange in exchanges.values()
        if len(asked & _words_of(exchange)) >= least
        or (is_error and _letters(line) in _letters(passages.text(events[exchange[0][0].event_uid])))
    ]
    found = [_discussion(passages, events, exchange) for exchange in near[:limit]]
    if len(found) < limit and not is_error:
        whole = search(store, f"{' '.join(words)} -class:{WARM_UP}", options).hits
        found += filter(None, (_digested(store, hit, asked) for hit in whole if hit.evicted))
    return found[:limit]


def _digested(store: Store, hit: SessionHit, asked: Collection[str]) -> Discussion | None:
    """What the digest of an evicted session says of a topic; None if it has too few of the words."""
    key = SessionKey(hit.agent, hit.session_uid.partition(":")[2])
    raw = store.digests.text(key)
    if raw is None:
        return None
    digest = digests.parse_digest(raw.encode())
    texts = [request.text for request in digest.requests]
    texts += [digest.final_answer.text] if digest.final_answer else []
    shared = [sum(word in _letters(folded(text)) for word in asked) for text in texts]
    if not digest.requests or max(shared) < _LEAST_OF_TOPIC * len(asked):
        return None
    request = max(zip(shared, digest.requests, strict=False), key=itemgetter(0))[1]
    return Discussion(
        **_named(hit),
        at=hit.started_at,
        request=cut_short(digests.one_line(request.text), _PASSAGE_CHARS),
        answer=cut_short(digests.one_line(digest.final_answer.text), _PASSAGE_CHARS) if digest.final_answer else None,
        reply=None,
        next_steps=(),
        seq=0,
        event_uid=request.event_uid,
        score=round(hit.score, 2),
        evicted=True,
    )


def _named(hit: SessionHit) -> dict[str, Any]:
    return {name: getattr(hit, name) for name in ("session_uid", "agent", "repo", "title")}


def _words_of(exchange: Sequence[tuple[Match, SessionHit]]) -> set[str]:
    """What of the topic an exchange has: its words, and parts of them."""
    return {_letters(word) for match, _ in exchange for word in match.words}


def _letters(word: str) -> str:
    return _NO_LETTERS.sub("", word)


def _discussion(
    passages: "_Passages", events: Mapping[str, EventHeader], exchange: Sequence[tuple[Match, SessionHit]]
) -> Discussion:
    best, hit = exchange[0]
    event, headers = events[best.event_uid], passages.store.events
    by_user = next((match for match, _ in exchange if match.kind in _BY_USER), None)
    is_printed = best.kind in _PRINTED  # what was said next is about it, or nothing
    by_agent = None if is_printed else next((match for match, _ in exchange if match.kind in _BY_AGENT), None)
    asked = events[by_user.event_uid] if by_user else headers.request_of(event)
    said = events[by_agent.event_uid] if by_agent else headers.answer_to(event, is_last=best.kind in _BY_USER)
    steps = headers.near(event, KIND_FAMILY[TOOL_CALL], count=_NEXT_STEPS) if is_printed else []
    is_asking = "?" in passages.text(headers.answer_to(event, is_last=True) or event)[-_END_CHARS:]
    reply = passages.text(next(iter(headers.near(event, (USER_MSG,))), None)) if is_asking else ""
    return Discussion(
        **_named(hit) | {"session_uid": best.session_uid},  # a sub-agent's, maybe
        at=best.ts or hit.started_at,
        request=passages.nearest(asked, (by_user or best).words) or None,
        answer=passages.nearest(said, (by_agent or best).words) or None,
        reply=cut_short(digests.one_line(reply), _REPLY_CHARS) or None,
        next_steps=tuple(dict.fromkeys(cut_short(_step(passages, step), _REPLY_CHARS) for step in steps)),
        seq=best.seq,
        event_uid=best.event_uid,
        score=round(best.score, 2),
    )


def _step(passages: "_Passages", step: EventHeader) -> str:
    """Return what a call did, without the folder that it went to first: its summary may end before they differ."""
    if not step.summary.startswith("ran cd "):
        return step.summary
    text, count = _GOES_TO.subn("ran ", digests.one_line(passages.text(step)), count=1)
    return text if count else step.summary


class _Passages:
    """Reads what events say, and the part of it that is nearest to a topic."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self._texts = Texts(store)

    def text(self, event: EventHeader | None) -> str:
        if event is None:
            return ""
        self._texts.read([event.id])
        return self._texts.get(event.id, "")

    def nearest(self, event: EventHeader | None, words: Collection[str]) -> str:
        """Neighbouring sentences that have most of the words, above all the rarest; the beginning if none has any."""
        pieces = [piece for piece in digests.sentences(self.text(event)) if not piece.startswith("```")]
        present = [{word for word in words if word in folded(piece)} for piece in pieces]
        counts = Counter(word for found in present for word in found)
        best, best_weight = pieces, 0.0
        for start in range(len(pieces)):
            end, chars = start + 1, len(pieces[start])
            while end < len(pieces) and (chars := chars + len(pieces[end])) <= _PASSAGE_CHARS:
                end += 1
            weight = fsum(1 / counts[word] for word in set().union(*present[start:end]))
            if present[start] and weight > best_weight:
                best, best_weight = pieces[start:end], weight
        return cut_short(digests.one_line(" ".join(best)).replace("**", ""), _PASSAGE_CHARS)
