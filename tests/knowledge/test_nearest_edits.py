"""A fix is the edit that belongs to the error: of its line or its symbols, and only if it lasted and helped."""

from pathlib import Path

import pytest

from recollect.knowledge.records import Fix
from tests.knowledge.sessions import Script, remembered

POOL = "/srv/shop/pool.go"


def fix_of(folder: Path, script: Script, error: str) -> Fix:
    (fix,) = (fix for fix in remembered(folder, script).knowledge.fixes(error) if fix.is_same_error)
    return fix


def linted(name: str, *errors: str) -> Script:
    return Script(name).user("make the lint pass").run("make lint", "\n".join(errors), 1)


def test_of_several_edits_the_one_of_the_line_that_the_error_names_is_told(tmp_path: Path) -> None:
    script = (
        linted("line", "pool.go:40:2: value is never checked (errcheck)")
        .edit(POOL, "open()", "open(10)", 7)
        .edit(POOL, "drain()", "log(drain())", 40)
        .edit(POOL, "shut()", "shut(now)", 90)
        .run("make lint", "0 issues")
    )

    fix = fix_of(tmp_path, script, "pool.go:40:2: value is never checked (errcheck)")

    assert [step.gist for step in fix.steps] == ["`drain()` became `log(drain())`"]


def test_lines_that_earlier_edits_moved_are_found_where_they_were(tmp_path: Path) -> None:
    script = (
        linted("moved", "pool.go:40:2: value is never checked (errcheck)")
        .edit(POOL, "open()", "open(\n10,\n20,\n)", 7)
        .edit(POOL, "drain()", "log(drain())", 43)
        .edit(POOL, "fill()", "log(fill())", 40)
        .run("make lint", "0 issues")
    )

    fix = fix_of(tmp_path, script, "pool.go:40:2: value is never checked (errcheck)")

    assert fix.steps[0].gist == "`drain()` became `log(drain())`"


def test_each_error_of_a_list_has_the_edit_that_names_it(tmp_path: Path) -> None:
    first, second = "pool.go:8: undefined: drainPool", "pool.go:30: undefined: fillPool"
    script = (
        linted("listed", first, second)
        .edit(POOL, "drainPool()", "drain()")
        .edit(POOL, "fillPool()", "fill()")
        .run("make lint", "0 issues")
    )

    memory = remembered(tmp_path, script)

    gists = [[step.gist for step in memory.knowledge.fixes(error)[0].steps] for error in (first, second)]
    assert gists == [["`drainPool()` became `drain()`"], ["`fillPool()` became `fill()`"]]


def test_an_edit_for_another_error_is_not_credited(tmp_path: Path) -> None:
    error = "pool.go:8: undefined: drainPool"
    script = (
        linted("other", error, "till.go:3: undefined: countCoins")
        .edit(POOL, "drainPool()", "drain()")
        .edit("/srv/shop/till.go", "countCoins()", "count()")
        .run("make lint", "0 issues")
    )

    fix = fix_of(tmp_path, script, error)

    assert [step.name for step in fix.steps] == ["pool.go"]


def test_where_nothing_tells_which_edit_it_was_only_the_file_is_told(tmp_path: Path) -> None:
    error = "pool.go:300:2: this is hard to follow (funlen)"
    script = (
        linted("untold", error)
        .edit(POOL, "open()", "open(10)", 7)
        .edit(POOL, "drain()", "drain(20)", 90)
        .run("make lint", "0 issues")
    )

    fix = fix_of(tmp_path, script, error)

    assert [(step.name, step.gist) for step in fix.steps] == [("pool.go", "")]
    assert fix.confidence < 0.7


def test_a_comment_that_silences_another_linter_is_not_the_fix(tmp_path: Path) -> None:
    error = "pool.go:42:9: error returned from another package is unwrapped (wrapcheck)"
    script = (
        linted("silent", error, "pool.go:40:2: G304: file inclusion via variable (gosec)")
        .edit(POOL, "f, err := open(path)", "f, err := open(path) //nolint:gosec // our own path", 40)
        .edit(POOL, "return err", "return wrap(err)", 42)
        .run("make lint", "0 issues")
    )

    memory = remembered(tmp_path, script)

    assert memory.knowledge.fixes(error)[0].steps[0].gist == "`return err` became `return wrap(err)`"
    other = memory.knowledge.fixes("pool.go:40:2: G304: file inclusion via variable (gosec)")[0]
    assert "//nolint:gosec" in other.steps[0].gist


def test_what_was_written_anew_before_it_helped_is_not_the_fix(tmp_path: Path) -> None:
    error = "pool.go:8: cannot use newConfig() as plainConfig value"
    script = (
        linted("anew", error)
        .edit(POOL, 'import "config"', 'import "newConfig/plain"', 3)
        .run("make build", "pool.go:3: no module is called newConfig/plain", 1)
        .edit(POOL, "pool.raw = newConfig()", "pool.raw = nil", 8)
        .edit(POOL, 'import "newConfig/plain"', "", 3)
        .run("make lint", "0 issues")
    )

    fix = fix_of(tmp_path, script, error)

    assert fix.steps[0].gist == "`pool.raw = newConfig()` became `pool.raw = nil`"


