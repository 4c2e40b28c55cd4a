"""The contract between Recollect and one agent's files.

An adapter finds the files an agent leaves on disk and turns each into records. It keeps nothing between calls: what it
must remember about a file (open messages, running totals) goes into the cursor's `state`, which is committed in the
same transaction as the records.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec

from recollect.agentkit.calls import FileChange as FileChange
from recollect.agentkit.files import FOLDER as FOLDER
from recollect.agentkit.files import Cursor as Cursor
from recollect.agentkit.files import Source as Source
from recollect.agentkit.profile import AgentProfile as AgentProfile
from recollect.agentkit.profile import SettingAdvice as SettingAdvice

# Part of the contract, though a search loads the profile alone, and a sweep without news the sources.

STATE_LIMIT_BYTES = 64 * 1024


@dataclass(slots=True)
class SessionInfo:
    """Facts about a session beyond its events; None means unknown.

    Within one source a later SessionInfo overrides an earlier one field by field, except for FIRST_WINS. Only events
    make a session. `title_rank`: 3 the user named it, 2 the agent did, 1 a summary. Adapters make up no title: without
    one the first prompt is used.
    """

    native_session_id: str
    parent_native_id: str | None = None  # the session that spawned this sub-agent
    root_native_id: str | None = None
    spawn_call_id: str | None = None  # the call in the parent that spawned this sub-agent
    base_native_id: str | None = None  # the session this one was forked from
    base_end: str | None = None  # how much of the base it takes over, in the agent's own terms
    born_ms: int | None = None  # first timestamp of any record in the file: the original's is older than a copy's
    session_class: str | None = None
    cwd: str | None = None
    git_root: str | None = None
    git_remote: str | None = None
    git_branch: str | None = None
    agent_version: str | None = None
    model: str | None = None
    provider: str | None = None
    title: str | None = None
    title_rank: int = 0
    instructions: tuple[Mapping[str, str], ...] | None = None  # {"name", "sha256"}
    metadata: Mapping[str, Any] | None = None  # small, shown as it is
    # Of a session that a live host appends to: what the host calls it, and where and with whom it takes place.
    key: str | None = None
    channel: str | None = None
    chat_id: str | None = None
    user_id: str | None = None
    character_id: str | None = None


FIRST_WINS = frozenset(
    {"born_ms", "cwd", "parent_native_id", "root_native_id", "spawn_call_id", "base_native_id", "base_end"}
)


class EventRecord(msgspec.Struct, gc=False):
    """One event as its log has it; the store adds seq, copy_of and what needs the whole session.

    A msgspec struct, because millions are made.

    `native_id` and `block` make the event_uid. `position` orders the events of a lane, in whatever order files arrive.
    `parent_native_id` is the native id of the event (block 0) it follows; ingest links a record's later blocks to the
    block before. An agent's copy of the record in another session has the same `copy_key` (default: native_id). A later
    reading may replace `is_provisional` events: a message still being streamed, a file that is rewritten. An event
    `is_clamped` if its log has it behind later ones: its position in another file is the better one. If it `may_repeat`
    and says the same as an event of its session and time, it is a copy of that. `is_rebuilt`: Recollect wrote it from
    what it had stored; where that is still held, the record is not read.
    """

    native_session_id: str
    native_id: str
    position: int
    ts_ms: int | None
    kind: str
    payload: Mapping[str, Any]
    summary: str
    block: int = 0
    lane: str = ""
    parent_native_id: str | None = None
    role: str | None = None
    tool: str | None = None
    call_id: str | None = None
    status: str | None = None
    is_error: bool = False
    is_retry: bool = False
    is_provisional: bool = False
    copy_key: str | None = None
    # Equal for two calls that do the same (see ids.call_key), and for a prompt with status QUEUE_ONLY and the record it
    # becomes: the store then drops the former.
    retry_key: str | None = None
    model: str | None = None
    provider: str | None = None
    content_type: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    metadata: Mapping[str, Any] | None = None
    is_clamped: bool = False
    may_repeat: bool = False
    is_rebuilt: bool = False


@dataclass(slots=True)
class Usage:
    """Tokens of one model response or turn. Where a `usage_id` comes again, the larger figures win.

    A copy of the response in a fork has the same `usage_id`, so that it counts once. `input_tokens` excludes cache
    reads and writes; `output_tokens` includes reasoning. `includes_sub_agents`: those of sub-agents are subtracted.
    `cache_write_1h_tokens` are those of `cache_write_tokens` that are kept for an hour, which costs more. A turn is the
    sum of `requests`; each has a price tier of its own.
    """

    native_session_id: str
    usage_id: str
    ts_ms: int | None
    model: str | None
    provider: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    usd: float | None = None
    includes_sub_agents: bool = False
    cache_write_1h_tokens: int = 0
    web_searches: int = 0
    requests: int = 1


@dataclass(slots=True)
class CostTotal:
    """The agent's own running total of money, sub-agents included.

    `ledger` is when it began to count, in ms: a fork that continues its parent's total has the same.
    """

    native_session_id: str
    ledger: str
    ts_ms: int | None
    usd: float


@dataclass(slots=True)
class BadLine:
    """A line that could not be read. Its bytes are kept (cut at 64 KiB), counted and listed."""

    line: int
    offset: int
    reason: str
    raw: bytes


@dataclass(slots=True)
class Skipped:
    """Records left out on purpose, by their name on the adapter's skip list."""

    native_type: str
    count: int = 1


@dataclass(slots=True)
class Checkpoint:
    """Everything before `cursor` has been yielded: the writer may commit here.

    `lines` and `bytes` were read since the checkpoint before.
    """

    cursor: Cursor
    lines: int
    bytes: int


Record = SessionInfo | EventRecord | Usage | CostTotal | BadLine | Skipped | Checkpoint


class Adapter(Protocol):
    """Reader of one agent's files. Under a dozen members, and no more."""

    agent: str
    home: str
    home_variable: str
    version: int  # after a change every source of this agent is read again from its start
    profile: AgentProfile

    def discover(self, root: Path) -> Iterator[Source]:
        """Find the files below `root` that hold sessions; never anything outside its allow-list."""
        ...

    def units(self, container: Source) -> list[Source]:
        """List the sessions of a source that holds many; each is read as a source of its own."""
        ...

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        """Yield the source's records from `cursor` on, with a Checkpoint now and then and at the end.

        Raises SourceUnreadable if it cannot be opened safely; a bad line is a BadLine.
        """
        ...

    def changes(self, call: Mapping[str, Any], result: Mapping[str, Any] | None) -> list[FileChange]:
        """The files that an edit changed, and how, from its payload and that of its result, if there is one."""
        ...
