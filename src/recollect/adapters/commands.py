"""What adapters of all agents say alike about text, shell commands and inline media."""

import base64
import hashlib
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson

from recollect.schema import SUMMARY_CHARS, TEST_RUN, TOOL_CALL
from recollect.text import TERMINAL_CONTROL

# A runner counts as such only where a command may start: after a separator, `sudo`, an assignment, a launcher.
_LAUNCHERS = (
    r"(?:(?:sudo|time|env|npx|bunx|(?:uv|poetry|pdm|hatch|pipenv|rye) run|xvfb-run|timeout \S+"
    r"|[A-Z_][A-Z0-9_]*=\S*)\s+)*"
)
_PYTHON = r"(?:\S*/)?python[0-9.]*\s+(?:-\S+\s+)*-m\s+"
_RUNNERS = (
    rf"(?:{_PYTHON})?(?:\S*/)?(?:pytest|py\.test|nose2?|tox|nox)\b",
    rf"{_PYTHON}(?:unittest|doctest)\b",
    r"(?:\S*/)?(?:jest|vitest|mocha|ava|karma|playwright test|cypress run|phpunit|rspec|bats|ctest|busted)\b",
    r"(?:npm|pnpm|yarn|bun|deno)\s+(?:run\s+)?(?:-\S+\s+)*(?:test|t|vitest|jest)(?=$|[\s:;&|])",
    r"(?:go|cargo|dotnet|swift|mix|zig build|flutter|dart|sbt|lein|stack|cabal|dune|(?:bundle exec )?rake|rails)"
    r"\s+(?:test|spec|nextest)\b",
    r"(?:\S*/)?(?:mvnw?|gradlew?)\s+(?:\S+\s+)*(?:\S*:)?(?:test|verify|check)\b",
    r"make\s+(?:-\S+\s+)*(?:test|tests|check)(?=$|[\s;&|-])",
    r"node\s+(?:-\S+\s+)*--test\b",
    r"bazel\s+test\b",
)
# Most commands hold none of these words, and looking for them first is far quicker than the whole pattern.
_TEST_WORD = re.compile(r"test|spec|check|tox|nox|nose|mocha|ava|karma|cypress|bats|busted|verify| t\b")
_TEST_COMMAND = re.compile(rf"(?:^|[;&|(\n]\s*|&&\s*){_LAUNCHERS}(?:{'|'.join(_RUNNERS)})")

_TERMINAL_CONTROL = re.compile(TERMINAL_CONTROL)

# What is in most lines with which a program says that something went wrong.
_SAYS_WRONG = re.compile(
    r"error|exception|fail|fatal|panic|cannot|can't|not found|no such|denied|unknown|invalid|undefined|unable|conflict",
    re.IGNORECASE,
)
# What holds such a word and says nothing: that nothing went wrong, the options of a program, a frame of a stack.
_SAYS_NOTHING = re.compile(
    r"\b(?:0|no) (?:errors?|fail(?:ed|ures?)|exceptions?|conflicts?)\b|\b(?:errors?|fail(?:ed|ures?))\s?[:=]\s?0\b"
    r"|(?<!\S)-\S+|^\s*at\s.*(?::\d+|<anonymous>|native(?: \w+)?)\)?\s*$",
    re.IGNORECASE,
)
_ENDS_CHARS = 800  # of an output's beginning and end that are looked through


def is_test_command(command: str) -> bool:
    """Whether a shell command runs a test suite."""
    command = command[:20_000]
    return _TEST_WORD.search(command) is not None and _TEST_COMMAND.search(command) is not None


def shell_kind(command: str) -> str:
    return TEST_RUN if is_test_command(command) else TOOL_CALL


def summarise(text: str) -> str:
    """One line of at most SUMMARY_CHARS characters, without colours and control characters."""
    line = " ".join(text[: SUMMARY_CHARS + 40].split())
    if not line.isprintable():
        line = "".join(char for char in _TERMINAL_CONTROL.sub("", line) if char.isprintable())
    return line if len(line) <= SUMMARY_CHARS else line[: SUMMARY_CHARS - 1].rstrip() + "…"


def error_line(output: str) -> str:
    """The line of a failed program's output that says what went wrong.

    Mostly the last one, but hints may follow it, and so may all that the program could still do.
    """
    end = output[-_ENDS_CHARS:].rstrip().splitlines()
    lines = (*reversed(end), *output[:_ENDS_CHARS].splitlines())
    return next((line for line in lines if _says_wrong(line)), end[-1] if end else "")


def _says_wrong(line: str) -> bool:
    return _SAYS_WRONG.search(line) is not None and _SAYS_WRONG.search(_SAYS_NOTHING.sub("", line)) is not None


def retry_key(tool: str, arguments: Any) -> str:
    """Equal for two calls of the same tool with the same arguments, whatever their white space.

    Raises TypeError for what JSON writers refuse: lone surrogates, numbers over 64 bits, depth over 254.
    """
    text = orjson.dumps([tool, arguments], option=orjson.OPT_SORT_KEYS)
    return hashlib.blake2b(text.translate(None, b" \t"), digest_size=8).hexdigest()


def media_reference(kind: str, mime: str | None, data: str, path: str | None = None) -> dict[str, Any]:
    """What is kept of inline base64 media: never the bytes themselves."""
    try:
        content = base64.b64decode(data.partition("base64,")[2] or data)
    except ValueError:
        content = data.encode("utf-8", "replace")
    reference: dict[str, Any] = {
        "kind": kind,
        "mime": mime,
        "sha256": hashlib.sha256(content).hexdigest(),
        "bytes": len(content),
    }
    return reference | ({"path": path} if path else {})


def parse_time_ms(value: Any) -> int | None:
    """Milliseconds since 1970 of an RFC 3339 text; None for anything else, or for a year no clock shows."""
    if value.__class__ is not str:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except ValueError:
        return None
    if moment.tzinfo is None or not 1970 <= moment.year <= 9000:
        return None
    return round(moment.timestamp() * 1000)


def positive_int(value: Any) -> int:
    """A count as told by a log; 0 for what is no count, or larger than any a sum of them could hold."""
    return value if isinstance(value, int) and 0 < value <= 10**12 else 0


def as_mapping(value: Any) -> Mapping[str, Any]:
    """The value if it is an object, else an empty one: logs hold strings where objects are usual."""
    return value if isinstance(value, dict) else {}
