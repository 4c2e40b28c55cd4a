"""Markdown on a terminal: headings and code in colour, text wrapped to the width."""

import re
from collections.abc import Iterable, Iterator

import click

from recollect.cli.terminal import grey, width, wrapped_rows
from recollect.config import terminal_columns

_MOST_COLUMNS = 100
_LEAST_COLUMNS = 20
_MARK = re.compile(r"(?<![\w`])`([0-9a-f]{12})`(?!`)")
_CODE = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
_BOLD = re.compile(r"\*\*(\S.*?)\*\*")
_BULLET = re.compile(r"\s*(?:[-*+]|\d+[.)])\s+")
_QUOTE = "> "
_FENCE = ("```", "~~~")


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
            yield from (bar + _styled(row) for row in _wrapped(text, columns - 2 * bool(bar)))


def plain_rows(page: Iterable[str], columns: int) -> Iterator[tuple[str, bool]]:
    """Rows without marks and colours, each with whether it is a heading."""
    for line in page:
        text = _BOLD.sub(r"\1", _CODE.sub(r"\2", _MARK.sub("", line))).rstrip()
        is_heading = text.startswith("#")
        for row in _wrapped(text.lstrip("#").strip() if is_heading else text, columns):
            yield row, is_heading


def _wrapped(line: str, columns: int) -> Iterator[str]:
    """A line in rows; those after the first begin below the text of its bullet."""
    bullet = _BULLET.match(line)
    indent = width(bullet[0]) if bullet else len(line) - len(line.lstrip())
    first = True
    for start, end, _ in wrapped_rows(line[indent:], max(_LEAST_COLUMNS, columns - indent)):
        yield (line[:indent] if first else " " * indent) + line[indent:][start:end]
        first = False
    if first:
        yield ""


def _styled(row: str) -> str:
    row = _MARK.sub(lambda match: grey(match[1]), row)
    row = _CODE.sub(lambda match: click.style(match[2], fg="cyan"), row)
    return _BOLD.sub(lambda match: click.style(match[1], bold=True), row)
