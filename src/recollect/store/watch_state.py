"""Which process watches the agents' files for this store: the lock it holds, and what it wrote into the lock's file."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from recollect.errors import Busy
from recollect.store.sqlite.locks import is_held, try_lock

WATCH_NAME = "watch.pid"


class WatchState(NamedTuple):
    """`every_minutes` is None for one that sweeps what changes as it changes."""

    pid: int
    since_ms: int
    every_minutes: float | None


@contextmanager
def watch_lock(folder: Path, state: WatchState) -> Iterator[None]:
    """Be the one process that watches for this store; raises Busy if there is another."""
    path = folder / WATCH_NAME
    other = read_watch_state(folder)
    if other is not None:
        raise Busy(f"Already watching this store: process {other.pid}", f"to stop it: kill {other.pid}")
    with try_lock(path):
        path.write_text(json.dumps(state._asdict()))
        yield
        os.truncate(path, 0)


def read_watch_state(folder: Path) -> WatchState | None:
    """The process that watches for this store now; None if there is none."""
    path = folder / WATCH_NAME
    try:
        return WatchState(**json.loads(path.read_bytes())) if path.exists() and is_held(path) else None
    except (OSError, ValueError, TypeError):
        return None
