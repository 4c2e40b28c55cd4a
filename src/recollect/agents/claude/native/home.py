"""The storage of one Claude Code home: projects and their sessions, to-dos, tasks, copies of files.

`ClaudeStorageProvider` is a home for a chat host: messages in, conversations out, by project path and session id.
"""

import asyncio
import json
import os
import re
import shutil
import unicodedata
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.agents.claude.native.conversation import MESSAGES, Entry, iter_entries, replace
from recollect.agents.claude.native.session import NativeSession, SessionSummary, agent_file_id, read_summary
from recollect.model.errors import NotFound, UsageError

_MOST_CHARS = 200
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_OTHER = re.compile("[^a-zA-Z0-9]")


def encode_path(path: str) -> str:
    """The name of a project's folder: every character but ASCII letters and digits becomes `-`.

    Counted as JavaScript counts, so that an emoji is two. What is longer than 200 is cut and gets a hash of the path.
    """
    units = _utf16(path)
    name = _OTHER.sub("-", "".join(map(chr, units)))
    return name if len(name) <= _MOST_CHARS else f"{name[:_MOST_CHARS]}-{_hash(units)}"


def _utf16(text: str) -> list[int]:
    data = text.encode("utf-16-le", "surrogatepass")
    return [int.from_bytes(data[place : place + 2], "little") for place in range(0, len(data), 2)]


