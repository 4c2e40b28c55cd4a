"""Errors that a user showed the agent, and problems that a user described, with the cause that it found."""

import re
from collections.abc import Iterator, Sequence

from recollect.distill import one_line, sentences, shortened, words
from recollect.knowledge.exchanges import Turn, is_plan
from recollect.knowledge.explanations import EXPLANATION_CHARS
from recollect.knowledge.facts import Finding, Material
from recollect.knowledge.predicates import CAUSED_BY
from recollect.knowledge.signature import error_in, fingerprint
from recollect.knowledge.statements import named_cause
from recollect.store import Step

CAUSE = "cause"
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


def causes_found(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """The causes that an agent found of what its user showed or described."""
    for turn in turns:
        if not material.is_human or turn.request is None or is_plan(material, turn.request):
            continue
        request = material.text(turn.request)
        headline = error_in(request)
        cause = next((insight for insight in material.trace.insights if turn.has(insight[0])), None)
        if cause is None or (headline is None and not _PROBLEM.search(request[:_REPORT_CHARS])):
            continue
        why = _cause_sentence(material, cause)
        if not _NO_CAUSE.search(why[1]):
            problem = ("error", fingerprint(headline)) if headline else ("problem", words.gist(turn.request.summary))
            shown = headline or turn.request.summary
            text = f"“{shortened(shown, 160)}”: {why[1]}"
            yield Finding(
                CAUSE, CAUSED_BY, problem, ("cause", named_cause(why[1])), text, 0.75, [why, (turn.request, shown)]
            )


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
