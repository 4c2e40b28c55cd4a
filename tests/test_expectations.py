"""Genuine sessions against what people read in their logs: tests/data/expected/<agent>/*.json, written by hand."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from recollect import Filters, Memory, Session
from tests.conftest import SHARED, needs_shared, swept

pytestmark = needs_shared

EXPECTED = sorted((Path(__file__).parent / "data" / "expected").rglob("*.json"))
HOMES = sorted({json.loads(path.read_text())["home"] for path in EXPECTED})


@pytest.fixture(scope="module")
def memories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Memory]:
    """One store per home: sessions of one home may be copies of each other."""
    return {home: swept(tmp_path_factory.mktemp("store"), f"{_agent(home)}={SHARED / home}") for home in HOMES}


def _agent(home: str) -> str:
    return home.split("/")[1].split("-")[0]


def _uid(memory: Memory, agent: str, native_id: str | None) -> str | None:
    if native_id is None:
        return None
    return next(
        (found.session_uid for found in memory.sessions(Filters(agent=agent)) if found.native_session_id == native_id),
        f"{agent}:{native_id}",
    )


def _told(memory: Memory, session: Session, expected: dict[str, Any]) -> dict[str, Any]:
    """What the store says, in the words of the expectation."""
    events = memory.events(session, with_copies=True)
    cost = session.cost
    told = {
        "class": session.session_class,
        "parent": session.parent_session_uid,
        "root": session.root_session_uid,
        "base": session.base_session_uid,
        "title": session.title,
        "cwd": session.cwd,
        "repo": session.repo,
        "git_branch": session.git_branch,
        "model": session.model,
        "agent_version": session.agent_version,
        "task_ref": session.task_ref,
        "started_at": session.started_at,
        "ended_at": session.ended_at,
        "wall_clock_s": cost.wall_clock_s,
        "events": dict(Counter(event.kind for event in events)),
        "copies": sum(event.copy_of is not None for event in events),
        "abandoned": sum(event.is_abandoned for event in events),
        "turns": cost.turns,
        "retries": cost.retries,
        "message_count": session.message_count,
        "tokens": {
            "input": cost.input_tokens,
            "output": cost.output_tokens,
            "cache_read": cost.cache_read_tokens,
            "cache_write": cost.cache_write_tokens,
            "reasoning": cost.reasoning_tokens,
        },
    }
    if expected["usd"] != "estimate":
        told["usd"] = None if cost.usd is None else pytest.approx(cost.usd, abs=1e-7)
        told["usd_is_estimate"] = cost.usd_is_estimate
    return told


def cost_is_marked(session: Session, expected: dict[str, Any]) -> bool:
    """Money that nobody told is an estimate, and says so."""
    return expected["usd"] != "estimate" or session.cost.usd is None or session.cost.usd_is_estimate


def _names_the_event(native_id: str, expected: str) -> bool:
    """Ids that restart when a session is resumed are made unique by a suffix after `@`."""
    return native_id == expected or native_id.startswith(expected + "@")


def _parents(memory: Memory, session: Session, links: list[list[str]]) -> list[list[str]]:
    events = {event.event_uid: event for event in memory.events(session, with_copies=True)}
    found = []
    for child, parent in links:
        for event in events.values():
            above = events.get(event.parent_event_uid or "")
            if _names_the_event(event.native_id, child) and above and _names_the_event(above.native_id, parent):
                found.append([child, parent])
                break
    return found


@pytest.mark.parametrize("path", EXPECTED, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_session_is_read_as_a_person_reads_it(path: Path, memories: dict[str, Memory]) -> None:
    expected = json.loads(path.read_text())
    agent, memory = _agent(expected["home"]), memories[expected["home"]]

    session = memory.session(_uid(memory, agent, expected["session"]) or "")

    told = _told(memory, session, expected)
    wanted = {name: expected[name] for name in told}
    for name in ("parent", "root", "base"):
        wanted[name] = _uid(memory, agent, wanted[name])
    assert told == wanted
    assert cost_is_marked(session, expected)
    assert memory.problems() == []  # no expectation has a bad line
    assert _parents(memory, session, expected["parents"]) == expected["parents"]