def _hash(units: list[int]) -> str:
    """h × 31 + unit over 32 bits with a sign, its absolute value in base 36."""
    value = 0
    for unit in units:
        value = (value * 31 + unit) & 0xFFFFFFFF
    value = abs(value - (1 << 32) if value >= 1 << 31 else value)
    digits = ""
    while value or not digits:
        value, digit = divmod(value, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits


def real_path(path: str | os.PathLike[str]) -> str:
    """A folder's path as Claude Code sees it: links resolved, letters composed."""
    return unicodedata.normalize("NFC", os.path.realpath(Path(path).expanduser()))


def decode_path(name: str, below: Path = Path("/")) -> Iterator[Path]:
    """The folders below `below` that exist and have this name in Claude Code's storage; there may be several, or none.

    A name alone does not say which characters were replaced, so folders are looked up level by level.
    """
    encoded = encode_path(str(below))
    if encoded == name:
        yield below
    is_cut = len(name) > _MOST_CHARS and name[_MOST_CHARS] == "-"
    beginning = name[:_MOST_CHARS] if is_cut else name
    here = _OTHER.sub("-", str(below).rstrip("/"))[:_MOST_CHARS]
    if not beginning.startswith(here) or not below.is_dir():
        return
    for folder in sorted(_folders(below)):
        step = _OTHER.sub("-", "".join(map(chr, _utf16(str(folder)))))[:_MOST_CHARS]
        if beginning == step or beginning.startswith(f"{step}-") or (is_cut and len(step) == _MOST_CHARS):
            yield from decode_path(name, folder)


def _folders(folder: Path) -> list[Path]:
    try:
        return [path for path in folder.iterdir() if path.is_dir() and not path.is_symlink()]
    except OSError:
        return []


_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_HASHED_NAME = 200
_PER_SESSION = ("tasks", "file-history", "session-env")  # folders of the home in which a session has one of its own


@dataclass(frozen=True, slots=True)
class FileVersion:
    """A copy that Claude Code kept of a file before changing it; `path` is None if no entry names it."""

    path: str | None
    version: int
    backup: str
    bytes: int


class NativeHome:
    """A home of Claude Code (`~/.claude`). There is no default: only what its path is below is read or written."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).expanduser()

    @property
    def projects(self) -> list[Path]:
        """The folders of all projects that have sessions."""
        folder = self.path / "projects"
        return sorted(path for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []

    def project(self, cwd: str | os.PathLike[str]) -> Path:
        """Where the sessions of a working folder are, whether or not there are any."""
        name = encode_path(real_path(cwd))
        folder = self.path / "projects" / name
        if len(name) <= _HASHED_NAME or folder.is_dir():
            return folder
        alike = (path for path in self.projects if path.name.startswith(f"{name[:_HASHED_NAME]}-"))
        return next(alike, folder)  # other builds of the program hash differently

    def working_folder(self, project: Path) -> str | None:
        """The working folder of a project, as its sessions name it: the folder's own name is not enough."""
        sessions = (entry for path in sorted(project.glob("*.jsonl")) for entry in iter_entries(path))
        return next((entry["cwd"] for entry in sessions if isinstance(entry.get("cwd"), str)), None)

    def sessions(self, cwd: str | os.PathLike[str] | None = None) -> list[SessionSummary]:
        """The sessions of a working folder, or of all, the last changed first; sub-agents are left out."""
        folders = self.projects if cwd is None else [self.project(cwd)]
        named = None if cwd is None else real_path(cwd)
        summaries = (read_summary(path, named) for folder in folders for path in _session_files(folder))
        return sorted(filter(None, summaries), key=lambda summary: -summary.last_modified_ms)

    def session(self, session_id: str, cwd: str | os.PathLike[str] | None = None) -> NativeSession:
        """A session by its id; raises NotFound if it has no file, or an empty one."""
        for folder in self.projects if cwd is None else [self.project(cwd)]:
            path = folder / f"{session_id}.jsonl"
            if _UUID.fullmatch(session_id) and path.is_file() and path.stat().st_size:
                return NativeSession(path)
        raise NotFound(f"No session with this id: {session_id}", "`sessions()` lists them; `create()` begins one")

    def create(self, cwd: str | os.PathLike[str], session_id: str | None = None) -> NativeSession:
        """A new session of a working folder; its file appears with its first entry."""
        name = _plain(session_id or str(uuid.uuid4()))
        folder = self.project(cwd)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        return NativeSession(folder / f"{name}.jsonl")

    def todos(self, session_id: str, *, agent_id: str | None = None) -> list[Entry]:
        """The to-dos of a session: those of the task tools if it has any, else those of older versions.

        Only older versions have lists of sub-agents; in newer ones they work on the session's.
        """
        tasks = [] if agent_id else [_read_json(path) for path in self._task_files(session_id)]
        listed: Any = tasks or _read_json(self._todo_file(session_id, agent_id)) or []
        return [item for item in listed if isinstance(item, dict)]

    def write_todos(
        self, session_id: str, todos: Iterable[Entry], *, as_tasks: bool = True, agent_id: str | None = None
    ) -> None:
        """Replace a session's to-dos: files of the task tools, or the one file of versions before 2.1.

        Those of a sub-agent go into a file of the second kind. Each to-do is written as its reader wants it: `content`
        becomes a task's `subject`, and the other way round; what it lacks is filled in.
        """
        todos = list(todos)
        if agent_id or not as_tasks:
            replace(self._todo_file(session_id, agent_id), json.dumps([_as_todo(todo) for todo in todos]).encode())
            return
        tasks = {task["id"]: task for task in (_as_task(todo, number) for number, todo in enumerate(todos, start=1))}
        if len(tasks) < len(todos):
            raise UsageError("Two to-dos have the same id", "leave out `id` to number them in order")
        folder, old = self._tasks(session_id), self._task_files(session_id)
        for name, task in tasks.items():
            replace(folder / f"{name}.json", json.dumps(task, indent=2).encode())
        gone = [path for path in old if path.stem not in tasks]
        if gone:  # the program gives no id a second time
            highest = max(int(path.stem) for path in old if path.stem.isdecimal())
            replace(folder / ".highwatermark", str(highest).encode())
        self.remove(gone)

    def file_history(self, session_id: str) -> list[FileVersion]:
        """The copies of files that a session kept for going back."""
        names = dict(self._tracked(session_id))
        copies = sorted((self.path / "file-history" / session_id).glob("*@v*"))
        return [
            FileVersion(names.get(copy.name), int(copy.name.rpartition("@v")[2]), str(copy), copy.stat().st_size)
            for copy in copies
            if copy.name.rpartition("@v")[2].isdecimal()
        ]

    def empty_sessions(self) -> list[Path]:
        """Session files without a single message."""
        files = (path for folder in self.projects for path in _session_files(folder))
        return [path for path in files if all(entry.get("type") not in MESSAGES for entry in iter_entries(path))]

    def orphaned_todos(self) -> list[Path]:
        """Files and folders of to-dos whose session has no file."""
        known = {path.stem for folder in self.projects for path in _session_files(folder)}
        files = [*(self.path / "todos").glob("*-agent-*.json"), *(self.path / "tasks").glob("*/")]
        return sorted(path for path in files if path.name.partition("-agent-")[0] not in known)

    def remove(self, paths: Iterable[Path]) -> list[Path]:
        """Delete files and folders of this home, whatever they hold; raises UsageError for any outside, before."""
        chosen = [Path(path) for path in paths]
        for path in chosen:
            if not path.parent.resolve().is_relative_to(self.path.resolve()) or path.name in ("", ".."):
                raise UsageError(f"Not below {self.path}: {path}", "nothing was removed")
        for path in chosen:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()
        return chosen

    def reset(
        self, cwd: str | os.PathLike[str], confirm: Callable[[list[Path]], bool], *, dry_run: bool = False
    ) -> list[Path]:
        """Delete all sessions of a working folder with their to-dos and copies of files, once `confirm` agrees.

        Returns what was deleted, or with `dry_run` would be. The agent's own notes (`memory/`) stay.
        """
        chosen = list(self._traces(cwd))
        if dry_run or not chosen or not confirm(chosen):
            return chosen if dry_run else []
        return self.remove(chosen)

    def _traces(self, cwd: str | os.PathLike[str]) -> Iterator[Path]:
        folder = self.project(cwd)
        for path in _session_files(folder):
            yield path
            beside = (folder / path.stem, *(self.path / name / path.stem for name in _PER_SESSION))
            yield from (place for place in beside if place.exists())
            yield from sorted((self.path / "todos").glob(f"{path.stem}-agent-*.json"))
        yield from sorted(folder.glob("agent-*.jsonl"))

    def _tasks(self, session_id: str) -> Path:
        return self.path / "tasks" / _plain(session_id)

    def _task_files(self, session_id: str) -> list[Path]:
        files = self._tasks(session_id).glob("[!.]*.json")
        return sorted(files, key=lambda path: (int(path.stem) if path.stem.isdecimal() else 0, path.stem))

    def _todo_file(self, session_id: str, agent_id: str | None = None) -> Path:
        return self.path / "todos" / f"{_plain(session_id)}-agent-{agent_file_id(agent_id or session_id)}.json"

    def _tracked(self, session_id: str) -> Iterator[tuple[str, str]]:
        """The names of copies with the path of their file, as the session's entries have them."""
        try:
            entries = self.session(session_id).entries("file-history-snapshot", "file-history-delta")
        except NotFound:
            return
        for entry in entries:
            tracked = (entry.get("snapshot") or {}).get("trackedFileBackups") or {}
            tracked |= {entry["trackingPath"]: entry.get("backup")} if "trackingPath" in entry else {}
            for path, copy in tracked.items():
                if isinstance(copy, dict) and isinstance(copy.get("backupFileName"), str):
                    yield copy["backupFileName"], path


def _session_files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*.jsonl") if _UUID.fullmatch(path.stem))


def _plain(session_id: str) -> str:
    if not _UUID.fullmatch(session_id):
        raise UsageError(f"Not a UUID: {session_id}", "Claude Code finds a session only by one")
    return session_id


def _as_task(todo: Entry, number: int) -> Entry:
    """A to-do with all that the task tools require of one: they skip a file that lacks any of it."""
    given = str(todo.get("id", ""))
    rest = {name: value for name, value in todo.items() if name not in ("id", "content")}
    subject = str(todo.get("subject") or todo.get("content") or "")
    lists: Entry = {"blocks": [], "blockedBy": []}
    filled = {"subject": subject, "description": subject, "status": "pending", **lists}
    return {"id": given if given.isdecimal() else str(number), **filled, **rest}


def _as_todo(todo: Entry) -> Entry:
    rest = {name: value for name, value in todo.items() if name != "subject"}
    content = str(todo.get("content") or todo.get("subject") or "")
    return {"content": content, "status": "pending", "activeForm": content, **rest}


def _read_json(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return None


class InThreads:
    """A home or a session whose methods are awaited; sessions that they return are of this kind, too."""

    def __init__(self, of: NativeHome | NativeSession) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        return _awaited(value) if callable(value) else value


def _awaited(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **options: Any) -> Any:
        result = await asyncio.to_thread(method, *args, **options)
        return [_twin(item) for item in result] if isinstance(result, list) else _twin(result)

    return call


def _twin(value: Any) -> Any:
    return InThreads(value) if isinstance(value, NativeSession) else value


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """A message as it was said: a text, or the blocks of a model's service."""

    role: str
    content: str | list[dict[str, Any]]


class ClaudeStorageProvider:
    """Logs conversations so that Claude Code can resume them, and reads its own. Every method is awaited."""

    def __init__(self, base_dir: str | os.PathLike[str]) -> None:
        self.home = NativeHome(base_dir)

    async def log_message(
        self,
        project_path: str | os.PathLike[str],
        message: ChatMessage | Mapping[str, Any],
        session_id: str,
        agent_id: str | None = None,
    ) -> None:
        """Add a message to a session, which begins with its first one; with `agent_id`, to the file of a sub-agent.

        Beside the first message of a sub-agent its to-do list is made, empty.
        """
        await asyncio.to_thread(self._log, project_path, message, session_id, agent_id)

    def _log(
        self, path: str | os.PathLike[str], message: ChatMessage | Mapping[str, Any], session_id: str, agent: str | None
    ) -> None:
        session = self.home.create(path, session_id)
        said = message if isinstance(message, Mapping) else {"role": message.role, "content": message.content}
        target = session if agent is None else session.sub_agent(agent)
        is_new = next(iter_entries(target.path), None) is None
        target.append_message(said, **({"cwd": str(Path(path).expanduser())} if is_new else {}))
        if agent is not None and is_new:
            self.home.write_todos(session_id, self.home.todos(session_id, agent_id=agent), agent_id=agent)

    async def get_sessions(self, project_path: str | os.PathLike[str]) -> list[dict[str, Any]]:
        """The sessions of a project, the last changed first."""
        summaries = await asyncio.to_thread(self.home.sessions, project_path)
        return [
            {"sessionId": found.session_id, "summary": found.summary, "lastModified": found.last_modified_ms}
            for found in summaries
        ]

    async def get_session_messages(
        self,
        project_path: str | os.PathLike[str],
        session_id: str,
        limit: int | None = None,
        agent_id: str | None = None,
    ) -> list[ChatMessage]:
        """The last messages of a session or of one of its sub-agents, oldest first."""
        session = self.home.session(session_id, project_path)
        chosen = session if agent_id is None else session.sub_agent(agent_id)
        messages = await asyncio.to_thread(chosen.messages, limit)
        return [ChatMessage(message["role"], _content(message["content"])) for message in messages]


def _content(blocks: list[dict[str, Any]]) -> str | list[dict[str, Any]]:
    """A single text as such."""
    return blocks[0]["text"] if [block.get("type") for block in blocks] == ["text"] else blocks
