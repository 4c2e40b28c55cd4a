"""Errors and what fixed them: an error opens when a run fails and closes when the same thing succeeds.

What was changed in between is the resolution, if anything was. An error that a user reports closes with the exchange
that changed something for it, unless the user says afterwards that it is still there.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from recollect import schema
from recollect.distill import one_line, sentences, shell, shortened, words
from recollect.knowledge.demands import asks_change
from recollect.knowledge.exchanges import Turn, is_plan
from recollect.knowledge.facts import Finding, Material
from recollect.knowledge.mentions import NOTHING, Mentions
from recollect.knowledge.predicates import CAUSED_BY, FAILS_WITH, FIXED_BY, PASSED
from recollect.knowledge.runs import Change, Run
from recollect.knowledge.signature import error_in, fingerprint, placed_lines, telling_lines
from recollect.store import Step

RULE, REPORTED, CAUSE = "resolution", "reported", "cause"
GONE = "the error was gone in the next run, which failed otherwise"
_LEAST_LISTED, _MOST_LISTED = 2, 6  # errors of one output that have fixes of their own
MOST_STEPS = 6  # of a resolution
MOST_RUNS_TO_ALTERNATIVE = 3
_LEAST_SHARED = 0.4  # words of a command that its alternative has too
_WHOLE_CHARS = 60  # of a sentence that tells a cause by itself
_REPORT_CHARS = 1500  # of a request that describes a problem
_FAR = 60  # events between failure and success
_GUESS = 0.55  # too unsure to be shown unasked
_EXPLANATION_CHARS = 240
_MESSAGES_READ = 6

_EXPLAINS = re.compile(
    r"\b(?:because|since the|root cause|the (?:real |actual )?(?:issue|problem|bug|error|cause|fix|reason)\b|caused by"
    r"|due to|turns out|needs? to|must|missing|should (?:be|use|have)|was(?:n't| not)|is(?:n't| not)|are(?:n't| not)"
    r"|does(?:n't| not)|did(?:n't| not)|requires?|instead of|only (?:works|accepts)|no longer|too (?:long|short|small)"
    r"|expects?|conflicts?|unused|undefined)\b|原因|问题|因为|修复|причин|проблем|потому|weil|ursache"
    r"|parce que|porque",
    re.IGNORECASE,
)
_ANNOUNCES = re.compile(
    r"(?:(?:now|ok(?:ay)?|good|great|perfect)[,.!]? )?(?:let me|i'll|i will|now i|let's) (?:now )?(?:run|check|verify"
    r"|look|see|try|read|also|test|update|add|search|find|review|do|create|start|take|continue|rerun|re-run)\b"
    r"|(?:all )?(?:the )?(?:\w+ )?(?:tests?|checks?|lint(?:ing)?|build)\b[^.]{0,30}\b(?:pass|clean|green|succe)"
    r"|here(?:'s| is)",
    re.IGNORECASE,
)
# What an agent is about to do says nothing of why, unless it says so.
_PLANS = re.compile(
    r"\b(?:let me|let's|i(?:'ll| will|'m going to| need to| should| have to| want to| can see the)|now i"
    r"|now fix|also fix"
    r"|need to (?:update|fix|check|find|see|look|handle))\b|^(?:found it|wait)\b|^(?:update|fix|change|add) ",
    re.IGNORECASE,
)
_GIVES_REASON = re.compile(r"\b(?:because|since|so that|due to|as it)\b", re.IGNORECASE)
_NO_CAUSE = re.compile(
    r"\b(?:let me|the fix is|is fixed|likely not|your question|here's (?:the|what)|i'll|i will|i've completed|in how"
    r"|look at|issues?:$)\b|```|:$",
    re.IGNORECASE,
)
# Words of a user that ask for nothing in particular.
_GOES_ON = re.compile(
    r"(?:(?:ok(?:ay)?|yes|yeah|yep|sure|done|continue|go on|go ahead|please|try again|proceed|thanks|great|good"
    r"|now|then"
    r"|fix (?:it|them|this)(?: up)?|commit|push|and)\b[\s,.!]*)+"
)
_ASKED_CHARS = 400
_PROBLEM = re.compile(
    r"\b(?:issue|bug|errors?|wrong|broken|crash\w*|fail\w*|not (?:work|see|show|updat)\w*|does(?:n't| not)"
    r"|is(?:n't| not)|missing|problem|weird|unexpected|stuck|hangs?|slow|timeout|why (?:is|does|do|are))\b"
    r"|ошибк|не работает|エラー|错误|오류|fehler",
    re.IGNORECASE,
)
_VERB = re.compile(r"[a-z][a-z-]*")
_MASKED, _WORD = re.compile(r"<\w+>"), re.compile(r"[A-Za-z]{2,}")  # in a signature
_UNDOES = re.compile(r"\bgit (?:-C \S+ )?(?:checkout|restore|reset|stash|(?:rebase|merge|cherry-pick) --abort)\b")
_MISTYPED = re.compile(
    r"\bpars(?:e|ing)\b|\bsyntax\b", re.IGNORECASE
)  # what was wrong in one expression is right in others
# Of a run of tests that ended before the first of them.
_NOT_BEGUN = re.compile(
    r"\[(?:build|setup) failed\]|could not compile|during collection|^SyntaxError|^ImportError|cannot find module"
    r"|: error TS\d+|exit (?:127|137|124)\b",
    re.IGNORECASE | re.MULTILINE,
)
_NO_PROGRAM = re.compile(
    r"command not found|not recognized|unknown (?:flag|option|command)|unrecognized|no such option", re.I
)


@dataclass(slots=True)
class _Open:
    """An error nobody has fixed yet; `tried` are the changes after which it was still there."""

    first: Run
    last: Run
    tried: list[Change] = field(default_factory=list)
    failures: int = 1


def resolutions(
    material: Material, turns: Sequence[Turn], runs: Sequence[Run], changes: Sequence[Change]
) -> Iterator[Finding]:
    """The errors of a session's runs, and what fixed them."""
    open_errors: list[_Open] = []
    failed_tests: list[Run] = []
    for run in runs:
        if run.has_failed is None:
            continue
        if run.has_failed and run.is_test:
            failed_tests.append(run)
        still_open = []
        for error in open_errors:
            if run.has_failed and run.doings & error.last.doings and _still_says(material, run, error.last.signature):
                error.tried += _between(changes, error.last.position, run.position)
                error.last, error.failures = run, error.failures + 1
                still_open.append(error)
            elif (
                run.shows_again(error.last) and not (run.has_failed and _may_hide(material, run, error.last))
            ) or _passes_suite(run, error, failed_tests):
                yield from _closed(material, turns, error, run, changes)
            else:
                still_open.append(error)
        open_errors = still_open
        if run.has_failed and run.signature and not any(error.last is run for error in open_errors):
            open_errors.append(_Open(run, run))
    for error in open_errors:
        alternative = _alternative(error, runs)
        if alternative is not None:
            yield _fixed_by_other_command(material, error, alternative, is_closed=False)
        yield _failed(material, error, alternative)


