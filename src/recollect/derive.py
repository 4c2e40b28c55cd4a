"""Kinds and marks that need the whole session: retries, completions, what a rewind left behind.

Pure: events in, changes out. docs/kinds.md has the rules in words.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import Any

import orjson

from recollect.schema import (
    ASSISTANT_MSG,
    COMPLETION,
    EDIT,
    ERROR,
    LIFECYCLE,
    RETRY,
    TEST_RUN,
    THINKING,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
)
from recollect.store.flags import IS_ABANDONED, IS_RETRY, TOLD_RETRY
from recollect.store.streams import EventMark

_CALLS = frozenset({TOOL_CALL, TEST_RUN, EDIT})
_MARKED = IS_RETRY | IS_ABANDONED | TOLD_RETRY


@dataclass(frozen=True, slots=True)
class Marks:
    """What the whole session makes of its events, as sets of their ids."""

    retries: set[int]
    completions: set[int]
    abandoned: set[int]

    def is_retry(self, event: EventMark) -> bool:
        return event.id in self.retries or bool(event.flags & TOLD_RETRY)

    def kind(self, event: EventMark) -> str:
        if event.id in self.completions:
            return COMPLETION
        return RETRY if event.base_kind == TOOL_CALL and self.is_retry(event) else event.base_kind


def derive(events: list[EventMark]) -> Marks:
    """Retries, completions and what was left behind. `events` are in reading order."""
    retries, completions = set[int](), set[int]()
    for _, lane in groupby(events, key=attrgetter("lane")):
        in_lane = list(lane)
        retries |= set(_retries(in_lane))
        completions |= set(_completions(in_lane))
    return Marks(retries, completions, _behind_markers(events) | _behind_siblings(events))


def changes(events: list[EventMark], marks: Marks) -> list[tuple[str, str | None, bool, bool, int]]:
    """The rows to write: only events whose kind or marks are not yet as derived."""
    marked = marks.retries | marks.completions | marks.abandoned
    changed = []
    for event in events:
        if event.id not in marked and not event.flags & _MARKED and event.kind == event.base_kind:
            continue  # most events neither have a mark nor get one
        kind, is_retry, is_abandoned = marks.kind(event), marks.is_retry(event), event.id in marks.abandoned
        if (kind, is_retry, is_abandoned) != (
            event.kind,
            bool(event.flags & IS_RETRY),
            bool(event.flags & IS_ABANDONED),
        ):
            base = event.base_kind if event.base_kind != kind else None
            changed.append((kind, base, is_retry, is_abandoned, event.id))
    return changed


def _retries(lane: list[EventMark]) -> Iterator[int]:
    """Calls that repeat a failed one although no edit succeeded between the two."""
    called: dict[str, EventMark] = {}
    failed: set[bytes] = set()
    for event in lane:
        if event.base_kind in _CALLS:
            if event.retry_key in failed:
                yield event.id
            if event.call_id:
                called[event.call_id] = event
        elif event.call_id in called and event.base_kind in (ERROR, TOOL_RESULT):
            _settle(called[event.call_id], event.base_kind == ERROR, failed)


def _settle(call: EventMark, has_failed: bool, failed: set[bytes]) -> None:
    if has_failed:
        failed |= {call.retry_key} if call.retry_key else set()
    elif call.base_kind == EDIT:
        failed.clear()
    else:
        failed.discard(call.retry_key or b"")


def _completions(lane: list[EventMark]) -> Iterator[int]:
    """The last words of each answered request."""
    is_asked = False
    candidate: int | None = None
    for event in lane:
        if event.base_kind == USER_MSG:
            if candidate is not None:
                yield candidate
            is_asked, candidate = True, None
        elif event.base_kind == ASSISTANT_MSG:
            candidate = event.id if is_asked else None
        elif not _leaves_answer(event):
            candidate = None
    if candidate is not None:
        yield candidate


def _leaves_answer(event: EventMark) -> bool:
    """Whether an answer before this event is still the last word: the user's own shell does not continue it."""
    is_users_shell = event.role == "user" and event.base_kind in (TOOL_CALL, TEST_RUN, TOOL_RESULT, ERROR)
    return event.base_kind in (LIFECYCLE, THINKING) or is_users_shell


def _behind_markers(events: list[EventMark]) -> set[int]:
    """Events between the point a rewind went back to and the rewind itself."""
    found: set[int] = set()
    for marker in events:
        if told := _rewind(marker):
            found |= {event.id for event in events if _is_behind(event, marker, told)}
    return found


def _rewind(event: EventMark) -> dict[str, Any] | None:
    """What the mark of a rewind says; None for any other event, whatever words its metadata has."""
    if event.metadata is None or "rewind_to" not in event.metadata:
        return None
    told = orjson.loads(event.metadata)
    return told if "rewind_to" in told else None


def _is_behind(event: EventMark, marker: EventMark, told: dict[str, Any]) -> bool:
    if event.lane != marker.lane or event.id == marker.id or event.position < told["rewind_to"]:
        return False
    if "rewind_until" in told:
        return bool(event.position < told["rewind_until"])
    return event.ts_ms is not None and marker.ts_ms is not None and event.ts_ms < marker.ts_ms


def _behind_siblings(events: list[EventMark]) -> set[int]:
    """Of several requests that follow the same event only the last was gone on with."""
    requests: dict[tuple[str, bytes], list[EventMark]] = defaultdict(list)
    for event in events:
        if event.base_kind == USER_MSG and event.parent_uid is not None:
            requests[event.lane, event.parent_uid].append(event)
    dead = [
        request
        for siblings in requests.values()
        if len(siblings) > 1
        for request in sorted(siblings, key=attrgetter("position", "event_uid"))[:-1]
    ]
    return _descendants(dead, events) if dead else set()


def _descendants(above: Iterable[EventMark], events: list[EventMark]) -> set[int]:
    children: dict[bytes, list[EventMark]] = defaultdict(list)
    for event in events:
        if event.parent_uid is not None:
            children[event.parent_uid].append(event)
    seen: set[int] = set()
    waiting = list(above)
    while waiting:
        event = waiting.pop()
        # A rewind's own mark follows what it leaves behind, but is no part of it.
        if event.id not in seen and _rewind(event) is None:
            seen.add(event.id)
            waiting += children.get(event.event_uid, ())
    return seen
