"""What was spent lately: today, this month against the last with a forecast, in the blocks of hours that run now."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from zlib import crc32

from recollect.clock import AsDatetime, rfc3339
from recollect.home import SPENDING_NAME
from recollect.store import ANY_SESSION, BLOCK_HOURS, HeaderFilter, Span, SpentRow, Store, replace_file

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


def make_spending(store: Store, now: datetime, sessions: HeaderFilter = ANY_SESSION) -> Spending:
    """What was spent by these sessions as of `now`, an aware time in the user's zone."""
    day = now.replace(hour=0, minute=0, second=0, microsecond=0)
    month = day.replace(day=1)
    last_month, next_month = (month - timedelta(days=1)).replace(day=1), (month + timedelta(days=32)).replace(day=1)
    since = min(last_month, day - timedelta(days=_RATE_DAYS))
    rows = [row for row in store.activity.spent(Span(sessions, _ms(since))) if row.minute * _MINUTE_MS <= _ms(now)]
    spent = _sum(rows, month, now)
    last_unknown_ms = max((row.minute * _MINUTE_MS for row in rows if row.is_estimate > 1), default=-1)
    lately = min(month, now - timedelta(days=_RATE_DAYS))
    daily_usd = _daily_usd(rows, store.activity.first_minute(sessions), now)
    return Spending(
        month=f"{month:%Y-%m}",
        today_usd=_sum(rows, day, now),
        month_usd=spent,
        last_month_by_now_usd=_sum(rows, last_month, min(last_month + (now - month), month)),
        last_month_usd=_sum(rows, last_month, month),
        forecast_usd=round(spent + daily_usd * ((next_month - now) / timedelta(days=1)), 9),
        usd_is_estimate=any(row.is_estimate for row in rows),
        usd_is_incomplete=last_unknown_ms >= _ms(month),
        today_usd_is_incomplete=last_unknown_ms >= _ms(day),
        forecast_usd_is_incomplete=last_unknown_ms >= _ms(lately),
        blocks=_running(store, rows, now),
    )


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _sum(rows: Sequence[SpentRow], begin: datetime, end: datetime) -> float:
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