def _passes_suite(run: Run, error: _Open, failed_tests: Sequence[Run]) -> bool:
    """Whether tests pass that had failed as a whole before this error of one of them was looked at by itself."""
    if not error.first.is_test or run.has_failed:
        return False
    suites = (suite for suite in failed_tests if suite.position < error.first.position and run.shows_again(suite))
    return any(shell.covers_tests(suite.command, error.first.command) for suite in suites)


def _still_says(material: Material, run: Run, signature: str) -> bool:
    if run.signature == signature:
        return True
    # Masks take the most time: only a line with the longest word of a signature can have it.
    word = max(_WORD.findall(_MASKED.sub(" ", signature)), key=len, default="")
    lines = material.text(run.result).splitlines()
    return any(fingerprint(line) == signature for line in lines if len(line) < 400 and word in line)


def _may_hide(material: Material, run: Run, earlier: Run) -> bool:
    """Whether a run that failed otherwise may not have come as far as the earlier error, or not show it."""
    is_part = shell.is_filtered(run.command) or shell.is_filtered(earlier.command)
    return (
        is_part or not run.signature or (earlier.is_test and _NOT_BEGUN.search(material.text(run.result)) is not None)
    )


def _between(changes: Iterable[Change], start: int, end: int) -> list[Change]:
    return [change for change in changes if start < change.position < end]


