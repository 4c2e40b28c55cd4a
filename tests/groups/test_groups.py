"""Which group a session belongs to, and what becomes of its pointer and bookmarks."""

import os
import shutil
from pathlib import Path

import pytest

from recollect.api import Memory, open_memory
from recollect.model.errors import NotFound, NotInGroup, UsageError
from tests import logs
from tests.conftest import swept, with_key
from tests.groups.conftest import INSIDE, OUTSIDE, Planted, hidden_word


def _groups(memory: Memory) -> dict[str, str]:
    return {session.native_session_id: session.group for session in memory.sessions()}


def _claude(home: Path, number: int, cwd: Path) -> None:
    message = logs.claude_user(logs.session_id(number), 1, "hello") | {"cwd": str(cwd)}
    logs.CLAUDE.write(home, logs.line(message), logs.session_id(number))


def test_a_session_belongs_to_the_group_of_its_home_else_of_the_longest_path(tmp_path: Path) -> None:
    for name in ("a", "a/b", "elsewhere"):
        (tmp_path / name).mkdir()
    _claude(tmp_path / "main-home", 1, tmp_path / "a" / "x")
    _claude(tmp_path / "main-home", 2, tmp_path / "a" / "b" / "x")
    _claude(tmp_path / "main-home", 3, tmp_path / "elsewhere")
    _claude(tmp_path / "b-home", 4, tmp_path / "elsewhere")

    with open_memory(with_key(tmp_path / "store"), [f"claude={tmp_path / 'main-home'}"]) as memory:
        memory.groups.add("a", tmp_path / "a")
        memory.groups.add("b", tmp_path / "a" / "b", home=tmp_path / "b-home")
        memory.sweep()

        names = ["a", "b", "main", "b"]
        assert _groups(memory) == {logs.session_id(number): name for number, name in enumerate(names, start=1)}


def test_adding_and_removing_a_group_moves_sessions_read_before(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    _claude(tmp_path / "home", 1, tmp_path / "work")

    with open_memory(with_key(tmp_path / "store"), [f"claude={tmp_path / 'home'}"]) as memory:
        memory.sweep()
        memory.groups.add("late", tmp_path / "work")
        after_adding = set(_groups(memory).values())
        memory.groups.remove("late")

        assert (after_adding, set(_groups(memory).values())) == ({"late"}, {"main"})


def test_sub_agents_and_forks_belong_where_their_origin_does(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    _claude(tmp_path / "home", 1, tmp_path / "work")
    original = logs.claude_user(logs.session_id(1), 1, "hello")
    copied = original | {"sessionId": logs.session_id(2), "cwd": str(tmp_path), "forkedFrom": {}}
    copied["forkedFrom"] = {"sessionId": logs.session_id(1), "messageUuid": original["uuid"]}
    logs.CLAUDE.write(tmp_path / "home", logs.line(copied), logs.session_id(2))

    with open_memory(with_key(tmp_path / "store"), [f"claude={tmp_path / 'home'}"]) as memory:
        memory.groups.add("work", tmp_path / "work")
        memory.sweep()

        assert set(_groups(memory).values()) == {"work"}


@pytest.mark.parametrize("name", ["", "Main!", "../up", "global", "a" * 65, "-x"])
def test_names_that_are_no_folder_names_are_refused(tmp_path: Path, memory: Memory, name: str) -> None:
    with pytest.raises(UsageError):
        memory.groups.add(name, tmp_path)


def test_groups_and_bookmarks_survive_the_loss_of_the_database(planted: Planted, tmp_path: Path) -> None:
    from shutil import copytree

    store = tmp_path / "copy"
    copytree(planted.folder, store)
    for path in store.glob("memory.db*"):
        path.unlink()

    from recollect.api import repair

    repair(store)
    with open_memory(store) as memory:
        assert [group.name for group in memory.groups.all()] == ["main", "inside", "outside"]
        assert [item.name for item in memory.groups.sessions("outside").history()] == [
            f"bookmark {hidden_word(OUTSIDE)}"
        ]


def test_restoring_a_bookmark_swaps_it_with_the_active_session(planted: Planted) -> None:
    with planted.open("inside") as memory:
        sessions = memory.groups.sessions()
        first = sessions.put_aside("first")
        sessions.set("claude:the-next")
        sessions.restore(first.id, save_as="second")

        assert sessions.get() == f"claude:{logs.session_id(INSIDE)}"
        assert [(item.name, item.session_uid) for item in sessions.history()] == [("second", "claude:the-next")]
        sessions.archive(f"bookmark {hidden_word(INSIDE)}")


def test_a_group_cannot_touch_what_is_not_its_own(inside: Memory, tmp_path: Path) -> None:
    foreign = f"claude:{logs.session_id(OUTSIDE)}"

    with pytest.raises(NotFound):
        inside.groups.sessions().set(foreign)
    with pytest.raises(NotFound):
        inside.groups.sessions("outside")
    with pytest.raises(NotInGroup):
        inside.groups.add("mine", tmp_path)
    with pytest.raises(NotInGroup):
        inside.groups.remove("inside")


def test_a_group_that_is_none_opens_nothing(planted: Planted) -> None:
    with pytest.raises(NotFound):
        planted.open("outsid")


def test_the_group_of_a_process_cannot_be_argued_away(planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_GROUP", "inside")

    with planted.open() as memory:
        assert {session.group for session in memory.sessions()} == {"inside"}
    for other in ("main", "outside"):
        with pytest.raises(NotInGroup):
            planted.open(other)


@pytest.mark.parametrize("log", [logs.CODEX, logs.GROK], ids=lambda log: log.agent)
def test_an_agent_that_forks_whole_sessions_is_not_cut_at_a_message(tmp_path: Path, log: logs.AgentLog) -> None:
    log.write(tmp_path / "home", log.content(3))
    with swept(tmp_path / "store", log.root_flag(tmp_path / "home")) as memory:
        session = memory.session(logs.session_id())

        with pytest.raises(UsageError, match="forks whole sessions only") as refusal:
            memory.groups.fork(session, "2")

    assert "recollect digest" in str(refusal.value.hint)
    assert len(list((tmp_path / "home").rglob("*.jsonl"))) == 1


@pytest.mark.parametrize("how", ["link", "copy", "move", "hard link"])
def test_a_session_read_under_another_path_of_its_home_moves_to_the_group(tmp_path: Path, how: str) -> None:
    before, home, session = tmp_path / "before", tmp_path / "home", logs.session_id(1)
    for folder in ("work", "elsewhere"):
        (tmp_path / folder).mkdir()
    record = logs.claude_user(session, 1, "hello") | {"cwd": str(tmp_path / "elsewhere")}
    logs.CLAUDE.write(before, logs.line(record), session)
    store = with_key(tmp_path / "store")
    with open_memory(store, [f"claude={before}"]) as memory:
        memory.sweep()
    if how == "link":
        home.symlink_to(before)
    elif how == "move":
        before.rename(home)
    else:
        shutil.copytree(before, home, copy_function=os.link if how == "hard link" else shutil.copy2)

    with open_memory(store, [f"claude={tmp_path / 'nobody'}"]) as memory:
        memory.groups.add("fam", tmp_path / "work", home=home)
        memory.sweep()

        (moved,) = memory.sessions()
        assert moved.group == "fam"
        assert not memory.handover.is_gone(moved)
        command = memory.session(moved.session_uid).resume_command or ""
        assert str(before if before.exists() else home) in command
