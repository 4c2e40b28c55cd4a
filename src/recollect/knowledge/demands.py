"""What users demand in sentences of their own: rules for every later session, and choices between two things.

An order of one thing, now, is neither, whatever its words: "skip the big image" says nothing of how things should be.
What a user pasted is not the user's own.
"""

import re
from collections.abc import Iterator, Sequence

from recollect.distill import one_line, sentences, shortened
from recollect.knowledge.exchanges import Turn, is_plan
from recollect.knowledge.facts import Finding, Material
from recollect.knowledge.predicates import PREFERS, STANDING

DEMAND = "demand"
MESSAGE_CHARS = 900  # of a message that somebody types; a longer one is mostly pasted
_CHOICE_SURE, _DOUBTFUL = 0.75, 0.5
_MOST_WISHES = 4  # of a message: one that has more is a specification
_LEAST_WORDS, _LEAST_CHARS, _MOST_CHARS = 4, 6, 320
_WHOLE_CHARS = 400  # with the reason

_BEFORE = (
    r"(?:(?:ok(?:ay)?|yes|yeah|no|nope|and|also|but|so|then|now|please|actually|right|remember(?: that| to)?"
    r"|note(?: that)?|important|again|well|one (?:more|last) thing|btw|fyi|for the record|careful|in general|generally"
    r"|i (?:decided|think|said|told you)(?: that)?)\b[\s,.!:;—–-]*)*"
)
_DO = (
    r"(?:use|keep|prefer|avoid|write|run|add|put|name|call|make|do|don'?t|do not|never|always|only|should|must|let'?s"
    r"|stick)"
)
_FROM_NOW_ON = r"(?:from (?:now|here) on|going forward|in (?:the )?future|as a rule|by default|from today(?: on)?)"
_PLACE = r"(?:repo|repository|project|codebase|code base|workspace|team|repos|projects)"
# A rule: how things are to be from now on, or always. These patterns are for lower-case text.
_STANDING = re.compile(
    rf"^{_BEFORE}(?:(?:always|never) (?!(?:been|wondered|thought|assumed|seen|had|heard|knew|saw|mind|works?|worked"
    r"|happens?|happened|said|asked)\b)[a-z`]"
    r"|(?:do not|don'?t|dont) ever\b"
    rf"|(?:in|for|across) (?:this|our|the|all|any|every) (?:\w+ )?{_PLACE}\b,? (?:we |you |please )*{_DO}\b"
    r"|(?:every time|whenever|each time) .{3,80}[,:] (?:you |we |please |also )*(?:should |must |always )*[a-z]+ "
    rf"|{_FROM_NOW_ON},? (?!(?:the|an?|it|this|that|he|she|they|his|her|their|there|if)\b)[a-z`]"
    rf"|{_DO}\b.*\b(?:{_FROM_NOW_ON}|everywhere|in (?:this|the) {_PLACE})\b"
    r"|(?:you|we|make sure (?:to|that (?:you|we)|you|we)|i(?:'d| would)? (?:want|like|need|expect|prefer) (?:you|us|it)"
    r" to|please|agents?|all \w+|every \w+|each \w+|\w+s)"
    r" (?:\w+ ){0,2}?(?:should|must|shall|need to|have to)? ?(?:always|never|only ever)\b(?!-)"
    r"(?! (?:get|got|gets|see|saw|sees|had|has|have|fail\w*|forg[eo]t\w*|did|does|seem\w*|end|run into|hit|miss\w*"
    r"|found|knew|came|went|ran|made|managed|been|was|were|is|are|\w+ed)\b)"
    r"|(?:you|we) must (?:not|never|always|only)\b)"
    r"|\bthe (?:rule|policy|convention)(?: here| now)? (?:is|going forward|from now on|stays)\b"
    r"|(?:^|[，,。；;：:\s])(?:请)?(?:以后|今后|今後は|以後|从现在(?:起|开始)|從現在起).{0,12}?"
    r"(?:都|请|不要|不再|要|用|再|一律|别|只|必须|ください|する|使)"
    r"|一律|不要再|再也不(?:要|用)|始终(?:用|使用|保持)|永远(?:不要|别|用)|必ず|常に|今後は.{1,40}ください|必须先.{1,20}再|これからは|絶対に"
    r"|(?:都|统一|必须|必須)(?:要|用|使用|采用|改用)|请(?:统一)?(?:用|使用).{1,12}(?:写|回答|回复|提交|命名)"
    r"|항상|앞으로|반드시|절대|\b(?:niemals|ab (?:jetzt|sofort)|künftig|in zukunft|grundsätzlich|désormais|dorénavant"
    r"|à l'avenir|a partir de ahora|de ahora en adelante|d'ora in poi|отныне|впредь)\b"
)
# Words that also describe what happens: rules only where nothing fails.
_ALWAYS = re.compile(r"总是|いつも|\b(?:immer|nie|toujours|jamais|siempre|nunca|sempre|всегда|никогда)\b")
_HAPPENS = re.compile(
    r"报错|失败|出错|显示|返回|卡(?:住|死)|没(?:有)?反应|不行|エラー|落ち|失敗|出てしま|\bfehl|\bkommt\b"
    r"|\b(?:noch immer|immer noch)|\béchou|\berreur|\bfall[ae]\b|\berror|ошибк|падает|\bist\b|\best\b|\bes\b|\bè\b"
)
_STEP = (
    r"(?:also |now |just |probably )*(?:check|look|see|review|run|test|verify|fix|update|make sure|commit|push"
    r"|add (?:an?|some|the|more) (?:\w+ )?tests?|be able)\b"
)
_NAME = r"[`\"']?[\w./@+#-]+(?:[ -][\w./@+#-]+){0,4}?[`\"']?"
_NOT = r"(?:(?:and )?not|instead of|rather than|over)"
_RATHER = r"(?:, (?:and )?not\b|\b(?:instead of|rather than|over|because|since)\b)"
# A choice: what is taken, and mostly what is not, or why.
_CHOICE = re.compile(
    rf"^{_BEFORE}(?:(?:we|i)(?:'ve| have)? (?:finally |now )?(?:decided|agreed|chose|chosen|settled|opted)\b(?! yet)"
    r"|(?:we|i)(?:'re| are|'m| am|'ll| will)? (?:go(?:ing)?|went|stick(?:ing)?|stay(?:ing)?) with\b"
    rf"|(?:we|i) (?:(?:only |never |don'?t |do not )?use|prefer|want)\b.*{_RATHER}"
    rf"|let'?s (?:use|go with|stick (?:to|with)|switch to|standardi[sz]e on|keep|adopt|roll ?back"
    rf"|revert|drop|avoid)\b.*{_RATHER}"
    rf"|(?:use|prefer|choose|take|pick|adopt|standardi[sz]e on|go with) {_NAME},? {_NOT}"
    rf" (?!(?:it|this|that|them|these|those|the (?:first|second|last|other|old|current))\b){_NAME}(?=[\s.,;!)]|$)"
    r"|(?:settled|decided|agreed)[:,—–-] "
    r"|(?:we|i) (?:explicitly |really )?(?:don'?t|do not|never) want (?!to (?:discuss|talk|wait))"
    rf"|(?:we|you|there) should(?! {_STEP}).*\b(?:wherever|everywhere|any|every|only _?one_?)\b"
    r"|(?:don'?t|do not) [a-z]+ .{3,80}(?: - |, )(?:it|because|since|otherwise)\b"
    r"|(?:keep|prefer) (?:our|each|every|all)\b(?!.*\b(?:we|you|i) (?:have |just )?(?:made|did|added|changed|wrote)\b)"
    r"|we .{3,60}\b(?:on purpose|by design|intentionally)\b)"
    r"|(?:我们|我們|我)(?:已经)?(?:决定|決定|选择|选了|约定)|决定(?:用|采用|使用|放弃|改)|改(?:用|回).{1,30}(?:因为|，)"
    r"|(?:不要|别|不)用.{1,40}(?:[，,].{0,20}(?:用|改用|换成|没法|因为|会)|因为)|ことに(?:し|決)|を使わず"
    r"|\b(?:wir (?:haben uns )?entschieden|on a décidé|hemos decidido|мы решили)\b"
)
# "Avoid X here. … Use Y instead.": what stands between is the reason.
_AVOIDS = re.compile(
    r"^(?:(?:no|please|ok|and|but|so)\b[\s,.!—–-]*)*(?:avoid|don'?t use|do not use|drop|no more)"
    r" (?P<other>[\w`'\"./@+-]+(?: [\w`'\"./@+-]+){0,2}?)(?: (?:here|for \w+(?: \w+)?))?[.,;!—–-]",
    re.IGNORECASE,
)
_TAKES = re.compile(
    r"\b(?:use|take|go with|switch to|make it) (?P<choice>[\w`'\"./@+-]+(?: [\w`'\"./@+-]+){0,3}?) instead\b", re.I
)
_INSTEAD = re.compile(
    r"\b(?:use|prefer|want|go(?:ing)? with|chose|choose|take|decided (?:on|for)|have|keep|stick (?:to|with))\s+"
    rf"(?P<choice>[\w`'\"./@ +-]{{2,50}}?),?\s+{_NOT}\s+(?P<other>[\w`'\"./@+-]{{2,40}})",
    re.IGNORECASE,
)
_TAKEN = re.compile(
    r"\b(?:go|going|went|stick|stay) with (?P<choice>[\w`'\"./@+-]{2,40})(?=,? (?:because|since)\b|[.;]?$)"
)
_REASON = re.compile(
    r"\b(?:(?:because(?: of)?|since|so that|due to|as otherwise)\b\s*(?P<why>.{4,200})|(?P<else>otherwise\b.{6,200}))"
    r"|(?:因为|因為|才(?:不)?会|否则|不然)(?P<other>.{2,120})",
    re.IGNORECASE,
)
# For this once, or not sure.
_PASSING = re.compile(
    r"\b(?:for now|this time|this once|right now|(?:at|for) the moment|today|yet|temporar\w+|(?:in|for) this (?:pr"
    r"|commit|file|function|test|case|session|turn|one|task|change))\b|暂时|这次|先不|今回"
)
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|probably|not sure|what if|should we|do we|(?:can|could|should|would) (?:we|you|i|it)|i guess"
    r"|wonder\w*|thinking|don'?t know|consider|somehow|might|if we|for example|e\.g|i(?:'d| would) have|ideally"
    r"|think about|would be (?:nice|good|great)|it seems|looks like)\b|也许|可能|要不要|是不是|吗[？?]?$|かもしれ"
)
# What cannot be understood without the words before it.
_POINTS = re.compile(
    r"\b(?:it|they|them|those|these|this|that|both|the (?:first|second|latter|former|other) (?:one|option)|option \w)\b"
    r"(?! (?:repo|repository|project|codebase|branch|file|folder|context|team)\b)"
)
_NAMES_IT = re.compile(r"[`\"“]|\w[./_]\w|[a-z][A-Z]|\b[A-Z][\w+]+|--\w")
_LEAST_NAMED = 5  # words before "it", which name what it is
_PASTED = re.compile(
    r"severity|operation stopped by|⏺|⎿|^\s*\d+[ │|→]|^=== |^(?:ERROR|WARN|INFO)\b|^diff --git|Traceback \("
    r"|suggestion:|```|^#{1,4} |^\|.*\||</?[a-z_-]+>|^You are |^Your task|^>",
    re.IGNORECASE | re.MULTILINE,
)
# "Sort these notes into chapters: …": what follows is material.
_LEADS_IN = re.compile(
    r"^.{0,200}\b(?:these|this|the following|below|following|text|notes|story|article|email|message|chapter|prompt)\b"
    r"[^.!?\n]{0,80}[:：]\s",
    re.IGNORECASE,
)
_COMMAND = re.compile(r"^/[\w:-]+\s+")  # before what a user adds to it
_ASKED_CHANGE = re.compile(
    r"\b(?:(?:can|could) (?:we|you)|how about (?:we|instead)|any chance we can"
    r"|wonder(?:ing)? if (?:we|it|you) (?:can|could|should)) (?:please |just |also |maybe |not |rather |now )*"
    r"(?!(?:check|look|see|review|run|explain|tell|find|verify|commit|push|help|read|give|show|write|debug|think)\b)"
    r"[a-z]{2,}\b .{8,}",
    re.IGNORECASE,
)
_DROPS = re.compile(
    r"\b(?:leave (?:it|that|this|things)\b|never ?mind|forget (?:it|that|about)|don'?t bother"
    r"|as it (?:is|was) then|let'?s not\b|drop (?:it|that|the"
    r" idea))\b",
    re.IGNORECASE,
)
_DROP_CHARS = 120
_STATES = re.compile(r"^(?:we|it|that|this|the|they|our|otherwise|because|i)\b", re.IGNORECASE)
_REASON_CHARS = 200


