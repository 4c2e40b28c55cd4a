"""Sessions that run now, over all agents."""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from recollect.schema import Session

WORKING, WAITING = "working", "waiting"
ACTIVE_SECONDS = 120


@dataclass(frozen=True, slots=True)
class ActiveSession:
    """A session that runs: its log was written in the last two minutes, or its process lives."""

    session: Session
    state: str  # working, or waiting for its user
    pid: int | None
    written_s: int | None  # since its log was written


def written_seconds(session: Session) -> float | None:
    """How long ago any of a session's files was written; None if none is there."""
    times = []
    for source in session.sources:
        try:
            times.append(Path(source.path).stat().st_mtime)
        except OSError:
            continue
    return time.time() - max(times) if times else None


def active_of(
    sessions: Iterable[Session], live: Mapping[str, tuple[int, str]], is_answered: Callable[[Session], bool]
) -> list[ActiveSession]:
    """Which of these run; `live` has process and state by native id, where the agent tells them."""
    active = []
    for session in sessions:
        seconds, (pid, state) = written_seconds(session), live.get(session.native_session_id, (None, None))
        if pid is not None or (seconds is not None and seconds <= ACTIVE_SECONDS):
            state = state or (WAITING if is_answered(session) else WORKING)
            active.append(ActiveSession(session, state, pid, None if seconds is None else int(seconds)))
    return active
