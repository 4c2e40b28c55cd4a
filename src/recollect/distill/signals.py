"""Signals: things in a session worth noticing, each with the events that show it."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import median

from recollect import schema
from recollect.clock import rfc3339
from recollect.distill import words
from recollect.distill.story import IDLE_MS, Story
from recollect.distill.texts import shortened
from recollect.distill.todos import Todo
from recollect.schema import Signal
from recollect.store import Response, Step

LOOP_ATTEMPTS = 3  # the same failing call, the first one included
REPEATED_TIMES = 3
CHURN_ROUNDS = 3  # a file edited again after a failure
SPIKE_FACTOR = 5
SPIKE_LEAST_TOKENS = 300_000  # of fresh input, or what costs as much
SPIKE_LEAST_EXCHANGES = 4
SPIKE_SHARE = 0.25  # of the whole session
MOST_EVIDENCE = 10
_DETAIL_CHARS = 160

_VARIABLE = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,40}\b|\d+(?:\.\d+)?|(?:/[\w.@+-]+){2,}", re.IGNORECASE)


def find_signals(
    session_uid: str,
    story: Story,
    corrected: Sequence[tuple[Step, str]],
    todos: Sequence[Todo],
    spent: Sequence[Response],
) -> list[Signal]:
    """All signals of a session whose story is settled, in the order of `schema.SIGNALS`."""
    found = [
        *_retry_loops(story),
        *_repeated_errors(story),
        *_test_flips(story),
        *_edit_churn(story, corrected),
        *((schema.HUMAN_CORRECTION, text, 1, [step]) for step, text in corrected),
        *_denials(story),
        *_compactions(story),
        *_cost_spikes(story, spent),
        *_long_idles(story),
        *_abandoned_todos(todos),
    ]
    return [_signal(session_uid, *told) for told in found]


_Told = tuple[str, str, int, Sequence[Step]]  # signal, detail, count, evidence


def _signal(session_uid: str, name: str, detail: str, count: int, evidence: Sequence[Step]) -> Signal:
    cited = [*evidence[: MOST_EVIDENCE - 1], evidence[-1]] if len(evidence) > MOST_EVIDENCE else evidence
    return Signal(
        session_uid=session_uid,
        signal=name,
        ts=rfc3339(evidence[0].ts_ms) if evidence else None,
        detail=shortened(detail, _DETAIL_CHARS),
        count=count,
        evidence=tuple(step.uid for step in cited),
    )


def _retry_loops(story: Story) -> Iterator[_Told]:
    """The same call tried again and again although it failed, or a service that kept failing."""
    by_key: dict[bytes, list[Step]] = defaultdict(list)
    for step in story.retries:
        if step.retry_key is not None:
            by_key[step.retry_key].append(step)
    for retries in by_key.values():
        if len(retries) + 1 >= LOOP_ATTEMPTS:  # the first attempt is no retry
            yield schema.RETRY_LOOP, retries[0].summary, len(retries) + 1, retries
    if len(story.service_retries) >= LOOP_ATTEMPTS:
        detail = f"the model service: {story.service_retries[-1].summary}"
        yield schema.RETRY_LOOP, detail, len(story.service_retries), story.service_retries


def _repeated_errors(story: Story) -> Iterator[_Told]:
    """The same error several times, whatever numbers and paths are in it."""
    by_text: dict[str, list[Step]] = defaultdict(list)
    for step in story.errors:
        by_text[error_key(step.summary)].append(step)
    for errors in by_text.values():
        if len(errors) >= REPEATED_TIMES and _says_something(errors[0].summary):
            yield schema.REPEATED_ERROR, errors[0].summary, len(errors), errors


def error_key(summary: str) -> str:
    """An error's text without what differs from one time to the next."""
    return _VARIABLE.sub("#", summary).casefold()


def _says_something(summary: str) -> bool:
    """Not the bare `exit 1` that grep and diff end with."""
    return re.fullmatch(r"(?:exit -?\d+:?|failed:?(?: error)?)\s*", summary, re.IGNORECASE) is None


