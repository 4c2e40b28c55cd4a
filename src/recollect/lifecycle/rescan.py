"""Newer redaction rules applied to what is already stored: every text of every session, and every byte it was in.

The digest of an evicted root cannot be made again, so a forgotten sub-agent's line is taken out of it here.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

import orjson

from recollect import analysis
from recollect.lifecycle.erase import drop_leftovers, drop_prepared, expire_answers
from recollect.model.kinds import SessionKey, session_uid
from recollect.redact import OLDER, OTHER, KnownValues, Redactor, compare_versions
from recollect.sessions import AccountRules, account_for
from recollect.store import RESCAN_UNFINISHED, HeldStream, Store, in_pieces

Advance = Callable[[int, int], None]  # done, total

_STREAMS_AT_ONCE = 64


@dataclass(slots=True)
class RescanReport:
    """Counts what a rescan looked at and replaced; `replaced` by rule."""

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
    was_stopped = any(stream.redacted_with == RESCAN_UNFINISHED for stream in streams)  # the last time
    report, before, unscannable = RescanReport(len(streams)), redactor.replaced.copy(), redactor.unscannable
    if not dry_run:
        drop_leftovers(store)
        store.erasure.owe_scrub()
    # What belongs to no stream comes first: whatever stops this, the streams are still due, and it runs again.
    has_changed_rows = store.redaction.redact_others(redactor, dry_run=dry_run)
    if not dry_run:
        has_changed_rows |= store.lasting.redact_records(redactor)
    for start in range(0, len(streams), _STREAMS_AT_ONCE):
        _rescan_streams(store, redactor, streams[start : start + _STREAMS_AT_ONCE], report, dry_run=dry_run)
        advance(min(start + _STREAMS_AT_ONCE, len(streams)), len(streams))
    report.unscannable = redactor.unscannable - unscannable
    report.replaced = dict(sorted((redactor.replaced - before).items()))
    if dry_run:
        return report
    if report.sessions_changed or was_stopped:
        account_for(store, rules, lambda done, total: None)  # their content hashes; a sweep does the rest
        store.fulltext.index_pending(store.payloads)
        analysis.distil_pending(store, lambda done, total: None)
        # Which events are copies is judged by the next sweep, which then looks at all of them.
        store.kept.drop([SessionKey(stream.agent, stream.native_id) for stream in streams])
    expire_answers(store)
    if report.sessions_changed or has_changed_rows or was_stopped:
        drop_prepared(store)
        store.erasure.scrub()
    store.erasure.owe_no_scrub()
    store.rewrites.finish(streams, redactor.version)
    return report


def _rescan_streams(
    store: Store, redactor: Redactor, streams: Sequence[HeldStream], report: RescanReport, *, dry_run: bool
) -> None:
    """Apply the rules to some sessions; their old packs go when all new ones are safe on the disk."""
    unchanged: list[HeldStream] = []
    for stream in streams:
        payloads, has_old_states = changed_payloads(store, stream, redactor)
        key = SessionKey(stream.agent, stream.native_id)
        events, has_changed = store.redaction.redact_session(key, redactor, dry_run=dry_run)
        if not (payloads or has_old_states or has_changed):
            unchanged.append(stream)
            continue
        report.sessions_changed += 1
        report.events_changed += len(events | payloads.keys())
        if not dry_run:
            store.rewrites.replace(stream, payloads)
    if not dry_run:
        settled = [stream for stream in unchanged if stream.redacted_with != RESCAN_UNFINISHED]
        store.rewrites.mark(settled, redactor.version)
        if len(unchanged) < len(streams):
            store.rewrites.drop_old()


def is_outdated(redacted_with: str | None, version: str) -> bool:
    return redacted_with is None or compare_versions(redacted_with, version) in (OLDER, OTHER)


def changed_payloads(
    store: Store, stream: HeldStream, redactor: Redactor | KnownValues
) -> tuple[dict[int, bytes], bool]:
    """Return the payloads that change, by event, and True if there are earlier states of messages that grew."""
    changed: dict[int, bytes] = {}
    held = store.rewrites.events(stream)
    for events in in_pieces(held, itemgetter(2)):
        places = [(start, size) for _, start, size in events]
        content = list(store.payloads.iter(SessionKey(stream.agent, stream.native_id), places))
        changed |= {events[number][0]: new for number, new in redactor.payloads(content).items()}
    return changed, sum(size for _, _, size in held) < stream.stream_bytes


_FORGOTTEN = "[forgotten]"


class _Lines(KnownValues):
    """Replaces whole lines and nothing else."""

    def __init__(self, lines: Collection[str]) -> None:
        self._lines = lines

    def payloads(self, payloads: Sequence[bytes]) -> dict[int, bytes]:
        texts = self._replaced([payload.decode() for payload in payloads], [_in_json(line) for line in self._lines])
        return {number: text.encode() for number, text in texts.items()}

    def texts(self, texts: Sequence[str]) -> dict[int, str]:
        return self._replaced(texts, self._lines)

    def _replaced(self, texts: Sequence[str], lines: Collection[str]) -> dict[int, str]:
        changed = {}
        for number, text in enumerate(texts):
            for line in lines:
                if line in text:
                    changed[number] = text = text.replace(line, _FORGOTTEN)
        return changed


def _in_json(line: str) -> str:
    return orjson.dumps(line).decode()[1:-1]


def drop_lines(store: Store, keys: Collection[SessionKey]) -> None:
    """Take the lines of sub-agents out of the digests of evicted sessions that stay."""
    uids, roots = {session_uid(*key) for key in keys}, {session_uid(*key): key for key in store.evictions.names()}
    for root, lines in store.digest_rows.lines(sorted(roots)).items():
        if root not in uids and (gone := [line for uid, (_, line) in lines.items() if uid in uids]):
            store.redaction.redact_session(roots[root], _Lines(gone), with_memory=True)
            store.lasting.redact_records(_Lines(gone), of=roots[root])
