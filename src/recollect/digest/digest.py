"""The digest of a session: what was asked, done and left open, in its own words, small enough to keep for ever.

A long session is distilled in parts that are joined; most sessions are one part. Beside its digest a part has the
session's signals, and its work, tokens and money by minute and model.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TypeVar

from recollect.digest import VERSION, words
from recollect.digest.outcome import (
    SPOKEN,
    Ending,
    Todo,
    asks_back,
    corrections,
    counted,
    error_key,
    find_ending,
    find_signals,
    is_interruption,
    is_work,
    judge,
    todo_list,
    weighed,
)
from recollect.digest.shell import command_given, commit_message
from recollect.digest.texts import excerpt, input_text, one_line, payload_text, sentences, shortened
from recollect.digest.trace import CALLS, MOST_COMMITS, NO_TIME, NOTES, PLAN, Payloads, SuiteRun, Trace, Use, settle
from recollect.model import schema
from recollect.model.clock import rfc3339
from recollect.model.schema import Asked, Covers, Digest, OpenEnds, Outcome, Quote, RanTests, Signal, Tally
from recollect.sessions import MINUTE_MS, Used, has_subject, tokens_of
from recollect.store import ActivityRow, Response, Step, UseRow

FIRST_REQUEST_CHARS = 400
REQUEST_CHARS = 200
ANSWER_CHARS = 900
LINE_CHARS = 160
FIRST_REQUESTS = 4
LAST_REQUESTS = 8
MOST_FILES = 20
MOST_COMMANDS = 10
MOST_TOOLS = 12
MOST_QUOTES = 6
MOST_SUB_AGENTS = 12
NOT_THE_END = "the session went on without words of the agent"
# Of requests that the agent acted on.
FAILED, NOT_FINISHED, INTERRUPTED, STOPPED = "failed", "not finished", "interrupted", "stopped"
CORRECTION, PASTED_FAILURE = "correction", "output pasted"
_STEPS_OF_HEADING = 3

_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Subject:
    """The session a digest is of, as its row tells it."""

    session_uid: str
    title: str | None
    cwd: str | None
    tokens: Mapping[str, int]
    usd: float | None
    usd_is_estimate: bool
    started_ms: int | None
    ended_ms: int | None
    covers: Covers | None = None  # and the rest only with the last part of a session
    sub_agents: Sequence[str] = ()
    models: Sequence[str] = ()


def _quote(step: Step, text: str | None = None, note: str | None = None, chars: int = LINE_CHARS) -> Quote:
    return Quote(shortened(step.summary if text is None else text, chars), step.uid, note)


def _decision(trace: Trace, step: Step, payloads: Payloads) -> str:
    """What the user decided; of a plan, with its title."""
    plan = trace.plan_of(step)
    lines = () if plan is None else input_text(payloads.get(plan.event_uid, {})).splitlines()
    title = next((line.strip("#* ").removeprefix("Plan: ") for line in lines if line.strip("#* ")), "")
    return f"{step.summary}: {title}" if title else step.summary


def _is_confirmed(trace: Trace, insight: Step) -> bool:
    """Whether a run that succeeded or the user's next words bear out what the agent found."""
    asked = {step.event_uid for step in trace.requests}
    for step in trace.steps[trace.steps.index(insight) + 1 :]:
        if step.event_uid in asked:
            return not words.corrects(step.summary) and not words.says_broken(step.summary)
        call = trace.calls.get(step.call_id or "") if step.kind == schema.TOOL_RESULT else None
        if call is not None and call.kind != schema.EDIT and call.call_id not in trace.undone and is_work(call):
            return True
    return False


def _text(step: Step, payloads: Payloads) -> str:
    return payload_text(payloads.get(step.event_uid, {})) or step.summary


def _requests(trace: Trace, payloads: Payloads) -> tuple[Asked, ...]:
    shown = _ends(_telling(trace), FIRST_REQUESTS, LAST_REQUESTS)
    texts = [shortened(step.summary, REQUEST_CHARS) for step in shown]
    if shown:
        texts[0] = shortened(_text(shown[0], payloads), FIRST_REQUEST_CHARS)
    # Of what the agent said last to each, the beginning.
    said = [trace.answers.get(step.event_uid) for step in shown]
    answers = [_quote(one, words.gist(one.summary)) if one and one is not trace.last_answer else None for one in said]
    return tuple(Asked(text, step.uid, one) for text, step, one in zip(texts, shown, answers, strict=True))