def demands(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """The rules and choices that a user states."""
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        if turn.request is None or is_plan(material, turn.request):
            continue
        message = _COMMAND.sub("", material.text(turn.request))
        if not is_typed(message) or (following is not None and _is_dropped(material, following)):
            continue
        said = sentences(message)
        wishes = [(place, confidence) for place, text in enumerate(said) if (confidence := demanded(text))]
        if len(wishes) > _MOST_WISHES:
            continue
        for place, confidence in wishes:
            yield _demand(turn, said, place, confidence)


def is_typed(message: str) -> bool:
    """Whether a message is all a user's own words: short, and nothing in it was pasted."""
    if len(message) > MESSAGE_CHARS or message.startswith(("/", "<", "[")):
        return False
    return _PASTED.search(message) is None and _LEADS_IN.match(message) is None


def demanded(sentence: str) -> float:
    """How sure it is that a sentence of a user is a rule or a choice; 0 for all others."""
    lowered = sentence.lower().replace("’", "'")
    is_short = len(sentence.split()) < _LEAST_WORDS if sentence.isascii() else len(sentence) < _LEAST_CHARS
    if is_short or len(sentence) > _MOST_CHARS or sentence.endswith(("?", "？", ":", "：", "{", ";")):
        return 0.0
    if _UNSURE.search(lowered):
        return 0.0
    if _is_standing(lowered):
        confidence = STANDING
    elif _CHOICE.search(lowered) or _AVOIDS.match(sentence):
        confidence = _CHOICE_SURE
    else:
        return 0.0
    return confidence if is_clear(sentence) and not _PASSING.search(lowered) else _DOUBTFUL


def _is_standing(lowered: str) -> bool:
    """Whether a wish is meant for later sessions, too."""
    if _STANDING.search(lowered):
        return True
    return _ALWAYS.search(lowered) is not None and _HAPPENS.search(lowered) is None


def is_clear(text: str) -> bool:
    """Whether a wish can be understood by itself: what it points at is named before."""
    pointing = _POINTS.search(text.lower())
    if pointing is None:
        return True
    named = text[: pointing.start()]
    return len(named.split()) >= _LEAST_NAMED or _NAMES_IT.search(named[1:]) is not None


def asks_change(text: str) -> bool:
    """Whether a question asks for a thing to be otherwise."""
    return _ASKED_CHANGE.search(text) is not None


def reason_in(text: str) -> str | None:
    match = _REASON.search(text)
    return one_line(match["why"] or match["else"] or match["other"] or "").rstrip(". 。") or None if match else None


def _is_dropped(material: Material, following: Turn) -> bool:
    """Whether the user's next words take back what was said."""
    said = material.text(following.request) if following.request is not None else ""
    return len(said) <= _DROP_CHARS and _DROPS.search(said) is not None


def _demand(turn: Turn, said: Sequence[str], place: int, confidence: float) -> Finding:
    """A wish with the reason that the next words give, and what is to be used instead."""
    assert turn.request is not None
    sentence = said[place]
    other, own_reason = _INSTEAD.search(sentence), reason_in(sentence)
    chosen = other or _TAKEN.search(sentence)
    choice: str | None = chosen["choice"].strip("`'\". ") if chosen else None
    alternatives = [other["other"]] if other else []
    reason, text = own_reason, sentence
    if avoided := _AVOIDS.match(sentence):
        taken = next((index for index in range(place, len(said)) if _TAKES.search(said[index])), place)
        match = _TAKES.search(said[taken])
        choice, alternatives = match["choice"].strip("`'\" ") if match else None, [avoided["other"]]
        reason = own_reason or " ".join(said[place + 1 : taken]) or None
        text = " ".join(said[place : taken + 1])
    reason = reason or _following_reason(said, place)
    if reason and not own_reason and reason not in text and len(text) + len(reason) < _WHOLE_CHARS:
        text = f"{text} {reason}"
    details = {
        "by": "user",
        "alternatives": [one.strip("`'\" .,") for one in alternatives],
        "choice": choice,
        "reason": shortened(reason, _REASON_CHARS) if reason else None,
    }
    about = ("preference", choice or sentence)
    evidence = [(turn.request, sentence)]
    return Finding(DEMAND, PREFERS, about, ("preference", sentence), text, confidence, evidence, details)


def _following_reason(said: Sequence[str], place: int) -> str | None:
    """The sentence after a wish, if it states how things are rather than asks for more."""
    following = said[place + 1] if place + 1 < len(said) else ""
    is_statement = _STATES.match(following) is not None and not following.endswith("?") and not demanded(following)
    return following.rstrip(". ") if is_statement and len(following) <= _REASON_CHARS else None
