"""Finding it again: the query language, the search, and what it shows.

This is the door: code outside imports these names from here. They load when first used, for a search must start fast
and needs few of them.
"""

from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes as long to load as all that a hook needs

_NAMES = """
recollect.recall.brief: renew_briefs write_briefs
recollect.recall.diffs: EditDiff SessionDiff absolute patch_of session_diff
recollect.recall.fence: AGENT TOOL USER Recalled fenced one_line
recollect.recall.file_history: FileEdit FileVisit blame evicted_edits files
recollect.recall.filters: NO_FILTERS Filters last_name repos_for sessions_of
recollect.recall.hits: Amendment Glimpse Match SearchAnswer SessionHit
recollect.recall.line_history: ChangeOrigin LineOrigin Uncommitted find_uncommitted line_origin
recollect.recall.lookup: Options search with_amendments
recollect.recall.other_sessions: Discussion Related TimelineEntry Unfinished find_discussions related timeline
recollect.recall.other_sessions: unfinished
recollect.recall.prepared: BRIEF EDITS FIXES HOOK_DEFAULTS PROMPTS files_path fixes_path is_on read_brief read_requests
recollect.recall.prepared: read_settled requests_path switches_path
recollect.recall.prompts: AGENT_PROMPTS
recollect.recall.snippets: folded
recollect.recall.stats: BREAKDOWNS WEEKDAYS Block Spending StatLine Stats make_breakdown make_spending make_stats
recollect.recall.stats: write_snapshot
"""

if TYPE_CHECKING:
    from recollect.recall.brief import renew_briefs, write_briefs
    from recollect.recall.diffs import EditDiff, SessionDiff, absolute, patch_of, session_diff
    from recollect.recall.fence import AGENT, TOOL, USER, Recalled, fenced, one_line
    from recollect.recall.file_history import FileEdit, FileVisit, blame, evicted_edits, files
    from recollect.recall.filters import NO_FILTERS, Filters, last_name, repos_for, sessions_of
    from recollect.recall.hits import Amendment, Glimpse, Match, SearchAnswer, SessionHit
    from recollect.recall.line_history import ChangeOrigin, LineOrigin, Uncommitted, find_uncommitted, line_origin
    from recollect.recall.lookup import Options, search, with_amendments
    from recollect.recall.other_sessions import (
        Discussion,
        Related,
        TimelineEntry,
        Unfinished,
        find_discussions,
        related,
        timeline,
        unfinished,
    )
    from recollect.recall.prepared import (
        BRIEF,
        EDITS,
        FIXES,
        HOOK_DEFAULTS,
        PROMPTS,
        files_path,
        fixes_path,
        is_on,
        read_brief,
        read_requests,
        read_settled,
        requests_path,
        switches_path,
    )
    from recollect.recall.prompts import AGENT_PROMPTS
    from recollect.recall.snippets import folded
    from recollect.recall.stats import (
        BREAKDOWNS,
        WEEKDAYS,
        Block,
        Spending,
        StatLine,
        Stats,
        make_breakdown,
        make_spending,
        make_stats,
        write_snapshot,
    )


else:
    __getattr__ = lazy_names(__name__, _NAMES)
