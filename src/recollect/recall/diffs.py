"""What the edits of a session did, as unified diffs: which files a call changed, and which paths are one file."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recollect.agentkit.calls import FileChange, Hunk
from recollect.agents import get_adapter
from recollect.model.clock import AsDatetime
from recollect.model.errors import NotFound
from recollect.model.kinds import EDIT
from recollect.model.schema import Event, Session
from recollect.sessions import find_spawned, iter_payloads, read_events
from recollect.store import Store

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


_NAMED = 5  # files that a hint lists
_NOWHERE = "/dev/null"
# Git takes line 1 to mean that nothing may come before it, and looks around for any other.
_SOMEWHERE = 2


@dataclass(frozen=True, slots=True)
class EditDiff:
    """What one edit did to one file."""

    session_uid: str
    agent: str
    event_uid: str
    seq: int
    ts: str | None
    path: str  # from the session's folder, if it is inside
    renamed_from: str | None
    added: int
    removed: int
    is_exact: bool  # line numbers and old text are in the log
    is_abandoned: bool  # in a part of the session that the user rewound
    diff: str

    at = AsDatetime("ts")


@dataclass(frozen=True, slots=True)
class SessionDiff:
    """All edits of a session and its sub-agents that did not fail, in reading order."""

    session_uid: str
    cwd: str | None  # where the paths of edits begin
    resume_command: str | None
    edits: list[EditDiff]
    failed: int  # edits that are left out because they failed or were refused
    copied: int  # edits that are left out because they were made in the session this one was forked from

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def session_diff(store: Store, session: Session, path: str | None = None) -> SessionDiff:
    """The edits of a session; with `path`, of that file or folder, or of files that have it in their path.

    Raises NotFound if the session edited other files only.
    """
    made: list[tuple[Session, Event, FileChange]] = []
    failed = copied = 0
    for owner in _tree(session, find_spawned(store, session)):
        events = read_events(store, owner, calls=EDIT)
        # The last result of each call.
        outcomes = {event.call_id: event for event in events if event.call_id and event.role != "assistant"}
        own = [event for event in events if event.kind == EDIT and event.copy_of is None]
        done = [event for event in own if event.call_id not in outcomes or not outcomes[event.call_id].is_error]
        copied += sum(event.kind == EDIT for event in events) - len(own)
        failed += len(own) - len(done)
        made += [(owner, edit, change) for edit, change in _changes(store, owner, done, outcomes)]
    asked = made
    if path is not None:
        asked = [item for item in made if is_below(item[2].path, path)]
        asked = asked or [item for item in made if path in _relative(item[2].path, item[0].cwd)]
    if path is not None and made and not asked and session.evicted_at is None:
        edited = sorted({_relative(change.path, session.cwd) for _, _, change in made})
        more = f" and {len(edited) - _NAMED} more" if len(edited) > _NAMED else ""
        raise NotFound(f"The session did not edit this file: {path}", f"it edited {', '.join(edited[:_NAMED])}{more}")
    edits = [_diff(owner, edit, change, session.cwd) for owner, edit, change in asked]
    edits.sort(key=lambda edit: edit.ts or "")  # sub-agents may have worked at the same time
    return SessionDiff(session.session_uid, session.cwd, session.resume_command, edits, failed, copied)


def _tree(session: Session, spawned: dict[str, list[Session]]) -> Iterator[Session]:
    yield session
    for child in spawned[session.session_uid]:
        yield from _tree(child, spawned)


def _changes(
    store: Store, session: Session, edits: Sequence[Event], outcomes: dict[str, Event]
) -> Iterator[tuple[Event, FileChange]]:
    """What edits changed, with whole paths: a sub-agent may have worked in another folder."""
    results = {edit.event_uid: outcomes[edit.call_id] for edit in edits if edit.call_id in outcomes}
    ordered = sorted([*edits, *results.values()], key=lambda event: event.payload_ref or (0, 0))
    uids = (event.event_uid for event in ordered)
    payloads = dict(zip(uids, iter_payloads(store, session, ordered), strict=False))
    for edit in edits:
        result = results.get(edit.event_uid)
        content = payloads.get(result.event_uid) if result is not None else None
        for change in changes(session.agent, payloads.get(edit.event_uid, {}), content):
            yield edit, whole(change, session.cwd)


def _diff(session: Session, edit: Event, change: FileChange, folder: str | None) -> EditDiff:
    has_text = bool(change.hunks) or change.is_new or change.renamed_from is not None
    return EditDiff(
        session_uid=session.session_uid,
        agent=session.agent,
        event_uid=edit.event_uid,
        seq=edit.seq,
        ts=edit.ts,
        path=_relative(change.path, folder),
        renamed_from=_relative(change.renamed_from, folder) if change.renamed_from else None,
        added=sum(hunk.added for hunk in change.hunks),
        removed=sum(hunk.removed for hunk in change.hunks),
        is_exact=has_text and all(hunk.old_start is not None for hunk in change.hunks),
        is_abandoned=edit.is_abandoned,
        diff=unified(change, folder),
    )


def _relative(path: str, cwd: str | None) -> str:
    """A path from the session's folder, or from the root without its slash, as patches have it."""
    folder = slashed(cwd or "").rstrip("/")
    below = absolute(path, cwd).removeprefix(f"{folder}/" if folder else "")
    return " ".join(below.lstrip("/").splitlines())


def patch_of(session: Session, payload: dict[str, Any]) -> str:
    """What the edit with this payload was to change, as a patch; empty if the log has no text of it."""
    return "".join(unified(change, session.cwd) for change in changes(session.agent, payload))


def unified(change: FileChange, cwd: str | None) -> str:
    """A change as a patch that `git apply` takes in the session's folder; empty if the log has no text of it."""
    new = _relative(change.path, cwd)
    old = _relative(change.renamed_from, cwd) if change.renamed_from else new
    return "".join(f"{line}\n" for line in _patch_lines(change, old, new))


def _patch_lines(change: FileChange, old: str, new: str) -> Iterator[str]:
    if not change.hunks and not change.is_new and not change.is_deleted and old == new:
        return
    yield f"diff --git a/{old} b/{new}"
    if old != new:
        yield f"rename from {old}"
        yield f"rename to {new}"
    elif change.is_new:
        yield "new file mode 100644"
    elif change.is_deleted:
        yield "deleted file mode 100644"
    if change.hunks:
        yield f"--- {_NOWHERE if change.is_new else _named('a/' + old)}"
        yield f"+++ {_NOWHERE if change.is_deleted else _named('b/' + new)}"
    yield from _hunk_lines(change.hunks)


def _named(name: str) -> str:
    return f"{name}\t" if " " in name else name  # as Git ends a name with spaces


def _hunk_lines(hunks: Iterable[Hunk]) -> Iterator[str]:
    line, shift = _SOMEWHERE, 0
    for hunk in hunks:
        old_count = sum(not text.startswith(("+", "\\")) for text in hunk.lines)
        new_count = sum(not text.startswith(("-", "\\")) for text in hunk.lines)
        start = line if hunk.old_start is None else hunk.old_start
        new_start = start + shift if hunk.new_start is None else hunk.new_start
        heading = f" {hunk.heading}" if hunk.heading else ""
        yield f"@@ -{start},{old_count} +{new_start},{new_count} @@{heading}"
        yield from hunk.lines
        line, shift = start + max(1, old_count), shift + new_count - old_count
