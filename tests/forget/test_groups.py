"""Forgetting a session of a group: nothing of it stays in what sandboxed agents were shown and answered."""

import json
from pathlib import Path
from typing import Any

import pytest

from recollect.api import Memory, open_memory
from tests import logs
from tests.forget.traces import forget, left_in

OWN, OTHER, LATER = (logs.session_id(number) for number in (1, 2, 3))
WORDS = [f"xxxx{word}" for word in ("saidquokka", "namednumbat", "todowombat", "savedbilby")]
SAID, NAMED, TODO, SAVED = WORDS


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    """A group with three sessions, the first of which is active."""
    work, home, store = tmp_path / "work", tmp_path / "home", tmp_path / "store"
    work.mkdir()
    todos = {"todos": [{"content": TODO, "status": "pending", "activeForm": TODO}]}
    for session in (OWN, OTHER, LATER):
        said = f"please explain {SAID if session == OWN else 'something else'} everybodysays"
        records = [logs.claude_user(session, 1, said), logs.claude_answer(session, 2, "done")]
        call = logs.claude_call(session, 3, "true")
        call["message"]["content"][0] |= {"name": "TodoWrite", "input": todos}
        records += [call] if session == OWN else []
        logs.CLAUDE.write(home, logs.lines(record | {"cwd": str(work)} for record in records), session)
    with open_memory(store, [f"claude={home}"]) as memory:
        memory.sweep()
        memory.groups.add("fam", work)
        yield memory


def _ask(memory: Memory, name: str, request: dict[str, Any]) -> dict[str, Any]:
    ipc = Path(memory.groups.get("fam").ipc)
    (ipc / "tasks" / f"{name}.json").write_text(json.dumps(request))
    memory.groups.serve("fam")
    answer: dict[str, Any] = json.loads((ipc / "answers" / f"{name}.json").read_text())
    return answer


def test_no_word_of_it_is_left_in_a_group(memory: Memory) -> None:
    sessions, store = memory.groups.sessions("fam"), memory.settings.folder
    sessions.set(f"claude:{OWN}")
    memory.groups.write_snapshots("fam")
    ipc = Path(memory.groups.get("fam").ipc)
    assert TODO in (ipc / "current_tasks.json").read_text()
    _ask(memory, "search", {"action": "search", "query": "everybodysays"})
    _ask(memory, "clear", {"action": "clear", "name": NAMED})
    _ask(memory, "misnamed", {"action": "resume", "target": NAMED[:-1]})  # a hint names the bookmark
    _ask(memory, "list", {"action": "list"})
    _ask(memory, "back", {"action": "resume", "target": NAMED})
    sessions.archive(NAMED)
    sessions.set(f"claude:{OTHER}")
    sessions.archive("other")
    sessions.set(f"claude:{OWN}")
    _ask(memory, "saved", {"action": "resume", "target": "other", "save_as": SAVED})
    assert left_in(store, WORDS) == set(WORDS)

    planned = memory.plan_forgetting(OWN)
    memory.forget(planned)

    assert planned.answers == planned.to_json()["answers"] == 6
    assert left_in(store, WORDS) == set()
    snapshot = json.loads((ipc / "session_history.json").read_text())
    assert [mark["name"] for mark in snapshot["bookmarks"]] == []
    assert json.loads((ipc / "current_tasks.json").read_text())["todos"] == []
    memory.sweep()
    assert left_in(store, WORDS) == set()


def test_a_request_about_it_is_answered_without_words_and_not_done_again(memory: Memory) -> None:
    memory.groups.sessions("fam").set(f"claude:{OWN}")
    memory.groups.write_snapshots("fam")
    _ask(memory, "clear", {"action": "clear", "name": NAMED})
    forget(memory, OWN)
    memory.groups.sessions("fam").set(f"claude:{OTHER}")

    again = _ask(memory, "clear", {"action": "clear", "name": "whatever"})

    assert again == {"version": 1, "id": "clear", "ok": True, "expired": True}
    assert memory.groups.sessions("fam").get() == f"claude:{OTHER}"


def test_a_link_in_the_place_of_the_answers_leads_nowhere(memory: Memory, tmp_path: Path) -> None:
    ipc, elsewhere = Path(memory.groups.get("fam").ipc), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious.json").write_text("{}")
    (ipc / "answers").rmdir()
    (ipc / "answers").symlink_to(elsewhere)

    forget(memory, OWN)

    assert (elsewhere / "precious.json").exists()
