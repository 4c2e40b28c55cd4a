"""What an answer of the agent offers or asks at its end: a short reply says nothing without it."""

import re

from recollect.distill import sentences, shortened

SENTENCE_CHARS = 240
_MOST_ENDING = 8  # sentences of an answer that may propose something
_LEAST_ASKED = 3  # words of a question that says what it is about
_LEAST_OFFERED = 60  # characters before an offer
_CODE = re.compile(r"^\s*```.*?^\s*```", re.DOTALL | re.MULTILINE)
_OFFERS = re.compile(
    r"\b(?:want me to|should i|shall i|would you like me to|should we|shall we|i(?:'d| would) (?:suggest|recommend|go)"
    r"|you (?:can|could) (?:safely )?\w+|would you like|we (?:could|can|should))\b",
    re.IGNORECASE,
)
# An offer that says nothing by itself, and a sentence before it that says what is offered.
_BARE_OFFER = re.compile(
    r"\b(?:me to|should i|shall i|should we|shall we) (?:go ahead(?: and)?|proceed\b.*|\w+ (?:(?:this|that|it"
    r"|these|those"
    r"|them|the (?:change|fix|refactor(?:ing)?|cleanup|implementation))\b(?: \w+)?))\W*(?:\?|$)"
    r"|\bme to (?:go ahead and )?\w+ (?:this|that|it|the (?:fix|change))\b[\w ]{0,24}\?",
    re.IGNORECASE,
)
_PROPOSING = re.compile(
    r"^(?:add|remove|replace|use|move|rename|make|keep|change|update|delete|drop|extract|merge|split|consolidate|switch"
    r"|simplest|the (?:fix|simplest|cleanest|best)\b)|\b(?:could|can|should|would|i'd|i would|just need to"
    r"|needs? to)\b",
    re.IGNORECASE,
)
_FILLED = re.compile(
    r"`[^`]+`|\b(?!(?:what|which|how|do|does|did|you|we|i|me|to|the|it|this|that|or|a|is|are"
    r"|would|should|approach|option|options|prefer|think|like|want|of|these|those|them|any|dig|into|resolved|go|ahead"
    r"|now|proceed|continue|something|specific|there|else|in|on|for|and|not|be|have|else|your)\b)\w{2,}",
    re.IGNORECASE,
)


def says_what(question: str) -> bool:
    return len(_FILLED.findall(question)) >= _LEAST_ASKED


def without_code(text: str) -> str:
    return _CODE.sub("\n", text)


def _ending(answer: str) -> list[str]:
    return [sentence.replace("**", "") for sentence in sentences(without_code(answer))[-_MOST_ENDING:]]


def proposal_in(answer: str) -> tuple[str, float]:
    """What an answer offers last, and how sure it is what that means; nothing if it only explains.

    "Want me to make this change?" says nothing without the sentence before it that proposes one. If none does, it is a
    guess.
    """
    ended = _ending(answer)
    last = max((index for index, sentence in enumerate(ended) if _OFFERS.search(sentence)), default=None)
    if last is None:
        return "", 0.0
    offer = ended[last]
    if not _BARE_OFFER.search(offer):
        return shortened(offer, SENTENCE_CHARS), 0.85
    near = range(max(0, last - 2), last)
    start = max((index for index in near if _PROPOSING.search(ended[index])), default=max(0, last - 1))
    confidence = 0.85 if _PROPOSING.search(ended[start]) else 0.55
    while start > 0 and (len(" ".join(ended[start:last])) < _LEAST_OFFERED or ended[start].startswith("This ")):
        start -= 1
    return shortened(" ".join(ended[start : last + 1]), SENTENCE_CHARS), confidence
