"""Generates the parts of the docs that come from code; `make fix` writes them into the pages."""

import dataclasses
import inspect
import re
from collections.abc import Iterator

import apsw
import click

from recollect import errors, schema
from recollect.cli import main
from recollect.errors import RecollectError
from recollect.redact import RULES
from recollect.store.tables import migrations


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
    meanings = dict(re.findall(r"^ +([A-Z]\w+) {2,}(.+?)(?: {2,}exit \d)?$", errors.__doc__ or "", re.MULTILINE))
    rows = [(0, "done", "–"), (3, "done, but some sources were skipped", "–")]
    below = [error for error in _errors(RecollectError) if error is not RecollectError]
    rows += [(error.exit_code, meanings[error.__name__], f"`{error.code}`") for error in below]
    lines = ["| code | meaning | in JSON |", "|---|---|---|"]
    return "\n".join([*lines, *(f"| {code} | {meaning} | {word} |" for code, meaning, word in sorted(rows))])


def _errors(error: type[RecollectError]) -> Iterator[type[RecollectError]]:
    yield error
    for below in error.__subclasses__():
        yield from _errors(below)


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
    titles = {"prefix": "By their own look", "structure": "By what surrounds them", "keyword": "By their name"}
    for kind, title in (titles | {"hidden": "Hidden"}).items():
        yield f"### {title}\n"
        yield from (f"- `{rule.name}`: {rule.finds}" for rule in RULES if rule.kind == kind)
        yield ""
