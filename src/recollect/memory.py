"""The library: everything the command line can do, typed."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any

import orjson

from recollect.clock import rfc3339
from recollect.config import Settings, current_sessions, load_settings
from recollect.doctor import PROBLEM, Finding, examine
from recollect.errors import Ambiguous, BadConfig, NotFound, UsageError
from recollect.recall.answers import SearchAnswer, SessionHit
from recollect.recall.related import Related, TimelineEntry, find_event, related, timeline
from recollect.recall.search import Options, search
from recollect.recall.trails import FileEdit, FileVisit, blame, files
from recollect.schema import KIND_FAMILY, KINDS, Event, Problem, Session
from recollect.store import Store, open_store
from recollect.store.batch import IS_ABANDONED, IS_ERROR, IS_RETRY
from recollect.store.sessions import SessionFilter
from recollect.sweep import Progress, SweepReport, sweep

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
class Status:
    """What the store holds."""

    folder: str
    agents: list[AgentTotals]
    sessions: int
    events: int
    sources: SourceTotals
    size_bytes: dict[str, int]


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """An event with its content, in reading order; `depth` counts the sub-agents it is inside of."""

    session: Session
    event: Event
    payload: dict[str, Any]
    depth: int


class Memory:
    """An open store. Reading never changes it; only `sweep` writes."""

    def __init__(self, settings: Settings, store: Store) -> None:
        self.settings = settings
        self._store = store

    def sweep(self, progress: Progress | None = None, *, verify: bool = False) -> SweepReport:
        """Read what is new in the agents' files. `verify` opens every file, even if it looks unchanged."""
        return sweep(self._store, self.settings, progress or (lambda stage, done, total: None), verify=verify)

    def status(self) -> Status:
        agents = [AgentTotals(**agent) for agent in self._store.sessions.totals()]
        return Status(
            folder=str(self._store.folder),
            agents=agents,
            sessions=sum(agent.sessions for agent in agents),
            events=sum(agent.events for agent in agents),
            sources=SourceTotals(**self._store.sources.counts()),
            size_bytes=self._store.size_bytes(),
        )

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

    def search(self, query: str, **options: Any) -> list[SessionHit]:
        """Sessions that fit a query, best first; the options are those of `answer`."""
        return self.answer(query, **options).hits

    def answer(self, query: str, **options: Any) -> SearchAnswer:
        """A search with all it has to say: `options` are the fields of `recall.search.Options`.

        Unless `exclude` is given, the session this process runs in is left out.
        """
        return search(self._store, query, Options(**({"exclude": current_sessions()} | options)))

    def files(self, path: str, limit: int = 50) -> list[FileVisit]:
        """Sessions that touched or discussed a path, newest first."""
        return files(self._store, path, limit)

    def blame(self, path: str) -> list[FileEdit]:
        """The edits that wrote a file, newest first, renames followed."""
        return blame(self._store, path)

    def timeline(self, **wanted: Any) -> list[TimelineEntry]:
        """Sessions in the order they began: `since_ms`, `before_ms`, `repo`, `agent`, `limit`."""
        return timeline(self._store, **wanted)

    def related(self, session: Session, limit: int = 10) -> list[Related]:
        """Sessions that this one comes from or led to, and those about the same things."""
        return related(self._store, session.session_uid, limit)

    def window(self, session: Session, at: str, count: int) -> list[TranscriptItem]:
        """The events round one of a session or its sub-agents; `at` is a seq, or the beginning of an event_uid."""
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


def doctor(folder: str | PathLike[str] | None = None, roots: Sequence[str] = ()) -> list[Finding]:
    """Look for what stands in the way: homes, permissions, settings, damage. Works without a store."""
    try:
        settings = load_settings(Path(folder) if folder else None, roots)
    except BadConfig as error:
        return [Finding(PROBLEM, "settings", error.message, error.hint)]
    return examine(settings)
