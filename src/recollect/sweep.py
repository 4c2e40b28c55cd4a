"""discover -> ingest -> lineage -> account -> full text. One page, for ever."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial

import orjson

from recollect.account import account_for
from recollect.config import Settings
from recollect.discovery import Found, find_changes
from recollect.lineage import mark_copies
from recollect.readers import Failure, Finished, Reading, read_tasks
from recollect.recall.index import index_pending
from recollect.repos import Checkouts, domain_of
from recollect.store import Store
from recollect.store.batch import Batch
from recollect.store.locks import sweep_lock

BATCH_EVENTS = 4000  # in one transaction: under a tenth of a second
BATCH_BYTES = 16 * 1024 * 1024

Progress = Callable[[str, int, int], None]  # stage, done, total


@dataclass(slots=True)
class SweepReport:
    """What one sweep found and did."""

    sources: int = 0
    sources_changed: int = 0
    sources_gone: int = 0
    sources_failed: int = 0
    sessions: int = 0
    sessions_new: int = 0
    events_new: int = 0
    events_replaced: int = 0
    lines_read: int = 0
    bytes_read: int = 0
    bad_lines: int = 0
    seconds: float = 0.0
    skipped: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[str, str]] = field(default_factory=list)


def sweep(store: Store, settings: Settings, progress: Progress, *, verify: bool = False) -> SweepReport:
    """Bring the store up to date with the agents' files. Raises Busy if another sweep is running."""
    begun = time.monotonic()
    with sweep_lock(store.folder):
        before = store.sessions.count()
        found = find_changes(store, settings.host, settings.roots, verify=verify)
        report = SweepReport(sources=found.sources, sources_gone=len(found.gone))
        _note_files(store, found)
        _ingest(store, found, report, progress)
        _account(store, settings, report, progress)
        index_pending(store, partial(progress, "indexing"))
        store.checkpoint()
    report.sessions = store.sessions.count()
    report.sessions_new = report.sessions - before
    report.seconds = round(time.monotonic() - begun, 3)
    return report


def _note_files(store: Store, found: Found) -> None:
    for source, host, path in found.moved:
        store.sources.move(source, host, path)
    store.sources.mark_gone(found.gone)
    store.sources.mark_back(found.back)
    if found.outdated:
        store.streams.drop_outdated(found.outdated)


def _ingest(store: Store, found: Found, report: SweepReport, progress: Progress) -> None:
    total, done = sum(task.row.size - task.row.offset for task in found.tasks), 0
    for group in _grouped(read_tasks(found.tasks)):
        batches = [reading for reading in group if isinstance(reading, Batch)]
        if batches:
            written = store.events.put(batches, store.sources.save)
            report.events_new += written.events_new
            report.events_replaced += written.events_replaced
        done += sum(_count(store, report, reading) for reading in group)
        progress("reading", min(done, total), total)


def _count(store: Store, report: SweepReport, reading: Reading) -> int:
    if isinstance(reading, Batch):
        report.lines_read += reading.lines
        report.bytes_read += reading.bytes
        report.bad_lines += len(reading.problems)
        report.skipped.update(reading.skipped)
        return reading.bytes
    if isinstance(reading, Failure):
        store.sources.save_failure(reading.task.row, reading.reason)
        report.failures.append((reading.task.row.path, reading.reason))
        report.sources_failed += 1
    report.sources_changed += isinstance(reading, Finished)
    return 0


def _grouped(readings: Iterable[Reading]) -> Iterator[list[Reading]]:
    """Small sources share a transaction; none holds the write lock for long."""
    group: list[Reading] = []
    events = size = 0
    for reading in readings:
        group.append(reading)
        if isinstance(reading, Batch):
            events, size = events + reading.events, size + reading.bytes
        if events >= BATCH_EVENTS or size >= BATCH_BYTES:
            yield group
            group, events, size = [], 0, 0
    if group:
        yield group


def _account(store: Store, settings: Settings, report: SweepReport, progress: Progress) -> None:
    """Make the rows of sessions that changed, or of all if the user's rules did."""
    patterns = [pattern.pattern for pattern in settings.rules.task_patterns]
    rules = orjson.dumps({"tasks": patterns, "domains": sorted(settings.domains.items())}).decode()
    has_new_rules = store.sessions.rules() != rules
    if has_new_rules:
        store.streams.set_all_dirty()
    if not store.streams.dirty():
        return
    report.events_new = max(0, report.events_new - store.streams.drop_stand_ins())
    mark_copies(store)
    account_for(store, settings.rules, lambda done, total: progress("sessions", done, total))
    _name_repos(store, settings)
    if not report.failures:  # what could not be read may still tell of them
        store.sessions.drop(store.streams.emptied())
    if has_new_rules:
        store.sessions.set_rules(rules)
    store.streams.set_dirty([stream.id for stream in store.streams.dirty()], False)


def _name_repos(store: Store, settings: Settings) -> None:
    """Name every session's repository anew where another session's remote tells more."""
    known = store.sessions.checkouts()
    checkouts = Checkouts({(place.cwd, place.git_root, place.git_remote) for place in known})
    name = cache(checkouts.repo)  # many sessions work at one place
    roots = {place.session_uid: place for place in known}
    changes = []
    for place in known:
        base = roots.get(place.root_session_uid, place)  # a sub-agent works where its root does
        repo = name(base.cwd, base.git_root, base.git_remote)
        domain = domain_of(repo, settings.domains)
        if (repo, domain) != (place.repo, place.domain):
            changes.append((repo, domain, place.agent, place.native_session_id))
    store.sessions.set_repos(changes)
