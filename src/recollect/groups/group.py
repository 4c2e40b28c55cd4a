"""Groups: where their things are, what is mounted in a sandbox, and their active sessions, bookmarks and archives."""

import re
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from recollect.agents import BUILT_IN, get_adapter
from recollect.model.clock import AsDatetime, as_ms, now_ms, rfc3339
from recollect.model.errors import Ambiguous, NotFound, UsageError
from recollect.model.kinds import SessionKey
from recollect.model.schema import Session
from recollect.model.shared_folder import signal_close
from recollect.sessions import GROUPS_FOLDER, assign_groups, group_folder, homes_of
from recollect.store import MAIN_GROUP, BookmarkRow, GroupRow, Pointer, Store

CONVERSATIONS = "conversations"
GLOBAL_NAME = "global.md"
DEFAULT_AGENT = BUILT_IN[0]
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")
_RESERVED = ("global", GLOBAL_NAME)


@dataclass(frozen=True, slots=True)
class Group:
    """A workspace. `home` is the home of its agent, `ipc` the folder it exchanges files with the host in."""

    name: str
    agent: str
    path: str
    home: str
    conversations: str
    ipc: str
    created_at: str | None
    session_uid: str | None  # the active one

    created = AsDatetime("created_at")


def all_groups(store: Store, folder: Path) -> list[Group]:
    """The groups there are, `main` first; a group sees itself only."""
    rows = {row.name: row for row in store.groups.all()}
    if store.group in (None, MAIN_GROUP):
        rows = {MAIN_GROUP: rows.get(MAIN_GROUP) or _main(folder)} | rows
    return [_group(store, folder, row) for row in rows.values()]


def get_group(store: Store, folder: Path, name: str) -> Group:
    """A group by its name; raises NotFound, with names like it."""
    groups = {group.name: group for group in all_groups(store, folder)}
    if name in groups:
        return groups[name]
    near = get_close_matches(name, groups, 3, 0.5)
    hint = f"did you mean {' or '.join(near)}?" if near else "`recollect group list` lists groups"
    raise NotFound(f"No group has this name: {name}", hint)


def add_group(store: Store, folder: Path, row: GroupRow) -> Group:
    """Make a group of a folder; sessions that were read before join it at once. The same one again changes nothing."""
    _require_name(row.name)
    known_row = next((known for known in store.groups.all() if known.name == row.name), None)
    if known_row == row._replace(created_ms=known_row.created_ms if known_row else 0):
        assign_groups(store)
        return get_group(store, folder, row.name)
    if known_row is not None:
        raise UsageError(f"Group exists: {row.name}", f"`recollect group remove {row.name}` removes it")
    for known in store.groups.all():
        if Path(known.path) == Path(row.path):
            raise UsageError(f"Folder belongs to group `{known.name}`: {row.path}", "choose another folder")
    store.groups.add(row)
    assign_groups(store)
    return get_group(store, folder, row.name)


def new_group(name: str, path: Path, agent: str | None, home: Path | None) -> GroupRow:
    """A group as it is given; raises UsageError for a folder that is none."""
    _require_name(name)
    adapter = get_adapter(agent or DEFAULT_AGENT)
    if not path.is_dir():
        raise UsageError(f"No such folder: {path}", "create it first")
    if home is not None and home == Path(adapter.home).expanduser():
        raise UsageError(f"The agent's usual home holds the sessions of all groups: {home}", "give the group its own")
    return GroupRow(name, adapter.agent, str(path), str(home) if home else None, now_ms())


def remove_group(store: Store, folder: Path, name: str) -> Group:
    """Drop a group, its pointer and its bookmarks. Its sessions go to `main`; no file is deleted."""
    group = get_group(store, folder, name)
    store.groups.remove(name)
    assign_groups(store)
    return group


def _require_name(name: str) -> None:
    if not _NAME.fullmatch(name) or name in _RESERVED:
        raise UsageError(f"Invalid group name: {name}", "use a-z, 0-9, `-`, `_` and `.`, at most 64 characters")


def home_of(store: Store, folder: Path, name: str, agent: str) -> Path:
    """Where an agent keeps its things when it runs for a group."""
    rows = {row.name: row for row in store.groups.all()}
    return homes_of(folder, rows.get(name) or _main(folder))[agent]


def _main(folder: Path) -> GroupRow:
    """The group that sees all, where nobody gave it a folder."""
    return GroupRow(MAIN_GROUP, DEFAULT_AGENT, str(group_folder(folder, MAIN_GROUP)), None, 0)