def _closed(
    material: Material, turns: Sequence[Turn], error: _Open, success: Run, changes: Sequence[Change]
) -> Iterator[Finding]:
    made = _between(changes, error.last.position, success.position)
    if made:
        yield _fixed(material, turns, error, success, made)
        yield from _others_fixed(material, turns, error, success, made)
        yield _failed(material, error, None if success.has_failed else success)
    elif _is_alternative(success, error.last):
        yield _fixed_by_other_command(material, error, success, is_closed=True)
        yield _failed(material, error, success)
    else:
        yield _failed(material, error, None)  # nobody knows what made it go


def _others_fixed(
    material: Material, turns: Sequence[Turn], error: _Open, success: Run, made: Sequence[Change]
) -> Iterator[Finding]:
    """Of a list of errors, those beside the headline whose own file was changed, each with the changes of that file."""
    listed_errors = placed_lines(material.text(error.last.result))
    if len(listed_errors) < _LEAST_LISTED:
        return
    files = Counter(file for _, file in listed_errors)
    left = (
        {fingerprint(line) for line, _ in placed_lines(material.text(success.result))} if success.has_failed else set()
    )
    seen = left | {error.first.signature, error.last.signature}
    for line, file in listed_errors:
        signature, mentions = fingerprint(line), Mentions(line)
        own = [change for change in made if change.kind == "edit" and change.name.endswith(file.removeprefix("./"))]
        if files[file] > 1 and len(own) > 1:  # which of them an edit was for, only what it names tells
            own = [change for change in own if mentions.names(change)]
        if signature in seen or not own or len(seen) - len(left) > _MOST_LISTED:
            continue
        seen.add(signature)
        run = replace(error.last, headline=line, signature=signature)
        yield _fixed(material, turns, _Open(run, run), success, own, is_listed=True)


def _fixed(
    material: Material,
    turns: Sequence[Turn],
    error: _Open,
    success: Run,
    made: Sequence[Change],
    *,
    is_listed: bool = False,
) -> Finding:
    """What was changed before the next run without the error, which passed, or failed for another reason."""
    why = explanation(material, error.last.position, success.position)
    chooser = _asked_between(material, turns, error.last.position, made[-1].position)
    quote = shortened(one_line(material.text(chooser)), 160) if chooser is not None else None
    mentions = Mentions(error.last.headline, "" if is_listed else material.text(error.last.result))
    steps = main_changes(made, mentions)
    confidence = _limited(_confidence(material, error, success, made, why), made, mentions)
    changed = listed(change.sentence for change in steps)
    text, receipt = f"`{error.first.headline}` was fixed by {changed}", f"{PASSED}{success.command}"
    if success.has_failed:
        text = f"`{error.first.headline}` was gone after {changed}; the next run failed otherwise"
        receipt = f"{GONE}: {success.headline}"
        confidence = min(confidence, _GUESS)
    evidence = [(error.first.result, error.first.headline), (success.result, receipt)]
    evidence[1:1] = [(change.step, change.sentence) for change in steps[:2]]
    evidence += [(why[0], why[1])] if why else []
    details = _details(
        error.first.headline,
        [{"kind": change.kind, "name": change.name, "gist": change.gist} for change in steps],
        why,
        success.result.ts_ms,
        command=error.first.command,
        passed=None if success.has_failed else success.command,
        step_count=len(made),
        chosen_by="user" if quote else "agent",
        quote=quote,
        tried=error.tried,
        lines=[] if is_listed else _lines_gone(material, error, success),
    )
    first = steps[0]
    return Finding(
        RULE, FIXED_BY, ("error", error.first.signature), (first.kind, first.name), text, confidence, evidence, details
    )


