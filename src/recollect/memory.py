"""The library: everything the command line can do, typed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from recollect.admission import unusable_rules
from recollect.budget import BudgetReport, Outlook, finish_evictions, keep_within_budget, look_ahead
from recollect.clock import rfc3339
from recollect.config import Settings, current_sessions, load_settings
from recollect.errors import Ambiguous, NotFound, UsageError
from recollect.forget import ForgetPlan, Wanted, alone, apply, plan
from recollect.progress import Progress, silent
from recollect.protection import Protection
from recollect.recall.answers import SearchAnswer, SessionHit
from recollect.recall.related import Related, TimelineEntry, related, timeline
from recollect.recall.search import Options, search
from recollect.recall.trails import FileEdit, FileVisit, blame, evicted_edits, files
from recollect.rescan import RescanReport, rescan
from recollect.schema import Event, Problem, Session
from recollect.status import Status, make_status
from recollect.store import Store, open_store
from recollect.store.locks import sweep_lock
from recollect.store.sessions import SessionFilter
from recollect.sweep import SweepReport, sweep
from recollect.transcript import (
    TranscriptItem,
    find_spawned,
    iter_payloads,
    iter_transcript,
    read_events,
    read_window,
)

if TYPE_CHECKING:
    from recollect.backup import BackupReport
    from recollect.distill.exchanges import Exchange
    from recollect.exports import ExportReport
    from recollect.imports import ImportReport
    from recollect.schema import Digest, Signal
    from recollect.stats import Stats


class Memory:
    """An open store. Reading never changes it; `sweep`, `rescan`, `forget` and `import_sessions` write it."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self._store = store

    def sweep(self, progress: Progress = silent, *, verify: bool = False) -> SweepReport:
        """Read what is new in the agents' files. `verify` opens every file, even if it looks unchanged."""
        return sweep(self._store, self.settings, progress, verify=verify)

    def backup(self, path: str | PathLike[str], progress: Progress = silent) -> "BackupReport":
        """Write the whole store into one new file, and read it back. A sweep may go on meanwhile."""
        from recollect.backup import make_backup

        return make_backup(self._store, self.settings, Path(path).absolute(), progress)

    def export(
        self,
        path: str | PathLike[str],
        sessions: Sequence[str] = (),
        *,
        repo: str | None = None,
        progress: Progress = silent,
    ) -> "ExportReport":
        """Write sessions as JSON lines and packs: those named (with their sub-agents), those of `repo`, or all."""
        from recollect.exports import export_sessions

        chosen = self._chosen(sessions) if sessions else self.sessions(repo=repo)
        return export_sessions(self._store, Path(path).absolute(), chosen, progress)

    def _chosen(self, names: Sequence[str]) -> list[Session]:
        """The sessions of these names, each with all it spawned."""
        found: dict[tuple[str, str], Session] = {}
        waiting = [self.session(name) for name in names]
        while waiting:
            session = waiting.pop()
            if found.setdefault((session.agent, session.native_session_id), session) is session:
                waiting += self.sub_agents(session)
        return list(found.values())

    def import_sessions(self, path: str | PathLike[str], progress: Progress = silent) -> "ImportReport":
        """Take over the sessions of an export. What is held already stays as it is."""
        from recollect.imports import import_sessions

        return import_sessions(self._store, self.settings, Path(path).absolute(), progress)

    def rescan(self, progress: Progress = silent, *, dry_run: bool = False) -> RescanReport:
        """Apply the rules of redaction to sessions that went through older ones. Raises Busy during a sweep."""
        with sweep_lock(self._store.folder):
            redactor = Protection(self.settings.folder, self.settings.redaction).redactor()
            advance = partial(progress, "redacting")
            return rescan(self._store, redactor, self.settings.rules, advance, dry_run=dry_run)

    def unusable_rules(self) -> list[tuple[Path, str]]:
        """Ignore files of repositories, each with a line of it that neither keeps anything out nor lets it in."""
        return unusable_rules(self._store)

    def status(self) -> Status:
        return make_status(self._store, self.settings)

    def outlook(self) -> Outlook:
        """What would be dropped now to keep within the budget, and how it will come. Changes nothing."""
        return look_ahead(self._store, self.settings)

    def keep_within_budget(self) -> BudgetReport:
        """Drop raw detail until the store fits its budget, as each sweep does. Raises Busy during a sweep."""
        with sweep_lock(self._store.folder):
            finish_evictions(self._store)
            report = keep_within_budget(self._store, self.settings, lambda done, total: None)
            self._store.checkpoint()
        return report

    def rehydrate(self, session: Session, progress: Progress = silent) -> SweepReport:
        """Bring back the raw detail of an evicted session from its source; raises NotFound if that is gone."""
        from recollect.rehydration import rehydrate

        return rehydrate(self._store, self.settings, session, progress)

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
        """Sessions that fit all that is given, newest first.

        `model` and `text` (in the title) match parts, `repo` any ending of its name. Of the times, in milliseconds
        since 1970, `since_ms` is for sessions still active then and `before_ms` for those begun before.
        `roots_only` leaves sub-agents out.
        """
        wanted = SessionFilter(
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
        return self._store.sessions.find(wanted)

    def session(self, name: str) -> Session:
        """The one session with this id, beginning or end of an id (6 characters or more), or title."""
        uid = self._resolve(name)
        return self._store.sessions.find(SessionFilter(uid=uid))[0]

    def _resolve(self, name: str) -> str:
        matches = self._store.sessions.matching(name)
        if len(matches) > 1:
            matches = [match for match in matches if match.is_exact] or matches
            roots = {match.root_session_uid for match in matches}
            matches = [match for match in matches if match.session_uid in roots] if len(roots) == 1 else matches
        if not matches:
            raise NotFound(f"No session has the id or title `{name}`", "`recollect sessions` shows ids and titles")
        if len(matches) > 1:
            shown = ", ".join(match.session_uid for match in matches[:3])
            raise Ambiguous(
                f"{len(matches)} sessions match `{name}`: {shown} …",
                "give more of an id: `recollect sessions` shows them",
            )
        return matches[0].session_uid

    def sub_agents(self, session: Session) -> list[Session]:
        """The sessions this one spawned, in the order they began."""
        return find_spawned(self._store, session)[session.session_uid]

    def events(self, session: Session, kind: str | None = None) -> list[Event]:
        """A session's events in reading order; a kind stands for its more specific kinds too."""
        return read_events(self._store, session, kind)

    def payloads(self, session: Session, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
        """The full content of each event, in the order given."""
        return iter_payloads(self._store, session, events)

    def transcript(self, session: Session, kind: str | None = None) -> Iterator[TranscriptItem]:
        """A session as it went, its sub-agents in the places where they were called."""
        return iter_transcript(self._store, session, kind)

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
        """What forgetting these sessions, or all that fit every other condition, would remove. Changes nothing.

        `excluded` are those that were stored before a rule left them out.
        """
        patterns = self.settings.exclude if excluded else None
        if bool(names) == any(condition is not None for condition in (repo, before_ms, match, patterns)):
            raise UsageError("Say either which sessions to forget or how to find them", "`recollect forget --help`")
        wanted = Wanted([self.session(name) for name in names], repo, before_ms, match, patterns)
        return plan(self._store, wanted, progress, with_forks=with_forks)

    def forget(self, planned: ForgetPlan, *, keep_forks: bool = False, also_new: bool = False) -> ForgetPlan:
        """Remove the sessions of a plan for good: no byte of them stays, and no sweep brings them back.

        `keep_forks` leaves sessions that share their text as they are; without it such a plan raises NeedsAnswer.
        `also_new` takes along what was stored since and fits; without it that raises Busy, as a running sweep does.
        """
        return apply(self._store, self.settings, planned, keep_forks=keep_forks, also_new=also_new)

    @contextmanager
    def without_sweeps(self) -> Iterator[None]:
        """Nothing is stored while this lasts; raises Busy if a sweep is running."""
        with alone(self._store):
            yield

    def digest(self, session: Session) -> "Digest":
        """The lasting account of a session. Raises NotFound before a sweep made it, and for a tiny sub-agent."""
        from recollect.distill.analysis import find_digest

        return find_digest(self._store, session)

    def exchanges(self, session: Session) -> "list[Exchange]":
        """A session cut into requests with what followed, filtered by the settings of `[exchanges]`."""
        from recollect.distill.analysis import find_exchanges

        return find_exchanges(self._store, session, self.settings.exchanges)

    def signals(
        self, session: Session | None = None, *, signal: str | None = None, since_ms: int | None = None
    ) -> "list[Signal]":
        """What is worth noticing in one session or in all, oldest first."""
        key = None if session is None else (session.agent, session.native_session_id)
        return self._store.digests.signals(key, signal, since_ms)

    def stats(
        self,
        by: str = "month",
        *,
        since_ms: int | None = None,
        before_ms: int | None = None,
        agent: str | None = None,
        repo: str | None = None,
    ) -> "Stats":
        """Sums by day, week, month, repo, model, agent, tool or command; nothing is counted twice."""
        from recollect.stats import make_stats
        from recollect.store.tallies import Span

        return make_stats(self._store, by, Span(since_ms, before_ms, agent, repo))

    def search(self, query: str, **options: Any) -> list[SessionHit]:
        """Sessions that fit a query, best first; the options are those of `answer`."""
        return self.answer(query, **options).hits

    def answer(self, query: str, **options: Any) -> SearchAnswer:
        """A search with all it has to say: `options` are the fields of `recall.search.Options`.

        Unless `exclude` is given, the session this process runs in is left out.
        """
        return search(self._store, query, Options(**({"exclude": current_sessions()} | options)))

    def files(self, path: str, limit: int | None = None, repo: str | None = None) -> list[FileVisit]:
        """Sessions that touched or discussed a path, newest first."""
        return files(self._store, path, limit, repo)

    def blame(self, path: str, limit: int | None = None, repo: str | None = None) -> list[FileEdit]:
        """The edits that wrote a file, newest first, renames followed."""
        return blame(self._store, path, limit, repo)

    def evicted_edits(self, path: str) -> int:
        """How many evicted sessions edited a file by their digests, so that `blame` cannot tell how."""
        return evicted_edits(self._store, path)

    def timeline(
        self,
        *,
        since_ms: int | None = None,
        before_ms: int | None = None,
        repo: str | None = None,
        agent: str | None = None,
        limit: int | None = None,
    ) -> list[TimelineEntry]:
        """Sessions active in a time, in the order they began; if there are too many, the latest."""
        return timeline(self._store, since_ms=since_ms, before_ms=before_ms, repo=repo, agent=agent, limit=limit)

    def related(self, session: Session, limit: int = 10) -> list[Related]:
        """Sessions that this one comes from or led to, and those about the same things."""
        return related(self._store, session.session_uid, limit)

    def window(self, session: Session, at: str, count: int) -> list[TranscriptItem]:
        """The events round one of a session or its sub-agents; `at` is a seq, or either end of an event_uid."""
        return read_window(self._store, session, at, count)

    def problems(self) -> list[Problem]:
        """Lines and files that could not be read, with what is wrong."""
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

    def close(self) -> None:
        self._store.close()

    def __enter__(self) -> "Memory":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_memory(folder: str | PathLike[str] | None = None, roots: Sequence[str] = (), *, create: bool = True) -> Memory:
    """Open the store (`RECOLLECT_HOME`, or the user's data folder), making it if there is none.

    `roots` are `AGENT=PATH`, as on the command line. Raises NotFound if there is no store and `create` is off.
    """
    settings = load_settings(folder, roots)
    return Memory(settings, open_store(settings.folder, create=create))
