"""What users demand in words: sentences of their own that say how things should be, not what to do next."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.distill import one_line, sentences, shortened
from recollect.knowledge.exchanges import Turn, is_plan
from recollect.knowledge.facts import Finding, Material
from recollect.knowledge.predicates import PREFERS
from recollect.knowledge.proposals import question_in
from recollect.knowledge.runs import Change
from recollect.store import Step

DEMAND = "demand"
_SUBJECT_CHARS = 160
_DEMAND_CHARS = 400  # people write long sentences
WISH_CHARS = 700  # of a message in which a plain wish is the user's own
_MESSAGE_CHARS = 1500  # a longer one is mostly pasted
_LEAST_WORDS = 4
_SHORT = 8  # words of a wish that often needs others to be understood
_LEAST_NAMED, _LEAST_APART = 7, 4  # words before "it" or "this" in a sentence, or in the clause before its own
_DOUBTFUL = 0.5  # a task for once, or of what is not known: agents that begin are not told of it

# Before a verb: not that of a step, which says nothing of how things should be.
NO_STEP = (
    r"(?!(?:re-?)?(?:check|look|see|review|run|explain|tell|figure|find|verify|confirm|commit|push|rebase|merge"
    r"|help|read"
    r"|summari[sz]e|test|double|generate|give|write|debug|investigate|fix(?! it (?:so |that |to ))|think|propose"
    r"|suggest|open|close|continue|start|move (?:on|to #)|talk|discuss|brainstorm|pause|wait|get|pull|fetch|log|update"
    r"|draft|say|reply|respond|post|search|analy[sz]e|compare|research|ensure|stop|address|work|plan|invoke"
    r"|finish|proceed"
    r"|resolve|switch to|know|try (?:again|it)|do (?:it|this|that)(?! (?:\w+ly )?(?:as|in|with|by|instead)\b)|be"
    r"|understand|note|deal|cut|do (?:a|the|another|what|two|three|\d)|go(?! (?:with|for|back|json|\d|\w+ing))"
    r"|keep (?:going|working|it up)|tackle|build|rename this branch|implement (?:it|this|that|options?|suggestions?)"
    r"|have a (?:quick )?look|focus"
    r"|sort (?:this|it)|make (?:a |the )?(?:pr|commit|copy)|create (?:an?|the|new|me) (?:\S+ )?(?:pr|pull|branch|commit"
    r"|issue|ticket|plan|test)"
    r"|add (?:an?|some|more|the|that|this|these|similar|at least)? ?(?:\w+ ){0,2}(?:tests?|comments?|tasks?|ones)|take"
    r"|also|just|please|maybe|not|now|first|try and|step through|follow (?:through|up)|abandon|bump it|mark the pr"
    r"|implement (?:an? fix|please|both)|adjust (?:the )?\S+(?: file)?(?=\W*$)|make (?:some|more|a few)\b"
    r"|(?:create|add|open|file) .{0,40}\b(?:issue|ticket|follow-?up))\b)"
)
# This pattern and those below that have no flag are for lower-case text.
_DEMAND = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|i(?:'d| would)? (?:rather|prefere?)|we (?:prefer|always|never"
    rf"|don'?t (?:want|use|need)|(?:should(?:n't| not)?|must) (?:also |now |just )*{NO_STEP}|only)|instead of"
    r"|rather than|no need (?:to|for)|stop (?:using|adding|doing|writing|creating)"
    r"|(?:do not|don'?t|dont) (?:use|add|create|commit|push|touch|change|write|run|ever|stash|remove|delete|edit"
    r"|make|put|do|mock|want|need|include|rely|call)|make sure (?:to|that|we|you|it)"
    r"|let'?s (?:just |not )?(?:remove|keep (?!going)|use|drop|not|always|avoid|stick|go with|roll ?back|revert|switch)"
    r"|(?:roll(?:ed)? ?back|revert(?:ed)?) .{3,80} because|we .{3,60} (?:on purpose|by design|intentionally))\b"
    r"|以后|不要|必须|总是|してください|しないで|항상|\bsiempre\b|\bnunca\b|\bimmer\b|\bniemals\b|\btoujours\b|\bjamais\b"
    r"|всегда|никогда",
)
_LETS_CHANGE = (
    rf"\blet'?s (?:just |also |only |first |not |now )*{NO_STEP}[a-z]{{2,}}\b"
    r" (?!(?:this|that|it)(?: too| now)?\W*$).{3,}"
)
# Plain wishes, in a short message: how the user wants a thing to be. Tasks ("I want you to check") are none.
_WISH = re.compile(
    r"\bi (?:do )?(?:want|would replace|would go with)\b(?! to (?:know|see|understand|check|look|run|test|ask|discuss"
    r"|do)\b| you to (?:check|look|run|review|find|tell|explain|read)\b)"
    rf"|\bi(?:'d| would) (?:go with|rather|prefer|keep|like (?:it|this|that|us|the|\w+s|to {NO_STEP}\w+"
    r"|to do an? [\w -]{2,30}approach))\b"
    rf"|{_LETS_CHANGE}"
    r"|\b(?:should(?:n't| not)? (?:still |also |now |just )?"
    r"(?:be|have|use|only|always|never|check|show|print|return|set|run|contain|include)|needs? (?:to be|no)"
    r"|must(?:n't| not)? be)\b"
    rf"|\bwe (?:do |also )?(?:want|need) to {NO_STEP}\w+"
    r"|\bideally\b|\bnot as (?:a|an|the) .{3,60}, but\b"
    r"|\b(?:better|good) idea to\b|\bi would (?:even |then )?want\b"
    r"|\bis too? (?:much|big|long|verbose|noisy)\b|\bdoes(?:n't| not) (?:work (?:since|because)|make sense to)\b"
    r"|\bit'?s (?:fine|ok(?:ay)?|better) to\b",
)
_BEFORE_ORDER = (
    r"(?:(?:ok(?:ay)?|yes|yeah|yep|hm+|no|nah|sure|and|also|but|please|so|then|however|now|one last thing|-)[,.!]* )*"
)
_ORDER = re.compile(
    _BEFORE_ORDER
    + r"(?:(?:use|keep|skip|leave|avoid|prefer|limit|mark|rename|stick (?:to|with)|don'?t|do not|drop|replace|put"
    r"|treat|ignore(?! this error)"
    r"|you (?:just )?should (?:just )?(?:run|use)|do nothing)"
    r"|make (?!sure|an?\b|the (?:pr|commit|change)))\b(?! (?:going|it up|on\b|me\b|worry))",
)
# An order or a question that files were edited for.
_CHANGE = re.compile(
    rf"{_BEFORE_ORDER}(?:add(?! .*\b(?:tests?|comments?)\b)|change|remove|move|store|show|print|return|call|name|hide"
    r"|split|support|allow|include|invert|revert|switch|extract)\b"
    r"(?! (?:it|this|that|them|these|the (?:first|last)\b.{0,8})\W*$) .{12,}",
)
_ASKED_CHANGE = re.compile(
    rf"\b(?:(?:can|could) (?:we|you)|any chance we can|how about (?:we|instead)"
    rf"|wonder(?:ing)? if (?:we|it|you) (?:can|could|should)) (?:please |just |also |maybe |not |rather |now )*"
    rf"{NO_STEP}[a-z]{{2,}}\b (?!.*\bor (?:do|should|is|would)\b).{{8,}}",
    re.IGNORECASE,
)
_CLAUSE_END = re.compile(r"(?:[,;]| -+) ")
_ITEM = re.compile(r"\s*(?:[-*•+]|\(?\d{1,2}[.)]|[A-Za-z]\))\s+\S")
# Who leads a list in with this hands out the steps of a task, or asks which of them is right.
_ASKS_FOR = re.compile(r"\b(?:(?:can|could|would|will) you|help me|following)\b|\?$", re.IGNORECASE)
# Orders for this once.
_ONE_OFF = re.compile(
    r"\b(?:let me know|for me to|don'?t (?:change|edit|do) anything|temporary (?:one\b|(?:\w+ )?file)"
    r"|before (?:doing|continuing|you)|yet\W*$|can you help|just make sure|your propos\w+|some (?:more|sort|kind)\b"
    r"|(?:linear|github|jira) (?:issue|comment)|subagents?|project: )",
    re.IGNORECASE,
)
_PONDERS = re.compile(r"\bshould (?:we|it|this|that|i)\b.*\?$", re.IGNORECASE)
# An option by its letter or number.
_LETTERED = re.compile(
    r"\b(?:with|do|think|like|(?i:option|approach)|implement) (?:#?\d|[A-D])\b"
    r"|\bfor the (?:first|second)\b"
)
_QUOTED = re.compile(r"“[^”]*”|\"[^\"]*\"|(?<=: )# .*")
# A task for now, not how things should be.
_TASK = re.compile(r"^.{0,40}\b(?:commit|push|rebase|merge|subagents?|check existing)\b.{0,24}$")
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|not sure|what if|should we|do we|(?<!, )(?:can|could) (?:we|you)|i guess|wondering"
    r"|thinking aloud|don'?t know|considering|somehow|(?:if|whether) we (?:want|should|need)|i might be wrong"
    r"|to be sure"
    r"|for example|alternatively|consider (?:\w+ing|an?|the)|wonder)\b",
)
_ASKS_IF_SO = re.compile(r"[, ](?:right|correct|isn'?t it|does it|doesn'?t it|is it|no)\?$")
# Sentences that say how things are, with the same words.
_DESCRIBES = re.compile(
    r"\b(?:causes?|returns?|is|was|are|were|to|will|would|has|have|but|that|which|it|probably"
    r"|_probably_) (?:\w+ )?(?:always|never)\b"
    r"|never (?:called|used|set|actually|mind)|\bcan always\b|instead of \d|can work instead"
    r"|\b(?:problem|issue|bug|trouble) (?:is|was)\b|\bis intended to\b|\bshould be updated\b|^replace lines\b"
    r"|\binstead of (?!string)\w+ing\b(?!.*\b(?:should"
    r"|use|want|let)\b)"
    r"|\b(?:agent|user|code|we) never (?:\w+ed|had|was)\b|\b(?:it|this|that|they|which) should (?:have|be) (?:\w+ed"
    r"|better|fine|ok(?:ay)?)\b|\bshould(?:n't| not)? have (?:been|\w+ed)\b"
    r"|^(?:plan:|debug:|v \*|(?:minor|major|critical)\b[^,.]{0,24}:|this|that|consider|\[|\d+ [+-]|[+-] |seeing"
    r"|since we|[\"“']|ideally just|sorry"
    r"|use ['\"]|the fix requires|tell me|or would)"
    r"|\b(?:becomes|should(?:n't| not) be too|in theory|don'?t fix anything|superpower|skill)\b"
    r"|\bshould be (?:better|fine|ok(?:ay)?|good|there|in|done|working)\b|\bskip \d"
    r"|^.{0,12}let'?s \w+ (?:this|that|it)(?: too| now)?\W*$|^\S+\.\w+:\d+|to hide this notice",
)
# Wishes whose words do not say what for.
_SAYS_NO_WHAT = re.compile(
    r"\b(?:keep|have) in mind\b|\bsomething else\b|\bsomething like\W*$|^let'?s go, |\b\d\.? ?\+ ?\d|\[redacted",
    re.IGNORECASE,
)
# Of demands, those that are meant for every later session, too.
_STANDING = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|every ?time|whenever|by default|we (?:prefer|only|don'?t use)"
    r"|i prefer|instead of|rather than|only (?:ever|use)|must(?:n't| not)?|stop (?:using|adding|doing|writing|creating)"
    r"|no need (?:to|for)|(?:do not|don'?t|dont) (?:use|ever|mock|rely|touch))\b"
    r"|以后|必须|总是|항상|\bsiempre\b|\bnunca\b|\bimmer\b|\bniemals\b|\btoujours\b|\bjamais\b|всегда|никогда",
    re.IGNORECASE,
)
_PASSING = re.compile(r"\b(?:for now|this time|this once|right now|at the moment)\b|\?", re.IGNORECASE)
# What stands for a thing that was named earlier, if at all; and what names one.
_LACKS_SUBJECT = re.compile(r"(?i)(?:must|should|shall|needs? to|has to)\b")
_POINTS = re.compile(
    r"\b(?:it(?!(?:'s| is) (?:fine|ok(?:ay)?|better|best|good) (?:to|if)\b)|they|them|those|these)\b|\bboth[,.!]"
    r"|\bthis\b(?! (?:context|repo|repository|project|codebase|branch)\b)"
    r"|\bthat\b(?=\s*(?:[.,;!?']|$)|\s+(?:is|are|was|should|must|will|would|can|needs?|has|have|does|doesn|in|to|for"
    r"|as|too|instead|entirely)\b|\s+(?:\w+ )?(?:part|one|way|case|logic|approach|fix|change)\b)|\bone\b(?=\W*$| per )",
    re.IGNORECASE,
)
_FOLLOWS = re.compile(
    r"(?i)(?:like|then|not|instead|because|so|which)\b(?! of\b)|e\.g\."
    r"|.*\b(?:instead|again|too(?: much)?|to much|(?:this|that) (?:case|situation))\W*$"
)
_JOINS = re.compile(r"(?i)(?:and|but)\b")
_ANSWERS = re.compile(r"(?i)(?:ok(?:ay)?|ye(?:s|p|ah)|yup|no(?:pe)?|nah|sure|hm+|right|great|actually|oh|let'?s)\b")
_APART = re.compile(r" <?-+ |[:;] ")  # of clauses
_NAMES = re.compile(r"[`\"“]|\w[./]\w|\w_\w|[a-z][A-Z]|--\w|\b[A-Z]{2,}")
_LETS = re.compile(_LETS_CHANGE)
_PASTED = re.compile(
    r"severity|operation stopped by|⏺|⎿|^\s*\d+[ │|]\s*[+-]|^=== |^ERROR: |^diff --git|Traceback \(|suggestion:",
    re.IGNORECASE | re.MULTILINE,
)
# How users drop what they proposed before.
_DROPS = re.compile(
    r"\b(?:leave (?:it|that|this|things)\b|never ?mind|forget (?:it|that|about)|as it (?:is|was) then|don'?t bother"
    r"|(?:keep|stay with|stick with) (?:it|what we have|the (?:current|old)|things)|drop (?:it|that|the idea)"
    r"|let'?s not)\b",
    re.IGNORECASE,
)
_DROP_CHARS, _BARE_DROP_CHARS = 120, 30
_PROPOSES = re.compile(r"(?:instead of|rather than)\b", re.IGNORECASE)
_COMMAND = re.compile(r"^/[\w:-]+\s+")  # before what a user adds to it
_INSTEAD = re.compile(
    r"\b(?:use|prefer|want|go with|choose|take|try|have"
    r"|keep)\s+(?P<choice>[\w`'\"./@ +-]{2,50}?)[,;]?\s+(?:instead of|rather than|over|not)\s+"
    r"(?P<other>[\w`'\"./@+-]{2,40})",
    re.IGNORECASE,
)
_REASON = re.compile(
    r"\b(?:(?:because|since|so that|due to)\b\s*(?P<why>.{6,200})|(?P<else>otherwise\b.{6,200}))", re.IGNORECASE
)


def demands(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """What a user wants to be done or left undone, in a sentence of the user's own."""
    for before, turn, following in zip([None, *turns[:-1]], turns, [*turns[1:], None], strict=True):
        if turn.request is None or is_plan(material, turn.request):
            continue
        message = _COMMAND.sub("", material.text(turn.request))
        if len(message) > _MESSAGE_CHARS or message.startswith(("/", "<", "[")) or _PASTED.search(message):
            continue
        has_changed = any(turn.start < change.position < turn.end for change in changes)
        if not has_changed and following is not None and _is_dropped(material, following):
            continue
        question = _question(material, before.request) if before is not None and before.request is not None else ""
        for wish in _wishes(message, question, has_changed=has_changed):
            yield _demand(turn.request, wish)


