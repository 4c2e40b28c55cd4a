"""The library behind every interface: the command line, and whatever else shows or changes a memory, calls this.

Functions import what they need when they are called: a search must not wait for the code of a sweep, a repair or a
restore. Only what every call needs is imported at the top.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from recollect.api.care import CheckedText, check_text, doctor, make_room, plan_schedule, repair, restore
from recollect.api.settings import change_setting, settings_in_force
from recollect.config import current_sessions, load_settings, store_folder
from recollect.errors import NotFound, UsageError
from recollect.kinds import SessionKey
from recollect.progress import Progress, silent
from recollect.recall.filters import NO_FILTERS, Filters
from recollect.store import Store, open_for_reading, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime
    from os import PathLike
    from types import TracebackType

    from recollect.care.backup import BackupReport
    from recollect.care.exports import ExportReport
    from recollect.care.imports import ImportReport
    from recollect.care.status import Status
    from recollect.config import Settings
    from recollect.distill.exchanges import Exchange
    from recollect.forget.plan import ForgetPlan
    from recollect.forget.rescan import RescanReport
    from recollect.ingest.freshness import Freshness
    from recollect.recall import (
        FileEdit,
        FileVisit,
        Related,
        SearchAnswer,
        SessionDiff,
        SessionHit,
        Spending,
        Stats,
        TimelineEntry,
        Unfinished,
    )
    from recollect.retention import BudgetReport, Outlook
    from recollect.schema import Digest, Event, Problem, Session, Signal
    from recollect.sessions.transcript import TranscriptItem
    from recollect.store import SessionFilter
    from recollect.sweep_report import SweepReport

__all__ = [
    "CheckedText",
    "Filters",
    "Memory",
    "change_setting",
    "check_text",
    "doctor",
    "make_room",
    "open_memory",
    "plan_schedule",
    "repair",
    "restore",
    "settings_in_force",
]


class _Conditions(TypedDict):
    """What else a list of sessions may be narrowed by."""

    text: str | None
    roots_only: bool
    is_idle: bool | None


class Memory:
    """An open store. Reading never changes it; `sweep`, `rescan`, `forget` and `import_sessions` write to it."""

    def __init__(self, store: Store, load: Callable[[], Settings]) -> None:
        self._store = store
        self._load = load

    @cached_property
    def settings(self) -> Settings:
        """Loaded on first use: a search needs none."""
        return self._load()

    def sessions(
        self,
        filters: Filters = NO_FILTERS,
        *,
        text: str | None = None,
        roots_only: bool = False,
        is_idle: bool | None = None,
        sort: str = "recent",
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Session]:
        """Sessions that match every filter given, newest first, or with the most of `sort`: cost, duration, tokens.

        `text` is a part of the title. A session matches `since` if it was active at or after it, and `before` if it
        began before. `roots_only` leaves out sub-agents; `is_idle` False leaves out sessions without any work, and
        True lists only those.
        """
        from recollect.api.naming import resumable
        from recollect.store import SORTS

        if sort not in SORTS:
            raise UsageError(f"Unknown order: {sort}", f"known: {', '.join(SORTS)}")
        wanted = self._wanted(filters, text=text, roots_only=roots_only, is_idle=is_idle)
        matches = self._store.sessions.find(replace(wanted, sort=sort, limit=limit, offset=offset))
        return list(map(resumable, matches))

    def count_sessions(
        self,
        filters: Filters = NO_FILTERS,
        *,
        text: str | None = None,
        roots_only: bool = False,
        is_idle: bool | None = None,
    ) -> int:
        """How many sessions `sessions` lists without a limit."""
        return self._store.sessions.count(self._wanted(filters, text=text, roots_only=roots_only, is_idle=is_idle))

    def _wanted(self, filters: Filters, **conditions: Unpack[_Conditions]) -> SessionFilter:
        from recollect.recall import sessions_of
        from recollect.store import SessionFilter

        return SessionFilter(sessions_of(self._store, filters), **conditions)

    def session(self, name: str) -> Session:
        """The one session with this id, prefix or suffix of an id (6 characters or more), title, or part of a title.

        `last` is the one active last, unless it is the one this process runs in.
        """
        from recollect.api.naming import find_named

        return find_named(self._store, name)

    def last_session(self, folder: str | PathLike[str] | None = None) -> Session:
        """The session active last, in this folder or below it; the one this process runs in is left out.

        Raises NotFound if there is none.
        """
        from recollect.api.naming import find_last

        return find_last(self._store, folder)

    def sub_agents(self, session: Session) -> list[Session]:
        """The sessions this one spawned, in the order they began."""
        from recollect.api.naming import resumable
        from recollect.sessions.transcript import find_spawned

        return list(map(resumable, find_spawned(self._store, session)[session.session_uid]))

    def events(self, session: Session, kind: str | None = None, *, with_copies: bool = False) -> list[Event]:
        """A session's events in reading order; a kind includes its more specific kinds.

        What a fork or a resumed session copied from an earlier one is left out, unless `with_copies`: over all
        sessions every event comes once.
        """
        from recollect.sessions.transcript import read_events

        events = read_events(self._store, session, kind)
        return events if with_copies else [event for event in events if event.copy_of is None]

    def payloads(self, session: Session, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
        """The full content of each event, in the order given."""
        from recollect.sessions.transcript import iter_payloads

        return iter_payloads(self._store, session, events)

    def transcript(
        self, session: Session, kind: str | None = None, *, last: int | None = None
    ) -> Iterator[TranscriptItem]:
        """A session in reading order, each sub-agent where it was called; with `last`, only so many from the end."""
        from recollect.sessions.transcript import iter_transcript

        return iter_transcript(self._store, session, kind, last=last)

    def window(self, session: Session, at: str, count: int) -> list[TranscriptItem]:
        """The `count` events on each side of one; `at` is its seq, or a prefix or suffix of its event_uid."""
        from recollect.sessions.transcript import read_window

        return read_window(self._store, session, at, count)

    def digest(self, session: Session) -> Digest:
        """The lasting account of a session. Raises NotFound until a sweep has made it, and for a tiny sub-agent."""
        from recollect.distill.distiller import find_digest

        return find_digest(self._store, session)

    def exchanges(self, session: Session) -> list[Exchange]:
        """A session split into requests and what followed each, filtered by the settings in `[exchanges]`."""
        from recollect.distill.distiller import find_exchanges

        return find_exchanges(self._store, session, self.settings.exchanges)

    def signals(
        self,
        session: Session | None = None,
        filters: Filters = NO_FILTERS,
        *,
        signal: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Signal]:
        """What is worth noticing in one session or in all that match, newest first."""
        from recollect.recall import sessions_of

        key = None if session is None else SessionKey(session.agent, session.native_session_id)
        return self._store.digests.signals(sessions_of(self._store, filters), key, signal, limit, offset)

    def count_signals(
        self, session: Session | None = None, filters: Filters = NO_FILTERS, *, signal: str | None = None
    ) -> int:
        """How many signals `signals` lists without a limit."""
        from recollect.recall import sessions_of

        key = None if session is None else SessionKey(session.agent, session.native_session_id)
        return self._store.digests.signal_count(sessions_of(self._store, filters), key, signal)

    def search(
        self,
        query: str,
        filters: Filters = NO_FILTERS,
        *,
        limit: int = 10,
        offset: int = 0,
        matches: int = 3,
        context: int = 2,
        mode: str = "words",
        exclude: Collection[str] | None = None,
    ) -> list[SessionHit]:
        """Sessions that match a query, best first; an empty query lists recent sessions.

        Each hit has its best `matches`, with `context` events on either side of each. `mode` is `words`, `substring` or
        `regex`. `exclude` are ids of sessions to leave out: by default the one this process runs in.
        """
        return self.answer(
            query, filters, limit=limit, offset=offset, matches=matches, context=context, mode=mode, exclude=exclude
        ).hits

    def answer(
        self,
        query: str,
        filters: Filters = NO_FILTERS,
        *,
        limit: int = 10,
        offset: int = 0,
        matches: int = 3,
        context: int = 2,
        mode: str = "words",
        exclude: Collection[str] | None = None,
        budget_tokens: int | None = None,
        scan_seconds: float = 20.0,
        progress: Progress = silent,
    ) -> SearchAnswer:
        """What `search` finds, with everything there is to report: how many match, a corrected spelling, notes.

        `budget_tokens` cuts the answer to what an agent can afford. A search for a substring or regular expression
        gives up after `scan_seconds`, and its notes say so.
        """
        from recollect.recall import Options, search

        left_out = current_sessions() if exclude is None else exclude
        options = Options(limit, offset, filters, matches, context, budget_tokens, left_out, mode, scan_seconds)
        return search(self._store, query, options, progress=partial(progress, "searching"))

    def recent(self, filters: Filters = NO_FILTERS, *, limit: int = 10, offset: int = 0) -> SearchAnswer:
        """The sessions active last, each with its last request; the one this process runs in is left out."""
        return self.answer("", filters=filters, limit=limit, offset=offset, matches=1, context=0)

    def files(self, path: str, filters: Filters = NO_FILTERS) -> list[FileVisit]:
        """Sessions that touched or discussed a path, newest first."""
        from recollect.recall import files

        return files(self._store, _resolved(path), filters)

    def blame(self, path: str, filters: Filters = NO_FILTERS) -> list[FileEdit]:
        """The edits that wrote a file, newest first, across renames."""
        from recollect.recall import blame

        return blame(self._store, _resolved(path), filters)

    def diff(self, session: Session, path: str | None = None) -> SessionDiff:
        """What a session and its sub-agents changed, edit by edit; with `path`, in that file or folder."""
        from recollect.recall import session_diff

        return session_diff(self._store, session, _resolved(path) if path else None)

    def evicted_edits(self, path: str) -> int:
        """How many evicted sessions edited a file according to their digests, so that `blame` cannot show how."""
        from recollect.recall import evicted_edits

        return evicted_edits(self._store, _resolved(path))

    def timeline(
        self, filters: Filters = NO_FILTERS, *, limit: int | None = None, offset: int = 0
    ) -> list[TimelineEntry]:
        """Sessions active in a period, in the order they began; the latest if there are more than `limit`.

        Sub-agents and sessions without any work are left out.
        """
        from recollect.recall import timeline

        return timeline(self._store, filters, limit, offset)

    def names(self, of: str) -> list[str]:
        """The agents, repositories (by their last names), branches or models that there are, the latest first."""
        from recollect.recall.filters import last_name

        cards = self._store.cards
        listed = {"agent": cards.agents, "repo": cards.repos, "branch": cards.branches, "model": cards.models}[of]()
        return list(dict.fromkeys(map(last_name, listed))) if of == "repo" else listed

    def repos_named(self, name: str) -> list[str]:
        """The repositories that a name, the end or a part of one, or a folder stands for."""
        from recollect.recall.filters import repos_for

        return repos_for(self._store, name)

    def unfinished(self, filters: Filters = NO_FILTERS, *, limit: int | None = None) -> list[Unfinished]:
        """Sessions that left to-dos, questions, failing tests or unanswered requests, newest first."""
        from recollect.recall import unfinished

        return unfinished(self._store, filters, limit)

    def related(self, session: Session, limit: int = 10) -> list[Related]:
        """Sessions this one came from or led to, and sessions about the same things."""
        from recollect.recall import related

        return related(self._store, session.session_uid, limit)

    def status(self) -> Status:
        """What the store holds, how large it is, and when it was last swept."""
        from recollect.care.status import make_status

        return make_status(self._store, self.settings)

    def stats(self, by: str = "month", filters: Filters = NO_FILTERS, *, session: Session | None = None) -> Stats:
        """Totals by day, week, month, block, session, repo, model, agent, tool or command; nothing is counted twice.

        A block is the five hours from an agent's first activity after the block before. `session` limits them to one
        session with its sub-agents.
        """
        from recollect.recall import make_stats, sessions_of
        from recollect.store import Span

        cards, root = sessions_of(self._store, filters), None if session is None else session.root_session_uid
        times = cards.since_ms, cards.before_ms
        return make_stats(self._store, by, Span(cards._replace(since_ms=None, before_ms=None), *times, root))

    def spending(self, filters: Filters = NO_FILTERS) -> Spending:
        """Money today, this month against the last with a forecast, and in the blocks of five hours that run now."""
        from datetime import datetime

        from recollect.recall import make_spending, sessions_of

        return make_spending(self._store, datetime.now().astimezone(), sessions_of(self._store, filters))

    def problems(self) -> list[Problem]:
        """Lines and files that could not be read, and why."""
        from recollect.clock import rfc3339
        from recollect.schema import Problem

        return [
            Problem(
                agent=line.agent,
                path=line.path,
                line=line.line,
                offset=line.offset,
                reason=line.reason,
                excerpt=line.raw[:200].decode("utf-8", "replace"),
                found_at=rfc3339(line.found_ms) or "",
            )
            for line in self._store.sources.problems()
        ]

    def sweep(self, progress: Progress = silent, *, verify: bool = False) -> SweepReport:
        """Read what is new in the agents' files. `verify` opens every file, even if it looks unchanged."""
        from recollect.sweep import sweep

        return sweep(self._store, self.settings, progress, verify=verify)

    def freshness(self) -> Freshness:
        """What agents wrote since the last sweep, by a quick look that opens no file."""
        from recollect.ingest.freshness import find_freshness

        return find_freshness(self._store)

    def is_sweeping(self) -> bool:
        """Whether a sweep is running on this store."""
        from recollect.store import is_sweeping

        return is_sweeping(self._store.folder)

    def ignored_rules(self) -> list[tuple[Path, str]]:
        """Lines of ignore files that have no effect, each with its file."""
        from recollect.ingest.gate import unusable_rules

        return unusable_rules(self._store)

    def outlook(self) -> Outlook:
        """What eviction would drop now, and a forecast. Changes nothing."""
        from recollect.retention import look_ahead

        return look_ahead(self._store, self.settings.limits, self.settings.host)

    def keep_within_budget(self) -> BudgetReport:
        """Drop raw detail until the store fits its budget, as each sweep does. Raises Busy during a sweep."""
        from recollect.retention import finish_evictions, keep_within_budget
        from recollect.store import sweep_lock

        limits, host, notify = self.settings.limits, self.settings.host, self.settings.notify
        with sweep_lock(self._store.folder):
            finish_evictions(self._store)
            report = keep_within_budget(self._store, limits, host, lambda done, total: None, notify=notify)
            self._store.checkpoint()
        return report

    def rehydrate(self, session: Session, progress: Progress = silent) -> SweepReport:
        """Bring back the raw detail of an evicted session from its source; raises NotFound if that is gone."""
        from recollect.care.rehydrate import rehydrate

        return rehydrate(self._store, self.settings, session, progress)

    def rescan(self, progress: Progress = silent, *, dry_run: bool = False) -> RescanReport:
        """Apply the redaction rules to sessions stored under older ones. Raises Busy during a sweep."""
        from recollect.forget.rescan import rescan
        from recollect.ingest.protection import Protection
        from recollect.store import sweep_lock

        with sweep_lock(self._store.folder):
            redactor = Protection(self.settings.folder, self.settings.redaction).redactor()
            advance = partial(progress, "redacting")
            return rescan(self._store, redactor, self.settings.rules, advance, dry_run=dry_run)

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
        """What forgetting these sessions, or all that meet every condition, would remove. Changes nothing.

        `before` takes sessions that ended before it; `excluded` those stored before a rule excluded them.
        """
        from recollect.api.naming import find_named
        from recollect.clock import moment_ms
        from recollect.forget.plan import Selection, plan

        before_ms = moment_ms("--before", before)
        patterns = self.settings.exclude if excluded else None
        if bool(names) == any(condition is not None for condition in (repo, before_ms, match, patterns)):
            raise UsageError("Give either sessions or conditions, not both", "see `recollect forget --help`")
        selection = Selection(
            [find_named(self._store, name, is_strict=True) for name in names], repo, before_ms, match, patterns
        )
        return plan(self._store, selection, progress, with_forks=with_forks)

    def forget(self, planned: ForgetPlan, *, keep_forks: bool = False, also_new: bool = False) -> ForgetPlan:
        """Remove the sessions of a plan for good: no byte of them is left, and no sweep brings them back.

        `keep_forks` leaves sessions that share their text untouched; without it such a plan raises NeedsAnswer.
        `also_new` includes matches stored since the plan was made; without it they raise Busy, as a running sweep does.
        """
        from recollect.forget.plan import apply

        rules, domains = self.settings.rules, self.settings.domains
        return apply(self._store, rules, domains, planned, keep_forks=keep_forks, also_new=also_new)

    def finish_forgetting(self) -> int:
        """Finish what an interrupted `forget` began, and return how many sessions and lines that was about.

        Raises Busy while a sweep is running, which finishes it too, and StoreUnwritable if there is no room for it.
        """
        from recollect.forget.plan import finish

        return finish(self._store)

    def is_forgotten(self, name: str) -> bool:
        """Whether a session with this id, or with this end or beginning of it, was forgotten."""
        from recollect.forget.plan import is_forgotten

        return is_forgotten(self._store, name)

    @contextmanager
    def without_sweeps(self) -> Iterator[None]:
        """Nothing is stored inside this block; raises Busy if a sweep is running."""
        from recollect.forget.plan import alone

        with alone(self._store):
            yield

    def backup(self, path: str | PathLike[str], progress: Progress = silent) -> BackupReport:
        """Write the whole store to one new file and verify it. A sweep may run meanwhile."""
        from recollect.care.backup import make_backup

        return make_backup(self._store, self.settings, Path(path).absolute(), progress)

    def export(
        self,
        path: str | PathLike[str],
        names: Sequence[str] = (),
        *,
        repo: str | None = None,
        progress: Progress = silent,
    ) -> ExportReport:
        """Write sessions as JSON lines and packs: those named (with their sub-agents), those of `repo`, or all."""
        from recollect.care.exports import export_sessions

        chosen = self._with_sub_agents(names) if names else self.sessions(Filters(repo=repo))
        return export_sessions(self._store, Path(path).absolute(), chosen, progress)

    def _with_sub_agents(self, names: Sequence[str]) -> list[Session]:
        chosen: dict[str, Session] = {}
        waiting = [self.session(name) for name in names]
        while waiting:
            session = waiting.pop()
            if chosen.setdefault(session.session_uid, session) is session:
                waiting += self.sub_agents(session)
        return list(chosen.values())

    def import_sessions(self, path: str | PathLike[str], progress: Progress = silent) -> ImportReport:
        """Add the sessions of an export. What is already stored does not change."""
        from recollect.care.imports import import_sessions

        return import_sessions(self._store, self.settings, Path(path).absolute(), progress)

    def close(self) -> None:
        """Close the store; leaving the `with` block does."""
        self._store.close()

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resolved(path: str) -> str:
    """A path as given, but one with `..` is resolved against the current folder."""
    from recollect.recall import absolute

    return absolute(path, str(Path.cwd())) if ".." in path.split("/") else path


def open_memory(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    create: bool = True,
    read_only: bool = False,
) -> Memory:
    """Open the store (`RECOLLECT_HOME`, or the user's data folder), creating it if there is none.

    `roots` are `AGENT=PATH`, as on the command line. Raises NotFound if there is no store and `create` is off.
    With `read_only` it opens fastest and never waits for a writer; nothing can be changed through it.
    """
    if read_only:
        path = store_folder({"RECOLLECT_HOME": str(folder)} if folder else None)
        try:
            store = open_for_reading(path)
        except NotFound:
            open_store(load_settings(folder).folder).close()  # finishes an interrupted restore, or says what is wrong
            store = open_for_reading(path)
        return Memory(store, partial(load_settings, folder, roots))
    settings = load_settings(folder, roots)
    return Memory(open_store(settings.folder, create=create), lambda: settings)
