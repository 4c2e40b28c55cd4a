"""Workflows: which order of steps sessions take, how often it works, and which commands fail here."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from itertools import combinations, groupby, pairwise

import orjson

from recollect import schema
from recollect.clock import rfc3339
from recollect.distill import shell, words
from recollect.distill.texts import shortened
from recollect.distill.trace import CALLS, PAUSE_MS
from recollect.knowledge.exchanges import Turn
from recollect.knowledge.facts import Material
from recollect.knowledge.records import FailingCommand, Route, Workflow
from recollect.knowledge.resolutions import spent
from recollect.knowledge.runs import Run
from recollect.knowledge.topics import relevance, topic_words
from recollect.store import ExchangeRow, Step, StoredExchange, StoredFact

MOST_STEPS = 60  # of an exchange
_GOAL_CHARS = 200
_LONGEST, _SHORTEST = 5, 2  # steps of a pattern
_GAP = 2  # a step of a pattern follows the one before it at once, or after one other
_LEAST_SUPPORT = 3
_NEARLY_AS_FREQUENT = 0.8  # a longer order makes a piece of it that is no more frequent superfluous
_LEAST_USES, _LEAST_FAILURES = 5, 2
_MOST_ROUTES = 5
_LEAST_SURE = 0.6


def exchange_rows(material: Material, turns: Sequence[Turn], runs: Sequence[Run]) -> list[ExchangeRow]:
    """What each exchange of a session did; those without any step are left out."""
    failed = {run.call.event_uid for run in runs if run.has_failed} | {
        step.event_uid for step in material.trace.steps if (step.call_id or "") in material.trace.undone
    }
    following = [*turns[1:], None]
    found = []
    for turn, after in zip(turns, following, strict=True):
        steps = list(_steps(turn, failed))
        if turn.request is None or not steps:
            continue
        times = [step.ts_ms for step in turn.steps if step.ts_ms is not None]
        used = spent(material, times[0] - 1, times[-1]) if times else {"tokens": None, "usd": None}
        found.append(
            ExchangeRow(
                since_ms=turn.request.ts_ms,
                request_uid=turn.request.uid,
                goal=shortened(words.gist(turn.request.summary), _GOAL_CHARS),
                steps=" ".join(steps[:MOST_STEPS]),
                has_succeeded=_has_succeeded(turn, after, runs),
                tokens=used["tokens"] or 0,
                active_ms=sum(min(b - a, PAUSE_MS) for a, b in pairwise(times) if b >= a),
                usd=used["usd"],
            )
        )
    return found


def _steps(turn: Turn, failed: set[bytes]) -> Iterator[str]:
    """The steps of an exchange by name, each run of the same ones once."""
    named = (
        _name(step) + ("!" if step.event_uid in failed else "")
        for step in turn.steps
        if step.kind in CALLS and step.role == "assistant"
    )
    return (name for name, _ in groupby(named))


def _name(step: Step) -> str:
    command = shell.command_of(step.summary)
    if command is not None:
        family = shell.test_family(command) if step.kind == schema.TEST_RUN else shell.family(command)
        return family.replace(" ", "-")
    return (step.tool or "unknown").replace(" ", "-")


def _has_succeeded(turn: Turn, after: Turn | None, runs: Sequence[Run]) -> int | None:
    """By the last run of tests, else by what the user says next, else by whether the agent got to an answer."""
    if turn.was_stopped:
        return 0
    tests = [run for run in runs if run.is_test and turn.has(run.call) and run.has_failed is not None]
    if tests:
        return int(not tests[-1].has_failed)
    if after is not None and after.request is not None:
        reply = after.request.summary
        if words.says_broken(reply) or words.corrects(reply):
            return 0
        return 1
    return None


def find_workflows(exchanges: Sequence[StoredExchange], least_support: int = _LEAST_SUPPORT) -> list[Workflow]:
    """Orders of steps that several exchanges took, those that say most first."""
    sequences = [exchange.steps.split() for exchange in exchanges]
    items = Counter(step for sequence in sequences for step in set(sequence))
    total = max(1, len(sequences))
    found = [
        _workflow(pattern, places, exchanges, items, total)
        for pattern, places in _patterns(sequences, least_support).items()
        if len(pattern) >= _SHORTEST and len(set(pattern)) > 1
    ]
    longer = _most_support_of_longer(found)
    whole = [one for one in found if longer.get(one.steps, 0) < _NEARLY_AS_FREQUENT * one.support]
    return sorted(whole, key=lambda one: (-one.support * (len(one.steps) - 1) * min(one.lift, 4.0), one.steps))


def _patterns(sequences: Sequence[Sequence[str]], least_support: int) -> dict[tuple[str, ...], list[int]]:
    """Frequent orders of steps with gaps of at most `_GAP`, and the sequences they are in."""
    patterns: dict[tuple[str, ...], list[int]] = {}
    starts: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for number, sequence in enumerate(sequences):
        for place, step in enumerate(sequence):
            starts[step].setdefault(number, []).append(place)
    waiting: list[tuple[tuple[str, ...], dict[int, list[int]]]] = [
        ((step,), ends) for step, ends in starts.items() if len(ends) >= least_support
    ]
    while waiting:
        pattern, ends = waiting.pop()
        patterns[pattern] = sorted(ends)
        if len(pattern) < _LONGEST:
            waiting += [(grown, new) for grown, new in _grown(pattern, ends, sequences) if len(new) >= least_support]
    return patterns


def _grown(
    pattern: tuple[str, ...], ends: dict[int, list[int]], sequences: Sequence[Sequence[str]]
) -> Iterator[tuple[tuple[str, ...], dict[int, list[int]]]]:
    longer: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    for number, places in ends.items():
        sequence = sequences[number]
        for place in places:
            for next_place in range(place + 1, min(len(sequence), place + 1 + _GAP)):
                longer[sequence[next_place]][number].add(next_place)
    for step, by_sequence in longer.items():
        yield (*pattern, step), {number: sorted(places) for number, places in by_sequence.items()}


def _most_support_of_longer(found: Sequence[Workflow]) -> dict[tuple[str, ...], int]:
    """For each order of steps, how frequent the most frequent longer one is that it is a piece of."""
    most: dict[tuple[str, ...], int] = defaultdict(int)
    for one in found:
        for length in range(_SHORTEST, len(one.steps)):
            for piece in combinations(one.steps, length):
                most[piece] = max(most[piece], one.support)
    return most


def _workflow(
    pattern: tuple[str, ...],
    places: Sequence[int],
    exchanges: Sequence[StoredExchange],
    items: Counter[str],
    total: int,
) -> Workflow:
    chosen = [exchanges[place] for place in places]
    expected = 1.0
    for step in set(pattern):
        expected *= items[step] / total
    judged = [one.has_succeeded for one in chosen if one.has_succeeded is not None]
    costs = sorted(one.tokens for one in chosen)
    return Workflow(
        steps=pattern,
        support=len(chosen),
        sessions=len({one.session_uid for one in chosen}),
        lift=round(len(chosen) / total / expected, 2) if expected else 0.0,
        success_rate=round(sum(judged) / len(judged), 2) if judged else None,
        median_tokens=costs[len(costs) // 2],
        agents=tuple(sorted({one.agent for one in chosen})),
        evidence=tuple(dict.fromkeys(one.request_uid for one in chosen[-4:])),
    )


def failing_commands(uses: Sequence[tuple[str, int, int, str]], fixed: Sequence[StoredFact]) -> list[FailingCommand]:
    """Commands that fail often (name, uses, failures, a sample of what they say), with what worked instead if known."""
    instead: dict[str, Counter[str]] = defaultdict(Counter)
    for fact in fixed:
        command = fact.object if fact.object_kind == "command" else None
        if command and fact.rule == "alternative" and fact.confidence >= _LEAST_SURE:
            for name in shell.doings(_command_of(fact)) or {""}:
                instead[name][command] += 1
    found = []
    for name, count, failures, sample in uses:
        if count >= _LEAST_USES and failures >= _LEAST_FAILURES:
            best = instead[name].most_common(1)
            found.append(
                FailingCommand(name, count, failures, round(failures / count, 2), sample, best[0][0] if best else None)
            )
    return sorted(found, key=lambda one: (-one.rate * min(one.failures, 10), one.command))


def _command_of(fact: StoredFact) -> str:
    return str(orjson.loads(fact.details).get("command") or "")


def find_routes(goal: str, exchanges: Sequence[StoredExchange]) -> list[Route]:
    """The exchanges that reached a goal like this one, the best first."""
    asked = topic_words(goal)
    scored = [(relevance(asked, one.goal), one) for one in exchanges if one.has_succeeded]
    best = sorted((one for one in scored if one[0] >= 0.5), key=lambda one: (-one[0], -(one[1].since_ms or 0)))
    return [
        Route(
            goal=one.goal,
            steps=tuple(one.steps.split()),
            session_uid=one.session_uid,
            agent=one.agent,
            repo=one.repo,
            at=rfc3339(one.since_ms),
            tokens=one.tokens,
            active_s=one.active_ms // 1000,
            usd=one.usd,
            request_uid=one.request_uid,
        )
        for _, one in best[:_MOST_ROUTES]
    ]
