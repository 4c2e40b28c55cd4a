"""A fix cites a run that passed only if one did: whatever cannot be seen closes no error."""

from pathlib import Path

import pytest

from recollect.digest import shell
from recollect.knowledge.records import Fix
from tests.knowledge.sessions import Script, remembered


def fixes_of(folder: Path, script: Script, error: str) -> list[Fix]:
    return [fix for fix in remembered(folder, script).knowledge.fixes(error) if fix.is_same_error]


def built(error: str, *, command: str = "go build ./...") -> Script:
    return (
        Script("build")
        .user("make it build")
        .run(command, f"./a.go:5:2: undefined: {error}", 1)
        .edit("/srv/shop/a.go", "fooHelper()", "barHelper()")
    )


def test_an_error_that_another_one_took_the_place_of_is_gone_not_passed(tmp_path: Path) -> None:
    script = built("fooHelper").run("go build ./...", "./a.go:5:2: undefined: barHelper", 1).agent("It fails.")

    (fix,) = fixes_of(tmp_path, script, "./a.go:5:2: undefined: fooHelper")

    quotes = [one.quote for one in fix.evidence]
    assert not any("passed" in quote for quote in quotes)
    assert "the error was gone in the next run, which failed otherwise: ./a.go:5:2: undefined: barHelper" in quotes
    assert "was fixed" not in fix.text
    assert fix.confidence < 0.6


def test_a_run_that_passed_is_cited_as_such(tmp_path: Path) -> None:
    script = built("fooHelper").run("go build ./...", "")

    (fix,) = fixes_of(tmp_path, script, "./a.go:5:2: undefined: fooHelper")

    assert "then passed: go build ./..." in [one.quote for one in fix.evidence]
    assert fix.confidence >= 0.6


@pytest.mark.parametrize(
    ("failing", "later"),
    [
        ("./harness.sh verify-rewind", "./harness.sh cleanup"),  # another sub-command
        ("python jobs/nightly.py", "python jobs/orders.py"),
        ("go run ./cmd list | python3 -c 'print(eval(1x))'", "go run ./cmd list | grep -o Name | head -1"),
        ("golangci-lint run", "golangci-lint run | head -1"),  # a filter cannot fail
        ("make site", "make site | grep -c page"),
        ("make site", "make site || true"),
        ("make site", "make site; ls"),
        ("make fmt && make lint", "make fmt && make test"),  # what failed was not run
    ],
)
def test_a_run_that_does_not_show_how_it_went_closes_nothing(tmp_path: Path, failing: str, later: str) -> None:
    script = (
        Script("again")
        .user("look after it")
        .run(failing, "Error: the page cannot be written", 1)
        .edit("/srv/shop/page.go", "max = 50", "max = 200")
        .run(later, "done")
    )

    assert fixes_of(tmp_path, script, "Error: the page cannot be written") == []


def test_tests_whose_end_was_cut_off_close_nothing(tmp_path: Path) -> None:
    script = (
        Script("cut")
        .user("make the tests pass")
        .run("npm run test:ci", "--- FAIL: TestPool\n1 failed", 1, is_test=True)
        .edit("/srv/shop/pool.go", "n = 1", "n = 2")
        .run("npm run test:ci | head -2", "ok  a\nok  b", is_test=True)
    )

    assert fixes_of(tmp_path, script, "--- FAIL: TestPool") == []


def test_building_the_tests_does_not_show_that_they_pass(tmp_path: Path) -> None:
    script = (
        Script("built")
        .user("make the tests pass")
        .run("go test ./pool", "--- FAIL: TestPool\n1 failed", 1, is_test=True)
        .edit("/srv/shop/pool.go", "n = 1", "n = 2")
        .run("go test -c ./pool", "")
    )

    assert fixes_of(tmp_path, script, "--- FAIL: TestPool") == []


def test_tests_that_no_longer_compile_do_not_show_that_one_passes(tmp_path: Path) -> None:
    script = (
        Script("compile")
        .user("make the tests pass")
        .run("go test ./...", "--- FAIL: TestPool\n    pool_test.go:9: want 3, got 2", 1, is_test=True)
        .edit("/srv/shop/pool.go", "n = 1", "n = m")
        .run("go test ./...", "./pool.go:3:5: undefined: m\nFAIL shop/pool [build failed]", 1, is_test=True)
    )

    assert fixes_of(tmp_path, script, "--- FAIL: TestPool") == []


def test_a_suite_that_passes_again_closes_the_test_that_was_looked_at_by_itself(tmp_path: Path) -> None:
    script = (
        Script("suite")
        .user("make the tests pass")
        .run("make test", "1 failed", 1, is_test=True)
        .run("go test ./pool -run TestPool", "--- FAIL: TestPool\n1 failed", 1, is_test=True)
        .edit("/srv/shop/pool.go", "n = 1", "n = 2")
        .run("make test", "12 passed", is_test=True)
    )

    (fix,) = fixes_of(tmp_path, script, "--- FAIL: TestPool")

    assert "then passed: make test" in [one.quote for one in fix.evidence]


