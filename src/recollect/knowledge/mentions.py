"""Which of several changes belongs to an error: one of a line, a file or a symbol that the error shows."""

import re
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from recollect.distill import shortened
from recollect.knowledge.asking import has_word
from recollect.knowledge.runs import Block, Change
from recollect.knowledge.signature import place_of
from recollect.text import ELLIPSIS

# Names of code, as messages write them: in quotes, after a dot or the word for what it is, or with an underscore or a
# capital inside; rules of linters, by which they are switched off.
_SYMBOL = re.compile(
    r"[`'\"](?:[\w$@./:-]*[./:])?(?P<quoted>[A-Za-z_]\w{2,})(?:\(\))?[`'\"]|[`\"](?P<phrase>[^`\"\n]{4,60})[`\"]"
    r"|\b(?:undefined:|method|field|function|variable|module|package|attribute|parameter|argument|import) "
    r"(?P<noun>[A-Za-z_]\w{2,})"
    r"|\b\w+\.(?P<member>[A-Z]\w{2,})|\b(?P<joined>[A-Za-z]\w*_\w+|[A-Za-z]\w*[a-z0-9][A-Z]\w*)"
    r"|\b(?P<code>[A-Z]{1,4}\d{3,5}|[A-Z]{6,})\b"
)
_RULE = re.compile(r"\((?P<linter>[\w/-]{3,})\)$|\b(?P<code>[A-Z]{1,4}\d{3,5})\b")
SUPPRESSES = re.compile(
    r"(?://|#|/\*|\{/\*)\s*(?:nolint|noqa|nosec|type: ?ignore|pylint: ?disable|eslint-disable|@ts-(?:ignore|expect))"
    r"(?P<rules>(?::?[\w ,/\[=-]*)).*"
)
_NAMES_A_KIND = re.compile(r"\w*(?:Error|Exception|Warning|Failure)")
_BEFORE_CODE = " \t>|E"  # marks before a line of code in an output
_LEAST_SHOWN_CHARS = 8
_GIST_CHARS = 160
_SHARED_CHARS = 20  # shown of what two lines share, before where they differ
_WORD = re.compile(r"\w{2,}")
_REPORTS = re.compile(r"t\.(?:Error|Fatal|Log|Skip)f?\(|self\.fail\(|pytest\.fail\(")
_COMMENT = ("//", "# ", "/*", "*", "--", "<!--", "{/*")
_AT_LINE, _NEAR_LINE, _SHOWN, _SUPPRESSED, _MOST_SYMBOLS = 6, 3, 5, 12, 6  # what a block is worth for an error
_ASSERTION_LINES = 3  # between what a test compares and where it says that it failed
_FUNCTION_LINES = 25  # before which it may be said that a checker shall say nothing of it
_IN_HEADLINE, _IN_OUTPUT = 2, 1  # what it is worth that a file is named


