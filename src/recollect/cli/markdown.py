"""Markdown on a terminal: headings and code in colour, text wrapped to the width."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

import click

from recollect.cli.terminal import grey, width, wrapped_rows
from recollect.config import terminal_columns

Style = Callable[[str], str] | None
_MOST_COLUMNS = 100
_LEAST_COLUMNS = 20
_MARK = re.compile(r"(?<![\w`])`([0-9a-f]{12})`(?!`)")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_BOLD = re.compile(r"\*\*(\S.*?)\*\*")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_QUOTE = "> "
_FENCE = ("```", "~~~")
_code, _bold = partial(click.style, fg="cyan"), partial(click.style, bold=True)


def markdown_lines(page: Iterable[str]) -> Iterator[str]:
    """Lines for a terminal; event marks are dimmed."""
    columns = max(_LEAST_COLUMNS, min(terminal_columns(80), _MOST_COLUMNS))
    is_code = False
    for line in page:
        bar = click.style("│ ", fg="blue") if line.startswith(">") else ""
        text = line.removeprefix(">").removeprefix(" ") if bar else line
        is_fence = text.lstrip().startswith(_FENCE)
        if is_code or is_fence:
            yield bar + (grey(text) if is_fence else click.style(text, fg="cyan"))
            is_code = is_code != is_fence
        elif text.startswith("#"):
            yield bar + click.style(text.lstrip("#").strip(), bold=True, fg=None if bar else "green")
        else:
            yield from (bar + row for row in _wrapped(text, columns - 2 * bool(bar)))


def plain_rows(page: Iterable[str], columns: int) -> Iterator[tuple[str, bool]]:
    """Rows without marks and colours, each with whether it is a heading."""
    for line in page:
        text = _BOLD.sub(r"\1", _CODE.sub(r"\2", _MARK.sub("", line))).rstrip()
        is_heading = text.startswith("#")
        for row in _wrapped(text.lstrip("#").strip() if is_heading else text, columns):
            yield row, is_heading


def _wrapped(line: str, columns: int) -> Iterator[str]:
    """A line in styled rows; those after the first begin below the text of its bullet."""
    text, styles = _styled(line)
    bullet = _BULLET.match(text)
    indent = width(bullet[0]) if bullet else len(text) - len(text.lstrip())
    first = True
    for start, end, _ in wrapped_rows(text[indent:], max(_LEAST_COLUMNS, columns - indent)):
        yield (text[:indent] if first else " " * indent) + _row(text, styles, indent + start, indent + end)
        first = False
    if first:
        yield ""


def _styled(line: str) -> tuple[str, list[Style]]:
    """A line without the marks of code and bold, and the style of each of its characters: a row may end amid them."""
    text, styles, end = "", list[Style](), 0
    for code in _CODE.finditer(line):
        style = grey if _MARK.match(line, code.start()) else _code
        content = code[2]
        if content.startswith(" ") and content.endswith(" ") and content.strip():
            content = content[1:-1]  # they keep backticks apart
        text += line[end : code.start()] + content
        styles += [None] * (code.start() - end) + [style] * len(content)
        end = code.end()
    text, styles = text + line[end:], styles + [None] * (len(line) - end)
    for bold in reversed(list(_BOLD.finditer(text))):
        start, stop = bold.span()
        if styles[start] is None and styles[stop - 1] is None:
            inner = [style or _bold for style in styles[start + 2 : stop - 2]]
            text, styles[start:stop] = text[:start] + bold[1] + text[stop:], inner
    return text, styles


def _row(text: str, styles: Sequence[Style], start: int, end: int) -> str:
    runs = groupby(range(start, end), key=styles.__getitem__)
    pieces = ((style, "".join(text[place] for place in places)) for style, places in runs)
    return "".join(piece if style is None else style(piece) for style, piece in pieces)
