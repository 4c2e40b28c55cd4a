"""The records of the one schema that every agent's log is turned into, and their JSON.

A session is one conversation (a sub-agent's is a session of its own); an event is one thing that
happened in it. Records are frozen: adapters make them, the store keeps them, interfaces show them.
Everything cites events by the ids that are made here.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from recollect.model.clock import AsDatetime
from recollect.model.kinds import *  # noqa: F403 - these words are part of the schema
from recollect.model.kinds import name_half as name_half

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Cost:
    """Tokens and money of a session's own events; copies count where they were first made.

    `input_tokens` excludes what was read from or written to the prompt cache; `output_tokens`
    includes `reasoning_tokens`. `usd` is None if neither the agent nor the price list knows it. It
    never includes sub-agents: where the agent's own figure does, their price is subtracted. It is
    incomplete if the price of some requests is not known: their model is not in the list.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    usd: float | None = None
    usd_is_estimate: bool = False
    usd_is_incomplete: bool = False
    wall_clock_s: float | None = None
    turns: int = 0
    retries: int = 0


@dataclass(frozen=True, slots=True)
class SessionSource:
    """A file that a session was read from; of a database with many sessions `path` is `FILE#SESSION`."""

    path: str
    bytes: int
    host: str
    source_gone_at: str | None = None

    source_gone = AsDatetime("source_gone_at")

    @property
    def file(self) -> str:
        """The file on disk."""
        is_unit = "#" in self.path and not os.path.lexists(self.path)
        return self.path.rpartition("#")[0] if is_unit else self.path


@dataclass(frozen=True, slots=True)
class Session:
    """One conversation with one agent. Times are RFC 3339 UTC with milliseconds; None means absent.

    In JSON, `session_class` is called `class`.
    """

    session_uid: str
    agent: str
    native_session_id: str
    root_session_uid: str
    parent_session_uid: str | None
    base_session_uid: str | None
    base_end: str | None
    session_class: str
    group: str
    host: str | None
    repo: str | None
    domain: str | None
    cwd: str | None
    git_branch: str | None
    model: str | None
    provider: str | None
    agent_version: str | None
    title: str | None
    instructions: tuple[Mapping[str, str], ...]
    started_at: str | None
    ended_at: str | None
    updated_at: str | None
    outcome: str
    cost: Cost
    message_count: int
    event_count: int
    task_ref: str | None
    sources: tuple[SessionSource, ...]
    schema_version: int
    content_hash: str | None
    spawn_call_id: str | None
    discovered_at: str | None
    ingested_at: str | None
    analyzed_at: str | None
    evicted_at: str | None
    key: str | None = None
    channel: str | None = None
    chat_id: str | None = None
    user_id: str | None = None
    character_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    resume_command: str | None = None  # the agent's own, to be run in `cwd`; None for a sub-agent

    started = AsDatetime("started_at")
    ended = AsDatetime("ended_at")
    updated = AsDatetime("updated_at")
    discovered = AsDatetime("discovered_at")
    ingested = AsDatetime("ingested_at")
    analyzed = AsDatetime("analyzed_at")
    evicted = AsDatetime("evicted_at")

    @property
    def path(self) -> str | None:
        """One of its files, one that is still there if any is."""
        if len(self.sources) < 2:
            return self.sources[0].path if self.sources else None
        files = ((bool(one.source_gone_at), not os.path.lexists(one.file), one.path) for one in self.sources)
        return min(files)[-1]

    @property
    def argument(self) -> str:
        """What a command takes for this session: its own id, or its uid if that id would be taken for an option."""
        return self.session_uid if self.native_session_id.startswith("-") else self.native_session_id

    def to_json(self) -> dict[str, Any]:
        return {("class" if name == "session_class" else name): value for name, value in asdict(self).items()}


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened in a session. `payload_ref` locates its full content."""

    event_uid: str
    session_uid: str
    seq: int
    parent_event_uid: str | None
    lane: str
    position: int
    native_id: str
    ts: str | None
    kind: str
    role: str | None
    tool: str | None
    call_id: str | None
    status: str | None
    is_error: bool
    is_retry: bool
    is_abandoned: bool
    copy_of: str | None
    summary: str
    payload_ref: tuple[int, int] | None
    model: str | None
    provider: str | None
    content_type: str | None
    input_tokens: int | None
    output_tokens: int | None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    at = AsDatetime("ts")


@dataclass(frozen=True, slots=True)
class Signal:
    """Something in a session worth noticing. `evidence` lists the events that show it, in reading order."""

    session_uid: str
    signal: str
    ts: str | None
    detail: str
    count: int
    evidence: tuple[str, ...]

    at = AsDatetime("ts")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a session ended, with a confidence from 0 to 1 and the reasons.

    `stopped_by` is what kept the agent from its work, in a few words, where neither it nor the user ended it.
    """

    outcome: str
    confidence: float
    reasons: tuple[str, ...]
    stopped_by: str | None = None


