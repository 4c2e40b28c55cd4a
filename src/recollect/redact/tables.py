"""Secrets in the column of a table whose heading names one: CSV, Markdown, `psql`, the rows of an `INSERT`."""

import re
from collections.abc import Iterator

from recollect.redact import values
from recollect.redact.patterns import ARROW, LINE_BREAK

_MOST_ROWS = 200
_MOST_HEADING, _MOST_NAME = 400, 40  # bytes
_SIGN = re.compile(rb"[,;|\t]|\\{1,16}t")
_HEADING = re.compile(rb"(?:[\w .\"'`|,;-]|\t|\\{1,16}(?:t|(?=[\"'`])))*\Z")
_NO_NAME = re.compile(rb"(?:\A|[,;\t]|\\+t)[ \"'`]*(?=[,;\t]|\\+t|\Z)")
_NEXT = re.compile(LINE_BREAK.encode())
# What agents and `cat -n` write before each line of a file they show: no column of it.
_LINE_NUMBER = re.compile(rb"(?:[ +-]|\\{1,16}t){0,8}\d{1,6}(?:\t|\\{1,16}t|" + ARROW.encode() + rb")")
_LEAF_START = re.compile(rb"(?<!\\)\"")
_RULER = re.compile(rb"[-+|:= ]+")
_IN_BRACKETS = re.compile(rb"(?:[\s,]|\\+[nrt])*\(([^()\x00]*)\)")
_CELL = re.compile(rb"(?:[ \t]|\\+[nrt])*(\\{0,16}[\"'`]?)(.*?)\1[ \t]*", re.S)


def find_cells(match: re.Match[bytes], is_json: bool) -> list[tuple[int, int]]:
    """The secrets of a column, given the name in its heading; in raw JSON also what may be one."""
    data, name = match.string, match["opener"] + match["rest"]
    is_insert = match["end"][:1] == b")"
    if not match["after"] and _SIGN.search(data, max(0, match.start() - _MOST_NAME), match.start()) is None:
        return []  # most lines that end in such a word
    before = data[max(0, match.start() - _MOST_HEADING) : match.start()]
    before = before.rpartition(b"(")[2] if is_insert else _NEXT.split(before)[-1]
    before = _LEAF_START.split(before)[-1] if is_json else before
    is_numbered = (number := _LINE_NUMBER.match(before)) is not None
    before = before[number.end() :] if number else before
    signs, column = set(_SIGN.findall(before + match["after"])), len(_SIGN.findall(before))
    if (
        len(signs) != 1
        or _NO_NAME.search(before + b"x" + match["after"])
        or not _HEADING.match(before)
        or values.is_about(match["opener"], match["rest"])
    ):
        return []
    sign = signs.pop()
    count = column + len(_SIGN.findall(match["after"]))
    cells = []
    for start, end in _rows_in_brackets(match) if is_insert else _lines(match):
        if is_numbered and (number := _LINE_NUMBER.match(data, start, end)):
            start = number.end()
        row = data[start:end].split(sign)
        if len(row) != count + 1:
            if _RULER.fullmatch(data, start, end):
                continue
            break
        cell = _CELL.fullmatch(row[column])
        if cell and cell[2] == name:
            break  # another heading: its rows are found by itself
        offset = start + sum(len(other) + len(sign) for other in row[:column])
        if cell and ((is_json and b"\\" in cell[2]) or values.is_drawn(name, cell[2])):
            cells.append((offset + cell.start(2), offset + cell.end(2)))
    return cells


def _lines(match: re.Match[bytes]) -> Iterator[tuple[int, int]]:
    data, start = match.string, match.end()
    for _ in range(_MOST_ROWS):
        following = _NEXT.search(data, start)
        yield start, following.start() if following else len(data)
        if following is None:
            return
        start = following.end()


def _rows_in_brackets(match: re.Match[bytes]) -> Iterator[tuple[int, int]]:
    end = match.end()
    for _ in range(_MOST_ROWS):
        row = _IN_BRACKETS.match(match.string, end)
        if row is None:
            return
        yield row.span(1)
        end = row.end()
