"""What was settled in talk: an agent's recap that the user let stand, and the user's corrections of a proposal.

Only exchanges in which the agent called nothing are talk: a recap after work says what was done, not what was decided.
A decision that says it amends an earlier one takes its place (`knowledge.timeline`).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from recollect.distill import CALLS, one_line, sentences, shortened
from recollect.knowledge.demands import demanded, is_clear, is_typed, reason_in
from recollect.knowledge.exchanges import Turn
from recollect.knowledge.facts import TEXT_CHARS, Finding, Material
from recollect.knowledge.predicates import DECIDED
from recollect.knowledge.proposals import SENTENCE_CHARS, proposal_in, without_code
from recollect.store import AMENDMENT, Step

RECAP, CORRECTION = "recap", "correction"
_MOST_CORRECTION = 700  # characters of a message that corrects a proposal
_MOST_AMENDMENT = 320
_LEAST_WORDS = 8
_AGREES_CHARS = 160

_BEFORE = r"[*_#> ]*(?:(?:ok(?:ay)?|understood|great|perfect|right|so|good|yes|got it)\b[\s,.!:—–-]*)*"
# "Settled: …", "Final wave policy: …", "Amended rule, superseding …: …".
_RECAP = re.compile(
    rf"^{_BEFORE}(?:settled|final(?:i[sz]ed)?\b(?! answer)|amend(?:ed|ing)|agreed|decided|decision|locked in"
    r"|(?:full |final )?recap|to (?:recap|be explicit about)|the (?:rule|policy|contract) (?:is|becomes))"
    r"(?P<what>(?:[^:\n]|::|:(?=\S)){0,140}):\s+(?P<said>\S.{30,})",
    re.IGNORECASE | re.MULTILINE,
)
_LEFT_OUT = re.compile(r"^(?:(?:rule|then|in full|of|the|superseding [^,]+)\b[ ,]*|[ ,]+)+", re.IGNORECASE)
_AGREES = re.compile(
    r"(?:right|exactly|yes|yep|correct|agreed|perfect|good|great)?\b[\s,.!—–-]*"
    r"(?:(?:that'?s|this is) (?:it|the (?:one|rule|policy|plan|spec|contract)|what (?:i|we) want\w*"
    r"|exactly (?:it|right))\b.*"
    r"|leave it (?:at|as|like) .{1,40}|ship it\W*|go with (?:it|that)\W*|lock it in\W*"
    r"|[\w -]{1,40} (?:is|are|stays?|goes) (?:the |an? )?(?:exceptions?|rules?|default|policy)\W*)",
    re.IGNORECASE,
)
_CORRECTS = re.compile(r"(?:no|almost|careful|not quite|nope)\b\s?(?:[—–:,.]|-+ )", re.IGNORECASE)
# How a sentence says how things are to be.
_NORMS = re.compile(
    r"\b(?:should|must|has to|have to|needs? to|only|never|always|unless|exactly|at most|at least|keeps?|stays?|cap"
    r"|drop|instead|before|after|first|counts? as|is not|isn't|are not|aren't|don't|doesn't|not)\b",
    re.IGNORECASE,
)
_SETS = re.compile(r"\b(?:from now on|instead|at most|at least|exactly)\b", re.IGNORECASE)
_RULES = re.compile(
    r"\b(?:should(?: be)?|must|exactly|only|unless|never|always|at most|at least|capped|now (?:handles|caps))\b", re.I
)
_AMENDS = re.compile(
    r"(?<!-)\bamend(?:ment|ing|ed|s)?\b|\bsupersed\w+|\b(?:updates?|changes?|revision) to (?:the|our|what) .{3,60}?"
    r"\b(?:polic\w+|rules?|decision|we (?:settled|agreed|decided))"
    r"|\bthe (?:old|earlier|previous|original) (?:rule|policy|cap|limit|decision)\b|\bno longer (?:holds|applies)\b"
    r"|\b(?:replaces|overrides|revis(?:es|ing)) (?:the|our|what)\b|修订|更正之前|変更します",
    re.IGNORECASE,
)


def settlements(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """The decisions of a session's talk, the last recap in place of those before it."""
    asked = [turn for turn in turns if turn.request is not None]
    amends, recap = False, None
    for turn, following in zip(asked, [*asked[1:], None], strict=False):
        assert turn.request is not None
        amends = amends or _AMENDS.search(material.text(turn.request)[:_MOST_CORRECTION]) is not None
        answer = material.trace.answers.get(turn.request.event_uid)
        if answer is None or _has_worked(turn):
            continue
        said = without_code(material.text(answer))
        reply = "" if following is None or following.request is None else material.text(following.request).strip()
        is_agreed = len(reply) <= _AGREES_CHARS and _AGREES.match(reply) is not None
        found = _recap_in(said) or (_rule_in(said) if is_agreed else "")
        if found and not _CORRECTS.match(reply):
            amends = amends or _AMENDS.search(said) is not None
            evidence = [(answer, shortened(found, SENTENCE_CHARS))]
            evidence += [(following.request, reply)] if is_agreed and following and following.request else []
            by, confidence = ("user", 0.9) if is_agreed else ("agent", 0.8)
            recap = _settled(RECAP, found, confidence, evidence, amends=amends, by=by)
    if recap is not None:
        yield recap
        return
    corrections = [
        one for before, turn in pairwise(asked) for one in _correction(material, before, turn, amends=amends)
    ]
    yield from corrections or _amendments(material, asked)


