"""What of a group is mounted where in a sandbox, and the paragraph that tells its agent of it."""

from dataclasses import dataclass
from pathlib import Path

from recollect.agents import get_adapter
from recollect.errors import UsageError
from recollect.groups.group import CONVERSATIONS, Group, global_file
from recollect.store import MAIN_GROUP

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
        raise UsageError(f"The mark of the paragraph's end is missing: {instructions_file(group)}", f"add: {_END}")
    if begin:
        return before + paragraph(group) + after.removeprefix("\n")
    gap = "" if not text or text.endswith("\n\n") else "\n" if text.endswith("\n") else "\n\n"
    return text + gap + paragraph(group)
