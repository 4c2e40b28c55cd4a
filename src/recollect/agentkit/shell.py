"""Shell commands: which of them run tests, and what their output says went wrong."""

import re

from recollect.kinds import TEST_RUN, TOOL_CALL

# A runner counts as such only where a command may start: after a separator, `sudo`, an assignment, a launcher.
_LAUNCHERS = (
    r"(?:(?:sudo|time|env|npx|bunx|(?:uv|poetry|pdm|hatch|pipenv|rye) run|(?:bundle|composer) exec|xvfb-run|timeout \S+"
    r"|[A-Z_][A-Z0-9_]*=\S*)\s+)*"
)
_PYTHON = r"(?:\S*/)?python[0-9.]*\s+(?:-\S+\s+)*-m\s+"
_RUNNERS = (
    rf"(?:{_PYTHON})?(?:\S*/)?(?:pytest|py\.test|nose2?|tox|nox)\b",
    rf"{_PYTHON}(?:unittest|doctest)\b",
    r"(?:\S*/)?(?:jest|vitest|mocha|ava|karma|playwright test|cypress run|phpunit|rspec|bats|ctest|busted)\b",
    r"(?:npm|pnpm|yarn|bun|deno)\s+(?:run\s+)?(?:-\S+\s+)*(?:test|t|vitest|jest)(?=$|[\s:;&|])",
    r"(?:go|cargo|dotnet|swift|mix|zig build|flutter|dart|sbt|lein|stack|cabal|dune|rake|rails)"
    r"\s+(?:test|spec|nextest)\b",
    r"(?:\S*/)?(?:mvnw?|gradlew?)\s+(?:\S+\s+)*(?:\S*:)?(?:test|verify|check)\b",
    r"make\s+(?:-\S+\s+)*(?:test|tests|check)(?=$|[\s;&|-])",
    r"node\s+(?:-\S+\s+)*--test\b",
    r"bazel\s+test\b",
    r"Invoke-Pester\b",
)
# Most commands hold none of these words; looking for them first is far quicker than the whole pattern.
_TEST_WORD = re.compile(r"test|spec|check|tox|nox|nose|mocha|ava|karma|cypress|bats|busted|verify|unit|Pester| t\b")
_TEST_COMMAND = re.compile(rf"(?:^|[;&|(\n]\s*|&&\s*){_LAUNCHERS}(?:{'|'.join(_RUNNERS)})")

# Most lines with which a program reports a failure hold one of these.
_FAILURE = re.compile(
    r"error|exception|fail|fatal|panic|cannot|can't|not found|no such|denied|unknown|invalid|undefined|unable|conflict",
    re.IGNORECASE,
)
# Such words where nothing failed: a count of zero, an option of a program, a frame of a stack.
_NO_FAILURE = re.compile(
    r"\b(?:0|no) (?:errors?|fail(?:ed|ures?)|exceptions?|conflicts?)\b|\b(?:errors?|fail(?:ed|ures?))\s?[:=]\s?0\b"
    r"|(?<!\S)-\S+|^\s*at\s.*(?::\d+|<anonymous>|native(?: \w+)?)\)?\s*$",
    re.IGNORECASE,
)
_SEARCHED_CHARS = 800  # at each end of an output


def shell_kind(command: str) -> str:
    """The kind of a call that runs a shell command: a test run if it runs a test suite."""
    command = command[:20_000]
    return TEST_RUN if _TEST_WORD.search(command) and _TEST_COMMAND.search(command) else TOOL_CALL


def error_line(output: str) -> str:
    """The line of a failed program's output that says what went wrong.

    Usually the last one, but hints may follow it, and so may whatever else the program still did.
    """
    end = output[-_SEARCHED_CHARS:].rstrip().splitlines()
    lines = (*reversed(end), *output[:_SEARCHED_CHARS].splitlines())
    return next(
        (line for line in lines if _FAILURE.search(line) and _FAILURE.search(_NO_FAILURE.sub("", line))),
        end[-1] if end else "",
    )