def _group(store: Store, folder: Path, row: GroupRow) -> Group:
    pointer = store.groups.pointer(row.name)
    return Group(
        name=row.name,
        agent=row.agent,
        path=row.path,
        home=str(homes_of(folder, row)[row.agent]),
        conversations=str(Path(row.path) / CONVERSATIONS),
        ipc=str(group_folder(folder, row.name) / "ipc"),
        created_at=rfc3339(row.created_ms) if row.created_ms else None,
        session_uid=":".join(pointer.session) if pointer else None,
    )


def global_file(folder: Path) -> Path:
    """The text that every group but `main` gets at the start of a session."""
    return folder / GROUPS_FOLDER / GLOBAL_NAME


READ_WRITE, READ_ONLY = "rw", "ro"
_BEGIN, _END = "<!-- recollect group: begin -->", "<!-- recollect group: end -->"


@dataclass(frozen=True, slots=True)
class Mount:
    """A folder or file of the host, and where a sandbox has it."""

    what: str
    host: str
    sandbox: str
    mode: str


def mounts_of(folder: Path, group: Group) -> list[Mount]:
    """The mounts of a group; `main` sees all anyway and gets no global file, nor does anybody if there is none."""
    home = f"/home/agent/{Path(get_adapter(group.agent).home).name}"
    mounts = [
        Mount("group", group.path, "/workspace/group", READ_WRITE),
        Mount("conversations", group.conversations, f"/workspace/group/{CONVERSATIONS}", READ_WRITE),
        Mount("home", group.home, home, READ_WRITE),
        Mount("ipc", group.ipc, "/workspace/ipc", READ_WRITE),
    ]
    if group.name != MAIN_GROUP and global_file(folder).exists():
        mounts.append(Mount("global", str(global_file(folder)), "/workspace/global.md", READ_ONLY))
    return mounts


def paragraph(group: Group) -> str:
    """What the group's agent needs to know, between marks by which it is found again."""
    return (
        f"{_BEGIN}\n"
        "## Past conversations\n\n"
        f"`{CONVERSATIONS}/` has past conversations as Markdown: search it to recall what was said and decided.\n"
        "The IPC folder (`$RECOLLECT_IPC`, in a sandbox `/workspace/ipc`) has `session_history.json` with this\n"
        "group's bookmarks. To act, write a JSON file into its `tasks/`, then read the file of the same name in\n"
        "`answers/`:\n"
        '`{"action": "list"}`, `{"action": "search", "query": "…"}`, `{"action": "clear", "name": "…"}` to put this\n'
        'conversation aside under a name, `{"action": "resume", "target": "NAME or number"}` to go back to one.\n'
        f"{_END}\n"
    )


def instructions_file(group: Group) -> Path:
    """The file of the group's folder that its agent reads at the start of a session."""
    return Path(group.path) / get_adapter(group.agent).profile.instructions_file


def with_paragraph(text: str, group: Group) -> str:
    """A file's text with the paragraph in it: in the place of an older one, else at the end."""
    before, begin, rest = text.partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if begin and not end:
        raise UsageError(f"The paragraph's end marker is missing: {instructions_file(group)}", f"add: {_END}")
    if begin:
        return before + paragraph(group) + after.removeprefix("\n")
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + paragraph(group)


WORKING, WAITING = "working", "waiting"
ACTIVE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """A running session: its log was written in the last two minutes, or its process is alive."""

    session: Session
    state: str  # working, or waiting for its user
    pid: int | None
    written_s: int | None  # since its log was written


def written_seconds(session: Session) -> float | None:
    """How long ago any of a session's files was written; None if none is there."""
    times = []
    for source in session.sources:
        try:
            times.append(Path(source.path).stat().st_mtime)
        except OSError:
            continue
    return time.time() - max(times) if times else None


def active_of(
    sessions: Iterable[Session], live: Mapping[str, tuple[int, str]], is_answered: Callable[[Session], bool]
) -> list[ActiveSession]:
    """Which of these run; `live` has process and state by native id, where the agent reports them."""
    active = []
    for session in sessions:
        seconds, (pid, state) = written_seconds(session), live.get(session.native_session_id, (None, None))
        if pid is not None or (seconds is not None and seconds <= ACTIVE_SECONDS):
            state = state or (WAITING if is_answered(session) else WORKING)
            active.append(ActiveSession(session, state, pid, None if seconds is None else int(seconds)))
    return active


_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class Bookmark:
    """A session that a group put aside under a name. `created_at` is when the session began, if that is known."""

    id: int
    group: str
    session_uid: str
    name: str
    created_at: str
    archived_at: str

    created = AsDatetime("created_at")
    archived = AsDatetime("archived_at")


