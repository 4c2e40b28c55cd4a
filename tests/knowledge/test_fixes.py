"""An error that was fixed once is known, whoever meets it again, wherever, with whatever numbers in it."""

import json
import random
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.cli.entry import main
from tests.knowledge.sessions import Script, remembered, stored_facts

TIMEOUT = 'Traceback (most recent call last):\n  File "{path}", line {line}\npool.Timeout: no connection within {ms} ms'


def met_and_fixed(name: str = "first", day: int = 0) -> Script:
    return (
        Script(name, day)
        .user("the nightly job fails, please look")
        .run("python jobs/nightly.py", TIMEOUT.format(path="/srv/shop/pool.py", line=12, ms=5000), 1)
        .edit("/srv/shop/pool.py", "timeout = 5", "timeout = 10")
        .run("python jobs/nightly.py", TIMEOUT.format(path="/srv/shop/pool.py", line=12, ms=10000), 1)
        .agent("The pool is too small because every worker holds a connection. Let me raise its size.")
        .edit("/srv/shop/settings.py", "size = 5", "size = 20")
        .run("python jobs/nightly.py", "done")
        .agent("Fixed: the pool has 20 connections now.")
    )


def met_again(name: str = "second", day: int = 3) -> Script:
    return (
        Script(name, day, cwd="/home/ann/shop")
        .user("import the orders")
        .run("python jobs/orders.py", TIMEOUT.format(path="/home/ann/shop/pool.py", line=977, ms=31), 1)
    )


def test_a_fix_is_found_by_the_error_with_other_paths_and_numbers(tmp_path: Path) -> None:
    memory = remembered(tmp_path, met_and_fixed(), met_again())

    fixes = memory.knowledge.fixes(TIMEOUT.format(path="C:/x/pool.py", line=3, ms=77))

    assert [fix.session_uid for fix in fixes] == ["scripted:first"]
    fix = fixes[0]
    assert [(step.kind, step.name) for step in fix.steps] == [("edit", "settings.py")]
    assert "`size = 5` became `size = 20`" in fix.text
    assert fix.why == "The pool is too small because every worker holds a connection."
    assert fix.tried == ("editing pool.py (`timeout = 5` became `timeout = 10`)",)
    assert set(fix.sessions) == {"scripted:first", "scripted:second"}
    assert fix.returns == 1
    assert fix.chosen_by == "agent"
    cited = {
        event.event_uid for name in ("first", "second") for event in memory.events(memory.session(f"scripted:{name}"))
    }
    assert {one.event_uid for one in fix.evidence} <= cited


PYTEST = """
    def test_{name}():
>       assert add(2, 3) == 5
E       assert {got} == 5

tests/test_{name}.py:{line}: AssertionError
=========================== short test summary info ============================
FAILED tests/test_{name}.py::test_{name} - assert {got} == 5
1 failed in 0.05s
"""


def green(name: str, day: int, test: str, got: int, line: int = 5, cwd: str = "/srv/shop") -> Script:
    return (
        Script(name, day, cwd=cwd)
        .user("make the tests pass")
        .run("pytest -q", PYTEST.format(name=test, got=got, line=line), 1, is_test=True)
        .edit(f"{cwd}/{test}.py", "return a - b", "return a + b")
        .run("pytest -q", "1 passed in 0.05s", is_test=True)
    )


def test_a_comment_is_not_told_in_place_of_the_code_that_changed(tmp_path: Path) -> None:
    script = (
        Script("count")
        .user("fix the count")
        .run("make test", "count.go:7: count is 3, want 2", 1)
        .edit("/srv/shop/count.go", "// Count them\nn = 3", "// Count each of them once\nn = 2")
        .run("make test", "ok")
    )

    fix = remembered(tmp_path, script).knowledge.fixes("count.go:7: count is 3, want 2")[0]

    assert fix.steps[0].gist == "`n = 3` became `n = 2`"