def _telling(trace: Trace) -> Sequence[Step]:
    """The requests that say something; of many, those that led to edits or runs, and the last."""
    telling = [step for step in trace.requests if has_subject(step.summary)] or trace.requests
    if len(telling) <= FIRST_REQUESTS + LAST_REQUESTS:
        return telling
    asked = {step.event_uid for step in trace.requests}
    current, worked = b"", {telling[-1].event_uid}
    for step in trace.steps:
        if step.event_uid in asked:
            current = step.event_uid
        elif is_work(step):
            worked.add(current)
    return [step for step in telling if step.event_uid in worked]


def _ends(items: Sequence[_T], first: int, last: int) -> tuple[_T, ...]:
    """The first and last few; what a session began and ended with says most."""
    return tuple(items) if len(items) <= first + last else (*items[:first], *items[-last:])


def _final_answer(trace: Trace, payloads: Payloads, ending: Ending) -> Quote | None:
    """The agent's last words, and a note if the session did not end with them."""
    last = trace.last_answer
    if last is None:
        return None
    is_end = ending.last is None or ending.last.kind in SPOKEN
    return Quote(excerpt(_text(last, payloads), ANSWER_CHARS), last.uid, None if is_end else NOT_THE_END)


def _inside(path: str, cwd: str | None) -> str:
    """A path as seen from the session's folder, in one spelling of slashes and drives."""
    path = _plain(path)
    return path.removeprefix(f"{_plain(cwd).rstrip('/')}/") if cwd else path


def _plain(path: str) -> str:
    if _DRIVE.match(path):
        path = path[0].upper() + path[1:].replace("\\", "/")
    return path.removeprefix("./")


def _by_name(uses: Mapping[tuple[int, str], Use]) -> dict[str, Tally]:
    """Uses of all days together."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for (_, name), use in uses.items():
        found[name][0] += use.count
        found[name][1] += use.failures
    return {name: Tally(shortened(name, LINE_CHARS), count, failures) for name, (count, failures) in found.items()}


def _tallies(named: Mapping[str, Tally], limit: int) -> tuple[Tally, ...]:
    return tuple(sorted(named.values(), key=lambda tally: (-tally.count, tally.name))[:limit])


def _commits(trace: Trace, payloads: Payloads) -> tuple[Quote, ...]:
    made = trace.commits[-MOST_COMMITS:]
    commands = (command_given(payloads.get(call.event_uid, {})) for call, _ in made)
    subjects = (command and commit_message(command) for command in commands)
    return tuple(
        _quote(call, subject or message or "(message not told)")
        for (call, message), subject in zip(made, subjects, strict=True)
    )


def _tests(trace: Trace) -> RanTests:
    begun = sum(not _was_refused(run) for run in trace.tests)
    runs = [run for run in trace.tests if run.has_passed is not None]
    standing = [run for run in runs if not run.call.is_abandoned]
    counts = begun, sum(run.has_passed is False for run in runs), max(0, begun - len(runs))
    if not standing:
        return RanTests(*counts)
    last = standing[-1]
    said = last.result or last.call
    last_run = _quote(said, last.call.summary, note=said.summary[-LINE_CHARS:])
    return RanTests(*counts, "passed" if last.has_passed else "failed", last_run)


def _was_refused(run: SuiteRun) -> bool:
    if run.result is None or run.result.kind == schema.HUMAN_INTERVENTION:
        return run.result is not None
    return run.result.is_error and words.is_refused_by_rule(run.result.summary)


def _open_ends(trace: Trace, outcome: Outcome, ending: Ending, listed: Sequence[Todo]) -> OpenEnds:
    tests = _tests(trace)
    is_stopped = ending.last is not None and ending.last.kind == schema.HUMAN_INTERVENTION and not _is_of_plan(trace)
    said = sentences(ending.answer)
    return OpenEnds(
        todos=tuple(_quote(todo.call, todo.text, todo.status) for todo in listed if todo.is_open)[:MOST_QUOTES],
        questions=_questions(trace, said),
        next_steps=_next_steps(trace, said),
        failing_tests=tests.last_run if tests.last == "failed" else None,
        interruption=_quote(ending.last) if ending.last is not None and is_stopped else None,
        unanswered=_unanswered_requests(trace, outcome, ending),
    )


def _is_of_plan(trace: Trace) -> bool:
    """Whether the last call proposed a plan: who stops there may well have it carried out in a session of its own."""
    last = next((step for step in reversed(trace.steps) if step.kind in CALLS), None)
    return last is not None and last.summary.startswith(PLAN)


def _unanswered_requests(trace: Trace, outcome: Outcome, ending: Ending) -> tuple[Quote, ...]:
    """Requests at the end after which the agent did nothing, and the last one if it failed or was left amid the work.

    Thanks want no answer. A note says what became of a request that the agent did act on.
    """
    asked = {step.event_uid for step in trace.requests}
    waiting: list[Step] = []
    for step in reversed(trace.steps):
        if step.event_uid in asked:
            waiting.append(step)
        elif step.kind not in NOTES and step.role != "user":
            break
    open_ends = [_quote(step) for step in reversed(waiting) if not words.says_thanks(step.summary)]
    last = ending.request
    if open_ends and is_interruption(ending.last):
        open_ends[-1] = replace(open_ends[-1], note=INTERRUPTED)
    elif not waiting and last is not None and not _is_of_plan(trace) and (note := _left_as(outcome, ending)):
        open_ends.append(_quote(last, note=note))
    return tuple(open_ends[-MOST_QUOTES:])


def _left_as(outcome: Outcome, ending: Ending) -> str | None:
    """What became of the last request, which the agent acted on; None if it was answered."""
    if outcome.stopped_by is not None:
        return f"{STOPPED}: {outcome.stopped_by}"
    if outcome.outcome == schema.FAIL:
        return FAILED
    if outcome.outcome != schema.ABANDONED or (ending.answer and not words.announces_work(ending.answer)):
        return None
    return INTERRUPTED if is_interruption(ending.last) else NOT_FINISHED


def _questions(trace: Trace, said: Sequence[str]) -> tuple[Quote, ...]:
    """Questions nobody answered: of the agent's question calls, and the one it ended with."""
    answered = {step.call_id for step in trace.steps if step.role != "assistant"} if trace.questions else set()
    waiting = (step for step in trace.questions if step.call_id is None or step.call_id not in answered)
    questions = [_quote(step, step.summary.removeprefix("asked: ")) for step in waiting]
    if trace.last_answer is not None and (question := words.closing_question(said)):
        questions.append(_quote(trace.last_answer, question))
    return tuple(questions[-MOST_QUOTES:])


