"""discover -> ingest -> settle -> index -> distil -> retain. One page.

Most sweeps find nothing new and must be quick: what only a changed file needs (readers, rules of redaction, prices,
the distiller's patterns) is called through its package, which loads it then.
"""

import time
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from recollect import analysis, forget, ingest, sessions
from recollect.clock import now_ms
from recollect.config import Settings, read_hooks
from recollect.home import PREPARED_NAME, RESCUED_NAME
from recollect.ingest import Changes, Chosen, find_changes
from recollect.kinds import SessionKey
from recollect.retention import BudgetReport, finish_evictions, keep_within_budget
from recollect.sessions import is_settled
from recollect.store import Store, note_finished, note_progress, read_sweep_state, sweep_lock
from recollect.text import Progress

if TYPE_CHECKING:
    from recollect.ingest import Group, Task
    from recollect.redact import Redactor


@dataclass(slots=True)
class SweepReport:
    """What one sweep found and did."""

    sources: int = 0
    sources_changed: int = 0
    sources_gone: int = 0
    sources_failed: int = 0
    sessions: int = 0  # in the store, with these two
    sub_agents: int = 0
    warm_ups: int = 0
    sessions_new: int = 0
    events_new: int = 0
    events_replaced: int = 0
    lines_read: int = 0
    bytes_read: int = 0
    bad_lines: int = 0
    seconds: float = 0.0
    skipped: Counter[str] = field(default_factory=Counter)
    left_out: dict[str, set[str]] = field(default_factory=dict)  # why, and which sessions
    failures: list[tuple[str, str]] = field(default_factory=list)
    budget: BudgetReport = field(default_factory=BudgetReport)

    def add(self, group: "Group") -> None:
        """Count what was read and written together."""
        self.events_new += group.events_new
        self.events_replaced += group.events_replaced
        self.sources_changed += group.files_read
        self.sources_failed += len(group.failures)
        self.failures += [(failure.task.row.path, failure.failure or "") for failure in group.failures]
        for batch in group.batches:
            self.lines_read += batch.lines
            self.bytes_read += batch.bytes
            self.bad_lines += len(batch.problems)
            self.skipped.update(batch.skipped)

    def to_json(self) -> dict[str, Any]:
        left_out = {reason: len(sessions) for reason, sessions in sorted(self.left_out.items())}
        return asdict(self) | {"skipped": dict(sorted(self.skipped.items())), "left_out": left_out}


SETTLE_SECONDS = 20  # how often what was read so far becomes complete and can be searched
IDLE_MS = 600_000  # after which a live session is likely to stay as it is


