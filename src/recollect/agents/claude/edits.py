"""What Claude Code's edits did. The result of a call has the hunks with their lines and places (`structuredPatch`)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.agentkit.calls import FileChange, Hunk, edited, named_path
from recollect.agentkit.values import as_list, as_mapping

_NOTEBOOK = "notebook_path"
_TABS = re.compile("^\t+")


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


def restore_tabs(patch: Any, texts: Mapping[str, Any]) -> None:
    """Put the tabs that lines begin with back into the hunks, in which Claude Code writes two spaces for each."""
    old = texts.get("originalFile") or texts.get("originalFileContents")
    if not isinstance(old, str) or "\t" not in f"{old}{texts.get('newString')}{texts.get('content')}":
        return
    before, after = old.split("\n"), _edited(old, texts).split("\n")
    for hunk in map(as_mapping, as_list(patch)):
        lines, old_number, new_number = as_list(hunk.get("lines")), hunk.get("oldStart"), hunk.get("newStart")
        if type(old_number) is int and type(new_number) is int:
            lines[:] = _with_tabs(lines, before[old_number - 1 :], after[new_number - 1 :])


def _edited(text: str, texts: Mapping[str, Any]) -> str:
    """The file after the edit."""
    if isinstance(texts.get("content"), str):
        return str(texts["content"])
    single = {"old_string": texts.get("oldString"), "new_string": texts.get("newString")}
    for edit in map(as_mapping, as_list(texts.get("edits")) or [single | {"replace_all": texts.get("replaceAll")}]):
        old, new = edit.get("old_string"), edit.get("new_string")
        if isinstance(old, str) and isinstance(new, str) and old:
            text = text.replace(old, new, -1 if edit.get("replace_all") else 1)
    return text


def _with_tabs(lines: list[Any], before: list[str], after: list[str]) -> Iterator[Any]:
    """Each line as the file has it, if that is the same but for its tabs."""
    olds, news = iter(before), iter(after)
    for line in lines:
        mark = line[:1] if isinstance(line, str) else ""
        old = next(olds, "") if mark in ("-", " ") else ""
        new = next(news, "") if mark in ("+", " ") else ""
        real = old if mark == "-" else new
        yield f"{mark}{real}" if mark and _TABS.sub(lambda tabs: "  " * len(tabs[0]), real) == line[1:] else line
