"""Times: milliseconds since 1970 inside, RFC 3339 UTC in data."""

import re
import time
from datetime import UTC, datetime, timedelta


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rfc3339(ms: int | None) -> str | None:
    """`2026-11-15T18:28:31.330Z`, or None for no time."""
    if ms is None:
        return None
    moment = datetime.fromtimestamp(ms // 1000, UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{ms % 1000:03d}Z"


_AGO = re.compile(r"^(\d+)\s*(m|min|h|d|w)$")
_UNITS = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str, now: datetime) -> datetime:
    """`2026-11-01`, `2026-11-01T10:00`, `7d`, `2h`, `today`, `yesterday`.

    Raises ValueError for anything else, and OverflowError for a time before all calendars.
    """
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return midnight - timedelta(days=text == "yesterday")
    if match := _AGO.match(text):
        return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.astimezone()
