"""Which sessions the user keeps out of the store: by a setting, or by a file in the repository itself.

An ambiguous pattern is applied both ways: a session stored by mistake is worse than one left out by mistake.

A `.recollectignore` is looked for in the folder where a session worked and in its parents, up to the git root. An empty
one excludes everything below it; otherwise each line is a glob for folders. `[capture] exclude` in a `.recollect.toml`
lists the same globs. Anybody may have written these files: whatever they hold takes little time and harms no other
project. One that cannot be read, or is absurdly long, excludes everything below it: somebody put it there.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from itertools import accumulate, takewhile
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from recollect.sessions import (
    Checkouts,
    folded,
    main_checkout,
    normal_remote,
    normal_root,
    read_origin,
    read_text,
    windows_path,
)

_PART = re.compile(r"(\*\*/?|\*|\?|\[[^]/]+\]|\{[^{}]*,[^{}]*\})")
_MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)


class GlobText:
    """A text that globs are matched against, in time proportional to their length.

    `*`, `?` and `[a-z]` match within one name, `**` across several, `{a,b}` either. A glob may come from any repository
    on the disk, and as a regular expression `*a*a*a…b` would backtrack for hours. So each part of a glob is applied
    once, to all offsets of the text that it can start from: a set of offsets is one large integer, a bit for each.
    """

    def __init__(self, text: str) -> None:
        self._bits: dict[str, int] = {}  # the offsets of each character
        for offset, char in enumerate(text):
            self._bits[char] = self._bits.get(char, 0) | 1 << offset
        self._all = (1 << len(text) + 1) - 1  # the end of the text is an offset, too
        self._slashes = self._bits.get("/", 0)
        self._in_names = (self._all >> 1) & ~self._slashes
        self.start = 1
        self.end = 1 << len(text)
        self.name_starts = self.start | self._slashes << 1
        self.name_ends = self.end | self._slashes

    def has(self, glob: str, starts: int, ends: int) -> bool:
        """Whether some part of the text from one of `starts` to one of `ends` is what the glob describes."""
        return bool(self._after(glob, starts) & ends)

    def _after(self, glob: str, offsets: int) -> int:
        """The offsets that a match from one of `offsets` can end at."""
        for part in _PART.split(glob):
            offsets = self._after_part(part, offsets)
        return offsets

    def _after_part(self, part: str, offsets: int) -> int:
        if part == "*":
            # Up to the next slash: adding carries each bit along its name.
            return offsets | (((offsets & self._in_names) + self._in_names) ^ self._in_names) & self._all
        if part == "**":
            return self._to_end(offsets)
        if part == "**/":
            return offsets | (self._to_end(offsets) & self._slashes) << 1
        if part == "?":
            return (offsets & self._in_names) << 1
        literal = offsets
        for char in part:
            literal = (literal & self._bits.get(char, 0)) << 1
        if part.startswith("{") and part.endswith("}"):  # a folder may be named like that, too
            for choice in part[1:-1].split(","):
                literal |= self._after(choice, offsets)
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            literal |= (offsets & self._of_set(part[1:-1])) << 1
        return literal

    def _to_end(self, offsets: int) -> int:
        """Every offset from the first one on."""
        return self._all & -(offsets & -offsets)

    def _of_set(self, members: str) -> int:
        """The offsets of characters that `a-z` or `!a-z` includes."""
        is_negated = members[0] in "!^"
        parts = _MEMBER.findall(members[1:] if is_negated else members)
        singles = {single for _, _, single in parts if single}
        ranges = [(first, last) for first, last, _ in parts if first]
        offsets = 0
        for char, bits in self._bits.items():
            if (char in singles or any(first <= char <= last for first, last in ranges)) != is_negated:
                offsets |= bits
        return offsets & self._in_names


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
            text = GlobText(below)
            for path, globs in self._read_folder(folder).rules:
                if globs is None or any(_matches(glob, text) for glob in globs):
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
        globs = [] if text is None else tomllib.loads(text)["capture"]["exclude"]
        return None if text is None else [globs] if isinstance(globs, str) else [str(glob) for glob in globs]
    except KeyError:
        return []
    except (tomllib.TOMLDecodeError, TypeError, ValueError, RecursionError):
        return None


def _matches(glob: str, text: GlobText) -> bool:
    """Whether a glob names a folder or one of its parents; `.` and `/` are the folder of the file with the glob.

    A single name matches at any depth, as in other ignore files.
    """
    plain = glob.strip("/").removeprefix("./").removesuffix("/**")
    is_anchored = "/" in plain or glob.startswith("/")
    return plain in ("", ".") or text.has(plain, text.start if is_anchored else text.name_starts, text.name_ends)


Test = Callable[[GlobText], bool]
UNLISTED = "unlisted "  # begins the rule for sessions of a folder the user has not been asked about; the folder follows


class Exclude:
    """The rules of one user. A rule is named by its pattern, or by the path of the file it is in."""

    def __init__(
        self,
        patterns: Sequence[str],
        known_checkouts: Callable[[], Checkouts],
        excluded_folders: Callable[[], Mapping[str, str]],
        allow: "Exclude | None" = None,
    ) -> None:
        """`allow` has the patterns of all that may be stored; without it everything may. `known_checkouts` are those of
        stored sessions. `excluded_folders` are checkouts of excluded repositories, known from sessions that were left
        out: the hash of each, and its rule. Both are read only if a pattern names a repository."""
        globs = [(pattern, _from_root(pattern)) for pattern in patterns]
        self._folder_patterns = [(pattern, _folder_test(glob)) for pattern, glob in globs if "/" in glob]
        self._repo_patterns = [(pattern, _repo_test(glob)) for pattern, glob in globs if not glob.startswith("/")]
        self._checkouts = cache(known_checkouts)
        self._read_excluded_folders = excluded_folders
        self._allow = allow
        self._files = RuleFiles()
        self.rule = cache(self._rule)  # many sessions work in one folder
        self.is_certain = cache(self._is_certain)

    def _rule(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> str | None:
        """The rule that excludes sessions of this folder and repository, or None."""
        is_absolute = cwd is not None and _from_root(cwd).startswith("/") and "\0" not in cwd
        rule = self._folder_rule(cwd) if cwd is not None and is_absolute else None
        if rule is None and self._repo_patterns:
            remote = git_remote or self._remote_on_disk(cwd)
            rule = self._rule_naming(self._checkouts().repo(cwd, git_root, remote))
            rule = rule or (self._rule_of_checkout(cwd, git_root) if normal_remote(remote) is None else None)
        if rule or self._allow is None or self._allow.rule(cwd, git_root, git_remote):
            return rule
        return f"{UNLISTED}{git_root or cwd or git_remote or ''}"

    def _folder_rule(self, cwd: str) -> str | None:
        paths = {os.path.normpath(_from_root(cwd))} | ({resolved(cwd)} if is_path(cwd) else set())
        texts = [GlobText(path[:LONGEST_PATH]) for path in paths] if self._folder_patterns else []
        for pattern, test in self._folder_patterns:
            if any(map(test, texts)):
                return pattern
        return self._files.rule(cwd) if is_path(cwd) else None

    def _remote_on_disk(self, cwd: str | None) -> str | None:
        return self._files.remote(cwd) if cwd is not None and is_path(cwd) else None

    def _rule_naming(self, repo: str | None) -> str | None:
        text = GlobText((repo or "")[:LONGEST_PATH].lower())
        return next((pattern for pattern, test in self._repo_patterns if repo and test(text)), None)

    def _rule_of_checkout(self, cwd: str | None, git_root: str | None) -> str | None:
        """The rule for the checkout that, by what another session says, this folder is or is in."""
        path = normal_root(git_root) or normal_root(cwd)
        if not self._excluded_folders or path is None or len(path) > LONGEST_PATH:
            return None
        paths = [path] if git_root else [path, *map(str, PurePosixPath(path).parents)]
        return next((rule for path in paths if (rule := self._excluded_folders.get(folder_key(path)))), None)

    def _is_certain(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> bool:
        """Whether nothing that another session says of repositories can exclude or allow sessions of this folder."""
        if self._allow is not None and not self._allow.is_certain(cwd, git_root, git_remote):
            return False
        return not self._repo_patterns or bool(normal_remote(git_remote or self._remote_on_disk(cwd)))

    def learn(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> tuple[str, str] | None:
        """Note that a folder is a checkout of an excluded repository; return its hash and the rule if that is new."""
        path, rule = normal_root(git_root) or normal_root(cwd), self._rule_naming(normal_remote(git_remote))
        if path is None or rule is None or folder_key(path) in self._excluded_folders:
            return None
        self._excluded_folders[folder_key(path)] = rule
        self.rule.cache_clear()
        return folder_key(path), rule

    @cached_property
    def _excluded_folders(self) -> dict[str, str]:
        rules = {pattern for pattern, _ in self._repo_patterns}
        if not rules:
            return {}
        # What a rule that was removed had excluded may come back.
        return {key: rule for key, rule in self._read_excluded_folders().items() if rule in rules}


def folder_key(path: str) -> str:
    """What is stored of a folder that is excluded."""
    return blake2b(folded(path).encode("utf-8", "replace"), digest_size=16).hexdigest()


def _from_root(path: str) -> str:
    """A folder, or a glob of folders, as it is matched: on Windows `/c:/users/kim`, however it was written."""
    windows = windows_path(path)
    return f"/{windows}" if windows else path


def _folder_test(pattern: str) -> Test:
    """A test whether a pattern names a folder or one of its parents.

    `acme/shop` is a repository, and any folder whose path ends like that, in case the first slash was left out; so is
    `shop/`.
    """
    if not pattern.startswith("/"):
        pattern = f"/**/{pattern}"
    plain = os.path.normpath(pattern.removesuffix("/**"))
    start = re.split(r"[*?\[{]", plain, maxsplit=1)[0].rpartition("/")[0]
    globs = dict.fromkeys((plain, resolved(start) + plain[len(start) :] if start else plain))
    return lambda text: any(text.has(glob, text.start, text.name_ends) for glob in globs)


def _repo_test(pattern: str) -> Test:
    """A test whether a pattern is a repository's name or any end of it."""
    glob = pattern.strip("/").removesuffix(".git").lower()
    return lambda text: text.has(glob, text.name_starts, text.end)
