"""Markdown on a terminal: marks of code and bold are styles, whatever row they end in."""

import click

from recollect.cli.transcript import markdown_lines


def test_code_and_bold_that_are_wrapped_show_no_marks() -> None:
    words = " ".join(["parser.rb:62:in"] * 12)

    rows = list(markdown_lines([f"- exit 1: ``{words} `x` `` and **{words}** `0123456789ab`"]))

    plain = " ".join(" ".join(map(click.unstyle, rows)).split())
    assert plain == f"- exit 1: {words} `x` and {words} 0123456789ab"
    assert len(rows) > 4 and all(row.count("\x1b[") % 2 == 0 for row in rows)


def test_marks_inside_code_are_not_bold() -> None:
    (row,) = markdown_lines(["use `a ** b ** c`"])

    assert click.unstyle(row) == "use a ** b ** c"
