"""The library: everything the command line can do, typed."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import orjson

from recollect.clock import rfc3339
from recollect.config import Settings, current_sessions, load_settings
from recollect.doctor import PROBLEM, Finding, examine
from recollect.errors import Ambiguous, BadConfig, NotFound, StoreTooNew, UsageError
from recollect.forget import ForgetPlan, Wanted, apply, plan
from recollect.recall.answers import SearchAnswer, SessionHit
from recollect.recall.related import Related, TimelineEntry, find_event, related, timeline
from recollect.recall.search import Options, search
from recollect.recall.trails import FileEdit, FileVisit, blame, evicted_edits, files
from recollect.schema import KIND_FAMILY, KINDS, Event, Problem, Session
from recollect.store import Store, open_store
from recollect.store.flags import IS_ABANDONED, IS_ERROR, IS_RETRY
from recollect.store.locks import sweep_lock
from recollect.store.sessions import SessionFilter
from recollect.sweep import Progress, SweepReport, sweep

if TYPE_CHECKING:
    from recollect.backup import BackupReport, RestoreReport
    from recollect.budget import BudgetReport, Outlook
    from recollect.distill.exchanges import Exchange
    from recollect.exports import ExportReport
    from recollect.imports import ImportReport
    from recollect.redact.redactor import Redactor
    from recollect.repairs import RepairReport
    from recollect.rescan import RescanReport
    from recollect.schedule import Schedule
    from recollect.schema import Digest, Signal
    from recollect.stats import Stats

_BYTES_OF_TOKEN = 4
_EVENT_COLUMNS = (
    "event_uid",
    "seq",
    "parent_uid",
    "lane",
    "position",
    "native_id",
    "ts_ms",
    "kind",
    "role",
    "tool",
    "call_id",
    "status",
    "flags",
    "copy_of",
    "summary",
    "payload_start",
    "payload_bytes",
    "model",
    "provider",
    "content_type",
    "input_tokens",
    "output_tokens",
    "metadata",
)


@dataclass(frozen=True, slots=True)
class AgentTotals:
    """What the store holds of one agent. `sessions` counts its sub-agents too; `usd` is None if none is known."""

    agent: str
    sessions: int
    sub_agents: int
    events: int
    messages: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    usd: float | None
    usd_is_estimate: bool
    started_at: str | None
    ended_at: str | None


@dataclass(frozen=True, slots=True)
class SourceTotals:
    """The agents' files that were read; `sources_gone` of them the agents have deleted since."""

    sources: int
    sources_failed: int
    sources_gone: int
    source_bytes: int
    bad_lines: int


@dataclass(frozen=True, slots=True)
class DistilledTotals:
    """Sessions distilled, the size of their digests, and estimates of their tokens.

    `log_tokens` are those of the agents' files, `raw_tokens` of what was said, called and returned in them,
    `kept_tokens` of what `exchanges` leaves of that.
    """

    sessions: int
    bytes: int
    log_tokens: int
    raw_tokens: int
    kept_tokens: int


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """How the budget stands. `losses` counts what cannot be had again; `last_copies_go_at` is a forecast."""

    raw_bytes: int
    raw_hard_cap: int
    distilled_bytes: int
    distilled_cap: int
    sessions_evicted: int
    losses: dict[str, int]
    last_copies_go_at: str | None


@dataclass(frozen=True, slots=True)
class Status:
    """What the store holds. `alarms` say, in words, which of its databases has less than it had."""

    folder: str
    agents: list[AgentTotals]
    sessions: int
    events: int
    sources: SourceTotals
    size_bytes: dict[str, int]
    alarms: list[str]
    distilled: DistilledTotals
    retention: RetentionStatus


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """An event with its content, in reading order; `depth` counts the sub-agents it is inside of."""

    session: Session
    event: Event
    payload: dict[str, Any]
    depth: int


@dataclass(frozen=True, slots=True)
class CheckedText:
    """A text as it would be stored; `replaced` counts by rule."""

    text: str
    replaced: dict[str, int]