def test_a_few_words_find_the_error_that_says_them_before_one_whose_fix_does(tmp_path: Path) -> None:
    def linted(name: str, day: int, error: str, said: str) -> Script:
        script = Script(name, day).user("make it clean").run("make lint", error, 1).agent(said)
        return script.edit(f"/srv/shop/{name}.go", "old", "new").run("make lint", "0 issues")

    memory = remembered(
        tmp_path,
        linted("wing", 0, "wing.go:24:1: subprocess launched with a variable", "The issue is nilerr, and this one."),
        linted("view", 1, "view.go:34:3: error is not nil but it returns nil (nilerr)", "It needs to be returned."),
    )

    assert [fix.steps[0].name for fix in memory.knowledge.fixes("nilerr")] == ["view.go"]


@pytest.mark.parametrize(
    "line",
    [
        "FAILED elsewhere/test_calc.py::test_calc - assert -7 == 19",
        "E       assert -1 == 5",
        "AssertionError: assert -1 == 5",
        "/home/ann/app/tests/test_calc.py:5: AssertionError",
        "tests/test_calc.py:5: assert -1 == 5",
        ">       assert add(2, 3) == 5\nE       assert -1 == 5\n\ntests/test_calc.py:5: AssertionError",
    ],
)
def test_a_fix_is_found_by_any_telling_line_of_its_error(tmp_path: Path, line: str) -> None:
    memory = remembered(tmp_path, green("calc", 0, "calc", -1), green("tax", 1, "tax", 8, 9))

    assert [fix.session_uid for fix in memory.knowledge.fixes(line)] == ["scripted:calc"]


@pytest.mark.parametrize("line", ["E       assert -2 == 5", "E   assert None is True", "AssertionError: assert 0"])
def test_a_line_of_other_values_is_another_error(tmp_path: Path, line: str) -> None:
    memory = remembered(tmp_path, green("calc", 0, "calc", -1))

    assert memory.knowledge.fixes(line) == []


def test_a_line_that_many_errors_share_names_none_of_them(tmp_path: Path) -> None:
    shared = [green(f"s{number}", number, f"t{number}", -1) for number in range(4)]

    assert len(remembered(tmp_path / "few", *shared[:3]).knowledge.fixes("E   assert -1 == 5", None)) == 3
    assert remembered(tmp_path / "many", *shared).knowledge.fixes("E   assert -1 == 5", None) == []


def test_a_line_that_is_still_printed_after_the_fix_does_not_lead_to_it(tmp_path: Path) -> None:
    both = "error: cannot find `Alpha` in scope\nerror: cannot find `Beta` in scope"
    script = (
        Script("half")
        .user("make it compile")
        .run("make app", both, 1)
        .edit("/srv/shop/a.c", "Beta", "beta")
        .run("make app", both.partition("\n")[0], 1)
    )

    memory = remembered(tmp_path, script)

    assert memory.knowledge.fixes("error: cannot find `Beta` in scope")[0].is_same_error
    assert not any(fix.is_same_error for fix in memory.knowledge.fixes("error: cannot find `Alpha` in scope"))


def test_of_many_edits_the_one_of_the_symbol_that_the_error_names_is_told(tmp_path: Path) -> None:
    script = (
        Script("lint")
        .user("make it clean")
        .run("make lint", "cmd/run.go:12:9: use of `os.Getwd` forbidden (forbidigo)", 1)
        .edit("/srv/shop/cmd/run.go", "// Run runs.", "// Run runs the command.")
        .edit("/srv/shop/paths/root.go", "package paths", "package paths // of the repository")
        .edit("/srv/shop/cmd/run.go", "dir, err := os.Getwd()", "dir, err := paths.RepoRoot()")
        .run("make lint", "0 issues")
    )

    fix = remembered(tmp_path, script).knowledge.fixes("cmd/x.go:7:1: use of `os.Getwd` forbidden (forbidigo)")[0]

    assert (fix.steps[0].name, fix.confidence >= 0.6) == ("cmd/run.go", True)
    assert "`dir, err := os.Getwd()` became `dir, err := paths.RepoRoot()`" in fix.text


