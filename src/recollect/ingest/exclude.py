"""Which places the user keeps out of the store: by setting, or by a file in the repository itself.

A `.recollectignore` is looked for in the folder a session worked in and in those above it, up to the git root. An
empty one keeps the whole repository out; else each line is a glob of folders below it. `[capture] exclude` in
a repository's `.recollect.toml` lists the same globs. A file that cannot be read keeps out all: somebody put it there.
Where a pattern can be meant in two ways, it is taken both ways: what was stored by mistake is worse than what was not.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path, PurePosixPath

from recollect.sessions.checkout import main_checkout, read_text, remote_of
from recollect.sessions.repos import Checkouts, normal_remote, normal_root

IGNORE_FILE = ".recollectignore"
REPO_SETTINGS = ".recollect.toml"


class Exclude:
    """The rules of one user. A rule is named by its pattern, or by the path of the file that has it."""

    def __init__(
        self, patterns: Sequence[str], checkouts: Callable[[], Checkouts], told: Callable[[], Mapping[str, str]]
    ) -> None:
        """`checkouts` tells what the store knows of repositories, `told` which folders sessions that were left out told
        to be checkouts of excluded ones (hash and rule); they are asked only if a pattern names a repository."""
        self._folders = [(pattern, _folder_test(pattern)) for pattern in patterns if "/" in pattern]
        self._repos = [(pattern, _repo_test(pattern)) for pattern in patterns if not pattern.startswith("/")]
        self._ask_checkouts = checkouts
        self._ask_told = told
        self.rule = cache(self._rule)  # many sessions work at one place
        self.is_certain = cache(self._is_certain)

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
        remote = git_remote or (remote_of(Path(cwd)) if cwd else None)
        rule = self._repo_named(self._checkouts.repo(cwd, git_root, remote))
        return rule or (self._rule_told(cwd, git_root) if normal_remote(remote) is None else None)

    def _repo_named(self, repo: str | None) -> str | None:
        return next((pattern for pattern, test in self._repos if repo and test(repo)), None)

    def _rule_told(self, cwd: str | None, git_root: str | None) -> str | None:
        """The rule for the checkout that another session told this folder to be, or to lie in."""
        place = normal_root(git_root) or normal_root(cwd)
        if not self._told or place is None:
            return None
        places = [place] if git_root else [place, *map(str, PurePosixPath(place).parents)]
        return next((rule for path in places if (rule := self._told.get(folder_key(path)))), None)

    def _is_certain(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> bool:
        """Whether nothing that another session tells of repositories can keep out sessions of this place."""
        return not self._repos or bool(normal_remote(git_remote or (remote_of(Path(cwd)) if cwd else None)))

    def learn(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> tuple[str, str] | None:
        """Take down that a folder is a checkout of an excluded repository: its hash and the rule, if that is news."""
        place, rule = normal_root(git_root) or normal_root(cwd), self._repo_named(normal_remote(git_remote))
        if place is None or rule is None or folder_key(place) in self._told:
            return None
        self._told[folder_key(place)] = rule
        self.rule.cache_clear()
        return folder_key(place), rule

    @cached_property
    def _told(self) -> dict[str, str]:
        rules = {pattern for pattern, _ in self._repos}  # what a rule that is no more has told may come back with it
        return {key: rule for key, rule in self._ask_told().items() if rule in rules} if rules else {}

    @cached_property
    def _checkouts(self) -> Checkouts:
        return self._ask_checkouts()


def folder_key(path: str) -> str:
    """What is remembered of a folder that is kept out."""
    return blake2b(path.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _folder_test(pattern: str) -> Callable[[str], bool]:
    """Whether a folder is meant by a pattern, or lies below one that is.

    `acme/shop` is a repository and any folder whose path ends so, for who left out the first slash; so is `shop/`.
    """
    if not pattern.startswith("/"):
        pattern = f"/**/{pattern}"
    plain = os.path.normpath(pattern.removesuffix("/**"))
    start = re.split(r"[*?\[{]", plain, maxsplit=1)[0].rpartition("/")[0]
    resolved = os.path.realpath(start) + plain[len(start) :] if start else plain
    test = re.compile(f"(?:{_regex(plain)}|{_regex(resolved)})(?:/.*)?", re.DOTALL)
    return lambda path: test.fullmatch(path) is not None


def _repo_test(pattern: str) -> Callable[[str], bool]:
    """Whether a repository's name, or any ending of it, is what a pattern says."""
    test = re.compile(f"(?:.*/)?{_regex(pattern.strip('/').removesuffix('.git'))}", re.IGNORECASE | re.DOTALL)
    return lambda repo: test.fullmatch(repo) is not None


