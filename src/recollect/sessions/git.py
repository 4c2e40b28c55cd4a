"""Questions to the git of a checkout on this machine: read-only, without the network, and not for long."""

import re
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from recollect.home import environment

# Nothing that a repository configures may run, or reach for a server.
_SETTINGS = ("core.fsmonitor=false", "core.hooksPath=/dev/null", "log.showSignature=false", "core.quotePath=off")
_SAFELY = ("--no-pager", "--no-optional-locks", *(word for setting in _SETTINGS for word in ("-c", setting)))
_OFFLINE = {"GIT_ALLOW_PROTOCOL": "", "GIT_NO_LAZY_FETCH": "1"}  # settings of a single protocol would win over others

_MOST_NEW_FILES, _MOST_NEW_BYTES = 200, 500_000
_AROUND = 2  # lines before and after one that are looked at
_BLAMED = re.compile(r"(?P<commit>[0-9a-f]{40,64}) \d+ (?P<line>\d+)")


def ask_git(folder: str, *arguments: str, seconds: float) -> str | None:
    """What git answers in a folder; None if there is no such folder, no repository, no git, or not enough time."""
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
