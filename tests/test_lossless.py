"""Nothing is lost, nothing is made up, and the way a store came about does not show in it."""

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import recollect
from recollect import Memory
from recollect.schema import (
    ASSISTANT_MSG,
    COMPLETION,
    HISTORY_LANE,
    LIFECYCLE,
    OTHER,
    THINKING,
    USER_MSG,
    Event,
    Session,
)
from tests import native_count
from tests.conftest import SHARED, needs_shared, swept
from tests.native_count import ASSISTANT, CALL, COUNTERS, NOTICE, RESULT, USER, Count, Told, normal

SAMPLES = Path(recollect.__file__).parent / "samples"
HOMES = [f"{agent}={SAMPLES / agent}" for agent in COUNTERS]
for _agent in COUNTERS:
    HOMES += [f"{_agent}={home}" for home in sorted(SHARED.glob(f"genuine/{_agent}-*/.{_agent}"))]
    HOMES += [f"{_agent}={home}" for home in sorted(SHARED.glob(f"corpus/{_agent}/*"))]


def _name(root: str) -> str:
    path = Path(root.partition("=")[2])
    return f"{root.partition('=')[0]}:{path.parent.name if path.name.startswith('.') else path.name}"


every_home = pytest.mark.parametrize("root", HOMES, ids=_name)


def _events(memory: Memory) -> Iterator[tuple[Session, Event, dict[str, Any]]]:
    for session in memory.sessions():
        events = memory.events(session)
        for event, payload in zip(events, memory.payloads(session, events), strict=True):
            yield session, event, payload


def _told(count: Count, session: str, event: Event, payload: dict[str, Any]) -> Told | None:
    """What an event tells, in the words of the second reader; None for what that one does not count."""
    has_own_id = session.startswith("") and (session, event.native_id) in count.types
    what = _what(event, payload)
    if what in (CALL, RESULT):
        is_users = event.call_id is None or event.role == "user" and what == RESULT and event.tool == "shell"
        key = str(event.call_id)
        if has_own_id:
            key = event.native_id if is_users else f"{event.native_id}/{event.call_id}"
        return Told(session, what, key)
    key = event.native_id if has_own_id else normal(payload.get("text", ""))
    if what == NOTICE and Told(session, USER, key) in count.told:
        what = USER
    return Told(session, what, key if what != NOTICE else event.native_id)


def _what(event: Event, payload: dict[str, Any]) -> str:
    if "input" in payload:
        return CALL
    if "output" in payload:
        return RESULT
    plain = {USER_MSG: USER, ASSISTANT_MSG: ASSISTANT, COMPLETION: ASSISTANT, THINKING: native_count.THINKING}
    return plain.get(event.kind, NOTICE)
