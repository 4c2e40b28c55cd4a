"""What happened to a file: which sessions touched or discussed it, and whose edits wrote it.

The index knows words only, and `common.go` has the words of `push_common.go`: what it finds is checked in the payloads.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from recollect.agentkit.edits import FileChange
from recollect.clock import AsDatetime, rfc3339
from recollect.kinds import EDIT, KIND_FAMILY, TOOL_CALL, SessionKey
from recollect.recall.answers import command_for
from recollect.recall.candidates import Sessions
from recollect.recall.edits import absolute, called_before, changes, is_below, is_same, renames, slashed, whole
from recollect.recall.filters import NO_FILTERS, Filters, as_options
from recollect.recall.hits import quotes
from recollect.recall.query import Query
from recollect.recall.scope import Scope, scope_of
from recollect.recall.snippets import Texts
from recollect.store import IS_ERROR, EventFilter, EventHeader, HeaderFilter, Scored, SessionHeader, Store, Term, Wanted
from recollect.text import CJK, evidence, payload_text

_MOST_NAMES = 20  # a file may have been renamed
_READ_AT_ONCE = 20
_CALLS = KIND_FAMILY[TOOL_CALL]
_MENTION = "mention"
_ADDED, _REMOVED = "added", "removed"  # lines
_IN_CALLS = ("did",)
ANY_EVENT = EventFilter()
_SEPARATOR = re.compile(r"[/\\]+")


@dataclass(frozen=True, slots=True)
class FileVisit:
    """A session (with its sub-agents) and how it met a path."""

    session_uid: str
    title: str | None
    agent: str
    repo: str | None
    last_at: str | None
    edits: int  # that did not fail
    calls: int  # other calls that name it
    mentions: int  # in messages and results
    added: int = 0  # lines, by its edits
    removed: int = 0
    cwd: str | None = None
    resume_command: str | None = None
    evicted: bool = False  # its raw detail, or a part of it, is gone: counted by what its digest says of the path

    last = AsDatetime("last_at")


@dataclass(frozen=True, slots=True)
class FileEdit:
    """An edit that wrote a file, and the request it was made for."""

    session_uid: str
    title: str | None
    agent: str
    ts: str | None
    event_uid: str
    seq: int
    path: str  # as it was called then
    renamed_from: str | None
    added: int  # lines
    removed: int
    summary: str
    request: str | None
    request_seq: int | None

    at = AsDatetime("ts")


class _Digested(NamedTuple):
    """What the digest of a session without raw detail says of a path."""

    header: SessionHeader
    edits: int
    calls: int
    mentions: int


def files(store: Store, path: str, filters: Filters = NO_FILTERS, limit: int | None = None) -> list[FileVisit]:
    """Sessions that touched or discussed the path; those that edited it first, the newest first, then the others.

    Evicted ones are counted by their digests. With `limit`, only so many that met it last.
    """
    sessions, mentions = Sessions(store), _Mentions(store, path, _scope(store, filters))
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # by session
    last: dict[str, int] = {}
    headers: dict[str, SessionHeader] = {}
    by_session = mentions.by_session()
    sessions.load({events.stream for events in by_session})
    for events in by_session:
        header = sessions.root(events.stream)
        if header.session_uid not in headers and len(headers) == limit:
            continue
        for event, how in mentions.named(*_read(store, events)):
            headers[header.session_uid] = header
            counts[header.session_uid] += how
            last[header.session_uid] = max(last.get(header.session_uid, 0), event.ts_ms or 0)
    digested = list(mentions.digested())
    roots = sessions.named({item.header.root_session_uid for item in digested})
    for item in digested:
        header = roots.get(item.header.root_session_uid, item.header)
        headers[header.session_uid] = header
        counts[header.session_uid].update({EDIT: item.edits, TOOL_CALL: item.calls, _MENTION: item.mentions})
    visits = [_visit(header, counts[uid], last.get(uid)) for uid, header in headers.items()]
    latest = sorted(visits, key=lambda visit: (visit.last_at or "", visit.session_uid), reverse=True)[:limit]
    return sorted(latest, key=_rank, reverse=True)


def _scope(store: Store, filters: Filters) -> Scope:
    return scope_of(store, Query("", filters=as_options(filters)), datetime.now().astimezone(), (), [])


def _rank(visit: FileVisit) -> tuple[bool, str, str]:
    return visit.edits > 0, visit.last_at or "", visit.session_uid


def _visit(header: SessionHeader, counts: Counter[str], last_ms: int | None) -> FileVisit:
    return FileVisit(
        session_uid=header.session_uid,
        title=header.title,
        agent=header.agent,
        repo=header.repo,
        last_at=rfc3339(last_ms or header.ended_ms),
        edits=counts[EDIT],
        calls=counts[TOOL_CALL],
        mentions=counts[_MENTION],
        added=counts[_ADDED],
        removed=counts[_REMOVED],
        cwd=header.cwd,
        resume_command=command_for(header),
        evicted=header.evicted_ms is not None,
    )


def sessions_calling(store: Store, path: str) -> set[SessionKey]:
    """Sessions with a call that names the path, held or not."""
    mentions = _Mentions(store, path)
    held = store.event_headers.keys(set(mentions.calling_streams())).values()
    return {*held, *(item.header.key for item in mentions.digested() if item.edits or item.calls)}


def evicted_edits(store: Store, path: str) -> int:
    """How many sessions edited the file according to their digests, the edits themselves being gone."""
    return sum(item.edits > 0 for item in _Mentions(store, path).digested())


class _Mentions:
    """Looks up where one path is named."""

    def __init__(self, store: Store, path: str, scope: Scope | None = None) -> None:
        self._store = store
        self._path = path
        self._scope = scope or Scope(HeaderFilter(), EventFilter())
        self._pattern = _pattern(path)
        self._name = _base_name(path).lower()
        self._texts = Texts(store)

    def by_session(self) -> list["_SessionEvents"]:
        """Events that may name the path, by session; those of the session that did so last come first."""
        # A call may name the path from its working folder, so that only the name of the file is in it.
        chosen = self._scope.events
        events = [*_events_with(self._store, _base_name(self._path), columns=_IN_CALLS, chosen=chosen)]
        events += _events_with(self._store, self._path, chosen=chosen)
        return _by_session(events)

    def named(self, headers: list[EventHeader], owner: "_Owner") -> Iterator[tuple[EventHeader, Counter[str]]]:
        """Which of a session's events name the path, and how: an edit of so many lines, another call, a mention."""
        payloads = dict(zip(headers, self._texts.payloads(headers), strict=True))
        edits = [
            header for header, payload in payloads.items() if header.kind == EDIT and self._has_changed(owner, payload)
        ]
        results = _results(self._store, self._texts, edits)
        for header, payload in payloads.items():
            if header.id in results:
                yield header, self._lines(changes(owner.agent, payload, results[header.id]), owner)
            elif how := self._how(header, payload, owner):
                yield header, how

    def calling_streams(self) -> Iterator[int]:
        """Sessions held with a call that names the path."""
        for events in _by_session(_events_with(self._store, _base_name(self._path), columns=_IN_CALLS)):
            if self._is_called(*_read(self._store, events)):
                yield events.stream

    def digested(self) -> Iterator[_Digested]:
        """Sessions without raw detail whose digests name the path."""
        expression = self._store.fulltext_search.expression(Wanted(((Term(_base_name(self._path)),),)))
        is_askable = bool(expression) and not self._scope.events.choices  # a digest has no kinds of events
        matches = (
            self._store.session_headers.by_digest(expression, self._scope.timed, is_evicted=True) if is_askable else []
        )
        headers = [header for header, _ in matches]
        cwds = self._store.session_headers.cwds({number: header.key for number, header in enumerate(headers)})
        for number, header in enumerate(headers):
            digest = orjson.loads(self._store.session_headers.digest(header.key) or "{}")
            edited, commands = digest.get("files", ()), digest.get("commands", ())
            edits = sum(item["count"] for item in edited if is_below(absolute(item["name"], cwds[number]), self._path))
            calls = sum(item["count"] for item in commands if self._pattern.search(item["name"]))
            mentions = sum(self._pattern.search(quote["text"]) is not None for quote in quotes(digest))
            if edits or calls or mentions:
                yield _Digested(header, edits, calls, mentions)

    def _is_called(self, headers: Sequence[EventHeader], owner: "_Owner") -> bool:
        """Whether any of these calls names the path; most do in their summaries, and no payload is read."""
        calls = [header for header in headers if header.kind in _CALLS]
        if any(self._pattern.search(header.summary) for header in calls):
            return True
        for start in range(0, len(calls), _READ_AT_ONCE):
            batch = calls[start : start + _READ_AT_ONCE]
            if any(map(self._how, batch, self._texts.payloads(batch), [owner] * len(batch))):
                return True
        return False

    def _how(self, header: EventHeader, payload: dict[str, Any], owner: "_Owner") -> Counter[str]:
        """How an event that changed nothing names the path; empty if it does not."""
        is_call = header.kind in _CALLS
        is_named = is_call and self._has_changed(owner, payload)
        text = evidence(payload_text(header.kind, payload)) or header.summary
        # Most texts lack the name of the file, which is found out much sooner than by a pattern.
        if not is_named and not (self._name in text.lower() and self._pattern.search(text)):
            return Counter()
        return Counter({TOOL_CALL if is_call else _MENTION: 1})

    def _has_changed(self, owner: "_Owner", payload: dict[str, Any]) -> bool:
        return any(self._is_meant(change, owner) for change in changes(owner.agent, payload))

    def _lines(self, changed: Sequence[FileChange], owner: "_Owner") -> Counter[str]:
        hunks = [hunk for change in changed if self._is_meant(change, owner) for hunk in change.hunks]
        added, removed = sum(hunk.added for hunk in hunks), sum(hunk.removed for hunk in hunks)
        return Counter({EDIT: 1, _ADDED: added, _REMOVED: removed})

    def _is_meant(self, change: FileChange, owner: "_Owner") -> bool:
        return is_below(absolute(change.path, owner.cwd), self._path)


