"""An agent that starts is told what the last session left: once, briefly, and as fenced data."""

import json
import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from pathlib import Path

import apsw
import pytest

from recollect.api import open_memory
from recollect.hooks import read_hook_log
from recollect.recall.prepared import MOST_CHARS
from recollect.store import sweep_lock
from tests.hooks.conftest import RUN, SESSION, Desk
from tests.hooks.test_fixes import ERROR, _prepare

EARLIER = "5f0c2f6e-0000-4000-8000-000000000009"


@pytest.fixture
def known(desk: Desk) -> Desk:
    """A desk whose store knows a session that asked for a walrus."""
    desk.write(EARLIER, "feed the walrus " + "and the seal " * 400)
    desk.sweep()
    return desk


def test_the_brief_comes_once_for_a_session_however_often_its_hook_runs(known: Desk) -> None:
    brief = known.added("SessionStart", source="startup")

    assert EARLIER in brief and "> feed the walrus" in brief
    assert len(brief) <= MOST_CHARS
    assert len(re.findall(r"recollect-[0-9a-f]{16}", brief)) == 2
    assert known.hook("SessionStart", source="startup") == ""
    assert known.hook("SessionStart", source="resume", session="another") == ""


def test_hooks_and_servers_of_one_agent_tell_it_once_between_them(known: Desk) -> None:
    assert known.added("SessionStart", source="startup", session="first")

    assert known.hook("SessionStart", source="startup", session="second") == ""  # of the same process
    assert known.added("SessionStart", source="clear", session="third")


def test_an_agent_that_throws_the_answer_away_gets_none(known: Desk) -> None:
    assert known.hook("SessionStart", source="new", agent="grok") == ""
    assert known.added("SessionStart", source="startup")


def test_below_the_checkout_the_same_is_told_and_outside_nothing(known: Desk) -> None:
    inside = known.project / "deep" / "inside"
    inside.mkdir(parents=True)

    assert known.hook("SessionStart", source="startup", cwd=str(known.folder)) == ""
    assert "walrus" in known.added("SessionStart", source="startup", cwd=str(inside))


def test_after_a_compaction_the_agent_learns_where_the_rest_is(known: Desk) -> None:
    assert f"claude:{EARLIER}" in known.added("SessionStart", source="compact", session=EARLIER)


def test_a_forgotten_session_is_not_told_any_more(known: Desk) -> None:
    assert "walrus" in known.added("SessionStart", source="startup")
    with open_memory(known.store) as memory:
        memory.forget(memory.plan_forgetting(EARLIER))

    assert known.hook("SessionStart", source="clear", session="later") == ""
    files = [path for path in known.store.rglob("*") if path.is_file()]
    assert not [path for path in files if b"walrus" in path.read_bytes()]


@pytest.mark.parametrize("event", ["SessionStart", "PostToolUseFailure", "UserPromptSubmit", "Stop"])
def test_a_group_is_told_nothing_of_others(known: Desk, event: str) -> None:
    _prepare(known)
    (known.store / "hooks.json").write_text('{"brief": true, "fixes": true, "prompts": true}')
    payload = {"hook_event_name": event, "session_id": "x", "cwd": str(known.project), "source": "clear"}
    payload |= {"error": ERROR, "prompt": f"I get this:\n{ERROR}"}
    environment = {"RECOLLECT_HOME": str(known.store), "PATH": os.environ["PATH"], "CLAUDE_CODE_SESSION_ID": "x"}

    def said(**more: str) -> str:
        command = [sys.executable, "-I", "-c", RUN]
        given = json.dumps(payload)
        done = subprocess.run(command, input=given, env=environment | more, capture_output=True, text=True)
        assert done.returncode == 0
        return done.stdout

    assert said(RECOLLECT_GROUP="team") == ""
    assert bool(said()) == (event != "Stop")


@pytest.mark.parametrize("state", ["missing", "damaged", "read-only", "a file"])
def test_a_store_that_cannot_be_used_costs_the_agent_nothing(desk: Desk, state: str) -> None:
    if state == "damaged":
        desk.write(EARLIER, "feed the walrus")
        desk.sweep()
        for path in (path for path in desk.store.rglob("*") if path.is_file()):
            path.write_bytes(b"\0nonsense" * 20)
    elif state == "read-only":
        desk.store.mkdir(mode=0o500)
    elif state == "a file":
        desk.store.write_text("nonsense")

    for event in ("SessionStart", "PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd", "PreCompact", "Nonsense"):
        assert desk.hook(event, transcript_path="/nowhere", error="KeyError: 'x'", tool_use_id="1") == ""


