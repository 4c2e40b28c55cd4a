"""discover -> ingest -> lineage -> account -> full text -> distil -> retention. One page, for ever."""

import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial

import orjson

from recollect.account import account_for
from recollect.admission import LeftOut, admit, reconsider
from recollect.budget import BudgetReport, finish_evictions, keep_within_budget
from recollect.config import Settings
from recollect.discovery import Found, find_changes
from recollect.distill import distil_pending
from recollect.lineage import mark_copies
from recollect.progress import Progress
from recollect.protection import Protection
from recollect.readers import Failure, Finished, Reading, read_tasks
from recollect.recall.index import index_pending
from recollect.removal import finish_forgetting
from recollect.repos import name_repos
from recollect.rescan import rescan_unredacted
from recollect.store import Store
from recollect.store.batch import Batch
from recollect.store.locks import sweep_lock

BATCH_EVENTS, BATCH_BYTES = 4000, 16 * 1024 * 1024  # in one transaction: under a tenth of a second


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
    left_out: LeftOut = field(default_factory=dict)
    failures: list[tuple[str, str]] = field(default_factory=list)
    budget: BudgetReport = field(default_factory=BudgetReport)


def sweep(store: Store, settings: Settings, progress: Progress, *, verify: bool = False) -> SweepReport:
    """Bring the store up to date with the agents' files. Raises Busy if another sweep is running."""
    begun = time.monotonic()
    with sweep_lock(store.folder):
        finish_forgetting(store)
        finish_evictions(store)
        before = store.sessions.count()
        if verify:
            reconsider(store)
        protection = Protection(store.folder, settings.redaction)
        found = find_changes(store, settings.host, settings.roots, protection, verify=verify)
        report = SweepReport(sources=found.sources, sources_gone=len(found.gone))
        _note_files(store, found)
        rescan_unredacted(store, protection.redactor, partial(progress, "redacting"))
        _ingest(store, settings, protection, found, report, progress)
        store.evictions.lift_awaited()
        finish_forgetting(store)  # a log may tell only late that it is a sub-agent of what was forgotten
        account_for_changes(store, settings, report, progress)
        index_pending(store, partial(progress, "indexing"))
        distil_pending(store, partial(progress, "distilling"))
        report.budget = keep_within_budget(store, settings, partial(progress, "evicting"))
        store.checkpoint()
    report.sessions, report.sessions_new = (now := store.sessions.count()), now - before
    report.seconds = round(time.monotonic() - begun, 3)
    return report


def _note_files(store: Store, found: Found) -> None:
    for source, host, path in found.moved:
        store.sources.move(source, host, path)
    store.sources.mark_gone(found.gone)
    store.sources.mark_back(found.back)
    store.sources.drop(found.readable)
    store.streams.drop_outdated(found.outdated)


def _ingest(
    store: Store, settings: Settings, protection: Protection, found: Found, report: SweepReport, progress: Progress
) -> None:
    done, total = 0, sum(task.row.size - task.row.offset for task in found.tasks)
    read = partial(read_tasks, protection=protection)
    for group in _grouped(admit(store, settings.exclude, found.tasks, read, report.left_out)):
        batches = [reading for reading in group if isinstance(reading, Batch)]
        if batches:
            written = store.intake.put(batches, store.sources.save, store.fulltext.add)
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
    group, events, size = list[Reading](), 0, 0
    for reading in readings:
        group.append(reading)
        if isinstance(reading, Batch):
            events, size = events + reading.events, size + reading.bytes
        if events >= BATCH_EVENTS or size >= BATCH_BYTES:
            yield group
            group, events, size = [], 0, 0
    yield from [group] if group else []


def account_for_changes(store: Store, settings: Settings, report: SweepReport, progress: Progress) -> None:
    """Make the rows of sessions that changed, or of all if the user's rules did."""
    patterns = [pattern.pattern for pattern in settings.rules.task_patterns]
    rules = orjson.dumps({"tasks": patterns, "domains": sorted(settings.domains.items())}).decode()
    if has_new_rules := store.sessions.rules() != rules:
        store.streams.set_all_dirty()
    if not store.streams.dirty():
        return
    report.events_new = max(0, report.events_new - store.drop_stand_ins())
    mark_copies(store)
    account_for(store, settings.rules, lambda done, total: progress("sessions", done, total))
    name_repos(store, settings.domains)
    if not report.failures:  # what could not be read may still tell of them
        store.sessions.drop(store.streams.emptied())
    if has_new_rules:
        store.sessions.set_rules(rules)
    store.streams.set_dirty([stream.id for stream in store.streams.dirty()], False)
