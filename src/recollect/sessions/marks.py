"""Kinds and marks that need the whole session: retries, completions, what a rewind left behind.

Pure: events in, changes out. docs/kinds.md has the rules in words.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from operator import attrgetter
from typing import Any

import orjson

from recollect.model.schema import (
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
from recollect.store import IS_ABANDONED, IS_RETRY, TOLD_RETRY, Step

_CALLS = frozenset({TOOL_CALL, TEST_RUN, EDIT})
_RESULTS = frozenset({TOOL_RESULT, ERROR})
_NOTES = frozenset({LIFECYCLE, THINKING})
_OF_SHELL = frozenset({TOOL_CALL, TEST_RUN, TOOL_RESULT, ERROR})  # the user's own does not continue an answer
_MARKED = IS_RETRY | IS_ABANDONED | TOLD_RETRY


@dataclass(frozen=True, slots=True)
class Marks:
    """What the whole session makes of its events, as sets of their ids."""

    retries: set[int]
    completions: set[int]
    abandoned: set[int]

    def is_retry(self, step: Step) -> bool:
        return step.id in self.retries or bool(step.flags & TOLD_RETRY)

    def kind(self, step: Step) -> str:
        if step.id in self.completions:
            return COMPLETION
        return RETRY if step.base_kind == TOOL_CALL and self.is_retry(step) else step.base_kind


def derive(
    steps: list[Step],
    parts: Iterable[list[Step]] | None = None,
    rewinds: Sequence[Step] = (),
    asked: Iterable[str] = (),
) -> Marks:
    """Retries, completions and what was left behind. `steps` are in reading order.

    Those of a long session come in `parts`; before them there were `rewinds`, and requests in the lanes of `asked`.
    """
    marks = Marks(set(), set(), _behind_markers(steps, rewinds) | _behind_siblings(steps))
    asked = set(asked)
    for part in [steps] if parts is None else parts:
        for name, lane in groupby(part, key=attrgetter("lane")):
            if _mark_lane(lane, marks, is_asked=name in asked):
                asked.add(name)
    return marks


def apply(steps: list[Step], marks: Marks) -> tuple[list[Step], list[Step]]:
    """The events with their marks, and those of them whose row is not yet so."""
    marked = marks.retries | marks.completions | marks.abandoned
    changed: dict[int, Step] = {}
    for step in steps:
        if step.id not in marked and not step.flags & _MARKED and step.kind == step.base_kind:
            continue  # most events neither have a mark nor get one
        flags = step.flags & ~(IS_RETRY | IS_ABANDONED) | (IS_RETRY if marks.is_retry(step) else 0)
        flags |= IS_ABANDONED if step.id in marks.abandoned else 0
        new = step._replace(kind=marks.kind(step), flags=flags)
        if new != step:
            changed[step.id] = new
    return [changed.get(step.id, step) for step in steps] if changed else steps, list(changed.values())


def _mark_lane(lane: Iterable[Step], marks: Marks, *, is_asked: bool) -> bool:
    """Mark calls that repeat a failed one although no edit succeeded in between, and the last words of each answer."""
    called: dict[str, Step] = {}
    failed: set[bytes | None] = set()  # calls, by their retry key
    answer = None
    for step in lane:
        kind = step.base_kind
        if kind in _CALLS:
            if step.retry_key is not None and step.retry_key in failed:
                marks.retries.add(step.id)
            if step.call_id:
                called[step.call_id] = step
        elif kind in _RESULTS and (call := called.get(step.call_id or "")) is not None:
            if kind == ERROR:
                failed.add(call.retry_key)
            elif call.base_kind == EDIT:
                failed.clear()
            else:
                failed.discard(call.retry_key)
        if kind == ASSISTANT_MSG:
            answer = step.id if is_asked else None
        elif kind == USER_MSG:
            marks.completions.update([answer] if answer is not None else ())
            is_asked, answer = True, None
        elif answer is not None and kind not in _NOTES and not (step.role == "user" and kind in _OF_SHELL):
            answer = None
    marks.completions.update([answer] if answer is not None else ())
    return is_asked


def _behind_markers(events: list[Step], earlier: Sequence[Step]) -> set[int]:
    """Events between the point a rewind went back to and the rewind itself."""
    behind: set[int] = set()
    for marker in chain(earlier, events):
        if marker.metadata is not None and (rewind := rewind_of(marker)):
            behind |= {event.id for event in events if _is_behind(event, marker, rewind)}
    return behind


def rewind_of(event: Step) -> dict[str, Any] | None:
    """The metadata of a rewind's mark; None for any other event, whatever words its metadata has."""
    if event.metadata is None or "rewind_to" not in event.metadata:
        return None
    metadata = orjson.loads(event.metadata)
    return metadata if "rewind_to" in metadata else None


def _is_behind(event: Step, marker: Step, rewind: dict[str, Any]) -> bool:
    if event.lane != marker.lane or event.id == marker.id or event.position < rewind["rewind_to"]:
        return False
    if "rewind_until" in rewind:
        return bool(event.position < rewind["rewind_until"])
    return event.ts_ms is not None and marker.ts_ms is not None and event.ts_ms < marker.ts_ms


def _behind_siblings(events: list[Step]) -> set[int]:
    """Of several requests that follow the same event, all but the last were left behind."""
    requests: dict[tuple[str, bytes], list[Step]] = defaultdict(list)
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


def _descendants(above: Iterable[Step], events: list[Step]) -> set[int]:
    children: dict[bytes, list[Step]] = defaultdict(list)
    for event in events:
        if event.parent_uid is not None:
            children[event.parent_uid].append(event)
    seen: set[int] = set()
    waiting = list(above)
    while waiting:
        event = waiting.pop()
        # A rewind's own mark follows what it leaves behind, but is no part of it.
        if event.id not in seen and rewind_of(event) is None:
            seen.add(event.id)
            waiting += children.get(event.event_uid, ())
    return seen