def test_several_edits_of_nothing_that_the_error_names_are_a_guess(tmp_path: Path) -> None:
    def fixed(name: str, day: int, *files: str) -> Script:
        script = Script(name, day).user("ship it").run("make app", "Error: cannot reach the ledger of today", 1)
        for file in files:
            script.edit(f"/srv/shop/{file}", "a", "b")
        return script.run("make app", "done")

    one = remembered(tmp_path / "one", fixed("first", 0, "ui.py"), fixed("second", 1, "ui.py"))
    many = remembered(tmp_path / "many", fixed("first", 0, "ui.py", "a.py"), fixed("second", 1, "log.py", "ui.py"))

    assert len(one.knowledge.rehearse().repeats) == 1
    assert many.knowledge.rehearse().repeats == ()
    assert many.knowledge.fixes("Error: cannot reach the ledger of today")[0].confidence < 0.6


def test_the_line_that_the_error_shows_is_told_and_what_was_added_to_it(tmp_path: Path) -> None:
    output = "cmd/wing.go:122:5: G104: Errors unhandled (gosec)\n\tos.Remove(path)\n\t^"
    before = "import os\nfirst()\nos.Remove(path)"
    after = "import io\nsecond()\nos.Remove(path) //nolint:gosec // best effort"
    script = (
        Script("lint")
        .user("make it clean")
        .run("make lint", output, 1)
        .edit("/srv/shop/cmd/wing.go", before, after)
        .run("make lint", "0 issues")
    )

    fix = remembered(tmp_path, script).knowledge.fixes("cmd/x.go:7:1: G104: Errors unhandled (gosec)")[0]

    assert fix.steps[0].gist == "added `//nolint:gosec // best effort` after `os.Remove(path)`"


def test_work_that_was_only_undone_is_a_guess(tmp_path: Path) -> None:
    error = "Error: no such column as total"
    script = Script("one").user("sum it up").run("gh api sums", error, 1)
    script.run("git checkout -- src/sums.py", "done").run("gh api sums", "12")

    fixes = remembered(tmp_path, script).knowledge.fixes(error)

    assert fixes and all(0.5 <= fix.confidence < 0.6 for fix in fixes)


def test_the_same_fix_is_listed_once_with_all_its_evidence(tmp_path: Path) -> None:
    scripts = [green(f"s{number}", number, "calc", -number, cwd=f"/home/{number}") for number in range(1, 4)]

    fixes = remembered(tmp_path, *scripts).knowledge.fixes("FAILED test_calc.py::test_calc - assert 1 == 5", None)

    assert len(fixes) == 1
    assert fixes[0].fixed_count == 3
    assert set(fixes[0].sessions) == {"scripted:s1", "scripted:s2", "scripted:s3"}
    cited = [one.event_uid for one in fixes[0].evidence]
    assert len(cited) == len(set(cited)) >= 5


def test_what_the_user_asked_for_after_the_failure_is_quoted(tmp_path: Path) -> None:
    script = (
        Script("asked")
        .user("run the job")
        .run("python jobs/nightly.py", TIMEOUT.format(path="/a/b.py", line=1, ms=5), 1)
        .user("raise the timeout from 5s to 30s")
        .edit("/srv/shop/pool.py", "timeout = 5", "timeout = 30")
        .run("python jobs/nightly.py", "done")
    )

    fix = remembered(tmp_path, script).knowledge.fixes("pool.Timeout: no connection within 9 ms")[0]

    assert fix.chosen_by == "user"
    assert fix.quote == "raise the timeout from 5s to 30s"


@pytest.mark.parametrize(
    "steps",
    [
        lambda script: script.run("grep -r nothing src", "", 1),
        lambda script: script.run("make x", "make: *** [x] Error 1", 1).edit("/a.py", "a", "b").run("make x", "ok"),
        lambda script: script.run("make x", "Error: flaky thing failed", 1).run("make x", "ok"),
        lambda script: (
            script.run("make x", "Error: real failure of x", 1).edit("/a.py", "a", "b").run("make y && ls", "ok")
        ),
    ],
    ids=["an answer by exit code", "an error that names nothing", "a rerun that passed", "another thing that passed"],
)
def test_nothing_is_claimed_where_nothing_was_fixed(tmp_path: Path, steps: object) -> None:
    script = Script("quiet").user("do it")
    steps(script)  # type: ignore[operator]

    memory = remembered(tmp_path, script)

    assert stored_facts(memory, "fixed_by") == []


