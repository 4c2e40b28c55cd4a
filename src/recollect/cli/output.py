"""What commands share: JSON, a pager, questions, how errors end them, and the options that do not narrow a list."""

import errno
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
import orjson

import recollect
from recollect.cli.terminal import (
    as_utf8,
    fitted,
    grey,
    harmless_json,
    line_columns,
    local_time,
    one_line,
    padded,
    plural,
    repo_name,
    short_ids,
    width,
)
from recollect.config import has_colour, pager_command, pager_environment
from recollect.model.errors import NeedsAnswer, RecollectError, StoreUnwritable, UsageError

if TYPE_CHECKING:
    import subprocess

P = ParamSpec("P")
R = TypeVar("R")

_REPO_COLUMNS = 16
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
# What the system may refuse; any other error is a bug and needs its traceback.
_REFUSALS = "EIO EROFS EACCES EPERM EMFILE ENFILE ENOMEM ESTALE EFBIG".split()  # noqa: SIM905
_REFUSED = frozenset(getattr(errno, name) for name in _REFUSALS if hasattr(errno, name))


def print_json(value: Any, *, is_line: bool = False) -> None:
    """Print a value, indented or on one line; always UTF-8, because programs read it."""
    try:
        text = orjson.dumps(value, option=None if is_line else orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # a file name that is not UTF-8
        text = json.dumps(value, ensure_ascii=False, indent=None if is_line else 2)
        text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    click.echo(harmless_json(text).encode())


Lines = Iterable[str | None]


def emit(record: Any, as_json: bool, lines: Callable[[Any], Lines] | Lines, empty: str | None = None) -> None:
    """Print what a command found: as JSON for programs, as `lines` for people; `empty` says that there is nothing.

    A line that is None has nothing to say.
    """
    if as_json:
        print_json(record if isinstance(record, dict) else recollect.to_json(record))
        return
    for line in [empty] if empty and not record else lines(record) if callable(lines) else lines:
        if line is not None:
            click.echo(line)


def first_lines(lines: Iterable[str], most: int, rest: str = "and {} more: --json lists all") -> Iterator[str]:
    """The first lines, indented, and how many there are besides."""
    every = list(lines)
    yield from (f"  {line}" for line in every[:most])
    if len(every) > most:
        yield f"  {rest.format(f'{len(every) - most:,}')}"


def rest_lines(shown: int, total: int, thing: str) -> Iterator[str]:
    """Below the first part of a list: how much of it that is, and the option that shows all."""
    if total > shown:
        yield grey(f"{shown:,} of {plural(total, thing)} · more: --limit {total}")


def fail(error: RecollectError, as_json: bool) -> int:
    """Print what went wrong and, on its own line, what to do; return the exit code."""
    if as_json:
        choices = {"choices": list(error.choices)} if error.choices else {}
        print_json({"error": {"code": error.code, "message": error.message, "hint": error.hint} | choices})
    else:
        click.echo(f"{click.style('Error:', fg='red')} {one_line(error.message)}", err=True)
        for line in _choice_lines(error.choices):
            click.echo(line, err=True)
        if error.hint:
            # One line, however narrow the terminal: what to type next is copied from it.
            click.echo(f"{click.style('hint:', fg='cyan')} {one_line(error.hint)}", err=True)
    return error.exit_code


def _choice_lines(choices: Sequence[Mapping[str, str | None]]) -> Iterator[str]:
    """The sessions that may be meant: date, id, repository, title."""
    names = short_ids(choice["session_uid"] or "" for choice in choices)
    columns = max((width(name) for name in names.values()), default=0)
    for choice in choices:
        name = padded(names[choice["session_uid"] or ""], columns)
        repo = padded(fitted(repo_name(choice["repo"]), _REPO_COLUMNS), _REPO_COLUMNS)
        when, title = local_time(choice["ended_at"])[:10], one_line(choice["title"] or "–")
        yield fitted(f"  {when:<10}  {name}  {repo}  {title}", line_columns())


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors a user can act on into a message and an exit code; with `--json`, into JSON on stdout."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            _require_utf8(kwargs)
            return command(*args, **kwargs)
        except RecollectError as error:
            sys.exit(fail(error, bool(kwargs.get("as_json"))))
        except BrokenPipeError:
            # Nobody reads the pipe any more; the interpreter must not complain about it at exit.
            sys.stderr.close()
            sys.exit(0)
        except OSError as error:
            refusal = _refusal(error)
            if refusal is None:
                raise
            sys.exit(fail(refusal, bool(kwargs.get("as_json"))))

    return run


def _refusal(error: OSError) -> RecollectError | None:
    """What the system refused, as something a user can act on; None if the user cannot."""
    if error.errno in _NO_PATH:
        return UsageError(f"Invalid path ({error.strerror}): {error.filename}", "give another one")
    if error.errno in _NO_ROOM:
        return StoreUnwritable(f"Disk full: {error.filename or error.strerror}", "free some space, then run this again")
    if error.errno in _REFUSED:
        where = f": {error.filename}" if error.filename else ""
        return StoreUnwritable(
            f"Cannot read or write ({error.strerror}){where}", "check the disk and its permissions, then run this again"
        )
    return None


def _require_utf8(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for text that is not UTF-8: nothing stored can match it. File names may be any bytes."""
    context = click.get_current_context()
    paths = {param.name for param in context.command.params if isinstance(param.type, click.Path)} | {"roots"}
    for name, value in arguments.items():
        for text in (value if isinstance(value, tuple) else (value,)) if name not in paths else ():
            if isinstance(text, str) and not text.isascii() and text != as_utf8(text):
                raise UsageError(f"Not valid UTF-8: {as_utf8(text)}", "set your terminal to UTF-8")


@contextmanager
def usage_errors_as_json(as_json: bool) -> Iterator[None]:
    """Report wrong usage to programs like any other error; click's own way is for people."""
    try:
        yield
    except click.UsageError as error:
        if not as_json:
            raise
        path = error.ctx.command_path if error.ctx else "recollect"
        message = one_line(error.format_message()).removesuffix(".")
        sys.exit(fail(UsageError(message, f"`{path} --help` lists its options"), as_json=True))


def confirm(question: str, action: str, yes: bool) -> None:
    """Ask, unless `--yes` was given; where there is no terminal, refuse to do `action`."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NeedsAnswer(f"Refusing to {action} without `--yes`", "run it in a terminal to be asked, or add `--yes`")
    if not click.confirm(one_line(question), err=True):
        raise NeedsAnswer("Nothing was changed")


def limit_option(things: str, shown: int, *, varies: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """`--limit` of a list: programs get all of it unless they ask for less, people the first `shown`.

    Where that `varies`, the command gets None unless a limit was given.
    """

    def limit(context: click.Context, _: click.Parameter, given: int | None) -> int | None:
        return given or (None if varies or context.params.get("as_json") else shown)

    help_text = f"List at most N {things} ({shown}; with --json all)."
    return click.option("--limit", "-n", metavar="N", type=click.IntRange(1), callback=limit, help=help_text)


offset_option = click.option(
    "--offset", metavar="N", type=click.IntRange(0), default=0, help="Skip the first N of the list."
)
json_option = click.option("--json", "as_json", is_flag=True, is_eager=True, help="Print JSON.")


def command(
    name: str | None = None, *, below: click.Group | None = None, **settings: Any
) -> Callable[[Callable[..., None]], click.Command]:
    """Make a function a command, of its own or `below` a group, that has `--json` and says what went wrong."""

    def make(function: Callable[..., None]) -> click.Command:
        made = (below or click).command(name, **settings)(reports_errors(function))
        made.params.append(click.Option(["--json", "as_json"], is_flag=True, is_eager=True, help="Print JSON."))
        return made

    return make


repo_option = click.option("--repo", metavar="NAME", help="Only this repository: its name or part of it.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
root_option = click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="AGENT=PATH",
    help="Read this agent's files from PATH instead; repeatable.",
)


_LINES_BEFORE_MARK = 6
no_pager_option = click.option("--no-pager", is_flag=True, help="Print directly, without $PAGER.")


def print_lines(lines: Iterable[str], *, no_pager: bool = False, mark: str | None = None) -> None:
    """Print lines one by one, through the pager if there is a terminal and nobody said no.

    `less` begins near the first line that has `mark` in it.
    """
    is_paged = not no_pager and sys.stdout.isatty()
    if mark is not None and is_paged:
        lines = list(lines)
        marked = next((number for number, line in enumerate(lines, start=1) if mark in line), 1)
    else:
        marked = 1
    pager = _start(marked) if is_paged else None
    if pager is None or pager.stdin is None:
        for line in lines:
            click.echo(line)
        return
    try:
        for line in lines:
            text = line if has_colour() else click.unstyle(line)
            pager.stdin.write(f"{text}\n".encode("utf-8", "replace"))
        pager.stdin.close()
    except (BrokenPipeError, KeyboardInterrupt):
        pass  # whoever reads has seen enough
    _wait(pager)


def _start(marked: int) -> "subprocess.Popen[bytes] | None":
    """Start the pager, which waits for text; None if there is none."""
    import shlex  # few commands page, and none but a terminal's
    import subprocess

    try:
        words = shlex.split(pager_command())
        if words and Path(words[0]).name == "less" and marked > _LINES_BEFORE_MARK:
            words.append(f"+{marked - _LINES_BEFORE_MARK}")
        return subprocess.Popen(words, stdin=subprocess.PIPE, env=pager_environment()) if words else None
    except (OSError, ValueError):
        return None


def _wait(pager: "subprocess.Popen[bytes]") -> None:
    """Wait until the pager is left; Ctrl-C belongs to it."""
    while True:
        try:
            pager.wait()
            return
        except KeyboardInterrupt:
            continue
