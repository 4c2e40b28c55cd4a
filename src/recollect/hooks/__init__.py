"""What hooks add to agents' sessions, and what they leave for the next sweep.

An agent waits for its hooks, so the modules here load next to nothing: no store, no settings file, no adapter.
"""

from recollect.model.lazy import lazy_names

_NAMES = """
recollect.hooks.answers: NEWS HookEvent answer claim_brief hooks_of_agent hooks_of_client is_answering
recollect.hooks.history: NOT_MET_AGAIN LogEntry drain_spool read_hook_log
recollect.hooks.spool: note_failure
"""
TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from recollect.hooks.answers import (
        NEWS,
        HookEvent,
        answer,
        claim_brief,
        hooks_of_agent,
        hooks_of_client,
        is_answering,
    )
    from recollect.hooks.history import NOT_MET_AGAIN, LogEntry, drain_spool, read_hook_log
    from recollect.hooks.spool import note_failure
else:
    __getattr__ = lazy_names(__name__, _NAMES)
