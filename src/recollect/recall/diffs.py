"""What the edits of a session did, as unified diffs."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from recollect.agentkit.calls import FileChange, Hunk
from recollect.clock import AsDatetime
from recollect.errors import NotFound
from recollect.kinds import EDIT
from recollect.recall.edits import absolute, changes, is_below, slashed, whole
from recollect.schema import Event, Session
from recollect.sessions import find_spawned, iter_payloads, read_calls
from recollect.store import Store

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
        events = read_calls(store, owner, EDIT)
        # The last result of each call.
        outcomes = {event.call_id: event for event in events if event.call_id and event.role != "assistant"}
        own = [event for event in events if event.kind == EDIT and event.copy_of is None]
        done = [event for event in own if event.call_id not in outcomes or not outcomes[event.call_id].is_error]
        copied += sum(event.kind == EDIT for event in events) - len(own)
        failed += len(own) - len(done)
        made += [(owner, edit, change) for edit, change in _changes(store, owner, done, outcomes)]
    asked = made if path is None else _edits_of(path, made)
    if path is not None and made and not asked and session.evicted_at is None:
        edited = sorted({_relative(change.path, session.cwd) for _, _, change in made})
        more = f" and {len(edited) - _NAMED} more" if len(edited) > _NAMED else ""
        raise NotFound(f"The session did not edit this file: {path}", f"it edited {', '.join(edited[:_NAMED])}{more}")
    edits = [_diff(owner, edit, change, session.cwd) for owner, edit, change in asked]
    edits.sort(key=lambda edit: edit.ts or "")  # sub-agents may have worked at the same time
    return SessionDiff(session.session_uid, session.cwd, session.resume_command, edits, failed, copied)


def _edits_of(path: str, made: list[tuple[Session, Event, FileChange]]) -> list[tuple[Session, Event, FileChange]]:
    below = [item for item in made if is_below(item[2].path, path)]
    return below or [item for item in made if path in _relative(item[2].path, item[0].cwd)]


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
        is_exact=_is_exact(change),
        is_abandoned=edit.is_abandoned,
        diff=unified(change, folder),
    )


def _is_exact(change: FileChange) -> bool:
    has_text = bool(change.hunks) or change.is_new or change.renamed_from is not None
    return has_text and all(hunk.old_start is not None for hunk in change.hunks)


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
