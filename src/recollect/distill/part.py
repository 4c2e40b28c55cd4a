"""What is distilled from a part of a session, and how parts are joined. Most sessions are one part.

A session's work by minute, and its tokens and money by minute and model.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from recollect import schema
from recollect.distill import VERSION
from recollect.distill.digest import Findings, Subject, extend, make_digest
from recollect.distill.outcome import Todo, find_ending, judge, todo_list
from recollect.distill.signals import corrections, find_signals, weighed
from recollect.distill.texts import shortened
from recollect.distill.trace import NO_TIME, Payloads, Trace, Use, settle
from recollect.schema import Covers, Digest, OpenEnds, Signal
from recollect.sessions import MINUTE_MS, Used, tokens_of
from recollect.store import ActivityRow, Response, Step, UseRow


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


LINE_CHARS = 300
SAMPLE_CHARS = 160
DAY_MINUTES = 24 * 60
_WIDTH = 50  # lists of names in a closed part are that many times as long: what is rare there may be frequent in all


@dataclass(frozen=True, slots=True)
class Part:
    """What is distilled from some events of a session, from its beginning on or since the last part."""

    digest: Digest
    signals: tuple[Signal, ...]
    minutes: tuple[Minute, ...]
    tools: tuple[UseRow, ...]
    commands: tuple[UseRow, ...]
    all_bytes: int
    kept_bytes: int
    todos: dict[str, Todo]
    latest: Step | None
    has_worked: bool


@dataclass(frozen=True, slots=True)
class Around:
    """What a digest has of other sessions and of the session as a whole."""

    covers: Covers
    sub_agents: Sequence[str] = ()
    models: Sequence[str] = ()


def make_part(
    subject: Subject,
    session_class: str,
    trace: Trace,
    payloads: Payloads,
    responses: Sequence[Response],
    before: Part | None = None,
    around: Around | None = None,
) -> Part:
    """Distil a part from its trace, the payloads its trace wants and its responses; a closed one has no `around`."""
    settle(trace, payloads)
    todos = todo_list(trace.todo_calls, payloads, {} if before is None else before.todos)
    listed = () if around is None else tuple(todos.values())  # only the end tells what is left to do
    ending = find_ending(trace, payloads)
    outcome = judge(trace, ending, listed, session_class)
    # Above a sub-agent is another agent: what that says is no human's correction.
    corrected = [] if session_class == schema.SUB_AGENT else list(corrections(trace))
    is_real = session_class != schema.WARM_UP  # what warms a cache is cancelled half-way: it counts for nothing
    signals = find_signals(subject.session_uid, trace, corrected, listed, responses, payloads) if is_real else []
    sub_agents, models = ((), ()) if around is None else (around.sub_agents, around.models)
    findings = Findings(outcome, signals, corrected, listed, ending, sub_agents, models)
    covers = Covers(0, None, VERSION) if around is None else around.covers
    width = 1 if before is None and around is not None else _WIDTH
    digest = make_digest(subject, covers, trace, payloads, findings, width)
    return Part(
        digest,
        tuple(signals),
        tuple(minutes_of(trace)),
        _uses(trace.tools) if trace.has_own and is_real else (),
        _uses(trace.commands) if trace.has_own and is_real else (),
        trace.all_bytes if trace.has_own else 0,
        trace.kept_bytes if trace.has_own else 0,
        todos,
        trace.latest,
        trace.has_worked,
    )


def _uses(uses: Mapping[tuple[int, str], Use]) -> tuple[UseRow, ...]:
    """Uses by minute and name; only the last failure of a name on a day says what it was."""
    last = {(minute // DAY_MINUTES, name): use for (minute, name), use in sorted(uses.items()) if use.last_failure}
    rows = []
    for (minute, name), use in sorted(uses.items()):
        failure = use.last_failure if last.get((minute // DAY_MINUTES, name)) is use else None
        sample, event = ("", None) if failure is None else (failure.summary[:SAMPLE_CHARS], failure.uid)
        name = shortened(name, LINE_CHARS)
        rows.append(UseRow(minute, name, sample, use.count, use.failures, use.refusals, event))
    return tuple(rows)


def closed(subject: Subject) -> Subject:
    """The subject of a part that is not the last: what may still change is not in it."""
    return replace(subject, title=None, tokens={}, usd=None, usd_is_estimate=False, started_ms=None, ended_ms=None)


def join(before: Part | None, part: Part, *, is_last: bool) -> Part:
    """A part together with all before it."""
    if not is_last:
        ends = OpenEnds(failing_tests=part.digest.open.failing_tests)
        part = replace(part, digest=replace(part.digest, open=ends))
    if before is None:
        return part
    minutes = tuple(_summed([*before.minutes, *part.minutes]))
    digest = extend(before.digest, part.digest, 1 if is_last else _WIDTH)
    return replace(
        part,
        digest=replace(digest, active_s=sum(minute.active_ms for minute in minutes) // 1000),
        signals=before.signals + part.signals,
        minutes=minutes,
        tools=_joined(before.tools, part.tools),
        commands=_joined(before.commands, part.commands),
        all_bytes=before.all_bytes + part.all_bytes,
        kept_bytes=before.kept_bytes + part.kept_bytes,
    )


def _summed(minutes: Iterable[Minute]) -> list[Minute]:
    sums: dict[int, Minute] = {}
    for minute in minutes:
        old = sums.get(minute.minute, Minute(minute.minute, 0, 0))
        sums[minute.minute] = Minute(minute.minute, old.active_ms + minute.active_ms, old.turns + minute.turns)
    return sorted(sums.values(), key=attrgetter("minute"))


def _joined(old: Iterable[UseRow], new: Iterable[UseRow]) -> tuple[UseRow, ...]:
    uses = {(row.minute, row.name): row for row in old}
    for row in new:
        known = uses.get((row.minute, row.name))
        if known is not None:
            row = row._replace(
                uses=known.uses + row.uses,
                failures=known.failures + row.failures,
                refusals=known.refusals + row.refusals,
                sample=row.sample or known.sample,
                event=row.event or known.event,
            )
        uses[row.minute, row.name] = row
    return tuple(sorted(uses.values(), key=attrgetter("minute", "name")))
