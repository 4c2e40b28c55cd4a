"""What a checkout on this disk says of itself: where it begins, which one a worktree belongs to, its remote."""

import os
import re
import stat
from pathlib import Path

from recollect.sessions.repos import normal_root

_LONGEST_BYTES = 1024 * 1024
_SECTION = re.compile(r'\[\s*(\w+)\s*(?:"([^"]*)")?\s*\]')
_URL = re.compile(r"url\s*=\s*(\S+)")


def find_checkout(folder: Path) -> Path | None:
    """The checkout that a folder lies in; that of a worktree is the main one."""
    for path in (folder, *folder.parents):
        if os.path.lexists(path / ".git"):
            return Path(main_checkout(str(path)) or path)
    return None


def main_checkout(root: str) -> str | None:
    """The checkout that a worktree belongs to; None for one that has its own history."""
    if (checkout := normal_root(root)) != root:
        return checkout
    link = read_text(Path(root) / ".git", _LONGEST_BYTES) or ""
    main, separator, _ = link.removeprefix("gitdir:").strip().partition("/.git/worktrees/")
    return main if separator and main.startswith("/") and "\0" not in main else None


def remote_of(folder: Path) -> str | None:
    """The address of a checkout's origin, if the checkout still exists."""
    root = find_checkout(folder)
    return read_origin(root / ".git" / "config") if root else None


def read_origin(config: Path) -> str | None:
    """The address of `origin` in a git configuration."""
    section = None
    for line in map(str.strip, (read_text(config, _LONGEST_BYTES) or "").splitlines()):
        if heading := _SECTION.match(line):
            section = heading.groups()
        elif section == ("remote", "origin") and (url := _URL.match(line)):
            return url[1]
    return None


def read_text(path: Path, longest_bytes: int) -> str | None:
    """A small file that may hold anything; None for a pipe, which would stop the sweep, and for a huge file."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            return None
        with path.open("rb") as file:
            content = file.read(longest_bytes + 1)
        return content.decode("utf-8-sig") if len(content) <= longest_bytes else None
    except (OSError, ValueError):  # also: not UTF-8
        return None
