"""What a checkout on this disk says of itself: where it begins, which one a worktree belongs to, its remote."""

import os
import re
import stat
from pathlib import Path

from recollect.sessions.repos import normal_root

_LONGEST_BYTES = 1024 * 1024
_ORIGIN = re.compile(r'^\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', re.MULTILINE | re.DOTALL)


def find_checkout(folder: Path) -> Path | None:
    """The checkout that a folder lies in; that of a worktree is the main one."""
    for path in (folder, *folder.parents):
        if os.path.lexists(path / ".git"):
            return Path(main_checkout(path) or path)
    return None


def main_checkout(root: Path) -> str | None:
    """The checkout that a worktree belongs to; None for one that has its own history."""
    if (told := normal_root(str(root))) != str(root):
        return told
    link = read_text(root / ".git") or ""
    main, found, _ = link.removeprefix("gitdir:").strip().partition("/.git/worktrees/")
    return main if found else None


def remote_of(folder: Path) -> str | None:
    """The address of a checkout's origin, where the checkout is still there to be asked."""
    root = find_checkout(folder)
    match = _ORIGIN.search(read_text(root / ".git" / "config") or "") if root else None
    return match[1] if match else None


def read_text(path: Path) -> str | None:
    """A small file of a repository, which may hold anything: a pipe must not stop a sweep, nor a huge file fill it."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            content = file.read(_LONGEST_BYTES + 1)
        return content.decode("utf-8-sig") if len(content) <= _LONGEST_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None