@dataclass(frozen=True)
class Mentions:
    """What an error shows: a place and symbols in its headline, files and lines of code in its output."""

    headline: str = ""
    output: str = ""

    @cached_property
    def _place(self) -> tuple[str, int, str]:
        """The file, the line and the message of the headline; no line if a helper of tests says everything there."""
        file, line, message = place_of(self.headline) or ("", 0, self.headline)
        said = (shown.partition(f"{file}:{line}: ")[2].split() for shown in self.output.splitlines())
        return file, 0 if len({words[0] for words in said if words}) > 1 else line, message

    @property
    def _is_exact(self) -> bool:
        """Whether the headline says at which column it is: that of a test only says where the test noticed."""
        return f":{self._place[1]}: " not in self.headline

    @cached_property
    def symbols(self) -> frozenset[str]:
        named = (found[found.lastgroup or 0] for found in _SYMBOL.finditer(self._place[2]))
        return frozenset(name for name in named if not _NAMES_A_KIND.fullmatch(name))

    @cached_property
    def _rules(self) -> frozenset[str]:
        return frozenset(found[found.lastgroup or 0] for found in _RULE.finditer(self._place[2]))

    @cached_property
    def _shown(self) -> frozenset[str]:
        """The lines of the output, of a list of errors only those below the headline."""
        lines = self.output.splitlines()
        start = next((index for index, line in enumerate(lines) if self._place[0] and self.headline in line), None)
        if start is not None and len([line for line in lines if place_of(line.strip())]) > 1:
            after = lines[start + 1 :]
            end = next((index for index, line in enumerate(after) if place_of(line.strip())), len(after))
            lines = after[:end]
        code = (" ".join(line.strip(_BEFORE_CODE).split()) for line in lines)
        return frozenset(line for line in code if len(line) >= _LEAST_SHOWN_CHARS)

    def is_of_file(self, change: Change) -> bool:
        """Whether a change is of the file in which the headline places the error."""
        file = self._place[0].removeprefix("./")
        return bool(file) and (f"/{change.name}".endswith(f"/{file}") or f"/{file}".endswith(f"/{change.name}"))

    def is_in_headline(self, change: Change) -> bool:
        """Whether the headline names the file of a change, or its tests."""
        return _names(self.headline, change.name)

    def _named(self, change: Change) -> int:
        if self.is_in_headline(change):
            return _IN_HEADLINE
        return _IN_OUTPUT if _names(self.output, change.name) else 0

    def weight(self, change: Change) -> int:
        """How strongly a change is tied to the error; 0 if not at all."""
        if change.blocks:
            return self._named(change) + max(self.weight_of(change, block) for block in change.blocks)
        return self._named(change) + self._symbols_in([change.name])

    def weight_of(self, change: Change, block: Block) -> int:
        """How much of what the error shows is in a block: its line, a line of its code, its symbols, its rule."""
        silenced = self._silenced(change, block)
        if silenced is not None:
            return silenced
        lines = [line for line in (*block.removed, *block.added) if line]
        if all(map(_REPORTS.match, lines)):
            return 0  # what a test says of its failure made it neither fail nor pass
        is_at_line = self.is_of_file(change) and block.covers(self._place[1])
        is_near = "test" in change.name.lower() and self._distance(change, block) <= _ASSERTION_LINES
        place = _AT_LINE if is_at_line else _NEAR_LINE if is_near else 0
        shown = _SHOWN if self._shown.intersection(block.removed) else 0
        return max(place, shown) + self._symbols_in(filter(_does, lines))

    def best(self, changes: Iterable[Change]) -> tuple[Change, Block] | None:
        """The block, among changes to one file, that fits the error best; None if none stands out."""
        blocks = [(change, block) for change in changes for block in change.blocks]
        most = max((self.weight_of(*pair) for pair in blocks), default=0)
        likely = [pair for pair in blocks if self.weight_of(*pair) == most]
        if len(likely) == 1 and (most or not self._is_exact or not self._is_placed(*likely[0])):
            return likely[0]
        near = [pair for pair in likely if self._distance(*pair) <= _FUNCTION_LINES]
        is_told = most or len(blocks) == 1
        return min(near, key=lambda pair: self._distance(*pair)) if near and is_told else None

    def _distance(self, change: Change, block: Block) -> int:
        """How many lines a block is away from the error; many if nobody knows."""
        return block.distance(self._place[1]) if self._is_placed(change, block) else sys.maxsize

    def _is_placed(self, change: Change, block: Block) -> bool:
        return self.is_of_file(change) and block.line is not None

    def gist(self, block: Block) -> str:
        """What a block did, in a line: the lines that went and came for the error, or the first ones."""
        gone, come = list(filter(None, block.removed)), list(filter(None, block.added))
        removed = max(  # lines in both moved, or were indented
            _without(gone, come),
            key=lambda line: (
                _REPORTS.match(line) is None,
                self._is_at(block, line),
                line in self._shown,
                _does(line),
                self._symbols_in([line]),
            ),
            default="",
        )
        words = set(_WORD.findall(removed))
        added = max(
            _without(come, gone),
            key=lambda line: (
                self._is_silencing(line),
                _REPORTS.match(line) is None,
                _does(line),
                not removed.startswith(line),
                len(words & set(_WORD.findall(line))) + self._symbols_in([line]),
            ),
            default="",
        )
        is_alike = bool(words & set(_WORD.findall(added)))
        if not removed or (self._is_silencing(added) and not is_alike):
            return f"added `{shortened(added, _GIST_CHARS)}`" if added else ""
        is_in_place = len(gone) in (1, len(come)) or [removed, added] == [gone[0], *come[:1]]
        is_now_a_comment = _does(removed) and not _does(added)
        if not added or is_now_a_comment or not (is_alike or is_in_place):
            return f"removed `{shortened(removed, _GIST_CHARS)}`"
        if (appended := added.removeprefix(removed).strip()) not in ("", added):
            return f"added `{shortened(appended, _GIST_CHARS // 2)}` after `{shortened(removed, _GIST_CHARS // 2)}`"
        start = _start_of_difference(removed, added)
        removed, added = (f"{ELLIPSIS}{line[start:]}" if start else line for line in (removed, added))
        return f"`{shortened(removed, _GIST_CHARS // 2)}` became `{shortened(added, _GIST_CHARS // 2)}`"

    def deletes_check(self, change: Change, block: Block) -> bool:
        """Whether a block took away the line with which a test said that it failed, and no other says so instead."""
        if not self.is_of_file(change) or any(map(_REPORTS.match, block.added)):
            return False
        return any(_REPORTS.match(line) is not None and self._is_at(block, line) for line in block.removed)

    def _is_at(self, block: Block, line: str) -> bool:
        index = None if block.line is None else self._place[1] - block.line
        return index is not None and 0 <= index < len(block.removed) and block.removed[index] == line

    def _silenced(self, change: Change, block: Block) -> int | None:
        """What a block is worth that has a checker say nothing: much if it is of the error's rule, else none.

        None if it does anything else, too.
        """
        lines = [line for line in block.added if line not in block.removed]
        if any(map(self._is_silencing, lines)):
            is_near = not self._place[0] or self._distance(change, block) <= _FUNCTION_LINES
            return _SUPPRESSED if is_near else 0
        is_silencing = any(map(SUPPRESSES.search, lines))
        code = [
            [text for line in side if (text := SUPPRESSES.sub("", line).strip())]
            for side in (block.removed, block.added)
        ]
        return 0 if is_silencing and code[0] == code[1] else None

    def _is_silencing(self, line: str) -> bool:
        found = SUPPRESSES.search(line)
        return found is not None and any(rule in found["rules"] for rule in self._rules)

    def _symbols_in(self, lines: Iterable[str]) -> int:
        text = "\n".join(lines)
        return min(_MOST_SYMBOLS, sum(has_word(text, symbol) for symbol in self.symbols))