def _question(material: Material, request: Step) -> str:
    """What the next words of the user answer: what the agent asks or offers, or else what the user asked it."""
    answer = material.trace.answers.get(request.event_uid)
    question = question_in(material.text(answer)) if answer is not None else ""
    return shortened(question or (request.summary if _PONDERS.search(request.summary) else ""), _SUBJECT_CHARS)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence with what it follows: the one before it, or the lead-in of the list that it begins an item of."""

    text: str
    before: str = ""
    is_item: bool = False


@dataclass(frozen=True, slots=True)
class _Wish:
    text: str
    confidence: float
    subject: str = ""


def _wishes(message: str, question: str, *, has_changed: bool) -> Iterator[_Wish]:
    """The wishes of a message, each in words that say of what, if there are any: else it is not sure."""
    last: _Wish | None = None
    for sentence in _sentences(message):
        confidence = _demanded(sentence.text, is_short=len(message) <= WISH_CHARS, has_changed=has_changed)
        if not confidence:
            continue
        wish, text = _in_context(sentence, confidence, question), sentence.text
        needs_others = wish.text != text or len(text.split()) < _SHORT
        if last is not None and sentence.before and last.text.endswith(sentence.before) and needs_others:
            last = replace(last, text=f"{last.text} {text}", confidence=max(wish.confidence, last.confidence))
            continue
        if last is not None:
            yield last
        last = wish
    if last is not None:
        yield last


def _in_context(sentence: _Sentence, confidence: float, question: str) -> _Wish:
    """A wish with the sentence before it or the question that it answers, if it needs one of them."""
    text, follows = sentence.text, len(sentence.before.split()) >= _LEAST_WORDS
    is_task = sentence.is_item and _ASKS_FOR.search(sentence.before) is not None
    if (is_task or text.startswith("(") or _LETTERED.search(text) or _ONE_OFF.search(text)) and not is_standing(text):
        return _Wish(text, _DOUBTFUL)
    is_answer = _ANSWERS.match(text) is not None
    whole = f"{sentence.before} {text}"
    if follows and (not is_clear(text) or _JOINS.match(text)) and len(whole) <= _DEMAND_CHARS:
        return _Wish(whole, confidence)
    if is_clear(text) and not is_answer:
        return _Wish(text, confidence)
    if question and not follows and not sentence.is_item:
        return _Wish(text, confidence, question)
    return _Wish(text, confidence if is_clear(text) and not _is_bare(text) else _DOUBTFUL)


def _is_bare(text: str) -> bool:
    """Whether a reply has too few words to say of what."""
    return len(text.split()) < _SHORT and _NAMES.search(text) is None


def _sentences(message: str) -> Iterator[_Sentence]:
    """The sentences of a message in their place. What a list is led in by is one with it if it ends nothing."""
    lead, before, held = "", "", None
    for line in message.splitlines():
        is_item = _ITEM.match(line) is not None
        for text in sentences(line):
            if is_item and held is not None and len(held.text) + len(text) < _DEMAND_CHARS:
                mark = " " if held.text == lead else "; "
                held = replace(held, text=f"{held.text}{mark}{text}")
                continue
            if held is not None:
                yield held
                held = None
            sentence = _Sentence(text, lead if is_item and before else before, is_item)
            is_lead = not is_item and text[-1] not in ".!?" and _wished(text.lower(), is_short=True, has_changed=False)
            if is_lead:
                held = sentence
            else:
                yield sentence
            lead = lead if is_item else text
            is_whole = is_clear(text) and text.count('"') % 2 == 0
            before = text if is_whole or is_item else f"{before} {text}".strip()
    if held is not None:
        yield held


def _is_dropped(material: Material, following: Turn) -> bool:
    """Whether the user's next words take back what nothing was changed for."""
    said = material.text(following.request) if following.request is not None else ""
    return len(said) <= _DROP_CHARS and _DROPS.search(said) is not None