def _test_flips(story: Story) -> Iterator[_Told]:
    """Tests that failed and, run again, passed."""
    failing: dict[str, Step] = {}
    for run in story.tests:
        if run.has_passed is None or run.result is None:
            continue
        if not run.has_passed:
            failing.setdefault(run.family, run.result)
        elif run.family in failing:
            yield schema.TEST_FLIP, run.call.summary, 1, [failing.pop(run.family), run.result]


def _edit_churn(story: Story, corrected: Sequence[tuple[Step, str]]) -> Iterator[_Told]:
    """A file edited again because a run failed or the user said it is wrong, several times over.

    An edit that does not fit says nothing of the file, and a new request is a new piece of work.
    """
    edits = {edit.call.event_uid: edit for edit in story.edits if not edit.has_failed}
    edited = Counter(path for edit in edits.values() for path in edit.paths)
    if not edited or max(edited.values()) <= CHURN_ROUNDS:
        return
    complaints = {step.event_uid for step, _ in corrected}
    anew = {step.event_uid for step in story.requests} - complaints
    causes = _failed_runs(story) | complaints
    rounds: dict[str, list[Step]] = defaultdict(list)
    count, seen_at = 0, dict[str, int]()
    for step in story.steps:
        if step.event_uid in anew:
            seen_at.clear()
        count += step.event_uid in causes
        if (edit := edits.get(step.event_uid)) is not None:
            for path in edit.paths:
                if path in seen_at and count > seen_at[path]:
                    rounds[path].append(step)
                seen_at[path] = count
    for path, again in rounds.items():
        if len(again) >= CHURN_ROUNDS:
            yield schema.EDIT_CHURN, path, len(again), again


def _failed_runs(story: Story) -> set[bytes]:
    """Results of tests and commands that failed."""
    tried = {edit.call.call_id for edit in story.edits}
    failed = {step.event_uid for step in story.errors if step.call_id not in tried}
    return failed | {run.result.event_uid for run in story.tests if run.has_passed is False and run.result}


def corrections(story: Story) -> Iterator[tuple[Step, str]]:
    """Where the user set the agent right: a refusal with a reason, words of correction, a new word after a stop."""
    for step, is_after_stop in story.replies:
        if step.kind == schema.HUMAN_INTERVENTION:
            if reason := refusal_reason(step):
                yield step, reason
        elif (
            words.corrects(step.summary)
            or words.says_broken(step.summary)
            or (is_after_stop and words.redirects(step.summary))
        ):
            yield step, step.summary


def refusal_reason(step: Step) -> str | None:
    """What the user said when refusing a call, if anything; some agents put in a sentence about the user instead."""
    reason = step.summary.removeprefix("refused: ")
    return None if reason == step.summary or reason.startswith("The user ") else reason


def _denials(story: Story) -> Iterator[_Told]:
    """Calls that the user or a rule refused; a call that was cut off while running was allowed."""
    refused = [step for step in story.interventions if step.status == "denied" and not words.was_cut_off(step.summary)]
    refused = [step for step in refused if not _asks_back(story.calls.get(step.call_id or ""))]
    refused += [step for step in story.errors if step.call_id and words.is_refused_by_rule(step.summary)]
    by_call: dict[str, list[Step]] = defaultdict(list)
    for step in refused:
        call = story.calls.get(step.call_id or "")
        by_call[call.summary if call else step.summary].append(step)
    for detail, steps in by_call.items():
        yield schema.PERMISSION_DENIED, detail, len(steps), steps


def _asks_back(call: Step | None) -> bool:
    """Whether a call only asks the user something: to turn a plan or a question down is an answer."""
    return call is not None and call.summary.startswith(("asked: ", "proposed a plan"))


def _compactions(story: Story) -> Iterator[_Told]:
    """Each time the context was compacted; its notice and its summary are one, two of a sort are two."""
    group: list[Step] = []
    place = 0
    for step in story.compactions:
        if step.is_abandoned:
            continue
        last, place = place, story.steps.index(step, place)
        sorts = {_sort(other) for other in group}
        if group and (_sort(step) in sorts or not _are_together(story, last, place)):
            yield schema.CONTEXT_COMPACTED, group[0].summary, 1, group
            group = []
        group.append(step)
    if group:
        yield schema.CONTEXT_COMPACTED, group[0].summary, 1, group


