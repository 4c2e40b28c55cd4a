"""Errors that a user showed the agent, and problems it found the cause of.

What was done for them is a fix only if a run that had failed passes then, or the user says that it works.
"""

import re
from collections.abc import Iterator, Sequence

from recollect.distill import one_line, sentences, shortened, words
from recollect.knowledge.exchanges import Turn, is_plan
from recollect.knowledge.explanations import EXPLANATION_CHARS, is_about
from recollect.knowledge.facts import Finding, Material
from recollect.knowledge.mentions import Mentions, listed, main_changes, wording
from recollect.knowledge.predicates import CAUSED_BY, FIXED_BY, PASSED
from recollect.knowledge.resolutions import GUESS, details_of, limited, said_again
from recollect.knowledge.runs import Change, Run
from recollect.knowledge.signature import error_in, fingerprint
from recollect.knowledge.standing import standing
from recollect.knowledge.statements import named_cause
from recollect.store import Step

REPORTED, CAUSE = "reported", "cause"
_WHOLE_CHARS = 60  # of a sentence that tells a cause by itself
_REPORT_CHARS = 1500  # of a request that describes a problem
_NO_CAUSE = re.compile(
    r"\b(?:let me|the fix is|is fixed|likely not|your question|here's (?:the|what)|i'll|i will|i've completed|in how"
    r"|look at|issues?:$)\b|```|:$",
    re.IGNORECASE,
)
_PROBLEM = re.compile(
    r"\b(?:issue|bug|errors?|wrong|broken|crash\w*|fail\w*|not (?:work|see|show|updat)\w*|does(?:n't| not)"
    r"|is(?:n't| not)|missing|problem|weird|unexpected|stuck|hangs?|slow|timeout|why (?:is|does|do|are))\b"
    r"|ошибк|не работает|エラー|错误|오류|fehler",
    re.IGNORECASE,
)


def reported_errors(
    material: Material, turns: Sequence[Turn], runs: Sequence[Run], changes: Sequence[Change]
) -> Iterator[Finding]:
    """Errors that the user showed the agent, with what was changed for them; the causes it found of any problem."""
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        if not material.is_human or turn.request is None or is_plan(material, turn.request):
            continue
        request = material.text(turn.request)
        headline = error_in(request)
        cause = next((insight for insight in material.trace.insights if turn.has(insight[0])), None)
        if headline is None and (cause is None or not _PROBLEM.search(request[:_REPORT_CHARS])):
            continue
        why = _cause_sentence(material, cause) if cause is not None else None
        why = why if why is not None and not _NO_CAUSE.search(why[1]) else None
        if why is not None:
            problem = ("error", fingerprint(headline)) if headline else ("problem", words.gist(turn.request.summary))
            shown = headline or turn.request.summary
            text = f"“{shortened(shown, 160)}”: {why[1]}"
            yield Finding(
                CAUSE, CAUSED_BY, problem, ("cause", named_cause(why[1])), text, 0.75, [why, (turn.request, shown)]
            )
        made = [change for change in changes if change.kind != "command" and turn.start < change.position < turn.end]
        made = standing(material, made, changes)
        if headline and made and not _is_refuted(material, turn, following):
            receipt = _receipt(material, turn, runs, made, fingerprint(headline))
            is_thanked = following is not None and following.request and words.says_thanks(following.request.summary)
            yield _reported_fix(material, turn, headline, why, made, receipt, is_confirmed=bool(receipt or is_thanked))


def _cause_sentence(material: Material, cause: tuple[Step, str]) -> tuple[Step, str]:
    step, text = cause
    said = sentences(material.text(step))
    index = next((index for index, sentence in enumerate(said) if words.insight(sentence)), None)
    if index is None:
        return step, shortened(one_line(text), EXPLANATION_CHARS)
    chosen = said[index]
    following = "".join(said[index + 1 : index + 2])
    if (len(chosen) < _WHOLE_CHARS or chosen.endswith(":")) and not _NO_CAUSE.search(following):
        chosen = f"{chosen} {following}"
    return step, shortened(one_line(chosen.replace("**", "")), EXPLANATION_CHARS)


def _is_refuted(material: Material, turn: Turn, following: Turn | None) -> bool:
    """Whether the exchange failed, was stopped, or the user says next that it is still broken."""
    if turn.was_stopped or not turn.has_answer:
        return True
    if following is None or following.request is None:
        return False
    reply = following.request.summary
    return words.says_broken(reply) or words.corrects(reply)


def _receipt(material: Material, turn: Turn, runs: Sequence[Run], made: Sequence[Change], signature: str) -> Run | None:
    """A run that passed after the work, of what had failed with this error before it."""
    failed = [
        run
        for run in runs
        if run.position < made[0].position and run.has_failed and said_again(material, run, signature)
    ]
    passed = [run for run in runs if made[-1].position < run.position < turn.end and run.has_failed is False]
    return next((run for run in passed if any(map(run.shows_again, failed))), None)


def _reported_fix(
    material: Material,
    turn: Turn,
    headline: str,
    why: tuple[Step, str] | None,
    made: Sequence[Change],
    receipt: Run | None,
    *,
    is_confirmed: bool,
) -> Finding:
    assert turn.request is not None
    mentions = Mentions(headline, material.text(turn.request))
    steps = main_changes(made, mentions)
    why = why if why is not None and is_about(why[1], headline, wording(steps)) else None
    text = f"“{shortened(headline, 160)}” was fixed by {listed(change.sentence for change in steps)}"
    confidence = 0.5 + (0.1 if why else 0.0) + (0.1 if receipt else 0.0) + (0.1 if steps[0].gist else 0.0)
    confidence = limited(confidence if is_confirmed else min(confidence, GUESS), steps, mentions)
    evidence = [(turn.request, headline), *((change.step, change.sentence) for change in steps[:2])]
    evidence += [(receipt.result, f"{PASSED}{receipt.command}")] if receipt else []
    evidence += [(why[0], why[1])] if why else []
    details = details_of(
        headline,
        steps,
        why,
        made[-1].step.ts_ms,
        passed=receipt.command if receipt else None,
        step_count=len(steps),
    )
    subject = "error", fingerprint(headline)
    return Finding(REPORTED, FIXED_BY, subject, (steps[0].kind, steps[0].name), text, confidence, evidence, details)