def sweep(
    store: Store, settings: Settings, progress: Progress, *, verify: bool = False, only: Chosen = None
) -> SweepReport:
    """Bring the store up to date with the agents' files, or with `only` these. Raises Busy during another sweep."""
    begun, began_ns = time.monotonic(), time.time_ns()
    with sweep_lock(store.folder):
        last = read_sweep_state(store.folder)
        forget.finish_forgetting(store, settings.rules, settings.domains)
        finish_evictions(store)
        store.recover_appended()
        work = _Sweep(store, settings, progress)
        work.rescue()
        changes = work.discover(verify=verify, only=only)
        work.ingest(changes.tasks, is_whole=only is None)
        work.rescue()
        forget.hide_named(store, work.redactor)
        store.evictions.lift_awaited()
        work.settle(is_all_read=not work.report.failures)
        store.fulltext.index_pending(store.payloads, partial(progress, "indexing"))
        is_upgraded = store.digest_rows.has_outdated(analysis.VERSION)
        if is_upgraded:
            analysis.distil_pending(store, partial(progress, "distilling"))
        forget.scrub_if_due(store)
        work.retain()
        store.rewrites.repack_idle((last.began_ns or 0) // 1_000_000 - IDLE_MS, work.at_ms - IDLE_MS)
        store.checkpoint()
        roots = store.sources.roots(settings.host, settings.roots)
        is_prepared = (store.folder / PREPARED_NAME).exists()  # `forget` takes it away
        was_stopped = last.began_ns is None  # what it settled is not prepared yet
        if changes.tasks or work.changed or is_upgraded or was_stopped or not is_prepared:
            analysis.prepare(store, roots, work.changed, is_all=is_upgraded or was_stopped)
            # They may have changed since it began.
            analysis.write_switches(store.folder, read_hooks(settings.config_path))
        if only is None:
            note_finished(store.folder, [root for paths in roots.values() for root in paths], began_ns)
    if work.changed:
        settings.graphiti.push_after_sweep(settings.folder, settings.config_path)
    work.report.seconds = round(time.monotonic() - begun, 3)
    return work.report


class _Sweep:
    """One sweep on its way."""

    def __init__(self, store: Store, settings: Settings, progress: Progress) -> None:
        self._store = store
        self._settings = settings
        self._progress = progress
        self._sessions_before = store.sessions.count()
        self.at_ms = now_ms()
        self.report = SweepReport()
        self.changed: set[SessionKey] = set()

    def redactor(self) -> "Redactor":
        return ingest.Protection(self._store.folder, self._settings.redaction).redactor()

    def rescue(self) -> None:
        """Read what agents dropped from their logs when they compacted a conversation, from copies made before."""
        if not (self._store.folder / RESCUED_NAME).exists():
            return
        tasks = ingest.take_copies(self._store, self._settings.host)
        self.ingest(tasks, is_whole=False)
        ingest.drop_copies(self._store, tasks)

    def discover(self, *, verify: bool, only: Chosen) -> Changes:
        """Compare the agents' files with what was read, and note which are gone, back, or moved."""
        store, settings = self._store, self._settings
        changes = find_changes(store, settings.host, settings.roots, self.redactor, verify=verify, only=only)
        changes.note(store)
        self.report.sources, self.report.sources_gone = changes.sources, len(changes.gone)
        return changes

    def ingest(self, tasks: "list[Task]", *, is_whole: bool) -> None:
        """Read what changed, the newest files first."""
        forget.drop_leftovers(store := self._store)
        if not tasks:
            return
        settled, total = time.monotonic(), ingest.bytes_to_read(tasks)
        exclude = ingest.exclude_of(store, self._settings.exclude, self._settings.allow)
        protection = ingest.Protection(store.folder, self._settings.redaction, store.named_values.all())
        self._progress("reading", 0, total)  # the first files may take a while
        if is_whole:
            note_progress(store.folder, 0, total)
        for group in ingest.take_in(store, tasks, exclude, protection, self.report.left_out):
            self.report.add(group)
            done = min(group.bytes_done, total)
            self._progress(group.stage, done, total)
            if is_whole:
                note_progress(store.folder, done, total)
            if time.monotonic() - settled > SETTLE_SECONDS:
                self.settle(is_all_read=False)
                settled = time.monotonic()

    def settle(self, *, is_all_read: bool) -> None:
        """Make the rows and digests of sessions that changed."""
        store, settings = self._store, self._settings
        # A log may show only late that it is a sub-agent of what was forgotten.
        forget.finish_forgetting(store, settings.rules, settings.domains)
        if is_settled(store, settings.rules, settings.domains):
            return
        self.changed |= set(store.streams.dirty())
        distil = partial(analysis.distil_sessions, store, at_ms=self.at_ms)
        dropped = sessions.settle_sessions(
            store, settings.rules, settings.domains, self._progress, distil, is_all_read=is_all_read
        )
        self.report.events_new = max(0, self.report.events_new - dropped)

    def retain(self) -> None:
        """Keep the store within its budget, and no answer to a sandbox longer than a day."""
        forget.expire_answers(self._store, self.at_ms - forget.ANSWERS_KEPT_MS)
        limits, host, notify = self._settings.limits, self._settings.host, self._settings.notify
        advance = partial(self._progress, "evicting")
        self.report.budget = keep_within_budget(self._store, limits, host, advance, notify=notify)
        totals = self._store.sessions.totals()
        self.report.sessions = sum(agent["sessions"] for agent in totals)
        self.report.sub_agents = sum(agent["sub_agents"] for agent in totals)
        self.report.warm_ups = sum(agent["warm_ups"] for agent in totals)
        self.report.sessions_new = self.report.sessions - self._sessions_before