class _SessionEvents(NamedTuple):
    """Which of a session's events may name a path."""

    stream: int
    newest_ms: int
    ids: list[int]


class _Owner(NamedTuple):
    """What is needed of a session to read its calls."""

    agent: str
    cwd: str | None


def _results(store: Store, texts: Texts, calls: Sequence[EventHeader]) -> dict[int, dict[str, Any] | None]:
    """What the last result of each of a session's calls says, if it has one; calls that failed are left out."""
    results = store.event_headers.results(calls)
    done = [call.id for call in calls if not any(event.flags & IS_ERROR for event in results.get(call.id, ()))]
    last = {call: results[call][-1] for call in done if results.get(call)}
    ordered = sorted(last.values(), key=lambda event: event.payload_start)
    payloads = dict(zip((event.id for event in ordered), texts.payloads(ordered), strict=True))
    return {call: payloads[last[call].id] if call in last else None for call in done}


class EditStep(NamedTuple):
    """A call that changed a file, or gave it another name."""

    event: EventHeader
    change: FileChange
    is_edit: bool


def blame(store: Store, path: str, filters: Filters = NO_FILTERS, limit: int | None = None) -> list[FileEdit]:
    """Every edit that went into the file, newest first, those under its earlier names included; at most `limit`.

    A rename is followed from the moment it was made: later edits of another file with the old name are left out.
    """
    steps, sessions = file_steps(store, path, _scope(store, filters).events, limit), Sessions(store)
    sessions.load({step.event.stream for step in steps})
    return [file_edit(store, sessions.header(step.event.stream), step) for step in steps]


