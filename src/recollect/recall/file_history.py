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

from recollect.agentkit.calls import FileChange
from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.kinds import EDIT, KIND_FAMILY, TOOL_CALL, SessionKey
from recollect.model.text import CJK, evidence, payload_text
from recollect.recall.diffs import absolute, called_before, changes, is_below, is_same, renames, slashed, whole
from recollect.recall.filters import NO_FILTERS, Filters, Scope, as_options, scope_of
from recollect.recall.hits import identity, quotes
from recollect.recall.query import Query
from recollect.recall.ranking import Sessions
from recollect.recall.snippets import Texts
from recollect.sessions import has_subject
from recollect.store import (
    IS_ERROR,
    EventFilter,
    EventHeader,
    Scored,
    SessionFilter,
    SessionHeader,
    Store,
    Term,
    Wanted,
)

_MOST_NAMES = 20  # a file may have been renamed
_READ_AT_ONCE = 5
_BARE_CHARS = 60  # of a request that may say nothing
_CALLS = KIND_FAMILY[TOOL_CALL]
_MENTION = "mention"
_ADDED, _REMOVED = "added", "removed"  # lines
_IN_CALLS = ("did",)
ANY_EVENT = EventFilter()
_SEPARATOR = re.compile(r"[/\\]+")


@dataclass(frozen=True, slots=True)
class FileVisit:
    """A session (with its sub-agents) and how it used a path."""

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
    repo: str | None = None
    cwd: str | None = None
    resume_command: str | None = None

    at = AsDatetime("ts")


def files(store: Store, path: str, filters: Filters = NO_FILTERS, limit: int | None = None) -> list[FileVisit]:
    """Sessions that touched or discussed the path; those that edited it first, the newest first, then the others.

    Evicted ones are counted by their digests. With `limit`, only so many that met it last.
    """
    sessions, mentions = Sessions(store), _Mentions(store, path, _scope(store, filters))
    counts: dict[str, Counter[str]] = defaultdict(Counter)  # by session
    last: dict[str, int] = {}
    headers: dict[str, SessionHeader] = {}
    by_session = mentions.by_session()
    sessions.load({events[0].stream for events in by_session})
    for events in by_session:
        header = sessions.root(events[0].stream)
        if header.session_uid not in headers and len(headers) == limit:
            continue
        for event, how in mentions.named(_headers(store, events), sessions.header(events[0].stream)):
            headers[header.session_uid] = header
            counts[header.session_uid] += how
            last[header.session_uid] = max(last.get(header.session_uid, 0), event.ts_ms or 0)
    digested = list(mentions.digested())
    roots = sessions.named({header.root_session_uid for header, _ in digested})
    for evicted, how in digested:
        header = roots.get(evicted.root_session_uid, evicted)
        headers[header.session_uid] = header
        counts[header.session_uid] += how
    visits = [
        FileVisit(
            **identity(header),
            last_at=rfc3339(last.get(uid) or header.ended_ms),
            edits=counts[uid][EDIT],
            calls=counts[uid][TOOL_CALL],
            mentions=counts[uid][_MENTION],
            added=counts[uid][_ADDED],
            removed=counts[uid][_REMOVED],
            evicted=header.evicted_ms is not None,
        )
        for uid, header in headers.items()
    ]
    latest = sorted(visits, key=lambda visit: (visit.last_at or "", visit.session_uid), reverse=True)[:limit]
    return sorted(latest, key=lambda visit: (visit.edits > 0, visit.last_at or "", visit.session_uid), reverse=True)


def _scope(store: Store, filters: Filters) -> Scope:
    return scope_of(store, Query("", filters=as_options(filters)), datetime.now().astimezone(), (), [])


def sessions_calling(store: Store, path: str) -> set[SessionKey]:
    """Sessions with a call that names the path, held or not."""
    mentions = _Mentions(store, path)
    return {*mentions.callers(), *(header.key for header, how in mentions.digested() if how[EDIT] or how[TOOL_CALL])}


def evicted_edits(store: Store, path: str) -> int:
    """How many sessions edited the file according to their digests, the edits themselves being gone."""
    return sum(how[EDIT] > 0 for _, how in _Mentions(store, path).digested())


