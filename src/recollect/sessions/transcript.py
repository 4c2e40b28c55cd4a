"""A session as it went: its events in reading order with their content, its sub-agents where they were called."""

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from typing import Any

import orjson

from recollect.model.clock import rfc3339
from recollect.model.errors import Ambiguous, NotFound, UsageError
from recollect.model.kinds import SessionKey
from recollect.model.schema import KIND_FAMILY, KINDS, Event, Session
from recollect.store import IS_ABANDONED, IS_ERROR, IS_RETRY, SessionFilter, Store

_LEAST_OF_A_UID = 6
_READ_AT_ONCE = 200
_MOST_OF_A_SEQ = 11  # digits; digests cite events by twelve of their uid
_DROPPED = (
    "`recollect digest` shows what is left, `recollect retention rehydrate` reads it again if its agent still has it"
)

_SAME = (  # in an event and in its row
    "seq",
    "lane",
    "position",
    "native_id",
    "kind",
    "role",
    "tool",
    "call_id",
    "status",
    "summary",
    "model",
    "provider",
    "content_type",
    "input_tokens",
    "output_tokens",
)
_OTHERS = ("event_uid", "parent_uid", "ts_ms", "flags", "copy_of", "payload_start", "payload_bytes", "metadata")


@dataclass(frozen=True, slots=True)
class TranscriptItem:
    """An event with its content, in reading order; `depth` counts the sub-agents around it.

    `is_asked_for` marks the one that others were read around.
    """

    session: Session
    event: Event
    payload: dict[str, Any]
    depth: int
    is_asked_for: bool = False

    def to_json(self) -> dict[str, Any]:
        return asdict(self.event) | {"depth": self.depth, "payload": self.payload}


def read_events(
    store: Store,
    session: Session,
    kind: str | None = None,
    *,
    last: int | None = None,
    span: range | None = None,
    calls: str | None = None,
) -> list[Event]:
    """A session's events in reading order, or only the last of them, a span, or a kind with its more specific ones.

    `calls`: only those of one kind, with their results.
    """
    kinds = _family(kind) if kind else None
    key = SessionKey(session.agent, session.native_session_id)
    rows = store.events.rows(key, (*_SAME, *_OTHERS), last=last, span=span, kinds=kinds, calls=calls)
    return [_event(session, row) for row in rows]


def _family(kind: str | None) -> tuple[str, ...]:
    """A kind with its more specific ones; all kinds if none is asked for."""
    if kind is not None and kind not in KINDS:
        raise UsageError(f"No such kind: {kind}", f"kinds: {', '.join(KINDS)}")
    return KIND_FAMILY.get(kind, (kind,)) if kind else KINDS


def _event(session: Session, row: Sequence[Any]) -> Event:
    uid, parent_uid, ts_ms, flags, copy_of, start, size, metadata = row[len(_SAME) :]
    return Event(
        **dict(zip(_SAME, row, strict=False)),
        event_uid=uid.hex(),
        session_uid=session.session_uid,
        parent_event_uid=parent_uid.hex() if parent_uid else None,
        ts=rfc3339(ts_ms),
        is_error=bool(flags & IS_ERROR),
        is_retry=bool(flags & IS_RETRY),
        is_abandoned=bool(flags & IS_ABANDONED),
        copy_of=copy_of.hex() if copy_of else None,
        payload_ref=(start, size),
        metadata=orjson.loads(metadata) if metadata else {},
    )


