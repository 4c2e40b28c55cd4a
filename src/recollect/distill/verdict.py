"""How a test run went: by its exit code where that is the tests' own, else by what the tests printed."""

import re

from recollect.distill import shell

_TAIL_CHARS = 2500  # of an output, where the count is printed

_FAILED = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:fail(?:ed|ing)?|failures?|errors?)\b|\bFAILED\b|^FAIL\b|\bfailures=[1-9]"
    r"|test result: FAILED|\bTests?:\s+[1-9]\d* failed|\bnot ok \d+|--- FAIL:|\[\S*test\S*\] ERROR task failed"
    r"|\bFail(?:ed|ures): +[1-9]|\bTests run: .*Errors: [1-9]|\bTotal \d+, Failed [1-9]|^FAILURES!|^# fail [1-9]"
    r"|\bSome tests failed|\[ FAIL [1-9]|: FAIL code [1-9]",
    re.MULTILINE,
)
# Where a pipe cuts the end off, these say it wherever they stand.
_FAILED_ANYWHERE = ("\n--- FAIL:", "\nFAIL\t", "\nFAIL ", "[build failed]")
# What checkers of style and types say at the end: their errors are not the tests'.
_LINTED = re.compile(
    r"^.*(?:\bproblems? \(\d|\bFound \d+ errors?\b|\berrors?(?:,| and) \d+ warnings?).*$", re.MULTILINE
)
_PASSED = re.compile(
    r"^ok\s+\S|^\s*--- PASS:|^PASS\b|\b[1-9]\d* (?:tests? )?pass(?:ed|ing)\b|\bRan [1-9]\d* tests?\b|^OK \(\d"
    r"|\b[1-9]\d* tests?, 0 fail|\b[1-9]\d* examples?, 0 failures|\b100% tests passed|\bBUILD SUCCESS|\bAll tests pass"
    r"|^# pass [1-9]|\bPassed!|\bExecuted [1-9]\d* tests?, with 0 failures|\bPassed: Total [1-9]|\bTests Passed: [1-9]"
    r"|\[ FAIL 0 .*PASS [1-9]|: OK \(\d|\"Action\":\"pass\"",
    re.MULTILINE,
)
# Packages of which nothing was run.
_NOTHING_RUN = re.compile(
    r"^(?:testing: warning: no tests to run\s+PASS\s+)?(?:ok|\?)\s+\S.*\[no test(?:s to run| files)\]$", re.MULTILINE
)
_NO_TESTS = re.compile(
    r"\bno tests? (?:ran|run|found|collected|were (?:run|found|executed)|to run)\b|\bno test files\b"
    r"|\bcollected 0 items\b|\bran 0 tests\b|\brunning 0 tests\b|\btests? run: 0\b|\b0 passing\b|\b0 examples\b"
)
# The run itself did not take place, or nobody saw it end.
_NOT_RUN = re.compile(
    r"timed? ?out|command not found|not recognized as|no such file or directory|could not find `cargo\.toml`"
    r"|rejected\(|sandbox denied|no tests? (?:ran|found|collected)|collected 0 items$|exit 127\b|needs? approval"
    r"|\[setup failed\]"
)


def verdict(command: str, summary: str, output: str, *, has_failed: bool) -> bool | None:
    """Whether tests passed; None if the run says nothing of them. `summary` is the line that tells its result."""
    if "[setup failed]" in output and "--- FAIL" not in output:
        return None
    if tests_failed(output):
        return False
    if has_failed and _NOT_RUN.search(summary.lower()):
        return None
    passed = _PASSED.search(_NOTHING_RUN.sub("", output[-_TAIL_CHARS:])) is not None
    if not passed and _NO_TESTS.search(output[-_TAIL_CHARS:].lower()):
        return None
    exit_code = shell.exit_of_tests(command)
    if has_failed:
        return False if exit_code.tells_failure else passed or None
    if exit_code.tells_success:
        return True
    return (passed and not shell.is_cut_by_head(command, output)) or None


def tests_failed(output: str) -> bool:
    """Whether a test run's own words say that tests failed, whatever its exit code was."""
    if any(mark in output for mark in _FAILED_ANYWHERE):
        return True
    tail = output[-_TAIL_CHARS:]
    lower = tail.lower()
    if "fail" not in lower and "error" not in lower and "not ok" not in lower:
        return False
    return _FAILED.search(_LINTED.sub("", tail)) is not None