class _Mentions:
    """Looks up where one path is named."""

    def __init__(self, store: Store, path: str, scope: Scope | None = None) -> None:
        self._store = store
        self._path = path
        self._scope = scope or Scope(SessionFilter(), EventFilter())
        self._pattern = _pattern(path)
        self._name = _base_name(path).lower()
        self._texts = Texts(store)

    def by_session(self) -> list[list[Scored]]:
        """Events that may name the path, by session; those of the session that did so last come first."""
        # A call may name the path from its working folder, so that only the name of the file is in it.
        chosen = self._scope.events
        events = [*_events_with(self._store, [_base_name(self._path)], columns=_IN_CALLS, chosen=chosen)]
        events += _events_with(self._store, [self._path], chosen=chosen)
        return _by_session(events)

    def named(self, headers: list[EventHeader], session: SessionHeader) -> Iterator[tuple[EventHeader, Counter[str]]]:
        """Which of a session's events name the path, and how: an edit of so many lines, another call, a mention.

        Results that have its words are many and long: once one names it, the others count as mentions unread.
        """
        calls = [header for header in headers if header.kind in _CALLS]
        others = [header for header in headers if header.kind not in _CALLS]
        yield from self._edits([call for call in calls if call.kind == EDIT], session.agent, session.cwd)
        for call in calls:
            if call.kind != EDIT and self._is_named([call]):
                yield call, Counter({TOOL_CALL: 1})
        if self._is_named(others):
            yield from ((header, Counter({_MENTION: 1})) for header in others)

    def _edits(
        self, calls: list[EventHeader], agent: str, cwd: str | None
    ) -> Iterator[tuple[EventHeader, Counter[str]]]:
        for call in _calls(self._store, self._texts, calls):
            changed = [
                change
                for change in changes(agent, call.payload, call.result)
                if is_below(absolute(change.path, cwd), self._path)
            ]
            if changed and not call.has_failed:
                hunks = [hunk for change in changed for hunk in change.hunks]
                added, removed = sum(hunk.added for hunk in hunks), sum(hunk.removed for hunk in hunks)
                yield call.header, Counter({EDIT: 1, _ADDED: added, _REMOVED: removed})
            elif changed or self._is_in(call.header, call.payload):
                yield call.header, Counter({TOOL_CALL: 1})

    def callers(self) -> Iterator[SessionKey]:
        """Sessions held with a call that names the path."""
        by_session = _by_session(_events_with(self._store, [_base_name(self._path)], columns=_IN_CALLS))
        sessions = Sessions(self._store)
        sessions.load({events[0].stream for events in by_session})
        for events in by_session:
            calls, session = _headers(self._store, events), sessions.header(events[0].stream)
            if self._is_named(calls) or any(self._edits(calls, session.agent, session.cwd)):
                yield session.key

    def digested(self) -> Iterator[tuple[SessionHeader, Counter[str]]]:
        """Sessions without raw detail whose digests name the path, and how often in which way."""
        expression = self._store.words.expression(Wanted(((Term(_base_name(self._path)),),)))
        is_askable = bool(expression) and not self._scope.events.choices  # a digest has no kinds of events
        matches = self._store.digests.search(expression, self._scope.timed, is_evicted=True) if is_askable else []
        headers = [header for header, _ in matches]
        for header in headers:
            digest = orjson.loads(self._store.digests.text(header.key) or "{}")
            edited, commands = digest.get("files", ()), digest.get("commands", ())
            edits = sum(item["count"] for item in edited if is_below(absolute(item["name"], header.cwd), self._path))
            calls = sum(item["count"] for item in commands if self._pattern.search(item["name"]))
            mentions = sum(self._pattern.search(quote["text"]) is not None for quote in quotes(digest))
            if edits or calls or mentions:
                yield header, Counter({EDIT: edits, TOOL_CALL: calls, _MENTION: mentions})

    def _is_named(self, headers: Sequence[EventHeader]) -> bool:
        """Whether any of a session's events names the path; most do in their summaries, and no payload is read."""
        if any(self._pattern.search(header.summary) for header in headers):
            return True
        for start in range(0, len(headers), _READ_AT_ONCE):
            batch = list(headers[start : start + _READ_AT_ONCE])
            if any(map(self._is_in, batch, self._texts.payloads(batch))):
                return True
        return False

    def _is_in(self, header: EventHeader, payload: Mapping[str, Any]) -> bool:
        text = evidence(payload_text(header.kind, payload)) or header.summary
        # Most texts lack the name of the file, which is found out much sooner than by a pattern.
        return self._name in text.lower() and self._pattern.search(text) is not None


