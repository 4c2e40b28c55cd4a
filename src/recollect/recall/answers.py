"""What a search answers with. Named tuples: making a dataclass takes longer than a search may."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import orjson

from recollect.agents import resume_command
from recollect.clock import as_datetime, rfc3339

if TYPE_CHECKING:
    from datetime import datetime

    from recollect.store import SessionHeader


class Glimpse(NamedTuple):
    """An event in a line: next to a match, or at a session's ends."""

    event_uid: str
    seq: int
    kind: str
    ts: str | None
    snippet: str

    @property
    def at(self) -> "datetime | None":
        return as_datetime(self.ts)

    def to_json(self) -> dict[str, Any]:
        return self._asdict()


class Match(NamedTuple):
    """An event that matches, with its neighbours in its lane. It may be in a sub-agent of the hit's session."""

    event_uid: str
    seq: int
    kind: str
    ts: str | None
    snippet: str
    before: list[Glimpse]
    after: list[Glimpse]
    session_uid: str
    score: float
    is_exact: bool = True  # matches exactly as typed, not only by its words
    why: str = ""
    words: tuple[str, ...] = ()  # what of its text was looked for, small and without accents

    @property
    def at(self) -> "datetime | None":
        return as_datetime(self.ts)

    def to_json(self, hit_uid: str | None = None, *, explain: bool = False) -> dict[str, Any]:
        """A match as every interface prints it; inside a hit, its session is named only if it is another."""
        fields: dict[str, Any] = {
            "event_uid": self.event_uid,
            "seq": self.seq,
            "kind": self.kind,
            "ts": self.ts,
            "snippet": self.snippet,
            "before": [item.to_json() for item in self.before],
            "after": [item.to_json() for item in self.after],
        }
        if explain or self.session_uid != hit_uid:
            fields["session_uid"] = self.session_uid  # its seq counts there
        if explain:
            fields |= {"score": self.score, "is_exact": self.is_exact, "why": self.why}
        return fields


class SessionHit(NamedTuple):
    """A session with its best matches. `evicted`: its raw events are gone, and everything shown is from its digest."""

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
    outcome: str | None = None  # None until its digest is made
    open_ends: tuple[str, ...] = ()  # of a recent session: what it left to do
    cwd: str | None = None
    resume_command: str | None = None  # the agent's own, to be run in `cwd`
    missing: tuple[str, ...] = ()  # words of the query that the session does not have, the rarest among them
    superseded_by: str | None = None  # the session that amended what this one decided
    decided: str | None = None  # what it decided, in place of what an earlier session had
    key: str | None = None  # of a live session: the name that its host knows it by
    channel: str | None = None
    chat_id: str | None = None

    @property
    def started(self) -> "datetime | None":
        return as_datetime(self.started_at)

    @property
    def ended(self) -> "datetime | None":
        return as_datetime(self.ended_at)

    @property
    def is_recent(self) -> bool:
        """Whether it is listed for its age, and not for words of a query."""
        return self.why == "recent"

    def to_json(self, *, explain: bool = False) -> dict[str, Any]:
        """A hit as every interface prints it; `explain` adds why it was found and how the session began and ended."""
        fields: dict[str, Any] = {
            "session_uid": self.session_uid,
            "title": self.title,
            "agent": self.agent,
            "repo": self.repo,
            "cwd": self.cwd,
            "resume_command": self.resume_command,
            "started_at": self.started_at,
            "score": self.score,
            "evicted": self.evicted,
            "matches": [match.to_json(self.session_uid, explain=explain) for match in self.matches],
        }
        if self.key is not None:
            fields |= {"key": self.key, "channel": self.channel, "chat_id": self.chat_id}
        if self.missing:
            fields["missing"] = list(self.missing)
        fields |= {name: value for name in ("superseded_by", "decided") if (value := getattr(self, name))}
        if self.outcome is not None:
            fields["outcome"] = self.outcome
        if self.is_recent:
            fields["open_ends"] = list(self.open_ends)
        if explain:
            ends = {"first_request": self.first_request, "ending": self.ending}
            bookends = {name: end and end.to_json() for name, end in ends.items()}
            fields |= {"ended_at": self.ended_at, "why": self.why, "bookends": bookends}
        return fields


