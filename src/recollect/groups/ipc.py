"""Files between the host and a sandboxed agent: snapshots to read, requests and their answers.

A request is a file in `tasks`, named after its id; its answer has the same name in `answers`. What a request changes
is stored together with its answer, and the file goes last: whatever ends the host, the next one answers it, and nothing
is done twice.
"""

import os
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import orjson

from recollect.groups.group import Bookmark, Group, Mount
from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import NotFound, NotInGroup, RecollectError, UsageError
from recollect.model.schema import to_json
from recollect.model.shared_folder import ANSWERS, HISTORY_NAME, INPUT, TASKS, TASKS_NAME, SharedFolder, open_shared

VERSION = 1
GROUPS_NAME = "available_groups.json"
REQUEST_BYTES = 64 * 1024
_ANSWER_BYTES, _PAUSE_S = 4_000_000, 0.05
TURN = 20  # requests of a group that are answered before another group's
_TEXT_CHARS = 2_000
_MOST_HITS = 20
_WITH_PATHS = ("archive", "cwd", "repo", "resume_command")  # of answers
# The fields of each request beside `action`, `id` and `group`, and whether it needs them.
_FIELDS: dict[str, dict[str, bool]] = {
    "clear": {"name": True},
    "resume": {"target": True, "save_as": False},
    "list": {},
    "search": {"query": True, "limit": False},
    "archive": {"session": False},
}


@dataclass(frozen=True, slots=True)
class Answered:
    """A request that was answered; `error` is the code of what was wrong with it."""

    group: str
    request: str
    action: str | None
    error: str | None


def write_snapshots(
    group: Group, groups: Sequence[Group], bookmarks: Sequence[Bookmark], todos: Sequence[str], tasks: Sequence[Any]
) -> None:
    """Write what a group's agent may know of its sessions and of `tasks`, which the host passes on; each file whole.

    Its folders for requests, answers and follow-ups are made too.
    """
    about = {"version": VERSION, "group": group.name, "written_at": rfc3339(now_ms())}
    known = [{"name": other.name, "agent": other.agent} for other in groups]
    current = {"session_uid": group.session_uid, "todos": list(todos), "tasks": list(tasks)}
    files = {
        HISTORY_NAME: about | bookmark_history(group, bookmarks),
        GROUPS_NAME: about | {"groups": known},
        TASKS_NAME: about | current,
    }
    with open_shared(Path(group.ipc)) as folder:
        for name in (TASKS, ANSWERS, INPUT):
            with folder.below(name):
                pass
        for name, content in files.items():
            folder.write(name, orjson.dumps(content, option=orjson.OPT_INDENT_2))


def bookmark_history(group: Group, bookmarks: Sequence[Bookmark]) -> dict[str, Any]:
    """A group's active session and its bookmarks."""
    return {"active": group.session_uid, "bookmarks": to_json(list(bookmarks))}


@dataclass(frozen=True, slots=True)
class Request:
    """What an agent asks for."""

    id: str
    action: str
    fields: Mapping[str, Any]


Execute = Callable[[Request], Mapping[str, Any]]
Known = Callable[[str], str | None]  # the answer that a request got before
Redact = Callable[[list[bytes]], Mapping[int, bytes]]  # those of some documents that change, by index


def has_requests(group: Group) -> bool:
    """Whether any request waits."""
    if not Path(group.ipc).is_dir():
        return False
    with open_shared(Path(group.ipc)) as folder, folder.below(TASKS) as tasks:
        return bool(tasks.names())


