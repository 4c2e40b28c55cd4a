"""Generates the parts of the docs that come from code; `make fix` writes them into the pages."""

import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cached_property

import apsw
import click

import recollect
import recollect.api
from recollect.cli import main
from recollect.model import errors, schema
from recollect.model.clock import AsDatetime
from recollect.model.errors import RecollectError
from recollect.redact import RULES
from recollect.store.tables import migrations


def commands() -> str:
    return "\n".join(_commands())


def _commands() -> Iterator[str]:
    with click.Context(main, info_name="recollect", **main.context_settings) as parent:
        for name in main.list_commands(parent):
            yield from _command(name, main.get_command(parent, name), parent)


def _command(name: str, command: click.Command | None, parent: click.Context) -> Iterator[str]:
    """The help of a command, and of the commands below it."""
    assert command is not None
    context = click.Context(command, info_name=name, parent=parent, max_content_width=100, terminal_width=100)
    yield f"{'#' * context.command_path.count(' ')}# {context.command_path}\n"
    yield f"```text\n{command.get_help(context)}\n```\n"
    for below, inner in command.commands.items() if isinstance(command, click.Group) else ():
        if not inner.hidden:
            yield from _command(below, inner, context)


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
    titles = {"prefix": "By their format", "structure": "By their context", "keyword": "By their name"}
    for kind, title in (titles | {"hidden": "Hidden"}).items():
        yield f"### {title}\n"
        yield from (f"- `{rule.name}`: {rule.finds}" for rule in RULES if rule.kind == kind)
        yield ""


def library() -> str:
    return "\n".join([*_functions(), *_methods(), *_public_records()])


_OPENS = ("open_memory", "to_json", "doctor", "repair", "restore")
_LINE = 96


def _functions() -> Iterator[str]:
    yield "## Functions\n"
    for name in _OPENS:
        yield from _described(name, getattr(recollect, name))


def _methods() -> Iterator[str]:
    yield f"## Memory\n\n{inspect.getdoc(recollect.Memory)} It is a context manager.\n"
    for part in reversed(recollect.Memory.__mro__):
        yield from _methods_of("memory", part)
    for name, family in vars(recollect.Memory).items():
        if isinstance(family, cached_property):
            yield f"## memory.{name}\n\n{inspect.getdoc(family.func)}\n"
            yield from _methods_of(
                f"memory.{name}", getattr(recollect.api, inspect.signature(family.func).return_annotation)
            )


def _methods_of(owner: str, kind: type) -> Iterator[str]:
    for name, method in vars(kind).items():
        if inspect.isfunction(method) and not name.startswith("_"):
            yield from _described(f"{owner}.{name}", method)


def _described(name: str, function: Callable[..., object]) -> Iterator[str]:
    signature = inspect.signature(inspect.unwrap(function))
    given = ["*" if part is None else _parameter(part) for part in _with_star(signature)]
    line = f"{name}({', '.join(given)}) -> {_type(signature.return_annotation)}"
    if len(line) > _LINE:
        unbroken = ", ".join(part.replace(" ", "\N{NO-BREAK SPACE}") for part in given)
        filled = textwrap.fill(unbroken, _LINE, subsequent_indent="    ").replace("\N{NO-BREAK SPACE}", " ")
        line = f"{name}(\n    {filled}\n) -> {_type(signature.return_annotation)}"
    yield f"```python\n{line}\n```\n"
    yield f"{inspect.getdoc(function) or ''}\n"


def _with_star(signature: inspect.Signature) -> Iterator[inspect.Parameter | None]:
    """The parameters without `self`, and None before those that must be named."""
    has_star = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            yield None
        has_star |= parameter.kind is parameter.VAR_POSITIONAL
        if parameter.name != "self":
            yield parameter


def _parameter(parameter: inspect.Parameter) -> str:
    star = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = f"{star}{parameter.name}: {_type(parameter.annotation)}"
    default = parameter.default
    if default is parameter.empty:
        return text
    if getattr(default, "__name__", "") == "<lambda>":
        return f"{text} = ..."
    shown = (
        "Filters()" if default == recollect.Filters() else getattr(default, "__name__", repr(default).replace("'", '"'))
    )
    return f"{text} = {shown}"


def _type(annotation: object) -> str:
    text = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
    return re.sub(r"\b(?:recollect|collections|typing|datetime)\.(?:\w+\.)*|'", "", text)


def _public_records() -> Iterator[str]:
    yield "## Records\n"
    for name in recollect.__all__:
        record = getattr(recollect, name)
        fields = _fields(record)
        if fields:
            yield f"### {name}\n\n{inspect.getdoc(record)}\n"
            yield textwrap.fill(", ".join(f"`{field}: {kind}`" for field, kind in fields.items()), 120) + "\n"
            times = [field for field, value in vars(record).items() if _is_datetime(value)]
            if times:
                yield f"Datetimes: {', '.join(f'`{field}`' for field in times)}\n"


def _is_datetime(value: object) -> bool:
    if isinstance(value, property):
        return "datetime" in str(inspect.signature(value.fget).return_annotation)
    return isinstance(value, AsDatetime)


def _fields(record: object) -> dict[str, str]:
    if isinstance(record, type) and issubclass(record, tuple):
        return {name: _type(record.__annotations__[name]) for name in record._fields}
    if not (isinstance(record, type) and dataclasses.is_dataclass(record)):
        return {}
    return {field.name: _type(field.type) for field in dataclasses.fields(record)}
