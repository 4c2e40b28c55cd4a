"""Tool calls as every agent's own format is turned into them: edits of files, and shell commands.

Several agents have a tool called `apply_patch`, which takes a text:

    *** Begin Patch
    *** Update File: src/a.py
    *** Move to: src/b.py
    @@ def add(a, b):
    -    return a - b
    +    return a + b
    *** End Patch

Its hunks have no line numbers. `Add File` has a line with `+` for each line of the file, `Delete File` has none.
"""

import re
from collections.abc import Iterator, Mapping
from difflib import SequenceMatcher
from typing import Any, NamedTuple
from zlib import crc32

from recollect.model.kinds import TEST_RUN, TOOL_CALL

NO_NEWLINE = "\\ No newline at end of file"
_PATH_KEYS = ("file_path", "path", "target_file", "notebook_path", "filename", "filePath")
_CONTENT_KEYS = ("content", "contents", "file_text")
_MOST_COMPARED = 4_000_000  # pairs of lines: comparing takes time in their number


class Hunk(NamedTuple):
    """A piece of a file before and after: each line begins with ` `, `-` or `+`, as in a unified diff.

    The starts are the numbers of its first line before and after; None where the log does not have them.
    """

    lines: tuple[str, ...]
    old_start: int | None = None
    new_start: int | None = None
    heading: str = ""

    @property
    def added(self) -> int:
        return [line[:1] for line in self.lines].count("+")

    @property
    def removed(self) -> int:
        return [line[:1] for line in self.lines].count("-")


class FileChange(NamedTuple):
    """A file that was written, deleted, or given another name. Paths are as the log has them."""

    path: str
    renamed_from: str | None = None
    hunks: tuple[Hunk, ...] = ()
    is_new: bool = False
    is_deleted: bool = False


LINE_HASH_CHARS = 6


def line_hash(line: str) -> str:
    """What is kept of a line that an edit wrote when the edit itself is gone: enough to know it again."""
    return f"{crc32(line.strip().encode('utf-8', 'replace')) & 0xFFFFFF:06x}"


def created(path: str, text: str) -> FileChange:
    return FileChange(path, hunks=(replaced("", text, 0, 1),) if text else (), is_new=True)


def deleted(path: str, text: str = "") -> FileChange:
    return FileChange(path, hunks=(replaced(text, "", 1, 0),) if text else (), is_deleted=True)


def replaced(old: str, new: str, old_start: int | None = None, new_start: int | None = None) -> Hunk:
    """The hunk that turns one text into another.

    With starts the texts are whole lines up to the end of the file or of a line; without, they may be pieces of lines.
    """
    before, after = _lines(old, is_whole=old_start is not None), _lines(new, is_whole=new_start is not None)
    return Hunk(tuple(_compared(before, after)), old_start, new_start)


def _lines(text: str, *, is_whole: bool) -> list[str]:
    """The lines of a text; a last one without a line end is marked if that is how the file ends."""
    lines = text.split("\n")
    if not lines[-1]:
        return lines[:-1]
    if is_whole:
        lines[-1] += f"\n{NO_NEWLINE}"
    return lines


def _compared(before: list[str], after: list[str]) -> list[str]:
    # Most edits replace a line or two, with none in common: they need no matcher.
    if len(before) * len(after) > _MOST_COMPARED or set(before).isdisjoint(after):
        return [*(f"-{line}" for line in before), *(f"+{line}" for line in after)]
    lines: list[str] = []
    for step, old_start, old_end, new_start, new_end in SequenceMatcher(None, before, after, False).get_opcodes():
        if step == "equal":
            lines += [f" {line}" for line in before[old_start:old_end]]
        else:
            lines += [f"-{line}" for line in before[old_start:old_end]]
            lines += [f"+{line}" for line in after[new_start:new_end]]
    return lines


def named_path(arguments: Mapping[str, Any]) -> str | None:
    """The file that a call's arguments name, whatever the agent calls the field."""
    paths = (arguments.get(key) for key in _PATH_KEYS)
    return next((path for path in paths if isinstance(path, str) and path), None)


def edited(arguments: Mapping[str, Any]) -> FileChange | None:
    """The change of a call that replaces texts in a file, or writes it; None if it names no file."""
    path = named_path(arguments)
    if path is None:
        return None
    content = next((arguments[key] for key in _CONTENT_KEYS if isinstance(arguments.get(key), str)), None)
    if content is not None:
        return created(path, content)
    listed = arguments.get("edits")
    edits = listed if isinstance(listed, list) else [arguments]
    return FileChange(path, hunks=tuple(_replacements(edits)))


def _replacements(edits: list[Any]) -> Iterator[Hunk]:
    for edit in edits:
        old, new = (edit.get("old_string"), edit.get("new_string")) if isinstance(edit, dict) else (None, None)
        if isinstance(old, str) and isinstance(new, str):
            yield replaced(old, new)


BEGIN = "*** Begin Patch"
_FILE = re.compile(r"^\*\*\* (Add File|Update File|Delete File): (.+?)\s*$", re.MULTILINE)
_END = re.compile(r"^\*\*\* End Patch", re.MULTILINE)
_MOVE = re.compile(r"\A\s*\*\*\* Move to: (.+?)\s*$", re.MULTILINE)
_HUNK = re.compile(r"^@@ ?(.*)$", re.MULTILINE)


def patched_paths(patch: str) -> list[str]:
    """The files that a patch names, in its order; a file that it moves by its old name."""
    return [path for _, path in _FILE.findall(patch)]


def parse_patch(patch: str) -> Iterator[FileChange]:
    """The changes of a patch, in its order."""
    patch = patch[max(0, patch.find(BEGIN)) :]
    end = _END.search(patch)
    patch = patch[: end.start()] if end else patch
    heads = list(_FILE.finditer(patch))
    for number, head in enumerate(heads):
        until = heads[number + 1].start() if number + 1 < len(heads) else len(patch)
        yield _change(head[1], head[2], patch[head.end() : until].removeprefix("\n"))


def _change(action: str, path: str, body: str) -> FileChange:
    if action == "Delete File":
        return FileChange(path, is_deleted=True)
    if action == "Add File":
        lines = (line[1:] for line in body.splitlines() if line.startswith("+"))
        return created(path, "".join(f"{line}\n" for line in lines))
    move = _MOVE.match(body)
    hunks = tuple(_hunks(body[move.end() :] if move else body))
    return FileChange(move[1], path, hunks) if move else FileChange(path, None, hunks)


def _hunks(body: str) -> Iterator[Hunk]:
    """The hunks of an updated file; the first may lack its `@@`."""
    heading = ""
    pieces = _HUNK.split(body.lstrip("\n"))
    for number, piece in enumerate(pieces):
        if number % 2:
            heading = piece.strip()
            continue
        lines = piece.removeprefix("\n").removesuffix("\n").split("\n") if piece.strip("\n") else []
        kept = tuple(line or " " for line in lines if line[:1] in ("", " ", "-", "+"))
        if kept:
            yield Hunk(kept, heading=heading)


def find_patches(arguments: Any) -> Iterator[str]:
    """The patch texts in a call's arguments, wherever the agent puts them."""
    values = list(arguments.values()) if isinstance(arguments, dict) else [arguments]
    for value in values:
        yield from (
            text
            for text in (value if isinstance(value, list) else [value])
            if (isinstance(text, str) and BEGIN in text)
        )


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
