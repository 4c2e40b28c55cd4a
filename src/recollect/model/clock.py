"""Times: milliseconds since 1970 in code, RFC 3339 UTC in data, and dates as people type them."""

import re
import time
from datetime import UTC, date, datetime, timedelta

from recollect.model.errors import UsageError


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def rfc3339(ms: int | None) -> str | None:
    """`2026-11-15T18:28:31.330Z`, or None."""
    if ms is None:
        return None
    return f"{datetime.fromtimestamp(ms // 1000, UTC).isoformat()[:19]}.{ms % 1000:03d}Z"


def as_datetime(text: str | None) -> datetime | None:
    """What `rfc3339` wrote, as a datetime in UTC, or None."""
    return datetime.fromisoformat(text) if text else None


def as_ms(text: str) -> int:
    """What `rfc3339` wrote, as milliseconds since 1970."""
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def ms_of(text: str | None) -> int | None:
    """The same of what may be absent."""
    return as_ms(text) if text else None


class AsDatetime:
    """A dataclass's time as a datetime, beside the field with its text: `started` of `started_at`, `at` of `ts`.

    Fields hold text because records go into JSON as they are.
    """

    def __init__(self, field: str) -> None:
        self.field = field

    def __get__(self, record: object, owner: type) -> datetime | None:
        return as_datetime(getattr(record, self.field))


WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONTH_NAMES = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905
_FULL_MONTHS = "january february march april june july august september october november december".split()  # noqa: SIM905
_MONTHS = (*_MONTH_NAMES, *_FULL_MONTHS, "sept")
# Patterns are compiled when first used, and kept by `re`: a search rarely has a date.
_UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_UNIT = r"(minutes?|mins?|min|m|hours?|h|days?|d|weeks?|w|months?|mo|years?|y)"
_WORDS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")
_NUMBERS = {"a": 1, "an": 1} | {word: number for number, word in enumerate(_WORDS, start=1)}
_AGO = rf"(?:(?:the )?(?:last|past) )?(\d+|{'|'.join(_NUMBERS)})\s*{_UNIT}(?: ago)?"
_PERIOD = r"((?:19|20)\d\d)(?:-(0[1-9]|1[0-2]))?"
_THIS_OR_LAST = r"(this|last) (week|month|year)"
_WEEKDAY = r"(last )?(mon|tue|wed|thu|fri|sat|sun)[a-z]*"
_MONTH = r"(?:(\d{1,2}) )?([a-z]{3,9})\.?(?: (\d{1,2}))?(?:,? ((?:19|20)\d\d))?"
_AT = r"(.+?) (?:at )?(\d{1,2}):(\d\d)"
_DASH = r"(?<=[a-z])[-_]+(?=[a-z0-9])|(?<=\d)[-_]+(?=[a-z])"  # `last-week`, `3-days-ago`
_EXAMPLES = ("today", "yesterday", "this week", "last week", "this month", "last month", "last year", "3 days ago")
DATE_FORMS = "2026-11-01, 7d, 3 days ago, yesterday, monday, last week, november"


def parse_moment(text: str, now: datetime) -> datetime:
    """`2026-11-01T10:00`, `2026-11`, `7d`, `3 days ago`, `yesterday 14:00`, `monday`, `last week`, `15 november` …

    A day, week, month or year is the moment it begins, at midnight in the user's time zone, whatever the clocks have
    done since; a weekday or month without a year is the latest one that has begun. Raises ValueError for anything else,
    and OverflowError for a time before the calendar starts.
    """
    text = re.sub(_DASH, " ", " ".join(text.lower().split()))
    if (match := re.fullmatch(_AT, text)) and (day := _day(match[1], now)):
        return datetime.combine(day, datetime.min.time().replace(int(match[2]), int(match[3]))).astimezone()
    if match := re.fullmatch(_AGO, text):
        count, unit = _NUMBERS.get(match[1]) or int(match[1]), match[2]
        if unit.startswith(("mo", "y")):
            return _months_before(now, count * (12 if unit.startswith("y") else 1))
        return now - timedelta(**{_UNITS[unit[0]]: count})
    if day := _day(text, now):
        return datetime.combine(day, datetime.min.time()).astimezone()
    moment = datetime.fromisoformat(text.upper())
    return moment if moment.tzinfo else moment.astimezone()