def _is_chosen(event: EventHeader, chosen: EventFilter) -> bool:
    """Whether the filters let an edit through; a rename is followed even if they do not."""
    is_of_session = chosen.streams is None or event.stream in chosen.streams
    is_of_kind = all(event.kind in choice.values for choice in chosen.choices)
    is_since = chosen.since_ms is None or (event.ts_ms or 0) >= chosen.since_ms
    is_before = chosen.before_ms is None or (event.ts_ms or 0) < chosen.before_ms
    return is_of_session and is_of_kind and is_since and is_before


def file_edit(store: Store, header: SessionHeader, step: EditStep) -> FileEdit:
    """An edit with its session and the request it was made for."""
    event = step.event
    request = store.event_headers.request_of(event)
    return FileEdit(
        session_uid=header.session_uid,
        title=header.title,
        agent=header.agent,
        ts=rfc3339(event.ts_ms),
        event_uid=event.event_uid.hex(),
        seq=event.seq,
        path=step.change.path,
        renamed_from=step.change.renamed_from,
        added=sum(hunk.added for hunk in step.change.hunks),
        removed=sum(hunk.removed for hunk in step.change.hunks),
        summary=event.summary,
        request=request.summary if request else None,
        request_seq=request.seq if request else None,
    )


def file_steps(store: Store, path: str, chosen: EventFilter = ANY_EVENT, limit: int | None = None) -> list[EditStep]:
    """The edits of a file and of those it was before, newest first; at most `limit`."""
    edits: dict[tuple[int, str], EditStep] = {}
    names: list[tuple[str, int | None]] = [(slashed(path), None)]
    for name, until_ms in names:  # grows on the way
        for newest_ms, steps in _changes_to(store, name):
            newer = sum((edit.event.ts_ms or 0) > newest_ms for edit in edits.values())
            if limit is not None and newer >= limit:
                break
            for step in steps:
                if until_ms is not None and (step.event.ts_ms or 0) > until_ms:
                    continue
                if step.is_edit and _is_chosen(step.event, chosen):
                    edits[step.event.id, step.change.path] = step
                earlier = step.change.renamed_from
                if earlier and len(names) < _MOST_NAMES and earlier not in (name for name, _ in names):
                    names.append((earlier, step.event.ts_ms))
    return sorted(edits.values(), key=lambda step: (step.event.ts_ms or 0, step.event.id), reverse=True)[:limit]


