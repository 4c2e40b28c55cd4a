"""What Grok's edits did. The result of a call has each replacement with its line and the lines around it."""

from collections.abc import Iterator, Mapping
from typing import Any

from recollect.agentkit.calls import FileChange, Hunk, edited, find_patches, named_path, parse_patch, replaced
from recollect.agentkit.values import as_list, as_mapping, as_text

_TEXTS = ("old_string", "new_string", "context_before", "line_prefix", "context_after")


def changes(call: Mapping[str, Any], result: Mapping[str, Any] | None) -> list[FileChange]:
    """The files that a call changed; with its result, at which lines."""
    arguments = call.get("input")
    fields = as_mapping(arguments)
    if patched := [change for patch in find_patches(arguments) for change in parse_patch(patch)]:
        return patched
    path = named_path(fields)
    if path is None:
        return []
    hunks = tuple(_hunks(as_mapping((result or {}).get("native")).get("edits")))
    if hunks:
        return [FileChange(path, hunks=hunks, is_new=hunks[0].old_start == 0)]
    change = edited(fields)
    return [change] if change else []


def _hunks(edits: Any) -> Iterator[Hunk]:
    for edit in map(as_mapping, as_list(edits)):
        old, new, before, prefix, after = (as_text(edit.get(name)) or "" for name in _TEXTS)
        old_line, new_line = edit.get("old_line"), edit.get("new_line")
        if not old and not before and not after:
            yield replaced("", new, 0, 1)  # a new file
        elif type(old_line) is int and type(new_line) is int:
            above, head = before.count("\n"), before + prefix
            before_edit, after_edit = _around(head + old, after), _around(head + new, after)
            yield replaced(before_edit, after_edit, old_line - above, new_line - above)


def _around(text: str, after: str) -> str:
    """A text with the lines after it. What stood behind it on its own last line is not in the log: mostly nothing."""
    return text + after if text.endswith("\n") else f"{text}\n{after}"
