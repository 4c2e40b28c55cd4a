"""Workflows: which order of steps sessions take, how often it works, and which commands fail here."""

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import groupby, islice, pairwise, takewhile

from recollect.digest import CALLS, PAUSE_MS, is_work, shell, shortened, words
from recollect.knowledge.asking import relevance, topic_words
from recollect.knowledge.material import Material, Run, Turn
from recollect.knowledge.records import FOLLOWS, Evidence, Fact, FailingCommand, Route, Workflow, fact_uid
from recollect.model import schema
from recollect.model.clock import rfc3339
from recollect.model.kinds import KIND_FAMILY, SessionKey
from recollect.model.text import ELLIPSIS, plural
from recollect.store import ExchangeRow, SessionFilter, StatRow, Step, Store

MOST_STEPS = 60  # of an exchange
_GOAL_CHARS = 200
_LONGEST, _SHORTEST = 5, 3  # steps of an order; two tell something only if one failed
_GAP = 2  # a step of a pattern follows the one before it at once, or after one other
_LEAST_SUPPORT = 3
_LEAST_SHARE = 0.007  # of all exchanges
_LEAST_LIFT = 1.5
_SAME_STEPS, _SAME_EXCHANGES = 0.5, 0.4
_LEAST_USES, _LEAST_FAILURES, _LEAST_RATE = 5, 2, 0.05
_MOST_ROUTES, _MOST_READ = 5, 15
_STEP_CHARS, _ERROR_CHARS = 300, 120
_LOOKING = re.compile(r"read|glob|grep|search|list|fetch|view|find|task|todo|plan|skill", re.IGNORECASE)  # tools
_LEAST_SURE = 0.6
_LEAST_RELEVANT = 0.6  # of the words of a goal: both of two, two of three


def exchange_rows(material: Material, turns: Sequence[Turn], runs: Sequence[Run]) -> list[ExchangeRow]:
    """What each exchange of a session did; those without any step are left out."""
    failed = {run.call.event_uid for run in runs if run.has_failed} | {
        step.event_uid for step in material.trace.steps if (step.call_id or "") in material.trace.undone
    }
    lists = {step.event_uid for step in material.trace.todo_calls}
    following = [*turns[1:], None]
    found = []
    for turn, after in zip(turns, following, strict=True):
        steps = list(_steps(turn, failed, lists))
        if turn.request is None or not steps:
            continue
        times = [step.ts_ms for step in turn.steps if step.ts_ms is not None]
        used = material.spending.between(times[0] - 1, times[-1]) if times else {"tokens": None, "usd": None}
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


