"""Recollect: everything your coding agents did, in one local store.

    from recollect import Filters, open_memory

    with open_memory() as memory:
        memory.sweep()
        for session in memory.sessions(Filters(repo="shop-api", since="last week"), limit=5):
            print(session.started_at, session.title)

Names load on first use: a hook or a search must not pay for what it does not need.
"""

from recollect.model.lazy import lazy_names

TYPE_CHECKING = False  # `typing` takes long to load, and whoever presses Ctrl-C meanwhile would get a traceback

__version__ = "0.1.0"

_NAMES = """
recollect.agentkit.optional: HomeSettings
recollect.api: Archive DigestPages Filters ForgetRequest Forked HandoverPlan Memory Prompting SessionAnnotations
recollect.api: UserNote doctor open_memory repair restore
recollect.care: AgentTotals DistilledTotals Finding RetentionStatus SourceTotals Status
recollect.digest: Exchange
recollect.model.errors: Ambiguous Busy NeedsAnswer NotFound RecollectError UsageError
recollect.lifecycle: ForgetPlan ForgottenSession RescanReport UnreachableCopy
recollect.groups: ActiveSession Answered Bookmark Cleared Group GroupSessions Mount Resumed RunReport
recollect.knowledge: Evidence Fact Fix FixStep Route Workflow Workflows
recollect.live: Appended AsyncLive Live LiveSession Media Message RecollectSessionStore SearchResult SessionManager
recollect.recall: Block EditDiff FileEdit FileVisit Glimpse Match Related SearchAnswer SessionDiff SessionHit Spending
recollect.recall: StatLine Stats TimelineEntry Unfinished
recollect.model.schema: Asked Cost Covers Digest Event OpenEnds Outcome Problem Quote RanTests Session SessionSource
recollect.model.schema: Signal Tally to_json
recollect.sessions: TranscriptItem
recollect.sweep_report: SweepReport
"""
if TYPE_CHECKING:
    from recollect.agentkit.optional import HomeSettings
    from recollect.api import (
        Archive,
        DigestPages,
        Filters,
        ForgetRequest,
        Forked,
        HandoverPlan,
        Memory,
        Prompting,
        SessionAnnotations,
        UserNote,
        doctor,
        open_memory,
        repair,
        restore,
    )
    from recollect.care import AgentTotals, DistilledTotals, Finding, RetentionStatus, SourceTotals, Status
    from recollect.digest import Exchange
    from recollect.groups import (
        ActiveSession,
        Answered,
        Bookmark,
        Cleared,
        Group,
        GroupSessions,
        Mount,
        Resumed,
        RunReport,
    )
    from recollect.knowledge import Evidence, Fact, Fix, FixStep, Route, Workflow, Workflows
    from recollect.lifecycle import ForgetPlan, ForgottenSession, RescanReport, UnreachableCopy
    from recollect.live import (
        Appended,
        AsyncLive,
        Live,
        LiveSession,
        Media,
        Message,
        RecollectSessionStore,
        SearchResult,
        SessionManager,
    )
    from recollect.model.errors import Ambiguous, Busy, NeedsAnswer, NotFound, RecollectError, UsageError
    from recollect.model.schema import (
        Asked,
        Cost,
        Covers,
        Digest,
        Event,
        OpenEnds,
        Outcome,
        Problem,
        Quote,
        RanTests,
        Session,
        SessionSource,
        Signal,
        Tally,
        to_json,
    )
    from recollect.recall import (
        Block,
        EditDiff,
        FileEdit,
        FileVisit,
        Glimpse,
        Match,
        Related,
        SearchAnswer,
        SessionDiff,
        SessionHit,
        Spending,
        StatLine,
        Stats,
        TimelineEntry,
        Unfinished,
    )
    from recollect.sessions import TranscriptItem
    from recollect.sweep_report import SweepReport

else:
    __getattr__ = lazy_names(__name__, _NAMES)

__all__ = [
    "ActiveSession",
    "AgentTotals",
    "Ambiguous",
    "Answered",
    "Appended",
    "Archive",
    "Asked",
    "AsyncLive",
    "Block",
    "Bookmark",
    "Busy",
    "Cleared",
    "Cost",
    "Covers",
    "Digest",
    "DigestPages",
    "DistilledTotals",
    "EditDiff",
    "Event",
    "Evidence",
    "Exchange",
    "Fact",
    "FileEdit",
    "FileVisit",
    "Filters",
    "Finding",
    "Fix",
    "FixStep",
    "ForgetPlan",
    "ForgetRequest",
    "ForgottenSession",
    "Forked",
    "Glimpse",
    "Group",
    "GroupSessions",
    "HandoverPlan",
    "HomeSettings",
    "Live",
    "LiveSession",
    "Match",
    "Media",
    "Memory",
    "Message",
    "Mount",
    "NeedsAnswer",
    "NotFound",
    "OpenEnds",
    "Outcome",
    "Problem",
    "Prompting",
    "Quote",
    "RanTests",
    "RecollectError",
    "RecollectSessionStore",
    "Related",
    "RescanReport",
    "Resumed",
    "RetentionStatus",
    "Route",
    "RunReport",
    "SearchAnswer",
    "SearchResult",
    "Session",
    "SessionAnnotations",
    "SessionDiff",
    "SessionHit",
    "SessionManager",
    "SessionSource",
    "Signal",
    "SourceTotals",
    "Spending",
    "StatLine",
    "Stats",
    "Status",
    "SweepReport",
    "Tally",
    "TimelineEntry",
    "TranscriptItem",
    "Unfinished",
    "UnreachableCopy",
    "UsageError",
    "UserNote",
    "Workflow",
    "Workflows",
    "__version__",
    "doctor",
    "open_memory",
    "repair",
    "restore",
    "to_json",
]


def __dir__() -> list[str]:
    return __all__
