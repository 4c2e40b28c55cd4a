"""Distil every session that changed, and keep the result: the step of a sweep after `account`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from recollect import distill
from recollect.distill.digest import Subject, searchable
from recollect.distill.distiller import Distilled, distil, merge
from recollect.distill.exchanges import Exchange, cut
from recollect.distill.rules import ExchangeRules
from recollect.distill.story import tell
from recollect.distill.written import TOKENS, parse_digest, write_digest
from recollect.errors import NotFound
from recollect.schema import Covers, Digest, Session
from recollect.store import Store
from recollect.store.digests import DigestRow, Pending

TINY_BYTES = 4096  # a sub-agent with less to tell gets a line in its root's digest
SESSIONS_AT_ONCE = 200  # in one transaction, durable as a whole
BYTES_AT_ONCE = 4 * 1024 * 1024

Advance = Callable[[int, int], None]  # done, total


@dataclass(slots=True)
class AnalysisReport:
    """What one analysis did. `kept_back` digests would have covered less than the stored ones."""

    sessions: int = 0
    without_events: int = 0
    kept_back: int = 0


def analyze(store: Store, advance: Advance) -> AnalysisReport:
    """Bring digests, signals, outcomes and tallies up to date, the oldest activity first.

    May be stopped at any time: what was written is whole, and the rest is still pending.
    """
    report = AnalysisReport()
    pending = store.digests.pending(distill.VERSION)
    if not pending:
        return report
    work = _Work(store)
    for done, session in enumerate(pending, 1):
        work.add(session)
        if work.is_full:
            report.kept_back += work.save()
            advance(done, len(pending))
    report.kept_back += work.save()
    report.sessions, report.without_events = len(pending), work.without_events
    advance(len(pending), len(pending))
    return report


class _Work:
    """Sessions distilled and not yet written."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._streams = store.streams.names()
        self._lines: dict[str, dict[str, tuple[int, str]]] = {}  # of sub-agents of this run, by root
        self._rows: list[DigestRow] = []
        self._empty: list[tuple[str, str]] = []
        self._bytes = 0
        self.without_events = 0

    @property
    def is_full(self) -> bool:
        return len(self._rows) >= SESSIONS_AT_ONCE or self._bytes >= BYTES_AT_ONCE

    def add(self, session: Pending) -> None:
        stream = self._streams.get((session.agent, session.native_session_id))
        row = None if stream is None else self._distil(session, stream)
        if row is None:
            self._empty.append((session.agent, session.native_session_id))
            self.without_events += 1
        else:
            self._rows.append(row)
            self._bytes += len(row.digest or b"")

    def _distil(self, session: Pending, stream: int) -> DigestRow | None:
        steps = self._store.steps.of(stream)
        if not steps:
            return None
        story = tell(steps)
        is_root = session.parent_session_uid is None
        is_tiny = not is_root and session.sealed is None and sum(step.payload_bytes for step in steps) < TINY_BYTES
        wanted = [] if is_tiny else story.wanted()  # for a line the summaries are enough
        payloads = self._store.steps.payloads(session.agent, session.native_session_id, wanted)
        sealed = None if session.sealed is None else parse_digest(session.sealed.encode())
        distilled = distil(
            _subject(session) if sealed is None else _since(sealed, _subject(session)),
            session.session_class,
            story,
            Covers(self._count(session, stream), steps[-1].uid, distill.VERSION),
            payloads,
            self._store.steps.spent(stream),
            self._lines_below(session) if is_root else (),
        )
        if sealed is not None:
            distilled = _extended(sealed, distilled, _subject(session))
        elif session.sealed_line:  # all that is left of what a small sub-agent was for
            distilled = replace(distilled, line=session.sealed_line)
        if distilled.line:
            lines = self._lines.setdefault(session.root_session_uid, {})
            lines[session.session_uid] = (session.started_ms or 0, distilled.line)
        return _row(session, distilled, has_digest=not is_tiny)

    def _count(self, session: Pending, stream: int) -> int:
        """The events held; a session's row counts them too, but for one of which a part was dropped."""
        is_part = session.sealed is not None or session.is_lost
        return self._store.steps.count(stream) if is_part else session.event_count

    def _lines_below(self, session: Pending) -> list[str]:
        """What each sub-agent did, in the order they began."""
        known = self._store.digests.lines(session.session_uid) | self._lines.pop(session.session_uid, {})
        return [line for _, line in sorted(known.values())]

    def save(self) -> int:
        """Write what is waiting; return how many digests were kept back."""
        kept_back = self._store.digests.put(self._rows) if self._rows else 0
        self._store.digests.set_checked(self._empty, distill.VERSION)
        self._rows, self._empty, self._bytes = [], [], 0
        return kept_back


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
    """All that was distilled of a session; its figures are the whole session's."""
    whole = replace(distilled.digest, tokens=subject.tokens, usd=subject.usd)
    return merge(sealed, replace(distilled, digest=whole))


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
    stream = store.streams.find(session.agent, session.native_session_id)
    if stream is None:
        return []
    steps = store.steps.of(stream)
    payloads = store.steps.payloads(session.agent, session.native_session_id, steps)
    told = ((step, payloads[step.event_uid]) for step in steps)
    dropped = store.digests.dropped_requests(session.agent, session.native_session_id)
    return list(cut(session.session_uid, told, rules, dropped))