@dataclass(frozen=True, slots=True)
class Host:
    """What answers requests, and what makes an answer fit for the sandbox: no secret in it, and its own paths."""

    known: Known
    execute: Execute
    redact: Redact
    mounts: Sequence[Mount]

    def document(self, answer: Mapping[str, Any]) -> bytes:
        document = orjson.dumps(self._in_sandbox(answer), option=orjson.OPT_INDENT_2)
        return self.redact([document]).get(0, document)

    def _in_sandbox(self, value: Any, name: str = "") -> Any:
        """The same with the paths that the sandbox has what it mounts at."""
        if isinstance(value, Mapping):
            return {key: self._in_sandbox(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._in_sandbox(inner) for inner in value]
        if isinstance(value, str) and name in _WITH_PATHS:
            for mount in sorted(self.mounts, key=lambda mount: -len(mount.host)):
                value = re.sub(rf"{re.escape(mount.host)}(?=[/'\s]|$)", mount.sandbox, value)
        return value


def answer_requests(group: Group, host: Host) -> list[Answered]:
    """Answer the first requests that are there, in the order of their names."""
    with open_shared(Path(group.ipc)) as folder, folder.below(TASKS) as tasks, folder.below(ANSWERS) as answers:
        return [_answer(group, tasks, answers, name, host) for name in tasks.names()[:TURN]]


def _answer(group: Group, tasks: SharedFolder, answers: SharedFolder, name: str, host: Host) -> Answered:
    request_id, action, error = name.removesuffix(".json"), None, None
    try:
        request = parse_request(request_id, group.name, tasks.read(name, REQUEST_BYTES))
        action = request.action
        before = host.known(request_id)
        content = orjson.loads(before) if before is not None else dict(host.execute(request))
        answer = {"version": VERSION, "id": request_id, "ok": True} | content
    except RecollectError as problem:
        error = problem.code
        error_fields = {"code": problem.code, "message": problem.message, "hint": problem.hint}
        choices = {"choices": list(problem.choices)} if problem.choices else {}
        answer = {"version": VERSION, "id": request_id, "ok": False, "error": error_fields | choices}
    try:
        answers.write(name, host.document(answer))
    except UsageError as problem:  # a folder has its name
        error = problem.code
    tasks.remove(name)
    return Answered(group.name, request_id, action, error)


def parse_request(request_id: str, group: str, content: bytes) -> Request:
    """A request as it is written; raises UsageError for what is none, and NotInGroup for another group's."""
    try:
        fields = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise UsageError("Not JSON", "write the file under another name, then rename it") from None
    if not isinstance(fields, dict):
        raise UsageError("Not an object", 'write {"action": "list"}')
    action = fields.pop("action", None)
    if not isinstance(action, str) or action not in _FIELDS:
        raise UsageError("Unknown action", f"known: {', '.join(_FIELDS)}")
    if fields.pop("id", request_id) != request_id:
        raise UsageError("The id does not match the file's name", "leave it out, or name the file after it")
    if fields.pop("group", group) != group:
        raise NotInGroup("A request may concern only its own group", "leave `group` out")
    _require_fields(action, fields)
    return Request(request_id, action, fields)


def _require_fields(action: str, fields: Mapping[str, Any]) -> None:
    known = _FIELDS[action]
    if fields.keys() - known.keys():
        raise UsageError(f"Unknown field of `{action}`", f"known: {', '.join(known)}")
    for name, is_needed in known.items():
        value = fields.get(name)
        if (value is None and not is_needed) or (name == "target" and type(value) is int):
            continue
        if name == "limit":
            if type(value) is not int or not 1 <= value <= _MOST_HITS:
                raise UsageError(f"`limit` must be a number from 1 to {_MOST_HITS}")
        elif not isinstance(value, str) or not value.strip() or len(value) > _TEXT_CHARS:
            raise UsageError(f"`{name}` must be a text of 1 to {_TEXT_CHARS:,} characters")


def ask(ipc: str | PathLike[str], action: str, fields: Mapping[str, Any], patience_s: float) -> Mapping[str, Any]:
    """What the host answers; raises NotFound if nobody does, and RecollectError for what it refuses."""
    name = f"ask-{time.time_ns()}-{os.getpid()}.json"
    with open_shared(Path(ipc)) as folder, folder.below(TASKS) as tasks, folder.below(ANSWERS) as answers:
        tasks.write(name, orjson.dumps({"action": action, **fields}))
        deadline = time.monotonic() + patience_s
        while not answers.has(name):
            if time.monotonic() > deadline:
                tasks.remove(name)
                raise NotFound("The host does not answer", "`recollect group serve` must be running there")
            time.sleep(_PAUSE_S)
        answer: dict[str, Any] = orjson.loads(answers.read(name, _ANSWER_BYTES))
        with suppress(OSError):  # it may not be ours to delete
            answers.remove(name)
    if not answer["ok"]:
        raise RecollectError(str(answer["error"]["message"]), answer["error"]["hint"])
    return answer
