"""The patch text that several agents hand to a tool called `apply_patch`.

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
from collections.abc import Iterator
from typing import Any

from recollect.agentkit.edits import FileChange, Hunk, created

BEGIN = "*** Begin Patch"
_FILE = re.compile(r"^\*\*\* (Add File|Update File|Delete File): (.+?)\s*$", re.MULTILINE)
_END = re.compile(r"^\*\*\* End Patch", re.MULTILINE)
_MOVE = re.compile(r"\A\s*\*\*\* Move to: (.+?)\s*$", re.MULTILINE)
_HUNK = re.compile(r"^@@ ?(.*)$", re.MULTILINE)


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
        yield from (text for text in (value if isinstance(value, list) else [value]) if _is_patch(text))


def _is_patch(text: Any) -> bool:
    return isinstance(text, str) and BEGIN in text
