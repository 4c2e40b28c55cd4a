"""What sessions add up to: tokens, money, time, failures. Read from the activity tables only, so it outlives raw."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from recollect.errors import UsageError
from recollect.store import Span, StatRow, Store
from recollect.text import money, plural

BREAKDOWNS = ("day", "week", "month", "block", "session", "repo", "model", "agent", "tool", "command")
_WHOLE_SESSIONS = ("session", "repo", "agent")  # a session is in one line of these
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class StatLine:
    """One line of a breakdown. Unknown values are None: a tool has no tokens, a model no turns.

    `sessions` are those somebody began; their sub-agents are counted beside them, and their tokens, time
    and money with them. `sub_agents_usd` is the sub-agents' part of `usd`. Only a session has a `title`. `sample` is
    what the last failure of a tool or command said, in the event and session beside it.
    """

    name: str | None
    sessions: int
    sub_agents: int
    turns: int | None
    active_s: int | None
    input_tokens: int | None
    output_tokens: int | None
    cache_read_tokens: int | None
    cache_write_tokens: int | None
    usd: float | None
    usd_is_estimate: bool
    usd_is_incomplete: bool
    uses: int | None
    failures: int | None
    refusals: int | None
    failure_rate: float | None
    sample: str | None
    sample_session_uid: str | None
    sample_event_uid: str | None
    sub_agents_usd: float | None
    title: str | None

    @property
    def cost_in_words(self) -> str:
        """`$17.46 + $2.22 in 12 sub-agents`."""
        if not self.sub_agents:
            return money(self.usd, self.usd_is_estimate, self.usd_is_incomplete)
        own = money((self.usd or 0.0) - (self.sub_agents_usd or 0.0), self.usd_is_estimate)
        of_sub_agents = money(self.sub_agents_usd or 0.0, self.usd_is_estimate, self.usd_is_incomplete)
        return f"{own} + {of_sub_agents} in {plural(self.sub_agents, 'sub-agent')}"


@dataclass(frozen=True, slots=True)
class Stats:
    """A breakdown, its totals, and minutes of work by weekday (from Monday) and hour; `notes` say what is not exact."""

    by: str
    lines: list[StatLine]
    total: StatLine
    heatmap: list[list[int]]
    notes: tuple[str, ...] = ()


def make_stats(store: Store, by: str, span: Span) -> Stats:
    """Statistics by day, week, month, block of five hours (in the user's time zone), session, repo, model and so on."""
    rows = _rows(store, by, span)
    total = _sum(rows) if by in _WHOLE_SESSIONS else next(iter(store.activity.stats("total", span)), _NOTHING)
    if by in ("tool", "command"):
        names = ("uses", "failures", "refusals")
        used: dict[str, Any] = {name: sum(getattr(row, name) or 0 for row in rows) for name in names}
        total = total._replace(**used)
    return Stats(
        by=by,
        lines=[_line(row) for row in rows],
        total=_line(total),
        heatmap=_heatmap(store.activity.heatmap(span)),
        notes=tuple(_notes(store.activity.blurred(by, span))),
    )


def _notes(blurred: int) -> Iterator[str]:
    if blurred:
        yield (
            f"Not exact: {plural(blurred, 'session')} evicted under an older version counted by whole hours or UTC days"
        )


def make_breakdown(store: Store, by: str, span: Span) -> list[StatLine]:
    """The lines of `make_stats` alone."""
    return [_line(row) for row in _rows(store, by, span)]


def _rows(store: Store, by: str, span: Span) -> list[StatRow]:
    if by not in BREAKDOWNS:
        raise UsageError(f"No such breakdown: {by}", f"known: {', '.join(BREAKDOWNS)}")
    return store.activity.stats(by, span)


def _line(row: StatRow) -> StatLine:
    return StatLine(
        name=row.name,
        sessions=row.sessions,
        sub_agents=row.sub_agents,
        turns=row.turns,
        active_s=None if row.active_ms is None else row.active_ms // 1000,
        input_tokens=row.input_tokens,
        output_tokens=row.output_tokens,
        cache_read_tokens=row.cache_read_tokens,
        cache_write_tokens=row.cache_write_tokens,
        usd=None if row.usd is None else round(row.usd, 9),
        usd_is_estimate=row.usd_is_estimate > 0,
        usd_is_incomplete=row.usd_is_estimate > 1,
        uses=row.uses,
        failures=row.failures,
        refusals=row.refusals,
        failure_rate=round(row.failures / row.uses, 4) if row.uses and row.failures is not None else None,
        sample=row.sample,
        sample_session_uid=row.sample_session_uid,
        sample_event_uid=row.sample_event_uid,
        sub_agents_usd=None if row.sub_agents_usd is None else round(row.sub_agents_usd, 9),
        title=row.title,
    )


_NOTHING = StatRow("total", 0, 0, 0, 0, 0, 0, 0, 0, None, 0)
_SUMMED = {name for name in StatRow._fields if not name.startswith("sample")} - {"name", "usd_is_estimate", "title"}


def _sum(rows: list[StatRow]) -> StatRow:
    """What lines add up to that each have whole sessions."""
    known = {name: [value for row in rows if (value := getattr(row, name)) is not None] for name in _SUMMED}
    sums = {name: sum(values) for name, values in known.items() if values}
    return _NOTHING._replace(**sums, usd_is_estimate=max((row.usd_is_estimate for row in rows), default=0))


def _heatmap(cells: list[tuple[int, int, int]]) -> list[list[int]]:
    """Minutes of work: a row for each weekday from Monday, a column for each hour."""
    grid = [[0] * 24 for _ in WEEKDAYS]
    for weekday, hour, active_ms in cells:  # weekdays begin with Sunday here
        grid[(weekday + 6) % 7][hour] += active_ms
    return [[active_ms // 60_000 for active_ms in row] for row in grid]
