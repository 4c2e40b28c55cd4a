"""A text that a search found, on one line: the part that shows why, and the words of the query in it."""

import re
from collections.abc import Sequence

import click

from recollect.cli.terminal import fitted, one_line, width
from recollect.recall import folded

Span = tuple[int, int]  # where in a text a word begins and ends


def matched_part(text: str, words: Sequence[str], columns: int) -> str:
    """The text on one line, cut to the part that has most of the words."""
    text = one_line(text)
    spans = _spans(text, words)
    if width(text) <= columns or not spans:
        return fitted(text, columns)
    starts = [0, *(_start(text, span, columns) for span in spans), *(begin for begin, _ in spans)]
    parts = [fitted(f"…{text[start:].lstrip('…')}" if start else text, columns) for start in starts]
    return max(parts, key=lambda part: len("".join({folded(part)[begin:end] for begin, end in _spans(part, words)})))


def _start(text: str, span: Span, columns: int) -> int:
    """Where a line begins that shows what is before a word too: at a word's edge, if there is one."""
    begin, end = span
    start = max(0, min(begin, max(begin - columns // 3, end - columns + 2)))
    edge = text.find(" ", start, begin)
    return edge + 1 if start and edge >= 0 else start


def highlighted(text: str, words: Sequence[str]) -> str:
    """The text with the words of the query in bold."""
    for begin, end in reversed(_spans(text, words)):
        text = f"{text[:begin]}{click.style(text[begin:end], bold=True)}{text[end:]}"
    return text


def _spans(text: str, words: Sequence[str]) -> list[Span]:
    pattern = "|".join(re.escape(one_line(word)) for word in sorted(words, key=len, reverse=True))
    return [match.span() for match in re.finditer(pattern, folded(text))] if pattern else []
