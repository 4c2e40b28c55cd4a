"""An open store: how to open it, what changes it, and what looks after it."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from recollect import api, care, ingest, lifecycle, sessions, store
from recollect.api.reading import Reading
from recollect.config import load_settings, process_group, store_folder
from recollect.model.clock import moment_ms
from recollect.model.errors import NotFound, UsageError
from recollect.model.text import Progress, silent
from recollect.recall import Filters
from recollect.store import open_for_reading, open_store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from datetime import datetime
    from os import PathLike
    from types import TracebackType

    from recollect.api import Annotations, Archives, Graphs, Groups, Handover, Knowledge, Projects
    from recollect.care import BackupReport, ExportReport, ImportReport, Overview, Status
    from recollect.ingest import Freshness
    from recollect.lifecycle import BudgetReport, ForgetPlan, Outlook, RescanReport
    from recollect.model.schema import Problem, Session
    from recollect.sweep_report import SweepReport


class Memory(Reading):
    """An open store. Reading never changes it; `sweep`, `rescan`, `forget` and `import_sessions` write to it."""

    @cached_property
    def projects(self) -> Projects:
        """Which projects are remembered."""
        return api.Projects(self._store, self._load)

    @cached_property
    def knowledge(self) -> Knowledge:
        """What the sessions teach: fixes of errors, decisions, workflows, facts."""
        return api.Knowledge(self)

    @cached_property
    def annotations(self) -> Annotations:
        """What the user notes about sessions: stars, tags, notes, names."""
        return api.Annotations(self)

    @cached_property
    def archives(self) -> Archives:
        """Sessions as documents."""
        return api.Archives(self._store, self.settings)

    @cached_property
    def handover(self) -> Handover:
        """Restores sessions to their agents' own storage, or hands them to another agent."""
        return api.Handover(self._store, self.settings)

    @cached_property
    def groups(self) -> Groups:
        """Workspaces kept apart, each with its active session and its bookmarks."""
        return api.Groups(self._store, self)

    @cached_property
    def graphiti(self) -> Graphs:
        """A Graphiti graph that facts and exchanges are pushed to; raises RecollectError unless it is set up."""
        return api.Graphs(self)

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
        return lifecycle.look_ahead(self._store, self.settings.limits, self.settings.host)

    def keep_within_budget(self) -> BudgetReport:
        """Drop raw detail until the store fits its budget, as each sweep does. Raises Busy during a sweep."""
        limits, host, notify = self.settings.limits, self.settings.host, self.settings.notify
        with store.sweep_lock(self._store.folder):
            lifecycle.finish_evictions(self._store)
            report = lifecycle.keep_within_budget(self._store, limits, host, lambda done, total: None, notify=notify)
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
            return lifecycle.rescan_store(self._store, redactor, self.settings.rules, advance, dry_run=dry_run)

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
        selection = lifecycle.Selection(
            [self._named(name, is_strict=True) for name in names], repo, before_ms, match, patterns
        )
        return lifecycle.plan_forgetting(self._store, selection, progress, with_forks=with_forks)

    def finish_forgetting(self) -> int:
        """Finish an interrupted `forget`, and return how many sessions and lines it deleted.

        Raises Busy while a sweep is running, which finishes it too, and StoreUnwritable if there is no room for it.
        """
        return lifecycle.finish_interrupted(self._store, self.settings.rules, self.settings.domains)

    def is_forgotten(self, name: str) -> bool:
        """Whether a session with this id, or one that begins or ends with it, was forgotten."""
        return lifecycle.is_forgotten(self._store, name)

    @contextmanager
    def without_sweeps(self) -> Iterator[None]:
        """Block sweeps inside this context; raises Busy if one is running."""
        with lifecycle.without_sweeps(self._store):
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

    def forget(self, planned: ForgetPlan, *, keep_forks: bool = False, also_new: bool = False) -> ForgetPlan:
        """Delete the sessions of a plan for good: no byte of them is left, and no sweep brings them back.

        `keep_forks` leaves sessions that share their text untouched; without it such a plan raises NeedsAnswer.
        `also_new` includes matches stored since the plan was made; without it they raise Busy, as a running sweep does.
        """
        rules, domains = self.settings.rules, self.settings.domains
        done = lifecycle.apply_plan(self._store, rules, domains, planned, keep_forks=keep_forks, also_new=also_new)
        self.groups.renew_snapshots()
        return done

    def close(self) -> None:
        """Close the store; leaving the `with` block does."""
        self._store.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_memory(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    create: bool = True,
    read_only: bool = False,
    group: str | None = None,
) -> Memory:
    """Open the store (`RECOLLECT_HOME`, or the user's data folder), creating it if there is none.

    `roots` are `AGENT=PATH`, as on the command line. Raises NotFound if there is no store and `create` is off.
    With `read_only` it opens fastest and never waits for a writer; nothing can be changed through it. Opened for a
    `group` (or with `RECOLLECT_GROUP`), it has that group's sessions only; `main` has all.
    """
    group = process_group(group)
    if read_only or group is not None:
        path = store_folder({"RECOLLECT_HOME": str(folder)} if folder else None)
        try:
            store = open_for_reading(path, group)
        except NotFound:
            open_store(load_settings(folder).folder).close()  # finishes an interrupted restore, or says what is wrong
            store = open_for_reading(path, group)
        return Memory(store, partial(load_settings, folder, roots))
    load = partial(load_settings, folder, roots)
    return Memory(open_store(load().folder, create=create), load)
