"""What outlives the raw: exchanges, digest, outcome, signals and tallies of a session, made without a model.

Everything but `distiller` is pure: a session's row, its events and a few payloads in, records out. No agent is
known here, only kinds, roles, statuses, tools and texts, so that all agents are judged alike.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.store import Store, StoredSession

VERSION = 6  # of the distiller: digests of another one are made again

# The patterns take time to compile, so that the distiller is loaded only when there is something to distil.


@dataclass(frozen=True, slots=True)
class ExchangeRules:
    """The settings of `[exchanges]`."""

    max_tokens: int = 1000
    max_result_chars: int = 200
    max_error_chars: int = 500
    keep_reasoning: bool = True
    keep_tool_calls: bool = True


def distil_sessions(store: "Store", sessions: "Sequence[StoredSession]", at_ms: int) -> None:
    """Distil sessions that were just read and changed, all at one moment."""
    from recollect.distill.distiller import distil_sessions

    distil_sessions(store, sessions, at_ms)


def distil_outdated(store: "Store", advance: Callable[[int, int], None]) -> None:
    """Distil again what another version distilled, and what an earlier sweep left undone."""
    if store.digests.has_outdated(VERSION):
        distil_pending(store, advance)


def distil_pending(store: "Store", advance: Callable[[int, int], None]) -> None:
    """Distil whatever has no digest, an older one, or one of another version."""
    from recollect.distill.distiller import distil_pending

    distil_pending(store, advance)
