"""Which changes were left in the end: what was undone, or written anew before it helped, fixed nothing."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from recollect.knowledge.blocks import Block
from recollect.knowledge.facts import Material
from recollect.knowledge.runs import Change

UNDOES = re.compile(r"\bgit (?:-C \S+ )?(?:checkout|restore|reset|stash|(?:rebase|merge|cherry-pick) --abort)\b")
_OF_ALL_FILES = re.compile(r"--hard\b|(?:checkout|restore)(?: HEAD)?(?: --)? \.(?:\s|$)")


def standing(material: Material, made: Sequence[Change], changes: Sequence[Change]) -> list[Change]:
    """The changes that nobody took back later in the session, as what became of the lines that were there at first.

    Their lines are numbered as before the first of them: by those numbers an error knows the file.
    """
    left = []
    for change in _joined(_placed(made)):
        if change.kind == "edit" and change.edit is not None and change.edit.hunks:
            later = [other for other in changes if other.position > change.position]
            after = [block for other in later if other.name == change.name for block in other.blocks]
            blocks = tuple(block for block in change.blocks if not any(_reverts(other, block) for other in after))
            if blocks and not _is_restored(material, change, later):
                left.append(replace(change, blocks=blocks))
        else:
            left.append(change)
    return left


def _joined(changes: Iterable[Change]) -> list[Change]:
    """The changes without blocks that were written anew: these are part of what was written last."""
    joined: list[Change] = []
    for change in changes:
        blocks = []
        for block in change.blocks:
            for index, earlier in enumerate(joined):
                parts = [part for part in earlier.blocks if earlier.name == change.name and _goes_on(block, part)]
                if parts:
                    block = _whole(parts[0], block)
                    rest = tuple(part for part in earlier.blocks if part is not parts[0])
                    joined[index] = replace(earlier, blocks=rest)
            if block.removed != block.added:
                blocks.append(block)
        joined.append(replace(change, blocks=tuple(blocks)))
    return joined


def _goes_on(block: Block, earlier: Block) -> bool:
    """Whether a block rewrites all that an earlier one wrote, or writes where that one only took away."""
    if written := set(filter(None, earlier.added)):
        return written <= set(block.removed)
    return not block.removed and earlier.line is not None and earlier.line == block.line


def _whole(earlier: Block, block: Block) -> Block:
    kept = tuple(line for line in block.removed if line not in earlier.added)
    return Block(earlier.removed + kept, block.added, earlier.line)


def _placed(made: Sequence[Change]) -> Iterator[Change]:
    """The changes with the lines of their blocks as they were numbered before the first of them."""
    moves: dict[str, list[tuple[int, int]]] = defaultdict(list)  # from which line on, and by how many
    for change in made:
        earlier = moves[change.name]
        yield replace(change, blocks=tuple(_before(block, earlier) for block in change.blocks))
        moves[change.name] = earlier + [
            (block.line, len(block.added) - len(block.removed))
            for block in reversed(change.blocks)
            if block.line is not None
        ]


def _before(block: Block, moves: Sequence[tuple[int, int]]) -> Block:
    if block.line is None:
        return block
    line = block.line
    for start, count in reversed(moves):
        line = max(start, line - count) if line > start else line
    return replace(block, line=line)


def _reverts(other: Block, block: Block) -> bool:
    """Whether a block puts back what another one took away, and the other way round."""
    return bool(block.removed) and (other.removed, other.added) == (block.added, block.removed)


def _is_restored(material: Material, change: Change, later: Sequence[Change]) -> bool:
    """Whether git brought the file back before the change was committed."""
    committed = [commit.call.seq for commit in material.trace.commits if commit.call.seq > change.step.seq]
    file = change.name.rpartition("/")[2]
    undoing = (other for other in later if other.kind == "command" and UNDOES.search(other.name))
    restored = [other.step.seq for other in undoing if file in other.name or _OF_ALL_FILES.search(other.name)]
    return bool(restored) and restored[0] < min(committed, default=restored[0] + 1)
