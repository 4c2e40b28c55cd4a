"""Signals: things in a session worth noticing, each with the events that show it."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from statistics import median

from recollect import schema
from recollect.clock import rfc3339
from recollect.distill import shell, words
from recollect.distill.outcome import Todo
from recollect.distill.texts import payload_text, shortened
from recollect.distill.trace import CHURN_ROUNDS, IDLE_MS, REFUSED, Edit, Payloads, SuiteRun, Trace
from recollect.schema import Signal
from recollect.sessions import Used
from recollect.store import Response, Step

LOOP_ATTEMPTS = 3  # the same failing call, the first one included
REPEATED_TIMES = 3
SPIKE_FACTOR = 5
SPIKE_LEAST_TOKENS = 300_000  # of fresh input, or what costs as much
SPIKE_LEAST_EXCHANGES = 4
SPIKE_SHARE = 0.25  # of the whole session
MOST_EVIDENCE = 10
_DETAIL_CHARS = 160

# Lines with which programs end whatever went wrong: they name nothing.
_EMPTY_ERROR = re.compile(
    r"(?:exit -?\d+:?|failed:?)?\s*(?:error|fail(?:ed)?|fail\s+\S+(?:\s+\S+)?|.*\btask failed"
    r"|make(?:\[\d+\])?: \*\*\*.*"
    r"|.*command failed(?: with exit code \d+)?\.?|npm err!.*|\* \w+: \d+|\d+ (?:issues?|problems?|errors?)\b.*)?\s*",
    re.IGNORECASE,
)
# By these an error names what it is about; without them it is the same one only of the same call.
_NAMES_SOMETHING = re.compile(r"[/'\"`(\d]|:\s")
_VARIABLE = re.compile(r"0x[0-9a-f]+|\b[0-9a-f]{7,40}\b|\d+(?:\.\d+)?|(?:/[\w.@+-]+){2,}", re.IGNORECASE)


def find_signals(
    session_uid: str,
    trace: Trace,
    corrected: Sequence[tuple[Step, str]],
    todos: Sequence[Todo],
    spent: Sequence[Response],
    payloads: Payloads,
) -> list[Signal]:
    """All signals of a session whose trace is settled, in the order of `schema.SIGNALS`."""
    findings = [
        *_retry_loops(trace),
        *_repeated_errors(trace),
        *_test_flips(trace),
        *_edit_churn(trace, corrected, payloads),
        *((schema.HUMAN_CORRECTION, text, 1, [step]) for step, text in corrected),
        *_denials(trace),
        *_compactions(trace),
        *_cost_spikes(trace, spent),
        *_long_idles(trace),
        *_abandoned_todos(todos),
    ]
    return [_signal(session_uid, *finding) for finding in findings]


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


def _retry_loops(trace: Trace) -> Iterator[_Told]:
    """The same call tried again and again although it failed."""
    by_key: dict[bytes, list[Step]] = defaultdict(list)
    for step in trace.retries:
        if step.retry_key is not None:
            by_key[step.retry_key].append(step)
    for retries in by_key.values():
        if len(retries) + 1 >= LOOP_ATTEMPTS:  # the first attempt is no retry
            yield schema.RETRY_LOOP, retries[0].summary, len(retries) + 1, retries


def _repeated_errors(trace: Trace) -> Iterator[_Told]:
    """The same error several times, whatever numbers and paths are in it; not of tests, nor of a model's service."""
    tests = {run.call.call_id for run in trace.tests}
    by_text: dict[str, list[Step]] = defaultdict(list)
    for step in trace.errors:
        is_of_service = step.call_id is None or words.service_stop(step.summary) is not None
        if not is_of_service and step.call_id not in tests and _EMPTY_ERROR.fullmatch(step.summary) is None:
            by_text[_error_and_cause(trace, step)].append(step)
    for errors in by_text.values():
        if len(errors) >= REPEATED_TIMES:
            yield schema.REPEATED_ERROR, errors[0].summary, len(errors), errors