def test_of_an_error_that_the_user_shows_the_cause_is_known_and_no_fix(tmp_path: Path) -> None:
    script = (
        Script("shown")
        .user("I get this:\nError: Cannot launch inside another session\nWhat is wrong?")
        .agent("Found the issue: the child inherits CLAUDECODE from its parent, so it refuses to start.")
        .edit("/srv/shop/spawn.py", "env = os.environ", "env = without(os.environ, 'CLAUDECODE')")
        .agent("Fixed. The variable is stripped now.")
        .user("thanks, works")
    )

    memory = remembered(tmp_path, script)

    assert memory.knowledge.fixes("Error: Cannot launch inside another session") == []
    assert "inherits CLAUDECODE" in str(memory.knowledge.why("cannot launch inside another session")[0])


def test_what_did_not_help_is_no_fix(tmp_path: Path) -> None:
    script = (
        Script("shown")
        .user("I get this:\nError: Cannot launch inside another session")
        .edit("/srv/shop/spawn.py", "a", "b")
        .agent("Fixed.")
        .user("no, still the same error")
    )

    assert remembered(tmp_path, script).knowledge.fixes("Error: Cannot launch inside another session") == []


def test_the_command_answers_in_sentences_and_in_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remembered(tmp_path, met_and_fixed(), met_again()).close()
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))

    shown = CliRunner().invoke(main, ["fix", "pool.Timeout: no connection within 31 ms"])
    as_json = CliRunner().invoke(main, ["fix", "-", "--json"], input="pool.Timeout: no connection within 31 ms\n")

    assert shown.exit_code == 0
    assert "was fixed by editing settings.py" in shown.output
    assert "came back 1 time" in shown.output
    assert json.loads(as_json.output)[0]["sessions"] == ["scripted:first", "scripted:second"]
    assert CliRunner().invoke(main, ["fix", "an error nobody met"]).exit_code == 4


def test_errors_never_seen_are_answered_with_nothing(tmp_path: Path) -> None:
    memory = remembered(tmp_path, met_and_fixed(), green("calc", 1, "calc", -1), green("tax", 2, "tax", 8, 9))
    chance = random.Random(11)
    words = ["walrus", "seal", "herring", "net", "ice", "floe", "tusk", "keeper", "bucket", "basket"]
    shapes = (
        "{0}Error: no {1} in the {2}",
        "src/{1}.ts:{3}:5 - error TS2{3}: {2} is not assignable to {0}",
        "FAILED tests/test_{1}.py::test_{2} - assert {3} == 0",
        "E       assert {3} == 0",
        "tests/test_{1}.py:{3}: AssertionError",
        "AssertionError: assert '{1}' == '{2}'",
        "E   AssertionError: {3} != 7",
        "ValueError: {3}",
    )

    for number in range(400):
        one, two, three = chance.sample(words, 3)
        text = shapes[number % len(shapes)].format(one.title(), two, f"{three}{number}x", chance.randrange(100, 999))
        assert memory.knowledge.fixes(text) == [], text


def gist_of(folder: Path, old: str, new: str) -> str:
    script = Script("gist", 0).user("the nightly job fails").run("python jobs/nightly.py", "pool.Timeout: none left", 1)
    script.edit("/srv/shop/pool.py", old, new).run("python jobs/nightly.py", "done").agent("Done.")
    return remembered(folder, script).knowledge.fixes("pool.Timeout: none left")[0].steps[0].gist


def test_a_line_that_only_moved_is_no_change(tmp_path: Path) -> None:
    gist = gist_of(tmp_path, "go()\nsize = 5", "if ready:\n    go()\n    size = 20")

    assert gist == "`size = 5` became `size = 20`"


def test_long_lines_are_shown_where_they_differ(tmp_path: Path) -> None:
    line = 'pattern = re.compile(r"checkpoint: [0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]"{})'

    gist = gist_of(tmp_path, line.format(""), line.format(", re.ASCII"))

    assert gist.startswith("`…") and "re.ASCII" in gist
