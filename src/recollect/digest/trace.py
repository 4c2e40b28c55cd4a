"""One pass over a session's events: who asked what, which calls failed, what was edited, run, tested, committed.

The other modules only look at what is collected here, so that each event is touched once.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from recollect.agentkit.calls import find_patches, named_path, patched_paths
from recollect.digest import shell, words
from recollect.digest.texts import payload_text
from recollect.model import schema
from recollect.model.kinds import OPENED_PULL_REQUEST
from recollect.model.text import ELLIPSIS
from recollect.sessions import MINUTE_MS
from recollect.store import IS_ABANDONED, Step

PAUSE_MS = 5 * 60_000  # a longer silence is not counted as working time
IDLE_MS = 30 * 60_000  # a longer one is worth telling
NO_TIME = -1  # the minute of what has no time

PLAN = "proposed a plan"
REFUSED = "refused: "  # and then the user's reason
_CUT = re.compile(r"\|\s*(?:tail|head|tee|cat)\b[^|]*$")
_EXIT_1 = re.compile(r"exit 1\b")
_EDITED = re.compile(r"^(?:edited|wrote|created|deleted|changed) (.+)$")
_TODO_TOOL = re.compile(r"todo|plan$|^task(?:create|update)", re.IGNORECASE)
NOTES = frozenset({schema.LIFECYCLE, schema.THINKING, schema.OTHER})
_KEPT = frozenset({schema.USER_MSG, schema.ASSISTANT_MSG, schema.COMPLETION, schema.THINKING})
NATIVE_BYTES = 300  # of a payload that are no words but the agent's own bookkeeping, about
MOST_COMMITS = 6  # of which the message is looked up
CHURN_ROUNDS = 3  # times a file is edited again after a failure
LINE_BYTES = 120  # of the line that stands for a call or a result, at most
CALLS = (schema.TOOL_CALL, schema.TEST_RUN, schema.EDIT, schema.RETRY)

Payloads = Mapping[bytes, Mapping[str, Any]]  # by event


@dataclass(slots=True)
class SuiteRun:
    """A run of tests; `has_passed` is None if it says nothing of them, or nobody saw it end."""

    call: Step
    family: str
    command: str
    result: Step | None = None
    has_passed: bool | None = None


@dataclass(slots=True)
class Edit:
    call: Step
    paths: tuple[str, ...]
    has_failed: bool = False  # refused, cut off, or not seen to end


@dataclass(slots=True)
class Use:
    """How often something was called, and how often it failed or was refused by the user."""

    count: int = 0
    failures: int = 0
    refusals: int = 0
    last_failure: Step | None = None  # what it said

    def fail(self, error: Step) -> None:
        self.failures += 1
        self.last_failure = error


@dataclass(slots=True)
class Trace:
    """What a session's events tell, in reading order. Rewound events count as work but tell nothing of its end."""

    steps: list[Step]  # without copies and rewound events
    has_own: bool  # False if every event is a copy: then nothing is counted
    has_worked: bool = False  # the agent, in these events or before them
    latest: Step | None = None  # the event with the latest time so far
    requests: list[Step] = field(default_factory=list)
    # What the user said or did after the agent had begun to work; and if after a stop, to say why or what now.
    replies: list[tuple[Step, bool]] = field(default_factory=list)
    calls: dict[str, Step] = field(default_factory=dict)
    tests: list[SuiteRun] = field(default_factory=list)
    edits: list[Edit] = field(default_factory=list)
    commits: list[tuple[Step, str]] = field(default_factory=list)  # calls, and messages as their summaries tell them
    witnesses: dict[bytes, Step] = field(default_factory=dict)  # outputs that must tell of a commit, by its call
    openings: list[tuple[Step, Step]] = field(default_factory=list)  # calls that may have opened pull requests; results
    pull_requests: list[tuple[Step, str, str]] = field(default_factory=list)  # the call, its address, its title
    links: list[Step] = field(default_factory=list)  # the agent's own records of pull requests that were opened
    removals: list[Step] = field(default_factory=list)  # calls that deleted files, if their commands bear it out
    deleted: dict[str, None] = field(default_factory=dict)  # paths, in order
    errors: list[Step] = field(default_factory=list)
    service_retries: list[Step] = field(default_factory=list)
    retries: list[Step] = field(default_factory=list)
    interventions: list[Step] = field(default_factory=list)
    decisions: list[Step] = field(default_factory=list)
    questions: list[Step] = field(default_factory=list)
    compactions: list[Step] = field(default_factory=list)
    todo_calls: list[Step] = field(default_factory=list)
    insights: list[tuple[Step, str]] = field(default_factory=list)  # messages that found something out, and what
    idles: list[tuple[Step, Step]] = field(default_factory=list)
    last_answer: Step | None = None
    answers: dict[bytes, Step] = field(default_factory=dict)  # by request: the last words before the next one
    reactions: dict[bytes, Step] = field(default_factory=dict)  # by reply: the agent's first words after it
    denials: list[Step] = field(default_factory=list)  # calls that a rule refused
    undone: set[str] = field(default_factory=set)  # calls that failed, were refused or cut off
    refused: set[str] = field(default_factory=set)  # those of them that were refused, by the user or a rule
    ran: dict[str, Step] = field(default_factory=dict)  # calls that ran a command, by their ids
    failed: dict[str, Step] = field(default_factory=dict)  # how those of them ended that failed
    tools: dict[tuple[int, str], Use] = field(default_factory=lambda: defaultdict(Use))  # by minute and name
    commands: dict[tuple[int, str], Use] = field(default_factory=lambda: defaultdict(Use))
    active_ms: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # by minute
    turns: dict[int, int] = field(default_factory=lambda: defaultdict(int))  # by minute
    all_bytes: int = 0  # of what was said, called and returned, about
    kept_bytes: int = 0  # of it in filtered exchanges

    @property
    def standing_tests(self) -> list[SuiteRun]:
        """Test runs that were not rewound: only these tell how it stands."""
        return [run for run in self.tests if not run.call.is_abandoned]

    def plan_of(self, step: Step) -> Step | None:
        """The plan that an answer of the user is about."""
        call = self.calls.get(step.call_id or "")
        return call if call is not None and call.summary.startswith(PLAN) else None

    def wanted(self) -> list[Step]:
        """Events whose payloads are needed: of all others the summary says enough."""
        chosen = [step for step in self.requests[:1] if step.summary.endswith(ELLIPSIS)] + self.todo_calls
        chosen += [self.last_answer] if self.last_answer else []  # a summary has lost its lines
        chosen += [run.result for run in self.tests if run.result and run.result.kind != schema.HUMAN_INTERVENTION]
        chosen += list(filter(None, map(self.plan_of, self.decisions)))
        chosen += [run.call for run in self.tests]  # a summary has lost the line ends between commands
        chosen += [call for call in self.ran.values() if shell.is_unclear(shell.command_of(call.summary) or "")]
        chosen += [edit.call for edit in self.edits if edit.call.summary.endswith(ELLIPSIS)]
        chosen += [edit.call for edit in self._edits_spelled_short()]
        chosen += self._errors_of_churn()
        chosen += [call for call, _ in self.commits[-MOST_COMMITS:]] + list(self.witnesses.values())
        chosen += self.removals + [result for _, result in self.openings]
        return list({step.event_uid: step for step in chosen}.values())

    def _edits_spelled_short(self) -> list[Edit]:
        """Edits of a file whose name is also the end of another's: one file seen from two folders, or two files."""
        paths = {path for edit in self.edits for path in edit.paths}
        ends = {
            "/".join(parts[start:]) for path in paths if (parts := path.split("/")) for start in range(1, len(parts))
        }
        short = paths & ends
        return [edit for edit in self.edits if not short.isdisjoint(edit.paths)] if short else []

    def _errors_of_churn(self) -> list[Step]:
        """Errors of commands in a session that edited a file often: their outputs tell which file was at fault."""
        edited = Counter(path for edit in self.edits for path in edit.paths)
        if not edited or max(edited.values()) <= CHURN_ROUNDS:
            return []
        commands = (step for step in self.errors if step.call_id in self.calls)
        return [step for step in commands if shell.command_of(self.calls[step.call_id or ""].summary) is not None]


