"""Newer redaction rules applied to what is already stored: every text of every session, and every byte it was in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter

from recollect import analysis
from recollect.forget.answers import expire_answers
from recollect.forget.erase import drop_leftovers, drop_prepared
from recollect.kinds import SessionKey
from recollect.redact import OLDER, OTHER, KnownValues, Redactor, compare_versions
from recollect.sessions import AccountRules, account_for
from recollect.store import RESCAN_UNFINISHED, HeldStream, Store, in_pieces

Advance = Callable[[int, int], None]  # done, total

_STREAMS_AT_ONCE = 64


@dataclass(slots=True)
class RescanReport:
    """What a rescan looked at and replaced; `replaced` counts by rule."""

    sessions: int = 0
    sessions_changed: int = 0
    events_changed: int = 0
    unscannable: int = 0
    replaced: dict[str, int] = field(default_factory=dict)


def rescan_store(
    store: Store, redactor: Redactor, rules: AccountRules, advance: Advance, *, dry_run: bool = False
) -> RescanReport:
    """Apply the rules to every session that went through older rules, or none. The sweep's lock must be held."""
    streams = [stream for stream in store.raw.streams() if is_outdated(stream.redacted_with, redactor.version)]
    run = _Rescan(store, redactor, dry_run=dry_run)
    report = run.apply(streams, advance)
    was_stopped = any(stream.redacted_with == RESCAN_UNFINISHED for stream in streams)  # the last time
    if (report.sessions_changed or was_stopped) and not dry_run:
        account_for(store, rules, lambda done, total: None)  # their content hashes; a sweep does the rest
        store.fulltext.index_pending(store.payloads)
        analysis.distil_pending(store, lambda done, total: None)
        # Which events are copies is judged by the next sweep, which then looks at all of them.
        store.kept.drop([SessionKey(stream.agent, stream.native_id) for stream in streams])
    run.finish(streams, must_scrub=was_stopped)
    return report


def is_outdated(redacted_with: str | None, version: str) -> bool:
    return redacted_with is None or compare_versions(redacted_with, version) in (OLDER, OTHER)


def changed_payloads(
    store: Store, stream: HeldStream, redactor: Redactor | KnownValues
) -> tuple[dict[int, bytes], bool]:
    """The payloads that change, by event, and whether there are earlier states of messages that grew."""
    changed: dict[int, bytes] = {}
    held = store.rewrites.events(stream)
    for events in in_pieces(held, attrgetter("bytes")):
        places = [(event.start, event.bytes) for event in events]
        content = list(store.payloads.iter(SessionKey(stream.agent, stream.native_id), places))
        changed |= {events[number].id: new for number, new in redactor.payloads(content).items()}
    return changed, sum(event.bytes for event in held) < stream.stream_bytes


class _Rescan:
    """One run of the rules over a store."""

    def __init__(self, store: Store, redactor: Redactor, *, dry_run: bool) -> None:
        self._store = store
        self._redactor = redactor
        self._dry_run = dry_run
        self._sessions_changed = self._events_changed = 0
        self._has_changed_rows = False

    def apply(self, streams: Sequence[HeldStream], advance: Advance) -> RescanReport:
        """Replace the texts of these sessions, and of all rows that belong to no stream; `finish` must follow."""
        if not self._dry_run:
            drop_leftovers(self._store)
            self._store.erasure.owe_scrub()
        before, unscannable = self._redactor.replaced.copy(), self._redactor.unscannable
        # What belongs to no stream comes first: whatever stops this, the streams are still due, and it runs again.
        self._has_changed_rows = self._store.redaction.redact_others(self._redactor, dry_run=self._dry_run)
        if not self._dry_run:
            self._has_changed_rows |= self._store.evictions.redact_records(self._redactor)
        for start in range(0, len(streams), _STREAMS_AT_ONCE):
            self._apply_to(streams[start : start + _STREAMS_AT_ONCE])
            advance(min(start + _STREAMS_AT_ONCE, len(streams)), len(streams))
        return RescanReport(
            sessions=len(streams),
            sessions_changed=self._sessions_changed,
            events_changed=self._events_changed,
            unscannable=self._redactor.unscannable - unscannable,
            replaced=dict(sorted((self._redactor.replaced - before).items())),
        )

    def _apply_to(self, streams: Sequence[HeldStream]) -> None:
        """Some sessions; their old packs go when all new ones are safe on the disk."""
        unchanged: list[HeldStream] = []
        for stream in streams:
            key = SessionKey(stream.agent, stream.native_id)
            payloads, has_old_states = changed_payloads(self._store, stream, self._redactor)
            events, has_changed = self._store.redaction.redact_session(key, self._redactor, dry_run=self._dry_run)
            if not (payloads or has_old_states or has_changed):
                unchanged.append(stream)
                continue
            self._sessions_changed += 1
            self._events_changed += len(events | payloads.keys())
            if not self._dry_run:
                self._store.rewrites.replace(stream, payloads)
        if not self._dry_run:
            settled = [stream for stream in unchanged if stream.redacted_with != RESCAN_UNFINISHED]
            self._store.rewrites.mark(settled, self._redactor.version)
            if len(unchanged) < len(streams):
                self._store.rewrites.drop_old()

    def finish(self, streams: Sequence[HeldStream], *, must_scrub: bool = False) -> None:
        """Leave no byte of what was replaced, then note the rules that were applied."""
        if self._dry_run:
            return
        expire_answers(self._store)
        if self._sessions_changed or self._has_changed_rows or must_scrub:
            drop_prepared(self._store)
            self._store.erasure.scrub()
        self._store.erasure.owe_no_scrub()
        self._store.rewrites.finish(streams, self._redactor.version)
