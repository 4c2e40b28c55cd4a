"""Where everything is printed, and how errors end a command."""

import errno
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

import click
import orjson

from recollect.cli.words import as_utf8, harmless_json, one_line
from recollect.config import terminal_columns
from recollect.errors import NeedsAnswer, RecollectError, StoreUnwritable, UsageError

P = ParamSpec("P")
R = TypeVar("R")

_UNCUT = 10_000  # columns of a pipe: its reader decides what to leave out
_NO_PATH = (errno.ENAMETOOLONG, errno.ELOOP)  # whatever is asked of it
# What the machine refuses; anything else is a bug and must be told as one.
_REFUSALS = "EIO ENOSPC EDQUOT EROFS EACCES EPERM EMFILE ENFILE ENOMEM ESTALE EFBIG".split()  # noqa: SIM905
_REFUSED = frozenset(getattr(errno, name) for name in _REFUSALS if hasattr(errno, name))


def print_json(value: Any, *, is_line: bool = False) -> None:
    """Print a value, indented or as one line; UTF-8 whatever the terminal takes, since programs read it."""
    try:
        text = orjson.dumps(value, option=None if is_line else orjson.OPT_INDENT_2).decode()
    except orjson.JSONEncodeError:  # a file name that is no UTF-8
        told = json.dumps(value, ensure_ascii=False, indent=None if is_line else 2)
        text = told.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    click.echo(harmless_json(text).encode())


def grey(text: str) -> str:
    return click.style(text, fg="bright_black")


def line_columns() -> int:
    """The columns that a line of a list may take."""
    return terminal_columns(_UNCUT)


def fail(error: RecollectError, as_json: bool) -> int:
    """Say what went wrong in one line and what to do in another; return the exit code."""
    if as_json:
        print_json({"error": {"code": error.code, "message": error.message, "hint": error.hint}})
    else:
        click.echo(f"{click.style('Error:', fg='red')} {one_line(error.message)}", err=True)
        if error.hint:
            click.echo(f"{click.style('hint:', fg='cyan')} {one_line(error.hint)}", err=True)
    return error.exit_code


def reports_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn errors a user can act on into a line and an exit code; `--json` gets them as JSON on stdout."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            _refuse_broken_texts(kwargs)
            return command(*args, **kwargs)
        except RecollectError as error:
            sys.exit(fail(error, bool(kwargs.get("as_json"))))
        except BrokenPipeError:
            # The reader of the pipe has gone; the interpreter must not complain about it at exit.
            sys.stderr.close()
            sys.exit(0)
        except OSError as error:
            told = _told(error)
            if told is None:
                raise
            sys.exit(fail(told, bool(kwargs.get("as_json"))))

    return run


def _told(error: OSError) -> RecollectError | None:
    """What the system refused, as a user can act on it; None if that is no matter of the user's."""
    if error.errno in _NO_PATH:
        return UsageError(f"This cannot be a path ({error.strerror}): {error.filename}", "give another one")
    if error.errno in _REFUSED:
        where = f": {error.filename}" if error.filename else ""
        return StoreUnwritable(
            f"The system refused to read or write ({error.strerror}){where}",
            "check the disk and its permissions, then run this again",
        )
    return None


def _refuse_broken_texts(arguments: Mapping[str, Any]) -> None:
    """Raise UsageError for a text that is no UTF-8: nothing stored can have it. Names of files may be so."""
    context = click.get_current_context()
    paths = {param.name for param in context.command.params if isinstance(param.type, click.Path)} | {"roots"}
    for name, value in arguments.items():
        for text in (value if isinstance(value, tuple) else (value,)) if name not in paths else ():
            if isinstance(text, str) and not text.isascii() and text != as_utf8(text):
                raise UsageError(f"Not a text in UTF-8: {as_utf8(text)}", "write it with the terminal set to UTF-8")


@contextmanager
def usage_errors_as_json(as_json: bool) -> Iterator[None]:
    """Have programs told about a wrong call as about any other error; click's own way is for people."""
    try:
        yield
    except click.UsageError as error:
        if not as_json:
            raise
        path = error.ctx.command_path if error.ctx else "recollect"
        message = one_line(error.format_message()).removesuffix(".")
        sys.exit(fail(UsageError(message, f"`{path} --help` shows what it takes"), as_json=True))


def confirm(question: str, yes: bool) -> None:
    """Ask, unless the answer was given; where nobody can answer it is no."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise NeedsAnswer("This asks first, and nobody is there to answer", "`--yes` answers it")
    if not click.confirm(one_line(question), err=True):
        raise NeedsAnswer("Nothing was changed")


class Renamed(click.Option):
    """An option whose names after the first are old ones: they still work, and help is silent about them."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        names = self.opts
        self.opts = names[:1]
        try:
            return super().get_help_record(ctx)
        finally:
            self.opts = names


def limit_option(things: str, shown: int) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """How many of a list are wanted. Programs get all unless they ask for less; people, so many that they can read."""
    told = f"At most N {things} ({shown}; all with --json)."
    return click.option("--limit", metavar="N", type=click.IntRange(1), help=told)


json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
repo_option = click.option("--repo", metavar="NAME", help="Only this repository; any ending of its name will do.")
agent_option = click.option("--agent", metavar="NAME", help="Only this agent's sessions.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
root_option = click.option(
    "--root",
    "roots",
    multiple=True,
    metavar="AGENT=PATH",
    help="Read this agent's files from PATH only; may be given several times.",
)
