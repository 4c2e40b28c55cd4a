"""Times: milliseconds since 1970 in code, RFC 3339 UTC in data."""

import re
import time
from datetime import UTC, date, datetime, timedelta


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rfc3339(ms: int | None) -> str | None:
    """`2026-11-15T18:28:31.330Z`, or None."""
    if ms is None:
        return None
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


_AGO = re.compile(r"^(\d+)\s*(m|min|h|d|w|mo|y)$")
_UNITS = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_MONTHS = {"mo": 1, "y": 12}
_PERIOD = re.compile(r"^((?:19|20)\d\d)(?:-(0[1-9]|1[0-2]))?$")


def parse_moment(text: str, now: datetime) -> datetime:
    """`2026-11-01`, `2026-11-01T10:00`, `2026-11`, `2026`, `7d`, `2h`, `3mo`, `1y`, `today`, `yesterday`.

    Days start at midnight in the user's time zone, whatever the clocks have done since. Raises ValueError for anything
    else, and OverflowError for a time before the calendar starts.
    """
    if text in ("today", "yesterday"):
        return _midnight(now.astimezone().date() - timedelta(days=text == "yesterday"))
    if match := _PERIOD.match(text):
        return _midnight(date(int(match[1]), int(match[2] or 1), 1))
    if match := _AGO.match(text):
        count, unit = int(match[1]), match[2]
        return _months_before(now, count * _MONTHS[unit]) if unit in _MONTHS else now - _span(count, unit)
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.astimezone()


def _midnight(day: date) -> datetime:
    return datetime.combine(day, datetime.min.time()).astimezone()


def _span(count: int, unit: str) -> timedelta:
    return timedelta(**{_UNITS[unit]: count})


def _months_before(now: datetime, months: int) -> datetime:
    """The same day and time that many months ago, or the last day of a shorter month."""
    local = now.astimezone().replace(tzinfo=None)
    ended = local.year * 12 + local.month - months  # months of the calendar up to and including that one
    last = date(ended // 12, ended % 12 + 1, 1) - timedelta(days=1)
    return local.replace(year=last.year, month=last.month, day=min(local.day, last.day)).astimezone()
