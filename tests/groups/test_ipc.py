"""Requests of sandboxed agents: answered with their group's rights, each once, and harmless whatever they say."""

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from recollect.api import Memory, open_memory
from tests import logs
from tests.groups.conftest import INSIDE, OUTSIDE, Planted, hidden_word, plant
from tests.test_api import SCHEMAS, breaches

HUGE = json.dumps({"action": "search", "query": "x" * 200_000})
HOSTILE = {
    "another group": {"action": "list", "group": "outside"},
    "main": {"action": "list", "group": "main"},
    "unknown action": {"action": "forget"},
    "no action": {},
    "a list": [],
    "an unknown field": {"action": "list", "path": "/etc"},
    "another id": {"action": "list", "id": "../../other"},
    "a path for a name": {"action": "clear", "name": ["../../x"]},
    "too long a name": {"action": "clear", "name": "x" * 3_000},
    "no bookmark": {"action": "resume", "target": "../../../etc/passwd"},
    "another group's bookmark": {"action": "resume", "target": "2"},
    "another's bookmark by name": {"action": "resume", "target": f"bookmark {hidden_word(OUTSIDE)}"},
    "too many": {"action": "search", "query": "x", "limit": 10_000},
    "true for a number": {"action": "search", "query": "x", "limit": True},
    "torn": '{"action": "cle',
    "huge": HUGE,
    "deep": "[" * 100_000,
    "binary": "\0\1\2",
}


def _ask(memory: Memory, name: str, request: Any, group: str = "inside") -> dict[str, Any]:
    ipc = Path(memory.groups.get(group).ipc)
    memory.groups.write_snapshots(group)
    content = request if isinstance(request, str) else json.dumps(request)
    (ipc / "tasks" / f"{name}.json").write_text(content)
    memory.groups.serve(group)
    answer: dict[str, Any] = json.loads((ipc / "answers" / f"{name}.json").read_text())
    assert not list((ipc / "tasks").iterdir())
    assert breaches(SCHEMAS["ipc-answer"], answer) == []
    return answer


def _state(memory: Memory) -> list[Any]:
    return [(group, memory.groups.sessions(group.name).history()) for group in memory.groups.all()]


@pytest.mark.parametrize("name", sorted(HOSTILE))
def test_a_hostile_request_changes_nothing_and_gets_an_error(planted: Planted, name: str) -> None:
    with planted.open() as memory:
        before = _state(memory)
        answer = _ask(memory, name.replace(" ", "-").replace("'", ""), HOSTILE[name])

        assert not answer["ok"] and answer["error"]["message"]
        assert hidden_word(OUTSIDE) not in json.dumps(answer) or "by name" in name
        assert _state(memory) == before


def test_links_are_not_followed(tmp_path: Path) -> None:
    planted = plant(tmp_path)
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"action": "list"}))

    with planted.open() as memory:
        memory.groups.write_snapshots("inside")
        ipc = Path(memory.groups.get("inside").ipc)
        (ipc / "tasks" / "linked.json").symlink_to(secret)
        (ipc / "answers" / "linked.json").symlink_to(tmp_path / "overwritten")
        os.mkfifo(ipc / "tasks" / "pipe.json")
        memory.groups.serve("inside")

        for name in ("linked", "pipe"):
            assert not json.loads((ipc / "answers" / f"{name}.json").read_text())["ok"]
        assert secret.exists() and not (tmp_path / "overwritten").exists()

        (ipc / "answers").rename(ipc / "before")
        (ipc / "answers").symlink_to(tmp_path)
        (ipc / "tasks" / "elsewhere.json").write_text('{"action": "list"}')
        with pytest.raises(Exception, match="Not a folder"):
            memory.groups.serve("inside")
        assert not (tmp_path / "elsewhere.json").exists()