def _steps(turn: Turn, failed: set[bytes], lists: set[bytes]) -> Iterator[str]:
    """The steps of an exchange by name, each run of the same ones once; keeping a to-do list is none."""
    named = (
        _name(step) + ("!" if step.event_uid in failed else "")
        for step in turn.steps
        if step.kind in CALLS and step.role == "assistant" and step.event_uid not in lists
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


def find_workflows(exchanges: Sequence[ExchangeRow], least_support: int = _LEAST_SUPPORT) -> list[Workflow]:
    """Sequences of steps that several sessions took and that hang together, those that say most first.

    Two steps that follow each other say little unless one of them failed. Of orders that mostly the same exchanges
    took, the one that says most stands for all.
    """
    least_support = max(least_support, round(_LEAST_SHARE * len(exchanges)))
    patterns = _patterns([exchange.steps.split() for exchange in exchanges], least_support)
    found: list[tuple[float, Workflow, set[int]]] = []
    for pattern, places in patterns.items():
        # How much more often both parts come together than by chance, where it is weakest.
        splits = [len(patterns[pattern[:cut]]) * len(patterns[pattern[cut:]]) for cut in range(1, len(pattern))]
        lift = len(places) * len(exchanges) / max(splits) if splits else 0.0
        sessions = {exchanges[position].session_uid for position in places}
        if lift >= _LEAST_LIFT and len(sessions) >= _LEAST_SUPPORT and _is_telling(pattern):
            score = len(places) * (len(pattern) - 1) * min(lift, 4.0)
            found.append((score, _workflow(pattern, [exchanges[position] for position in places], lift), set(places)))
    found.sort(key=lambda one: (-one[0], one[1].steps))
    chosen: list[tuple[Workflow, set[int]]] = []
    for _, workflow, taken in found:
        for other, also_taken in chosen:
            steps, others = set(workflow.steps), set(other.steps)
            shared = len(taken & also_taken) / min(len(taken), len(also_taken))
            if len(steps & others) / len(steps | others) >= _SAME_STEPS and shared >= _SAME_EXCHANGES:
                break
        else:
            chosen.append((workflow, taken))
    return [workflow for workflow, _ in chosen]


def _is_telling(pattern: Sequence[str]) -> bool:
    """Whether an order is more than one step after another, the same step again, or a look around."""
    steps = {step.rstrip("!") for step in pattern}
    is_more = len(set(pattern)) >= _SHORTEST or (len(set(pattern)) > 1 and any(step.endswith("!") for step in pattern))
    return is_more and len(steps) > 1 and sum(not _looks(step) for step in steps) > 1


@cache
def _looks(step: str) -> bool:
    """Whether a step, by its name, only looks at something or plans."""
    return _LOOKING.search(step) is not None or shell.only_looks(step.replace("-", " ", 1))


def follow_facts(exchanges: Sequence[ExchangeRow]) -> list[Fact]:
    """Which step follows which in workflows, as facts; each shows the latest session of the most frequent one."""
    pairs: dict[tuple[str, str], Workflow] = {}
    for flow in find_workflows(exchanges):
        for earlier, later in pairwise(flow.steps):
            pairs[later, earlier] = max(pairs.get((later, earlier), flow), flow, key=lambda one: one.support)
    times = {one.request_uid: rfc3339(one.since_ms) for one in exchanges}
    facts = []
    for (later, earlier), flow in pairs.items():
        text = f"`{later}` follows `{earlier}`: {plural(flow.support, 'time')} in {plural(flow.sessions, 'session')}"
        fact = Fact(
            fact_uid=fact_uid(FOLLOWS, later, earlier),
            predicate=FOLLOWS,
            subject_kind="step",
            subject=later,
            object_kind="step",
            object=earlier,
            text=text,
            confidence=flow.success_rate if flow.success_rate is not None else _LEAST_SURE,
            method="workflow",
            valid_at=times[flow.event_uid],
            recorded_at=times[flow.event_uid] or "",
            session_uid=flow.session_uid,
            agent=flow.agents[0],
            evidence=(Evidence(flow.event_uid, text, flow.session_uid),),
        )
        facts.append(fact)
    return facts


def _patterns(sequences: Sequence[Sequence[str]], least_support: int) -> dict[tuple[str, ...], list[int]]:
    """Frequent orders of steps with gaps of at most `_GAP`, and the sequences they are in."""
    patterns: dict[tuple[str, ...], list[int]] = {}
    starts: dict[str, dict[int, list[int]]] = defaultdict(dict)
    for number, sequence in enumerate(sequences):
        for position, step in enumerate(sequence):
            starts[step].setdefault(number, []).append(position)
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
        for position in places:
            for next_place in range(position + 1, min(len(sequence), position + 1 + _GAP)):
                longer[sequence[next_place]][number].add(next_place)
    for step, by_sequence in longer.items():
        yield (*pattern, step), {number: sorted(places) for number, places in by_sequence.items()}


def _workflow(pattern: tuple[str, ...], chosen: Sequence[ExchangeRow], lift: float) -> Workflow:
    judged = [one.has_succeeded for one in chosen if one.has_succeeded is not None]
    costs = sorted(one.tokens for one in chosen)
    return Workflow(
        steps=pattern,
        support=len(chosen),
        sessions=len({one.session_uid for one in chosen}),
        lift=round(lift, 2),
        success_rate=round(sum(judged) / len(judged), 2) if judged else None,
        median_tokens=costs[len(costs) // 2],
        agents=tuple(sorted({one.agent for one in chosen})),
        evidence=tuple(dict.fromkeys(one.request_uid for one in chosen[-4:])),
        session_uid=chosen[-1].session_uid,
        event_uid=chosen[-1].request_uid,
    )


def failing_commands(uses: Sequence[StatRow]) -> list[FailingCommand]:
    """Commands that fail often, with what the last failure said and where."""
    found = []
    for row in uses:
        name, count, failures = row.name or "", row.uses or 0, row.failures or 0
        is_frequent = count >= _LEAST_USES and failures >= _LEAST_FAILURES and failures / count >= _LEAST_RATE
        if is_frequent and name[:1].isalnum():
            found.append(
                FailingCommand(
                    command=name,
                    uses=count,
                    failures=failures,
                    rate=round(failures / count, 2),
                    sample=row.sample or "",
                    session_uid=row.sample_session_uid,
                    event_uid=row.sample_event_uid,
                )
            )
    return sorted(found, key=lambda one: (-one.rate * min(one.failures, 10), one.command))


def find_routes(store: Store, goal: str, sessions: SessionFilter) -> list[Route]:
    """The exchanges that reached a goal like this one, with the commands and edits that led there; the best first.

    Those that tests or the user confirmed come before those in which only the agent says so.
    """
    asked = topic_words(goal)
    scored = [(relevance(asked, one.goal), one) for one in store.facts.exchanges(sessions)]
    likely = sorted(
        (pair for pair in scored if pair[0] >= _LEAST_RELEVANT and pair[1].has_succeeded != 0),
        key=lambda pair: (-pair[0], pair[1].has_succeeded is None, -(pair[1].since_ms or 0)),
    )
    routes = (_route(store, one) for _, one in likely[:_MOST_READ])
    return list(islice(filter(None, routes), _MOST_ROUTES))


def _route(store: Store, one: ExchangeRow) -> Route | None:
    """How an exchange reached its goal; None if it only looked around, or does not end with an answer."""
    key = SessionKey(one.agent, one.session_uid.partition(":")[2])
    events = [step for stored in store.steps.read([key]) for step in stored.steps if not step.is_abandoned]
    position = next((index for index, step in enumerate(events) if step.uid == one.request_uid), None)
    steps = tuple(one.steps.split())  # all that is left once the events were dropped
    if position is not None:
        own = list(takewhile(lambda step: step.kind != schema.USER_MSG, events[position + 1 :]))
        said = next((step.summary for step in reversed(own) if step.kind in KIND_FAMILY[schema.ASSISTANT_MSG]), "")
        is_done = one.has_succeeded or (said and not words.says_cannot(said) and not words.announces_work(said))
        steps = tuple(_taken(store, key, own)) if is_done else ()
    if not steps:
        return None
    return Route(
        goal=one.goal,
        steps=steps,
        is_confirmed=one.has_succeeded is not None,
        session_uid=one.session_uid,
        agent=one.agent,
        repo=one.repo,
        at=rfc3339(one.since_ms),
        tokens=one.tokens,
        active_s=one.active_ms // 1000,
        usd=one.usd,
        request_uid=one.request_uid,
        evicted=position is None,
    )


def _taken(store: Store, key: SessionKey, steps: Sequence[Step]) -> Iterator[str]:
    """List what was edited and run, in order, each with its failure; a step repeated at once appears once."""
    errors = {step.call_id: step.summary.removeprefix("failed: ") for step in steps if step.kind == schema.ERROR}
    calls = [step for step in steps if step.kind in CALLS and step.role == "assistant" and is_work(step)]
    payloads = store.steps.payloads(key, [step for step in calls if step.summary.endswith(ELLIPSIS)])
    last = ""
    for step in calls:
        command = shell.command_given(payloads.get(step.event_uid, {}))
        done = shortened(step.summary if command is None else f"ran {command}", _STEP_CHARS)
        error = errors.get(step.call_id) if step.call_id else None
        done += f" — failed: {shortened(error, _ERROR_CHARS)}" if error else ""
        if done != last:
            yield done
        last = done