class GroupSessions:
    """A group's active session and its bookmarks. Each change is made as a whole or not at all."""

    def __init__(self, store: Store, group: str, redact: Callable[[str], str]) -> None:
        self._store = store
        self.group = group
        self._redact = redact

    def get(self) -> str | None:
        """The uid of the active session; None if the next prompt begins a new one."""
        pointer = self._store.groups.pointer(self.group)
        return ":".join(pointer.session) if pointer else None

    def require(self) -> str:
        """The uid of the active session; raises NotFound if there is none."""
        return ":".join(self._require_pointer().session)

    def last_uuid(self) -> str | None:
        """The agent's last message in the active session, as far as a runner saw it."""
        pointer = self._store.groups.pointer(self.group)
        return pointer.last_uuid if pointer else None

    def set(self, session_uid: str, last_uuid: str | None = None) -> None:
        """Make a session the active one."""
        pointer = self._store.groups.pointer(self.group)
        self._store.groups.set_pointer(self.group, key_of(session_uid), last_uuid, pointer and pointer.session)

    def move(self, was: str | None, session_uid: str, last_uuid: str | None) -> bool:
        """Make a session the active one if `was` still is, and return whether: somebody may have cleared it."""
        before = key_of(was) if was else None
        return self._store.groups.set_pointer(self.group, key_of(session_uid), last_uuid, before)

    def delete(self) -> None:
        """Have no active session; nothing of the session itself changes."""
        self._store.groups.change(self.group)

    def archive(self, name: str) -> Bookmark:
        """Bookmark the active session, which stays active. Raises NotFound if there is none."""
        pointer, bookmark = self._put_aside(name)
        self._store.groups.change(self.group, bookmark, pointer=pointer)
        return self._kept(bookmark)

    def put_aside(self, name: str, answer: tuple[str, str] | None = None) -> Bookmark:
        """Bookmark the active session and have none. Raises NotFound if there is none.

        `answer` (a request and what it is answered) is stored with it.
        """
        _, bookmark = self._put_aside(name)
        self._store.groups.change(self.group, bookmark, answer=answer)
        return self._kept(bookmark)

    def restore(self, history_id: int, save_as: str | None = None, answer: tuple[str, str] | None = None) -> Bookmark:
        """Make a bookmarked session the active one and drop its bookmark; `save_as` bookmarks the one active now.

        Raises NotFound for a number that no bookmark of the group has.
        """
        target = next((row for row in self._store.groups.bookmarks(self.group) if row.id == history_id), None)
        if target is None:
            raise NotFound(f"No bookmark has this number: {history_id}", "`recollect group bookmarks` lists them")
        kept = self._put_aside(save_as)[1] if save_as else None
        if kept is not None and kept.session == target.session:
            kept = None
        pointer = Pointer(target.session, None, now_ms())
        self._store.groups.change(self.group, kept, restored=target, pointer=pointer, answer=answer)
        return _bookmark(target)

    def history(self) -> list[Bookmark]:
        """The bookmarks, newest first."""
        return list(map(_bookmark, self._store.groups.bookmarks(self.group)))

    def find(self, name: str) -> Bookmark | None:
        """The bookmark with this number or name, in any case, or whose archive is this file; None if there is none.

        Raises Ambiguous if several have the name.
        """
        bookmarks, file_name = self.history(), name.rpartition("/")[2]
        if name.isdecimal() and (found := [item for item in bookmarks if item.id == int(name)]):
            return found[0]
        named = [item for item in bookmarks if item.name.casefold() == name.casefold()]
        if not named and file_name:
            archived = {":".join(key) for key in self._store.archives.named(file_name)}
            named = [item for item in bookmarks if item.session_uid in archived]
        if len(named) > 1:
            raise Ambiguous(
                f"{len(named)} bookmarks are named `{name}`", "give the number of one", self._choices(named)
            )
        return named[0] if named else None

    def nearest(self, name: str) -> list[str]:
        """Names of bookmarks like this one, or that have it in them."""
        names = list(dict.fromkeys(item.name for item in self.history()))
        having = [other for other in names if name.casefold() in other.casefold()]
        return having[:3] or get_close_matches(name, names, 3, 0.5)

    def _choices(self, bookmarks: list[Bookmark]) -> tuple[dict[str, str | None], ...]:
        return tuple(
            {
                "id": str(item.id),
                "session_uid": item.session_uid,
                "ended_at": item.archived_at,
                "repo": None,
                "title": f"{item.id}  {item.name}",
            }
            for item in bookmarks
        )

    def clean(self, name: str) -> str:
        """A name as it is stored: on one line, without secrets. Raises UsageError for none, or a long one."""
        name = self._redact(" ".join(name.split()))
        if not name or len(name) > _NAME_CHARS:
            raise UsageError(f"Invalid name: {name[:_NAME_CHARS]}", f"give 1 to {_NAME_CHARS} characters")
        return name

    def _put_aside(self, name: str) -> tuple[Pointer, BookmarkRow]:
        name = self.clean(name)
        pointer = self._require_pointer()
        session = self._store.sessions.find_named(pointer.session)
        began = session.started_at if session else None
        created_ms = as_ms(began) if began else pointer.updated_ms
        return pointer, BookmarkRow(0, self.group, pointer.session, name, created_ms, now_ms())

    def _require_pointer(self) -> Pointer:
        pointer = self._store.groups.pointer(self.group)
        if pointer is None:
            raise NotFound(f"No active session in group: {self.group}", "`recollect group run` begins one")
        return pointer

    def _kept(self, bookmark: BookmarkRow) -> Bookmark:
        rows = self._store.groups.bookmarks(self.group)
        return _bookmark(next(row for row in rows if row.session == bookmark.session))