def _regex(pattern: str) -> str:
    """A glob as a regular expression: `*`, `?` and `[a-z]` stay inside of one name, `**` does not."""
    parts = re.split(r"(\*\*/?|\*|\?|\[[^]/]+\]|\{[^{}]*,[^{}]*\})", pattern)
    return "".join(_part(part) for part in parts)


def _part(part: str) -> str:
    literal = re.escape(part)
    if part.startswith("{") and part.endswith("}"):
        return "|".join(("(?:" + literal, *map(_regex, part[1:-1].split(",")))) + ")"
    if part.startswith("[") and part.endswith("]") and len(part) > 2:
        return f"(?:{literal}|(?!/){_characters(part[1:-1])})"  # folders may have such names, too
    return {"**": ".*", "**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}.get(part, literal)


def _characters(told: str) -> str:
    """`a-z` or `!a-z` as a set of a regular expression."""
    text = f"[{'^' if told[0] in '!^' else ''}{told.lstrip('!^') if told[0] in '!^' else told}]".replace("\\", "\\\\")
    try:
        re.compile(text)
    except re.error:
        return "(?!)"
    return text


def _file_rule(cwd: str) -> str | None:
    """The file of a repository that keeps this folder of it out."""
    for folder, inside in _folders_to_ask(cwd):
        for name, read in ((IGNORE_FILE, _ignored), (REPO_SETTINGS, _narrowed)):
            path = f"{folder}/{name}"
            if os.path.lexists(path) and _matches(read(Path(path)), inside):
                return path
    return None


def _folders_to_ask(cwd: str) -> Iterator[tuple[str, str]]:
    """Folders whose rules hold for `cwd`, with its path below each: as it was told, and where links lead."""
    for place in dict.fromkeys((os.path.normpath(cwd), os.path.realpath(cwd))):
        yield from _folders_above(Path(place))


def _folders_above(place: Path) -> Iterator[tuple[str, str]]:
    """The folder and those above it up to the git root; a worktree also obeys its main checkout."""
    for folder in (place, *place.parents):
        inside = "" if folder == place else str(place.relative_to(folder))
        yield str(folder).rstrip("/"), inside
        if os.path.lexists(folder / ".git"):
            if main := main_checkout(folder):
                yield main, inside
            return


def _ignored(path: Path) -> list[str] | None:
    """The globs of an ignore file; None for all."""
    globs, _ = _read_globs(path)
    return globs or None


def unusable_lines(path: Path) -> list[str]:
    """Lines of an ignore file that keep nothing out, nor let anything in: what begins with `!`."""
    return _read_globs(path)[1] if Path(path).name == IGNORE_FILE else []


def _read_globs(path: Path) -> tuple[list[str], list[str]]:
    """The globs of an ignore file, and lines that are none."""
    lines = [line.strip() for line in (read_text(path) or "").splitlines()]
    told = [line for line in lines if line and not line.startswith("#")]
    globs = [line for line in told if not line.startswith("!")]
    bare = [glob for line in globs if (glob := re.split(r"\s#", line, maxsplit=1)[0].rstrip()) != line]
    return globs + bare, [line for line in told if line.startswith("!")]


def ignore_files(places: Iterable[str]) -> set[Path]:
    """The ignore files that hold for these folders."""
    asked = {folder for cwd in places if cwd.startswith("/") and "\0" not in cwd for folder, _ in _folders_to_ask(cwd)}
    return {path for folder in asked if os.path.lexists(path := Path(folder) / IGNORE_FILE)}


def _narrowed(path: Path) -> list[str] | None:
    """The globs of a repository's settings; None for all."""
    text = read_text(path)
    try:
        return None if text is None else [str(glob) for glob in tomllib.loads(text)["capture"]["exclude"]]
    except KeyError:
        return []
    except (tomllib.TOMLDecodeError, TypeError):
        return None


def _matches(globs: list[str] | None, inside: str) -> bool:
    return globs is None or any(_is_meant(glob, inside) for glob in globs)


def _is_meant(glob: str, inside: str) -> bool:
    """Whether a folder is what a glob says, or lies below it; `.` and `/` are the folder the glob stands in.

    A single name is meant at any depth, as in other ignore files.
    """
    plain = glob.strip("/").removeprefix("./").removesuffix("/**")
    above = "" if "/" in plain or glob.startswith("/") else "(?:.*/)?"
    return plain in ("", ".") or re.fullmatch(f"{above}{_regex(plain)}(?:/.*)?", inside, re.DOTALL) is not None
