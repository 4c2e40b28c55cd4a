"""A session's work by minute, and its tokens and money by minute and model."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from recollect.distill.digest import Subject
from recollect.distill.signals import weighed
from recollect.distill.trace import NO_TIME, Trace
from recollect.sessions import MINUTE_MS, Used, tokens_of
from recollect.store import ActivityRow


class Minute(NamedTuple):
    """The work of a minute."""

    minute: int
    active_ms: int
    turns: int


def minutes_of(trace: Trace) -> list[Minute]:
    """A session's own work by minute."""
    if not trace.has_own:
        return []
    minutes = sorted(set(trace.turns) | set(trace.active_ms))
    return [Minute(minute, trace.active_ms.get(minute, 0), trace.turns.get(minute, 0)) for minute in minutes]


def activity_of(subject: Subject, minutes: Sequence[Minute], used: Sequence[Used]) -> tuple[ActivityRow, ...]:
    """Work by minute, and tokens by minute and model; the rows' money adds up to the session's, cent for cent."""
    begun = NO_TIME if subject.started_ms is None else subject.started_ms // MINUTE_MS
    rows = {(row.minute, row.model): row for row in _spent(subject, used, begun)}
    models = dict(reversed(rows))  # the first of each minute: its row has the work too
    for minute, active_ms, turns in (Minute(begun, 0, 0), *minutes):
        key = minute, models.get(minute, "")
        row = rows.get(key, ActivityRow(*key))
        rows[key] = row._replace(active_ms=row.active_ms + active_ms, turns=row.turns + turns)
    if subject.usd is not None and not any(row.usd is not None for row in rows.values()):
        first = min(rows)
        rows[first] = rows[first]._replace(usd=subject.usd)
    return tuple(rows[key] for key in sorted(rows))


def _spent(subject: Subject, used: Sequence[Used], begun: int) -> list[ActivityRow]:
    """Tokens by minute and model, each with its share of the session's money."""
    groups: dict[tuple[int, str], list[Used]] = {}
    for one in used:
        groups.setdefault((begun if one.minute is None else one.minute, one.model or "unknown"), []).append(one)
    shares = _shared(subject.usd, groups)
    rows = [ActivityRow(*key, *tokens_of(groups[key]))._replace(usd=shares.get(key)) for key in sorted(groups)]
    for name, count in subject.tokens.items():
        rows = _limited(rows, name, count)
    return rows


def _limited(rows: list[ActivityRow], name: str, limit: int) -> list[ActivityRow]:
    """Rows with no more tokens of a sort than the session has: what it holds of its sub-agents' is counted there."""
    over = sum(getattr(row, name) for row in rows) - limit
    limited = []
    for row in rows:
        taken = max(0, min(over, getattr(row, name)))
        over -= taken
        limited.append(row._replace(**{name: getattr(row, name) - taken}) if taken else row)
    return limited


def _shared(usd: float | None, groups: Mapping[tuple[int, str], Sequence[Used]]) -> dict[tuple[int, str], float]:
    """A session's money split by what the responses cost, each by itself; the last share takes what rounding leaves.

    Responses without a price have no share, unless none has one: then the agent's own figure is split by tokens.
    """
    if usd is None or not groups:
        return {}
    priced = [key for key in groups if any(one.priced for one in groups[key])]
    weights: dict[tuple[int, str], float] = {key: sum(one.picodollars for one in groups[key]) for key in sorted(priced)}
    weights = weights or {key: sum(map(weighed, groups[key])) for key in sorted(groups)}
    keys, total = list(weights), sum(weights.values())
    shares = {key: round(usd * (weights[key] / total if total else 1 / len(keys)), 9) for key in keys[:-1]}
    return shares | {keys[-1]: usd - sum(shares.values())}
