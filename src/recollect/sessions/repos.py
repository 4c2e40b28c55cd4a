"""Repositories that sessions worked in, by their remotes and roots, and what a checkout on this disk says of itself.

Git is asked read-only, without the network, and not for long.
"""

import os
import re
import stat
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from recollect.model.home import environment
from recollect.store import Store

# Without a user before it a host needs a dot: `C:/work` is a path.
_SCP_LIKE = re.compile(r"^(?:[^@/:]+@|(?=[^@/:]+\.|localhost:))(?P<host>[^@/:]+):(?P<path>.+)$")
_URL = re.compile(r"^[a-z][a-z0-9+.-]*://(?:[^/]*@)?(?P<host>[^@/:]+)(?::\d*)?/(?P<path>.+)$", re.IGNORECASE)
_LONGEST_PATH = 4096  # no folder has a longer one, and a log may claim any
# Agents and people put working copies below the checkout they belong to, editors beside it: `shop.worktrees/fix`.
_WORKTREE = re.compile(r"(?:/\.[^/]+/|/?\.|(?<=[^/])-)worktrees/(?P<name>[^/]+)")
_HOME = re.compile(r"/home/[^/]+|/Users/[^/]+|/root|[A-Z]:/Users/[^/]+")
_WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")


def normal_remote(remote: str | None) -> str | None:
    """`host/owner/name` of a git remote, without user, password, port and `.git`; None if it names no host."""
    match = _URL.match(remote or "") or _SCP_LIKE.match(remote or "")
    if match is None:
        return None
    path = match["path"].strip("/").removesuffix(".git")
    return f"{match['host'].lower()}/{path}" if path else None


def normal_root(path: str | None) -> str | None:
    """A checkout's path without a trailing slash; a worktree counts as the checkout it belongs to.

    Windows paths get slashes and a large drive letter: programs write `C:\\shop`, `c:\\shop` and `C:/shop`.
    """
    path = _with_slashes(path)
    return None if path is None else _WORKTREE.sub("", path).rstrip("/") or "/"


def _with_slashes(path: str | None) -> str | None:
    if not path or len(path) > _LONGEST_PATH:
        return None
    return (path[0].upper() + path[1:]).replace("\\", "/") if _WINDOWS_PATH.match(path) else path


def checkout_at(path: str | None) -> str | None:
    """The checkout of a worktree or of a folder in one; any other path as `normal_root` has it.

    A worktree's name may have slashes, as branches do, so its end cannot be known.
    """
    path = _with_slashes(path)
    worktree = _WORKTREE.search(path) if path else None
    if path is None or worktree is None:
        return normal_root(path)
    above = path[: worktree.start()]
    # In a home such a folder has the worktrees of all repositories, by their names.
    return f"{above}/{worktree['name']}" if _HOME.fullmatch(above) else above or "/"


def folded(path: str) -> str:
    """A path to compare: on Windows `C:/Users` and `C:/users` are one folder."""
    return path.lower() if path[1:3] == ":/" or path.startswith("//") else path


def windows_path(path: str) -> str | None:
    """A path on Windows in one spelling of the many it may have; None for any other."""
    return folded(_with_slashes(path) or "") if _WINDOWS_PATH.match(path) else None


