"""What users say in sentences of their own: rules for every later session, choices between two things, and what was
settled in talk.

An order of one thing, now, is neither, whatever its words: "skip the big image" says nothing of how things should be.
What a user pasted is not the user's own. Only exchanges in which the agent called nothing are talk: a recap after work
says what was done, not what was decided. A decision that says it amends an earlier one takes its place
(`knowledge.asking`).
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

from recollect.digest import CALLS, one_line, sentences, shortened
from recollect.knowledge.material import TEXT_CHARS, Finding, Material, Turn, decided, is_plan
from recollect.knowledge.records import PREFERS, STANDING
from recollect.store import AMENDMENT

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
ASKED_CHANGE = re.compile(  # of a question: for a thing to be otherwise
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


def demands(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """The rules and choices that a user states."""
    for turn, following in zip(turns, [*turns[1:], None], strict=True):
        if turn.request is None or is_plan(material, turn.request):
            continue
        message = _COMMAND.sub("", material.text(turn.request))
        reply = material.text(following.request) if following is not None and following.request is not None else ""
        is_taken_back = len(reply) <= _DROP_CHARS and _DROPS.search(reply) is not None
        if is_taken_back or not is_typed(message):
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
    if _STANDING.search(lowered) or (_ALWAYS.search(lowered) and not _HAPPENS.search(lowered)):
        confidence = STANDING
    elif _CHOICE.search(lowered) or _AVOIDS.match(sentence):
        confidence = _CHOICE_SURE
    else:
        return 0.0
    return confidence if is_clear(sentence) and not _PASSING.search(lowered) else _DOUBTFUL


def is_clear(text: str) -> bool:
    """Whether a wish can be understood by itself: what it points at is named before."""
    pointing = _POINTS.search(text.lower())
    if pointing is None:
        return True
    named = text[: pointing.start()]
    return len(named.split()) >= _LEAST_NAMED or _NAMES_IT.search(named[1:]) is not None


def reason_in(text: str) -> str | None:
    match = _REASON.search(text)
    return one_line(match["why"] or match["else"] or match["other"] or "").rstrip(". 。") or None if match else None


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
    # The next sentence is one if it states how things are rather than asks for more.
    following = said[place + 1] if place + 1 < len(said) else ""
    is_statement = _STATES.match(following) is not None and not following.endswith("?") and not demanded(following)
    if not reason and is_statement and len(following) <= _REASON_CHARS:
        reason = following.rstrip(". ")
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


RECAP, CORRECTION = "recap", "correction"
_MOST_CORRECTION = 700  # characters of a message that corrects a proposal
_MOST_AMENDMENT = 320
_LEAST_SAID = 8
_AGREES_CHARS = 160

_LEAD_IN = r"[*_#> ]*(?:(?:ok(?:ay)?|understood|great|perfect|right|so|good|yes|got it)\b[\s,.!:—–-]*)*"
# "Settled: …", "Final wave policy: …", "Amended rule, superseding …: …".
_RECAP = re.compile(
    rf"^{_LEAD_IN}(?:settled|final(?:i[sz]ed)?\b(?! answer)|amend(?:ed|ing)|agreed|decided|decision|locked in"
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
        if answer is None or any(step.kind in CALLS for step in turn.steps):
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
            recap = decided(
                RECAP, found, found, found, confidence, evidence, AMENDMENT if amends else "decision", by=by
            )
    if recap is not None:
        yield recap
        return
    corrections = [
        one for before, turn in pairwise(asked) for one in _correction(material, before, turn, amends=amends)
    ]
    yield from corrections or _amendments(material, asked)


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
    return shortened(re.sub(rf"^{_LEAD_IN}", "", best, flags=re.I), TEXT_CHARS) if _RULES.search(best) else ""


def _amendments(material: Material, asked: Sequence[Turn]) -> Iterator[Finding]:
    """What a user says takes the place of something settled earlier."""
    for turn in asked:
        said = material.text(turn.request) if turn.request is not None else ""
        message = one_line(said) if len(said) <= _MOST_AMENDMENT else ""
        match = _AMENDS.search(message)
        if turn.request is None or match is None or match[0].lower().startswith("amend"):  # amending is of commits, too
            continue
        if is_typed(message) and _SETS.search(message) and message[-1] != "?":
            evidence = [(turn.request, message)]
            yield decided(CORRECTION, message, message, message, 0.75, evidence, AMENDMENT)


def _correction(material: Material, before: Turn, turn: Turn, *, amends: bool) -> Iterator[Finding]:
    """A user's "No — …" to what the agent proposed."""
    assert before.request is not None and turn.request is not None
    answer = material.trace.answers.get(before.request.event_uid)
    message = material.text(turn.request).strip()
    corrects = _CORRECTS.match(message)
    if (
        answer is None
        or corrects is None
        or len(message) > _MOST_CORRECTION
        or any(step.kind in CALLS for step in before.steps)
    ):
        return
    said = sentences(message[corrects.end() :])
    text = shortened(one_line(" ".join(said[:2])), TEXT_CHARS)
    if not said or said[0].endswith("?") or not is_clear(said[0]):
        return
    if len(text.split()) < _LEAST_SAID or not _NORMS.search(text):
        return
    if not amends and any(map(demanded, sentences(message))):
        return  # it is found as a wish
    proposal, _ = proposal_in(material.text(answer))
    evidence = [(turn.request, message), (answer, proposal or answer.summary)]
    kind = AMENDMENT if amends else "decision"
    yield decided(CORRECTION, text, text, text, 0.65, evidence, kind, reason=reason_in(message))


def says_what(question: str) -> bool:
    return len(_FILLED.findall(question)) >= _LEAST_ASKED


def without_code(text: str) -> str:
    return _CODE.sub("\n", text)


def proposal_in(answer: str) -> tuple[str, float]:
    """What an answer offers last, and how sure it is what that means; nothing if it only explains.

    "Want me to make this change?" says nothing without the sentence before it that proposes one. If none does, it is a
    guess.
    """
    ended = [sentence.replace("**", "") for sentence in sentences(without_code(answer))[-_MOST_ENDING:]]
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
