"""Putting a group's conversation aside, and going back to one."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from recollect.errors import NotFound
from recollect.groups.folders import signal_close
from recollect.groups.group import Group
from recollect.groups.sessions import Bookmark, GroupSessions
from recollect.schema import Session

Answer = Callable[[dict[str, object]], tuple[str, str]]  # what a request is answered, to be stored with its change


@dataclass(frozen=True, slots=True)
class Cleared:
    """A conversation that was put aside; `archive` is its document, if there is anything stored of it."""

    bookmark: Bookmark
    archive: str | None


@dataclass(frozen=True, slots=True)
class Resumed:
    """A conversation that is the active one again, and the bookmark of the one it took the place of, if it was kept."""

    group: str
    session_uid: str
    name: str
    saved_as: str | None


def clear(
    group: Group,
    sessions: GroupSessions,
    name: str,
    find: Callable[[str], Session],
    write: Callable[[Session, Path], Path],
    answer: Answer | None = None,
) -> Cleared:
    """Archive the active session, bookmark it, and have none; a running agent is closed.

    The agent is closed first: were all to end after that, it would go on with the same session at the next prompt.
    """
    active, name = sessions.require(), sessions.clean(name)
    archive = _archived(active, Path(group.conversations), find, write)
    signal_close(Path(group.ipc))
    told: dict[str, object] = {"session_uid": active, "name": name, "archive": archive}
    return Cleared(sessions.put_aside(name, answer(told) if answer else None), archive)


def _archived(
    session_uid: str, folder: Path, find: Callable[[str], Session], write: Callable[[Session, Path], Path]
) -> str | None:
    try:
        session = find(session_uid)
    except NotFound:
        return None  # it was never stored: excluded, forgotten, or without a word in it
    return str(write(session, folder))


def resume(
    group: Group, sessions: GroupSessions, target: str, save_as: str | None = None, answer: Answer | None = None
) -> Resumed:
    """Make a bookmarked session the active one, `save_as` keeping the one active now; a running agent is closed.

    Raises NotFound with names like it, or Ambiguous with all of that name; then nothing changes.
    """
    bookmark = sessions.find(target)
    if bookmark is None:
        near = sessions.nearest(target)
        hint = (
            f"did you mean {' or '.join(f'`{name}`' for name in near)}?" if near else "`recollect bookmarks` lists them"
        )
        raise NotFound(f"No bookmark has this number or name: {target}", hint)
    if save_as is not None:
        sessions.require()
        save_as = sessions.clean(save_as)
    signal_close(Path(group.ipc))
    told: dict[str, object] = {"session_uid": bookmark.session_uid, "name": bookmark.name, "saved_as": save_as}
    sessions.restore(bookmark.id, save_as, answer(told) if answer else None)
    return Resumed(group.name, bookmark.session_uid, bookmark.name, save_as)
