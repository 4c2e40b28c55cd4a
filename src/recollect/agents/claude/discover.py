"""Claude Code's files: transcripts, those of sub-agents, and the files beside them."""

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from recollect.agentkit.files import Source, iter_files, open_beneath, unreadable_folders
from recollect.agentkit.values import as_id
from recollect.model.errors import SourceUnreadable

CLAUDE = "claude"
TRANSCRIPT = "transcript"
AGENT = "agent"
AGENT_META = "agent-meta"
TITLE = "title"
TOOL_RESULT = "tool-result"
HISTORY = "history"
TODOS = "todos"
TASK = "task"
REWRITTEN = frozenset({AGENT_META, TITLE, TOOL_RESULT, TODOS, TASK})

_AGENT_FILE = re.compile(r"agent-(.+)\.jsonl")
_TODO_FILE = re.compile(r"(?P<session>[0-9A-Za-z-]+?)-agent-(?P<agent>[0-9A-Za-z_-]+)")
_HISTORY_FILE = "history.jsonl"
_HEAD_BYTES = 64 * 1024
# JSON-lines files beside transcripts: a workflow's log, a cache, the agent's own memory.
_NO_TRANSCRIPTS = frozenset({"journal.jsonl", "resume-head.jsonl", _HISTORY_FILE})
_NO_TRANSCRIPT_FOLDERS = frozenset({"memory", "tool-results", "file-history"})
# Files of an agent's home, even one without transcripts.
_HOME_MARKS = ("settings.json", ".credentials.json", _HISTORY_FILE, "todos", "tasks", "plugins", "shell-snapshots")
Classify = Callable[[tuple[str, ...]], str | None]


def discover(root: Path) -> Iterator[Source]:
    """Find transcripts and their side files by the shape of their paths.

    A root without `projects` that is no agent's home (an export, a backup) may hold transcripts anywhere but in hidden
    folders; a file there counts only if it begins as Claude Code's logs do.
    """
    projects = root / "projects"
    if projects.is_dir() and not projects.is_symlink():
        yield from _sources(root, projects, _classify)
    elif not any((root / mark).exists() for mark in _HOME_MARKS):
        yield from filter(_looks_like_ours, _sources(root, root, _classify))
    yield from _sources(root, root / "todos", lambda parts: TODOS if _is_json(parts, 1) else None)
    yield from _sources(root, root / "tasks", lambda parts: TASK if _is_json(parts, 2) else None)
    if (root / _HISTORY_FILE).is_file() and not (root / _HISTORY_FILE).is_symlink():
        yield Source(CLAUDE, HISTORY, root, root / _HISTORY_FILE)


def _sources(root: Path, folder: Path, classify: Classify) -> Iterator[Source]:
    if folder.is_symlink() and folder != root:
        return
    unreadable: list[OSError] = []
    for path in iter_files(folder, unreadable):
        kind = classify(path.parts[len(folder.parts) :])
        if kind is not None:
            yield Source(CLAUDE, kind, root, path, kind in REWRITTEN, session=_owner(kind, root, path))
    yield from unreadable_folders(CLAUDE, root, unreadable)


def _owner(kind: str, root: Path, path: Path) -> str | None:
    """The session a file belongs to, by its name and folder."""
    if kind in (TRANSCRIPT, AGENT, AGENT_META):
        log = path if kind != AGENT_META else path.with_name(path.name.replace(".meta.json", ".jsonl"))
        session, agent_id = parse_name(root, log)
        return as_id(session if agent_id is None else f"{session}/{agent_id}")
    if kind == TODOS:
        return as_id(todo_session(path))
    return as_id(path.parent.parent.name if kind == TOOL_RESULT else path.parent.name)


def parse_name(root: Path, path: Path) -> tuple[str, str | None]:
    """The session a transcript is named after, and the sub-agent it belongs to."""
    match = _AGENT_FILE.fullmatch(path.name)
    if match is None:
        return path.stem, None
    return folder_session(root, path) or path.stem, match[1]


def folder_session(root: Path, path: Path) -> str | None:
    """The session whose folder holds the folder `subagents` of a file."""
    parts = path.relative_to(root).parts
    return parts[parts.index("subagents") - 1] if "subagents" in parts[1:] else None


def todo_session(path: Path) -> str:
    """The session, or its sub-agent, that a to-do list is named after."""
    match = _TODO_FILE.fullmatch(path.stem)
    session = path.stem if match is None else match["session"]
    return f"{session}/{match['agent']}" if match is not None and match["agent"] != session else session


def _looks_like_ours(source: Source) -> bool:
    """Whether a file outside Claude Code's own tree is one of its logs, or a file beside one."""
    if any(part.startswith(".") for part in source.path.relative_to(source.root).parts):
        return False
    if source.kind not in (TRANSCRIPT, AGENT):
        return True
    try:
        fd = open_beneath(source.root, source.path)
    except SourceUnreadable:
        return True  # reading it reports why it cannot be read
    with os.fdopen(fd, "rb") as file:
        head = file.read(_HEAD_BYTES)
    return b'"parentUuid"' in head or b'"leafUuid"' in head


def _classify(parts: tuple[str, ...]) -> str | None:
    """What a file is, from its path below the folder of transcripts."""
    name, folders = parts[-1], parts[:-1]
    if folders and folders[-1] == "tool-results" and name.endswith((".txt", ".json")):
        return TOOL_RESULT if len(folders) > 1 else None
    if not _NO_TRANSCRIPT_FOLDERS.isdisjoint(folders) or name in _NO_TRANSCRIPTS:
        return None
    if name.endswith(".jsonl"):
        return AGENT if name.startswith("agent-") else TRANSCRIPT
    if name.startswith("agent-") and name.endswith(".meta.json"):
        return AGENT_META
    return TITLE if name == "custom-title.json" and folders else None


def _is_json(parts: tuple[str, ...], depth: int) -> bool:
    return len(parts) == depth and parts[-1].endswith(".json")
