"""The store as reading commands open it: brought up to date first if that is quick, else with a word about its age."""

from contextlib import suppress
from time import time
from typing import TYPE_CHECKING

import click

from recollect.api import Memory, open_memory
from recollect.cli.terminal import duration, grey, plural, size
from recollect.config import freshness_mode, process_group
from recollect.errors import RecollectError

if TYPE_CHECKING:
    from recollect.ingest import Freshness


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