def key_of(session_uid: str) -> SessionKey:
    """A session's key; raises UsageError for what is no uid."""
    agent, colon, native_id = session_uid.partition(":")
    if not (agent and colon and native_id):
        raise UsageError(f"Not a session_uid: {session_uid}", "it is AGENT:ID")
    return SessionKey(agent, native_id)


def _bookmark(row: BookmarkRow) -> Bookmark:
    return Bookmark(
        row.id,
        row.group_name,
        ":".join(row.session),
        row.name,
        rfc3339(row.created_ms) or "",
        rfc3339(row.archived_ms) or "",
    )


Answer = Callable[[dict[str, object]], tuple[str, str]]  # what a request is answered, to be stored with its change


@dataclass(frozen=True, slots=True)
class Cleared:
    """A conversation that was put aside; `archive` is its document, if there is anything stored of it.

    `was_done`: the same call had done it before, and was killed before it could say so.
    """

    bookmark: Bookmark
    archive: str | None
    was_done: bool = False


@dataclass(frozen=True, slots=True)
class Resumed:
    """A conversation that is active again, and the bookmark of the one it replaced, if there is one.

    `resume_command` continues it in `cwd` with the agent's own program. `was_done` as in `Cleared`.
    """

    group: str
    session_uid: str
    name: str
    saved_as: str | None
    was_done: bool = False
    cwd: str | None = None
    resume_command: str | None = None


def clear_session(
    group: Group,
    sessions: GroupSessions,
    name: str,
    find: Callable[[str], Session],
    write: Callable[[Session, Path, str], Path],
    answer: Answer,
) -> Cleared:
    """Archive the active session, bookmark it, and have none; a running agent is closed.

    The agent is closed first: were all to end after that, it would go on with the same session at the next prompt.
    """
    active, name = sessions.require(), sessions.clean(name)
    archive = None
    with suppress(NotFound):  # it was never stored: excluded, forgotten, or without a word in it
        archive = str(write(find(active), Path(group.conversations), name))
    signal_close(Path(group.ipc))
    change: dict[str, object] = {"session_uid": active, "name": name, "archive": archive}
    return Cleared(sessions.put_aside(name, answer(change)), archive)


def resume_session(group: Group, sessions: GroupSessions, target: str, save_as: str | None, answer: Answer) -> Resumed:
    """Make a bookmarked session the active one, `save_as` keeping the one active now; a running agent is closed.

    Raises NotFound with names like it, or Ambiguous with all of that name; then nothing changes.
    """
    bookmark = sessions.find(target)
    if bookmark is None:
        near = sessions.nearest(target)
        hint = (
            f"did you mean {' or '.join(f'`{name}`' for name in near)}?"
            if near
            else "`recollect group bookmarks` lists them"
        )
        raise NotFound(f"No bookmark has this number, name or archive: {target}", hint)
    if save_as is not None:
        sessions.require()
        save_as = sessions.clean(save_as)
    signal_close(Path(group.ipc))
    change: dict[str, object] = {"session_uid": bookmark.session_uid, "name": bookmark.name, "saved_as": save_as}
    sessions.restore(bookmark.id, save_as, answer(change))
    return Resumed(group.name, bookmark.session_uid, bookmark.name, save_as)
