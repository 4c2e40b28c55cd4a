"""All that is distilled from sessions: one pass over their events, then the judges; and how it is kept.

What the closed parts of a long session left is kept between sweeps.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from recollect import analysis
from recollect.analysis import VERSION
from recollect.digest import (
    Part,
    Payloads,
    Subject,
    Trace,
    activity_of,
    closed,
    extend,
    join,
    make_part,
    parse_digest,
    read_trace,
    searchable,
    shortened,
    write_digest,
)
from recollect.knowledge import Lessons, Material, derive, steps_to_read
from recollect.model import schema
from recollect.model.clock import now_ms
from recollect.model.kinds import SessionKey
from recollect.model.schema import FILES_LANE, Covers, Digest
from recollect.sessions import TOKENS, Parts, Used, add_up, boundary_of, cuts_ms, decode_totals, split, until, usd_of
from recollect.store import (
    ACCOUNT,
    DIGEST,
    ActivityRow,
    DigestRow,
    KeptState,
    Pending,
    Response,
    Step,
    Store,
    StoredSession,
)


@dataclass(frozen=True, slots=True)
class Closed:
    """All that was distilled from closed parts, what they teach, and what they used."""

    part: Part
    lessons: Lessons
    used: list[Used]


_MADE_BY = b"%d " % VERSION  # before a state: only the version that kept it can read it
_decode = msgspec.json.Decoder(tuple[str, str | None, Part, Lessons]).decode


def _pack_closed(closed: Closed, session: Pending) -> bytes:
    """What was distilled, after what it was distilled with: with anything else it is distilled again."""
    return _MADE_BY + msgspec.json.encode((session.session_class, session.cwd, closed.part, closed.lessons))


def _find_closed(session: Pending, stored: StoredSession) -> Closed | None:
    """What was kept of a session; None if nothing was, or it would be distilled otherwise now."""
    if stored.kept is None or session.sealed is not None or session.is_lost:
        return None
    kept = stored.kept.states[DIGEST]
    if not kept.startswith(_MADE_BY):
        return None
    session_class, cwd, part, lessons = _decode(kept.removeprefix(_MADE_BY))
    if (session_class, cwd) != (session.session_class, session.cwd):
        return None
    return Closed(part, lessons, decode_totals(stored.kept.states[ACCOUNT]).used)


_LINE_CHARS, _FILES_OF_LINE = 300, 3
_BYTES_OF_TOKEN = 4
TINY_BYTES = 4096  # a sub-agent with less to tell gets a line in its root's digest
_SESSIONS_AT_ONCE, _EVENTS_AT_ONCE = 500, 5_000  # in memory, and in one transaction


def distil_pending(store: Store, advance: Callable[[int, int], None]) -> None:
    """Bring digests, signals, outcomes and activity up to date, sub-agents before their roots.

    May be stopped at any time: what was written is whole, and the rest is still pending.
    """
    at_ms, pending = now_ms(), {session.key: session for session in store.digest_rows.pending(analysis.VERSION)}
    keys = sorted(pending, key=lambda key: pending[key].parent_session_uid is None)
    held = store.steps.counts(keys)
    store.digest_rows.set_checked([key for key in keys if key not in held], analysis.VERSION)
    done = len(pending) - len(held)
    for group in store.steps.groups(keys, _SESSIONS_AT_ONCE, _EVENTS_AT_ONCE):
        sessions = store.steps.read(group)
        store.kept.put({DIGEST: _distil(store, sessions, pending, at_ms)})
        done += len(sessions)
        advance(done, len(pending))


def distil_sessions(store: Store, sessions: Sequence[StoredSession]) -> list[KeptState]:
    """Distil sessions whose rows were just made, and return what to keep of long ones."""
    pending = {
        session.key: session for session in store.digest_rows.pending(analysis.VERSION, [one.key for one in sessions])
    }
    return _distil(store, [session for session in sessions if session.key in pending], pending, now_ms())


def _distil(
    store: Store, sessions: Sequence[StoredSession], pending: Mapping[SessionKey, Pending], at_ms: int
) -> list[KeptState]:
    """Distil sessions together: all have one `analyzed_ms`, when that began, so that none was ingested after it."""
    batch = _Batch(store, [pending[session.key] for session in sessions])
    distilled = [(session.key, batch.distil(pending[session.key], session)) for session in sessions]
    if rows := [row for _, row in distilled if row is not None]:
        store.digest_rows.put(rows, at_ms)
    store.digest_rows.set_checked([key for key, row in distilled if row is None], analysis.VERSION)
    return batch.kept


class _Batch:
    """Sessions that are distilled together. A root's digest has a line of each of its sub-agents."""

    def __init__(self, store: Store, sessions: Sequence[Pending]) -> None:
        self._store = store
        self._lines = store.digest_rows.lines([one.session_uid for one in sessions if one.parent_session_uid is None])
        self.kept: list[KeptState] = []

    def distil(self, session: Pending, stored: StoredSession) -> DigestRow | None:
        """What is kept of a session; None if no event of it is held."""
        before = _find_closed(session, stored)
        if before is None and stored.kept is not None:
            stored = self._store.steps.read([stored.key])[0]
        if before is None and all(step.lane == FILES_LANE for step in stored.steps):
            return None
        sealed = None if session.sealed is None else parse_digest(session.sealed.encode())
        subject, is_rest = _subject(session), sealed is not None or session.is_lost
        parts = Parts((), stored.steps) if is_rest else split(stored.steps)
        before, responses = self._close(session, stored, parts, before)
        steps = [step for step in parts.open if step.lane != FILES_LANE]
        trace = _read_trace(steps, before)
        is_root = session.parent_session_uid is None
        size = sum(step.payload_bytes for step in steps)
        is_tiny = not is_root and sealed is None and before is None and size < TINY_BYTES
        payloads = {} if is_tiny else self._payloads(stored.key, trace)  # for a line the summaries are enough
        count = len(stored.steps) if is_rest else session.event_count
        used = add_up(responses, before.used if before else ())
        rest = replace(
            subject if sealed is None else _since(sealed, subject),
            covers=Covers(count, steps[-1].uid if steps else None, analysis.VERSION),
            sub_agents=[line for _, line in sorted(self._lines.get(session.session_uid, {}).values())]
            if is_root
            else (),
            models=_models(used),
        )
        part = distil(rest, session.session_class, trace, payloads, responses, before)
        activity = activity_of(rest, part.minutes, used)
        if sealed is not None:  # its figures are the whole session's
            digest = extend(sealed, replace(part.digest, tokens=subject.tokens, usd=subject.usd))
            part = replace(part, digest=digest)
        line = line_of(part.digest) if session.session_class == schema.SUB_AGENT else ""
        if sealed is None and session.sealed_line:  # all that is left of what a small sub-agent was for
            line = session.sealed_line
        if line:
            lines = self._lines.setdefault(session.root_session_uid, {})
            lines[session.session_uid] = (session.started_ms or 0, line)
        subject = subject if before is None else _part_of(subject, responses)
        lessons = _lessons(session, subject, trace, payloads, responses)
        lessons = before.lessons + lessons if before else lessons
        return _row(session, part, line, activity, lessons, has_digest=not is_tiny)

    def _payloads(self, key: SessionKey, trace: Trace) -> Payloads:
        wanted = {step.event_uid: step for step in (*trace.wanted(), *steps_to_read(trace))}
        return self._store.steps.payloads(key, wanted.values())

    def _close(
        self, session: Pending, stored: StoredSession, parts: Parts, before: Closed | None
    ) -> tuple[Closed | None, list[Response]]:
        """Distil the closed parts of a session and keep what they left; returns it, and the responses since."""
        has_own = before is not None or any(step.copy_of is None for step in stored.steps)
        cut_ms = 0 if stored.kept is None else stored.kept.boundary.cut_ms
        used, responses = before.used if before else [], stored.responses
        for steps, part_ms in zip(parts.closed, cuts_ms(parts, cut_ms), strict=True):
            early, responses = until(part_ms, responses)
            used = add_up(early, used)
            if has_own and all(step.copy_of is not None for step in steps):
                continue
            trace, earlier = _read_trace(steps, before), before.part if before else None
            payloads = self._payloads(stored.key, trace)
            part = make_part(closed(_subject(session)), session.session_class, trace, payloads, early, earlier)
            lessons = _lessons(session, _part_of(_subject(session), early), trace, payloads, early)
            lessons = before.lessons + lessons if before else lessons
            before = Closed(join(earlier, part, is_last=False), lessons, used)
        if before is None:
            return None, stored.responses
        before = replace(before, used=used)
        boundary = boundary_of(parts, cut_ms)
        if boundary is not None and has_own:
            self.kept.append((stored.key, boundary, _pack_closed(before, session)))
        return before, responses


