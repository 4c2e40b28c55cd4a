"""All that is distilled from one session at once: one pass over its events, then the judges."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect import schema
from recollect.distill.digest import Findings, Subject, make_digest
from recollect.distill.outcome import find_ending, judge
from recollect.distill.signals import corrections, find_signals, weighed
from recollect.distill.story import HOUR_MS, NO_TIME, Payloads, Story, settle
from recollect.distill.texts import shortened
from recollect.distill.todos import todo_list
from recollect.pricing import estimate_usd
from recollect.schema import Covers, Digest, Outcome, Signal
from recollect.store.steps import Spent
from recollect.store.tallies import ActivityRow, UseRow

LINE_CHARS = 300
FILES_OF_LINE = 3
BYTES_OF_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Distilled:
    """Everything that is kept of a session for ever."""

    digest: Digest
    signals: tuple[Signal, ...]
    line: str  # a sub-agent's digest in a line, for its root's; empty for any other session
    activity: tuple[ActivityRow, ...]
    tools: tuple[UseRow, ...]
    commands: tuple[UseRow, ...]
    raw_tokens: int
    kept_tokens: int

    @property
    def outcome(self) -> Outcome:
        return self.digest.outcome


def distil(
    subject: Subject,
    session_class: str,
    story: Story,
    covers: Covers,
    payloads: Payloads,
    spent: Sequence[Spent],
    sub_agents: Sequence[str] = (),
) -> Distilled:
    """Distil a session from its story, the payloads its story wants, and what its responses used."""
    settle(story, payloads)
    todos = todo_list(story.todo_calls, payloads)
    ending = find_ending(story, payloads)
    outcome = judge(story, ending, todos, session_class)
    # Above a sub-agent is another agent: what that says is no human's correction.
    corrected = [] if session_class == schema.SUB_AGENT else list(corrections(story))
    signals = find_signals(subject.session_uid, story, corrected, todos, spent)
    findings = Findings(outcome, signals, corrected, todos, ending, sub_agents, _models(spent))
    digest = make_digest(subject, covers, story, payloads, findings)
    return Distilled(
        digest=digest,
        signals=tuple(signals),
        line=_line(digest) if session_class == schema.SUB_AGENT else "",
        activity=_activity(subject, story, spent),
        tools=_uses(story.tools) if story.has_own else (),
        commands=_uses(story.commands) if story.has_own else (),
        raw_tokens=story.all_bytes // BYTES_OF_TOKEN if story.has_own else 0,
        kept_tokens=story.kept_bytes // BYTES_OF_TOKEN if story.has_own else 0,
    )


def _models(spent: Sequence[Spent]) -> list[str]:
    """The models that answered, the most used first."""
    counts = Counter(response.model for response in spent if response.model)
    return sorted(counts, key=lambda model: (-counts[model], model))


def _line(digest: Digest) -> str:
    """What a sub-agent was for and how it went."""
    asked = digest.requests[0].text if digest.requests else digest.title or "no request"
    answer = f" → {digest.final_answer.text}" if digest.final_answer else ""
    line = f"[{digest.outcome.outcome}] {shortened(asked, LINE_CHARS // 2)}{_edited(digest)}{answer}"
    return shortened(line, LINE_CHARS)


def _edited(digest: Digest) -> str:
    """The files a sub-agent edited, by their last names: its root's digest counts none of them."""
    names = [file.name.rpartition("/")[2] for file in digest.files[:FILES_OF_LINE]]
    more = f" and {digest.file_count - len(names)} more" if digest.file_count > len(names) else ""
    return f" (edited {', '.join(names)}{more})" if names else ""


def _uses(uses: Mapping[tuple[int, str], Any]) -> tuple[UseRow, ...]:
    rows = (UseRow(day, shortened(name, LINE_CHARS), *_counts(use)) for (day, name), use in uses.items())
    return tuple(sorted(rows))


def _counts(use: Any) -> tuple[int, int, int]:
    return use.count, use.failures, use.refusals


def _activity(subject: Subject, story: Story, spent: Sequence[Spent]) -> tuple[ActivityRow, ...]:
    """Work by hour, and tokens by hour and model; the rows' money adds up to the session's, cent for cent."""
    begun = NO_TIME if subject.started_ms is None else subject.started_ms // HOUR_MS
    rows = [*_worked(story, begun), *_used(subject, spent, begun)]
    if subject.usd is not None and not any(row.usd is not None for row in rows):
        rows[0] = rows[0]._replace(usd=subject.usd)
    return tuple(rows)


def _worked(story: Story, begun: int) -> list[ActivityRow]:
    turns, active = (story.turns, story.active_ms) if story.has_own else ({}, {})
    hours = sorted({begun} | set(turns) | set(active))
    return [ActivityRow(hour, "", active_ms=active.get(hour, 0), turns=turns.get(hour, 0)) for hour in hours]


def _used(subject: Subject, spent: Sequence[Spent], begun: int) -> list[ActivityRow]:
    """Tokens by hour and model, each with its share of the session's money."""
    sums: dict[tuple[int, str], Spent] = {}
    for response in spent:
        hour = begun if response.ts_ms is None else response.ts_ms // HOUR_MS
        key = (hour, response.model or "unknown")
        known = sums.get(key)
        sums[key] = response if known is None else _added(known, response)
    prices = {key: _price(used) for key, used in sums.items()} if len(sums) > 1 else dict.fromkeys(sums, 1.0)
    shares = _shared(subject.usd, prices)
    rows = [ActivityRow(*key, *sums[key][2:7], shares.get(key)) for key in sorted(sums)]
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


def _added(one: Spent, other: Spent) -> Spent:
    usd = None if one.usd is None and other.usd is None else (one.usd or 0.0) + (other.usd or 0.0)
    return Spent(
        one.ts_ms,
        one.model,
        one.input_tokens + other.input_tokens,
        one.output_tokens + other.output_tokens,
        one.cache_read_tokens + other.cache_read_tokens,
        one.cache_write_tokens + other.cache_write_tokens,
        one.reasoning_tokens + other.reasoning_tokens,
        usd,
    )


def _price(used: Spent) -> float:
    """What responses count for when money is split: their price, or their tokens where no price is known."""
    if used.usd is not None:
        return used.usd
    usd = estimate_usd(
        used.model,
        used.ts_ms,
        input_tokens=used.input_tokens,
        output_tokens=used.output_tokens,
        cache_read_tokens=used.cache_read_tokens,
        cache_write_tokens=used.cache_write_tokens,
    )
    return usd if usd is not None else weighed(used) / 1_000_000


def _shared(usd: float | None, weights: Mapping[tuple[int, str], float]) -> dict[tuple[int, str], float]:
    """A session's money split by weight; the last share takes what rounding leaves."""
    if usd is None or not weights:
        return {}
    keys, total = sorted(weights), sum(weights.values())
    shares = {key: round(usd * (weights[key] / total if total else 1 / len(keys)), 9) for key in keys[:-1]}
    return shares | {keys[-1]: usd - sum(shares.values())}


def merge(old: Digest, distilled: Distilled) -> Distilled:
    """The same with a digest that also covers what was dropped since `old` was made."""
    from dataclasses import replace

    from recollect.distill.digest import extend

    digest = extend(old, distilled.digest)
    return replace(distilled, digest=digest, line=_line(digest) if distilled.line else "")
