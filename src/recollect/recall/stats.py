"""What sessions add up to: tokens, money, time, failures, and what was spent lately.

Read from the activity tables only, so it outlives raw.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from zlib import crc32

from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.errors import UsageError
from recollect.model.files import replace_file
from recollect.model.home import SPENDING_NAME
from recollect.model.text import money, plural
from recollect.store import ANY_SESSION, BLOCK_HOURS, SessionFilter, Span, SpentRow, StatRow, Store

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
    notes: tuple[str, ...] = ()
    if blurred := store.activity.blurred(by, span):
        sessions = plural(blurred, "session")
        notes = (f"Not exact: {sessions} evicted under an older version counted by whole hours or UTC days",)
    return Stats(by, list(map(_line, rows)), _line(total), _heatmap(store.activity.heatmap(span)), notes)


def make_breakdown(store: Store, by: str, span: Span) -> list[StatLine]:
    """The lines of `make_stats` alone."""
    return [_line(row) for row in _rows(store, by, span)]


def _rows(store: Store, by: str, span: Span) -> list[StatRow]:
    if by not in BREAKDOWNS:
        raise UsageError(f"No such breakdown: {by}", f"known: {', '.join(BREAKDOWNS)}")
    return store.activity.stats(by, span)


def _line(row: StatRow) -> StatLine:
    fields: dict[str, Any] = row._asdict()
    active_ms = fields.pop("active_ms")
    fields |= {name: None if fields[name] is None else round(fields[name], 9) for name in ("usd", "sub_agents_usd")}
    fields |= {
        "active_s": None if active_ms is None else active_ms // 1000,
        "usd_is_estimate": row.usd_is_estimate > 0,
        "usd_is_incomplete": row.usd_is_estimate > 1,
        "failure_rate": round(row.failures / row.uses, 4) if row.uses and row.failures is not None else None,
    }
    return StatLine(**fields)


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


_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_RATE_DAYS = 30  # the forecast goes on as in these
_LEAST_BLOCK_MS = 30 * 60_000  # before this a block's rate says nothing


@dataclass(frozen=True, slots=True)
class Block:
    """An agent's current five-hour block, and what it would cost at the same rate."""

    agent: str
    started_at: str
    ends_at: str
    usd: float
    forecast_usd: float | None

    started = AsDatetime("started_at")
    ends = AsDatetime("ends_at")


@dataclass(frozen=True, slots=True)
class Spending:
    """Money by the calendar, in the user's time zone. `last_month_by_now_usd` is up to the same day and hour.

    The forecast for the month is what was spent so far plus the daily mean of the last thirty days for the rest. An
    amount is incomplete if a session of its time used a model without a known price; the forecast also if one of the
    last thirty days did.
    """

    month: str
    today_usd: float
    month_usd: float
    last_month_by_now_usd: float
    last_month_usd: float
    forecast_usd: float
    usd_is_estimate: bool
    usd_is_incomplete: bool
    today_usd_is_incomplete: bool
    forecast_usd_is_incomplete: bool
    blocks: list[Block]


def make_spending(store: Store, now: datetime, sessions: SessionFilter = ANY_SESSION) -> Spending:
    """What was spent by these sessions as of `now`, an aware time in the user's zone."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    last_month, next_month = (month - timedelta(days=1)).replace(day=1), (month + timedelta(days=32)).replace(day=1)
    since = min(last_month, day - timedelta(days=_RATE_DAYS))
    rows = [row for row in store.activity.spent(Span(sessions, _ms(since))) if row.minute * _MINUTE_MS <= _ms(now)]
    spent = _spent(rows, month, now)
    last_unknown_ms = max((row.minute * _MINUTE_MS for row in rows if row.is_estimate > 1), default=-1)
    lately = min(month, now - timedelta(days=_RATE_DAYS))
    daily_usd = _daily_usd(rows, store.activity.first_minute(sessions), now)
    return Spending(
        month=f"{month:%Y-%m}",
        today_usd=_spent(rows, day, now),
        month_usd=spent,
        last_month_by_now_usd=_spent(rows, last_month, min(last_month + (now - month), month)),
        last_month_usd=_spent(rows, last_month, month),
        forecast_usd=round(spent + daily_usd * ((next_month - now) / timedelta(days=1)), 9),
        usd_is_estimate=any(row.is_estimate for row in rows),
        usd_is_incomplete=last_unknown_ms >= _ms(month),
        today_usd_is_incomplete=last_unknown_ms >= _ms(day),
        forecast_usd_is_incomplete=last_unknown_ms >= _ms(lately),
        blocks=_running(store, rows, now),
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _spent(rows: Sequence[SpentRow], begin: datetime, end: datetime) -> float:
    """The money of a period."""
    return round(sum(row.usd for row in rows if _ms(begin) <= row.minute * _MINUTE_MS < _ms(end)), 9)


def _daily_usd(rows: Sequence[SpentRow], first_minute: int | None, now: datetime) -> float:
    """Money per day, over the last thirty days or since the first activity there is."""
    begin_ms = max(_ms(now - timedelta(days=_RATE_DAYS)), (first_minute or 0) * _MINUTE_MS)
    days = (_ms(now) - begin_ms) / (24 * _HOUR_MS)
    return sum(row.usd for row in rows if row.minute * _MINUTE_MS >= begin_ms) / max(1.0, days)


def _running(store: Store, rows: Sequence[SpentRow], now: datetime) -> list[Block]:
    lately = {row.agent for row in rows if row.usd and row.minute * _MINUTE_MS + BLOCK_HOURS * _HOUR_MS > _ms(now)}
    running = []
    for agent, hour in store.activity.blocks() if lately else ():
        begun_ms, end_ms = hour * _HOUR_MS, (hour + BLOCK_HOURS) * _HOUR_MS
        if not begun_ms <= _ms(now) < end_ms or agent not in lately:
            continue
        usd = round(sum(row.usd for row in rows if row.agent == agent and row.minute >= hour * 60), 9)
        gone_ms = _ms(now) - begun_ms
        forecast = round(usd * BLOCK_HOURS * _HOUR_MS / gone_ms, 9) if gone_ms >= _LEAST_BLOCK_MS else None
        running.append(Block(agent, rfc3339(begun_ms) or "", rfc3339(end_ms) or "", usd, forecast))
    return running


def write_snapshot(store: Store, roots: Mapping[str, Sequence[str]]) -> None:
    """Leave what a status line shows in a small file beside the store. Sessions are known in it by a checksum only."""
    now = datetime.now().astimezone()
    spending = make_spending(store, now)
    active = store.activity.money_of_active(_ms(now - timedelta(days=_RATE_DAYS)))
    snapshot = {
        "day": f"{now:%Y-%m-%d}",
        "today_usd": spending.today_usd,
        "today_is_incomplete": spending.today_usd_is_incomplete,
        "month": spending.month,
        "month_usd": spending.month_usd,
        "is_estimate": spending.usd_is_estimate,
        "blocks": {
            block.agent: [round(datetime.fromisoformat(block.ends_at).timestamp()), block.usd]
            for block in spending.blocks
        },
        "sessions": {f"{crc32(native_id.encode('utf-8', 'replace')):08x}": usd for native_id, usd in active.items()},
        "roots": dict(roots),
    }
    with suppress(OSError):  # a disk without room for this has been reported, or will be
        replace_file(store.folder / SPENDING_NAME, json.dumps(snapshot).encode(), is_durable=False)
