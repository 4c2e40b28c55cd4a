"""Recollect as the session store of an agent host: messages appended as they happen, recalled at once.

Live sessions are ordinary sessions: the same events, packs, redaction, full text, digests, retention, `forget` and
export. Only the way in differs. An append is read by no adapter and comes from no file; it is built and redacted like
a line of a log (`ingest.builder`), and then:

1. its frame, which describes itself, is written to a pack that this process alone appends to, and is on the disk
   before anything refers to it;
2. one short transaction in the queue of writers stores its rows, its words and the counts in the table `live`; nothing
   in it waits for a disk, so ten writers do not wait for ten disks. Then the append is acknowledged: if a power cut
   takes the transaction, the next host or sweep makes it again from the frame. Only what no frame says (a key, a title)
   has the database's log flushed, too, outside the queue.

Whatever kills the writer, an acknowledged message is there, and one that is not acknowledged is there wholly or not at
all. `live` says which session a key stands for and what lists show at once; it can be made again from the sessions. The
lasting row follows within ten seconds, digests with the next sweep. The store has the last copy: neither age nor the
soft cap evicts it.
"""

from typing import TYPE_CHECKING

from recollect.model.lazy import lazy_names

_NAMES = """
recollect.live.host: Live
recollect.live.jsonl: Backfill
recollect.live.manager: AsyncLive ManagedSession RecollectSessionStore Reply SessionManager route
recollect.live.recall: SearchResult
recollect.live.records: Appended FileStatus ImportReport LiveSession LiveStatus Media Message
"""
if TYPE_CHECKING:
    from recollect.live.host import Live
    from recollect.live.jsonl import Backfill
    from recollect.live.manager import AsyncLive, ManagedSession, RecollectSessionStore, Reply, SessionManager, route
    from recollect.live.recall import SearchResult
    from recollect.live.records import Appended, FileStatus, ImportReport, LiveSession, LiveStatus, Media, Message
else:
    __getattr__ = lazy_names(__name__, _NAMES)

__all__ = [
    "Appended",
    "AsyncLive",
    "Backfill",
    "FileStatus",
    "ImportReport",
    "Live",
    "LiveSession",
    "ManagedSession",
    "Media",
    "Message",
    "RecollectSessionStore",
    "Reply",
    "SearchResult",
    "SessionManager",
    "route",
]
