"""The files by which a repository keeps itself out of the store, in whole or in part.

A `.recollectignore` is looked for in the folder where a session worked and in its parents, up to the git root. An empty
one excludes everything below it; otherwise each line is a glob for folders. `[capture] exclude` in a `.recollect.toml`
lists the same globs. Anybody may have written these files: whatever they hold takes little time and harms no other
project. One that cannot be read, or is absurdly long, excludes everything below it: somebody put it there.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import accumulate, takewhile
from pathlib import Path
from typing import NamedTuple

from recollect.ingest.globs import GlobText
from recollect.sessions.checkout import main_checkout, read_origin, read_text

IGNORE_FILE = ".recollectignore"
REPO_SETTINGS = ".recollect.toml"
LONGEST_PATH = 4096  # no system call takes a longer one

_LONGEST_IGNORE_BYTES = 64 * 1024
_LONGEST_SETTINGS_BYTES = 8 * 1024  # the time to parse a table grows with the square of its depth


class _Folder(NamedTuple):
    """What one folder says: rule files with their globs (None: everything below), and if it is a checkout, of what."""

    rules: list[tuple[str, list[str] | None]]
    is_git_root: bool
    main_checkout: str | None


class RuleFiles:
    """The rule files on this machine, each read once."""

    def __init__(self) -> None:
        self._is_folder = cache(os.path.isdir)
        self._read_folder = cache(_read_folder)

    def rule(self, cwd: str) -> str | None:
        """The path of the file that excludes this folder, or None."""
        for folder, below in self._folders(cwd):
            for path, globs in self._read_folder(folder).rules:
                if globs is None or _match_any(globs, below):
                    return path
        return None

    def ignore_files(self, cwds: Iterable[str]) -> set[Path]:
        """The ignore files that apply to these folders."""
        folders = {folder for cwd in cwds if is_path(cwd) for folder, _ in self._folders(cwd)}
        return {path for folder in folders if os.path.lexists(path := Path(folder) / IGNORE_FILE)}

    def remote(self, cwd: str) -> str | None:
        """The address of the `origin` of the checkout that a folder is in, if the checkout still exists."""
        for folder in self._existing(cwd):
            checkout = self._read_folder(folder)
            if checkout.is_git_root:
                return read_origin(Path(checkout.main_checkout or folder) / ".git" / "config")
        return None

    def _folders(self, cwd: str) -> Iterator[tuple[str, str]]:
        """Folders whose rules apply to `cwd`, with its path below each: as logged, and with links resolved."""
        for path in dict.fromkeys((os.path.normpath(cwd), resolved(cwd))):
            for folder in self._existing(path):
                below = path[len(folder) :].strip("/")
                yield folder.rstrip("/"), below
                checkout = self._read_folder(folder)
                if checkout.is_git_root:
                    if checkout.main_checkout:  # a worktree obeys its main checkout, too
                        yield checkout.main_checkout, below
                    break

    def _existing(self, path: str) -> list[str]:
        """The folder and its parents as far as they exist, the deepest first."""
        parts = accumulate(path.strip("/").split("/"), lambda above, name: f"{above}/{name}", initial="")
        return list(takewhile(lambda folder: self._is_folder(folder or "/"), parts))[::-1]


def is_path(cwd: str) -> bool:
    """Whether a session's folder can be looked up on this machine."""
    return cwd.startswith("/") and "\0" not in cwd and len(cwd) <= LONGEST_PATH


def resolved(path: str) -> str:
    """A path with its links resolved, as far as that is possible."""
    try:
        return os.path.realpath(path)
    except (OSError, RecursionError):  # a link to a link to a link …
        return os.path.normpath(path)


def unusable_lines(path: Path) -> list[str]:
    """Lines of an ignore file that have no effect: those that begin with `!`."""
    return [line for line in _lines(path) if line.startswith("!")] if path.name == IGNORE_FILE else []


def _read_folder(folder: str) -> _Folder:
    rules = [
        (path, read(Path(path)))
        for name, read in ((IGNORE_FILE, _read_ignore_file), (REPO_SETTINGS, _read_settings))
        if os.path.lexists(path := f"{folder.rstrip('/')}/{name}")
    ]
    is_git_root = os.path.lexists(f"{folder}/.git")
    return _Folder(rules, is_git_root, main_checkout(folder) if is_git_root else None)


def _read_ignore_file(path: Path) -> list[str] | None:
    globs = [line for line in _lines(path) if not line.startswith("!")]
    uncommented = [glob for line in globs if (glob := re.split(r"\s#", line, maxsplit=1)[0].rstrip()) != line]
    return globs + uncommented or None  # the `#` may be part of a name


def _lines(path: Path) -> list[str]:
    lines = [line.strip() for line in (read_text(path, _LONGEST_IGNORE_BYTES) or "").splitlines()]
    return [line for line in lines if line and not line.startswith("#")]


def _read_settings(path: Path) -> list[str] | None:
    text = read_text(path, _LONGEST_SETTINGS_BYTES)
    try:
        return None if text is None else [str(glob) for glob in tomllib.loads(text)["capture"]["exclude"]]
    except KeyError:
        return []
    except (tomllib.TOMLDecodeError, TypeError, ValueError, RecursionError):
        return None


def _match_any(globs: Iterable[str], below: str) -> bool:
    text = GlobText(below)
    return any(_matches(glob, text) for glob in globs)


def _matches(glob: str, text: GlobText) -> bool:
    """Whether a glob names a folder or one of its parents; `.` and `/` are the folder of the file with the glob.

    A single name matches at any depth, as in other ignore files.
    """
    plain = glob.strip("/").removeprefix("./").removesuffix("/**")
    is_anchored = "/" in plain or glob.startswith("/")
    return plain in ("", ".") or text.has(plain, text.start if is_anchored else text.name_starts, text.name_ends)