def _day(text: str, now: datetime) -> date | None:
    """The day that a name of a day, week, month or year begins with; None if it is none."""
    today = now.astimezone().date()
    if text in ("today", "yesterday"):
        return today - timedelta(days=text == "yesterday")
    if match := re.fullmatch(_PERIOD, text):
        return date(int(match[1]), int(match[2] or 1), 1)
    if match := re.fullmatch(_THIS_OR_LAST, text):
        return _period(match[2], today, back=match[1] == "last")
    if (match := re.fullmatch(_WEEKDAY, text)) and _is_name(text.removeprefix("last "), WEEKDAYS):
        weekday = next(number for number, name in enumerate(WEEKDAYS) if name.startswith(match[2]))
        days = (today.weekday() - weekday) % 7
        return today - timedelta(days=days or 7 if match[1] else days)
    if (match := re.fullmatch(_MONTH, text)) and _is_name(match[2], _MONTHS):
        month = _MONTH_NAMES.index(match[2][:3]) + 1
        day = date(int(match[4] or today.year), month, int(match[1] or match[3] or 1))
        return day if match[4] or day <= today else day.replace(year=day.year - 1)
    return None


def _is_name(word: str, names: tuple[str, ...]) -> bool:
    """Whether a word is one of the names, or at least three letters of its beginning."""
    return any(name.startswith(word) for name in names)


def _period(unit: str, today: date, *, back: bool) -> date:
    """When this week, month or year began, or the one before."""
    if unit == "week":
        return today - timedelta(days=today.weekday() + 7 * back)
    if unit == "year":
        return date(today.year - back, 1, 1)
    first = today.replace(day=1)
    return (first - timedelta(days=1)).replace(day=1) if back else first


def moment_ms(name: str, value: str | datetime | None) -> int | None:
    """The time given to `name`, in milliseconds since 1970; raises UsageError, with the nearest date, if it is none."""
    if value is None:
        return None
    try:
        moment = parse_moment(value, datetime.now().astimezone()) if isinstance(value, str) else value
        return round(moment.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise UsageError(f"Invalid date for `{name}`: {value}", _advice(str(value))) from None


def period(name: str, text: str) -> tuple[datetime, datetime]:
    """When the day, week, month or year that `text` names begins and ends; raises UsageError as `moment_ms` does."""
    begin = datetime.fromtimestamp((moment_ms(name, text) or 0) / 1000).date()
    end = begin + timedelta(days=1)
    words = re.sub(_DASH, " ", " ".join(text.lower().split()))
    unit = _unit(words)
    if unit == "week":
        end = begin + timedelta(days=7)
    elif unit == "year":
        end = begin.replace(year=begin.year + 1)
    elif unit == "month":
        end = (begin + timedelta(days=31)).replace(day=1)
    midnight = datetime.min.time()
    return datetime.combine(begin, midnight).astimezone(), datetime.combine(end, midnight).astimezone()


def _unit(text: str) -> str:
    """What a date names: a week, a month, a year, else a day."""
    if match := re.fullmatch(_THIS_OR_LAST, text):
        return match[2]
    if match := re.fullmatch(_PERIOD, text):
        return "month" if match[2] else "year"
    match = re.fullmatch(_MONTH, text)
    return "month" if match and _is_name(match[2], _MONTHS) and not (match[1] or match[3]) else "day"


def _advice(text: str) -> str:
    from difflib import get_close_matches  # only where a date was mistyped

    near = get_close_matches(text.lower(), (*_EXAMPLES, *WEEKDAYS), 1, 0.6)
    return f"did you mean `{near[0]}`? Or write {DATE_FORMS}" if near else f"write {DATE_FORMS}"


def _months_before(now: datetime, months: int) -> datetime:
    """The same day and time that many months ago, or the last day of a shorter month."""
    local = now.astimezone().replace(tzinfo=None)
    ended = local.year * 12 + local.month - months  # months of the calendar up to and including that one
    last = date(ended // 12, ended % 12 + 1, 1) - timedelta(days=1)
    return local.replace(year=last.year, month=last.month, day=min(local.day, last.day)).astimezone()
