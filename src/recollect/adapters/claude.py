"""The Claude Code adapter: which files it reads, and how each is read. See docs/formats/claude.md."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from recollect.adapters import claude_files as files
from recollect.adapters.claude_records import as_id
from recollect.adapters.claude_transcript import file_names, read_transcript
from recollect.adapters.files import iter_files, open_beneath, unreadable_folders
from recollect.adapters.protocol import AgentProfile, Cursor, Record, SettingAdvice, Source
from recollect.errors import SourceUnreadable

TRANSCRIPT = "transcript"
AGENT = "agent"
AGENT_META = "agent-meta"
TITLE = "title"
TOOL_RESULT = "tool-result"
HISTORY = "history"
TODOS = "todos"
TASK = "task"
REWRITTEN = frozenset({AGENT_META, TITLE, TOOL_RESULT, TODOS, TASK})

_READERS: dict[str, Callable[[Source, Cursor | None], Iterator[Record]]] = {
    TRANSCRIPT: read_transcript,
    AGENT: read_transcript,
    AGENT_META: files.read_agent_meta,
    TITLE: files.read_title,
    TOOL_RESULT: files.read_tool_result,
    HISTORY: files.read_history,
    TODOS: files.read_todos,
    TASK: files.read_task,
}
_HISTORY_FILE = "history.jsonl"
_HEAD_BYTES = 64 * 1024
# JSON-lines files among the transcripts that are none: a workflow's log, a cache, the agent's own memory.
_NO_TRANSCRIPTS = frozenset({"journal.jsonl", "resume-head.jsonl", _HISTORY_FILE})
_NO_TRANSCRIPT_FOLDERS = frozenset({"memory", "tool-results", "file-history"})
# What shows that a folder is an agent's home, though it holds no transcripts (yet, or any more).
_HOME_MARKS = (
    "settings.json",
    ".credentials.json",
    _HISTORY_FILE,
    "todos",
    "tasks",
    "plugins",
    "shell-snapshots",
)


class ClaudeAdapter:
    """Reads what Claude Code leaves in its configuration folder."""

    agent = "claude"
    home = "~/.claude"
    home_variable = "CLAUDE_CONFIG_DIR"
    version = 1
    profile = AgentProfile(
        display_name="Claude Code",
        session_variable="CLAUDE_CODE_SESSION_ID",
        settings_advice=(
            SettingAdvice(
                path="settings.json",
                key="cleanupPeriodDays",
                default=30,
                at_least=365,
                advice='transcripts are deleted after this many days; put "cleanupPeriodDays": 365 there',
            ),
        ),
    )

    def discover(self, root: Path) -> Iterator[Source]:
        """Find transcripts and their side files by the shape of their paths.

        A root without `projects` that is no agent's home (an export, a backup) may hold transcripts anywhere but
        in hidden folders; there a file is taken only if it begins as Claude Code's logs do.
        """
        projects = root / "projects"
        if projects.is_dir() and not projects.is_symlink():
            yield from self._found(root, projects, _classify)
        elif not any((root / mark).exists() for mark in _HOME_MARKS):
            yield from filter(_looks_like_ours, self._found(root, root, _classify))
        yield from self._found(root, root / "todos", _classify_todos)
        yield from self._found(root, root / "tasks", _classify_task)
        if (root / _HISTORY_FILE).is_file() and not (root / _HISTORY_FILE).is_symlink():
            yield Source(self.agent, HISTORY, root, root / _HISTORY_FILE)

    def _found(self, root: Path, folder: Path, classify: Callable[[tuple[str, ...]], str | None]) -> Iterator[Source]:
        if folder.is_symlink() and folder != root:
            return
        unreadable: list[OSError] = []
        for path in iter_files(folder, unreadable):
            kind = classify(path.parts[len(folder.parts) :])
            if kind is not None:
                yield Source(self.agent, kind, root, path, kind in REWRITTEN, session=_session_of(kind, root, path))
        yield from unreadable_folders(self.agent, root, unreadable)

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        """Yield what a source tells from `cursor` on."""
        return _READERS[source.kind](source, cursor)


def _session_of(kind: str, root: Path, path: Path) -> str | None:
    """Whose file it is, as its name and folder tell."""
    if kind in (TRANSCRIPT, AGENT, AGENT_META):
        log = path if kind != AGENT_META else path.with_name(path.name.replace(".meta.json", ".jsonl"))
        session, agent_id = file_names(root, log)
        return as_id(session if agent_id is None else f"{session}/{agent_id}")
    if kind == TODOS:
        return as_id(files.session_of_todos(path))
    return as_id(path.parent.parent.name if kind == TOOL_RESULT else path.parent.name)


def _looks_like_ours(source: Source) -> bool:
    """Whether a file outside Claude Code's own tree is one of its logs, or lies beside one."""
    if any(part.startswith(".") for part in source.path.relative_to(source.root).parts):
        return False
    if source.kind not in (TRANSCRIPT, AGENT):
        return True
    try:
        fd = open_beneath(source.root, source.path)
    except SourceUnreadable:
        return True  # reading it will say why it cannot be read
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


def _classify_todos(parts: tuple[str, ...]) -> str | None:
    return TODOS if len(parts) == 1 and parts[0].endswith(".json") else None


def _classify_task(parts: tuple[str, ...]) -> str | None:
    return TASK if len(parts) == 2 and parts[1].endswith(".json") else None


ADAPTER = ClaudeAdapter()