class Identity(TypedDict):
    """What every record says of its session."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    cwd: str | None
    resume_command: str | None


def identity(header: "SessionHeader") -> Identity:
    """What names the session of a header, and the agent's own command that continues it; a sub-agent has none."""
    is_root = header.session_uid == header.root_session_uid
    command = resume_command(*header.key, header.path) if is_root else None
    return Identity(
        session_uid=header.session_uid,
        title=header.title,
        agent=header.agent,
        repo=header.repo,
        cwd=header.cwd,
        resume_command=command,
    )


def hit_of(header: "SessionHeader", score: float, matches: list[Match], why: str, **more: Any) -> SessionHit:
    """A hit on the session of a header; `more` are further fields."""
    return SessionHit(
        **identity(header),
        started_at=rfc3339(header.started_ms),
        score=round(score, 4),
        evicted=header.evicted_ms is not None and not any(match.seq for match in matches),
        matches=matches,
        ended_at=rfc3339(header.ended_ms),
        why=why,
        outcome=header.outcome,
        key=header.host_key,
        channel=header.channel,
        chat_id=header.chat_id,
        **more,
    )


class Amendment(NamedTuple):
    """What a session decided in place of an earlier one, when, and the event that says so."""

    session_uid: str
    event_uid: str
    text: str
    until_then: str
    ts: str | None


class SearchAnswer(NamedTuple):
    """Sessions, best first. `suggestion` is the query that was probably meant; `notes` explain what else was done."""

    query: str
    took_ms: float
    hits: list[SessionHit]
    suggestion: str | None = None
    notes: Sequence[str] = ()
    is_cut: bool = False  # more was found than the budget allows
    total: int | None = None  # sessions that match, shown or not
    is_least: bool = False  # not all were looked at: there may be more

    def to_json(self, *, explain: bool = False) -> dict[str, Any]:
        """An answer as every interface prints it; `explain` adds why each thing was found and what was noted."""
        fields: dict[str, Any] = {
            "query": self.query,
            "took_ms": self.took_ms,
            "total": self.total,
            "total_is_least": self.is_least,
            "hits": [hit.to_json(explain=explain) for hit in self.hits],
            "suggestion": self.suggestion,
        }
        return fields | {"notes": list(self.notes)} if explain else fields


def within_budget(answer: SearchAnswer, tokens: int) -> SearchAnswer:
    """As much of an answer as an agent can afford: the best first, cut between matches, never inside one.

    It costs what it takes as JSON on one line; what `explain` adds comes on top.
    """
    left = tokens - _cost(answer._replace(hits=[]).to_json())
    hits: list[SessionHit] = []
    for hit in answer.hits:
        left -= _cost(hit._replace(matches=[]).to_json())
        kept, left = _affordable(hit, left)
        if left < 0 or (hit.matches and not kept):
            break
        hits.append(hit._replace(matches=kept))
    if len(hits) == len(answer.hits):
        return answer._replace(hits=hits)
    note = f"Cut to {tokens} tokens: {len(hits)} of {len(answer.hits)} sessions"
    return answer._replace(hits=hits, notes=[*answer.notes, note], is_cut=True)


def _affordable(hit: SessionHit, left: int) -> tuple[list[Match], int]:
    """The best matches for so many tokens, and what is left of these; their neighbours go first."""
    kept: list[Match] = []
    for match in hit.matches:
        for shown in (match, match._replace(before=[], after=[])):
            cost = _cost(shown.to_json(hit.session_uid))
            if cost <= left:
                kept.append(shown)
                left -= cost
                break
        else:
            break
    return kept, left


_BYTES_OF_TOKEN = 4  # of UTF-8: about four letters of English or code, one and a third of CJK


def _cost(answer: dict[str, Any]) -> int:
    return -(-len(orjson.dumps(answer)) // _BYTES_OF_TOKEN)
