"""Requests of sandboxed agents: answered with their group's rights, each once, and harmless whatever they say."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from recollect.api import Memory, open_memory
from recollect.cli import main
from recollect.groups.ipc import TURN
from recollect.model.errors import UsageError
from tests import logs
from tests.forget.traces import left_in
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
        with pytest.raises(UsageError, match="Not a folder"):
            memory.groups.serve("inside")
        assert not (tmp_path / "elsewhere.json").exists()


@pytest.mark.parametrize("target", ["the name", "the number", "the archive", "the archive's path"])
def test_a_group_lists_searches_clears_and_resumes_by_files(tmp_path: Path, target: str) -> None:
    with plant(tmp_path).open() as memory:
        own, day = f"claude:{logs.session_id(INSIDE)}", f"{datetime.now().astimezone():%Y-%m-%d}"
        found = _ask(memory, "s", {"action": "search", "query": "everybodysays"})["answer"]
        cleared = _ask(memory, "c", {"action": "clear", "name": "for later"})
        listed = _ask(memory, "l", {"action": "list"})
        (mark,) = listed["bookmarks"]
        name = f"{day}-for-later.md"
        targets = {"the name": "For Later", "the number": mark["id"], "the archive": name}
        resumed = _ask(memory, "r", {"action": "resume", "target": targets.get(target, cleared["archive"])})

        assert [hit["session_uid"] for hit in found["hits"]] == [own]
        assert [hit["cwd"] for hit in found["hits"]] == ["/workspace/group"]
        assert "CLAUDE_CONFIG_DIR=/home/agent/.claude claude --resume" in found["hits"][0]["resume_command"]
        assert (cleared["session_uid"], cleared["archive"]) == (own, f"/workspace/group/conversations/{name}")
        document = (Path(memory.groups.get("inside").conversations) / name).read_text()
        assert re.match(rf"# for later\n\nArchived: {day} \d\d:\d\d\n", document)
        assert (listed["active"], mark["name"]) == (None, "for later")
        assert resumed["session_uid"] == memory.groups.sessions("inside").get() == own


@pytest.mark.parametrize(
    "words", [["group", "clear", "later"], ["resume", "other"], ["resume", "other", "--save-as", "later"]]
)
def test_a_command_that_was_killed_after_its_last_commit_says_what_it_did(tmp_path: Path, words: list[str]) -> None:
    planted, own = plant(tmp_path, numbers=(INSIDE,)), f"claude:{logs.session_id(INSIDE)}"
    with planted.open() as memory:
        sessions = memory.groups.sessions("inside")
        if words[0] == "resume":
            sessions.put_aside("other")
            sessions.set("claude:the-next")
    line = [sys.executable, "-m", "recollect", *words, "--group", "inside"]
    environment = {**os.environ, "RECOLLECT_HOME": str(planted.folder)}
    first = subprocess.run(line, env=environment, capture_output=True, check=True, cwd=tmp_path, text=True)
    with planted.open() as memory:
        before = _state(memory)

    again = subprocess.run(line, env=environment, capture_output=True, check=False, cwd=tmp_path, text=True)

    assert (again.returncode, again.stderr) == (0, "")
    assert again.stdout.splitlines()[0].startswith("Was ") and not first.stdout.startswith("Was ")
    with planted.open() as memory:
        assert _state(memory) == before
        assert memory.groups.sessions("inside").get() == (own if words[0] == "resume" else None)


def test_no_secret_is_in_an_answer(planted: Planted) -> None:
    secret = "ghp_aB3dE5gH7jK9mN1pQ2rS4tU6vW8xY0zA1bC3"
    requests = [
        {"action": "search", "query": f"look for {secret}"},
        {"action": "list", secret: 1},
        {"action": "resume", "target": secret},
        {"action": "clear", "name": "x", secret: {"a": 1}},
    ]

    with planted.open() as memory:
        answers = [_ask(memory, f"secret{number}", request) for number, request in enumerate(requests)]

    assert secret not in json.dumps(answers)
    assert [answer["ok"] for answer in answers] == [True, False, False, False]


def _serve(planted: Planted) -> Result:
    environment = {"RECOLLECT_HOME": str(planted.folder)}
    return CliRunner().invoke(main, ["group", "serve", "--once"], env=environment, catch_exceptions=False)


def _write_request(ipc: Path, name: str) -> None:
    (ipc / "tasks").mkdir(parents=True, exist_ok=True)
    (ipc / "tasks" / f"{name}.json").write_text('{"action": "list"}')


def _full_folder(path: Path) -> None:
    path.mkdir(parents=True)
    (path / "file").touch()


def _linked(ipc: Path) -> None:
    shutil.rmtree(ipc, ignore_errors=True)
    ipc.symlink_to(ipc.parent)


ODD = {
    "an empty folder for a request": lambda ipc: (ipc / "tasks" / "a.json").mkdir(parents=True),
    "a full folder for a request": lambda ipc: _full_folder(ipc / "tasks" / "a.json"),
    "an empty folder for an answer": lambda ipc: (ipc / "answers" / "own.json").mkdir(parents=True),
    "a full folder for an answer": lambda ipc: _full_folder(ipc / "answers" / "own.json"),
    "a file for the answers": lambda ipc: (ipc / "answers").write_text("x"),
    "a link for the requests": lambda ipc: (ipc / "tasks").symlink_to(ipc.parent),
    "a link for the folder": _linked,
    "a file for the folder": lambda ipc: (shutil.rmtree(ipc), ipc.write_text("x")),
    "a folder for a snapshot": lambda ipc: _full_folder(ipc / "session_history.json"),
}


@pytest.mark.parametrize("odd", ODD)
def test_what_one_group_puts_into_its_folder_never_stops_the_others(tmp_path: Path, odd: str) -> None:
    planted = plant(tmp_path, numbers=(INSIDE, OUTSIDE))
    with planted.open() as memory:
        hostile, other = (Path(memory.groups.get(name).ipc) for name in ("inside", "outside"))
    hostile.mkdir(parents=True, exist_ok=True)
    shutil.rmtree(hostile)
    hostile.mkdir()
    ODD[odd](hostile)
    if hostile.is_dir() and not hostile.is_symlink() and not (hostile / "tasks").is_symlink():
        _write_request(hostile, "own")
    _write_request(other, "r")

    done = _serve(planted)

    assert (done.exit_code, done.exception) == (0, None)
    assert json.loads((other / "answers" / "r.json").read_text())["ok"]


def test_groups_take_turns(tmp_path: Path) -> None:
    """Of a group with many requests a few are answered, then the others'."""
    planted = plant(tmp_path, numbers=(INSIDE, OUTSIDE))
    with planted.open() as memory:
        many, few = (Path(memory.groups.get(name).ipc) for name in ("inside", "outside"))
    for number in range(3 * TURN):
        _write_request(many, f"r{number:04}")
    _write_request(few, "only")

    order = [line.split()[0] for line in _serve(planted).output.splitlines()]

    assert order == ["inside"] * TURN + ["outside"] + ["inside"] * 2 * TURN