def _next_steps(trace: Trace, said: Sequence[str]) -> tuple[Quote, ...]:
    if trace.last_answer is None:
        return ()
    found: list[str] = []
    following = 0
    for sentence in said:
        is_next = words.names_next_step(sentence)
        if is_next and words.is_heading(sentence):
            following = _STEPS_OF_HEADING
        elif is_next or following:
            found.append(sentence)
            following = max(0, following - 1)
    return tuple(_quote(trace.last_answer, sentence) for sentence in found[:MOST_QUOTES])


def _errors(errors: Iterable[Step]) -> tuple[Quote, ...]:
    """Different errors, the most frequent first; each is cited where it happened last."""
    found: dict[str, list[Step]] = defaultdict(list)
    for step in errors:
        found[error_key(step.summary)].append(step)
    ranked = sorted(found.values(), key=lambda steps: -len(steps))[:MOST_QUOTES]
    return tuple(_quote(steps[-1], note=f"{len(steps)} times" if len(steps) > 1 else None) for steps in ranked)


def _interventions(trace: Trace, corrected: Sequence[tuple[Step, str]]) -> tuple[Quote, ...]:
    """What the user stopped, refused or set right, in order. Where not all of it fits, a mere stop tells least."""
    quotes = {
        step.event_uid: _quote(step, text, PASTED_FAILURE if words.is_pasted_output(text) else CORRECTION)
        for step, text in corrected
    }
    notes = {"denied": "refused", "interrupted": "interrupted"}
    for step in trace.interventions:
        call = trace.calls.get(step.call_id or "")
        if call is not None and asks_back(call):
            continue  # without a reason it may well have been taken up elsewhere
        is_cut_off = call is not None and words.was_cut_off(step.summary)
        note = "cut off" if is_cut_off else notes.get(step.status or "", "stopped")
        quotes.setdefault(step.event_uid, _quote(step, call.summary if call else None, note))
    ordered = [quotes[step.event_uid] for step, _ in trace.replies if step.event_uid in quotes]
    if len(ordered) > MOST_QUOTES:
        ordered = [quote for quote in ordered if quote.note in (CORRECTION, PASTED_FAILURE, "refused")] or ordered
    return _ends(ordered, MOST_QUOTES // 2, MOST_QUOTES // 2)


def extend(old: Digest, new: Digest, width: int = 1) -> Digest:
    """The digest of a session that grew, from the one made before and one of the new events alone.

    Counts add up, lists are joined and cut as usual, and of what describes the end the newer is kept if it tells
    anything. The row's own figures (tokens, money, title) are whole in `new` already only if they were never dropped,
    so the larger ones are kept.
    """
    answer = old.final_answer
    has_gone_on = new.request_count or new.tools or new.error_count or new.intervention_count
    is_no_longer_last = new.final_answer is None and has_gone_on
    return replace(
        new,
        covers=Covers(
            old.covers.event_count + new.covers.event_count,
            new.covers.last_event_uid or old.covers.last_event_uid,
            min(old.covers.distiller, new.covers.distiller),
        ),
        title=new.title or old.title,
        outcome=new.outcome if _tells_an_end(new) else old.outcome,
        requests=_ends((*_answered(old, new), *new.requests), FIRST_REQUESTS, LAST_REQUESTS),
        request_count=old.request_count + new.request_count,
        final_answer=replace(answer, note=NOT_THE_END) if answer and is_no_longer_last else new.final_answer or answer,
        files=_joined(old.files, new.files, MOST_FILES * width),
        file_count=max(
            old.file_count + len({one.name for one in new.files} - {one.name for one in old.files}), new.file_count
        ),
        commands=_joined(old.commands, new.commands, MOST_COMMANDS * width),
        commits=(*old.commits, *new.commits)[-MOST_COMMITS:],
        commit_count=old.commit_count + new.commit_count,
        pull_requests=(*old.pull_requests, *new.pull_requests)[-MOST_QUOTES:],
        deleted=tuple(dict.fromkeys((*old.deleted, *new.deleted)))[:MOST_FILES],
        tests=replace(
            new.tests if new.tests.last else old.tests,
            runs=old.tests.runs + new.tests.runs,
            failures=old.tests.failures + new.tests.failures,
            unfinished=old.tests.unfinished + new.tests.unfinished,
        ),
        open=_joined_ends(old, new),
        tools=_joined(old.tools, new.tools, MOST_TOOLS * width),
        errors=(*new.errors, *old.errors)[:MOST_QUOTES],
        error_count=old.error_count + new.error_count,
        retries=old.retries + new.retries,
        interventions=_ends((*old.interventions, *new.interventions), MOST_QUOTES // 2, MOST_QUOTES // 2),
        intervention_count=old.intervention_count + new.intervention_count,
        decisions=(*old.decisions, *new.decisions)[-MOST_QUOTES:],
        snippets=_ends((*old.snippets, *new.snippets), MOST_QUOTES // 2, MOST_QUOTES // 2),
        sub_agents=tuple(dict.fromkeys((*old.sub_agents, *new.sub_agents)))[:MOST_SUB_AGENTS],
        models=tuple(dict.fromkeys((*new.models, *old.models)))[:MOST_QUOTES],
        tokens={name: max(count, new.tokens.get(name, 0)) for name, count in old.tokens.items()},
        usd=max((usd for usd in (old.usd, new.usd) if usd is not None), default=None),
        usd_is_estimate=old.usd_is_estimate or new.usd_is_estimate,
        started_at=min((at for at in (old.started_at, new.started_at) if at), default=None),
        ended_at=max((at for at in (old.ended_at, new.ended_at) if at), default=None),
        active_s=old.active_s + new.active_s,
        signals={
            name: total for name in schema.SIGNALS if (total := old.signals.get(name, 0) + new.signals.get(name, 0))
        },
    )


def _answered(old: Digest, new: Digest) -> tuple[Asked, ...]:
    """The requests of an old digest; what was its final answer is that of its last request once others follow."""
    *before, last = old.requests or (None,)
    answer = old.final_answer
    if last is None or last.answer is not None or answer is None or answer.note or new.final_answer is None:
        return old.requests
    return (
        *before,
        replace(last, answer=replace(answer, text=shortened(words.gist(one_line(answer.text)), LINE_CHARS))),
    )


def _tells_an_end(digest: Digest) -> bool:
    return digest.final_answer is not None or digest.request_count > 0 or digest.error_count > 0


def _joined(old: Sequence[Tally], new: Sequence[Tally], limit: int) -> tuple[Tally, ...]:
    joined = {tally.name: tally for tally in old}
    for tally in new:
        known = joined.get(tally.name, Tally(tally.name, 0))
        joined[tally.name] = Tally(tally.name, known.count + tally.count, known.failures + tally.failures)
    return _tallies(joined, limit)


def _joined_ends(old: Digest, new: Digest) -> OpenEnds:
    """What is open now: the new part's word counts where it says anything of the same sort."""
    has_gone_on = _tells_an_end(new)
    unanswered = old.open.unanswered
    if unanswered and new.tools and not unanswered[-1].note:  # the agent went to work on the last one since
        unanswered = (*unanswered[:-1], replace(unanswered[-1], note=NOT_FINISHED))
    has_list = any("todo" in tally.name.lower() or "plan" in tally.name.lower() for tally in new.tools)
    return OpenEnds(
        todos=new.open.todos if new.open.todos or has_list else old.open.todos,
        questions=new.open.questions if has_gone_on else old.open.questions,
        next_steps=new.open.next_steps if has_gone_on else old.open.next_steps,
        failing_tests=new.open.failing_tests if new.tests.last else old.open.failing_tests,
        interruption=new.open.interruption if has_gone_on else old.open.interruption,
        unanswered=new.open.unanswered if has_gone_on else unanswered,
    )


def activity_of(subject: Subject, minutes: Sequence[ActivityRow], used: Sequence[Used]) -> tuple[ActivityRow, ...]:
    """Work by minute, and tokens by minute and model; the rows' money adds up to the session's, cent for cent."""
    begun = NO_TIME if subject.started_ms is None else subject.started_ms // MINUTE_MS
    rows = {(row.minute, row.model): row for row in _spent(subject, used, begun)}
    models = dict(reversed(rows))  # the first of each minute: its row has the work too
    for work in (ActivityRow(begun, ""), *minutes):
        key = work.minute, models.get(work.minute, "")
        row = rows.get(key, ActivityRow(*key))
        rows[key] = row._replace(active_ms=row.active_ms + work.active_ms, turns=row.turns + work.turns)
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


_NAME_CHARS, _SAMPLE_CHARS = 300, 160
_DAY_MINUTES = 24 * 60
_WIDTH = 50  # lists of names in a closed part are that many times as long: what is rare there may be frequent in all


@dataclass(frozen=True, slots=True)
class Part:
    """What is distilled from some events of a session, from its beginning on or since the last part."""

    digest: Digest
    signals: tuple[Signal, ...]
    minutes: tuple[ActivityRow, ...]  # of all models
    tools: tuple[UseRow, ...]
    commands: tuple[UseRow, ...]
    all_bytes: int
    kept_bytes: int
    todos: dict[str, Todo]
    latest: Step | None
    has_worked: bool


def make_part(
    subject: Subject,
    session_class: str,
    trace: Trace,
    payloads: Payloads,
    responses: Sequence[Response],
    before: Part | None = None,
) -> Part:
    """Distil a part from its trace, the payloads its trace wants and its responses."""
    settle(trace, payloads)
    todos = todo_list(trace.todo_calls, payloads, {} if before is None else before.todos)
    listed = () if subject.covers is None else tuple(todos.values())  # only the end tells what is left to do
    ending = find_ending(trace, payloads)
    outcome = judge(trace, ending, listed, session_class)
    # Above a sub-agent is another agent: what that says is no human's correction.
    corrected = [] if session_class == schema.SUB_AGENT else list(corrections(trace))
    is_real = session_class != schema.WARM_UP  # what warms a cache is cancelled half-way: it counts for nothing
    signals = find_signals(subject.session_uid, trace, corrected, listed, responses, payloads) if is_real else []
    width = 1 if before is None and subject.covers else _WIDTH
    edited = Counter(_inside(path, subject.cwd) for edit in trace.edits if not edit.has_failed for path in edit.paths)
    confirmed = [found for found in trace.insights if _is_confirmed(trace, found[0])]
    last = next((step for step in reversed(trace.steps) if step.kind not in NOTES), None)
    tells_its_end = last is None or last.ts_ms is not None  # some logs tell only when they began
    digest = Digest(
        session_uid=subject.session_uid,
        covers=subject.covers or Covers(0, None, VERSION),
        title=shortened(subject.title, LINE_CHARS) if subject.title else None,
        outcome=outcome,
        requests=_requests(trace, payloads),
        request_count=len(trace.requests),
        final_answer=_final_answer(trace, payloads, ending),
        files=_tallies({path: Tally(shortened(path, LINE_CHARS), edited[path]) for path in edited}, MOST_FILES * width),
        file_count=len(edited),
        commands=_tallies(_by_name(trace.commands), MOST_COMMANDS * width),
        commits=_commits(trace, payloads),
        commit_count=len(trace.commits),
        pull_requests=tuple(
            _quote(call, address, shortened(title, LINE_CHARS) or None)
            for call, address, title in trace.pull_requests[-MOST_QUOTES:]
        ),
        deleted=tuple(dict.fromkeys(shortened(_inside(path, subject.cwd), LINE_CHARS) for path in trace.deleted))[
            :MOST_FILES
        ],
        tests=_tests(trace),
        open=_open_ends(trace, outcome, ending, listed),
        tools=_tallies(_by_name(trace.tools), MOST_TOOLS * width),
        errors=_errors(trace.errors),
        error_count=len(trace.errors),
        retries=len(trace.retries) + len(trace.service_retries),
        interventions=_interventions(trace, corrected),
        intervention_count=len(trace.interventions),
        decisions=tuple(_quote(step, _decision(trace, step, payloads)) for step in trace.decisions[-MOST_QUOTES:]),
        snippets=tuple(_quote(*found) for found in _ends(confirmed, MOST_QUOTES // 2, MOST_QUOTES // 2)),
        sub_agents=tuple(subject.sub_agents[:MOST_SUB_AGENTS]),
        models=tuple(subject.models[:MOST_QUOTES]),
        tokens=subject.tokens,
        usd=subject.usd,
        usd_is_estimate=subject.usd_is_estimate,
        started_at=rfc3339(subject.started_ms),
        ended_at=rfc3339(subject.ended_ms) if tells_its_end else None,
        active_s=sum(trace.active_ms.values()) // 1000,
        signals=counted(signals),
    )
    has_own = trace.has_own
    worked = sorted(set(trace.turns) | set(trace.active_ms)) if has_own else ()
    return Part(
        digest,
        tuple(signals),
        tuple(ActivityRow(at, "", active_ms=trace.active_ms.get(at, 0), turns=trace.turns.get(at, 0)) for at in worked),
        _uses(trace.tools) if has_own and is_real else (),
        _uses(trace.commands) if has_own and is_real else (),
        trace.all_bytes if has_own else 0,
        trace.kept_bytes if has_own else 0,
        todos,
        trace.latest,
        trace.has_worked,
    )


def _uses(uses: Mapping[tuple[int, str], Use]) -> tuple[UseRow, ...]:
    """Uses by minute and name; only the last failure of a name on a day says what it was."""
    last = {(minute // _DAY_MINUTES, name): use for (minute, name), use in sorted(uses.items()) if use.last_failure}
    rows = []
    for (minute, name), use in sorted(uses.items()):
        failure = use.last_failure if last.get((minute // _DAY_MINUTES, name)) is use else None
        sample, event = ("", None) if failure is None else (failure.summary[:_SAMPLE_CHARS], failure.uid)
        name = shortened(name, _NAME_CHARS)
        rows.append(UseRow(minute, name, sample, use.count, use.failures, use.refusals, event))
    return tuple(rows)


def closed(subject: Subject) -> Subject:
    """The subject of a part that is not the last: what may still change is not in it."""
    return Subject(subject.session_uid, None, subject.cwd, {}, None, False, None, None)


def join(before: Part | None, part: Part, *, is_last: bool) -> Part:
    """A part together with all before it."""
    if not is_last:
        ends = OpenEnds(failing_tests=part.digest.open.failing_tests)
        part = replace(part, digest=replace(part.digest, open=ends))
    if before is None:
        return part
    minutes = {row.minute: row for row in before.minutes}
    for row in part.minutes:
        old = minutes.get(row.minute, ActivityRow(row.minute, ""))
        minutes[row.minute] = old._replace(active_ms=old.active_ms + row.active_ms, turns=old.turns + row.turns)
    digest = extend(before.digest, part.digest, 1 if is_last else _WIDTH)
    return replace(
        part,
        digest=replace(digest, active_s=sum(row.active_ms for row in minutes.values()) // 1000),
        signals=before.signals + part.signals,
        minutes=tuple(minutes[minute] for minute in sorted(minutes)),
        tools=_joined_uses(before.tools, part.tools),
        commands=_joined_uses(before.commands, part.commands),
        all_bytes=before.all_bytes + part.all_bytes,
        kept_bytes=before.kept_bytes + part.kept_bytes,
    )


def _joined_uses(old: Iterable[UseRow], new: Iterable[UseRow]) -> tuple[UseRow, ...]:
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