def _has_worked(turn: Turn) -> bool:
    return any(step.kind in CALLS for step in turn.steps)


def _recap_in(said: str) -> str:
    """What an answer recaps, in one line; empty if it recaps nothing."""
    matches = list(_RECAP.finditer(said))
    if not matches:
        return ""
    what = _LEFT_OUT.sub("", one_line(matches[-1]["what"]))
    return shortened(f"{what}: {matches[-1]['said']}" if what[:1].isalpha() else matches[-1]["said"], TEXT_CHARS)


def _rule_in(said: str) -> str:
    """The sentence of an answer that says most clearly how things are to be."""
    spoken = [sentence.replace("**", "") for sentence in sentences(said) if not sentence.endswith(("?", ":"))]
    best = max(spoken, key=lambda sentence: len(_RULES.findall(sentence)), default="")
    return shortened(re.sub(rf"^{_BEFORE}", "", best, flags=re.I), TEXT_CHARS) if _RULES.search(best) else ""


def _amendments(material: Material, asked: Sequence[Turn]) -> Iterator[Finding]:
    """What a user says takes the place of something settled earlier."""
    for turn in asked:
        said = material.text(turn.request) if turn.request is not None else ""
        message = one_line(said) if len(said) <= _MOST_AMENDMENT else ""
        match = _AMENDS.search(message)
        if turn.request is None or match is None or match[0].lower().startswith("amend"):  # amending is of commits, too
            continue
        if is_typed(message) and _SETS.search(message) and message[-1] != "?":
            yield _settled(CORRECTION, message, 0.75, [(turn.request, message)], by="user", amends=True)


def _correction(material: Material, before: Turn, turn: Turn, *, amends: bool) -> Iterator[Finding]:
    """A user's "No — …" to what the agent proposed."""
    assert before.request is not None and turn.request is not None
    answer = material.trace.answers.get(before.request.event_uid)
    message = material.text(turn.request).strip()
    corrects = _CORRECTS.match(message)
    if answer is None or corrects is None or len(message) > _MOST_CORRECTION or _has_worked(before):
        return
    said = sentences(message[corrects.end() :])
    text = shortened(one_line(" ".join(said[:2])), TEXT_CHARS)
    if not said or said[0].endswith("?") or not is_clear(said[0]):
        return
    if len(text.split()) < _LEAST_WORDS or not _NORMS.search(text):
        return
    if not amends and any(map(demanded, sentences(message))):
        return  # it is found as a wish
    proposal, _ = proposal_in(material.text(answer))
    evidence = [(turn.request, message), (answer, proposal or answer.summary)]
    yield _settled(CORRECTION, text, 0.65, evidence, by="user", amends=amends, reason=reason_in(message))


def _settled(
    rule: str,
    text: str,
    confidence: float,
    evidence: Sequence[tuple[Step, str]],
    *,
    amends: bool,
    by: str,
    reason: str | None = None,
) -> Finding:
    kind = AMENDMENT if amends else "decision"
    details = {"by": by, "alternatives": list[str](), "reason": reason}
    return Finding(rule, DECIDED, (kind, text), ("choice", text), text, confidence, evidence, details)
