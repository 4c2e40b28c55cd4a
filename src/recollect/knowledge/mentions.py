"""Which of several changes belongs to an error: one of a line, a file or a symbol that the error shows."""

import re
from dataclasses import dataclass
from functools import cached_property

from recollect.distill import shortened
from recollect.knowledge.runs import Change
from recollect.text import ELLIPSIS

# Names of code, as messages write them: in quotes, after a dot, or with an underscore or a capital inside; rules of
# linters, by which they are switched off.
_SYMBOL = re.compile(
    r"[`'\"](?:[\w$@./:-]*[./:])?(?P<quoted>[A-Za-z_]\w{2,})(?:\(\))?[`'\"]|\b\w+\.(?P<member>[A-Z]\w{2,})"
    r"|\b(?P<joined>[A-Za-z]\w*_\w+|[A-Za-z]\w*[a-z0-9][A-Z]\w*)|\b(?P<code>[A-Z]{1,4}\d{3,5})\b|\((?P<rule>\w{4,})\)$"
)
_NAMES_A_KIND = re.compile(r"\w*(?:Error|Exception|Warning|Failure)")
_BEFORE_CODE = " \t>|E"  # marks before a line of code in an output
_LEAST_SHOWN_CHARS = 8
_GIST_CHARS = 120
_SHARED_CHARS = 20  # shown of what two lines share, before where they differ
_WORD = re.compile(r"\w{2,}")
_COMMENT = ("//", "# ", "/*", "*", "--", "<!--", "{/*")


@dataclass(frozen=True)
class Mentions:
    """What an error shows: files and symbols in its headline, files and lines of code in its output."""

    headline: str = ""
    output: str = ""

    @cached_property
    def _symbols(self) -> frozenset[str]:
        named = (found[found.lastgroup or 0] for found in _SYMBOL.finditer(self.headline))
        return frozenset(name for name in named if not _NAMES_A_KIND.fullmatch(name))

    @cached_property
    def _shown(self) -> frozenset[str]:
        lines = (line.strip(_BEFORE_CODE) for line in self.output.splitlines())
        return frozenset(line for line in lines if len(line) >= _LEAST_SHOWN_CHARS)

    def has(self, change: Change) -> bool:
        """Whether a change is of something that the error shows."""
        names_file = _names(self.headline, change.name) or _names(self.output, change.name)
        return names_file or self._weight(change) > 0

    def names(self, change: Change) -> bool:
        """Whether a change has a symbol that the headline names."""
        return any(map(self._has_symbol, (*change.removed, *change.added)))

    def rank(self, change: Change) -> tuple[bool | int, ...]:
        """An order of changes: of what the headline names first, then of what the output shows; code before tests."""
        return (
            not _names(self.headline, change.name),
            -self._weight(change),
            not _names(self.output, change.name),
            "test" in change.name.lower(),
            change.name.endswith(".md"),
        )

    def gist(self, change: Change) -> str:
        """What a change did, in a line: the lines that went and came for the error, or the first ones."""
        gone, come = change.removed, change.added  # lines in both moved, or were indented
        removed = max(_without(gone, come), key=lambda line: (self._weight_of(line), _does(line)), default="")
        words = set(_WORD.findall(removed))
        added = max(
            _without(come, gone),
            key=lambda line: (self._has_symbol(line), _does(line), len(words & set(_WORD.findall(line)))),
            default="",
        )
        if not removed:
            return f"added `{shortened(added, _GIST_CHARS)}`" if added else ""
        if not added:
            return f"removed `{shortened(removed, _GIST_CHARS)}`"
        if (appended := added.removeprefix(removed).strip()) not in ("", added):
            return f"added `{shortened(appended, _GIST_CHARS // 2)}` after `{shortened(removed, _GIST_CHARS // 2)}`"
        start = _start_of_difference(removed, added)
        removed, added = (f"{ELLIPSIS}{line[start:]}" if start else line for line in (removed, added))
        return f"`{shortened(removed, _GIST_CHARS // 2)}` became `{shortened(added, _GIST_CHARS // 2)}`"

    def _weight(self, change: Change) -> int:
        names_symbol = any(map(self._has_symbol, change.added or [change.name]))
        return max([names_symbol, *map(self._weight_of, change.removed)])

    def _weight_of(self, line: str) -> int:
        """2 of a line that went and that the output shows, 1 of one with a symbol."""
        return 2 if line in self._shown else int(self._has_symbol(line))

    def _has_symbol(self, line: str) -> bool:
        return any(symbol in line for symbol in self._symbols)


NOTHING = Mentions()


def _without(lines: list[str], others: list[str]) -> list[str]:
    """Lines that are not among others; all of them if each is."""
    known = set(others)
    return [line for line in lines if line not in known] or lines


def _start_of_difference(line: str, other: str) -> int:
    """From where to show two lines so that a reader sees how they differ: 0 unless it is far from their beginning."""
    pairs = enumerate(zip(line, other, strict=False))
    shared = next((index for index, (a, b) in pairs if a != b), min(len(line), len(other)))
    return shared - _SHARED_CHARS if shared > _GIST_CHARS // 2 - _SHARED_CHARS else 0


def _does(line: str) -> bool:
    """Whether a line does something: a comment tells less of a change, unless it is all there is."""
    return not line.startswith(_COMMENT)


def _names(text: str, path: str) -> bool:
    """Whether a text names a file, or the tests of it."""
    file = path.rpartition("/")[2]
    stem = file.rpartition(".")[0]
    return file in text or (bool(stem) and any(f"{stem}{mark}" in text for mark in ("_test.", ".test.", ".spec.")))
