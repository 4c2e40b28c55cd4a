"""From the agents' files to batches the store takes: discover, read, redact, decide what may be stored."""

from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load

_NAMES = """
recollect.ingest.builder: Protection Task batch_of protected_json protected_line protected_names read_batches
recollect.ingest.builder: without_secrets
recollect.ingest.discover: Changes Chosen SourceNames find_changes find_sources
recollect.ingest.freshness: Freshness find_freshness
recollect.ingest.gate: Group exclude_of held_although_excluded lift_unlisted take_in unlisted unusable_rules
recollect.ingest.pool: bytes_to_read
recollect.ingest.rescue: drop_copies save_copy take_copies
"""
if TYPE_CHECKING:
    from recollect.ingest.builder import (
        Protection,
        Task,
        batch_of,
        protected_json,
        protected_line,
        protected_names,
        read_batches,
        without_secrets,
    )
    from recollect.ingest.discover import Changes, Chosen, SourceNames, find_changes, find_sources
    from recollect.ingest.freshness import Freshness, find_freshness
    from recollect.ingest.gate import (
        Group,
        exclude_of,
        held_although_excluded,
        lift_unlisted,
        take_in,
        unlisted,
        unusable_rules,
    )
    from recollect.ingest.pool import bytes_to_read
    from recollect.ingest.rescue import drop_copies, save_copy, take_copies

else:
    __getattr__ = lazy_names(__name__, _NAMES)
