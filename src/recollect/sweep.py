"""discover -> ingest -> settle -> index -> distil -> retain. One page.

Most sweeps find nothing new and must be quick: what only a changed file needs (readers, rules of redaction, prices,
the distiller's patterns) is imported where it is used.
"""

import time
from functools import partial
from typing import TYPE_CHECKING

from recollect.clock import now_ms
from recollect.distill import distil_outdated, distil_sessions
from recollect.forget.erase import drop_leftovers, finish_forgetting
from recollect.ingest.discover import Changes, find_changes
from recollect.progress import Progress
from recollect.recall import index_pending
from recollect.retention import finish_evictions, keep_within_budget
from recollect.sessions import is_settled
from recollect.store import Batch, Store, note_finished, note_progress, sweep_lock
from recollect.sweep_report import SweepReport

if TYPE_CHECKING:
    from recollect.config import Settings
    from recollect.ingest.pool import Reading
    from recollect.redact import Redactor

SETTLE_SECONDS = 20  # how often what was read so far becomes complete and can be searched


def sweep(store: Store, settings: "Settings", progress: Progress, *, verify: bool = False) -> SweepReport:
    """Bring the store up to date with the agents' files. Raises Busy if another sweep is running."""
    begun, began_ns = time.monotonic(), time.time_ns()
    with sweep_lock(store.folder):
        finish_forgetting(store)
        finish_evictions(store)
        work = _Sweep(store, settings, progress)
        changes = work.discover(verify=verify)
        work.ingest(changes)
        store.evictions.lift_awaited()
        work.settle(is_all_read=not work.report.failures)
        index_pending(store, partial(progress, "indexing"))
        distil_outdated(store, partial(progress, "distilling"))
        work.retain()
        store.checkpoint()
        roots = store.known_files.roots(settings.host, settings.roots)
        note_finished(store.folder, [root for paths in roots.values() for root in paths], began_ns)
        if changes.tasks:
            from recollect.recall import write_snapshot  # most sweeps need none

            write_snapshot(store, roots)
    work.report.seconds = round(time.monotonic() - begun, 3)
    return work.report


class _Sweep:
    """One sweep on its way."""

    def __init__(self, store: Store, settings: "Settings", progress: Progress) -> None:
        self._store = store
        self._settings = settings
        self._progress = progress
        self._sessions_before = store.sessions.count()
        self._at_ms = now_ms()
        self.report = SweepReport()

    def _redactor(self) -> "Redactor":
        from recollect.ingest.protection import Protection

        return Protection(self._store.folder, self._settings.redaction).redactor()

    def discover(self, *, verify: bool) -> Changes:
        """Compare the agents' files with what was read, and note which are gone, back, or moved."""
        store, settings = self._store, self._settings
        if verify:
            from recollect.ingest.gate import reconsider

            reconsider(store)
        changes = find_changes(store, settings.host, settings.roots, self._redactor, verify=verify)
        self.report.sources, self.report.sources_gone = changes.sources, len(changes.gone)
        for source, host, path in changes.moved:
            store.sources.move(source, host, path)
        store.sources.mark_gone(changes.gone)
        store.sources.mark_back(changes.back)
        store.sources.drop(changes.readable)
        store.streams.drop_outdated(changes.outdated)
        return changes

    def ingest(self, changes: Changes) -> None:
        """Read what changed, the newest files first."""
        store = self._store
        drop_leftovers(store)
        if not changes.tasks:
            return
        from recollect.ingest.gate import admit
        from recollect.ingest.pool import grouped, read_tasks, stage_of
        from recollect.ingest.protection import Protection

        read = partial(read_tasks, protection=Protection(store.folder, self._settings.redaction))
        done, total = 0, sum(task.row.size - task.row.offset for task in changes.tasks)
        settled = time.monotonic()
        stage = "reading"
        for group in grouped(admit(store, self._settings.exclude, changes.tasks, read, self.report.left_out)):
            if batches := [reading for reading in group if isinstance(reading, Batch)]:
                written = store.intake.put(batches, store.sources.save, store.fulltext.add)
                self.report.events_new += written.events_new
                self.report.events_replaced += written.events_replaced
            for reading in group:
                done += self._count(reading)
                stage = stage_of(reading) or stage
            self._progress(stage, min(done, total), total)
            note_progress(store.folder, min(done, total), total)
            if time.monotonic() - settled > SETTLE_SECONDS:
                self.settle(is_all_read=False)
                settled = time.monotonic()

    def _count(self, reading: "Reading") -> int:
        from recollect.ingest.pool import Failure

        report = self.report
        if isinstance(reading, Batch):
            report.add(reading)
            return reading.bytes
        if isinstance(reading, Failure):
            self._store.sources.save_failure(reading.task.row, reading.reason)
            report.failures.append((reading.task.row.path, reading.reason))
            report.sources_failed += 1
        else:
            report.sources_changed += 1
        return 0

    def settle(self, *, is_all_read: bool) -> None:
        """Make the rows and digests of sessions that changed."""
        store, settings = self._store, self._settings
        finish_forgetting(store)  # a log may show only late that it is a sub-agent of what was forgotten
        if is_settled(store, settings.rules, settings.domains):
            return
        from recollect.sessions.settle import settle

        distil = partial(distil_sessions, store, at_ms=self._at_ms)
        dropped = settle(store, settings.rules, settings.domains, self._progress, distil, is_all_read=is_all_read)
        self.report.events_new = max(0, self.report.events_new - dropped)

    def retain(self) -> None:
        """Keep the store within its budget."""
        limits, host, notify = self._settings.limits, self._settings.host, self._settings.notify
        advance = partial(self._progress, "evicting")
        self.report.budget = keep_within_budget(self._store, limits, host, advance, notify=notify)
        self.report.sessions = self._store.sessions.count()
        self.report.sessions_new = self.report.sessions - self._sessions_before