def asks_change(text: str) -> bool:
    """Whether a question asks for a thing to be otherwise."""
    return _ASKED_CHANGE.search(text) is not None


def is_standing(text: str) -> bool:
    """Whether a wish is meant for later sessions, too."""
    return _STANDING.search(text) is not None and not _PASSING.search(text)


def is_clear(text: str) -> bool:
    """Whether a wish can be understood by itself: it says of what, and points at nothing before it."""
    text = _QUOTED.sub('""', text)
    if _LACKS_SUBJECT.match(text) or _FOLLOWS.match(text):
        return False
    pointing = _POINTS.search(text)
    named = text[: pointing.start()] if pointing is not None else ""
    clauses = _APART.split(named)
    is_named = len(named.split()) >= _LEAST_NAMED or (len(clauses) > 1 and len(clauses[0].split()) >= _LEAST_APART)
    return pointing is None or is_named


def reason_in(text: str) -> str | None:
    match = _REASON.search(text)
    return one_line(match["why"] or match["else"]).rstrip(". ") if match else None


def _demanded(sentence: str, *, is_short: bool, has_changed: bool) -> float:
    """How sure it is that a sentence is a demand: less of a plain wish, which has to be in a short message, and least
    of what asks for one change."""
    if not 12 <= len(sentence) <= _DEMAND_CHARS or sentence.endswith((":", "{", ";")) or sentence.count("`") % 2:
        return 0.0  # or the rest of a quote
    sentence = _QUOTED.sub('""', sentence).lower()  # ignoring case takes several times as long
    if len(sentence) <= _BARE_DROP_CHARS and _DROPS.search(sentence):
        return 0.0  # of what, only the words before tell
    if _TASK.match(sentence) and not is_standing(sentence):
        return 0.0
    if is_short and has_changed and asks_change(sentence):
        return _DOUBTFUL
    if _ASKS_IF_SO.search(sentence):
        return 0.0
    if sentence.endswith("?"):  # only its last clause asks
        if _PROPOSES.match(sentence):
            return 0.0
        sentence = sentence[: max((end.start() for end in _CLAUSE_END.finditer(sentence)), default=0)]
    confidence = _wished(sentence, is_short=is_short, has_changed=has_changed)
    if not confidence or _UNSURE.search(sentence):
        return 0.0
    is_described = _DESCRIBES.search(sentence) is not None and not _LETS.search(sentence)
    return 0.0 if is_described or _SAYS_NO_WHAT.search(sentence) else confidence


def _wished(sentence: str, *, is_short: bool, has_changed: bool) -> float:
    """The same by the words of a wish alone."""
    if _DEMAND.search(sentence):
        return 0.75 if is_standing(sentence) else 0.7
    if not is_short or len(sentence.split()) < _LEAST_WORDS:
        return 0.0
    clauses = _CLAUSE_END.split(sentence) if len(sentence.split()) >= _LEAST_WORDS else []
    if _WISH.search(sentence) or any(map(_ORDER.match, clauses)):
        return 0.6
    return _DOUBTFUL if has_changed and any(map(_CHANGE.match, clauses)) else 0.0


def _demand(request: Step, wish: _Wish) -> Finding:
    sentence = wish.text
    other = _INSTEAD.search(sentence)
    choice = other["choice"].strip("`'\" ") if other else None
    details = {
        "by": "user",
        "alternatives": [other["other"].strip("`'\" .,")] if other else [],
        "choice": choice,
        "reason": reason_in(sentence),
    }
    about = ("preference", choice or sentence)
    text = f"{sentence} (on “{wish.subject}”)" if wish.subject else sentence
    evidence = [(request, sentence)]
    return Finding(DEMAND, PREFERS, about, ("preference", sentence), text, wish.confidence, evidence, details)
