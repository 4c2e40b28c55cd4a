"""All that is distilled from sessions: one pass over their events, then the judges; and how it is kept."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from recollect import distill, schema
from recollect.clock import now_ms
from recollect.distill import ExchangeRules
from recollect.distill.activity import activity_of
from recollect.distill.digest import Findings, Subject, extend, make_digest, parse_digest, searchable, write_digest
from recollect.distill.exchanges import Exchange, cut
from recollect.distill.outcome import find_ending, judge
from recollect.distill.signals import corrections, find_signals
from recollect.distill.story import Payloads, Story, Use, settle, tell
from recollect.distill.texts import shortened
from recollect.distill.todos import todo_list
from recollect.errors import NotFound
from recollect.kinds import SessionKey
from recollect.schema import FILES_LANE, Covers, Digest, Outcome, Session, Signal
from recollect.sessions.pricing import TOKENS
from recollect.store import ActivityRow, DigestRow, Pending, Response, Store, StoredSession, UseRow

LINE_CHARS = 300
FILES_OF_LINE = 3
SAMPLE_CHARS = 160
BYTES_OF_TOKEN = 4
TINY_BYTES = 4096  # a sub-agent with less to tell gets a line in its root's digest
_SESSIONS_AT_ONCE, _EVENTS_AT_ONCE = 500, 5_000  # in memory, and in one transaction


def distil_pending(store: Store, advance: Callable[[int, int], None]) -> None:
    """Bring digests, signals, outcomes and tallies up to date, sub-agents before their roots.

    May be stopped at any time: what was written is whole, and the rest is still pending.
    """
    at_ms, pending = now_ms(), {session.key: session for session in store.digests.pending(distill.VERSION)}
    keys = sorted(pending, key=lambda key: pending[key].parent_session_uid is None)
    held = store.steps.counts(keys)
    store.digests.set_checked([key for key in keys if key not in held], distill.VERSION)
    done = len(pending) - len(held)
    for sessions in store.steps.iter_sessions(keys, _SESSIONS_AT_ONCE, _EVENTS_AT_ONCE):
        _distil(store, sessions, pending, at_ms)
        done += len(sessions)
        advance(done, len(pending))


def distil_sessions(store: Store, sessions: Sequence[StoredSession], at_ms: int) -> None:
    """Distil sessions whose rows were just made. Those that are distilled together have one `analyzed_ms`."""
    pending = {
        session.key: session for session in store.digests.pending(distill.VERSION, [one.key for one in sessions])
    }
    _distil(store, [session for session in sessions if session.key in pending], pending, at_ms)


def _distil(store: Store, sessions: Sequence[StoredSession], pending: Mapping[SessionKey, Pending], at_ms: int) -> None:
    batch = _Batch(store, [pending[session.key] for session in sessions])
    distilled = [(session.key, batch.distil(pending[session.key], session)) for session in sessions]
    if rows := [row for _, row in distilled if row is not None]:
        store.digests.put(rows, at_ms)
    store.digests.set_checked([key for key, row in distilled if row is None], distill.VERSION)


class _Batch:
    """Sessions that are distilled together. A root's digest has a line of each of its sub-agents."""

    def __init__(self, store: Store, sessions: Sequence[Pending]) -> None:
        self._store = store
        self._lines = store.digests.lines([one.session_uid for one in sessions if one.parent_session_uid is None])

    def distil(self, session: Pending, stored: StoredSession) -> DigestRow | None:
        """What is kept of a session; None if no event of it is held."""
        steps = [step for step in stored.steps if step.lane != FILES_LANE]
        if not steps:
            return None
        story = tell(steps)
        is_root = session.parent_session_uid is None
        is_tiny = not is_root and session.sealed is None and sum(step.payload_bytes for step in steps) < TINY_BYTES
        wanted = [] if is_tiny else story.wanted()  # for a line the summaries are enough
        sealed = None if session.sealed is None else parse_digest(session.sealed.encode())
        is_part = sealed is not None or session.is_lost
        covers = Covers(len(stored.steps) if is_part else session.event_count, steps[-1].uid, distill.VERSION)
        distilled = distil(
            _subject(session) if sealed is None else _since(sealed, _subject(session)),
            session.session_class,
            story,
            covers,
            self._store.steps.payloads(stored.key, wanted),
            stored.responses,
            [line for _, line in sorted(self._lines.get(session.session_uid, {}).values())] if is_root else (),
        )
        if sealed is not None:
            distilled = _extended(sealed, distilled, _subject(session))
        elif session.sealed_line:  # all that is left of what a small sub-agent was for
            distilled = replace(distilled, line=session.sealed_line)
        if distilled.line:
            lines = self._lines.setdefault(session.root_session_uid, {})
            lines[session.session_uid] = (session.started_ms or 0, distilled.line)
        return _row(session, distilled, has_digest=not is_tiny)


@dataclass(frozen=True, slots=True)
class Distilled:
    """Everything that is kept of a session for ever."""

    digest: Digest
    signals: tuple[Signal, ...]
    line: str  # a sub-agent's digest in a line, for its root's; empty for any other session
    activity: tuple[ActivityRow, ...]
    tools: tuple[UseRow, ...]
    commands: tuple[UseRow, ...]
    raw_tokens: int
    kept_tokens: int

    @property
    def outcome(self) -> Outcome:
        return self.digest.outcome