def test_a_group_lists_searches_clears_and_resumes_by_files(tmp_path: Path) -> None:
    with plant(tmp_path).open() as memory:
        own = f"claude:{logs.session_id(INSIDE)}"
        found = _ask(memory, "s", {"action": "search", "query": "everybodysays"})["answer"]
        cleared = _ask(memory, "c", {"action": "clear", "name": "for later"})
        listed = _ask(memory, "l", {"action": "list"})
        resumed = _ask(memory, "r", {"action": "resume", "target": "for later"})

        assert [hit["session_uid"] for hit in found["hits"]] == [own]
        assert cleared["session_uid"] == own and Path(cleared["archive"]).read_text().startswith("# ")
        assert (listed["active"], [item["name"] for item in listed["bookmarks"]]) == (None, ["for later"])
        assert resumed["session_uid"] == memory.groups.sessions("inside").get() == own


def test_a_request_that_is_met_again_is_answered_and_not_repeated(tmp_path: Path) -> None:
    with plant(tmp_path).open() as memory:
        first = _ask(memory, "once", {"action": "clear", "name": "for later"})
        memory.groups.sessions("inside").set("claude:the-next")
        again = _ask(memory, "once", {"action": "clear", "name": "for later"})

        assert again == first
        assert memory.groups.sessions("inside").get() == "claude:the-next"


def test_snapshots_follow_their_schemas_and_show_a_group_itself(planted: Planted) -> None:
    with planted.open() as memory:
        for group, seen in (("inside", {"inside"}), ("main", {"main", "inside", "outside"})):
            memory.groups.write_snapshots(group, tasks=[{"id": 1}])
            ipc = Path(memory.groups.get(group).ipc)
            for name, schema in (
                ("session_history", "ipc-history"),
                ("available_groups", "ipc-groups"),
                ("current_tasks", "ipc-tasks"),
            ):
                content = json.loads((ipc / f"{name}.json").read_text())
                assert breaches(SCHEMAS[schema], content) == []
                if name == "available_groups":
                    assert {item["name"] for item in content["groups"]} == seen


PLACES = [f"{place}:kill:{nth}" for place in ("before-memory-commit", "after-memory-commit") for nth in (1, 2, 3)]


@pytest.mark.parametrize("command", ["clear", "resume"])
def test_a_kill_at_any_commit_leaves_the_old_or_the_new_state(tmp_path: Path, command: str) -> None:
    """Every commit of the command is an edge; what is archived or bookmarked stays."""
    planted, own = plant(tmp_path, numbers=(INSIDE,)), f"claude:{logs.session_id(INSIDE)}"
    with planted.open() as memory:
        sessions = memory.groups.sessions("inside")
        if command == "resume":
            sessions.put_aside("other")
            sessions.set("claude:the-next")
        else:
            sessions.restore(sessions.history()[0].id)
    words = {"clear": ["clear", "later"], "resume": ["resume", "other", "--save-as", "later"]}[command]
    old, new = {
        "clear": ((own, []), (None, [("later", own)])),
        "resume": (("claude:the-next", [("other", own)]), (own, [("later", "claude:the-next")])),
    }[command]

    seen = []
    for place in PLACES:
        store = tmp_path / place
        shutil.copytree(planted.folder, store)
        environment = {**os.environ, "RECOLLECT_HOME": str(store), "RECOLLECT_FAILPOINT": place}
        line = [sys.executable, "-m", "recollect", *words, "--group", "inside"]
        done = subprocess.run(line, env=environment, capture_output=True, check=False, cwd=tmp_path)
        with open_memory(store) as memory:
            sessions = memory.groups.sessions("inside")
            state = (sessions.get(), sorted((item.name, item.session_uid) for item in sessions.history()))
            documents = memory.archives.of(memory.session(own)) if command == "clear" else []
        assert state in (old, new), place
        assert state == old or command == "resume" or [Path(item.path).exists() for item in documents] == [True]
        seen.append((done.returncode, state == new))

    assert (-signal.SIGKILL, False) in seen and (-signal.SIGKILL, True) in seen