def read_trace(steps: Sequence[Step], latest: Step | None = None, *, has_worked: bool = False) -> Trace:
    """Collect what happened. `steps` are a session's events in reading order, but for its side files.

    Of a part of a session, `latest` is the latest event before it, and `has_worked` whether the agent had begun to.
    """
    own = [step for step in steps if step.copy_of is None]
    counted = [step for step in own or steps if not step.flags & IS_ABANDONED]
    teller = _Teller(Trace(counted, bool(own), has_worked, latest))
    teller.read(own or steps)
    teller.break_off()
    _weigh(teller.trace, own or steps)
    return teller.trace


def _weigh(trace: Trace, steps: Sequence[Step]) -> None:
    """Bytes before and after filtering, by the rules of `exchanges`, as far as rows tell."""
    for step in steps:
        words, size, kind = len(step.summary), step.payload_bytes - NATIVE_BYTES, step.kind
        size = size if size > words else words
        trace.all_bytes += size
        if kind in _KEPT:
            trace.kept_bytes += size if step.summary.endswith(ELLIPSIS) else words
        elif kind != schema.LIFECYCLE:
            trace.kept_bytes += size if size < LINE_BYTES else LINE_BYTES


def settle(trace: Trace, payloads: Payloads) -> None:
    """Decide what the summaries leave open, by the payloads that were wanted."""
    _settle_tests(trace, payloads)
    _settle_commands(trace, payloads)
    _settle_paths(trace, payloads)
    for call_uid, result in trace.witnesses.items():
        if not shell.says_committed(_output(result, payloads)):
            trace.commits = [commit for commit in trace.commits if commit[0].event_uid != call_uid]
    for call, result in trace.openings:
        if opened := shell.pull_request(shell.command_of(call.summary) or "", _output(result, payloads)):
            trace.pull_requests.append((call, *opened))
    for step in trace.links:
        address = step.summary.removeprefix(OPENED_PULL_REQUEST)
        if not any(address == known for _, known, _ in trace.pull_requests):
            trace.pull_requests.append((step, address, ""))
    for call in trace.removals:
        command = shell.command_given(payloads.get(call.event_uid, {})) or ""
        trace.deleted |= dict.fromkeys(shell.removed_files(command))


