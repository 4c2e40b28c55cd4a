"""Finding it again: the query language, the search, and what it shows.

This is the door: code outside imports these names from here. They load when first used, for a search must start fast
and needs few of them.
"""

from importlib import import_module

TYPE_CHECKING = False  # `typing` takes as long to load as all that a hook needs
if TYPE_CHECKING:
    from typing import Any

    from recollect.recall.answers import Glimpse, Match, SearchAnswer, SessionHit
    from recollect.recall.brief import renew_briefs, write_briefs
    from recollect.recall.diffs import EditDiff, SessionDiff, session_diff
    from recollect.recall.edits import absolute
    from recollect.recall.file_history import FileEdit, FileVisit, blame, evicted_edits, files
    from recollect.recall.filters import NO_FILTERS, Filters
    from recollect.recall.index import index_pending
    from recollect.recall.line_history import LineOrigin, line_origin
    from recollect.recall.lookup import Options, search
    from recollect.recall.other_sessions import Related, TimelineEntry, Unfinished, related, timeline, unfinished
    from recollect.recall.scope import sessions_of
    from recollect.recall.snippets import folded
    from recollect.recall.spending import Block, Spending, make_spending, write_snapshot
    from recollect.recall.stats import BREAKDOWNS, WEEKDAYS, StatLine, Stats, make_breakdown, make_stats

_MODULES = {
    "brief": ("renew_briefs", "write_briefs"),
    "answers": ("Glimpse", "Match", "SearchAnswer", "SessionHit"),
    "diffs": ("EditDiff", "SessionDiff", "session_diff"),
    "edits": ("absolute",),
    "file_history": ("FileEdit", "FileVisit", "blame", "evicted_edits", "files"),
    "filters": ("NO_FILTERS", "Filters"),
    "index": ("index_pending",),
    "line_history": ("LineOrigin", "line_origin"),
    "lookup": ("Options", "search"),
    "other_sessions": ("Related", "TimelineEntry", "Unfinished", "related", "timeline", "unfinished"),
    "scope": ("sessions_of",),
    "snippets": ("folded",),
    "spending": ("Block", "Spending", "make_spending", "write_snapshot"),
    "stats": ("BREAKDOWNS", "WEEKDAYS", "StatLine", "Stats", "make_breakdown", "make_stats"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = [
    "BREAKDOWNS",
    "NO_FILTERS",
    "WEEKDAYS",
    "Block",
    "EditDiff",
    "FileEdit",
    "FileVisit",
    "Filters",
    "Glimpse",
    "LineOrigin",
    "Match",
    "Options",
    "Related",
    "SearchAnswer",
    "SessionDiff",
    "SessionHit",
    "Spending",
    "StatLine",
    "Stats",
    "TimelineEntry",
    "Unfinished",
    "absolute",
    "blame",
    "evicted_edits",
    "files",
    "folded",
    "index_pending",
    "line_origin",
    "make_breakdown",
    "make_spending",
    "make_stats",
    "related",
    "renew_briefs",
    "search",
    "session_diff",
    "sessions_of",
    "timeline",
    "unfinished",
    "write_briefs",
    "write_snapshot",
]


def __getattr__(name: str) -> "Any":
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
