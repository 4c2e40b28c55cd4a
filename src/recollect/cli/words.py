"""How things are said on a terminal: times in the user's zone, sizes, money, text that cannot harm it."""

import re
from datetime import datetime, timedelta

# Escape sequences of any kind, and control characters but for tab and line end: a log may hold ones that
# retitle the window or write to the clipboard.
_HARMFUL = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[\]PX^_].*?(?:\x07|\x1b\\|$)|\x1b.|[\x00-\x08\x0b-\x1f\x7f-\x9f]", re.DOTALL
)
# Characters that hide text or turn its direction.
_INVISIBLE = re.compile("[\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\U000e0000-\U000e007f]")


def printable(text: str) -> str:
    """Text without anything a terminal would act on."""
    return _INVISIBLE.sub("", _HARMFUL.sub("", text))


def local_time(moment: str | None, *, seconds: bool = False) -> str:
    """An RFC 3339 time in the user's zone."""
    if moment is None:
        return "–"
    local = datetime.fromisoformat(moment).astimezone()
    return f"{local:%H:%M:%S}" if seconds else f"{local:%Y-%m-%d %H:%M}"


def size(count: float) -> str:
    for unit in ("B", "KB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            return f"{count:.0f} {unit}" if unit == "B" or count >= 100 else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def number(count: int) -> str:
    return f"{count:,}"


def plural(count: int, thing: str) -> str:
    return f"{number(count)} {thing}" if count == 1 else f"{number(count)} {thing}s"


def money(usd: float | None, is_estimate: bool = False) -> str:
    if usd is None:
        return "–"
    return f"{'~' if is_estimate else ''}${usd:.2f}"


def duration(seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h" if seconds < 86_400 else f"{seconds / 86_400:.0f} d"


_AGO = re.compile(r"^(\d+)\s*(m|min|h|d|w)$")
_UNITS = {"m": "minutes", "min": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def parse_moment(text: str, now: datetime) -> datetime:
    """`2026-11-01`, `2026-11-01T10:00`, `7d`, `2h`, `today`, `yesterday`; raises ValueError for anything else."""
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    if text in ("today", "yesterday"):
        return midnight - timedelta(days=text == "yesterday")
    if match := _AGO.match(text):
        return now - timedelta(**{_UNITS[match[2]]: int(match[1])})
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.astimezone()
