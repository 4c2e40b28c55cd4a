"""Summaries at the head of one log that name another session: that one is called so, in whatever order they come."""

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest

from recollect.memory import Memory
from tests import logs
from tests.conftest import swept
from tests.logs import CLAUDE, claude_answer, claude_user, record_id, session_id

OLD, NEW = session_id(1), session_id(2)
TITLE = "Parser for nested lists"


def summary(number: int, title: str = TITLE) -> logs.Record:
    return {"type": "summary", "summary": title, "leafUuid": record_id(OLD, number)}


def old_session(home: Path, last: int = 2) -> None:
    records = [claude_user(OLD, 1, "write a parser")]
    records += [claude_answer(OLD, number, f"step {number}") for number in range(2, last + 1)]
    CLAUDE.write(home, logs.lines(records), OLD)


def new_session(home: Path, *summaries: logs.Record) -> None:
    CLAUDE.write(home, logs.lines([*summaries, claude_user(NEW, 1, "what did we do?")]), NEW)


def titles(memory: Memory) -> dict[str, str | None]:
    with memory:
        return {session.native_session_id: session.title for session in memory.sessions()}


def holds(store: Path, words: str) -> bool:
    return any(words.encode() in path.read_bytes() for path in store.rglob("*") if path.is_file())


@pytest.mark.parametrize("order", [*permutations((old_session, lambda home: new_session(home, summary(2))))])
def test_the_session_that_holds_the_leaf_gets_the_title(
    tmp_path: Path, order: tuple[Callable[[Path], None], ...]
) -> None:
    for write in order:
        write(tmp_path / "home")
        found = titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))

    assert found == {OLD: TITLE, NEW: "what did we do?"}


def test_of_several_summaries_the_one_of_the_latest_record_counts(tmp_path: Path) -> None:
    new_session(tmp_path / "home", summary(4, "Finished the parser"), summary(2, "Began a parser"))
    for last in (2, 4):  # the older one names it until the later record is there
        old_session(tmp_path / "home", last)
        found = titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))
        assert found[OLD] == {2: "Began a parser", 4: "Finished the parser"}[last]


def test_a_summary_may_stand_above_its_own_leaf(tmp_path: Path) -> None:
    records = [summary(2), claude_user(OLD, 1, "write a parser"), claude_answer(OLD, 2, "done")]
    CLAUDE.write(tmp_path / "home", logs.lines(records), OLD)

    assert titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home"))) == {OLD: TITLE}


def test_a_fork_is_called_what_its_copied_records_are_about(tmp_path: Path) -> None:
    fork = session_id(3)
    old_session(tmp_path / "home")
    copied = [{**claude_answer(OLD, 2, "step 2"), "sessionId": fork}, claude_user(fork, 9, "go on")]
    CLAUDE.write(tmp_path / "home", logs.lines(copied), fork)
    new_session(tmp_path / "home", summary(2))

    found = titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))

    assert (found[OLD], found[fork]) == (TITLE, TITLE)


def test_a_log_cut_between_summary_and_first_record_tells_the_same(tmp_path: Path) -> None:
    old_session(tmp_path / "home")
    CLAUDE.write(tmp_path / "home", logs.lines([summary(2)]), NEW)
    before = titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))
    assert not holds(tmp_path / "store", TITLE)
    new_session(tmp_path / "home", summary(2))
    after = titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))

    # Until then nobody can say where the summary was made, and so whether it may be kept.
    assert (before[OLD], after[OLD]) == ("write a parser", TITLE)


def test_the_users_name_for_a_session_wins(tmp_path: Path) -> None:
    old_session(tmp_path / "home")
    path = tmp_path / "home" / "projects" / "p" / OLD / "custom-title.json"
    path.parent.mkdir(parents=True)
    path.write_text('{"customTitle": "my parser"}')
    new_session(tmp_path / "home", summary(2))

    assert titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))[OLD] == "my parser"


def test_a_title_of_another_session_is_kept_out_with_the_log_that_tells_it(tmp_path: Path) -> None:
    records = [summary(2), {**claude_user(NEW, 1, "hello"), "cwd": str(tmp_path / "secret")}]
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / ".recollectignore").write_text("*\n")
    old_session(tmp_path / "home")
    CLAUDE.write(tmp_path / "home", logs.lines(records), NEW)

    assert titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home"))) == {OLD: "write a parser"}
    assert not holds(tmp_path / "store", TITLE)


def test_a_forgotten_sessions_title_goes_from_the_log_that_tells_it(tmp_path: Path) -> None:
    old_session(tmp_path / "home")
    new_session(tmp_path / "home", summary(2), summary(7, "Somebody else's"))
    with swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")) as memory:
        memory.forget(memory.plan_forgetting(OLD))

    assert titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home"))) == {NEW: "what did we do?"}
    assert not holds(tmp_path / "store", TITLE)
    assert holds(tmp_path / "store", "Somebody else's")


def test_a_title_told_elsewhere_stays_when_its_session_grows(tmp_path: Path) -> None:
    old_session(tmp_path / "home")
    new_session(tmp_path / "home", summary(2))
    first = titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))
    old_session(tmp_path / "home", 5)

    assert titles(swept(tmp_path / "store", CLAUDE.root_flag(tmp_path / "home")))[OLD] == first[OLD] == TITLE
