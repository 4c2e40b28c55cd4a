"""What a test run says of the tests."""

import pytest

from recollect.agentkit.calls import shell_kind
from recollect.digest.shell import verdict
from recollect.model.kinds import TEST_RUN

OK = "?   \tx/cmd\t[no test files]\nok  \tx/a\t0.1s\nok  \tx/b\t(cached)"
FAILED = "--- FAIL: TestA (0.1s)\nFAIL\nFAIL\tx/a\t0.1s\nFAIL"


@pytest.mark.parametrize(
    ("command", "output", "has_failed", "expected"),
    [
        ("go test ./...", OK, False, True),
        ("mise run test 2>&1", OK + "\n[test] $ go test ./...", False, True),
        ("go test ./... 2>&1 | tail -5", OK, False, True),
        ("go test ./... 2>&1 | tail -5", FAILED, False, False),
        ("go test ./... | grep -A 5 TestA", "", False, None),
        ("go test ./... | grep -A 5 TestA", "", True, None),
        ("go test -v ./... | head -2", "--- PASS: TestA (0.1s)\n--- PASS: TestB (0.1s)", False, None),
        ("go test -v ./... | head -50", "--- PASS: TestA (0.1s)\nPASS", False, True),
        ("go test ./... | head -50", "FAIL\tx [build failed]\n" + OK, False, False),
        (
            "go test ./... -run Nothing",
            "testing: warning: no tests to run\nPASS\nok  \tx\t0.1s [no tests to run]",
            False,
            None,
        ),
        ("go test . -run TestA", "# .\nno Go files in /x\nFAIL\t. [setup failed]\nFAIL", True, None),
        ("mise run test && mise run lint", OK + "\nx.go:7: unchecked error (errcheck)", True, True),
        ("mise run lint && mise run test", "x.go:7: unchecked error (errcheck)", True, None),
        ("cd web; npm test", "Tests: 1 failed, 3 passed", True, False),
        ("set -o pipefail; go test ./... | tail -3", "no words at all", True, False),
        ("go test ./... 2>&1 | Select-Object -Last 5", OK, False, True),
        ("bun test | tail", "2 pass\n1 fail\nRan 3 tests across 1 files.", False, False),
        ("node --test | tail", "# tests 5\n# pass 4\n# fail 1", False, False),
        ("node --test | tail", "# tests 5\n# pass 5\n# fail 0", False, True),
        ("npx mocha | tail", "  5 passing (10ms)\n  1 failing", False, False),
        ("dotnet test | tail", "Failed!  - Failed:     1, Passed:     4, Skipped:     0", False, False),
        ("mvn test | tail", "Tests run: 5, Failures: 1, Errors: 0, Skipped: 0", False, False),
        ("mvn test | tail", "Tests run: 5, Failures: 0, Errors: 2, Skipped: 0", False, False),
        ("vendor/bin/phpunit | tail", "FAILURES!\nTests: 5, Assertions: 9, Failures: 1.", False, False),
        ("swift test | tail", "Executed 12 tests, with 0 failures (0 unexpected)", False, True),
        ("flutter test | tail", "00:03 +4 -1: Some tests failed.", False, False),
        ("sbt test | tail", "[info] Passed: Total 5, Failed 0, Errors 0, Passed 5", False, True),
        ("sbt test | tail", "[error] Failed: Total 5, Failed 1, Errors 0, Passed 4", False, False),
        ("Invoke-Pester | Out-String", "Tests Passed: 5, Failed: 0, Skipped: 0", False, True),
        ("Invoke-Pester | Out-String", "Tests Passed: 4, Failed: 1, Skipped: 0", False, False),
        ("tox | tail", "  py311: OK (3.2 seconds)\n  congratulations :)", False, True),
        ("tox | tail", "  py311: FAIL code 1 (3.2 seconds)\n  evaluation failed :(", False, False),
        ("Set-Location web; npm test", "it broke", True, False),
        (r".\\gradlew.bat test", "BUILD SUCCESSFUL in 2s", False, True),
        (r"C:\\py\\python.exe -m pytest -q", "3 passed in 0.1s", False, True),
    ],
)
def test_a_run_is_judged_by_its_own_words_and_by_an_exit_code_that_is_its_own(
    command: str, output: str, has_failed: bool, expected: bool | None
) -> None:
    summary = "exit 1: " + output.rpartition("\n")[2] if has_failed else output[:80]

    assert verdict(command, summary, output, has_failed=has_failed) is expected


@pytest.mark.parametrize(
    "command",
    ["vendor/bin/phpunit | tail", "bundle exec rspec | tail", "cd app && phpunit", "Invoke-Pester -Output None"],
)
def test_a_runner_of_any_language_runs_tests(command: str) -> None:
    assert shell_kind(command) == TEST_RUN