def _details(
    headline: str,
    steps: list[dict[str, str]],
    why: tuple[Step, str] | None,
    fixed_ms: int | None,
    *,
    command: str | None = None,
    passed: str | None = None,
    tried: Iterable[Change] = (),
    **others: Any,
) -> dict[str, Any]:
    """What a fix is stored with."""
    return {
        "headline": shortened(headline, 300),
        "command": command and shortened(one_line(command), 200),
        "passed": passed and shortened(one_line(passed), 200),
        "steps": steps,
        "step_count": len(steps),
        "why": why[1] if why else None,
        "chosen_by": "agent",
        "quote": None,
        "tried": [change.sentence for change in main_changes(tried)],
        "fixed_ms": fixed_ms,
        "lines": [],
    } | others


def _lines_gone(material: Material, error: _Open, success: Run) -> list[str]:
    """By what else the error is known: lines of its output that the run after the fix did not print."""
    left = {error.first.signature}
    left.update(telling_lines(material.text(success.result)) if success.has_failed else ())
    return [line for line in telling_lines(material.text(error.last.result)) if line not in left]


def _confidence(
    material: Material, error: _Open, success: Run, made: Sequence[Change], why: tuple[Step, str] | None
) -> float:
    """How sure it is that these changes made the error go."""
    files = {change.name for change in made}
    output = material.text(error.last.result)
    confidence = 0.5
    confidence += 0.15 if success.command == error.last.command or (success.is_test and error.last.is_test) else 0.05
    confidence += 0.1 if why else 0.0
    confidence += 0.1 if any(name.rpartition("/")[2] in output for name in files) else 0.0
    confidence += 0.05 if len(files) <= 3 else -0.05 if len(files) <= 8 else -0.2
    return confidence - (0.1 if success.position - error.last.position > _FAR else 0.0)


def _limited(confidence: float, made: Sequence[Change], mentions: Mentions) -> float:
    """The confidence; that of a guess if work was only undone, or of several changes the error shows none."""
    is_undone = all(change.kind == "command" and _UNDOES.search(change.name) for change in made)
    is_related = len({change.name for change in made}) == 1 or any(map(mentions.has, made))
    return confidence if is_related and not is_undone else min(confidence, _GUESS)


def _alternative(error: _Open, runs: Sequence[Run]) -> Run | None:
    """A command that soon did what one much like it was meant to do; a check that passes may look at less."""
    if (error.last.is_test or error.last.is_check) and not _NO_PROGRAM.search(error.last.headline):
        return None
    after = [run for run in runs if run.position > error.last.position][:MOST_RUNS_TO_ALTERNATIVE]
    return next((run for run in after if _is_alternative(run, error.last) and _is_like(run, error.last)), None)


def _is_alternative(run: Run, failed: Run) -> bool:
    """Whether a run that passed, by its exit code, did with another command what had failed.

    Another sub-command does something else, unless the error is that there is none of that name.
    """
    shown = shell.exits(run.command) & run.doings
    if run.command == failed.command or run.is_test or run.has_failed is not False or not shown:
        return False
    if _NO_PROGRAM.search(failed.headline) and not shown & failed.doings:
        return True
    return any(_verbs(run, family) == _verbs(failed, family) for family in shown & failed.doings)


def _verbs(run: Run, family: str) -> frozenset[str]:
    """The sub-commands that a command gives to a program: words without any sign of a file or a value."""
    return frozenset(filter(_VERB.fullmatch, shell.given(run.command, family)))


