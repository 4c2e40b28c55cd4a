"""How a session ended: success, fail, abandoned or unknown, with how sure that is and why.

Judged from the end backwards: what the last request was, whether it was answered, what the answer says, and what
tests, commits and the user's own words add to that.

The to-do list of a session as its calls left it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recollect import schema
from recollect.distill import words
from recollect.distill.shell import command_of, only_looks
from recollect.distill.texts import payload_text
from recollect.distill.trace import CALLS, NOTES, Trace
from recollect.schema import ABANDONED, FAIL, SUCCESS, UNKNOWN, Outcome
from recollect.store import Step
from recollect.text import cut_short

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
    if ending.last is None or not _has_spoken(trace):
        return _without_an_answer(trace, ending)
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
    answer = _ends(_text(last, payloads)) if last is not None and last.kind in SPOKEN else ""
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
    command = command_of(call.summary)
    return call.kind == schema.EDIT or (command is not None and not only_looks(command))


def _text(step: Step | None, payloads: Mapping[bytes, Mapping[str, Any]]) -> str:
    if step is None:
        return ""
    return payload_text(payloads.get(step.event_uid, {})) or step.summary


def _ends(answer: str) -> str:
    if len(answer) <= 2 * _ANSWER_CHARS:
        return answer
    return f"{answer[:_ANSWER_CHARS]}\n{answer[-_ANSWER_CHARS:]}"


def _has_spoken(trace: Trace) -> bool:
    has_tried = bool(trace.calls or trace.errors or trace.service_retries)
    return trace.has_worked or trace.last_answer is not None or has_tried


def _without_an_answer(trace: Trace, ending: Ending) -> Outcome:
    if ending.request is None:
        return Outcome(UNKNOWN, 0.9, ("nothing was asked",))
    if trace.interventions:
        return Outcome(ABANDONED, 0.8, ("the user interrupted before any answer",))
    return Outcome(ABANDONED, 0.6, ("the request was never answered",))


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
    return _by_default(trace, ending)


def _by_tests(trace: Trace, ending: Ending) -> Outcome | None:
    """Tests that failed when they were last run, unless another suite passed after them."""
    runs = [run for run in trace.standing_tests if run.has_passed is not None]
    if not runs or runs[-1].has_passed:
        return None
    is_claimed = ending.is_reported_done and not words.says_cannot(ending.answer)
    reason = f"the last test run failed: {cut_short(runs[-1].call.summary, _REASON_CHARS)}"
    if is_claimed and _has_moved_on(trace, runs[-1].call):
        return None  # edited after it, and reported as done: the run is no longer the last word
    return Outcome(FAIL, 0.6 if is_claimed else 0.75, (reason,))


def _has_moved_on(trace: Trace, run: Step) -> bool:
    """Whether files were changed, or another request came, after a test run."""
    index = trace.steps.index(run) if run in trace.steps else 0
    return any(step.kind in (schema.EDIT, schema.USER_MSG) for step in trace.steps[index + 1 :])


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
    if any(not commit.call.is_abandoned for commit in trace.commits):
        reasons.append("a commit was made")
    if ending.is_reported_done and ending.has_work:
        reasons.append("the last answer reports it as done")
    if not reasons:
        return None
    return Outcome(SUCCESS, round(min(0.9, 0.6 + 0.12 * len(reasons)), 2), tuple(reasons))


def _by_default(trace: Trace, ending: Ending) -> Outcome:
    if ending.request is None and not trace.calls:
        return Outcome(UNKNOWN, 0.6, ("nothing was asked",))
    return Outcome(SUCCESS, 0.6, ("the last request was answered",))
