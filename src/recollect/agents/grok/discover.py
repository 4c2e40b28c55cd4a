"""Grok's files: a session is a folder.

updates.jsonl is its log and the only lane; the other files add facts (summary.json, subagents/*/meta.json), a few
lifecycle events (events.jsonl) or prompts whose session is gone (prompt_history.jsonl).
"""

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from recollect.agentkit.files import Source, iter_files, unreadable_folders
from recollect.agentkit.log import fingerprint
from recollect.agentkit.values import as_id

AGENT = "grok"
ID_CHARS = 80  # longer ids are not Grok's; they would also break the bound on a cursor's state
UPDATES, EVENTS, SUMMARY, CHAT, CHILD, HISTORY = "updates", "events", "summary", "chat", "child", "history"
_REWRITTEN = frozenset({SUMMARY, CHAT, CHILD})


def discover(root: Path) -> Iterator[Source]:
    """Find the session folders below `root`, Grok's home or any folder sessions were copied to."""
    sessions = root / "sessions"
    is_home = sessions.is_dir() and not sessions.is_symlink()
    folders: dict[Path, set[str]] = defaultdict(set)
    unreadable: list[OSError] = []
    for path in iter_files(sessions if is_home else root, unreadable):
        folders[path.parent].add(path.name)
    for folder in sorted(folders):
        depth = len(folder.relative_to(sessions).parts) if is_home else None
        for kind, name in _files(folder, folders[folder], depth):
            # A child's facts are in its parent's folder; a history belongs to no session.
            owner = session_name(folder.parent.parent if kind == CHILD else folder) if kind != HISTORY else None
            yield Source(AGENT, kind, root, folder / name, kind in _REWRITTEN, session=owner)
    yield from unreadable_folders(AGENT, root, unreadable)


def _files(folder: Path, names: set[str], depth: int | None) -> Iterator[tuple[str, str]]:
    """The files of one folder that are read. `depth` is below `sessions`, None in a folder of copies."""
    if depth in (None, 1) and "prompt_history.jsonl" in names:
        yield HISTORY, "prompt_history.jsonl"
    if depth in (None, 4) and folder.parent.name == "subagents" and "meta.json" in names:
        yield CHILD, "meta.json"
    lanes = names & {"updates.jsonl", "chat_history.jsonl"}
    # Other programs use names like these: outside Grok's own tree both files must be there.
    if not lanes or not (depth == 2 or (depth is None and "summary.json" in names)):
        return
    yield (UPDATES, "updates.jsonl") if "updates.jsonl" in names else (CHAT, "chat_history.jsonl")
    if "events.jsonl" in names:
        yield EVENTS, "events.jsonl"
    if "summary.json" in names:
        yield SUMMARY, "summary.json"


def session_name(folder: Path) -> str:
    """The session a folder holds, for files that do not name it: Grok names the folder after it."""
    return as_id(folder.name, ID_CHARS) or fingerprint(folder.name.encode("utf-8", "replace"))
