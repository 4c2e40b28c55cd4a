"""What pushes to a graph have spent: tokens by day, in a file of their own, and the lock of the one push that runs."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import orjson

from recollect.errors import Busy
from recollect.store.sqlite.durable import replace_file
from recollect.store.sqlite.locks import is_held, try_lock

_TOKENS_NAME, _LOCK_NAME = "graphiti.json", "graphiti.lock"
_KEPT_DAYS = 62  # this month and the last


@contextmanager
def push_lock(folder: Path) -> Iterator[None]:
    """Be the one process that pushes from this store; raises Busy if there is another."""
    path = folder / _LOCK_NAME
    if is_held(path):
        raise Busy("Another push to the graph is running", "try again when it is done")
    with try_lock(path):
        yield


def read_tokens(folder: Path) -> dict[str, int]:
    """Tokens spent, by day (`2026-11-15`)."""
    path = folder / _TOKENS_NAME
    days: dict[str, int] = orjson.loads(path.read_bytes()) if path.exists() else {}
    return days


def note_tokens(folder: Path, days: Mapping[str, int]) -> None:
    """Replace what is known to be spent; it is on the disk on return."""
    replace_file(folder / _TOKENS_NAME, orjson.dumps(dict(sorted(days.items())[-_KEPT_DAYS:])))