def _error_and_cause(trace: Trace, step: Step) -> str:
    """What is the same where an error is: its text, and the call if the text does not say what it is about."""
    text = step.summary.removeprefix("failed: ").partition(" Note: ")[0]
    call = trace.calls.get(step.call_id or "")
    return error_key(step.summary) + ("" if call is None or _NAMES_SOMETHING.search(text) else call.summary)


def error_key(summary: str) -> str:
    """An error's text without what differs from one time to the next."""
    return _VARIABLE.sub("#", summary).casefold()


def _test_flips(trace: Trace) -> Iterator[_Told]:
    """Tests that failed and, run again, passed."""
    failing: list[SuiteRun] = []
    for run in trace.tests:
        if run.has_passed is False:
            failing.append(run)
        elif run.has_passed:
            again = [
                failed
                for failed in failing
                if run.family == failed.family and shell.covers_tests(run.command, failed.command)
            ]
            failing = [other for other in failing if other not in again]
            if again and again[0].result is not None and run.result is not None:
                yield schema.TEST_FLIP, run.call.summary, 1, [again[0].result, run.result]


def _edit_churn(trace: Trace, corrected: Sequence[tuple[Step, str]], payloads: Payloads) -> Iterator[_Told]:
    """A file edited again for one request because a run complained of it, or the user did, several times over."""
    edits = {edit.call.event_uid: edit for edit in trace.edits if not edit.has_failed}
    edited = Counter(path for edit in edits.values() for path in edit.paths)
    often = [path for path, count in edited.items() if count > CHURN_ROUNDS]
    if not often:
        return
    said = [(step, text) for step, text in corrected if step.call_id or words.says_broken(text)]
    complaints = _complaints(trace, said, payloads)
    tests = {run.result.event_uid for run in trace.tests if run.has_passed is False and run.result}
    anew = {step.event_uid for step in trace.requests} - {step.event_uid for step, _ in said}
    events = anew | complaints.keys() | edits.keys()
    steps = [step for step in trace.steps if step.event_uid in events]
    for path in often:
        rounds = _longest_churn(path, steps, edits, complaints, tests)
        if len(rounds) >= CHURN_ROUNDS:
            yield schema.EDIT_CHURN, path, len(rounds), rounds


def _longest_churn(
    path: str,
    steps: Iterable[Step],
    edits: Mapping[bytes, Edit],
    complaints: Mapping[bytes, str],
    tests: Collection[bytes],
) -> list[Step]:
    """The edits of a file after complaints of it, or directly after failed tests; of the request with most of them."""
    name = path.replace("\\", "/").rpartition("/")[2]
    longest: list[Step] = []
    rounds: list[Step] = []
    is_edited = is_blamed = has_test_failed = False  # no file was edited since
    for step in steps:
        edit, complaint = edits.get(step.event_uid), complaints.get(step.event_uid)
        if complaint is not None:
            is_blamed = is_blamed or (is_edited and (not complaint or name in complaint))
            has_test_failed = has_test_failed or step.event_uid in tests
        elif edit is None:  # a new request
            rounds, is_edited, is_blamed, has_test_failed = [], False, False, False
        elif path in edit.paths:
            rounds += [step] if is_blamed or (is_edited and has_test_failed) else []
            longest = max(longest, rounds, key=len)
            is_edited, is_blamed, has_test_failed = True, False, False
        else:
            has_test_failed = False
    return longest


def _complaints(trace: Trace, corrected: Sequence[tuple[Step, str]], payloads: Payloads) -> dict[bytes, str]:
    """What runs that failed printed, which call the user refused, and nothing where the user's words say it."""
    failed = [step for step in trace.errors if _checks_files(trace.calls.get(step.call_id or ""))]
    failed += [run.result for run in trace.tests if run.has_passed is False and run.result]
    printed = {step.event_uid: payload_text(payloads.get(step.event_uid, {})) or step.summary for step in failed}
    calls = {step.event_uid: trace.calls.get(step.call_id or "") for step, _ in corrected}
    return printed | {uid: call.summary if call else "" for uid, call in calls.items() if not asks_back(call)}


def _checks_files(call: Step | None) -> bool:
    """Whether a call is a command that may find fault with files; git only names them."""
    command = shell.command_of(call.summary) if call is not None else None
    return command is not None and not shell.family(command).startswith("git ")


