"""Why a change helped: the agent's sentence about the error, if it wrote one."""

import re

from recollect import schema
from recollect.distill import one_line, sentences, shortened
from recollect.knowledge.facts import Material
from recollect.knowledge.mentions import symbols_of
from recollect.knowledge.topics import has_word
from recollect.store import Step

EXPLANATION_CHARS = 240
_MESSAGES_READ = 6
_LEAST_CHARS, _MOST_CHARS = 20, 400
_LEAST_SHARED = 2  # telling words

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
_COUNTS = re.compile(
    r"\b(?:\d+|one|two|three|few|some|all|only|these|pre-existing)\b[^.]{0,30}\b(?:tests?|failures?|failing|issues|errors|checks)\b"
    r"|\bpre-existing\b",
    re.IGNORECASE,
)
_TAKES_BACK = re.compile(
    r"(?:wait|hmm+|actually|no,|that(?:'s| is|'s) not|that did(?:n't| not)|still )\b"
    r"|(?:the )?original .{0,60}\bcorrect\b",
    re.IGNORECASE,
)
_RESTATES = re.compile(r"\b(?:fail(?:s|ed|ing)?|flag(?:s|ged|ging)|complain(?:s|ing)?)\b", re.IGNORECASE)
_GUESSES = re.compile(r"\b(?:might|maybe|perhaps|probably|possibly|may be|could be|i think)\b", re.IGNORECASE)
_WORD = re.compile(r"[^\W\d_]{4,}")
_TELLS_NOTHING = re.compile(
    r"(?:error|errors|fail|fails|failed|failing|failure|issue|issues|test|tests|testing|problem|this|that|these|"
    r"those|with|from|have|been|which|what|when|where|because|since|should|could|would|must|need|needs|missing|"
    r"expected|unexpected|line|lines|file|files|code|call|calls|function|method|value|values|type|types|"
    r"variable|argument|return|returns|returned|returning|used|uses|using|change|changes|changed|added|removed|"
    r"cannot|does|doesn|didn|isn|wasn|aren|your|they|them|there|their|then|than|into|also|only|just|here|case|"
    r"cases|same|like|more|make|makes)"
)


def explanation(material: Material, start: int, end: int, error: str, change: str) -> tuple[Step, str] | None:
    """The agent's sentence between two places that says why an error came or a change helps; None if none does.

    A sentence counts if it is about them, and was not taken back by a later one.
    """
    spoken = (schema.ASSISTANT_MSG, schema.COMPLETION)
    messages = [step for step in material.trace.steps[start:end] if step.kind in spoken][:_MESSAGES_READ]
    chosen: tuple[Step, str] | None = None
    for step in messages:
        for sentence in sentences(material.text(step)):
            if _TAKES_BACK.match(sentence):
                chosen = None
            if chosen is None and _says_why(sentence) and is_about(sentence, error, change):
                chosen = step, shortened(one_line(sentence), EXPLANATION_CHARS)
    return chosen


def _says_why(sentence: str) -> bool:
    if not _LEAST_CHARS <= len(sentence) <= _MOST_CHARS or sentence.endswith(":") or not _EXPLAINS.search(sentence):
        return False
    if _ANNOUNCES.match(sentence) or _COUNTS.search(sentence) or _GUESSES.search(sentence):
        return False
    if _PLANS.search(sentence) is None and _RESTATES.search(sentence) is None:
        return True
    return _GIVES_REASON.search(sentence) is not None


def is_about(sentence: str, error: str, change: str) -> bool:
    """Whether a sentence is about an error or a change: it names code that they have, or shares telling words."""
    both = f"{error}\n{change}"
    if symbols := symbols_of(sentence):
        named = f"{both}\n{both.replace('_', ' ')}"  # `test_add` is about `add`
        return any(has_word(named, symbol) for symbol in symbols)
    return len(_telling(sentence) & _telling(both)) >= _LEAST_SHARED


def _telling(text: str) -> frozenset[str]:
    return frozenset(word for word in map(str.lower, _WORD.findall(text)) if not _TELLS_NOTHING.fullmatch(word))
