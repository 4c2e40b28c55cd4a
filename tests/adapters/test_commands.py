"""What is told of a program's output."""

import pytest

from recollect.agentkit.calls import error_line


@pytest.mark.parametrize(
    ("output", "line"),
    [
        ("TypeError: x is not a function\n    at handleError (a.js:1)\n    at failFast (b.js:2:7)", "TypeError"),
        ("thread panicked\n   at /rustc/1a2b/core/panicking.rs:652:5\n   at Error.new (<anonymous>)", "thread"),
        ("ld: symbol is undefined\n0 errors, 0 failures reported by lint", "ld:"),
        ("ld: symbol is undefined\nErrors: 0, Failures: 0", "ld:"),
        ("no rule to make x\ncc -Werror -o x\nexit 2", "exit 2"),
        ("all fine\nTests: 2 failed, 0 errors\nbye", "Tests: 2 failed"),
        ("all fine\n10 errors\nbye", "10 errors"),
        ("all fine\nat least one check failed (see above)\nbye", "at least one"),
        ("--- FAIL: TestSum\nok", "--- FAIL"),
        ("", ""),
    ],
)
def test_the_line_is_found_that_says_what_went_wrong(output: str, line: str) -> None:
    assert error_line(output).startswith(line)
