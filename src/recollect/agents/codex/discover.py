"""Codex's files: rollouts, one per thread, below `sessions` and `archived_sessions`, and two side files."""

import re
from collections.abc import Iterator
from pathlib import Path

from recollect.agentkit.files import Source, iter_files, unreadable_folders

AGENT = "codex"
ROLLOUT, PACKED, DOCUMENT, TITLES, HISTORY = "rollout", "packed rollout", "document", "titles", "history"
_KINDS = {".jsonl": ROLLOUT, ".jsonl.zst": PACKED, ".json": DOCUMENT}
_FOLDERS = ("sessions", "archived_sessions")
_SIDE_FILES = {"session_index.jsonl": TITLES, "history.jsonl": HISTORY}
_NAME = re.compile(r"rollout-.*?([0-9a-f]{8}-[0-9a-f-]{27})(?:_([0-9a-f-]{8,64}))?\.jsonl?(?:\.zst)?")


def discover(root: Path) -> Iterator[Source]:
    """Rollouts, the list of titles and the prompt history; never a credential file."""
    folders = [root / name for name in _FOLDERS if (root / name).is_dir()]
    unreadable: list[OSError] = []
    for folder in folders or [root]:
        for path in iter_files(folder, unreadable):
            # A packed log and its plain twin both count: either may be broken.
            kind = _KINDS.get(path.name[path.name.find(".json") :]) if path.name.startswith("rollout-") else None
            if kind is not None:
                yield Source(AGENT, kind, root, path, kind != ROLLOUT, session=parse_name(path)[0])
    yield from unreadable_folders(AGENT, root, unreadable)
    for name, kind in _SIDE_FILES.items():
        path = root / name
        if path.is_file() and not path.is_symlink():
            yield Source(AGENT, kind, root, path)


def parse_name(path: Path) -> tuple[str, str | None, bool]:
    """The thread a rollout is named after, the segment of a rewind, and whether the name is one of Codex's own."""
    match = _NAME.fullmatch(path.name)
    if match is None:
        return Path(path.name.removesuffix(".zst")).stem[:128], None, False
    return match[1], match[2], True
