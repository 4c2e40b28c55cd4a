"""What is made of a session's events and outlives them: its digest, signals and tallies, and what it teaches.

Names load on first use: the distiller's patterns take time to compile, and most sweeps have nothing to distil.
"""

from recollect import digest, knowledge
from recollect.model.lazy import lazy_names

VERSION = digest.VERSION * 1000 + knowledge.VERSION  # what another one made is made again

_NAMES = """
recollect.analysis.distiller: distil_pending distil_sessions
recollect.analysis.prepared: prepare renew_brief write_switches
recollect.analysis.stored: find_digest find_exchanges make_packet
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.analysis.distiller import distil_pending, distil_sessions
    from recollect.analysis.prepared import prepare, renew_brief, write_switches
    from recollect.analysis.stored import find_digest, find_exchanges, make_packet
else:
    __getattr__ = lazy_names(__name__, _NAMES)
