"""What an edit did, block by block: the lines that went and came together, and where."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from recollect.agentkit.calls import Hunk

_BETWEEN = 3  # lines that a comparison of texts leaves in what was written anew


@dataclass(frozen=True, slots=True)
class Block:
    """Lines that went and the lines that came in their place. `line` is the number of the first, if the log has it."""

    removed: tuple[str, ...]
    added: tuple[str, ...]
    line: int | None = None

    def covers(self, line: int) -> bool:
        """Whether a line went with it, or had something written right before or after it."""
        if self.line is None:
            return False
        return self.line <= line < self.line + len(self.removed) if self.removed else self.line - 1 <= line <= self.line

    def distance(self, line: int) -> int:
        """How many lines it is away from a line."""
        if self.line is None:
            return 0
        return max(self.line - line, line - self.line - max(0, len(self.removed) - 1), 0)


def blocks_of(hunks: Iterable[Hunk]) -> tuple[Block, ...]:
    """Every place where an edit changed something; blank lines alone are nothing."""
    return tuple(block for hunk in hunks for block in _joined(_blocks(hunk)) if any((*block.removed, *block.added)))


def _blocks(hunk: Hunk) -> Iterator[tuple[Block, int]]:
    """The blocks of a hunk, each with the number of lines left before it. Spaces in a line count for nothing."""
    removed: list[str] = []
    added: list[str] = []
    passed = left = 0
    for line in (*hunk.lines, " "):
        if line[:1] == "-":
            removed.append(" ".join(line[1:].split()))
        elif line[:1] == "+":
            added.append(" ".join(line[1:].split()))
        elif line[:1] == " ":
            if removed or added:
                yield Block(tuple(removed), tuple(added), hunk.old_start and hunk.old_start + passed), left
                left = 0
            passed, left = passed + len(removed) + 1, left + 1
            removed, added = [], []


def _joined(blocks: Iterable[tuple[Block, int]]) -> Iterator[Block]:
    """The blocks, of which one that only went and one next to it that only came are the same piece of work."""
    last: Block | None = None
    for block, left in blocks:
        if last is not None and left <= _BETWEEN and not (last.added or block.removed):
            last = replace(last, added=block.added)
        elif last is not None and left <= _BETWEEN and not (last.removed or block.added):
            last = replace(block, added=last.added)
        else:
            if last is not None:
                yield last
            last = block
    if last is not None:
        yield last
