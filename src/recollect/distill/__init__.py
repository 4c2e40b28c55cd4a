"""What outlives the raw: exchanges, digest, outcome, signals and tallies of a session, made without a model.

Everything but `analysis` is pure: a session's row, its events and a few payloads in, records out. No agent is
known here, only kinds, roles, statuses, tools and texts, so that all agents are judged alike.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from recollect.store import Store

VERSION = 5  # of the distiller: digests of another one are made again


def distil_pending(store: "Store", advance: Callable[[int, int], None]) -> None:
    """Distil what changed, if anything did: otherwise nothing is loaded, for the patterns take time to compile."""
    if store.digests.has_pending(VERSION):
        from recollect.distill.analysis import analyze

        analyze(store, advance)