@dataclass(frozen=True, slots=True)
class Quote:
    """A shortened quote from a session and the event it is from; `note` describes it."""

    text: str
    event_uid: str
    note: str | None = None


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and the line with which its answer begins; None where nothing was said, or it is the final answer."""

    text: str
    event_uid: str
    answer: Quote | None = None


@dataclass(frozen=True, slots=True)
class Tally:
    """How often something was used or happened, and how often it failed."""

    name: str
    count: int
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Covers:
    """What a digest covers: the number of events including copies, the last one, and the distiller's version."""

    event_count: int
    last_event_uid: str | None
    distiller: int


@dataclass(frozen=True, slots=True)
class RanTests:
    """Test runs of a session; `last` is the result of the last finished one: `passed`, `failed` or None."""

    runs: int = 0
    failures: int = 0
    unfinished: int = 0  # timed out, interrupted, could not start, had no tests, or never seen to end
    last: str | None = None
    last_run: Quote | None = None


@dataclass(frozen=True, slots=True)
class OpenEnds:
    """What a session left unfinished, according to its log."""

    todos: tuple[Quote, ...] = ()
    questions: tuple[Quote, ...] = ()
    next_steps: tuple[Quote, ...] = ()
    failing_tests: Quote | None = None
    interruption: Quote | None = None
    unanswered: tuple[
        Quote, ...
    ] = ()  # without an answer; or by their notes `failed`, `not finished`, `interrupted`, `stopped: …`


@dataclass(frozen=True, slots=True, kw_only=True)
class Digest:
    """The lasting summary of a session, made without a model. Lists are cut; the counts beside them are not.

    Every quote carries the `event_uid` it is from. Copies and the work of sub-agents count in their own sessions.
    Fields with default values are not stored.
    """

    session_uid: str
    covers: Covers
    title: str | None = None
    outcome: Outcome
    requests: tuple[Asked, ...] = ()
    request_count: int = 0
    final_answer: Quote | None = None
    files: tuple[Tally, ...] = ()
    file_count: int = 0
    commands: tuple[Tally, ...] = ()
    commits: tuple[Quote, ...] = ()
    commit_count: int = 0
    pull_requests: tuple[Quote, ...] = ()  # their URLs, with their titles as notes
    deleted: tuple[str, ...] = ()
    tests: RanTests = RanTests()
    open: OpenEnds = OpenEnds()
    tools: tuple[Tally, ...] = ()
    errors: tuple[Quote, ...] = ()
    error_count: int = 0
    retries: int = 0
    interventions: tuple[Quote, ...] = ()
    intervention_count: int = 0
    decisions: tuple[Quote, ...] = ()
    snippets: tuple[Quote, ...] = ()
    sub_agents: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    tokens: Mapping[str, int] = field(default_factory=dict)
    usd: float | None = None
    usd_is_estimate: bool = False
    started_at: str | None = None
    ended_at: str | None = None
    active_s: int = 0
    signals: Mapping[str, int] = field(default_factory=dict)

    started = AsDatetime("started_at")
    ended = AsDatetime("ended_at")


@dataclass(frozen=True, slots=True)
class Problem:
    """A line or file that could not be read, recorded so that nothing disappears silently."""

    agent: str
    path: str
    line: int | None
    offset: int | None
    reason: str
    excerpt: str
    found_at: str

    found = AsDatetime("found_at")


def to_json(record: Any) -> Any:
    """A record, or a list of them, as every interface prints it: the documented names, None for missing values.

    A record whose JSON differs from its fields has a `to_json` of its own.
    """
    if isinstance(record, list):
        return [to_json(item) for item in record]
    return record.to_json() if hasattr(record, "to_json") else asdict(record)


def event_uid(agent: str, native_session_id: str, native_id: str, block: int = 0) -> bytes:
    """The id by which everything cites an event; never made from content, path or arrival.

    One half identifies the session, so that its events are adjacent in an index; the other half the record, so that
    its copies in other sessions can be recognised.
    """
    return name_half(agent, native_session_id) + name_half(agent, f"{native_id}\x1f{block}")