def iter_payloads(store: Store, session: Session, events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """The full content of each event, in the order given."""
    places = [event.payload_ref or (0, 0) for event in events]
    for raw in store.payloads.iter(SessionKey(session.agent, session.native_session_id), places):
        yield orjson.loads(raw) if raw else {}


def find_spawned(store: Store, session: Session) -> dict[str, list[Session]]:
    """The other sessions of its tree, by the one that spawned them, in the order they began."""
    tree = store.sessions.find(SessionFilter(root=session.root_session_uid))
    found: dict[str, list[Session]] = defaultdict(list)
    for child in sorted(tree, key=lambda child: (child.started_at or "", child.session_uid)):
        # Left out itself: logs may name a session as spawned by one that it spawned.
        if child.parent_session_uid and child.session_uid != session.session_uid:
            found[child.parent_session_uid].append(child)
    return found


_Place = tuple[Session, Event, int]  # an event, whose content is not read yet, and its depth


def iter_transcript(
    store: Store, session: Session, kind: str | None = None, *, last: int | None = None
) -> Iterator[TranscriptItem]:
    """All that happened in a session and in the sub-agents it spawned, or only the last events of it."""
    kinds = _family(kind)
    places = _iter_tree(store, session, 0, find_spawned(store, session), None if kind else last)
    shown: Iterable[_Place] = (place for place in places if place[1].kind in kinds)
    return _with_payloads(store, deque(shown, maxlen=last) if last else shown)


def _iter_tree(
    store: Store, session: Session, depth: int, spawned: dict[str, list[Session]], last: int | None
) -> Iterator[_Place]:
    """Events in reading order; with `last`, at least so many from the end."""
    events = read_events(store, session, last=last)
    waiting = [child for child in spawned[session.session_uid] if not last or not _is_over(child, events)]
    for event in events:
        for child in [child for child in waiting if _comes_before(child, event)]:
            waiting.remove(child)
            yield from _iter_tree(store, child, depth + 1, spawned, last)
        yield session, event, depth
    for child in waiting:
        yield from _iter_tree(store, child, depth + 1, spawned, last)


def _is_over(child: Session, events: Sequence[Event]) -> bool:
    """Whether a sub-agent ended before the first of these events."""
    first = next((event.ts for event in events if event.ts), None)
    return bool(first and child.ended_at and child.ended_at < first)


def _with_payloads(store: Store, places: Iterable[_Place]) -> Iterator[TranscriptItem]:
    """The events with their content, read a piece at a time."""
    for _, of_session in groupby(places, key=lambda place: place[0].session_uid):
        while piece := list(islice(of_session, _READ_AT_ONCE)):
            payloads = iter_payloads(store, piece[0][0], [event for _, event, _ in piece])
            for (session, event, depth), payload in zip(piece, payloads, strict=True):
                yield TranscriptItem(session, event, payload, depth)


def _comes_before(child: Session, event: Event) -> bool:
    """A sub-agent is shown just before the result of the call that spawned it."""
    if child.spawn_call_id is not None:
        return event.call_id == child.spawn_call_id and event.role != "assistant"
    return bool(event.ts and child.ended_at and event.ts >= child.ended_at)


def read_window(store: Store, session: Session, at: str, count: int) -> list[TranscriptItem]:
    """The events around one of a session or its sub-agents; `at` is a seq, or either end of an event_uid."""
    owner_uid, event_uid = _find_event(store, session.session_uid, at)
    owner = store.sessions.find(SessionFilter(uids=frozenset({owner_uid})))[0]
    events = read_events(store, owner)
    asked = next(event for event in events if event.event_uid == event_uid)
    lane = [event for event in events if event.lane == asked.lane]
    here = lane.index(asked)
    shown = lane[max(0, here - count) : here + count + 1]
    depth = int(owner.session_uid != session.session_uid)
    items = _with_payloads(store, ((owner, event, depth) for event in shown))
    return [replace(item, is_asked_for=item.event is asked) for item in items]


def _find_event(store: Store, session_uid: str, at: str) -> tuple[str, str]:
    """Return the session and uid of an event: by its seq, or of sub-agents too by the beginning or end of its uid."""
    header = store.sessions.named({session_uid})[session_uid]
    streams = store.events.streams(store.sessions.households({session_uid}))
    main = streams.get(header.key)
    is_number = at.isascii() and at.isdecimal() and len(at) <= _MOST_OF_A_SEQ
    events = store.events.numbered(main, int(at)) if is_number and main is not None else []
    if not events and len(at) >= _LEAST_OF_A_UID:
        events = store.events.named(streams.values(), at)
    if len(events) > 1:
        raise Ambiguous(f"{len(events)} events of `{session_uid}` begin or end with `{at}`", "give more of the uid")
    if not events and header.evicted_ms is not None:
        raise NotFound(f"The raw detail of `{session_uid}` was evicted, and it has no event at `{at}`", _DROPPED)
    if not events:
        raise NotFound(
            f"`{session_uid}` has no event `{at}`", f"`recollect show {session_uid} --tail 5` shows its last"
        )
    (event,) = events
    keys = {stream: key for key, stream in streams.items()}
    owner = store.sessions.of([keys[event.stream]])[keys[event.stream]]
    return owner.session_uid, event.event_uid.hex()