def _sort(step: Step) -> str:
    """The words of a notice, and the colon if a summary follows them."""
    found = words.COMPACTED.search(step.summary)
    return step.summary[: found.end() + 1].lower() if found else ""


def _are_together(story: Story, first: int, second: int) -> bool:
    return all(step.kind == schema.LIFECYCLE for step in story.steps[first:second])


def _cost_spikes(story: Story, spent: Sequence[Response]) -> Iterator[_Told]:
    """An exchange that cost several times what the session's others did."""
    requests = sorted((step for step in story.requests if step.ts_ms is not None), key=lambda step: step.ts_ms or 0)
    if len(requests) < SPIKE_LEAST_EXCHANGES or not _is_in_order(story):
        return
    costs = exchange_costs([step.ts_ms or 0 for step in requests], spent)
    if max(costs) < SPIKE_LEAST_TOKENS:
        return
    for index, cost in enumerate(costs):
        others = median(costs[:index] + costs[index + 1 :])
        if cost >= SPIKE_LEAST_TOKENS and cost >= SPIKE_FACTOR * others and cost >= SPIKE_SHARE * sum(costs):
            factor = f"{cost / others:.0f} times" if others else "far more than"
            detail = f"{factor} the usual exchange: {requests[index].summary}"
            yield schema.COST_SPIKE, detail, 1, [requests[index]]


def _is_in_order(story: Story) -> bool:
    """Whether times tell which exchange a response belongs to: some agents stamp the answers of a resumed session anew.

    A request that waited for the agent bears the time it was typed at, minutes before its place.
    """
    requests = {step.event_uid for step in story.requests}
    latest_ms = 0
    for step in story.steps:
        if step.event_uid in requests and latest_ms - (step.ts_ms or latest_ms) > IDLE_MS:
            return False
        latest_ms = max(latest_ms, step.ts_ms or 0)
    return True


def exchange_costs(begun_ms: Sequence[int], spent: Iterable[Response]) -> list[float]:
    """What each exchange cost, in tokens of fresh input; exchanges are given by when they began, ascending."""
    costs = [0.0] * len(begun_ms)
    index = 0
    timed = [response for response in spent if response.ts_ms is not None]
    for response in sorted(timed, key=lambda response: response.ts_ms or 0):
        while index + 1 < len(begun_ms) and begun_ms[index + 1] <= (response.ts_ms or 0):
            index += 1
        costs[index] += weighed(response)
    return costs


def weighed(response: Response) -> float:
    """A response's tokens by what they cost, in tokens of fresh input: about the same for all vendors."""
    return (
        response.input_tokens
        + 5.0 * response.output_tokens
        + 0.1 * response.cache_read_tokens
        + 1.25 * response.cache_write_tokens
    )


def _long_idles(story: Story) -> Iterator[_Told]:
    for before, after in story.idles:
        minutes = ((after.ts_ms or 0) - (before.ts_ms or 0)) // 60_000
        yield schema.LONG_IDLE, f"nothing happened for {_span(minutes)}", 1, [before, after]


def _span(minutes: int) -> str:
    if minutes < 120:
        return f"{minutes} minutes"
    return f"{minutes // 60} hours" if minutes < 48 * 60 else f"{minutes // 1440} days"


def _abandoned_todos(todos: Sequence[Todo]) -> Iterator[_Told]:
    left = [todo for todo in todos if todo.is_open]
    if left:
        detail = f"{len(left)} of {len(todos)} left: {'; '.join(todo.text for todo in left)}"
        calls = {todo.call.event_uid: todo.call for todo in left}
        yield schema.ABANDONED_TODO, detail, len(left), list(calls.values())


def counted(signals: Iterable[Signal]) -> Mapping[str, int]:
    """How many signals of each sort."""
    found: Counter[str] = Counter(signal.signal for signal in signals)
    return {name: found[name] for name in schema.SIGNALS if found[name]}
