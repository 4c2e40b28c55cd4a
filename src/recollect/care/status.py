"""What the store holds, and how its budget stands."""

from dataclasses import dataclass
from typing import Any

from recollect.config import Settings
from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.schema import Problem
from recollect.store import Store, read_sweep_state, read_watch_state

_BYTES_OF_TOKEN = 4


@dataclass(frozen=True, slots=True)
class AgentTotals:
    """What the store holds of one agent. `sessions` counts its sub-agents and warm-ups too; `usd` may be unknown."""

    agent: str
    sessions: int
    sub_agents: int
    warm_ups: int
    events: int
    messages: int
    input_tokens: int
    output_tokens: int
    cache_read_tokens: int
    cache_write_tokens: int
    usd: float | None
    usd_is_estimate: bool
    usd_is_incomplete: bool
    started_at: str | None
    ended_at: str | None

    started = AsDatetime("started_at")
    ended = AsDatetime("ended_at")


@dataclass(frozen=True, slots=True)
class SourceTotals:
    """The agents' files that were read; the agents have deleted `sources_gone` of them since."""

    sources: int
    sources_failed: int
    sources_gone: int
    source_bytes: int
    bad_lines: int


@dataclass(frozen=True, slots=True)
class DistilledTotals:
    """Sessions distilled, the size of their digests, and estimates of their tokens.

    `log_tokens` are those of the agents' files, `raw_tokens` of what was said, called and returned in them,
    `kept_tokens` of what `exchanges` leaves of that.
    """

    sessions: int
    bytes: int
    log_tokens: int
    raw_tokens: int
    kept_tokens: int


@dataclass(frozen=True, slots=True)
class RetentionStatus:
    """The state of the budget. `losses` counts what cannot be restored."""

    raw_bytes: int
    raw_hard_cap: int
    distilled_bytes: int
    distilled_cap: int
    sessions_evicted: int
    losses: dict[str, int]


@dataclass(frozen=True, slots=True)
class Watch:
    """A running `recollect watch`. `every_minutes` is None for one that sweeps what changes as it changes."""

    pid: int
    since_at: str
    every_minutes: float | None

    since = AsDatetime("since_at")


@dataclass(frozen=True, slots=True)
class Status:
    """What the store holds. `alarms` describe which of its databases has lost data."""

    folder: str
    swept_at: str | None  # when the last complete sweep began
    watch: Watch | None  # the process that sweeps as agents write, if one runs
    agents: list[AgentTotals]
    sessions: int
    events: int
    sources: SourceTotals
    size_bytes: dict[str, int]
    alarms: list[str]
    distilled: DistilledTotals
    retention: RetentionStatus

    swept = AsDatetime("swept_at")


@dataclass(frozen=True, slots=True)
class Overview:
    """What a glance at the store shows; quick to make, however large the store is. Token counts are estimates."""

    swept_at: str | None  # when the last complete sweep began
    sessions: int
    sub_agents: int
    warm_ups: int
    events: int
    sources: SourceTotals
    log_tokens: int
    kept_tokens: int
    losses: dict[str, int]
    alarms: list[str]

    swept = AsDatetime("swept_at")


def make_overview(store: Store) -> Overview:
    agents, sources = _totals(store), SourceTotals(**store.sources.counts())
    return Overview(
        swept_at=_swept_at(store),
        sessions=sum(agent["sessions"] for agent in agents),
        sub_agents=sum(agent["sub_agents"] for agent in agents),
        warm_ups=sum(agent["warm_ups"] for agent in agents),
        events=sum(agent["events"] for agent in agents),
        sources=sources,
        log_tokens=sources.source_bytes // _BYTES_OF_TOKEN,
        kept_tokens=store.digests.saved().kept_tokens,
        losses=store.evictions.loss_counts(),
        alarms=store.check.alarms(),
    )


def make_status(store: Store, settings: Settings) -> Status:
    """Measure what the store holds."""
    agents = [AgentTotals(**agent) for agent in _totals(store)]
    sources, saved = SourceTotals(**store.sources.counts()), store.digests.saved()
    watch = read_watch_state(store.folder)
    distilled_bytes = store.sizes.distilled_bytes()
    return Status(
        folder=str(store.folder),
        swept_at=_swept_at(store),
        watch=Watch(watch[0], rfc3339(watch[1]) or "", watch[2]) if watch else None,
        agents=agents,
        sessions=sum(agent.sessions for agent in agents),
        events=sum(agent.events for agent in agents),
        sources=sources,
        size_bytes=store.sizes.on_disk(),
        alarms=store.check.alarms(),
        distilled=DistilledTotals(
            sessions=saved.sessions,
            bytes=distilled_bytes,
            log_tokens=sources.source_bytes // _BYTES_OF_TOKEN,
            raw_tokens=saved.raw_tokens,
            kept_tokens=saved.kept_tokens,
        ),
        retention=RetentionStatus(
            raw_bytes=store.sizes.raw_bytes(),
            raw_hard_cap=settings.limits.raw_hard_cap,
            distilled_bytes=distilled_bytes,
            distilled_cap=settings.limits.distilled_cap,
            sessions_evicted=len(store.evictions.names()),
            losses=store.evictions.loss_counts(),
        ),
    )


def _totals(store: Store) -> list[dict[str, Any]]:
    """Figures by agent. The rows of sessions that a host appends to follow their events with the next sweep."""
    agents = store.sessions.totals()
    if dirty := store.streams.dirty():
        held, listed = store.steps.counts(dirty), store.session_rows.event_counts()
        for agent in agents:
            behind = (held[key] - 1 - listed[key] for key in held if key.agent == agent["agent"] and key in listed)
            agent["events"] += sum(max(0, count) for count in behind)
    return agents


def _swept_at(store: Store) -> str | None:
    began_ns = read_sweep_state(store.folder).began_ns
    return rfc3339(began_ns // 1_000_000) if began_ns else None


def list_problems(store: Store) -> list[Problem]:
    """Lines and files that could not be read, and why."""
    return [
        Problem(
            agent=line.agent,
            path=line.path,
            line=line.line,
            offset=line.offset,
            reason=line.reason,
            excerpt=line.raw[:200].decode("utf-8", "replace"),
            found_at=rfc3339(line.found_ms) or "",
        )
        for line in store.sources.problems()
    ]
