"""Prints the parts of the docs that the code knows best; `make fix` puts them into the pages."""

import dataclasses
import inspect
import re
from collections.abc import Iterator

import apsw
import click

from recollect import schema
from recollect.cli import main
from recollect.errors import RecollectError
from recollect.redact.pieces import HIDDEN, KEYWORD, PREFIX, STRUCTURE
from recollect.redact.rules import RULES
from recollect.store import migrations


def commands() -> str:
    return "\n".join(_commands())


def _commands() -> Iterator[str]:
    with click.Context(main, info_name="recollect", **main.context_settings) as parent:
        for name in main.list_commands(parent):
            command = main.get_command(parent, name)
            context = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
            yield f"## recollect {name}\n"
            yield f"```text\n{command.get_help(context)}\n```\n"


def exit_codes() -> str:
    codes = {0: "done", 3: "done, but some sources were skipped"}
    lines = ["| code | meaning | in JSON |", "|---|---|---|"]
    found = {
        (error.exit_code, error.code): error.__name__
        for error in _errors(RecollectError)
        if error is not RecollectError
    }
    rows = [(code, meaning, "–") for code, meaning in codes.items()]
    rows += [(code, _words(name), f"`{word}`") for (code, word), name in found.items()]
    return "\n".join([*lines, *(f"| {code} | {meaning} | {word} |" for code, meaning, word in sorted(rows))])


def _errors(error: type[RecollectError]) -> Iterator[type[RecollectError]]:
    yield error
    for below in error.__subclasses__():
        yield from _errors(below)


def _words(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", " ", name).lower()


_CORE = (schema.Session, schema.Cost, schema.SessionSource, schema.Event, schema.Problem)
_DISTILLED = (
    schema.Digest,
    schema.Covers,
    schema.Outcome,
    schema.Quote,
    schema.Tally,
    schema.RanTests,
    schema.OpenEnds,
    schema.Signal,
)


def records() -> str:
    return "\n".join(_records())


def _records() -> Iterator[str]:
    for record in (*_CORE, *_DISTILLED):
        yield f"### {record.__name__}\n"
        yield f"{inspect.getdoc(record)}\n"
        names = (f"`{'class' if item.name == 'session_class' else item.name}`" for item in dataclasses.fields(record))
        yield f"{', '.join(names)}\n"


def tables() -> str:
    return "\n".join([*_tables("memory.db", migrations.MEMORY), *_tables("cache.db", migrations.CACHE)])


def _tables(name: str, steps: tuple[object, ...]) -> Iterator[str]:
    yield f"### {name}\n"
    connection = apsw.Connection(":memory:")
    for step in steps:
        step(connection)
    for table, sql in connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'table' ORDER BY rowid"):
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        yield f"- **{table}**: {', '.join(columns)}" + (" (no rowid)" if "WITHOUT ROWID" in sql else "")
    yield ""


def formats() -> str:
    return "\n".join(_formats())


def _formats() -> Iterator[str]:
    titles = {PREFIX: "By their own look", STRUCTURE: "By what surrounds them", KEYWORD: "By the name they are given"}
    for kind, title in (titles | {HIDDEN: "Hidden"}).items():
        yield f"### {title}\n"
        yield from (f"- `{rule.name}`: {rule.finds}" for rule in RULES if rule.kind == kind)
        yield ""
