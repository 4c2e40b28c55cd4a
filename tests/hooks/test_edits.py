"""Before an edit an agent is told what earlier sessions settled about the file: once, or nothing."""

import json
import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import apsw
import pytest

from recollect.agents import find_plugin_host
from recollect.care.install import hooks_of_agent
from tests.hooks.conftest import SESSION, Desk

EARLIER = "5f0c2f6e-0000-4000-8000-000000000009"
PLAN = "# Larger pool\n\nUpdate `pool_limit` in `src/pool.py` to 20, because the proxy opens 16 connections.\n"


def write(desk: Desk, session: str, *, plan: str = PLAN, edited: str = "src/pool.py", day: str = "") -> None:
    """A session whose plan the user approved, and which then edited a file."""
    path = desk.transcript(session)
    path.parent.mkdir(parents=True, exist_ok=True)
    called = {"file_path": str(desk.project / edited), "old_string": "limit = 5", "new_string": "limit = 20"}
    messages: list[tuple[str, Any]] = [
        ("user", "make the pool larger, and tell me how first"),
        ("assistant", [{"type": "tool_use", "id": "p", "name": "ExitPlanMode", "input": {"plan": plan}}]),
        ("user", [{"type": "tool_result", "tool_use_id": "p", "content": "User has approved your plan."}]),
        ("assistant", [{"type": "tool_use", "id": "e", "name": "Edit", "input": called}]),
        ("user", [{"type": "tool_result", "tool_use_id": "e", "content": "The file has been updated."}]),
        ("assistant", [{"type": "text", "text": "done"}]),
    ]
    with path.open("w") as file:
        for number, (role, content) in enumerate(messages):
            record = {
                "type": role,
                "uuid": f"{session[:-6]}{number:06d}",
                "parentUuid": f"{session[:-6]}{number - 1:06d}" if number else None,
                "sessionId": session,
                "cwd": str(desk.project),
                "timestamp": f"{day or time.strftime('%Y-%m-%d')}T00:00:{number:02d}.000Z",
                "message": {"role": role, "content": content} | ({"id": f"m{number}"} if role != "user" else {}),
            }
            file.write(json.dumps(record) + "\n")
    desk.sweep()


def edit(path: Path, tool: str = "Edit", old: str = "pool_limit = 20") -> dict[str, Any]:
    return {"tool_name": tool, "tool_input": {"file_path": str(path), "old_string": old, "new_string": "b"}}


def test_a_plan_that_names_the_file_is_told_once_for_a_session(desk: Desk) -> None:
    write(desk, EARLIER)
    pool = desk.project / "src" / "pool.py"

    told = desk.added("PreToolUse", **edit(pool))

    assert "> the user approved: Larger pool (" in told and EARLIER in told
    assert desk.hook("PreToolUse", **edit(pool)) == ""
    assert desk.added("PreToolUse", session="another", **edit(pool))


@pytest.mark.parametrize(
    "given",
    [
        edit(Path("src/other.py")),
        edit(Path("elsewhere/pool.py")),
        edit(Path("src/pool.py"), tool="Read"),
        edit(Path("src/pool.py"), old="import os"),
        {"tool_name": "Edit", "tool_input": "src/pool.py"},
        {"tool_name": "Edit", "tool_input": {"file_path": 7}},
        {},
    ],
)
def test_anything_else_is_answered_with_nothing(desk: Desk, given: dict[str, Any]) -> None:
    write(desk, EARLIER)

    assert desk.hook("PreToolUse", **given) == ""


def test_a_session_is_not_told_what_it_settled_itself_and_a_setting_turns_it_off(desk: Desk) -> None:
    write(desk, EARLIER)
    pool = desk.project / "src" / "pool.py"

    assert desk.hook("PreToolUse", session=EARLIER, **edit(pool)) == ""
    (desk.store / "hooks.json").write_text('{"edits": false}')
    assert desk.hook("PreToolUse", **edit(pool)) == ""


def test_a_plan_is_told_for_some_days_only(desk: Desk) -> None:
    write(desk, EARLIER, day="2026-01-05")

    assert desk.hook("PreToolUse", **edit(desk.project / "src" / "pool.py")) == ""


@pytest.mark.parametrize(
    ("plan", "edited"),
    [
        (PLAN, "src/other.py"),
        ("# Larger pool\n\n1. Raise the limit.\n", "src/pool.py"),
        ("# Fix pool.py", "src/pool.py"),
    ],
)
def test_a_plan_about_another_file_or_without_a_step_settles_nothing(desk: Desk, plan: str, edited: str) -> None:
    write(desk, EARLIER, plan=plan, edited=edited)

    assert desk.hook("PreToolUse", **edit(desk.project / "src" / "pool.py")) == ""


PATCH = "*** Begin Patch\n*** Update File: src/pool.py\n-pool_limit = 20"


@pytest.mark.parametrize(
    ("agent", "given"),
    [
        ("codex", {"tool_name": "apply_patch", "tool_input": {"command": PATCH}}),
        ("grok", {"toolName": "search_replace", "toolInput": {"file_path": "src/pool.py", "old_string": "pool_limit"}}),
    ],
)
def test_each_agent_names_the_file_in_its_own_way(desk: Desk, agent: str, given: dict[str, Any]) -> None:
    write(desk, EARLIER)

    assert "Larger pool" in desk.added("PreToolUse", agent=agent, **given)


@pytest.mark.parametrize("agent", ["claude", "codex", "grok"])
def test_the_hook_runs_for_tools_that_edit_only(agent: str) -> None:
    host = find_plugin_host(agent)
    assert host is not None

    (entry,) = hooks_of_agent(agent, host, host.plugin_server, None)["hooks"]["PreToolUse"]

    assert entry["matcher"] == host.matchers["PreToolUse"] != ""
    assert entry["hooks"][0]["type"] == "command"


def test_after_a_compaction_an_agent_gets_what_the_summary_loses(desk: Desk) -> None:
    write(desk, SESSION)

    packet = desk.added("SessionStart", source="compact")

    assert f"claude:{SESSION}" in packet and "> - Plan approved: Larger pool (" in packet
    assert len(packet.encode()) <= 2_000 and packet.count("recollect-") == 2


def test_a_locked_store_costs_an_agent_the_packet_only(desk: Desk) -> None:
    write(desk, SESSION)
    with ExitStack() as locks:
        for name in ("memory.db", "cache.db"):
            connection = locks.enter_context(closing(apsw.Connection(str(desk.store / name))))
            connection.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        packet = desk.added("SessionStart", source="compact")

    assert f"claude:{SESSION}" in packet
    assert time.monotonic() - begun < 5  # a start of Python on a busy machine, and no waiting
