"""Charts as SVG, made here: they need no script, print, and can be read aloud."""

from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime, timedelta
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup, escape

from recollect.archive import compact
from recollect.model.text import duration, money

_WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
_LEVELS = 5
_CELL, _GAP = 13, 3
MOST_DAYS = 120  # of bars; longer periods are shown by week
NO_QUERY: Mapping[str, str] = MappingProxyType({})
_IDLE_S = 300  # between two events, and everything before and after is work


class Bar(NamedTuple):
    """One bar: its place on the axis, its height, what it says, and the page that says more."""

    label: str
    value: float
    title: str
    href: str = ""


def _svg(width: int, height: int, label: str, body: str, kind: str) -> Markup:
    head = f'<svg class="chart {kind}" viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
    return Markup(f"{head}{body}</svg>")


def _text(x: float, y: float, text: str, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def bars(values: Sequence[Bar], label: str, *, width: int = 560, height: int = 150) -> Markup:
    """Bars over an axis, labelled at both ends and at the tallest."""
    if not values or not any(bar.value for bar in values):
        return Markup('<p class="empty">Nothing in this period</p>')
    most, floor, step = max(bar.value for bar in values), height - 20, width / len(values)
    parts = [f'<line x1="0" y1="{floor}" x2="{width}" y2="{floor}"/>']
    for index, bar in enumerate(values):
        tall = (floor - 18) * bar.value / most
        begin, end = (
            (f'<a href="{escape(bar.href)}" tabindex="-1">', "</a>") if bar.value and bar.href else ("<g>", "</g>")
        )
        parts.append(
            f'{begin}<title>{escape(bar.title)}</title><rect class="hit" x="{index * step:.1f}" y="0" '
            f'width="{step:.1f}" height="{floor}"/><rect class="bar" x="{index * step + step * 0.12:.1f}" '
            f'y="{floor - tall:.1f}" width="{step * 0.76:.1f}" height="{max(tall, 1.0 if bar.value else 0):.1f}" '
            f'rx="1.5"/>{end}'
        )
    top = max(range(len(values)), key=lambda index: values[index].value)
    anchor = "start" if top < len(values) / 2 else "end"
    parts.append(_text((top + 0.5) * step, 11, values[top].title, anchor))
    parts += [_text(0, height - 4, values[0].label), _text(width, height - 4, values[-1].label, "end")]
    return _svg(width, height, label, "".join(parts), "bars")


def daily(lines: Sequence[Any], measure: str, days: int | None = None, query: Mapping[str, str] = NO_QUERY) -> Markup:
    """Money or tokens by day, days without any included; by week if there are many.

    A click on a bar lists the sessions of that time which meet the filters of the page's query.
    """
    found = {line.name: line for line in lines}
    if not found:
        return Markup('<p class="empty">Nothing in this period</p>')
    last = date.today()
    first = date.fromisoformat(min(found)) if days is None else last - timedelta(days=days - 1)
    first = min(first, last)
    steps = list(_days(first, last))
    width = 1 if len(steps) <= MOST_DAYS else 7
    values = []
    for start in range(0, len(steps), width):
        part = steps[start : start + width]
        name = f"{'' if width == 1 else 'week of '}{part[0].day} {part[0]:%b}"
        bar = _bar(name, [found.get(day.isoformat()) for day in part], measure)
        values.append(bar._replace(href=_sessions_of(part[0], part[-1], query)))
    return bars(values, "By day" if width == 1 else "By week")


def _sessions_of(first: date, last: date, query: Mapping[str, str]) -> str:
    """The list of sessions active on these days."""
    kept = {name: query[name] for name in ("repo", "agent", "model") if query.get(name)}
    days = {"since": first.isoformat(), "before": (last + timedelta(days=1)).isoformat()}
    return f"/sessions?{urlencode(kept | days)}"


def all_input(line: Any) -> int:
    """Tokens that a model read, from a cache or not, and those that it wrote into one."""
    return sum(value or 0 for value in (line.input_tokens, line.cache_read_tokens, line.cache_write_tokens))


def _days(first: date, last: date) -> Iterator[date]:
    return (first + timedelta(days=offset) for offset in range((last - first).days + 1))


_DOUBTS = ("usd_is_estimate", "usd_is_incomplete")


def _bar(name: str, lines: Sequence[Any], measure: str) -> Bar:
    """What the days of a bar add up to; a day without work has no line."""
    known = [line for line in lines if line is not None]
    if not known:
        return Bar(name, 0.0, f"{name}: nothing")
    if measure == "usd":
        usd = sum(line.usd or 0.0 for line in known)
        return Bar(
            name, usd, f"{name}: {money(usd, *(any(getattr(line, name) for line in known) for name in _DOUBTS))}"
        )
    tokens = sum(
        value or 0 for line in known for value in (line.input_tokens, line.output_tokens, line.cache_write_tokens)
    )
    return Bar(name, float(tokens), f"{name}: {compact(tokens)} tokens")


def calendar(lines: Sequence[Any], weeks: int = 12, query: Mapping[str, str] = NO_QUERY) -> Markup:
    """A square for each day of the last weeks, darker with more work. A click lists the day's sessions."""
    found = {line.name: (line.active_s or 0) for line in lines}
    today = date.today()
    first = today - timedelta(days=today.weekday() + 7 * (weeks - 1))
    most = max(found.values(), default=0)
    cells = []
    for offset, day in enumerate(_days(first, today)):
        week, weekday = divmod(offset, 7)
        seconds = found.get(day.isoformat(), 0)
        cell = _cell(week, weekday, seconds, most, f"{day:%a} {day.day} {day:%b}: {duration(seconds)} of work")
        link = escape(_sessions_of(day, day, query))
        cells.append(f'<a href="{link}" tabindex="-1">{cell}</a>' if seconds else cell)
        if day.day == 1 and weeks > MOST_DAYS // 7:
            cells.append(_text(week * (_CELL + _GAP), 7 * (_CELL + _GAP) + 10, f"{day:%b}"))
    label, bottom = f"Work in the last {weeks} weeks", 14 if weeks > MOST_DAYS // 7 else 0
    return _svg(weeks * (_CELL + _GAP), 7 * (_CELL + _GAP) + bottom, label, "".join(cells), "heat calendar")


def _cell(column: int, row: int, value: float, most: float, title: str, left: int = 0) -> str:
    level = 0 if not value or not most else min(_LEVELS - 1, 1 + int((_LEVELS - 1) * value / most * 0.999))
    x, y = left + column * (_CELL + _GAP), row * (_CELL + _GAP)
    return (
        f'<rect class="level-{level}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}" rx="2.5">'
        f"<title>{escape(title)}</title></rect>"
    )


def heatmap(grid: Sequence[Sequence[int]]) -> Markup:
    """Minutes of work by weekday and hour."""
    most = max((max(row) for row in grid), default=0)
    left = 34
    parts = []
    for row, minutes in enumerate(grid):
        parts.append(_text(0, row * (_CELL + _GAP) + 10, _WEEKDAYS[row]))
        for hour, value in enumerate(minutes):
            title = f"{_WEEKDAYS[row]} {hour:02}:00: {value} min of work"
            parts.append(_cell(hour, row, value, most, title, left))
    bottom = 7 * (_CELL + _GAP) + 10
    parts += [_text(left + hour * (_CELL + _GAP), bottom, f"{hour:02}") for hour in range(0, 24, 3)]
    return _svg(left + 24 * (_CELL + _GAP), bottom + 4, "Work by weekday and hour", "".join(parts), "heat")


def share(value: float | None, most: float | None) -> Markup:
    """A thin bar in a table: this value beside the largest one."""
    part = 100 * (value or 0) / most if most else 0
    return Markup(
        '<svg class="share" viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">'
        f'<rect width="100" height="6"/><rect class="bar" width="{part:.1f}" height="6"/></svg>'
    )


def meter(parts: Sequence[tuple[str, float, str]], total: float) -> Markup:
    """Parts of a whole in one bar, as wide as there is room; each has a name, a size and a class."""
    x, body = 0.0, ['<rect class="rest" width="1000" height="14"/>']
    for name, value, kind in parts:
        wide = 1000 * value / total if total else 0
        body.append(f'<rect class="{kind}" x="{x:.1f}" width="{max(wide, 2):.1f}" height="14">')
        body.append(f"<title>{escape(name)}</title></rect>")
        x += wide
    label = escape(", ".join(name for name, _, _ in parts))
    head = f'<svg class="chart meter" viewBox="0 0 1000 14" preserveAspectRatio="none" role="img" aria-label="{label}">'
    return Markup(f"{head}{''.join(body)}</svg>")


def curve(points: Sequence[tuple[str, int, int]], written: int, width: int = 1100, height: int = 220) -> Markup:
    """Tokens written by the model (`written` in all), added up over a session's time, above when it worked."""
    if not points:
        return Markup('<p class="empty">The log has no times</p>')
    times = [datetime.fromisoformat(moment).astimezone().timestamp() for moment, _, _ in points]
    begin, long = min(times), max(1.0, max(times) - min(times))
    total, line, most = 0, [], sum(output for _, _, output in points)
    floor = height - 34
    for time, (_, _, output) in zip(times, points, strict=True):
        total += output
        line.append(f"{width * (time - begin) / long:.1f},{floor - (floor - 16) * total / (most or 1):.1f}")
    body = [f'<polygon class="area" points="0,{floor} {" ".join(line)} {width},{floor}"/>'] if most else []
    body += [f'<polyline points="{" ".join(line)}"/>', _text(width, 11, f"{compact(written)} tokens", "end")]
    for first, last, is_work in _spans(sorted(times)):
        said = f"{_clock(first)} to {_clock(last)}: {duration(last - first)} {'of work' if is_work else 'idle'}"
        body.append(
            f'<rect class="{"work" if is_work else "idle"}" x="{width * (first - begin) / long:.1f}" y="{floor + 4}" '
            f'width="{max(1.0, width * (last - first) / long):.1f}" height="9"><title>{escape(said)}</title></rect>'
        )
    body += [_text(0, height - 4, _clock(begin)), _text(width, height - 4, _clock(begin + long), "end")]
    return _svg(width, height, f"{compact(written)} output tokens over the session", "".join(body), "curve")


def _spans(times: Sequence[float]) -> Iterator[tuple[float, float, bool]]:
    """The work and the idle time between these moments: begin, end, whether it is work."""
    begin = times[0]
    for before, after in pairwise(times):
        if after - before > _IDLE_S:
            yield begin, before, True
            yield before, after, False
            begin = after
    yield begin, times[-1], True


def _clock(time: float) -> str:
    moment = datetime.fromtimestamp(time)
    return f"{moment.day} {moment:%b %H:%M}"
