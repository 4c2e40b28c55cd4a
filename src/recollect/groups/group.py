"""A group: where its things are, how one is added and removed, and what of it is mounted where in a sandbox."""

import re
from dataclasses import dataclass
from pathlib import Path

from recollect.agents import BUILT_IN, get_adapter
from recollect.clock import AsDatetime, now_ms, rfc3339
from recollect.errors import NotFound, UsageError
from recollect.sessions import GROUPS_FOLDER, assign_groups, group_folder, homes_of
from recollect.store import MAIN_GROUP, GroupRow, Store

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
    from difflib import get_close_matches  # only where a name was mistyped

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
