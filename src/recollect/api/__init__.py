"""The library behind every interface: the command line, and whatever else shows or changes a memory, calls this.

Functions import what they need when they are called: a search must not wait for the code of a sweep, a repair or a
restore. Only what every call needs is imported at the top.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from recollect.api.care import CheckedText, check_text, doctor, make_room, plan_schedule, repair, restore
from recollect.config import current_sessions, load_settings, store_folder
from recollect.errors import Ambiguous, NotFound, UsageError
from recollect.progress import Progress, silent
from recollect.store import Store, open_for_reading, open_store

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
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
    from recollect.recall import FileEdit, FileVisit, Related, SearchAnswer, SessionHit, Stats, TimelineEntry
    from recollect.retention import BudgetReport, Outlook
    from recollect.schema import Digest, Event, Problem, Session, Signal
    from recollect.sessions.transcript import TranscriptItem
    from recollect.sweep_report import SweepReport

__all__ = [
    "CheckedText",
    "Memory",
    "SearchOptions",
    "check_text",
    "doctor",
    "make_room",
    "open_memory",
    "plan_schedule",
    "repair",
    "restore",
]


class SearchOptions(TypedDict, total=False):
    """What a search may be told, all of it optional."""

    limit: int  # sessions
    matches: int  # of a session
    context: int  # events on either side of a match
    budget_tokens: int | None  # cuts the answer to what an agent can afford
    exclude: Collection[str]  # ids of sessions to leave out; by default the one this process runs in
    mode: str  # words, substring or regex
    scan_seconds: float  # after which a scan for a substring or regex gives up


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
        *,
        agent: str | None = None,
        repo: str | None = None,
        branch: str | None = None,
        model: str | None = None,
        outcome: str | None = None,
        session_class: str | None = None,
        since_ms: int | None = None,
        before_ms: int | None = None,
        text: str | None = None,
        roots_only: bool = False,
        limit: int | None = None,
    ) -> list[Session]:
        """Sessions that match every filter given, newest first.

        `model` and `text` (in the title) match substrings, `repo` any suffix of its name. Times are milliseconds
        since 1970: a session matches `since_ms` if it was active at or after it, and `before_ms` if it began before.
        `roots_only` leaves out sub-agents.
        """
        from recollect.store import SessionFilter

        return self._store.sessions.find(
            SessionFilter(
                agent=agent,
                repo=repo,
                branch=branch,
                model=model,
                outcome=outcome,
                session_class=session_class,
                since_ms=since_ms,
                before_ms=before_ms,
                text=text,
                roots_only=roots_only,
                limit=limit,
            )
        )

    def session(self, name: str) -> Session:
        """The one session with this id, prefix or suffix of an id (6 characters or more), or title."""
        from recollect.store import SessionFilter

        matches = self._store.sessions.matching(name)
        if len(matches) > 1:
            matches = [match for match in matches if match.is_exact] or matches
            roots = {match.root_session_uid for match in matches}
            matches = [match for match in matches if match.session_uid in roots] if len(roots) == 1 else matches
        if not matches:
            raise NotFound(f"No session has this id or title: {name}", "`recollect sessions` lists ids and titles")
        if len(matches) > 1:
            shown = ", ".join(match.session_uid for match in matches[:3])
            raise Ambiguous(
                f"{len(matches)} sessions match `{name}`: {shown} …",
                "give more of the id; `recollect sessions` lists them",
            )
        return self._store.sessions.find(SessionFilter(uid=matches[0].session_uid))[0]

    def sub_agents(self, session: Session) -> list[Session]:
        """The sessions this one spawned, in the order they began."""
        from recollect.sessions.transcript import find_spawned

        return find_spawned(self._store, session)[session.session_uid]

    def events(self, session: Session, kind: str | None = None) -> list[Event]:
        """A session's events in reading order; a kind includes its more specific kinds."""
        from recollect.sessions.transcript import read_events

        return read_events(self._store, session, kind)

    def payloads(self, session: Session, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
        """The full content of each event, in the order given."""
        from recollect.sessions.transcript import iter_payloads

        return iter_payloads(self._store, session, events)

    def transcript(self, session: Session, kind: str | None = None) -> Iterator[TranscriptItem]:
        """A session in reading order, each sub-agent where it was called."""
        from recollect.sessions.transcript import iter_transcript

        return iter_transcript(self._store, session, kind)

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
        self, session: Session | None = None, *, signal: str | None = None, since_ms: int | None = None
    ) -> list[Signal]:
        """What is worth noticing in one session or in all, oldest first."""
        key = None if session is None else (session.agent, session.native_session_id)
        return self._store.digests.signals(key, signal, since_ms)

    def search(self, query: str, **options: Unpack[SearchOptions]) -> list[SessionHit]:
        """Sessions that match a query, best first; an empty query lists recent sessions."""
        return self.answer(query, **options).hits

    def answer(self, query: str, progress: Progress = silent, **options: Unpack[SearchOptions]) -> SearchAnswer:
        """A search with everything there is to report: hits, a corrected spelling, notes."""
        from recollect.recall import Options, search

        options.setdefault("exclude", current_sessions())
        return search(self._store, query, Options(**options), progress=partial(progress, "searching"))

    def recent(self, limit: int = 10, *, repo: str | None = None, agent: str | None = None) -> SearchAnswer:
        """The sessions active last, each with its last request; the one this process runs in is left out."""
        from recollect.recall import recent_sessions

        return recent_sessions(self._store, limit, repo=repo, agent=agent, exclude=current_sessions())

    def files(self, path: str, limit: int | None = None, repo: str | None = None) -> list[FileVisit]:
        """Sessions that touched or discussed a path, newest first."""
        from recollect.recall import files

        return files(self._store, _resolved(path), limit, repo)

    def blame(self, path: str, limit: int | None = None, repo: str | None = None) -> list[FileEdit]:
        """The edits that wrote a file, newest first, across renames."""
        from recollect.recall import blame

        return blame(self._store, _resolved(path), limit, repo)

    def evicted_edits(self, path: str) -> int:
        """How many evicted sessions edited a file according to their digests, so that `blame` cannot show how."""
        from recollect.recall import evicted_edits

        return evicted_edits(self._store, _resolved(path))

    def timeline(
        self,
        *,
        since_ms: int | None = None,
        before_ms: int | None = None,
        repo: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
    ) -> list[TimelineEntry]:
        """Sessions active in a period, in the order they began; the latest if there are more than `limit`."""
        from recollect.recall import timeline

        return timeline(self._store, since_ms=since_ms, before_ms=before_ms, repo=repo, agent=agent, limit=limit)

    def related(self, session: Session, limit: int = 10) -> list[Related]:
        """Sessions this one came from or led to, and sessions about the same things."""
        from recollect.recall import related

        return related(self._store, session.session_uid, limit)

    def status(self) -> Status:
        from recollect.care.status import make_status

        return make_status(self._store, self.settings)

    def stats(
        self,
        by: str = "month",
        *,
        since_ms: int | None = None,
        before_ms: int | None = None,
        agent: str | None = None,
        repo: str | None = None,
    ) -> Stats:
        """Totals by day, week, month, repo, model, agent, tool or command; nothing is counted twice."""
        from recollect.recall import make_stats
        from recollect.store import Span

        return make_stats(self._store, by, Span(since_ms, before_ms, agent, repo))

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
        before_ms: int | None = None,
        match: str | None = None,
        excluded: bool = False,
        with_forks: bool = False,
        progress: Progress = silent,
    ) -> ForgetPlan:
        """What forgetting these sessions, or all that meet every condition, would remove. Changes nothing.

        `excluded` means sessions stored before a rule excluded them.
        """
        from recollect.forget.plan import Selection, plan

        patterns = self.settings.exclude if excluded else None
        if bool(names) == any(condition is not None for condition in (repo, before_ms, match, patterns)):
            raise UsageError("Give either sessions or conditions, not both", "see `recollect forget --help`")
        selection = Selection([self.session(name) for name in names], repo, before_ms, match, patterns)
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

        chosen = self._with_sub_agents(names) if names else self.sessions(repo=repo)
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