def _read_trace(steps: Sequence[Step], before: Closed | None) -> Trace:
    return read_trace(steps, before.part.latest, has_worked=before.part.has_worked) if before else read_trace(steps)


def _part_of(subject: Subject, responses: Sequence[Response]) -> Subject:
    """The subject of a part of a session, with what the part itself cost."""
    return replace(closed(subject), usd=usd_of(add_up(responses))[0])


def _lessons(
    session: Pending, subject: Subject, trace: Trace, payloads: Payloads, responses: Sequence[Response]
) -> Lessons:
    if session.session_class == schema.WARM_UP:
        return Lessons()
    is_human = session.session_class != schema.SUB_AGENT
    return derive(Material(subject, session.agent, is_human, trace, payloads, responses))


def distil(
    subject: Subject,
    session_class: str,
    trace: Trace,
    payloads: Payloads,
    responses: Sequence[Response],
    before: Closed | None = None,
) -> Part:
    """Distil a session from its trace, the payloads its trace wants, and what its responses used.

    Of a long session these are its last part's; `before` is what came before it.
    """
    if before is None:
        return make_part(subject, session_class, trace, payloads, responses)
    part = join(before.part, make_part(subject, session_class, trace, payloads, responses, before.part), is_last=True)
    digest = replace(part.digest, covers=subject.covers or part.digest.covers, tokens=subject.tokens, usd=subject.usd)
    return replace(part, digest=replace(digest, usd_is_estimate=subject.usd_is_estimate))