class _Call(NamedTuple):
    """A call with its last result, if it has one."""

    header: EventHeader
    payload: dict[str, Any]
    result: dict[str, Any] | None
    has_failed: bool


def _calls(store: Store, texts: Texts, calls: Sequence[EventHeader]) -> Iterator[_Call]:
    """A session's calls with what came of them."""
    results = store.events.results(calls)
    last = [result[-1] for result in results.values() if result]
    headers = sorted({*calls, *last}, key=lambda header: header.payload_start)
    payloads = dict(zip(headers, texts.payloads(headers), strict=True))
    for call in calls:
        came = results.get(call.id, [])
        result = payloads[came[-1]] if came else None
        yield _Call(call, payloads[call], result, any(event.flags & IS_ERROR for event in came))


class EditStep(NamedTuple):
    """A call that changed a file, or gave it another name."""

    event: EventHeader
    change: FileChange


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
    request = _saying_request(store, event)
    return FileEdit(
        **identity(header),
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


def _saying_request(store: Store, event: EventHeader) -> EventHeader | None:
    """The last request before an event that says what to do: `continue` and `1` point at an earlier one."""
    request = first = store.events.request_of(event)
    while request is not None and len(request.summary) <= _BARE_CHARS and not has_subject(request.summary):
        request = store.events.request_of(request)
    return request or first


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
                if step.event.kind == EDIT and _is_chosen(step.event, chosen):
                    edits[step.event.id, step.change.path] = step
                earlier = step.change.renamed_from
                if earlier and len(names) < _MOST_NAMES and earlier not in (name for name, _ in names):
                    names.append((earlier, step.event.ts_ms))
    return sorted(edits.values(), key=lambda step: (step.event.ts_ms or 0, step.event.id), reverse=True)[:limit]


def _changes_to(store: Store, path: str) -> Iterator[tuple[int, Iterator[EditStep]]]:
    """Changes whose file, as it is called afterwards, is this one: by session, each with the time of its last event."""
    name, folders = _base_name(path), [folder for folder in path.split("/")[:-1] if folder]
    edits = [event for event in _events_with(store, [name], columns=_IN_CALLS) if event.kind == EDIT]
    moves = _events_with(store, [name, *folders], ["mv"], columns=_IN_CALLS)
    by_session, sessions, texts = _by_session([*edits, *moves]), Sessions(store), Texts(store)
    sessions.load({events[0].stream for events in by_session})
    for events in by_session:
        calls = _calls(store, texts, _headers(store, events))
        session = sessions.header(events[0].stream)
        yield _newest_ms(events), (step for call in calls for step in _steps_of(call, path, session.agent, session.cwd))


def _steps_of(call: _Call, path: str, agent: str, cwd: str | None) -> Iterator[EditStep]:
    """What a call did to the file that is called so afterwards."""
    if call.has_failed:
        return
    if call.header.kind == EDIT:
        named = [whole(change, cwd) for change in changes(agent, call.payload, call.result)]
        yield from (EditStep(call.header, change) for change in named if is_same(change.path, path))
        return
    for change in renames(call.payload):
        if earlier := called_before(whole(change, cwd), path):
            yield EditStep(call.header, FileChange(path, earlier))


def _events_with(
    store: Store, *needs: Sequence[str], columns: tuple[str, ...] | None = None, chosen: EventFilter = ANY_EVENT
) -> list[Scored]:
    """Events that have a word or phrase of each of these; whether it is the same path is not known yet."""
    wanted = Wanted(tuple(tuple(map(Term, choice)) for choice in needs), columns=columns)
    return store.words.matching(wanted, chosen)


def _by_session(events: Sequence[Scored]) -> list[list[Scored]]:
    """The events by session, the session with the newest one first."""
    by_stream: dict[int, list[Scored]] = defaultdict(list)
    for event in events:
        by_stream[event.stream].append(event)
    return sorted(by_stream.values(), key=lambda found: (-_newest_ms(found), found[0].stream))


def _newest_ms(events: Sequence[Scored]) -> int:
    return max(event.ts_ms or 0 for event in events)


def _headers(store: Store, events: Sequence[Scored]) -> list[EventHeader]:
    """A session's events in the order of their payloads."""
    return sorted(store.events.of({event.id for event in events}).values(), key=lambda header: header.payload_start)


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