def distil(
    subject: Subject,
    session_class: str,
    story: Story,
    covers: Covers,
    payloads: Payloads,
    responses: Sequence[Response],
    sub_agents: Sequence[str] = (),
) -> Distilled:
    """Distil a session from its story, the payloads its story wants, and what its responses used."""
    settle(story, payloads)
    todos = todo_list(story.todo_calls, payloads)
    ending = find_ending(story, payloads)
    outcome = judge(story, ending, todos, session_class)
    # Above a sub-agent is another agent: what that says is no human's correction.
    corrected = [] if session_class == schema.SUB_AGENT else list(corrections(story))
    signals = find_signals(subject.session_uid, story, corrected, todos, responses, payloads)
    findings = Findings(outcome, signals, corrected, todos, ending, sub_agents, _models(responses))
    digest = make_digest(subject, covers, story, payloads, findings)
    return Distilled(
        digest=digest,
        signals=tuple(signals),
        line=_line(digest) if session_class == schema.SUB_AGENT else "",
        activity=activity_of(subject, story, responses),
        tools=_uses(story.tools) if story.has_own else (),
        commands=_uses(story.commands) if story.has_own else (),
        raw_tokens=story.all_bytes // BYTES_OF_TOKEN if story.has_own else 0,
        kept_tokens=story.kept_bytes // BYTES_OF_TOKEN if story.has_own else 0,
    )


def _models(responses: Sequence[Response]) -> list[str]:
    """The models that answered, the most used first."""
    counts = Counter(response.model for response in responses if response.model)
    return sorted(counts, key=lambda model: (-counts[model], model))


def _line(digest: Digest) -> str:
    """What a sub-agent was for and how it went."""
    asked = digest.requests[0].text if digest.requests else digest.title or "no request"
    answer = f" → {digest.final_answer.text}" if digest.final_answer else ""
    line = f"[{digest.outcome.outcome}] {shortened(asked, LINE_CHARS // 2)}{_edited(digest)}{answer}"
    return shortened(line, LINE_CHARS)


def _edited(digest: Digest) -> str:
    """The files a sub-agent edited, by their last names: its root's digest counts none of them."""
    names = [file.name.rpartition("/")[2] for file in digest.files[:FILES_OF_LINE]]
    more = f" and {digest.file_count - len(names)} more" if digest.file_count > len(names) else ""
    return f" (edited {', '.join(names)}{more})" if names else ""


def _uses(uses: Mapping[tuple[int, str], Use]) -> tuple[UseRow, ...]:
    return tuple(
        sorted(
            UseRow(day, shortened(name, LINE_CHARS), use.sample[:SAMPLE_CHARS], use.count, use.failures, use.refusals)
            for (day, name), use in uses.items()
        )
    )


def _subject(session: Pending) -> Subject:
    return Subject(
        session_uid=session.session_uid,
        title=session.title,
        cwd=session.cwd,
        tokens={name: getattr(session, name) for name in TOKENS},
        usd=session.usd,
        usd_is_estimate=bool(session.usd_is_estimate),
        started_ms=session.started_ms,
        ended_ms=session.ended_ms,
    )


def _since(sealed: Digest, subject: Subject) -> Subject:
    """What a session used since a digest was sealed: the rest is counted there."""
    tokens = {name: max(0, count - sealed.tokens.get(name, 0)) for name, count in subject.tokens.items()}
    usd = None if subject.usd is None else max(0.0, round(subject.usd - (sealed.usd or 0.0), 9))
    return replace(subject, tokens=tokens, usd=usd)


def _extended(sealed: Digest, distilled: Distilled, subject: Subject) -> Distilled:
    """The same with a digest that also covers what was dropped; its figures are the whole session's."""
    digest = extend(sealed, replace(distilled.digest, tokens=subject.tokens, usd=subject.usd))
    return replace(distilled, digest=digest, line=_line(digest) if distilled.line else "")


def _row(session: Pending, distilled: Distilled, *, has_digest: bool) -> DigestRow:
    digest = distilled.digest
    return DigestRow(
        agent=session.agent,
        native_session_id=session.native_session_id,
        ingested_ms=session.ingested_ms,
        distiller=distill.VERSION,
        event_count=digest.covers.event_count,
        last_event_uid=digest.covers.last_event_uid,
        outcome=distilled.outcome.outcome,
        confidence=distilled.outcome.confidence,
        line=distilled.line,
        raw_tokens=distilled.raw_tokens,
        kept_tokens=distilled.kept_tokens,
        digest=write_digest(digest) if has_digest else None,
        text=searchable(digest) if has_digest else "",
        signals=distilled.signals,
        activity=distilled.activity,
        tools=distilled.tools,
        commands=distilled.commands,
    )


def find_digest(store: Store, session: Session) -> Digest:
    """The stored digest of a session; raises NotFound with what to do instead if it has none."""
    raw = store.digests.find(session.agent, session.native_session_id)
    if raw is not None:
        return parse_digest(raw)
    if session.analyzed_at is None:
        advice = "`recollect sweep` makes it" if session.evicted_at is None else "`recollect rehydrate` reads it again"
        raise NotFound(f"No digest yet: {session.session_uid}", advice)
    raise NotFound(
        f"Too small for a digest of its own: {session.session_uid}",
        f"it is a line in that of {session.root_session_uid}",
    )


def find_exchanges(store: Store, session: Session, rules: ExchangeRules) -> list[Exchange]:
    """The exchanges of a session whose events are held; those that were dropped before them count."""
    key = SessionKey(session.agent, session.native_session_id)
    steps = [step for stored in store.steps.read([key]) for step in stored.steps if step.lane != FILES_LANE]
    payloads = store.steps.payloads(key, steps)
    pairs = ((step, payloads[step.event_uid]) for step in steps)
    return list(cut(session.session_uid, pairs, rules, store.digests.dropped_requests(*key)))