def _models(used: Sequence[Used]) -> list[str]:
    """The models that answered, the most used first."""
    counts: Counter[str] = Counter()
    for one in used:
        counts.update({one.model: one.responses} if one.model else {})
    return sorted(counts, key=lambda model: (-counts[model], model))


def line_of(digest: Digest) -> str:
    """What a sub-agent was for and how it went, for its root's digest."""
    asked = digest.requests[0].text if digest.requests else digest.title or "no request"
    answer = f" → {digest.final_answer.text}" if digest.final_answer else ""
    outcome = digest.outcome.outcome if digest.outcome.stopped_by is None else f"stopped: {digest.outcome.stopped_by}"
    names = [file.name.rpartition("/")[2] for file in digest.files[:_FILES_OF_LINE]]  # its root's digest counts none
    more = f" and {digest.file_count - len(names)} more" if digest.file_count > len(names) else ""
    edited = f" (edited {', '.join(names)}{more})" if names else ""
    line = f"[{outcome}] {shortened(asked, _LINE_CHARS // 2)}{edited}{answer}"
    return shortened(line, _LINE_CHARS)


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


def _row(
    session: Pending, part: Part, line: str, activity: tuple[ActivityRow, ...], lessons: Lessons, *, has_digest: bool
) -> DigestRow:
    digest = part.digest
    return DigestRow(
        agent=session.agent,
        native_session_id=session.native_session_id,
        ingested_ms=session.ingested_ms,
        distiller=analysis.VERSION,
        event_count=digest.covers.event_count,
        last_event_uid=digest.covers.last_event_uid,
        outcome=digest.outcome.outcome,
        confidence=digest.outcome.confidence,
        line=line,
        raw_tokens=part.all_bytes // _BYTES_OF_TOKEN,
        kept_tokens=part.kept_bytes // _BYTES_OF_TOKEN,
        digest=write_digest(digest) if has_digest else None,
        text=searchable(digest) if has_digest else "",
        signals=part.signals,
        activity=activity,
        tools=part.tools,
        commands=part.commands,
        facts=lessons.facts,
        exchanges=lessons.exchanges,
    )
