"""How a session ended: success, fail, abandoned or unknown, with how sure that is and why.

Judged from the end backwards: what the last request was, whether it was answered, what the answer says, and what
tests, commits and the user's own words add to that.

And signals: things in a session worth noticing, each with the events that show it.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from recollect.digest import shell, words
from recollect.digest.texts import payload_text, shortened
from recollect.digest.trace import CALLS, CHURN_ROUNDS, IDLE_MS, NOTES, REFUSED, Edit, Payloads, SuiteRun, Trace
from recollect.model import schema
from recollect.model.clock import rfc3339
from recollect.model.schema import ABANDONED, FAIL, SUCCESS, UNKNOWN, Outcome, Signal
from recollect.model.text import cut_short
from recollect.sessions import Used
from recollect.store import Response, Step

_FINISHED = frozenset({"completed", "done", "cancelled", "canceled", "deleted", "skipped"})
_LISTS = ("todos", "plan", "items", "tasks")
_NAMES = ("content", "step", "subject", "title", "task", "description")


@dataclass(frozen=True, slots=True)
class Todo:
    """One entry, and the call that said last how it stands."""

    text: str
    status: str
    call: Step

    @property
    def is_open(self) -> bool:
        return self.status not in _FINISHED


def todo_list(
    calls: Iterable[Step], payloads: Mapping[bytes, Mapping[str, Any]], entries: dict[str, Todo]
) -> dict[str, Todo]:
    """The list after all calls, from what it was before them: some replace it, some change entries by id, some add one
    entry each."""
    for call in calls:
        given = payloads.get(call.event_uid, {}).get("input")
        if isinstance(given, Mapping):
            entries = _changed(entries, given, call)
    return entries


def _changed(entries: dict[str, Todo], given: Mapping[str, Any], call: Step) -> dict[str, Todo]:
    listed = next((given[name] for name in _LISTS if isinstance(given.get(name), list)), None)
    if listed is not None:
        kept = entries if given.get("merge") is True else {}
        return kept | _entries(listed, kept, call)
    task = given.get("taskId") or given.get("task_id")
    if isinstance(task, str) and task in entries:
        status, text = given.get("status"), _name(given)
        old = entries[task]
        changed = Todo(text or old.text, status if isinstance(status, str) else old.status, call)
        return entries | {task: changed}
    if task is None and (text := _name(given)):
        return entries | {str(len(entries) + 1): Todo(text, "pending", call)}
    return entries


def _entries(listed: list[Any], known: Mapping[str, Todo], call: Step) -> dict[str, Todo]:
    found: dict[str, Todo] = {}
    for number, item in enumerate(listed, 1):
        if not isinstance(item, Mapping):
            continue
        key, status = str(item.get("id") or number), item.get("status")
        text = _name(item) or (known[key].text if key in known else "")
        if text:
            found[key] = Todo(text, status if isinstance(status, str) else "pending", call)
    return found


def _name(item: Mapping[str, Any]) -> str:
    return next((item[name] for name in _NAMES if isinstance(item.get(name), str) and item[name]), "")


_ANSWER_CHARS = 500  # of its beginning and of its end, where it says how it went
_OPENING_CHARS = 150
_REASON_CHARS = 100  # of what is quoted in a reason
_PERMISSION = "permission refused"
SPOKEN = (schema.ASSISTANT_MSG, schema.COMPLETION)


@dataclass(frozen=True, slots=True)
class Ending:
    """The last exchange, as far as it decides how the session ended."""

    request: Step | None
    last: Step | None  # the last event that is more than a note
    asked: str  # the last request's text
    answer: str  # the last answer's text, if it is the last thing that happened
    has_work: bool  # edits or commands after the last request that did not fail; reading and searching is none
    is_reported_done: bool
    has_failed: bool  # files were to be changed after the last request, and nothing that was tried succeeded
    has_only_failures: bool  # several things were tried after the last request, and none succeeded
    has_tried: bool  # to change or run something after the last request
    was_refused: bool  # some of it, by the user or by a rule


def judge(trace: Trace, ending: Ending, todos: Sequence[Todo], session_class: str) -> Outcome:
    """The outcome of a session whose trace is settled."""
    if session_class in (schema.WARM_UP, schema.PROMPTS_ONLY):
        return Outcome(UNKNOWN, 0.9, (f"nothing to judge in a session of class {session_class}",))
    has_tried = trace.calls or trace.errors or trace.service_retries
    if ending.last is None or not (has_tried or trace.has_worked or trace.last_answer):
        if ending.request is None:
            return Outcome(UNKNOWN, 0.9, ("nothing was asked",))
        if trace.interventions:
            return Outcome(ABANDONED, 0.8, ("the user interrupted before any answer",))
        return Outcome(ABANDONED, 0.6, ("the request was never answered",))
    return _by_last_event(ending) or _by_answer(trace, ending, todos)


def find_ending(trace: Trace, payloads: Mapping[bytes, Mapping[str, Any]]) -> Ending:
    request = trace.requests[-1] if trace.requests else None
    tail: list[Step] = []
    for step in reversed(trace.steps):
        if step is request:
            break
        if step.kind not in NOTES and not (step.role == "user" and step.kind in (*CALLS, schema.TOOL_RESULT)):
            tail.append(step)
    last = tail[0] if tail else request
    answer = _text(last, payloads) if last is not None and last.kind in SPOKEN else ""
    if len(answer) > 2 * _ANSWER_CHARS:
        answer = f"{answer[:_ANSWER_CHARS]}\n{answer[-_ANSWER_CHARS:]}"
    tried = [step for step in tail if step.kind in CALLS and is_work(step)]
    has_work = any(step.call_id not in trace.undone for step in tried)
    return Ending(
        request,
        last,
        _text(request, payloads),
        answer,
        has_work,
        words.says_done(answer),
        not has_work and any(step.kind == schema.EDIT for step in tried),
        not has_work and len(tried) > 1,
        bool(tried),
        any(step.call_id in trace.refused for step in tried),
    )


def is_work(call: Step) -> bool:
    """Whether a call does more than look."""
    command = shell.command_of(call.summary)
    return call.kind == schema.EDIT or (command is not None and not shell.only_looks(command))


def _text(step: Step | None, payloads: Mapping[bytes, Mapping[str, Any]]) -> str:
    if step is None:
        return ""
    return payload_text(payloads.get(step.event_uid, {})) or step.summary


def is_interruption(step: Step | None) -> bool:
    """Whether the user stopped the agent with it; to refuse a call is another thing."""
    if step is None or step.kind != schema.HUMAN_INTERVENTION:
        return False
    return step.status != "denied" or words.was_cut_off(step.summary)


def _by_last_event(ending: Ending) -> Outcome | None:
    """The outcome where the session broke off; None if it ended with words of the agent."""
    last = ending.last
    if last is None or last.kind in SPOKEN:
        return None
    if last.kind == schema.HUMAN_INTERVENTION:
        if is_interruption(last):
            return Outcome(ABANDONED, 0.8, ("the user interrupted the agent and did not go on",))
        return Outcome(ABANDONED, 0.8, ("the user refused a call and did not go on",), _PERMISSION)
    if last.kind == schema.ERROR and last.call_id is None:
        return _stopped_by_service(last.summary)
    if last.kind == schema.RETRY and last.role == "system":
        return Outcome(ABANDONED, 0.6, ("the model service was failing when the log ends",), words.SERVICE_ERROR)
    if last.kind == schema.USER_MSG:
        if words.says_thanks(ending.asked):
            return Outcome(SUCCESS, 0.85, ("the user's last words are thanks",))
        return Outcome(ABANDONED, 0.7, ("the last request was never answered",))
    return Outcome(ABANDONED, 0.6, ("the log ends in the middle of the work, without an answer",))


def _stopped_by_service(error: str) -> Outcome:
    reason = f"the model service ended it: {cut_short(error, _REASON_CHARS)}"
    return Outcome(ABANDONED, 0.9, (reason,), words.service_stop(error) or words.SERVICE_ERROR)


def _by_answer(trace: Trace, ending: Ending, todos: Sequence[Todo]) -> Outcome:
    """The outcome where the agent had the last word."""
    if words.says_thanks(ending.asked):
        return Outcome(SUCCESS, 0.9, ("the user's last words are thanks",))
    answer = ending.answer.strip()
    if words.service_stop(answer):
        return _stopped_by_service(answer)
    if ending.was_refused and not ending.has_work and (ending.has_failed or words.wants_permission(answer)):
        return Outcome(ABANDONED, 0.7, ("what the last request needed was refused",), _PERMISSION)
    if answer.startswith("{") and answer.endswith("}"):
        return Outcome(FAIL, 0.5, ("the last answer is a call written out as text",))
    if ending.has_failed:
        return Outcome(FAIL, 0.6, ("nothing that was tried after the last request succeeded",))
    if words.announces_work(ending.answer):
        return Outcome(ABANDONED, 0.5, ("the last words announce work that did not follow",))
    for found in (_by_tests(trace, ending), _by_words(ending), _by_question(ending, todos), _by_proof(trace, ending)):
        if found is not None:
            return found
    if ending.request is None and not trace.calls:
        return Outcome(UNKNOWN, 0.6, ("nothing was asked",))
    return Outcome(SUCCESS, 0.6, ("the last request was answered",))


def _by_tests(trace: Trace, ending: Ending) -> Outcome | None:
    """Tests that failed when they were last run, unless another suite passed after them."""
    runs = [run for run in trace.standing_tests if run.has_passed is not None]
    if not runs or runs[-1].has_passed:
        return None
    is_claimed = ending.is_reported_done and not words.says_cannot(ending.answer)
    reason = f"the last test run failed: {cut_short(runs[-1].call.summary, _REASON_CHARS)}"
    run = runs[-1].call
    after = trace.steps[trace.steps.index(run) + 1 :] if run in trace.steps else trace.steps[1:]
    if is_claimed and any(step.kind in (schema.EDIT, schema.USER_MSG) for step in after):
        return None  # reported as done after it: the run is no longer the last word
    return Outcome(FAIL, 0.6 if is_claimed else 0.75, (reason,))


def _by_words(ending: Ending) -> Outcome | None:
    """What the last answer and the last request say of it; a long answer without work may well say what cannot be."""
    opening = ending.answer[:_OPENING_CHARS]
    if words.says_cannot(opening) and not words.says_done(opening):
        reasons = ("the last answer begins with what could not be done",)
        is_all = ending.has_tried or len(ending.answer) <= _OPENING_CHARS
        return Outcome(FAIL, 0.7, reasons) if is_all else Outcome(UNKNOWN, 0.5, reasons)
    if words.hedges(opening) or (words.says_broken(ending.asked) and words.hedges(ending.answer)):
        return Outcome(UNKNOWN, 0.5, ("the last answer asks the user to try again",))
    if words.says_cannot(ending.answer) and not ending.is_reported_done and ending.has_tried and not ending.has_work:
        return Outcome(FAIL, 0.6, ("the last answer says that it could not be done",))
    return None


def _by_question(ending: Ending, todos: Sequence[Todo]) -> Outcome | None:
    """The agent asked back instead of working, and nobody answered."""
    if ending.has_work or not (ending.answer.rstrip().endswith(("?", "？")) or words.asks_user(ending.answer)):
        return None
    if ending.has_only_failures:
        return Outcome(FAIL, 0.5, ("all that was tried after the last request failed, and the agent asks what now",))
    if any(todo.is_open for todo in todos):
        return Outcome(ABANDONED, 0.5, ("the agent's last words are a question, and its to-do list is unfinished",))
    return Outcome(UNKNOWN, 0.5, ("the agent's last words ask the user for something",))


def _by_proof(trace: Trace, ending: Ending) -> Outcome | None:
    """Tests that passed, a commit, or the agent's own word after work."""
    reasons = []
    runs = [run for run in trace.standing_tests if run.has_passed is not None]
    if runs and runs[-1].has_passed:
        which = "the last test run" if runs[-1] is trace.standing_tests[-1] else "the last test run that ended"
        reasons.append(f"{which} passed: {cut_short(runs[-1].call.summary, _REASON_CHARS)}")
    if any(not call.is_abandoned for call, _ in trace.commits):
        reasons.append("a commit was made")
    if ending.is_reported_done and ending.has_work:
        reasons.append("the last answer reports it as done")
    if not reasons:
        return None
    return Outcome(SUCCESS, round(min(0.9, 0.6 + 0.12 * len(reasons)), 2), tuple(reasons))


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
            # What is the same: the text, and the call if the text does not say what it is about.
            text = step.summary.removeprefix("failed: ").partition(" Note: ")[0]
            call = None if _NAMES_SOMETHING.search(text) else trace.calls.get(step.call_id or "")
            by_text[error_key(step.summary) + (call.summary if call else "")].append(step)
    for errors in by_text.values():
        if len(errors) >= REPEATED_TIMES:
            yield schema.REPEATED_ERROR, errors[0].summary, len(errors), errors


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
    calls = [trace.calls.get(step.call_id or "") for step in trace.errors]
    commands = [shell.command_of(call.summary) if call else None for call in calls]
    # A command may find fault with files; git only names them.
    pairs = zip(trace.errors, commands, strict=True)
    failed = [step for step, command in pairs if command and not shell.family(command).startswith("git ")]
    failed += [run.result for run in trace.tests if run.has_passed is False and run.result]
    printed = {step.event_uid: payload_text(payloads.get(step.event_uid, {})) or step.summary for step in failed}
    refused = {step.event_uid: trace.calls.get(step.call_id or "") for step, _ in corrected}
    return printed | {uid: call.summary if call else "" for uid, call in refused.items() if not asks_back(call)}


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
        if group and (
            _sort(step) in sorts or any(other.kind != schema.LIFECYCLE for other in trace.steps[last:position])
        ):
            yield schema.CONTEXT_COMPACTED, group[0].summary, 1, group
            group = []
        group.append(step)
    if group:
        yield schema.CONTEXT_COMPACTED, group[0].summary, 1, group


def _sort(step: Step) -> str:
    """The words of a notice, and the colon if a summary follows them."""
    match = words.COMPACTED.search(step.summary)
    return step.summary[: match.end() + 1].lower() if match else ""


def _cost_spikes(trace: Trace, spent: Sequence[Response]) -> Iterator[_Told]:
    """An exchange that cost several times what the session's others did."""
    requests = sorted((step for step in trace.requests if step.ts_ms is not None), key=lambda step: step.ts_ms or 0)
    if len(requests) < SPIKE_LEAST_EXCHANGES or not _is_in_order(trace):
        return
    begun, costs = [step.ts_ms or 0 for step in requests], [0.0] * len(requests)  # in tokens of fresh input
    for response in spent:
        if response.ts_ms is not None:
            costs[max(0, bisect_right(begun, response.ts_ms) - 1)] += weighed(response)
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
        span = f"{minutes} minutes" if minutes < 120 else f"{minutes // 60} hours"
        span = span if minutes < 48 * 60 else f"{minutes // 1440} days"
        yield schema.LONG_IDLE, f"nothing happened for {span}", 1, [before, after]


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