def _output(result: Step, payloads: Payloads) -> str:
    return payload_text(payloads.get(result.event_uid, {})) or result.summary


def _settle_tests(trace: Trace, payloads: Payloads) -> None:
    """Decide which test runs passed."""
    for run in trace.tests:
        result = run.result
        if result is None or result.kind == schema.HUMAN_INTERVENTION or run.call.call_id in trace.refused:
            continue
        run.command = shell.command_given(payloads.get(run.call.event_uid, {})) or run.command
        output, has_failed = _output(result, payloads), result.kind == schema.ERROR
        if has_failed and words.was_cut_off(result.summary):
            run.has_passed = False if shell.tests_failed(output) else None
        else:
            run.has_passed = shell.verdict(run.command, result.summary, output, has_failed=has_failed)


def _settle_commands(trace: Trace, payloads: Payloads) -> None:
    """Count what ran, and what failed by the part of a chain that did: those behind it never began."""
    tests = {run.call.event_uid: run for run in trace.tests if run.result is not None}
    for call_id, call in trace.ran.items():
        command = shell.command_given(payloads.get(call.event_uid, {})) or shell.command_of(call.summary) or ""
        run, error = tests.get(call.event_uid), trace.failed.get(call_id)
        failed = shell.failed_program(command, error.summary) if error is not None else None
        if run is not None and run.has_passed is False:
            failed, error = run.family, run.result
        elif run is not None and run.has_passed and failed == run.family:
            failed = None
        for name in dict.fromkeys((*shell.programs(command, failed), *([failed] if failed else ()))):
            trace.commands[_minute(call), name].count += 1
        if failed is not None and error is not None:
            trace.commands[_minute(call), failed].fail(error)


def _settle_paths(trace: Trace, payloads: Payloads) -> None:
    """Name the files that a summary is too short for; files that were named from another folder get the names they
    have elsewhere."""
    for edit in trace.edits:
        given = payloads.get(edit.call.event_uid, {}).get("input")
        if edit.call.summary.endswith(ELLIPSIS):
            edit.paths = tuple(dict.fromkeys(_edited_paths(given))) or edit.paths
        elif len(edit.paths) == 1 and isinstance(given, Mapping):
            path = named_path(given) or ""
            edit.paths = (path,) if path.endswith(edit.paths[0]) else edit.paths


def _edited_paths(given: Any) -> Iterable[str]:
    """All files that an edit's arguments name."""
    if patched := [path for patch in find_patches(given) for path in patched_paths(patch)]:
        return patched
    fields = given if isinstance(given, Mapping) else {}
    changes = fields.get("changes")
    return changes if isinstance(changes, Mapping) else filter(None, [named_path(fields)])


def _minute(step: Step) -> int:
    return NO_TIME if step.ts_ms is None else step.ts_ms // MINUTE_MS