def test_a_locked_store_neither_delays_nor_silences_a_hook(known: Desk) -> None:
    path = known.write(SESSION, "feed the seal")
    with ExitStack() as locks:
        locks.enter_context(sweep_lock(known.store))
        for name in ("memory.db", "cache.db"):
            connection = locks.enter_context(closing(apsw.Connection(str(known.store / name))))
            connection.execute("BEGIN EXCLUSIVE")
        begun = time.monotonic()
        brief = known.added("SessionStart", source="startup")
        others = [
            known.hook(event, transcript_path=str(path), error="KeyError: 'x'", tool_use_id="1")
            for event in ("PostToolUse", "PostToolUseFailure", "Stop", "SessionEnd")
        ]
        took_s = time.monotonic() - begun

    assert "walrus" in brief and others == [""] * 4
    assert took_s < 10  # five starts of Python on a busy machine; a lock would be waited for longer


@pytest.mark.parametrize("event", ["SessionStart", "PostToolUseFailure", "Stop", "SessionEnd", "PreCompact"])
def test_a_full_disk_fails_no_hook_and_leaves_no_half_note(known: Desk, event: str) -> None:
    payload = {"hook_event_name": event, "session_id": SESSION, "cwd": str(known.project), "source": "startup"}
    payload |= {"transcript_path": str(known.transcript(EARLIER)), "error": "KeyError: 'x'"}
    full = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))"  # no file can grow
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{full}\n{RUN}"],
        input=json.dumps(payload).encode(),
        env={"RECOLLECT_HOME": str(known.store), "PATH": os.environ["PATH"], "CLAUDE_CODE_SESSION_ID": SESSION},
        capture_output=True,
        timeout=20,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not list(known.store.glob("spool/*.json"))
    known.sweep()  # and nothing that it left is in the way


@pytest.mark.parametrize(
    "payload", [b"", b"nonsense", b"[]", b"null", b'{"session_id": 7}', b"\xff\xfe", b"[" * 100_000]
)
def test_whatever_an_agent_sends_the_hook_ends_well(desk: Desk, payload: bytes) -> None:
    desk.store.mkdir(mode=0o700)
    environment = {"RECOLLECT_HOME": str(desk.store), "PATH": os.environ["PATH"]}
    done = subprocess.run([sys.executable, "-I", "-c", RUN], input=payload, env=environment, capture_output=True)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_a_hook_loads_no_store_and_no_parser(known: Desk, tmp_path: Path) -> None:
    program = (
        "import sys, os; end = os._exit\n"
        "def told(code):\n"
        "    heavy = {'typing', 'apsw', 'orjson', 'msgspec', 'click', 'pathlib', 'dataclasses', 'inspect'}\n"
        "    os.write(2, repr(sorted(heavy & set(sys.modules))).encode()); end(code)\n"
        f"os._exit = told\n{RUN}"
    )
    payload = f'{{"hook_event_name": "SessionStart", "session_id": "x", "cwd": "{known.project}"}}'
    done = subprocess.run(
        [sys.executable, "-I", "-c", program],
        input=payload.encode(),
        env={"RECOLLECT_HOME": str(known.store), "PATH": os.environ["PATH"]},
        capture_output=True,
    )

    assert (b"walrus" in done.stdout, done.stderr) == (True, b"[]")


def test_forgetting_a_session_takes_only_its_words_out_of_the_log(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))
    earlier, told, last = (f"0000000{number}-0000-4000-8000-000000000001" for number in (7, 8, 9))
    desk.write(earlier, "feed the walrus")
    desk.sweep()
    desk.hook("SessionStart", source="clear", session=told)
    desk.hook("SessionStart", source="compact", session=told)
    desk.write(told, "feed the seal")
    desk.sweep()
    desk.hook("SessionStart", source="clear", session=last)

    with open_memory(desk.store) as memory:
        memory.forget(memory.plan_forgetting(earlier))
        first = [item.session for item in read_hook_log(None)]
        memory.forget(memory.plan_forgetting(told))
        then = [item.session for item in read_hook_log(None)]

    assert (first, then) == ([last, told, told], [last])
    assert b"walrus" not in (desk.store / "told.jsonl").read_bytes()
