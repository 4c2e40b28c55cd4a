"""discover -> ingest -> settle -> index -> distil -> retain. One page.

What a feature has to do in a sweep is a line in one of the lists below; steps run in their order.
Most sweeps find nothing new and must be quick: what only a changed file needs (readers, rules of redaction, prices,
the distiller's patterns) is called through its package, which loads it then.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from recollect import analysis, ingest, lifecycle, sessions
from recollect.config import Settings, read_hooks
from recollect.ingest import Chosen, find_changes
from recollect.lifecycle import finish_evictions, keep_within_budget
from recollect.model.clock import now_ms
from recollect.model.home import PREPARED_NAME, RESCUED_NAME
from recollect.model.kinds import SessionKey
from recollect.model.text import Progress
from recollect.sessions import is_settled
from recollect.store import Store, note_finished, note_progress, read_sweep_state, sweep_lock
from recollect.sweep_report import SweepReport

if TYPE_CHECKING:
    from recollect.ingest import Task
    from recollect.redact import Redactor

SETTLE_SECONDS = 20  # how often what was read so far becomes complete and can be searched
IDLE_MS = 600_000  # after which a live session is likely to stay as it is


def sweep(
    store: Store, settings: Settings, progress: Progress, *, verify: bool = False, only: Chosen = None
) -> SweepReport:
    """Bring the store up to date with the agents' files, or with `only` these. Raises Busy during another sweep."""
    begun, began_ns = time.monotonic(), time.time_ns()
    with sweep_lock(store.folder):
        work = _Sweep(store, settings, progress)
        for step in BEFORE_READING:
            step(work)
        sessions_before = store.sessions.count()
        work.rescue()
        changes = find_changes(store, settings.host, settings.roots, work.redactor, verify=verify, only=only)
        changes.note(store)  # which files are gone, back, or moved
        work.report.sources, work.report.sources_gone = changes.sources, len(changes.gone)
        work.ingest(changes.tasks, is_whole=only is None)
        for step in AFTER_READING:
            step(work)
        work.report.count(store.sessions.totals(), sessions_before)
        roots = store.sources.roots(settings.host, settings.roots)
        is_prepared = (store.folder / PREPARED_NAME).exists()  # `forget` takes it away
        if changes.tasks or work.changed or work.is_all_changed or not is_prepared:
            analysis.prepare(store, roots, work.changed, is_all=work.is_all_changed)
            analysis.write_switches(store.folder, read_hooks(settings.config_path))  # may have changed meanwhile
        if only is None:
            note_finished(store.folder, [root for paths in roots.values() for root in paths], began_ns)
    if work.changed:
        settings.graphiti.push_after_sweep(settings.folder, settings.config_path)
    work.report.seconds = round(time.monotonic() - begun, 3)
    return work.report


class _Sweep:
    """One sweep on its way."""

    def __init__(self, store: Store, settings: Settings, progress: Progress) -> None:
        self.store = store
        self.settings = settings
        self.progress = progress
        last = read_sweep_state(store.folder)
        self.last_began_ms = (last.began_ns or 0) // 1_000_000
        self.is_all_changed = last.began_ns is None  # it was stopped: what it settled is not prepared yet
        self.at_ms = now_ms()
        self.report, self.changed = SweepReport(), set[SessionKey]()

    def redactor(self) -> "Redactor":
        return ingest.Protection(self.store.folder, self.settings.redaction).redactor()

    def rescue(self) -> None:
        """Read what agents dropped from their logs when they compacted a conversation, from copies made before."""
        if (self.store.folder / RESCUED_NAME).exists():
            tasks = ingest.take_copies(self.store, self.settings.host)
            self.ingest(tasks, is_whole=False)
            ingest.drop_copies(self.store, tasks)

    def ingest(self, tasks: "list[Task]", *, is_whole: bool) -> None:
        """Read what changed, the newest files first."""
        lifecycle.drop_leftovers(store := self.store)
        if not tasks:
            return
        settled, total = time.monotonic(), ingest.bytes_to_read(tasks)
        exclude = ingest.exclude_of(store, self.settings.exclude, self.settings.allow)
        protection = ingest.Protection(store.folder, self.settings.redaction, store.named_values.all())

        def tell(stage: str, done: int) -> None:
            self.progress(stage, done, total)
            if is_whole:
                note_progress(store.folder, done, total)

        tell("reading", 0)  # the first files may take a while
        for group in ingest.take_in(store, tasks, exclude, protection, self.report.left_out):
            self.report.add(group)
            tell(group.stage, min(group.bytes_done, total))
            if time.monotonic() - settled > SETTLE_SECONDS:
                self.settle(is_all_read=False)
                settled = time.monotonic()

    def settle(self, *, is_all_read: bool) -> None:
        """Make the rows and digests of sessions that changed."""
        store, rules, domains = self.store, self.settings.rules, self.settings.domains
        # A log may show only late that it is a sub-agent of what was forgotten.
        lifecycle.finish_forgetting(store, rules, domains)
        if is_settled(store, rules, domains):
            return
        self.changed |= set(store.streams.dirty())
        distil = partial(analysis.distil_sessions, store)
        dropped = sessions.settle_sessions(store, rules, domains, self.progress, distil, is_all_read=is_all_read)
        self.report.events_new = max(0, self.report.events_new - dropped)

    def distil_outdated(self) -> None:
        """Make the digests anew that an older version made."""
        if self.store.digest_rows.has_outdated(analysis.VERSION):
            analysis.distil_pending(self.store, partial(self.progress, "distilling"))
            self.is_all_changed = True

    def keep_within_budget(self) -> None:
        advance, given = partial(self.progress, "evicting"), self.settings
        self.report.budget = keep_within_budget(self.store, given.limits, given.host, advance, notify=given.notify)


_Step = Callable[[_Sweep], object]
BEFORE_READING: tuple[_Step, ...] = (  # what was interrupted goes on
    lambda work: lifecycle.finish_forgetting(work.store, work.settings.rules, work.settings.domains),
    lambda work: finish_evictions(work.store),
    lambda work: work.store.recover_appended(),
)
AFTER_READING: tuple[_Step, ...] = (
    _Sweep.rescue,
    lambda work: lifecycle.hide_named(work.store, work.redactor),
    lambda work: work.store.evictions.lift_awaited(),
    lambda work: work.settle(is_all_read=not work.report.failures),
    lambda work: work.store.fulltext.index_pending(work.store.payloads, partial(work.progress, "indexing")),
    _Sweep.distil_outdated,
    lambda work: lifecycle.scrub_if_due(work.store),
    lambda work: lifecycle.expire_answers(work.store, work.at_ms - lifecycle.ANSWERS_KEPT_MS),
    _Sweep.keep_within_budget,
    lambda work: work.store.rewrites.repack_idle(work.last_began_ms - IDLE_MS, work.at_ms - IDLE_MS),
    lambda work: work.store.checkpoint(),
)
