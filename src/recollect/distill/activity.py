"""A session's work by hour, and its tokens and money by hour and model."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

from recollect.distill.digest import Subject
from recollect.distill.signals import weighed
from recollect.distill.story import HOUR_MS, NO_TIME, Story
from recollect.sessions.pricing import TOKENS, usd_of
from recollect.store import ActivityRow, Response


def activity_of(subject: Subject, story: Story, responses: Sequence[Response]) -> tuple[ActivityRow, ...]:
    """Work by hour, and tokens by hour and model; the rows' money adds up to the session's, cent for cent."""
    begun = NO_TIME if subject.started_ms is None else subject.started_ms // HOUR_MS
    rows = [*_worked(story, begun), *_used(subject, responses, begun)]
    if subject.usd is not None and not any(row.usd is not None for row in rows):
        rows[0] = rows[0]._replace(usd=subject.usd)
    return tuple(rows)


def _worked(story: Story, begun: int) -> list[ActivityRow]:
    turns, active = (story.turns, story.active_ms) if story.has_own else ({}, {})
    hours = sorted({begun} | set(turns) | set(active))
    return [ActivityRow(hour, "", active_ms=active.get(hour, 0), turns=turns.get(hour, 0)) for hour in hours]


def _used(subject: Subject, responses: Sequence[Response], begun: int) -> list[ActivityRow]:
    """Tokens by hour and model, each with its share of the session's money."""
    groups: dict[tuple[int, str], list[Response]] = defaultdict(list)
    for response in responses:
        hour = begun if response.ts_ms is None else response.ts_ms // HOUR_MS
        groups[hour, response.model or "unknown"].append(response)
    shares = _shared(subject.usd, groups)
    rows = [ActivityRow(*key, **_tokens(groups[key]), usd=shares.get(key)) for key in sorted(groups)]
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


def _tokens(responses: Sequence[Response]) -> dict[str, Any]:
    return {name: sum(map(attrgetter(name), responses)) for name in TOKENS}


def _shared(usd: float | None, groups: Mapping[tuple[int, str], Sequence[Response]]) -> dict[tuple[int, str], float]:
    """A session's money split by what the responses cost, each by itself; the last share takes what rounding leaves.

    Responses without a price have no share, unless none has one: then the agent's own figure is split by tokens.
    """
    if usd is None or not groups:
        return {}
    prices = {key: usd_of(group)[0] for key, group in groups.items()}
    weights = {key: price for key, price in prices.items() if price is not None}
    weights = weights or {key: sum(map(weighed, group)) for key, group in groups.items()}
    keys, total = sorted(weights), sum(weights.values())
    shares = {key: round(usd * (weights[key] / total if total else 1 / len(keys)), 9) for key in keys[:-1]}
    return shares | {keys[-1]: usd - sum(shares.values())}
