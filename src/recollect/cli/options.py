"""Options that commands share, and the store as commands open it that read: brought up to date if that is quick."""

from collections.abc import Callable
from contextlib import suppress
from functools import wraps
from time import time
from typing import TYPE_CHECKING, Any

import click

from recollect.api import Memory, open_memory
from recollect.cli.terminal import duration, grey, one_line, plural, short_ids, size
from recollect.config import freshness_mode, process_group
from recollect.model.errors import RecollectError
from recollect.model.kinds import KINDS, OUTCOMES
from recollect.recall import Filters

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

    from recollect.ingest import Freshness

_MOST_COMPLETED = 50


class _Name(click.ParamType[str]):
    """A name that the store knows; a shell can complete it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> "list[CompletionItem]":
        from click.shell_completion import CompletionItem  # only where a shell asks

        try:
            with open_memory(create=False, read_only=True) as memory:
                names = _session_names(memory) if self.name == "session" else dict.fromkeys(memory.names(self.name))
        except RecollectError:
            return []
        begun = [name for name in names if name.casefold().startswith(incomplete.casefold())]
        return [CompletionItem(name, help=names[name]) for name in begun[:_MOST_COMPLETED]]


def _session_names(memory: Memory) -> dict[str, str | None]:
    """The ids of the latest sessions, each with its title."""
    sessions = memory.sessions(roots_only=True, is_idle=False, limit=_MOST_COMPLETED * 4)
    names = short_ids(session.session_uid for session in sessions)
    return {names[session.session_uid]: one_line(session.title or "") for session in sessions}


SESSION, REPO, AGENT, BRANCH = (_Name(name) for name in ("session", "repo", "agent", "branch"))
session_argument = click.argument("session", type=SESSION, default="last")
_WHEN = "2026-11-01, 7d, 3 days ago, monday, last week"
_OPTIONS = (
    click.option("--agent", metavar="NAME", type=AGENT, help="Only sessions of this agent."),
    click.option(
        "--repo",
        metavar="NAME",
        type=REPO,
        help="Only this repository: its name, part of it, or a folder in it.",
    ),
    click.option("--here", is_flag=True, help="Only the repository of the current folder."),
    click.option("--branch", metavar="NAME", type=BRANCH, help="Only this git branch."),
    click.option("--since", metavar="WHEN", help=f"Only what happened since: {_WHEN}."),
    click.option("--before", metavar="WHEN", help="Only what happened before this time."),
    click.option("--outcome", type=click.Choice(OUTCOMES), help="Only sessions with this outcome."),
    click.option(
        "--kind",
        metavar="KIND",
        type=click.Choice(KINDS),
        help="Only sessions with events of this kind, and only these events: user_msg, edit, error …",
    ),
)


def filter_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that narrow its list; it gets them as one record, `filters`."""

    @wraps(command)
    def run(*args: Any, here: bool, repo: str | None, **options: Any) -> None:
        if here and repo is not None:
            raise click.UsageError("Cannot use `--here` and `--repo` together")
        named = {name: options.pop(name) for name in Filters._fields if name in options}
        command(*args, filters=Filters(repo="." if here else repo, **named), **options)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


def open_fresh(*, read_only: bool = True) -> Memory:
    """The store, to answer a question from it. What agents wrote since the last sweep is read first if that is quick.

    `[capture] fresh` may turn the sweep off (`warn`), or all of it (`off`).
    """
    mode, memory = freshness_mode(), open_memory(create=False, read_only=read_only)
    # A group may not look at what others' agents wrote.
    freshness = memory.freshness() if mode != "off" and process_group() is None else None
    if freshness is None:
        return memory
    if mode == "auto" and freshness.files_changed and freshness.is_quick and _sweep():
        memory.close()
        return open_memory(create=False, read_only=read_only)
    if notice := _notice(memory, freshness):
        click.echo(grey(notice), err=True)
    return memory


def _sweep() -> bool:
    """Whether a sweep was made. If it cannot be, the question is answered from what is stored."""
    with suppress(RecollectError, OSError), open_memory(create=False) as memory:
        memory.sweep()
        return True
    return False


def _notice(memory: Memory, freshness: "Freshness") -> str | None:
    sweep = freshness.sweep
    read = f"{size(sweep.read_bytes)} of {size(sweep.total_bytes)} read"
    if sweep.began_ns is None and memory.is_sweeping():
        return f"A sweep is running: {read} so far" if sweep.is_interrupted else "A sweep is running"
    if sweep.is_interrupted:
        return f"The last sweep was interrupted: {read} and kept; `recollect sweep` continues"
    if freshness.files_changed and sweep.began_ns is not None:
        changed = f"{plural(freshness.files_changed, 'file')} changed since"
        return f"Last sweep {duration(time() - sweep.began_ns / 1e9)} ago, {changed}: `recollect sweep`"
    return None
