"""What Codex's patches did: calls hold the patch text, items (newer logs) unified diffs with line numbers."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.agentkit.calls import FileChange, Hunk, created, deleted, edited, find_patches, parse_patch
from recollect.agentkit.values import as_mapping

_HEADER = re.compile(r"^@@ -(\d+)(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)$", re.MULTILINE)
_FOLDER = re.compile(r"\Acd (?P<quote>['\"]?)(?P<folder>[^;&|\n]+?)(?P=quote) && ")


def changes(call: Mapping[str, Any], result: Mapping[str, Any] | None) -> list[FileChange]:
    """The files that a call patched; with its result, at which lines."""
    arguments = call.get("input")
    fields = as_mapping(arguments)
    listed = as_mapping(fields.get("changes")) or as_mapping(as_mapping((result or {}).get("native")).get("changes"))
    exact = [change for change in (_listed(path, as_mapping(fields)) for path, fields in listed.items()) if change]
    if exact and len(exact) == len(listed):
        return exact
    patched = list(_patched(arguments))
    return patched or [FileChange(path) for path in listed] or [change for change in (edited(fields),) if change]


def _listed(path: str, change: Mapping[str, Any]) -> FileChange | None:
    """A change as an item has it; None if the log says no more than that there was one."""
    kind, content, diff, moved = (change.get(name) for name in ("type", "content", "unified_diff", "move_path"))
    if isinstance(diff, str):
        hunks = tuple(_hunks(diff))
        return FileChange(moved, path, hunks) if isinstance(moved, str) and moved else FileChange(path, None, hunks)
    if isinstance(content, str):
        return created(path, content) if kind == "add" else deleted(path, content)
    return None


def _hunks(diff: str) -> Iterator[Hunk]:
    pieces = _HEADER.split(diff)
    for place in range(1, len(pieces), 4):
        old_start, new_start, heading, body = pieces[place : place + 4]
        lines = tuple(body.removeprefix("\n").removesuffix("\n").split("\n"))
        yield Hunk(lines, int(old_start), int(new_start), heading)


def _patched(arguments: Any) -> Iterator[FileChange]:
    """The changes of the patch in a call: alone, as a field, or handed to a shell that may go to a folder first."""
    workdir = as_mapping(arguments).get("workdir")
    for patch in find_patches(arguments):
        start = _FOLDER.match(patch)
        folders = [folder for folder in (workdir, start and start["folder"]) if isinstance(folder, str) and folder]
        for change in parse_patch(patch):
            earlier = change.renamed_from and _inside(folders, change.renamed_from)
            yield change._replace(path=_inside(folders, change.path), renamed_from=earlier)


def _inside(folders: list[str], path: str) -> str:
    for folder in reversed(folders):
        if path.startswith(("/", "~")):
            break
        path = f"{folder.rstrip('/')}/{path}"
    return path
