"""What changes an open store or looks after it: sweeps, the budget, forgetting, backups, exports."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from recollect import api, care, forget, ingest, retention, sessions, store
from recollect.api.reading import Reading
from recollect.clock import moment_ms
from recollect.errors import UsageError
from recollect.progress import Progress, silent
from recollect.recall import Filters

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from os import PathLike

    from recollect.care import BackupReport, ExportReport, ImportReport, Overview, Status
    from recollect.forget import ForgetPlan, RescanReport
    from recollect.ingest import Freshness
    from recollect.retention import BudgetReport, Outlook
    from recollect.schema import Problem, Session
    from recollect.sweep_report import SweepReport


class Upkeep(Reading):
    """An open store, and its care."""

    def status(self) -> Status:
        """What the store holds, how large it is, and when it was last swept."""
        return care.make_status(self._store, self.settings)

    def overview(self) -> Overview:
        """A quick overview of the store: how much it holds, what was lost, when it was last swept."""
        return care.make_overview(self._store)

    def problems(self) -> list[Problem]:
        """Lines and files that could not be read, and why."""
        return care.list_problems(self._store)

    def sweep(
        self,
        progress: Progress = silent,
        *,
        verify: bool = False,
        only: Iterable[str | PathLike[str]] | None = None,
        with_recent: bool = False,
    ) -> SweepReport:
        """Read what is new in the agents' files, or `only` in these; files of no agent are ignored.

        `verify` opens every file, even if it looks unchanged. `with_recent` adds to `only` what the same agents wrote
        in the last day, such as the logs of sub-agents.
        """
        from recollect.sweep import sweep  # loads what reads, settles and distils

        settings = self.settings._replace(roots=sessions.with_group_homes(self._store, self.settings.roots))
        if only is None:
            return sweep(self._store, settings, progress, verify=verify)
        sources = ingest.find_sources(settings.roots, map(Path, only), with_recent=with_recent)
        return sweep(self._store, settings, progress, verify=verify, only=sources)

    def freshness(self) -> Freshness:
        """What agents wrote since the last sweep; a quick check that opens no file."""
        return ingest.find_freshness(self._store)

    def is_sweeping(self) -> bool:
        """Whether a sweep is running on this store."""
        return store.is_sweeping(self._store.folder)

    def commits(self) -> tuple[int, ...]:
        """How often something was stored; equal numbers mean that nothing was stored in between."""
        return self._store.commits()

    def ignored_rules(self) -> list[tuple[Path, str]]:
        """Lines of ignore files that have no effect, each with its file."""
        return ingest.unusable_rules(self._store)

    def outlook(self) -> Outlook:
        """What eviction would drop now. Changes nothing."""
        return retention.look_ahead(self._store, self.settings.limits, self.settings.host)

    def keep_within_budget(self) -> BudgetReport:
        """Drop raw detail until the store fits its budget, as each sweep does. Raises Busy during a sweep."""
        limits, host, notify = self.settings.limits, self.settings.host, self.settings.notify
        with store.sweep_lock(self._store.folder):
            retention.finish_evictions(self._store)
            report = retention.keep_within_budget(self._store, limits, host, lambda done, total: None, notify=notify)
            self._store.checkpoint()
        return report

    def rehydrate(self, session: Session, progress: Progress = silent) -> SweepReport:
        """Bring back the raw detail of an evicted session from its source; raises NotFound if that is gone."""
        return care.rehydrate_session(self._store, self.settings, session, progress)

    def rescan(self, progress: Progress = silent, *, dry_run: bool = False) -> RescanReport:
        """Apply the redaction rules to sessions stored under older ones. Raises Busy during a sweep."""
        with store.sweep_lock(self._store.folder):
            redactor = ingest.Protection(self.settings.folder, self.settings.redaction).redactor()
            advance = partial(progress, "redacting")
            return forget.rescan_store(self._store, redactor, self.settings.rules, advance, dry_run=dry_run)

    def plan_forgetting(
        self,
        *names: str,
        repo: str | None = None,
        before: str | datetime | None = None,
        match: str | None = None,
        excluded: bool = False,
        with_forks: bool = False,
        progress: Progress = silent,
    ) -> ForgetPlan:
        """What forgetting these sessions, or all that meet every condition, would delete. Changes nothing.

        `before` takes sessions that ended before it; `excluded` those stored before a rule excluded them.
        """

        before_ms = moment_ms("--before", before)
        patterns = self.settings.exclude if excluded else None
        has_conditions = any(condition is not None for condition in (repo, before_ms, match, patterns))
        if names and has_conditions:
            raise UsageError("Give either sessions or conditions, not both", "see `recollect forget --help`")
        if not (names or has_conditions):
            raise UsageError("Name the sessions to forget, or a condition", "`recollect sessions` lists ids and titles")
        selection = forget.Selection(
            [api.find_named(self._store, name, is_strict=True) for name in names], repo, before_ms, match, patterns
        )
        return forget.plan_forgetting(self._store, selection, progress, with_forks=with_forks)

    def finish_forgetting(self) -> int:
        """Finish an interrupted `forget`, and return how many sessions and lines it deleted.

        Raises Busy while a sweep is running, which finishes it too, and StoreUnwritable if there is no room for it.
        """
        return forget.finish_interrupted(self._store, self.settings.rules, self.settings.domains)

    def is_forgotten(self, name: str) -> bool:
        """Whether a session with this id, or one that begins or ends with it, was forgotten."""
        return forget.is_forgotten(self._store, name)

    @contextmanager
    def without_sweeps(self) -> Iterator[None]:
        """Block sweeps inside this context; raises Busy if one is running."""
        with forget.without_sweeps(self._store):
            yield

    def backup(self, path: str | PathLike[str], progress: Progress = silent) -> BackupReport:
        """Write the whole store to one new file and verify it. A sweep may run at the same time."""
        return care.make_backup(self._store, self.settings, Path(path).absolute(), progress)

    def export(
        self,
        path: str | PathLike[str],
        names: Sequence[str] = (),
        *,
        repo: str | None = None,
        progress: Progress = silent,
    ) -> ExportReport:
        """Write sessions as JSON lines and packs: those named (with their sub-agents), those of `repo`, or all."""
        chosen = self.with_sub_agents(names) if names else self.sessions(Filters(repo=repo))
        return care.export_sessions(self._store, Path(path).absolute(), chosen, progress)

    def with_sub_agents(self, names: Sequence[str]) -> list[Session]:
        """The sessions with these names, each with all its sub-agents."""
        chosen: dict[str, Session] = {}
        waiting = [self.session(name) for name in names]
        while waiting:
            session = waiting.pop()
            if chosen.setdefault(session.session_uid, session) is session:
                waiting += self.sub_agents(session)
        return list(chosen.values())

    def import_sessions(self, path: str | PathLike[str], progress: Progress = silent) -> ImportReport:
        """Add the sessions of an export. What is already stored does not change."""
        return care.import_sessions(self._store, self.settings, Path(path).absolute(), progress)