class Checkouts:
    """What all sessions together know of where repositories lie."""

    def __init__(
        self, known: Iterable[tuple[str | None, str | None, str | None]], in_git: Iterable[str | None] = ()
    ) -> None:
        """`known`: (cwd, git root, git remote) of each session; `in_git`: working directories that had a branch.

        A cwd with a remote counts as a checkout. So does the highest cwd in git above one that is in git too, but no
        home: people keep their settings in such a repository, and all others below it.
        """
        folders = {folder for cwd in in_git if (folder := checkout_at(cwd)) and not _HOME.fullmatch(folder)}
        self._in_git = set(map(folded, folders))
        self._remotes: dict[str, str] = {}
        self._roots: set[str] = set()
        self._spellings: dict[str, str] = {}  # of each folder the first, by its path as `folded` has it
        for cwd, git_root, git_remote in sorted(known, key=lambda facts: tuple(fact or "" for fact in facts)):
            folder = checkout_at(git_root) or checkout_at(cwd)
            if folder is None:
                continue
            self._spellings.setdefault(folded(folder), folder)
            remote = normal_remote(git_remote)
            if remote:
                self._remotes.setdefault(folded(folder), remote)
            if git_root:
                self._roots.add(folded(folder))

    def repo(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> str | None:
        """The remote's name if any session of this checkout knows it, else the root's path, else the cwd's name.

        The nearest checkout counts: one without a remote may lie inside of one that has it.
        """
        if remote := normal_remote(git_remote):
            return remote
        folder = checkout_at(git_root) or checkout_at(cwd)
        if folder is None:
            return None
        path = PurePosixPath(folded(folder))
        above = map(str, (path, *path.parents))
        root = next((root for root in above if root in self._remotes or root in self._roots), None)
        if root is None and str(path) in self._in_git:
            path = max((path, *path.parents), key=lambda folder: (str(folder) in self._in_git, -len(folder.parts)))
        if root is None:
            return PurePosixPath(self._spellings.get(str(path), folder)).name or folder
        return self._remotes.get(root) or self._spellings[root]


def domain_of(repo: str | None, domains: Mapping[str, str]) -> str | None:
    """The domain of the longest configured name that is the repository's or a suffix of it."""
    if repo is None:
        return None
    matching = [name for name in domains if f"/{repo}".endswith(f"/{name.strip('/')}")]
    return domains[max(matching, key=len)] if matching else None


def name_repos(store: Store, domains: Mapping[str, str]) -> None:
    """Update the repositories of sessions for which another session's remote became known, or is gone."""
    known = store.session_rows.places()
    in_git = {place.cwd for place in known if place.git_branch}
    checkouts = Checkouts({(place.cwd, place.git_root, place.git_remote) for place in known}, in_git)
    name = cache(checkouts.repo)  # many sessions work at one place
    roots = {place.session_uid: place for place in known}
    changes = {}
    for place in known:
        base = roots.get(place.root_session_uid, place)  # a sub-agent works where its root does
        repo = name(base.cwd, base.git_root, base.git_remote)
        domain = domain_of(repo, domains)
        if (repo, domain) != (place.repo, place.domain):
            changes[place.session] = repo, domain
    store.session_rows.set(("repo", "domain"), changes)


_LONGEST_BYTES = 1024 * 1024
_SECTION = re.compile(r'\[\s*(\w+)\s*(?:"([^"]*)")?\s*\]')
_ORIGIN_URL = re.compile(r"url\s*=\s*(\S+)")


def find_checkout(folder: Path) -> Path | None:
    """The checkout that contains a folder; for a worktree, the main one."""
    for path in (folder, *folder.parents):
        if os.path.lexists(path / ".git"):
            return Path(main_checkout(str(path)) or path)
    return None


def main_checkout(root: str) -> str | None:
    """The checkout that a worktree belongs to; None for one that has its own history."""
    if (checkout := checkout_at(root)) != root:
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
        elif section == ("remote", "origin") and (url := _ORIGIN_URL.match(line)):
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


# Nothing that a repository configures may run, or reach for a server.
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "core.quotePath=off")
_SAFELY = ("--no-pager", "--no-optional-locks", *(word for setting in _SETTINGS for word in ("-c", setting)))
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}  # settings of a single protocol would win over others

_MOST_NEW_FILES, _MOST_NEW_BYTES = 200, 500_000
_AROUND = 2  # lines before and after one that are looked at
_BLAMED = re.compile(r"(?P<commit>[0-9a-f]{40,64}) \d+ (?P<line>\d+)")


