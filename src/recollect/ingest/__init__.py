"""From the agents' files to batches the store takes: discover, read, redact, decide what may be stored."""

from recollect.lazy import lazy_names

_NAMES = """
recollect.ingest.builder: Protection Task batch_of protected_json protected_line protected_names read_batches
recollect.ingest.builder: without_secrets
recollect.ingest.discover: Changes Chosen SourceNames find_changes find_sources
recollect.ingest.freshness: Freshness find_freshness
recollect.ingest.gate: Group bytes_to_read exclude_of held_although_excluded lift_unlisted take_in unlisted
recollect.ingest.gate: unusable_rules
recollect.ingest.rescue: drop_copies save_copy take_copies
"""
TYPE_CHECKING = False  # `typing` takes long to load
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
        bytes_to_read,
        exclude_of,
        held_although_excluded,
        lift_unlisted,
        take_in,
        unlisted,
        unusable_rules,
    )
    from recollect.ingest.rescue import drop_copies, save_copy, take_copies
else:
    __getattr__ = lazy_names(__name__, _NAMES)
