"""Passes what must not go unnoticed to the command in `[notify] command`, if there is one."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import orjson

_SECONDS = 10


@dataclass(frozen=True, slots=True)
class Notice:
    """`event` is data_loss, last_copy_evicted or distilled_over_cap; never a word of a session's content."""

    event: str
    at: str | None
    session: str | None
    bytes: int


def send(command: Sequence[str], notices: Sequence[Notice]) -> bool:
    """Give the command one JSON document on stdin; return whether it succeeded. A sweep never fails because of it."""
    if not command or not notices:
        return False
    import subprocess  # slow to load, and most sweeps have nothing to report

    document = orjson.dumps({"recollect": 1, "events": [asdict(notice) for notice in notices]}) + b"\n"
    try:
        process = subprocess.run(list(command), input=document, timeout=_SECONDS, capture_output=True, check=False)
    except (OSError, subprocess.SubprocessError):
        return False
    return process.returncode == 0