class _Teller:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self._waiting: dict[str, SuiteRun | Edit] = {}
        self._has_begun = False  # to work since the last request
        self._reply: Step | None = None  # while the agent has said nothing to it
        self._slash: Step | None = None  # a command of the agent's own, which may be the request
        self._is_stopped = False
        self._stopped_call: Step | None = None  # an intervention that concerned a call, while nothing came after it

    def read(self, steps: Iterable[Step]) -> None:
        active_ms, latest = self.trace.active_ms, self.trace.latest
        latest_ms = (latest.ts_ms or 0) if latest else 0
        for step in steps:
            now = step.ts_ms
            if now is not None and now >= latest_ms:
                if now - latest_ms <= PAUSE_MS:
                    active_ms[now // MINUTE_MS] += now - latest_ms
                elif latest is not None and now - latest_ms >= IDLE_MS:
                    self.trace.idles.append((latest, step))
                latest, latest_ms = step, now
            handler = _HANDLERS.get(step.kind)
            if handler is not None:
                handler(self, step)
            if step.kind not in NOTES:
                is_of_call = step.kind == schema.HUMAN_INTERVENTION and step.call_id
                self._stopped_call = step if is_of_call else None
        self.trace.latest = latest
        if not self.trace.has_worked and not self.trace.replies:  # a log of prompts alone
            self.trace.replies = [(step, False) for step in self.trace.requests[1:]]

    def break_off(self) -> None:
        """Edits with which a log that tells results ends, before theirs came, are not known to be made."""
        if not any(step.kind in (schema.TOOL_RESULT, schema.ERROR) for step in self.trace.steps):
            return
        for step in reversed(self.trace.steps):
            if step.kind not in NOTES and step.kind not in CALLS:
                return
            if isinstance(edit := self._waiting.get(step.call_id or ""), Edit):
                edit.has_failed = True

    def _request(self, step: Step) -> None:
        self.trace.turns[_minute(step)] += 1
        if step.is_abandoned:
            return
        trace, is_after_stop = self.trace, self._is_stopped
        if self._is_stopped and not self._has_begun and trace.requests:
            asked_before = trace.requests.pop()  # taken back to be asked in other words
            trace.replies = [reply for reply in trace.replies if reply[0] is not asked_before]
            is_after_stop = False
        if trace.has_worked:
            trace.replies.append((step, is_after_stop))
            self._reply = step
        self._is_stopped = self._has_begun = False
        trace.requests.append(step)

    def _answer(self, step: Step) -> None:
        if step.is_abandoned:
            return
        self._work()
        trace = self.trace
        trace.last_answer = step
        if trace.requests:
            trace.answers[trace.requests[-1].event_uid] = step
        if self._reply is not None:
            trace.reactions[self._reply.event_uid] = step
            self._reply = None
        if found := words.insight(step.summary):
            trace.insights.append((step, found))

    def _work(self) -> None:
        self.trace.has_worked = self._has_begun = True
        self._is_stopped = False
        if self._slash is not None and not self.trace.requests:
            self.trace.requests.append(self._slash)

    def _call(self, step: Step) -> None:
        trace = self.trace
        if step.call_id:
            trace.calls[step.call_id] = step
        if step.role != "assistant":
            return
        self._work()
        self._reply = None  # what it says after work is no answer to the words alone
        tool = step.tool or "unknown"
        trace.tools[_minute(step), tool].count += 1
        if step.is_retry:
            trace.retries.append(step)
        command = shell.command_of(step.summary)
        if command is not None:
            self._ran(step, command)
        elif step.is_abandoned:
            return
        elif _TODO_TOOL.search(tool):
            trace.todo_calls.append(step)
        elif step.summary.startswith("asked: "):
            trace.questions.append(step)

    def _ran(self, step: Step, command: str) -> None:
        tests = shell.test_family(command) if step.kind == schema.TEST_RUN else shell.test_task(command)
        self.trace.ran[step.call_id or step.uid] = step
        if tests and not shell.only_lists_tests(command):
            run = SuiteRun(step, tests, command)
            self.trace.tests.append(run)
            self._waiting |= {step.call_id: run} if step.call_id else {}

    def _retry(self, step: Step) -> None:
        if step.role == "system":
            self.trace.service_retries.append(step)
        else:
            self._call(step)

    def _edit(self, step: Step) -> None:
        self._call(step)
        edited = _EDITED.match(step.summary)
        paths = tuple(path for path in edited[1].split(", ") if not path.endswith(ELLIPSIS)) if edited else ()
        edit = Edit(step, paths)
        self.trace.edits.append(edit)
        if step.call_id:
            self._waiting[step.call_id] = edit

    def _result(self, step: Step) -> None:
        self._made_by_shell(self.trace.calls.get(step.call_id or ""), step)
        waiting = self._waiting.get(step.call_id or "")
        if isinstance(waiting, SuiteRun):
            waiting.result = step
        elif words.is_pasted_output(step.summary) and self._is_cut(step):
            self.trace.errors.append(step)

    def _is_cut(self, result: Step) -> bool:
        """Whether a pipe hides how a command went that does more than look."""
        call = self.trace.calls.get(result.call_id or "")
        command = shell.command_of(call.summary) if call is not None and call.role == "assistant" else None
        return command is not None and _CUT.search(command) is not None and not shell.only_looks(command)

    def _made_by_shell(self, call: Step | None, result: Step) -> None:
        """What a command did that no tool of its own tells: commits, pull requests, files that are gone."""
        command = shell.command_of(call.summary) if call is not None and call.role == "assistant" else None
        if call is None or command is None:
            return
        message = shell.commit_message(command) if "commit" in command else None
        if message is not None and "nothing to commit" not in result.summary:
            self.trace.commits.append((call, message))
            self.trace.witnesses |= {call.event_uid: result} if shell.hides_commit(command) else {}
        if " create" in command and shell.opens_pull_request(command):
            self.trace.openings.append((call, result))
        if ("rm " in command or "unlink " in command) and shell.removed_files(command):
            self.trace.removals.append(call)

    def _error(self, step: Step) -> None:
        if step.role == "user":
            return  # the user's own shell
        call = self.trace.calls.get(step.call_id or "")
        if call is None or call.role != "assistant":
            self.trace.errors.append(step)
            return
        uses = self.trace.tools[_minute(call), call.tool or "unknown"]
        command = shell.command_of(call.summary)
        if words.was_cut_off(step.summary):
            if words.timed_out(step.summary):
                uses.fail(step)
                self.trace.failed[step.call_id or ""] = step
            self._end_call(step, is_done=False)
        elif words.is_refused_by_rule(step.summary):
            self.trace.denials.append(step)
            self.trace.refused.add(step.call_id or "")
            uses.refusals += 1
            self._end_call(step, is_done=False)
        elif command is not None and _EXIT_1.match(step.summary) and shell.answers_by_exit(command):
            self._end_call(step, is_done=True)
        else:
            self.trace.errors.append(step)
            uses.fail(step)
            self.trace.failed[step.call_id or ""] = step
            self._end_call(step, is_done=False)

    def _end_call(self, result: Step, *, is_done: bool) -> None:
        """Tell the edit or the test run that waits for its result."""
        waiting = self._waiting.get(result.call_id or "")
        if not is_done:
            self.trace.undone.add(result.call_id or "")
        if isinstance(waiting, Edit):
            waiting.has_failed = not is_done
        elif isinstance(waiting, SuiteRun):
            waiting.result = result

    def _intervention(self, step: Step) -> None:
        if self._stopped_call is not None and not step.summary.startswith(REFUSED):
            # One act of the user, told of the call, of those beside it, and of the turn.
            self._is_stopped = True
            self._end_call(step, is_done=False)
            return
        self.trace.interventions.append(step)
        if not step.is_abandoned:
            self._is_stopped = step.status == "interrupted"
            self.trace.replies.append((step, False))
        call = self.trace.calls.get(step.call_id or "")
        if call is not None:
            if not words.was_cut_off(step.summary):
                self.trace.tools[_minute(call), call.tool or "unknown"].refusals += 1
                self.trace.refused.add(step.call_id or "")
            self._end_call(step, is_done=False)

    def _decision(self, step: Step) -> None:
        self.trace.decisions += [] if step.is_abandoned else [step]

    def _lifecycle(self, step: Step) -> None:
        if step.summary.startswith("/") and not step.is_abandoned:
            self._slash = step
        elif words.COMPACTED.search(step.summary):
            self.trace.compactions.append(step)
        elif step.summary.startswith(OPENED_PULL_REQUEST) and not step.is_abandoned:
            self.trace.links.append(step)


# Not of bound methods: a teller that holds itself would stay, with all its events, until the garbage is collected.
_HANDLERS: dict[str, Callable[[_Teller, Step], None]] = {
    schema.USER_MSG: _Teller._request,
    schema.ASSISTANT_MSG: _Teller._answer,
    schema.COMPLETION: _Teller._answer,
    schema.TOOL_CALL: _Teller._call,
    schema.RETRY: _Teller._retry,
    schema.EDIT: _Teller._edit,
    schema.TEST_RUN: _Teller._call,
    schema.TOOL_RESULT: _Teller._result,
    schema.ERROR: _Teller._error,
    schema.HUMAN_INTERVENTION: _Teller._intervention,
    schema.DECISION: _Teller._decision,
    schema.LIFECYCLE: _Teller._lifecycle,
}