def ask_git(folder: str, *arguments: str, seconds: float) -> str | None:
    """What git answers in a folder; None if there is no such folder, no repository, no git, or not enough time."""
    import subprocess  # slow to load: a search only looks at paths

    if not Path(folder).is_dir():
        return None
    try:
        done = subprocess.run(
            ["git", *_SAFELY, "-C", folder, *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=max(0.05, seconds),
            check=False,
            env={**environment(), **_OFFLINE},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def changed_since(folder: str, files: Sequence[str], moment: str, *, seconds: float) -> tuple[str, ...] | None:
    """Which files of a folder changed after a change made at a moment; None where the repository is not at hand.

    The first commit after the moment is taken for the one that holds the change itself.
    """
    inside = [file for file in files if not file.startswith(("/", "../"))]
    arguments = ("log", "--relative", "--name-only", "--no-renames", "--format=", f"--since={moment}", "--", *inside)
    answer = ask_git(folder, *arguments, seconds=seconds) if inside else None
    if answer is None:
        return None
    commits = Counter(answer.splitlines())
    return tuple(file for file in inside if commits[file] > 1 or not (Path(folder) / file).exists())


class BlamedLine(NamedTuple):
    """A line as git knows it: the commit that wrote it, if any has yet, and the times between which that was.

    `path` is what the file was called in that commit; `around` are lines next to it that the same commit wrote.
    """

    text: str
    commit: str | None
    summary: str
    path: str
    since_ms: int | None
    until_ms: int
    around: tuple[str, ...]


def blame_line(root: str, path: str, line: int, *, seconds: float) -> BlamedLine | None:
    """Who wrote a line of a file below a checkout's root; None if git knows neither the file nor the line."""
    first = max(1, line - _AROUND)
    without_filters = _without_filters(root, seconds)
    if without_filters is None:
        return None
    blame = ("blame", "--porcelain", "-w", "--no-textconv", f"-L{first},{line + _AROUND}", "--", path)
    commits: dict[str, dict[str, str]] = {}
    texts: dict[int, tuple[str, str]] = {}  # by line: its commit and what it says
    commit, number = "", 0
    for row in (ask_git(root, *without_filters, *blame, seconds=seconds) or "").split("\n"):
        if row.startswith("\t"):
            texts[number] = (commit, row[1:].strip())
        elif heading := _BLAMED.match(row):
            commit, number = heading["commit"], int(heading["line"])
            commits.setdefault(commit, {})
        elif row:
            name, _, value = row.partition(" ")
            commits[commit][name] = value
    if line not in texts:
        return None
    commit, text = texts[line]
    facts = commits[commit]
    earlier = facts.get("previous", "").partition(" ")[0]
    before = ask_git(root, "log", "-1", "--format=%ct", earlier, seconds=seconds) if earlier else None
    return BlamedLine(
        text,
        commit if commit.strip("0") else None,
        facts.get("summary", ""),
        facts.get("filename", path),
        int(before) * 1000 if before else None,
        int(facts["committer-time"]) * 1000,
        tuple(said for place, (by, said) in texts.items() if place != line and by == commit and said),
    )


def _without_filters(root: str, seconds: float) -> list[str] | None:
    """What keeps git from running a repository's filters on a file of its checkout; None if it cannot be said."""
    pattern = r"^(filter\..*|core\.hookspath)$"  # the second is always set, so that no answer is never "none"
    answer = ask_git(root, "config", "--name-only", "-z", "--get-regexp", pattern, seconds=seconds)
    keys = [key for key in (answer or "=").split("\0") if key.startswith(("filter.", "="))]
    if any("=" in key for key in keys):
        return None
    return [word for key in keys for word in ("-c", f"{key}=")]


def uncommitted_lines(folder: str, *, seconds: float) -> tuple[str, dict[str, list[str]]] | None:
    """The root of a checkout and, by path, the lines that are new or changed since its last commit.

    Files that git does not know yet are new as a whole. None where there is no checkout.
    """
    root = (ask_git(folder, "rev-parse", "--show-toplevel", seconds=seconds) or "").rstrip("\n")
    if not root:
        return None
    unfiltered = _without_filters(root, seconds)
    if unfiltered is None:
        return root, {}
    diff = (*unfiltered, "diff", "HEAD", "--unified=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-prefix")
    lines: dict[str, list[str]] = {}
    path = ""
    for row in (ask_git(root, *diff, seconds=seconds) or "").split("\n"):
        if row.startswith("+++ "):
            path = row[4:].rstrip("\t")
        elif row.startswith("+") and path:
            lines.setdefault(path, []).append(row[1:].strip())
    others = ask_git(root, "ls-files", "--others", "--exclude-standard", "-z", seconds=seconds) or ""
    for name in others.split("\0")[:_MOST_NEW_FILES]:
        file = Path(root) / name
        if name and file.is_file() and file.stat().st_size <= _MOST_NEW_BYTES:
            lines[name] = [line.strip() for line in file.read_text("utf-8", "replace").splitlines()]
    return root, lines


def checkout_of(path: str, *, seconds: float) -> tuple[str, str] | None:
    """The root of the checkout that a file is in, and the file's path below it."""
    folder, _, name = path.rpartition("/")
    answer = ask_git(folder or "/", "rev-parse", "--show-toplevel", "--show-prefix", seconds=seconds)
    if answer is None:
        return None
    root, prefix, *_ = answer.split("\n")
    return root, f"{prefix}{name}"