def _changes_to(store: Store, path: str) -> Iterator[tuple[int, Iterator[EditStep]]]:
    """Changes whose file, as it is called afterwards, is this one: by session, each with the time of its last event."""
    events = _events_with(store, _base_name(path), columns=_IN_CALLS)
    for folder in path.split("/")[:-1]:
        events += _events_with(store, folder, "mv", columns=_IN_CALLS) if folder else []
    texts = Texts(store)
    for of_session in _by_session(events):
        yield of_session.newest_ms, _changes_in(store, texts, of_session, path)


def _changes_in(store: Store, texts: Texts, events: _SessionEvents, path: str) -> Iterator[EditStep]:
    headers, owner = _read(store, events)
    calls = {
        header: payload
        for header, payload in zip(headers, texts.payloads(headers), strict=True)
        if any(_steps_of(header, changes(owner.agent, payload), payload, path, owner.cwd))
    }
    results = _results(store, texts, list(calls))
    for header, payload in calls.items():
        if header.id in results:
            done = changes(owner.agent, payload, results[header.id])
            yield from _steps_of(header, done, payload, path, owner.cwd)


def _steps_of(
    header: EventHeader, changed: Sequence[FileChange], payload: Mapping[str, Any], path: str, cwd: str | None
) -> Iterator[EditStep]:
    """What a call did to the file that is called so afterwards."""
    if header.kind == EDIT:
        named = [whole(change, cwd) for change in changed]
        yield from (EditStep(header, change, is_edit=True) for change in named if is_same(change.path, path))
        return
    for change in renames(payload):
        if earlier := called_before(whole(change, cwd), path):
            yield EditStep(header, FileChange(path, earlier), is_edit=False)


def _events_with(
    store: Store, *words: str, columns: tuple[str, ...] | None = None, chosen: EventFilter = ANY_EVENT
) -> list[Scored]:
    """Events that have each of these words or phrases; whether it is the same path is not known yet."""
    wanted = Wanted(tuple((Term(word),) for word in words), columns=columns)
    return store.fulltext_search.matching(wanted, chosen)


def _by_session(events: Sequence[Scored]) -> list[_SessionEvents]:
    """The events by session, the session with the newest one first."""
    by_stream: dict[int, dict[int, int]] = {}
    for event in events:
        by_stream.setdefault(event.stream, {})[event.id] = event.ts_ms or 0
    sessions = [_SessionEvents(stream, max(times.values()), list(times)) for stream, times in by_stream.items()]
    return sorted(sessions, key=lambda session: (-session.newest_ms, session.stream))


def _read(store: Store, events: _SessionEvents) -> tuple[list[EventHeader], _Owner]:
    """A session's events in the order of their payloads, and whose they are."""
    headers = sorted(store.event_headers.of(events.ids).values(), key=lambda header: header.payload_start)
    keys = store.event_headers.keys([events.stream])
    return headers, _Owner(keys[events.stream].agent, store.session_headers.cwds(keys).get(events.stream))


def _base_name(path: str) -> str:
    return _SEPARATOR.split(path.rstrip("/\\"))[-1]


def _pattern(path: str) -> re.Pattern[str]:
    """What finds the path in a text, and not a longer name that ends or begins with it.

    Between CJK letters there is no space around a name, and both kinds of slash separate folders.
    """
    path = re.sub(r"^(\./)+", "", path.rstrip("/\\")) or path
    parts = [re.escape(part) for part in _SEPARATOR.split(path)]
    before = r"(?<![\w.\-])" if re.match(f"[{CJK}]", path) else rf"(?:(?<![\w.\-])|(?<=[{CJK}]))"
    after = rf"(?:(?![\w~]|-(?!\d)|\.\w)|(?=[{CJK}]))"
    return re.compile(before + r"[/\\]+".join(parts) + after, re.IGNORECASE)
