"""Moments as people write them, in their own time zone."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from recollect.model.clock import parse_moment


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A zone whose clocks were put back an hour on 2026-10-25 at three."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "Europe/Berlin")
        time.tzset()
        yield
    time.tzset()


def told(text: str, now: str) -> str:
    return parse_moment(text, datetime.fromisoformat(now).astimezone()).isoformat(timespec="minutes")


@pytest.mark.parametrize(
    ("text", "now", "expected"),
    [
        ("today", "2026-10-25T12:00", "2026-10-25T00:00+02:00"),
        ("yesterday", "2026-10-25T12:00", "2026-10-24T00:00+02:00"),
        ("yesterday", "2026-10-26T12:00", "2026-10-25T00:00+02:00"),
        ("today", "2026-03-29T12:00", "2026-03-29T00:00+01:00"),
        ("2026-10-25", "2026-11-16T12:00", "2026-10-25T00:00+02:00"),
        ("today", "2026-06-01T22:30+00:00", "2026-06-02T00:00+02:00"),
        ("2h", "2026-11-16T12:00", "2026-11-16T10:00+01:00"),
        ("2026-10", "2026-11-16T12:00", "2026-10-01T00:00+02:00"),
        ("2026", "2026-11-16T12:00", "2026-01-01T00:00+01:00"),
        ("2mo", "2026-11-16T12:00", "2026-09-16T12:00+02:00"),
        ("1mo", "2026-03-31T12:00", "2026-02-28T12:00+01:00"),
        ("1y", "2028-02-29T12:00", "2027-02-28T12:00+01:00"),
        ("this week", "2026-11-17T12:00", "2026-11-16T00:00+01:00"),
        ("last week", "2026-10-28T12:00", "2026-10-19T00:00+02:00"),
        ("last-week", "2026-11-17T12:00", "2026-11-09T00:00+01:00"),
        ("last month", "2026-11-17T12:00", "2026-10-01T00:00+02:00"),
        ("last year", "2026-11-17T12:00", "2025-01-01T00:00+01:00"),
        ("monday", "2026-11-17T12:00", "2026-11-16T00:00+01:00"),
        ("Tue", "2026-11-17T12:00", "2026-11-17T00:00+01:00"),
        ("last tuesday", "2026-11-17T12:00", "2026-11-10T00:00+01:00"),
        ("3 days ago", "2026-11-17T12:00", "2026-11-14T12:00+01:00"),
        ("last 2 weeks", "2026-11-17T12:00", "2026-11-03T12:00+01:00"),
        ("an hour ago", "2026-11-17T12:00", "2026-11-17T11:00+01:00"),
        ("yesterday 14:30", "2026-11-17T12:00", "2026-11-16T14:30+01:00"),
        ("november", "2026-11-17T12:00", "2026-11-01T00:00+01:00"),
        ("december", "2026-11-17T12:00", "2025-12-01T00:00+01:00"),
        ("15 nov", "2026-11-17T12:00", "2026-11-15T00:00+01:00"),
        ("Nov 15, 2025", "2026-11-17T12:00", "2025-11-15T00:00+01:00"),
        ("2026-11-01T10:00Z", "2026-11-17T12:00", "2026-11-01T10:00+00:00"),
    ],
)
def test_a_moment_is_what_a_calendar_on_the_wall_says(text: str, now: str, expected: str) -> None:
    assert told(text, now) == expected


@pytest.mark.parametrize(
    "text", ["", "soon", "2026-13", "3026", "7", "9999999y", "d", "monkey", "lastweek", "31 feb", "yesterday 25:00"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises((ValueError, OverflowError)):
        told(text, "2026-11-16T12:00")
