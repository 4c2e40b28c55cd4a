"""What users demand in words: sentences of their own that say how things should be, not what to do next."""

import re
from collections.abc import Iterator, Sequence

from recollect.distill import one_line, sentences, shortened, words
from recollect.knowledge.exchanges import Turn, is_plan
from recollect.knowledge.facts import Finding, Material
from recollect.knowledge.predicates import PREFERS
from recollect.knowledge.proposals import proposal_in
from recollect.knowledge.runs import Change
from recollect.store import Step

DEMAND = "demand"
_SUBJECT_CHARS = 160
_DEMAND_CHARS = 400  # people write long sentences
WISH_CHARS = 700  # of a message in which a plain wish is the user's own
_MESSAGE_CHARS = 1500  # a longer one is mostly pasted
_LEAST_WORDS = 4
_CHANGE_SURE = 0.5  # an order may be a task only: agents that begin are not told of it

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
    r"|\bideally\b|\bnot as (?:a|an|the) .{3,60}, but\b|\bi think we can (?:just )?(?:drop|remove|skip)\b"
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
# A task for now, not how things should be.
_TASK = re.compile(r"^.{0,40}\b(?:commit|push|rebase|merge|subagents?|check existing)\b.{0,24}$")
_UNSURE = re.compile(
    r"\b(?:maybe|perhaps|not sure|what if|should we|do we|(?<!, )(?:can|could) (?:we|you)|i guess|wondering"
    r"|can you (?:check|look|take|see)"
    r"|thinking aloud|don'?t know|considering|somehow|(?:if|whether) we (?:want|should|need)|i might be wrong"
    r"|to be sure"
    r"|for example|alternatively|consider (?:\w+ing|an?|the)|wonder)\b",
)
_ASKS_IF_SO = re.compile(r"[, ](?:right|correct|isn'?t it|does it|doesn'?t it|is it|no)\?$")
# Sentences that say how things are, with the same words.
_DESCRIBES = re.compile(
    r"\b(?:causes?|returns?|is|was|are|were|to|will|would|has|have|but|that|which|it|probably"
    r"|_probably_) (?:\w+ )?(?:always|never)\b"
    r"|never (?:called|used|set|actually|mind)|:=|\bcan always\b|instead of \d|can work instead"
    r"|\b(?:problem|issue|bug|trouble) (?:is|was)\b|\bis intended to\b|\bshould be updated\b|^replace lines\b"
    r"|\binstead of (?!string)\w+ing\b(?!.*\b(?:should"
    r"|use|want|let)\b)"
    r"|\b(?:agent|user|code|we) never (?:\w+ed|had|was)\b|\b(?:it|this|that|they|which) should (?:have|be) (?:\w+ed"
    r"|better|fine|ok(?:ay)?)\b|\bshould have been\b"
    r"|^(?:plan:|(?:minor|major|critical)\b[^,.]{0,24}:|this|that|consider|\[|\d+ [+-]|[+-] |seeing|since we|[\"“']"
    r"|ideally just|sorry"
    r"|use ['\"]|the fix requires|tell me|or would)"
    r"|\b(?:becomes|should(?:n't| not) be too|in theory|don'?t fix anything|superpower|skill)\b"
    r"|\bshould be (?:better|fine|ok(?:ay)?|good|there|in|done|working)\b|\bi should\b|\bskip \d"
    r"|^.{0,12}let'?s \w+ (?:this|that|it)(?: too| now)?\W*$|^\S+\.\w+:\d+|to hide this notice",
)
# Wishes whose words do not say what for.
_SAYS_NO_WHAT = re.compile(
    r"\b(?:keep|have) in mind\b|\bsomething else\b|\bsomething like\W*$|^let'?s go, |\b\d\.? ?\+ ?\d", re.IGNORECASE
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
    r"\b(?:it|they|them)\b|\b(?:this|that|these|those)\b(?=\s*(?:[.,;!?]|$)|\s+(?:is|are|was|should|must|will|would|can"
    r"|needs?|has|have|does|doesn|in|to|for|as|too|instead|entirely)\b)",
    re.IGNORECASE,
)
_CONTINUES = re.compile(
    r"(?:ok(?:ay)?|ye(?:s|p|ah)|yup|no(?:pe)?|nah|sure|hm+|then|and|also|but|right|great|actually|or|oh)\b",
    re.IGNORECASE,
)
_NAMES = re.compile(r"`|\w[./]\w|\w_\w|[a-z][A-Z]|--\w|\b[A-Z]{2,}")
_LETS = re.compile(_LETS_CHANGE)
_PASTED = re.compile(
    r"severity|operation stopped by|⏺|⎿|^\s*\d+[ │|]\s*[+-]|^diff --git|Traceback \(|suggestion:",
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
        for sentence in sentences(message):
            confidence = _demanded(sentence, is_short=len(message) <= WISH_CHARS, has_changed=has_changed)
            if confidence:
                is_clear_alone = is_clear(sentence) and not _CONTINUES.match(sentence)
                subject = None if before is None or is_clear_alone else _subject(material, before)
                yield _demand(turn.request, sentence, confidence, subject)


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
    """Whether a wish can be understood by itself: it says of what, and names a thing or points at none before it."""
    return not _LACKS_SUBJECT.match(text) and (_POINTS.search(text) is None or _NAMES.search(text) is not None)


def reason_in(text: str) -> str | None:
    match = _REASON.search(text)
    return one_line(match["why"] or match["else"]).rstrip(". ") if match else None


def _demanded(sentence: str, *, is_short: bool, has_changed: bool) -> float:
    """How sure it is that a sentence is a demand: less of a plain wish, which has to be in a short message, and least
    of what asks for one change."""
    if not 12 <= len(sentence) <= _DEMAND_CHARS or sentence.endswith((":", "{", ";")) or sentence.count("`") % 2:
        return 0.0  # or the rest of a quote
    sentence = sentence.lower()  # ignoring case takes several times as long
    if len(sentence) <= _BARE_DROP_CHARS and _DROPS.search(sentence):
        return 0.0  # of what, only the words before tell
    if _TASK.match(sentence) and not is_standing(sentence):
        return 0.0
    if is_short and has_changed and asks_change(sentence):
        return _CHANGE_SURE
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
    return _CHANGE_SURE if has_changed and any(map(_CHANGE.match, clauses)) else 0.0


def _subject(material: Material, before: Turn) -> str | None:
    """What a reply is about: what the agent offered or asked before it, or else what the user had asked for."""
    if before.request is None:
        return None
    answer = material.trace.answers.get(before.request.event_uid)
    subject = proposal_in(material.text(answer))[0] if answer is not None else ""
    subject = subject or words.gist(before.request.summary)
    return shortened(subject, _SUBJECT_CHARS) if len(subject.split()) >= _LEAST_WORDS else None


def _demand(request: Step, sentence: str, confidence: float, subject: str | None) -> Finding:
    other = _INSTEAD.search(sentence)
    choice = other["choice"].strip("`'\" ") if other else None
    details = {
        "by": "user",
        "alternatives": [other["other"].strip("`'\" .,")] if other else [],
        "choice": choice,
        "reason": reason_in(sentence),
    }
    about = ("preference", choice or sentence)
    text = f"{sentence} (on “{subject}”)" if subject else sentence
    return Finding(DEMAND, PREFERS, about, ("preference", sentence), text, confidence, [(request, sentence)], details)
