"""What is made of a session's events and outlives them: its digest, signals and tallies, and what it teaches.

The patterns take time to compile, so that the distiller is loaded only when there is something to distil.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from recollect import distill, knowledge

if TYPE_CHECKING:
    from recollect.store import Store, StoredSession

VERSION = distill.VERSION * 1000 + knowledge.VERSION  # what another one made is made again


def distil_sessions(store: "Store", sessions: "Sequence[StoredSession]", at_ms: int) -> None:
    """Distil sessions that were just read and changed, all at one moment."""
    from recollect.analysis.distiller import distil_sessions

    distil_sessions(store, sessions, at_ms)


def distil_outdated(store: "Store", advance: Callable[[int, int], None]) -> bool:
    """Distil again what another version distilled, and what an earlier sweep left undone; whether there was any."""
    is_outdated = store.digests.has_outdated(VERSION)
    if is_outdated:
        distil_pending(store, advance)
    return is_outdated


def distil_pending(store: "Store", advance: Callable[[int, int], None]) -> None:
    """Distil whatever has no digest, an older one, or one of another version."""
    from recollect.analysis.distiller import distil_pending

    distil_pending(store, advance)
