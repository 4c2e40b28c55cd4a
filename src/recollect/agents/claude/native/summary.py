"""What a list shows of a session, from the beginning and the end of its file: sessions may be large."""

import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.agentkit.values import parse_time_ms
from recollect.agents.claude.native.conversation import blocks

_WINDOW_BYTES = 64 * 1024
_PROMPT_CHARS = 200
_COMMAND = re.compile("<command-name>(.*?)</command-name>")
# What the program, not a person, put into a prompt.
_NO_PROMPT = re.compile(
    r"<local-command-stdout>|<session-start-hook>|<tick>|<goal>|\[Request interrupted by user[^\]]*\]"
    r"|\s*<ide_opened_file>.*</ide_opened_file>\s*$|\s*<ide_selection>.*</ide_selection>\s*$",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """A session of a project. `summary` is its title, else the last prompt, else the first. Times are in ms."""

    session_id: str
    path: str
    summary: str
    last_modified_ms: int
    bytes: int
    custom_title: str | None
    first_prompt: str | None
    git_branch: str | None
    cwd: str | None
    tag: str | None
    created_ms: int | None


def read_summary(path: Path, folder: str | None) -> SessionSummary | None:
    """A session as a list shows it; None for a sub-agent's, an empty one, or one without title and prompt."""
    with path.open("rb") as file:
        stat = os.fstat(file.fileno())
        head = file.read(_WINDOW_BYTES).decode("utf-8", "replace")
        file.seek(max(0, stat.st_size - _WINDOW_BYTES))
        tail = file.read(_WINDOW_BYTES).decode("utf-8", "replace")
    if not head or re.search(r'"isSidechain": ?true', head.partition("\n")[0]):
        return None
    title = next(filter(None, (_last(text, key) for key in ("customTitle", "aiTitle") for text in (tail, head))), None)
    prompt = _first_prompt(head)
    summary = title or _last(tail, "lastPrompt") or _last(tail, "summary") or prompt
    if not summary:
        return None
    tags = [line for line in tail.split("\n") if line.startswith('{"type":"tag"')]
    return SessionSummary(
        session_id=path.stem,
        path=str(path),
        summary=summary,
        last_modified_ms=int(stat.st_mtime * 1000),
        bytes=stat.st_size,
        custom_title=title,
        first_prompt=prompt,
        git_branch=_last(tail, "gitBranch") or _first(head, "gitBranch"),
        cwd=_first(head, "cwd") or folder,
        tag=_last(tags[-1], "tag") if tags else None,
        created_ms=parse_time_ms(_first(head, "timestamp")),
    )


def _values(text: str, key: str) -> list[str]:
    """The texts that a key has, also in a line that is cut off."""
    return re.findall(rf'"{key}": ?"((?:[^"\\]|\\.)*)"', text, re.DOTALL)


def _first(text: str, key: str) -> str | None:
    return next((_unescaped(value) for value in _values(text, key)), None) or None


def _last(text: str, key: str) -> str | None:
    values = _values(text, key)
    return (_unescaped(values[-1]) or None) if values else None


def _unescaped(value: str) -> str:
    try:
        return str(json.loads(f'"{value}"'))
    except ValueError:
        return value


def _first_prompt(head: str) -> str | None:
    """What the user asked first, shortened; the first slash command if there is nothing else."""
    command = None
    for line in head.split("\n"):
        for text in _texts(line):
            prompt = text.replace("\n", " ").strip()
            if found := _COMMAND.search(prompt):
                command = command or found[1]
            elif prompt and not _NO_PROMPT.match(prompt):
                return prompt if len(prompt) <= _PROMPT_CHARS else f"{prompt[:_PROMPT_CHARS].rstrip()}…"
    return command or None


def _texts(line: str) -> list[str]:
    if '"user"' not in line or '"tool_result"' in line:
        return []
    try:
        entry: Any = json.loads(line)
    except (ValueError, RecursionError):
        return []
    if not isinstance(entry, dict) or entry.get("type") != "user":
        return []
    if entry.get("isMeta") is True or entry.get("isCompactSummary") is True:
        return []
    return [block["text"] for block in blocks(entry) if isinstance(block.get("text"), str)]
