"""What is listed and found: sure decisions first, each error of a list by its own line, evidence that opens."""

import json
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner

from recollect.cli.entry import main
from recollect.hooks.fixes import find_fix
from tests.knowledge.sessions import Script, remembered

SURE, WEAK = "Always use tabs instead of spaces.", "Always use the old parser for now."


def wished() -> Script:
    return Script("wish").user(f"{SURE} {WEAK}").edit("/srv/shop/a.go", "old", "new").agent("Done.")


def test_weak_decisions_are_listed_only_when_all_are_asked_for(tmp_path: Path) -> None:
    memory = remembered(tmp_path, wished())

    assert [fact.object for fact in memory.knowledge.decisions()] == [SURE]
    assert {fact.object for fact in memory.knowledge.decisions(everything=True)} == {SURE, WEAK}


def test_the_list_says_how_many_weaker_ones_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(tmp_path, wished())
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))

    listed = CliRunner().invoke(main, ["decisions"])
    records = CliRunner().invoke(main, ["decisions", "--json"])

    assert "1 more with --all" in listed.stdout
    assert [record["object"] for record in json.loads(records.stdout)] == [SURE]


def pooled() -> Script:
    output = "--- FAIL: TestPool (0.01s)\n    pool_test.go:12: want 3 connections, got 2\nFAIL"
    return (
        Script("pool")
        .user("run the pool test")
        .run("go test ./pool", output, 1, is_test=True)
        .edit("/srv/shop/pool.go", "defer c.Close()", "// closed by caller")
        .run("go test ./pool", "ok  shop/pool 0.1s", is_test=True)
    )


@pytest.mark.parametrize("error", ["TestPool", "--- FAIL: TestPool (0.01s)"])
def test_a_fix_is_found_by_the_name_of_a_test_and_by_what_begins_with_a_dash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    remembered(tmp_path, pooled())
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))

    found = CliRunner().invoke(main, ["fix", error])

    assert found.exit_code == 0, found.output
    assert "pool.go" in found.stdout


LINT = """a.go:5:2: Error return value of `os.Remove` is not checked (errcheck)
b.go:9:1: func listStates is unused (unused)
c.go:3:3: undefined: other (typecheck)
3 issues:"""


def linted() -> Script:
    return (
        Script("lint")
        .user("make it clean")
        .run("make lint", LINT, 1)
        .edit("/srv/shop/a.go", "os.Remove(p)", "_ = os.Remove(p)")
        .edit("/srv/shop/b.go", "func listStates() {}", "var _ = listStates")
        .run("make lint", "0 issues")
    )


def test_each_error_of_a_list_has_the_fix_of_its_own_file(tmp_path: Path) -> None:
    memory = remembered(tmp_path, linted())

    (fix,) = memory.knowledge.fixes("b.go:9:1: func listStates is unused (unused)")

    assert [step.name for step in fix.steps] == ["b.go"]
    assert memory.knowledge.fixes(LINT.splitlines()[0])[0].steps[0].name == "a.go"


@pytest.mark.parametrize(("line", "file"), [(0, "a.go"), (1, "b.go")])
def test_hooks_say_of_an_error_of_a_list_what_fixed_that_one(tmp_path: Path, line: int, file: str) -> None:
    remembered(tmp_path, linted())

    _, said = find_fix(str(tmp_path / "store"), f"exit 1\n{LINT.splitlines()[line]}\n1 issues:", "another")

    assert said.partition("> fix: edit ")[2].startswith(f"{file}: ")


def test_evidence_names_its_session(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    again = Script("again", 3).user("run it").run("go test ./pool", "--- FAIL: TestPool\nFAIL", 1, is_test=True)
    memory = remembered(tmp_path, pooled(), again)
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))

    (fix,) = memory.knowledge.fixes("TestPool")

    for one in fix.evidence:
        assert one.event_uid in {event.event_uid for event in memory.events(memory.session(str(one.session_uid)))}


def test_a_remembered_decision_cites_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = remembered(tmp_path, wished())
    memory.knowledge.remember("We use pnpm")
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))

    line = next(line for line in CliRunner().invoke(main, ["decisions"]).stdout.splitlines() if "remembered" in line)

    assert "events" not in line


def test_the_audit_counts_receipts_that_contradict_themselves(tmp_path: Path) -> None:
    memory = remembered(tmp_path, pooled())
    failed = next(event for event in memory.events(memory.session("scripted:pool")) if event.is_error)
    evidence = json.dumps([{"event_uid": failed.event_uid, "quote": "then passed: go test ./pool"}])
    assert memory.knowledge.audit().unfinished == 0
    with closing(apsw.Connection(str(tmp_path / "store" / "memory.db"))) as connection:
        connection.execute("UPDATE facts SET evidence = ? WHERE predicate = 'fixed_by'", (evidence,))

    found = memory.knowledge.audit()

    assert found.unfinished == 1
    assert (found.stale, found.checked) == (0, 0)  # no repository is at hand