class Memory:
    """An open store. Reading never changes it; `sweep`, `rescan`, `forget` and `import_sessions` write it."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self._store = store

    def sweep(self, progress: Progress | None = None, *, verify: bool = False) -> SweepReport:
        """Read what is new in the agents' files. `verify` opens every file, even if it looks unchanged."""
        return sweep(self._store, self.settings, progress or _silent, verify=verify)

    def backup(self, path: str | PathLike[str], progress: Progress | None = None) -> "BackupReport":
        """Write the whole store into one new file, and read it back. A sweep may go on meanwhile."""
        from recollect.backup import make_backup

        return make_backup(self._store, self.settings, Path(path).absolute(), progress or _silent)

    def export(
        self,
        path: str | PathLike[str],
        sessions: Sequence[str] = (),
        *,
        repo: str | None = None,
        progress: Progress | None = None,
    ) -> "ExportReport":
        """Write sessions as JSON lines and packs: those named (with their sub-agents), those of `repo`, or all."""
        from recollect.exports import export_sessions

        chosen = self._chosen(sessions) if sessions else self.sessions(repo=repo)
        return export_sessions(self._store, Path(path).absolute(), chosen, progress or _silent)

    def _chosen(self, names: Sequence[str]) -> list[Session]:
        """The sessions of these names, each with all it spawned."""
        found: dict[tuple[str, str], Session] = {}
        waiting = [self.session(name) for name in names]
        while waiting:
            session = waiting.pop()
            if found.setdefault((session.agent, session.native_session_id), session) is session:
                waiting += self.sub_agents(session)
        return list(found.values())

    def import_sessions(self, path: str | PathLike[str], progress: Progress | None = None) -> "ImportReport":
        """Take over the sessions of an export. What is held already stays as it is."""
        from recollect.imports import import_sessions

        return import_sessions(self._store, self.settings, Path(path).absolute(), progress or _silent)

    def rescan(self, advance: Callable[[int, int], None] | None = None, *, dry_run: bool = False) -> "RescanReport":
        """Apply the rules of redaction to sessions that went through older ones. Raises Busy during a sweep."""
        from recollect.rescan import rescan

        with sweep_lock(self._store.folder):
            redactor = open_redactor(self.settings)
            return rescan(
                self._store, redactor, self.settings.rules, advance or (lambda done, total: None), dry_run=dry_run
            )

    def status(self) -> Status:
        agents = [AgentTotals(**agent) for agent in self._store.sessions.totals()]
        saved = self._store.digests.saved()
        sources = SourceTotals(**self._store.sources.counts())
        return Status(
            folder=str(self._store.folder),
            agents=agents,
            sessions=sum(agent.sessions for agent in agents),
            events=sum(agent.events for agent in agents),
            sources=sources,
            size_bytes=self._store.size_bytes(),
            alarms=self._store.alarms(),
            distilled=DistilledTotals(
                sessions=saved.sessions,
                bytes=self._store.digests.size_bytes(),
                log_tokens=sources.source_bytes // _BYTES_OF_TOKEN,
                raw_tokens=saved.raw_tokens,
                kept_tokens=saved.kept_tokens,
            ),
            retention=self._retention(),
        )

    def _retention(self) -> RetentionStatus:
        outlook = self.outlook()
        return RetentionStatus(
            raw_bytes=outlook.raw_bytes,
            raw_hard_cap=self.settings.limits.raw_hard_cap,
            distilled_bytes=outlook.distilled_bytes,
            distilled_cap=self.settings.limits.distilled_cap,
            sessions_evicted=len(self._store.evictions.names()),
            losses=outlook.losses,
            last_copies_go_at=outlook.last_copies_go_at,
        )

    def outlook(self) -> "Outlook":
        """What would be dropped now to keep within the budget, and how it will come. Changes nothing."""
        from recollect.budget import look_ahead

        return look_ahead(self._store, self.settings)

    def keep_within_budget(self) -> "BudgetReport":
        """Drop raw detail until the store fits its budget, as each sweep does. Raises Busy during a sweep."""
        from recollect.budget import finish_evictions, keep_within_budget

        with sweep_lock(self._store.folder):
            finish_evictions(self._store)
            report = keep_within_budget(self._store, self.settings, lambda done, total: None)
            self._store.checkpoint()
        return report

    def rehydrate(self, session: Session, progress: Progress | None = None) -> SweepReport:
        """Bring back the raw detail of an evicted session from its source; raises NotFound if that is gone."""
        from recollect.rehydration import rehydrate

        return rehydrate(self._store, self.settings, session, progress or _silent)

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
        until_ms: int | None = None,
        text: str | None = None,
        roots_only: bool = False,
        limit: int | None = None,
    ) -> list[Session]:
        """Sessions that fit all that is given, newest first.

        `model` and `text` (in the title) match parts, `repo` any ending of its name. Of the times, in milliseconds
        since 1970, `since_ms` is for sessions still active then and `until_ms` for those begun before.
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
            until_ms=until_ms,
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
        return self._spawned(session)[session.session_uid]

    def _spawned(self, session: Session) -> dict[str, list[Session]]:
        """The other sessions of its tree, by the one that spawned them."""
        tree = self._store.sessions.find(SessionFilter(root=session.root_session_uid))
        found: dict[str, list[Session]] = defaultdict(list)
        for child in sorted(tree, key=lambda child: (child.started_at or "", child.session_uid)):
            # Left out itself: logs may name a session as spawned by one that it spawned.
            if child.parent_session_uid and child.session_uid != session.session_uid:
                found[child.parent_session_uid].append(child)
        return found

    def events(self, session: Session, kind: str | None = None) -> list[Event]:
        """A session's events in reading order; a kind stands for its more specific kinds too."""
        wanted = _family(kind)
        rows = self._store.events.rows(session.agent, session.native_session_id, _EVENT_COLUMNS)
        events = (_event(session, dict(zip(_EVENT_COLUMNS, row, strict=True))) for row in rows)
        return [event for event in events if event.kind in wanted]

    def payloads(self, session: Session, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
        """The full content of each event, in the order given."""
        places = [event.payload_ref or (0, 0) for event in events]
        for raw in self._store.events.iter_payloads(session.agent, session.native_session_id, places):
            yield orjson.loads(raw) if raw else {}

    def transcript(self, session: Session, kind: str | None = None) -> Iterator[TranscriptItem]:
        """A session as it went, its sub-agents in the places where they were called."""
        return self._transcript(session, _family(kind), 0, self._spawned(session))

    def _transcript(
        self, session: Session, kinds: tuple[str, ...], depth: int, spawned: dict[str, list[Session]]
    ) -> Iterator[TranscriptItem]:
        events = self.events(session)
        payloads = self.payloads(session, [event for event in events if event.kind in kinds])
        waiting = list(spawned[session.session_uid])
        for event in events:
            for child in [child for child in waiting if _comes_before(child, event)]:
                waiting.remove(child)
                yield from self._transcript(child, kinds, depth + 1, spawned)
            if event.kind in kinds:
                yield TranscriptItem(session, event, next(payloads), depth)
        for child in waiting:
            yield from self._transcript(child, kinds, depth + 1, spawned)

    def plan_forgetting(
        self,
        *names: str,
        repo: str | None = None,
        before_ms: int | None = None,
        match: str | None = None,
        with_forks: bool = False,
        progress: Progress | None = None,
    ) -> ForgetPlan:
        """What forgetting these sessions, or all that fit every other condition, would remove. Changes nothing."""
        if bool(names) == any(condition is not None for condition in (repo, before_ms, match)):
            raise UsageError("Say either which sessions to forget or how to find them", "`recollect forget --help`")
        wanted = Wanted([self.session(name) for name in names], repo, before_ms, match)
        return plan(self._store, wanted, progress or (lambda stage, done, total: None), with_forks=with_forks)

    def forget(self, planned: ForgetPlan, *, keep_forks: bool = False) -> ForgetPlan:
        """Remove the sessions of a plan for good: no byte of them stays, and no sweep brings them back.

        `keep_forks` leaves sessions that share their text as they are; without it such a plan raises NeedsAnswer.
        """
        return apply(self._store, self.settings, planned, keep_forks=keep_forks)

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
        until_ms: int | None = None,
        agent: str | None = None,
        repo: str | None = None,
    ) -> "Stats":
        """Sums by day, week, month, repo, model, agent, tool or command; nothing is counted twice."""
        from recollect.stats import make_stats
        from recollect.store.tallies import Span

        return make_stats(self._store, by, Span(since_ms, until_ms, agent, repo))

    def search(self, query: str, **options: Any) -> list[SessionHit]:
        """Sessions that fit a query, best first; the options are those of `answer`."""
        return self.answer(query, **options).hits

    def answer(self, query: str, **options: Any) -> SearchAnswer:
        """A search with all it has to say: `options` are the fields of `recall.search.Options`.

        Unless `exclude` is given, the session this process runs in is left out.
        """
        return search(self._store, query, Options(**({"exclude": current_sessions()} | options)))

    def files(self, path: str, limit: int = 50, repo: str | None = None) -> list[FileVisit]:
        """Sessions that touched or discussed a path, newest first."""
        return files(self._store, path, limit, repo)

    def blame(self, path: str, limit: int | None = None, repo: str | None = None) -> list[FileEdit]:
        """The edits that wrote a file, newest first, renames followed."""
        return blame(self._store, path, limit, repo)

    def evicted_edits(self, path: str) -> int:
        """How many evicted sessions edited a file by their digests, so that `blame` cannot tell how."""
        return evicted_edits(self._store, path)

    def timeline(self, **wanted: Any) -> list[TimelineEntry]:
        """Sessions in the order they began: `since_ms`, `before_ms`, `repo`, `agent`, `limit`."""
        return timeline(self._store, **wanted)

    def related(self, session: Session, limit: int = 10) -> list[Related]:
        """Sessions that this one comes from or led to, and those about the same things."""
        return related(self._store, session.session_uid, limit)

    def window(self, session: Session, at: str, count: int) -> list[TranscriptItem]:
        """The events round one of a session or its sub-agents; `at` is a seq, or either end of an event_uid."""
        place = find_event(self._store, session.session_uid, at)
        owner = self.session(place.session_uid)
        around = [event for event in self.events(owner) if event.lane == place.lane]
        here = next(number for number, event in enumerate(around) if event.event_uid == place.event_uid)
        shown = around[max(0, here - count) : here + count + 1]
        depth = int(owner.session_uid != session.session_uid)
        return [
            TranscriptItem(owner, event, payload, depth)
            for event, payload in zip(shown, self.payloads(owner, shown), strict=True)
        ]

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