def corrections(trace: Trace) -> Iterator[tuple[Step, str]]:
    """Where the user set the agent right: words of correction, a refusal with a reason, or words it gives in to.

    A question is none of the last two.
    """
    for step, is_after_stop in trace.replies:
        text = refusal_reason(step) if step.kind == schema.HUMAN_INTERVENTION else step.summary
        if text and not words.is_pasted_review(text) and _corrects(trace, step, text, is_after_stop=is_after_stop):
            yield step, text


def _corrects(trace: Trace, step: Step, text: str, *, is_after_stop: bool) -> bool:
    if words.corrects(text) or words.says_broken(text) or (is_after_stop and words.redirects(text)):
        return True
    reaction = trace.reactions.get(step.event_uid)
    has_point = step.kind == schema.HUMAN_INTERVENTION or (reaction is not None and words.gives_in(reaction.summary))
    return has_point and not words.asks(text)


def refusal_reason(step: Step) -> str | None:
    """What the user said when refusing a call, if anything; some agents put in a sentence about the user instead."""
    reason = step.summary.removeprefix(REFUSED)
    return None if reason == step.summary or reason.startswith("The user ") else reason


def _denials(trace: Trace) -> Iterator[_Told]:
    """Calls that the user or a rule refused; a call that was cut off while running was allowed."""
    refused = [step for step in trace.interventions if step.status == "denied" and not words.was_cut_off(step.summary)]
    refused = [step for step in refused if not asks_back(trace.calls.get(step.call_id or ""))]
    refused += trace.denials
    by_call: dict[str, list[Step]] = defaultdict(list)
    for step in refused:
        call = trace.calls.get(step.call_id or "")
        by_call[call.summary if call else step.summary].append(step)
    for detail, steps in by_call.items():
        yield schema.PERMISSION_DENIED, detail, len(steps), steps


def asks_back(call: Step | None) -> bool:
    """Whether a call only asks the user something: to turn a plan or a question down is an answer."""
    return call is not None and call.summary.startswith(("asked: ", "proposed a plan"))


def _compactions(trace: Trace) -> Iterator[_Told]:
    """Each time the context was compacted; its notice and its summary are one, two of a sort are two."""
    group: list[Step] = []
    position = 0
    for step in trace.compactions:
        if step.is_abandoned:
            continue
        last, position = position, trace.steps.index(step, position)
        sorts = {_sort(other) for other in group}
        if group and (_sort(step) in sorts or not _are_together(trace, last, position)):
            yield schema.CONTEXT_COMPACTED, group[0].summary, 1, group
            group = []
        group.append(step)
    if group:
        yield schema.CONTEXT_COMPACTED, group[0].summary, 1, group


def _sort(step: Step) -> str:
    """The words of a notice, and the colon if a summary follows them."""
    match = words.COMPACTED.search(step.summary)
    return step.summary[: match.end() + 1].lower() if match else ""


def _are_together(trace: Trace, first: int, second: int) -> bool:
    return all(step.kind == schema.LIFECYCLE for step in trace.steps[first:second])


def _cost_spikes(trace: Trace, spent: Sequence[Response]) -> Iterator[_Told]:
    """An exchange that cost several times what the session's others did."""
    requests = sorted((step for step in trace.requests if step.ts_ms is not None), key=lambda step: step.ts_ms or 0)
    if len(requests) < SPIKE_LEAST_EXCHANGES or not _is_in_order(trace):
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


def _is_in_order(trace: Trace) -> bool:
    """Whether times tell which exchange a response belongs to: some agents stamp the answers of a resumed session anew.

    A request that waited for the agent bears the time it was typed at, minutes before its place.
    """
    requests = {step.event_uid for step in trace.requests}
    latest_ms = 0
    for step in trace.steps:
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


def weighed(response: Response | Used) -> float:
    """Tokens of responses by what they cost, in tokens of fresh input: about the same for all vendors."""
    return (
        response.input_tokens
        + 5.0 * response.output_tokens
        + 0.1 * response.cache_read_tokens
        + 1.25 * response.cache_write_tokens
    )


def _long_idles(trace: Trace) -> Iterator[_Told]:
    for before, after in trace.idles:
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
