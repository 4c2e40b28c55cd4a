"""What the memory would have saved is exact: every repeat, never against a later fix, with what it took."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.cli import main
from recollect.recall import Filters
from tests.builders import usage
from tests.knowledge.sessions import Script, remembered

ERROR = "Error: cannot open the ledger at /srv/{path} after {n} tries"


def solved(name: str, day: int, path: str) -> Script:
    script = (
        Script(name, day)
        .user("close the books")
        .run("python close.py", ERROR.format(path=path, n=day), 1)
        .edit("/srv/shop/close.py", "mode = 'r'", "mode = 'a'")
        .run("python close.py", "closed")
    )
    start_ms = script.records[1].ts_ms
    script.records.append(usage(name, f"{name}-1", ts_ms=start_ms + 3500, input_tokens=1000, output_tokens=50))
    return script


def test_exactly_the_repeats_are_counted_with_what_they_took(tmp_path: Path) -> None:
    other = Script("other", 4).user("x").run("python a.py", "Error: nothing like it happened", 1)
    question = "Which ledger format?"
    asked = [Script(f"ask{day}", day).user("plan").ask(question, ["csv", "json"], "csv") for day in (1, 6)]
    memory = remembered(
        tmp_path, solved("third", 9, "c"), solved("first", 0, "a"), solved("second", 2, "b"), other, *asked
    )

    rehearsal = memory.knowledge.rehearse()

    found = [(one.kind, one.session_uid, one.known_session_uid) for one in rehearsal.repeats]
    assert found == [
        ("error", "scripted:second", "scripted:first"),
        ("question", "scripted:ask6", "scripted:ask1"),
        ("error", "scripted:third", "scripted:second"),
    ]
    assert (rehearsal.errors_met, rehearsal.seconds, rehearsal.tokens) == (4, 8, 2100)


def test_nothing_counts_against_a_later_fix_or_its_own_session(tmp_path: Path) -> None:
    unsolved = Script("early", 0).user("x").run("python close.py", ERROR.format(path="z", n=1), 1)

    assert remembered(tmp_path, unsolved, solved("late", 5, "a")).knowledge.rehearse().repeats == ()


def test_only_the_time_asked_for_is_replayed_against_all_that_was_known(tmp_path: Path) -> None:
    memory = remembered(tmp_path, solved("first", 0, "a"), solved("second", 2, "b"), solved("third", 9, "c"))

    recent = memory.knowledge.rehearse(Filters(since="2026-10-21"))

    assert [one.session_uid for one in recent.repeats] == ["scripted:third"]


def test_a_limit_shows_the_latest_and_how_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(tmp_path, solved("first", 0, "a"), solved("second", 2, "b"), solved("third", 9, "c")).close()
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))

    shown = CliRunner().invoke(main, ["knowledge", "rehearse", "--limit", "1"]).output
    as_json = json.loads(CliRunner().invoke(main, ["knowledge", "rehearse", "--limit", "1", "--json"]).output)

    assert "1 of 2 problems · more: --limit 2" in shown
    assert [one["session_uid"] for one in as_json["repeats"]] == ["scripted:third"]


def failed_only(name: str, day: int) -> Script:
    return Script(name, day).user("close the books").run("python close.py", ERROR.format(path=name, n=day), 1)


@pytest.mark.parametrize(("other", "repeats"), [("count_test.go", 1), ("gemini_test.go", 0)])
def test_what_a_test_says_counts_in_that_test_only(tmp_path: Path, other: str, repeats: int) -> None:
    def counted(name: str, day: int, test: str) -> Script:
        return (
            Script(name, day)
            .user("count sessions")
            .run("go test ./count", f"{test}:{day + 7}: Expected sessions=2, got {day}", 1, is_test=True)
            .edit("/srv/shop/count.go", "n := 1", "n := 2")
            .run("go test ./count", "ok  \tshop/count\t0.1s", is_test=True)
        )

    memory = remembered(tmp_path, counted("one", 0, "count_test.go"), counted("two", 1, other))

    assert len(memory.knowledge.rehearse().repeats) == repeats


def test_an_earlier_failure_without_a_fix_is_no_solution(tmp_path: Path) -> None:
    memory = remembered(tmp_path, failed_only("one", 0), solved("two", 1, "b"))

    assert memory.knowledge.rehearse().repeats == ()


def test_a_command_that_keeps_failing_is_named_as_such_and_saves_nothing(tmp_path: Path) -> None:
    memory = remembered(tmp_path, *(failed_only(name, day) for day, name in enumerate(("one", "two", "three"))))

    rehearsal = memory.knowledge.rehearse()

    assert [(one.kind, one.known) for one in rehearsal.repeats] == [
        ("command", "it had failed like this in 2 earlier sessions")
    ]
    assert (rehearsal.seconds, rehearsal.tokens) == (0, 0)


def test_an_error_that_came_back_counts_if_nobody_solved_it_again_but_cost_nothing_that_is_known(
    tmp_path: Path,
) -> None:
    rehearsal = remembered(tmp_path, solved("one", 0, "a"), failed_only("two", 1)).knowledge.rehearse()

    assert [(one.kind, one.session_uid) for one in rehearsal.repeats] == [("error", "scripted:two")]
    assert (rehearsal.seconds, rehearsal.tokens) == (0, 0)


@pytest.mark.parametrize(("other", "repeats"), [("python close.py", 1), ("python count.py", 0)])
def test_time_outs_of_different_commands_have_nothing_in_common(tmp_path: Path, other: str, repeats: int) -> None:
    def waited(name: str, day: int, command: str) -> Script:
        script = Script(name, day).user("close").run(command, "Error: the ledger service timed out", 1)
        return script.edit("/srv/shop/close.py", "mode = 'r'", "mode = 'a'").run(command, "closed")

    memory = remembered(tmp_path, waited("one", 0, "python close.py"), waited("two", 1, other))

    assert len(memory.knowledge.rehearse().repeats) == repeats


def met(name: str, day: int, message: str, pause: int = 0) -> Script:
    """A test fails with a message and is mended, after so many seconds of nobody being there."""
    output = f"--- FAIL: TestDrain (0.01s)\n    pool_test.go:8: {message}\nFAIL\n"
    script = Script(name, day).user("make the tests pass").run("go test ./...", output, 1, is_test=True)
    script.wait(pause)
    script.edit("/srv/shop/pool.go", "drain()", "drain(all)").run("go test ./...", "ok  \tshop\t0.1s", is_test=True)
    script.records.append(usage(name, f"{name}-1", input_tokens=10, output_tokens=5))
    return script.agent("Fixed because drain() left some.")


def test_waiting_for_a_person_costs_nothing(tmp_path: Path) -> None:
    message = "the pool should be drained"

    rehearsal = remembered(tmp_path, met("one", 0, message), met("two", 1, message, 750)).knowledge.rehearse()

    assert [repeat.seconds for repeat in rehearsal.repeats] == [3]


def test_a_chain_that_failed_to_push_is_mended_by_the_push(tmp_path: Path) -> None:
    error = "error: failed to push some refs to 'github.com:acme/shop.git'"

    def pushed(name: str, day: int) -> Script:
        script = Script(name, day).user("commit it").run("git commit -m done && git push", error, 1)
        return script.run("git pull --rebase", "ok").run("git push", "done").run("git commit -m x && git push", "ok")

    rehearsal = remembered(tmp_path, pushed("one", 0), pushed("two", 1)).knowledge.rehearse()

    (repeat,) = rehearsal.repeats
    assert (repeat.seconds, repeat.text.split(" failed")[0]) == (4, "`git push`")


@pytest.mark.parametrize(("other", "repeats"), [("nothing left over", 1), ("the lid came off", 0)])
def test_the_same_test_that_fails_otherwise_is_another_error(tmp_path: Path, other: str, repeats: int) -> None:
    memory = remembered(tmp_path, met("one", 0, "nothing left over"), met("two", 1, other))

    assert len(memory.knowledge.rehearse().repeats) == repeats
