"""Globs for folders and repositories, matched in time proportional to their length.

`*`, `?` and `[a-z]` match within one name, `**` across several, `{a,b}` either. A glob may come from any repository on
the disk, and as a regular expression `*a*a*a…b` would backtrack for hours. So each part of a glob is applied once, to
all offsets of the text that it can start from: a set of offsets is one large integer, a bit for each.
"""

import re

_PART = re.compile(r"(\*\*/?|\*|\?|\[[^]/]+\]|\{[^{}]*,[^{}]*\})")
_MEMBER = re.compile(r"(.)-(.)|(.)", re.DOTALL)


class GlobText:
    """A text that globs are matched against."""

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
            if not offsets:
                break
        return offsets

    def _after_part(self, part: str, offsets: int) -> int:
        if part == "*":
            return self._to_end_of_name(offsets)
        if part == "**":
            return self._to_end(offsets)
        if part == "**/":
            return offsets | (self._to_end(offsets) & self._slashes) << 1
        if part == "?":
            return (offsets & self._in_names) << 1
        literal = self._after_literal(part, offsets)
        if part.startswith("{") and part.endswith("}"):  # a folder may be named like that, too
            for choice in part[1:-1].split(","):
                literal |= self._after(choice, offsets)
        elif part.startswith("[") and part.endswith("]") and len(part) > 2:
            literal |= (offsets & self._of_set(part[1:-1])) << 1
        return literal

    def _after_literal(self, literal: str, offsets: int) -> int:
        for char in literal:
            offsets = (offsets & self._bits.get(char, 0)) << 1
        return offsets

    def _to_end(self, offsets: int) -> int:
        """Every offset from the first one on."""
        return self._all & -(offsets & -offsets)

    def _to_end_of_name(self, offsets: int) -> int:
        """The offsets, and those that follow up to the next slash: adding carries each bit along its name."""
        return offsets | (((offsets & self._in_names) + self._in_names) ^ self._in_names) & self._all

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
