"""Which sessions the user keeps out of the store: by a setting, or by a file in the repository itself.

An ambiguous pattern is applied both ways: a session stored by mistake is worse than one left out by mistake.
"""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import PurePosixPath

from recollect.ingest.globs import GlobText
from recollect.ingest.rule_files import LONGEST_PATH, RuleFiles, is_path, resolved
from recollect.sessions.repos import Checkouts, normal_remote, normal_root

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
        self._folder_patterns = [(pattern, _folder_test(pattern)) for pattern in patterns if "/" in pattern]
        self._repo_patterns = [(pattern, _repo_test(pattern)) for pattern in patterns if not pattern.startswith("/")]
        self._known_checkouts = known_checkouts
        self._read_excluded_folders = excluded_folders
        self._allow = allow
        self._files = RuleFiles()
        self.rule = cache(self._rule)  # many sessions work in one folder
        self.is_certain = cache(self._is_certain)

    def _rule(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> str | None:
        """The rule that excludes sessions of this folder and repository, or None."""
        rule = self._folder_rule(cwd) if cwd is not None and cwd.startswith("/") and "\0" not in cwd else None
        rule = rule or (self._repo_rule(cwd, git_root, git_remote) if self._repo_patterns else None)
        if rule or self._allow is None or self._allow.rule(cwd, git_root, git_remote):
            return rule
        return f"{UNLISTED}{git_root or cwd or git_remote or ''}"

    def _folder_rule(self, cwd: str) -> str | None:
        paths = {os.path.normpath(cwd)} | ({resolved(cwd)} if is_path(cwd) else set())
        texts = [GlobText(path[:LONGEST_PATH]) for path in paths] if self._folder_patterns else []
        for pattern, test in self._folder_patterns:
            if any(map(test, texts)):
                return pattern
        return self._files.rule(cwd) if is_path(cwd) else None

    def _repo_rule(self, cwd: str | None, git_root: str | None, git_remote: str | None) -> str | None:
        remote = git_remote or self._remote_on_disk(cwd)
        rule = self._rule_naming(self._checkouts.repo(cwd, git_root, remote))
        return rule or (self._rule_of_checkout(cwd, git_root) if normal_remote(remote) is None else None)

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

    @cached_property
    def _checkouts(self) -> Checkouts:
        return self._known_checkouts()


def folder_key(path: str) -> str:
    """What is stored of a folder that is excluded."""
    return blake2b(path.encode("utf-8", "replace"), digest_size=16).hexdigest()


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