def _is_like(run: Run, failed: Run) -> bool:
    words, others = set(run.command.split()), set(failed.command.split())
    return words != others and len(words & others) / max(1, len(words | others)) >= _LEAST_SHARED


def _fixed_by_other_command(material: Material, error: _Open, success: Run, *, is_closed: bool) -> Finding:
    instead = shortened(one_line(success.command), 160)
    why = explanation(material, error.last.position, success.position)
    is_close = _is_like(success, error.last)
    text = (
        f"`{error.first.headline}` went away by running `{instead}` instead of `{one_line(error.last.command)[:120]}`"
    )
    details = _details(
        error.first.headline,
        [{"kind": "command", "name": instead, "gist": ""}],
        why,
        success.result.ts_ms,
        command=error.first.command,
        passed=instead,
        tried=error.tried,
        lines=_lines_gone(material, error, success),
    )
    evidence = [(error.first.result, error.first.headline), (success.call, f"ran {instead}")]
    confidence = 0.5 + (0.1 if is_close else -0.15) + (0.05 if why else 0.0)
    if _MISTYPED.search(error.first.headline) or not (is_closed or _NO_PROGRAM.search(error.first.headline)):
        confidence = min(confidence, _GUESS)
    return Finding(
        "alternative",
        FIXED_BY,
        ("error", error.first.signature),
        ("command", instead),
        text,
        confidence,
        evidence,
        details,
    )


def _failed(material: Material, error: _Open, end: Run | None) -> Finding:
    """That a command failed with an error, and what it took until it did not any more."""
    family = shell.test_family(error.first.command) if error.first.is_test else shell.family(error.first.command)
    began, ended = error.first.result.ts_ms, end.result.ts_ms if end is not None else None
    text = f"`{family}` failed with `{error.first.headline}`"
    details = {
        "headline": shortened(error.first.headline, 300),
        "command": shortened(one_line(error.first.command), 200),
        "failures": error.failures,
        "ended_ms": ended,
        **material.spending.between(began, ended),
    }
    evidence = [(error.first.result, error.first.headline)]
    return Finding(
        RULE, FAILS_WITH, ("command", family), ("error", error.first.signature), text, 0.9, evidence, details
    )


