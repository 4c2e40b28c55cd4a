"""What Claude Code's edits did. The result of a call has the hunks with their lines and places (`structuredPatch`)."""

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.agentkit.edits import FileChange, Hunk, edited, named_path
from recollect.agentkit.values import as_list, as_mapping

_NOTEBOOK = "notebook_path"


def changes(call: Mapping[str, Any], result: Mapping[str, Any] | None) -> list[FileChange]:
    """The file that a call changed; with its result, how exactly."""
    arguments = as_mapping(call.get("input"))
    facts = as_mapping(as_mapping((result or {}).get("native")).get("toolUseResult"))
    hunks = tuple(_hunks(facts.get("structuredPatch")))
    path = named_path(arguments)
    if path is None:
        return []
    if hunks:
        return [FileChange(path, hunks=hunks)]
    if _NOTEBOOK in arguments:
        return [FileChange(path, hunks=tuple(_cell(arguments)))]
    change = edited(arguments)
    if change is not None and facts.get("type") == "update":
        change = FileChange(path)  # written again with the content it had
    return [change] if change else []


def _hunks(patch: Any) -> Iterator[Hunk]:
    for hunk in map(as_mapping, as_list(patch)):
        lines = tuple(line for line in as_list(hunk.get("lines")) if isinstance(line, str))
        starts = (hunk.get("oldStart"), hunk.get("newStart"))
        old_start, new_start = (start if type(start) is int else None for start in starts)
        if lines:
            yield Hunk(lines, old_start, new_start)


def _cell(arguments: Mapping[str, Any]) -> Iterator[Hunk]:
    """The source of a notebook's cell; what it replaces is not in the log."""
    cell = arguments.get("cell_id", arguments.get("cell_number", ""))
    mode, source = arguments.get("edit_mode", "replace"), arguments.get("new_source")
    if isinstance(source, str) and mode != "delete":
        yield Hunk(tuple(f"+{line}" for line in source.splitlines()), heading=f"{mode} cell {cell}".strip())
