"""When the last sweep ran, which folders it read, and how far an interrupted one came.

Kept in the sweep's lock file, whose modification time is when the last complete sweep began: a sweep that finds nothing
new changes nothing else. It names the agents' homes and no file in them, so there is nothing in it to forget; a home
with a secret in its path is left out, because no stored path begins with it.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson

LOCK_NAME = "sweep.lock"


class SweepState(NamedTuple):
    """`began_ns` is when the last complete sweep began; the bytes are those of one that was interrupted."""

    began_ns: int | None = None
    roots: tuple[str, ...] = ()
    read_bytes: int = 0
    total_bytes: int = 0

    @property
    def is_interrupted(self) -> bool:
        return self.total_bytes > 0


def read_sweep_state(folder: Path) -> SweepState:
    try:
        content, mtime_ns = (folder / LOCK_NAME).read_bytes(), (folder / LOCK_NAME).stat().st_mtime_ns
        state = orjson.loads(content)
        return SweepState(
            None if "total_bytes" in state else mtime_ns, **state | {"roots": tuple(state.get("roots", ()))}
        )
    except (OSError, orjson.JSONDecodeError, TypeError, AttributeError):
        return SweepState()  # no sweep yet, or a file that says nothing


def note_progress(folder: Path, read_bytes: int, total_bytes: int) -> None:
    """Note how far a sweep has come; the sweep's lock must be held."""
    _write(folder, {"read_bytes": read_bytes, "total_bytes": total_bytes})


def note_finished(folder: Path, roots: Sequence[str], began_ns: int) -> None:
    """Note that a sweep which began at this time is complete."""
    _write(folder, {"roots": roots})
    os.utime(folder / LOCK_NAME, ns=(began_ns, began_ns))


def _write(folder: Path, state: dict[str, Any]) -> None:
    """Replace what the lock file says; it must stay the same file, for it is locked."""
    content = orjson.dumps(state)
    if (folder / LOCK_NAME).read_bytes() != content:
        (folder / LOCK_NAME).write_bytes(content)
