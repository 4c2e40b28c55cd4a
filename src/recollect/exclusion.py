"""Which places the user keeps out of the store: by setting, or by a file in the repository itself.

A `.recollectignore` is looked for in the folder a session worked in and in those above it, up to the git root. An
empty one keeps the whole repository out; else each line is a glob of folders below it. `[capture] exclude` in
a repository's `.recollect.toml` lists the same globs. A file that cannot be read keeps out all: somebody put it there.
"""

import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from pathlib import Path

from recollect.repos import Checkouts, normal_root

IGNORE_FILE = ".recollectignore"
REPO_SETTINGS = ".recollect.toml"

_LONGEST_BYTES = 1024 * 1024

_ORIGIN = re.compile(r'^\[remote "origin"\][^\[]*?^\s*url\s*=\s*(\S+)', re.MULTILINE | re.DOTALL)


class Exclude:
    """The rules of one user. A rule is named by its pattern, or by the path of the file that has it."""

    def __init__(self, patterns: Sequence[str], checkouts: Callable[[], Checkouts]) -> None:
        """`checkouts` tells what the store knows of repositories; it is asked only if a pattern names one."""
        paths = [pattern for pattern in patterns if pattern.startswith("/")]
        self._folders = [(pattern, _folder_test(pattern)) for pattern in paths]
        self._repos = [(pattern, _repo_test(pattern)) for pattern in patterns if pattern not in paths]
        self._ask_checkouts = checkouts
        self.rule = cache(self._rule)  # many sessions work at one place

    def _rule(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> str | None:
        """The rule that keeps out sessions of this place, or None."""
        if cwd is not None and (not cwd.startswith("/") or "\0" in cwd):
            cwd = None  # nothing that could be found here
        rule = self._folder_rule(cwd) or _file_rule(cwd) if cwd is not None else None
        return rule or (self._repo_rule(cwd, git_root, git_remote) if self._repos else None)

    def _folder_rule(self, cwd: str) -> str | None:
        if not self._folders:
            return None
        places = {os.path.normpath(cwd), os.path.realpath(cwd)}
        return next((pattern for pattern, test in self._folders if any(map(test, places))), None)

    def _repo_rule(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> str | None:
        remote = git_remote or (_remote_of(cwd) if cwd else None)
        repo = self._checkouts.repo(cwd, git_root, remote)
        return next((pattern for pattern, test in self._repos if repo and test(repo)), None)

    @cached_property
    def _checkouts(self) -> Checkouts:
        return self._ask_checkouts()


def _folder_test(pattern: str) -> Callable[[str], bool]:
    """Whether a folder is meant by a pattern, or lies below one that is."""
    plain = os.path.normpath(pattern.removesuffix("/**"))
    start = plain.partition("*")[0].rpartition("/")[0]
    resolved = os.path.realpath(start) + plain[len(start) :] if start else plain
    test = re.compile(f"(?:{_regex(plain)}|{_regex(resolved)})(?:/.*)?", re.DOTALL)
    return lambda path: test.fullmatch(path) is not None


def _repo_test(pattern: str) -> Callable[[str], bool]:
    """Whether a repository's name, or any ending of it, is what a pattern says."""
    test = re.compile(f"(?:.*/)?{_regex(pattern.strip('/').removesuffix('.git'))}", re.IGNORECASE | re.DOTALL)
    return lambda repo: test.fullmatch(repo) is not None


def _regex(pattern: str) -> str:
    """A glob as a regular expression: `*` and `?` stay inside of one name, `**` does not."""
    parts = re.split(r"(\*\*/?|\*|\?)", pattern)
    words = {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    return "".join(words.get(part, re.escape(part)) for part in parts)


def _file_rule(cwd: str) -> str | None:
    """The file of a repository that keeps this folder of it out."""
    for folder, inside in _folders_to_ask(cwd):
        for name, read in ((IGNORE_FILE, _ignored), (REPO_SETTINGS, _narrowed)):
            path = f"{folder}/{name}"
            if os.path.lexists(path) and _matches(read(Path(path)), inside):
                return path
    return None


def _folders_to_ask(cwd: str) -> Iterator[tuple[str, str]]:
    """Folders whose rules hold for `cwd`, with its path below each; a worktree also obeys its main checkout."""
    place = Path(os.path.normpath(cwd))
    for folder in (place, *place.parents):
        inside = "" if folder == place else str(place.relative_to(folder))
        yield str(folder).rstrip("/"), inside
        if os.path.lexists(folder / ".git"):
            if main := _main_checkout(folder):
                yield main, inside
            return


def _main_checkout(root: Path) -> str | None:
    """The checkout that a worktree belongs to; None for one that has its own history."""
    if (told := normal_root(str(root))) != str(root):
        return told
    link = _read_text(root / ".git") or ""
    main, found, _ = link.removeprefix("gitdir:").strip().partition("/.git/worktrees/")
    return main if found else None


def _read_text(path: Path) -> str | None:
    """A small file of a repository, which may hold anything: a pipe must not stop a sweep, nor a huge file fill it."""
    if not stat.S_ISREG(_mode(path)):
        return None
    try:
        with path.open("rb") as file:
            content = file.read(_LONGEST_BYTES + 1)
        return content.decode() if len(content) <= _LONGEST_BYTES else None
    except (OSError, UnicodeDecodeError):
        return None


def _mode(path: Path) -> int:
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _ignored(path: Path) -> list[str] | None:
    """The globs of an ignore file; None for all."""
    lines = [line.strip() for line in (_read_text(path) or "").splitlines()]
    return [line for line in lines if line and not line.startswith("#")] or None


def _narrowed(path: Path) -> list[str] | None:
    """The globs of a repository's settings; None for all."""
    text = _read_text(path)
    try:
        return None if text is None else [str(glob) for glob in tomllib.loads(text)["capture"]["exclude"]]
    except KeyError:
        return []
    except (tomllib.TOMLDecodeError, TypeError):
        return None


def _matches(globs: list[str] | None, inside: str) -> bool:
    if globs is None:
        return True
    tests = (_regex(glob.strip("/").removesuffix("/**")) for glob in globs)
    return any(re.fullmatch(f"{test}(?:/.*)?", inside, re.DOTALL) for test in tests)


def _remote_of(cwd: str) -> str | None:
    """The address of a checkout's origin, where the checkout is still there to be asked."""
    for folder in (Path(cwd), *Path(cwd).parents):
        if os.path.lexists(folder / ".git"):
            return _origin(Path(_main_checkout(folder) or folder) / ".git" / "config")
    return None


def _origin(config: Path) -> str | None:
    found = _ORIGIN.search(_read_text(config) or "")
    return found[1] if found else None