def test_other_tests_that_pass_again_close_nothing(tmp_path: Path) -> None:
    script = (
        Script("others")
        .user("make the tests pass")
        .run("go test ./cache", "1 failed", 1, is_test=True)
        .run("go test ./pool -run TestPool", "--- FAIL: TestPool\n1 failed", 1, is_test=True)
        .edit("/srv/shop/pool.go", "n = 1", "n = 2")
        .run("go test ./cache", "2 passed", is_test=True)
    )

    assert fixes_of(tmp_path, script, "--- FAIL: TestPool") == []


def test_a_compiler_that_a_pipe_hides_has_failed_if_it_names_a_place(tmp_path: Path) -> None:
    error = "pool.go:7:12: not enough arguments in call to newPool"
    script = (
        Script("hidden")
        .user("make it build")
        .run("go build ./... 2>&1 | head -20", error)
        .edit("/srv/shop/pool.go", "newPool(1)", "newPool(1, 2)")
        .run("go build ./... 2>&1 | head -20", "")
    )

    (fix,) = fixes_of(tmp_path, script, error)

    assert "newPool(1, 2)" in fix.text


def test_what_a_command_writes_into_a_file_is_a_change(tmp_path: Path) -> None:
    script = (
        Script("appended")
        .user("make it build")
        .run("go build ./...", "pool.go:9:2: expected '}', found 'EOF'", 1)
        .run('echo "}" >> pool.go', "")
        .run("go build ./...", "")
    )

    (fix,) = fixes_of(tmp_path, script, "pool.go:9:2: expected '}', found 'EOF'")

    assert [step.name for step in fix.steps] == ['echo "}" >> pool.go']


def test_a_checker_that_counts_its_errors_behind_a_pipe_has_not_passed(tmp_path: Path) -> None:
    script = (
        Script("counted")
        .user("make the types fit")
        .run("mypy src", "pool.py:3: error: incompatible types in the pool  [misc]\nFound 1 error in 1 file", 1)
        .edit("/srv/shop/pool.py", "n = 1", "n = 2")
        .run("mypy src | tail -1", "Found 1 error in 1 file (checked 3 source files)")
    )

    assert fixes_of(tmp_path, script, "pool.py:3: error: incompatible types in the pool  [misc]") == []


@pytest.mark.parametrize(
    "command",
    ["ls > /tmp/out.txt", "pytest 2>&1 | cat", "pytest > out.txt", "test $n -gt 1", "echo 'a > b.txt'"],
)
def test_what_writes_no_file_is_no_change(command: str) -> None:
    assert not shell.writes_file(command)


@pytest.mark.parametrize(
    ("error", "failed", "then"),
    [
        (
            "error: parent comment is not found in this request",
            "gh api comments/7/replies",
            "gh api comments/8/replies",
        ),
        ("fatal: the remote end hung up unexpectedly", "git status -sb", "git status --short"),
        ("unknown flag: --stat", "gh pr diff 88 --stat", "gh pr diff 88 --name-only"),
    ],
)
def test_a_similar_command_that_worked_soon_after_is_no_fix(tmp_path: Path, error: str, failed: str, then: str) -> None:
    script = Script("chance").user("get the comments").run(failed, error, 1).run(then, "[]")

    assert fixes_of(tmp_path, script, error) == []


@pytest.mark.parametrize(
    ("command", "then", "printed"),
    [
        ("make app", "make app", "error: no wheel for quokka, falling back\nbuilt"),
        ("npm run dev", "npm run dev", "Command running in background with ID: b1"),
        ("npm run dev", "npm run dev &", ""),
    ],
    ids=["the line is still printed", "started in the background", "started by the shell"],
)
def test_a_run_that_shows_no_success_closes_no_error(tmp_path: Path, command: str, then: str, printed: str) -> None:
    error = "error: no wheel for quokka, falling back"
    script = Script("open").user("run it").run(command, error, 1).edit("/srv/shop/a.py", "1", "2")

    assert fixes_of(tmp_path, script.run(then, printed), error) == []


@pytest.mark.parametrize(
    "way", ["rm tests/test_rain.py", "git rm -q tests/test_rain.py", "@pytest.mark.skip(reason='later')"]
)
def test_a_test_that_was_deleted_or_skipped_was_not_repaired(tmp_path: Path, way: str) -> None:
    error = "ModuleNotFoundError: No module named 'services.weather'"
    script = Script("rain").user("run the tests")
    script.run("pytest", f"ERROR collecting tests/test_rain.py\n{error}", 2, is_test=True)
    script = script.edit("/srv/shop/tests/test_rain.py", "def", f"{way}\ndef") if way[0] == "@" else script.run(way, "")

    assert fixes_of(tmp_path, script.run("pytest", "12 passed", is_test=True), error) == []


def test_two_errors_of_a_file_that_was_edited_once_were_fixed_by_that_edit(tmp_path: Path) -> None:
    errors = "pool.go:4:2: fields are not sorted (order)\npool.go:9:2: error is not wrapped (wrapcheck)"
    script = (
        Script("listed")
        .user("make the lint pass")
        .run("make lint", errors, 1)
        .edit("/srv/shop/pool.go", "return err", "return wrap(err)")
        .run("make lint", "")
    )

    assert fixes_of(tmp_path, script, "pool.go:9:2: error is not wrapped (wrapcheck)")