def _silent(stage: str, done: int, total: int) -> None:
    """Progress for nobody."""


def _family(kind: str | None) -> tuple[str, ...]:
    """A kind with its more specific ones; all kinds if none is asked for."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"No such kind: {kind}", f"kinds: {', '.join(KINDS)}")
    return KIND_FAMILY.get(kind, (kind,)) if kind else KINDS


def _comes_before(child: Session, event: Event) -> bool:
    """A sub-agent is told just before the result of the call that spawned it."""
    if child.spawn_call_id is not None:
        return event.call_id == child.spawn_call_id and event.role != "assistant"
    return bool(event.ts and child.ended_at and event.ts >= child.ended_at)


def _event(session: Session, row: dict[str, Any]) -> Event:
    flags = row["flags"]
    return Event(
        event_uid=row["event_uid"].hex(),
        session_uid=session.session_uid,
        seq=row["seq"],
        parent_event_uid=row["parent_uid"].hex() if row["parent_uid"] else None,
        lane=row["lane"],
        position=row["position"],
        native_id=row["native_id"],
        ts=rfc3339(row["ts_ms"]),
        kind=row["kind"],
        role=row["role"],
        tool=row["tool"],
        call_id=row["call_id"],
        status=row["status"],
        is_error=bool(flags & IS_ERROR),
        is_retry=bool(flags & IS_RETRY),
        is_abandoned=bool(flags & IS_ABANDONED),
        copy_of=row["copy_of"].hex() if row["copy_of"] else None,
        summary=row["summary"],
        payload_ref=(row["payload_start"], row["payload_bytes"]),
        model=row["model"],
        provider=row["provider"],
        content_type=row["content_type"],
        input_tokens=row["input_tokens"],
        output_tokens=row["output_tokens"],
        metadata=orjson.loads(row["metadata"]) if row["metadata"] else {},
    )


def open_memory(folder: str | PathLike[str] | None = None, roots: Sequence[str] = (), *, create: bool = True) -> Memory:
    """Open the store (`RECOLLECT_HOME`, or the user's data folder), making it if there is none.

    `roots` are `AGENT=PATH`, as on the command line. Raises NotFound if there is no store and `create` is off.
    """
    settings = load_settings(Path(folder) if folder else None, roots)
    return Memory(settings, open_store(settings.folder, create=create))


def make_room(folder: str | PathLike[str] | None = None) -> None:
    """Give up the ballast of a store whose disk is full, so that it can be written, be it only to delete."""
    from recollect.store import ballast
    from recollect.store.sqlite import is_full

    place = load_settings(Path(folder) if folder else None).folder
    if place.exists() and is_full(place):
        ballast.drop(place)


def own_schedule(*, is_removal: bool = False) -> "Schedule":
    """What would have sweeps run by themselves on this machine, or did before the cadence was changed."""
    import sys

    from platformdirs import user_config_path

    from recollect.schedule import Host, plan_schedule

    settings = load_settings()
    host = Host(sys.platform, Path.home(), user_config_path(), Path("/run/systemd/system").exists())
    is_moved = settings.config_path.parent == settings.folder
    variables = {"RECOLLECT_HOME": str(settings.folder)} if is_moved else {}
    cadence = "daily" if is_removal else settings.limits.cadence
    return plan_schedule(host, cadence, (sys.executable, "-m", "recollect", "sweep"), variables)


def open_redactor(settings: Settings) -> "Redactor":
    """The redactor of a store, with its key and the user's rules."""
    from recollect.protection import Protection

    return Protection(settings.folder, settings.redaction).redactor()


def check_text(text: str, folder: str | PathLike[str] | None = None) -> CheckedText:
    """What the rules of redaction make of a text. Where there is no store yet, marks are not those it will have."""
    from recollect.redact.marks import KEY_BYTES
    from recollect.redact.redactor import Redactor

    settings = load_settings(Path(folder) if folder else None)
    has_store = (settings.folder / "memory.db").exists()
    redactor = open_redactor(settings) if has_store else Redactor(settings.redaction, bytes(KEY_BYTES))
    return CheckedText(redactor.text(text), dict(sorted(redactor.replaced.items())))


def doctor(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    deep: bool = False,
    max_seconds: float | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Look for what stands in the way: homes, permissions, settings, damage. Works without a store.

    `deep` looks at every stored byte and compares it with the agents' files, for `max_seconds` at most.
    """
    try:
        settings = load_settings(Path(folder) if folder else None, roots)
    except BadConfig as error:
        return [Finding(PROBLEM, "settings", error.message, error.hint)]
    if not deep:
        return examine(settings)
    from recollect.inspection import inspect

    findings = examine(settings)
    with suppress(StoreTooNew):  # which has been told
        findings += inspect(settings, progress or _silent, max_seconds).findings()
    return findings


def repair(
    folder: str | PathLike[str] | None = None,
    roots: Sequence[str] = (),
    *,
    confirm: Callable[[list[str]], None] | None = None,
    progress: Progress | None = None,
) -> "RepairReport":
    """Rebuild what is damaged from sources, packs and ledger; nothing is deleted.

    `confirm` is told the steps before anything is changed, and raises to stop.
    """
    from recollect.inspection import inspect
    from recollect.repairs import RepairReport, apply, plan

    settings = load_settings(Path(folder) if folder else None, roots)
    planned = plan(inspect(settings, progress or _silent).faults)
    if not planned.steps:
        return RepairReport()
    if confirm:
        confirm(planned.steps)
    return apply(settings, planned, progress or _silent)


def restore(
    path: str | PathLike[str], folder: str | PathLike[str] | None = None, progress: Progress | None = None
) -> "RestoreReport":
    """Put a backup in the place of the store, which is set aside. A backup that is not whole changes nothing."""
    from recollect.backup import restore_backup

    settings = load_settings(Path(folder) if folder else None)
    return restore_backup(settings, Path(path).absolute(), progress or _silent)