MOST_STEPS = 6  # of a resolution


def main_changes(changes: Iterable[Change], mentions: Mentions) -> list[Change]:
    """The changes that belong to the error, each file or command once; all of them if it shows none of them.

    Each has the gist of the block that belongs most to it, if one can be told from the others.
    """
    groups: dict[tuple[str, str], list[Change]] = {}
    for change in changes:
        groups.setdefault((change.kind, change.name), []).append(change)
    weighed = [(max(map(mentions.weight, made)), made) for made in groups.values()]
    weighed.sort(key=lambda one: (-one[0], "test" in one[1][0].name.lower(), one[1][0].name.endswith(".md")))
    most = weighed[0][0] if weighed else 0
    chosen = [made for weight, made in weighed if 2 * weight > most or not most][:MOST_STEPS]
    best = [mentions.best(made) for made in chosen]
    is_told = bool(best) and (best[0] is not None or not chosen[0][0].blocks)
    return [
        replace(found[0], gist=mentions.gist(found[1])) if found and is_told else made[-1]
        for made, found in zip(chosen, best, strict=True)
    ]


def wording(changes: Sequence[Change]) -> str:
    """All that changes name and say: files, commands, and the lines that went and came."""
    lines = (line for change in changes for block in change.blocks for line in (*block.removed, *block.added))
    return "\n".join([*(change.name for change in changes), *lines])


def listed(items: Iterable[str]) -> str:
    names = list(items)[:3]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def symbols_of(text: str) -> frozenset[str]:
    """The names of code in a text."""
    return Mentions(text).symbols


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
    return not line.startswith(_COMMENT) or SUPPRESSES.match(line) is not None


def _names(text: str, path: str) -> bool:
    """Whether a text names a file, or the tests of it."""
    file = path.rpartition("/")[2]
    stem = file.rpartition(".")[0]
    return file in text or (bool(stem) and any(f"{stem}{mark}" in text for mark in ("_test.", ".test.", ".spec.")))
