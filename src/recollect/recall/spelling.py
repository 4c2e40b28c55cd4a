"""Words that are one letter away from one that nothing has."""

from collections.abc import Callable, Collection, Iterator, Mapping

_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789"
_LEAST_CHARS = 4  # shorter words are one letter away from too many others
_MOST_CHARS = 40


def suggestion(counts: Callable[[Collection[str]], Mapping[str, int]], word: str) -> str | None:
    """The most common word one letter away: left out, added, changed, or swapped with the next."""
    if not _LEAST_CHARS <= len(word) <= _MOST_CHARS:
        return None
    found = counts(set(_neighbours(word)))
    return max(found, key=lambda other: (found[other], other), default=None)


def _neighbours(word: str) -> Iterator[str]:
    for place in range(len(word) + 1):
        head, tail = word[:place], word[place:]
        yield from (head + letter + tail for letter in _LETTERS)
        if tail:
            yield head + tail[1:]
            yield from (head + letter + tail[1:] for letter in _LETTERS if letter != tail[0])
        if len(tail) > 1 and tail[0] != tail[1]:
            yield head + tail[1] + tail[0] + tail[2:]