@pytest.mark.parametrize("undoing", ["edit", "git checkout -- pool.go"])
def test_an_edit_that_is_undone_later_fixed_nothing(tmp_path: Path, undoing: str) -> None:
    error = "pool.go:8: undefined: drainPool"
    script = linted("undone", error).edit(POOL, "drainPool()", "drain()").run("make lint", "0 issues")
    script.agent("The original was correct: I take it back.")
    script = script.edit(POOL, "drain()", "drainPool()") if undoing == "edit" else script.run(undoing, "")

    assert not [fix for fix in remembered(tmp_path, script).knowledge.fixes(error) if fix.confidence >= 0.6]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("func TestDrain(t *testing.T) {\nt.Error(drained)\n}", "// hard to test"),
        ('if drained != 4 {\nt.Errorf("drained %d, want 4", drained)\n}', ""),
    ],
    ids=["the test", "its check"],
)
def test_deleting_what_failed_is_no_fix(tmp_path: Path, before: str, after: str) -> None:
    output = "--- FAIL: TestDrain (0.01s)\n    pool_test.go:8: drained 3, want 4\nFAIL\n"
    script = (
        Script("deleted")
        .user("make the tests pass")
        .run("go test ./...", output, 1, is_test=True)
        .edit("/srv/shop/pool_test.go", before, after, 7)
        .run("go test ./...", "ok  \tshop\t0.1s", is_test=True)
    )

    assert remembered(tmp_path, script).knowledge.fixes("pool_test.go:8: drained 3, want 4") == []


@pytest.mark.parametrize(
    "sentence",
    [
        "The tills are off because `countCoins` rounds down.",
        "There are only 2 failing tests, so this must be the issue.",
        "The pool might be missing its drain.",
        "The test for the pool drain fails at line 8, it is not drained.",
    ],
    ids=["of another symbol", "a count", "a guess", "what fails, not why"],
)
def test_what_does_not_explain_this_error_is_no_reason(tmp_path: Path, sentence: str) -> None:
    error = "pool.go:8: undefined: drainPool"
    script = linted("why", error).agent(sentence).edit(POOL, "drainPool()", "drain()").run("make lint", "0 issues")

    assert fix_of(tmp_path, script, error).why is None


def test_a_reason_that_is_taken_back_gives_way_to_the_next(tmp_path: Path) -> None:
    error = "pool.go:8: undefined: drainPool"
    script = (
        linted("back", error)
        .agent("`drainPool` is missing its import.")
        .agent("Wait, that is not it. `drainPool` was renamed, so it must be called drain.")
        .edit(POOL, "drainPool()", "drain()")
        .run("make lint", "0 issues")
    )

    why = fix_of(tmp_path, script, error).why

    assert why is not None and "renamed" in why


def test_a_function_is_named_by_the_name_of_its_test(tmp_path: Path) -> None:
    failed = "FAILED pool_test.py::test_drain - assert 3 == 4"
    script = Script("test").user("make the tests pass").run("pytest -q", f"{failed}\n1 failed in 0.1s", 1)
    script.agent("The cause: `drain()` stops one too early.").edit(
        "/srv/shop/pool.py", "range(count)", "range(count + 1)"
    )

    fix = fix_of(tmp_path, script.run("pytest -q", "1 passed in 0.1s"), failed)

    assert fix.why == "The cause: `drain()` stops one too early."


ERROR = "Error: Cannot launch inside another session"


def reported(name: str) -> Script:
    return Script(name).user(f"I get this:\n{ERROR}\nWhat is wrong?")


def test_a_reported_error_has_a_fix_only_if_a_run_showed_it(tmp_path: Path) -> None:
    seen = reported("seen").run("python spawn.py", ERROR, 1)
    seen.edit("/srv/shop/spawn.py", "env = os.environ", "env = clean(os.environ)").run("python spawn.py", "ok")
    said = reported("said").edit("/srv/shop/spawn.py", "env = os.environ", "env = clean(os.environ)")

    assert remembered(tmp_path / "seen", seen).knowledge.fixes(ERROR)[0].confidence >= 0.6
    assert remembered(tmp_path / "said", said.user("thanks, works")).knowledge.fixes(ERROR) == []


def test_a_complaint_that_shows_no_error_has_no_fix(tmp_path: Path) -> None:
    script = (
        Script("complaint")
        .user("this is still not working perfectly, can you check the tills?")
        .agent("Found the issue: the tills are counted twice because the loop starts at zero.")
        .edit("/srv/shop/till.py", "range(0, n)", "range(1, n)")
        .agent("Done.")
    )

    assert remembered(tmp_path, script).knowledge.fixes("this is still not working perfectly") == []


def test_an_error_cut_short_is_told_as_it_was_last_met(tmp_path: Path) -> None:
    said = (
        "pool.go:9:2: cannot use quiet{} as Logger value in a struct literal: " + "very " * 30 + "long; missing method "
    )
    script = (
        linted("long", f"{said}Debugf (typecheck)")
        .edit(POOL, "", "func (quiet) Debugf() {}", 50)
        .run("make lint", f"{said}Warnf (typecheck)", 1)
        .edit(POOL, "", "func (quiet) Warnf() {}", 51)
        .run("make lint", "0 issues")
    )

    fix = fix_of(tmp_path, script, f"{said}Debugf (typecheck)")

    assert "Warnf" in fix.headline and fix.steps[0].gist == "added `func (quiet) Warnf() {}`"