def reported_errors(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """Errors that the user showed the agent, and problems it found the cause of, with what was changed for them."""
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        if not material.is_human or turn.request is None or is_plan(material, turn.request):
            continue
        request = material.text(turn.request)
        headline = error_in(request)
        cause = next((insight for insight in material.trace.insights if turn.has(insight[0])), None)
        made = [change for change in changes if change.kind != "command" and turn.start < change.position < turn.end]
        if headline is None and (cause is None or not _PROBLEM.search(request[:_REPORT_CHARS])):
            continue
        why = _cause_sentence(material, cause) if cause is not None else None
        problem = ("error", fingerprint(headline)) if headline else ("problem", words.gist(turn.request.summary))
        why = why if why is not None and not _NO_CAUSE.search(why[1]) else None
        if why is not None:
            shown = headline or turn.request.summary
            text = f"“{shortened(shown, 160)}”: {why[1]}"
            yield Finding(CAUSE, CAUSED_BY, problem, ("cause", why[1]), text, 0.75, [why, (turn.request, shown)])
        if made and not _is_refuted(material, turn, following):
            yield _reported_fix(material, turn, problem, headline, why, made)


def _cause_sentence(material: Material, cause: tuple[Step, str]) -> tuple[Step, str]:
    step, text = cause
    said = sentences(material.text(step))
    index = next((index for index, sentence in enumerate(said) if words.insight(sentence)), None)
    if index is None:
        return step, shortened(one_line(text), _EXPLANATION_CHARS)
    chosen = said[index]
    following = "".join(said[index + 1 : index + 2])
    if (len(chosen) < _WHOLE_CHARS or chosen.endswith(":")) and not _NO_CAUSE.search(following):
        chosen = f"{chosen} {following}"
    return step, shortened(one_line(chosen.replace("**", "")), _EXPLANATION_CHARS)


def _is_refuted(material: Material, turn: Turn, following: Turn | None) -> bool:
    """Whether the exchange failed, was stopped, or the user says next that it is still broken."""
    if turn.was_stopped or not turn.has_answer:
        return True
    if following is None or following.request is None:
        return False
    reply = following.request.summary
    return words.says_broken(reply) or words.corrects(reply)


def _reported_fix(
    material: Material,
    turn: Turn,
    problem: tuple[str, str],
    headline: str | None,
    why: tuple[Step, str] | None,
    made: Sequence[Change],
) -> Finding:
    assert turn.request is not None
    mentions = Mentions(headline or "", material.text(turn.request))
    steps = main_changes(made, mentions)
    shown = headline or turn.request.summary
    text = f"“{shortened(shown, 160)}” was fixed by {listed(change.sentence for change in steps)}"
    passed = [run for run in material.trace.tests if run.has_passed and turn.has(run.call)]
    files = {change.name for change in made}
    confidence = 0.4 + (0.2 if why else 0.0) + (0.1 if passed else 0.0) + (0.05 if len(files) <= 4 else -0.1)
    confidence = _limited(confidence, made, mentions) if headline else confidence
    evidence = [(turn.request, shown), *((change.step, change.sentence) for change in steps[:2])]
    evidence += [(why[0], why[1])] if why else []
    details = _details(
        shown,
        [{"kind": change.kind, "name": change.name, "gist": change.gist} for change in steps],
        why,
        made[-1].step.ts_ms,
        passed=passed[-1].command if passed else None,
        step_count=len(made),
    )
    return Finding(REPORTED, FIXED_BY, problem, (steps[0].kind, steps[0].name), text, confidence, evidence, details)


def main_changes(changes: Iterable[Change], mentions: Mentions = NOTHING) -> list[Change]:
    """The changes that matter most, each file or command once, with the gist of what belongs most to the error."""
    best: dict[tuple[str, str], Change] = {}
    for change in sorted(changes, key=mentions.rank):
        best.setdefault((change.kind, change.name), change)
    return [replace(change, gist=mentions.gist(change)) for change in list(best.values())[:MOST_STEPS]]


def listed(items: Iterable[str]) -> str:
    names = list(items)[:3]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def explanation(material: Material, start: int, end: int) -> tuple[Step, str] | None:
    """The agent's sentence between two places that says why, as far as it says so."""
    spoken = (schema.ASSISTANT_MSG, schema.COMPLETION)
    messages = [step for step in material.trace.steps[start:end] if step.kind in spoken][:_MESSAGES_READ]
    for step in messages:
        for sentence in sentences(material.text(step)):
            if 20 <= len(sentence) <= 400 and _says_why(sentence):
                return step, shortened(one_line(sentence), _EXPLANATION_CHARS)
    return None


def _says_why(sentence: str) -> bool:
    if sentence.endswith(":") or _ANNOUNCES.match(sentence) or not _EXPLAINS.search(sentence):
        return False
    return _PLANS.search(sentence) is None or _GIVES_REASON.search(sentence) is not None


def _asked_between(material: Material, turns: Sequence[Turn], start: int, end: int) -> Step | None:
    """The user's words after a failure and before the change that ended it, if they ask for a change."""
    asked = [turn.request for turn in turns if turn.request is not None and start < turn.start < end]
    said = material.text(asked[-1]).strip().lower() if asked else ""
    if not 0 < len(said) <= _ASKED_CHARS or said.startswith(("/", "<", "[")) or _GOES_ON.fullmatch(said):
        return None
    is_question = "?" in said and not asks_change(said)
    return None if is_question or "\n--- fail" in f"\n{said}" or error_in(said) else asked[-1]
