"""Which files a call changed or renamed, and when two paths mean the same file."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from recollect.agentkit.calls import FileChange
from recollect.agents import get_adapter
from recollect.errors import NotFound

_MOVE = re.compile(r"(?:^|[;&|\n(]\s*|&&\s*)(?:sudo\s+)?(?:(?P<cd>cd)|(?:git\s+)?mv)\s+(?P<words>[^;&|\n]+)")
_DRIVE = re.compile(r"[A-Za-z]:[/\\]")


def changes(agent: str, call: Mapping[str, Any], result: Mapping[str, Any] | None = None) -> list[FileChange]:
    """The files an edit's payload says were changed, in their order; with its result's, how exactly.

    None of an agent whose adapter is no longer installed: the rest of a file's history must not end there.
    """
    try:
        adapter = get_adapter(agent)
    except NotFound:
        return []
    return adapter.changes(call, result)


def renames(payload: Mapping[str, Any]) -> list[FileChange]:
    """Files and folders that a shell command gave another name by `mv` or `git mv`, as seen from where it began."""
    arguments = payload.get("input")
    folder = arguments.get("workdir") if isinstance(arguments, dict) else None
    command = arguments.get("command", arguments.get("cmd", "")) if isinstance(arguments, dict) else arguments
    if isinstance(command, list):
        # One of them is a shell script, so each may begin with a command.
        command = "\n".join(part for part in command if isinstance(part, str))
    if not isinstance(command, str) or "mv " not in command:
        return []
    return list(_moves(command, folder if isinstance(folder, str) and folder else None))


def _moves(command: str, folder: str | None) -> Iterator[FileChange]:
    """The moves of a command, each from the folder that it has gone to by then."""
    for match in _MOVE.finditer(command):
        words = _words(match["words"])
        if match["cd"]:
            folder = _inside(folder, words[0]) if len(words) == 1 else folder
        elif len(words) == 2:
            source, target = words
            if target.endswith("/"):
                target += source.rsplit("/", 1)[-1]
            yield FileChange(_inside(folder, target), renamed_from=_inside(folder, source))


def _words(line: str) -> list[str]:
    try:
        return [word for word in shlex.split(line) if not word.startswith("-")]
    except ValueError:
        return []


def _inside(folder: str | None, path: str) -> str:
    return path if folder is None or path.startswith(("/", "~", "$")) else f"{folder.rstrip('/')}/{path}"


def called_before(move: FileChange, path: str) -> str | None:
    """What a path was called before a move of it, or of a folder above it; None if it was not moved.

    Where `mv a b` puts `a` depends on whether there was a folder `b`: as the path needs it.
    """
    source, target = move.renamed_from or "", move.path
    for moved in (f"{target}/{source.rsplit('/', 1)[-1]}", target):
        if is_same(moved, path):
            return source
        parts = path.split("/")
        for depth in range(len(parts) - 1, 0, -1):
            if (folder := "/".join(parts[:depth])) and is_same(moved, folder):
                return "/".join([source, *parts[depth:]])
    return None


def slashed(path: str) -> str:
    """A path with `/` between its folders, also one of Windows."""
    is_foreign = _DRIVE.match(path) or "/" not in path
    return path.replace("\\", "/") if is_foreign else path


def absolute(path: str, cwd: str | None) -> str:
    """A path as a session names it, from its working folder; `.` and `..` taken out."""
    path = slashed(path.removeprefix("file://"))
    if not path.startswith("/") and not _DRIVE.match(path) and cwd:
        path = f"{slashed(cwd).rstrip('/')}/{path}"
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and parts and parts[-1]:
            parts.pop()
        elif part not in (".", "..") and (part or not parts):
            parts.append(part)
    return "/".join(parts)


def whole(change: FileChange, cwd: str | None) -> FileChange:
    """The change with whole paths."""
    earlier = absolute(change.renamed_from, cwd) if change.renamed_from else None
    return change._replace(path=absolute(change.path, cwd), renamed_from=earlier)


def is_same(path: str, asked: str) -> bool:
    """Whether a whole path is the one asked for, be that whole or any ending of it."""
    asked = asked.removeprefix("./").rstrip("/")
    return path == asked or (not asked.startswith("/") and path.endswith(f"/{asked}"))


def is_below(path: str, asked: str) -> bool:
    """Whether a whole path is the one asked for, or inside the folder asked for."""
    asked = slashed(asked).removeprefix("./").rstrip("/")
    is_inside = path.startswith(f"{asked}/") if asked.startswith("/") else f"/{asked}/" in f"/{path}"
    return is_inside or is_same(path, asked)
