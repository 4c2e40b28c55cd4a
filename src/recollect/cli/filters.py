"""The options that narrow a list: declared once, the same in every command that lists something."""

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from recollect.errors import UsageError
from recollect.kinds import KINDS, OUTCOMES
from recollect.recall import Filters

_WHEN = "2026-11-01, 7d, 3 days ago, monday, last week"
_OPTIONS = (
    click.option("--agent", metavar="NAME", help="Only sessions of this agent."),
    click.option(
        "--repo", metavar="NAME", help="Only this repository: its name, the end or a part of it, or a folder in it."
    ),
    click.option("--here", is_flag=True, help="Only the repository of the current folder."),
    click.option("--branch", metavar="NAME", help="Only this git branch."),
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
            raise UsageError("Cannot use `--here` and `--repo` together", "choose one")
        named = {name: options.pop(name) for name in Filters._fields if name in options}
        command(*args, filters=Filters(repo="." if here else repo, **named), **options)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run