def test_an_answer_expires_and_its_request_is_still_not_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with plant(tmp_path).open() as memory:
        ipc, word = Path(memory.groups.get("inside").ipc), "xxxxmuchlater"
        _ask(memory, "once", {"action": "clear", "name": word})
        memory.groups.sessions("inside").set("claude:the-next")
        memory.sweep()
        assert (ipc / "answers" / "once.json").exists()

        monkeypatch.setattr("recollect.lifecycle.ANSWERS_KEPT_MS", -1000)
        memory.sweep()

        assert not (ipc / "answers" / "once.json").exists()
        again = _ask(memory, "once", {"action": "clear", "name": word})
        assert again == {"version": 1, "id": "once", "ok": True, "expired": True}
        assert memory.groups.sessions("inside").get() == "claude:the-next"


def test_a_rescan_takes_a_secret_out_of_answers_and_requests(tmp_path: Path) -> None:
    planted, word = plant(tmp_path), "badge-123456"
    with planted.open() as memory:
        _ask(memory, "once", {"action": "clear", "name": f"the {word}"})
        _ask(memory, "again", {"action": "search", "query": word})
    (planted.folder / "config.toml").write_text("[redact.rules]\nbadge = 'badge-[0-9]{6}'\n")

    with planted.open() as memory:
        memory.rescan()

    assert left_in(planted.folder, [f"....{word}"]) == set()


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
    words = {"clear": ["group", "clear", "later"], "resume": ["resume", "other", "--save-as", "later"]}[command]
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
