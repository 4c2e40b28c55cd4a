"""Words that tell how a conversation goes, in the languages where a few of them are enough.

Each pattern is meant to be right when it matches rather than to match often: what it misses leaves a session
`unknown`, what it invents is a false claim in a digest.
"""

import re
from collections.abc import Sequence

from recollect.distill.texts import sentences, word_set

HEAD_CHARS = 200  # a user says it at the beginning, or not at all


def _any(*patterns: str) -> re.Pattern[str]:
    """One pattern for lower-case text: ignoring case takes several times as long."""
    return re.compile("|".join(patterns))


def _phrases(text: str) -> tuple[str, ...]:
    return tuple(text.split("|"))


THANKS = _any(
    r"\b(?:thanks|thank you|thx|ty|perfect|great(?: job| work)?|awesome|excellent|nice(?: work| job|ly done)?"
    r"|well done|lgtm|looks good|(?:it |that )?works(?: now| great| perfectly)?|good job|love it)\b",
    r"\b(?:danke|vielen dank|super|passt|merci|parfait|gracias|perfecto|obrigad[oa]|grazie|perfetto)\b",
    r"спасибо|отлично|работает|класс(?:но)?\b|ありがとう|完璧|谢谢|很好|太好了|감사|고마워|좋아요",
)
# A thank-you is short; a long text that holds one of its words is a new request.
THANKS_CHARS = 60
THANKS_REST_CHARS = 20
REDIRECTION_CHARS = 160

# What an agent says when there is nothing to do yet, or any more.
OFFER = _any(
    r"\b(?:how|what) (?:can|may|could|should|shall) i (?:help|assist|do for)\b|\bhow may i be of\b",
    r"\bwhat (?:would|do) you (?:like|want|need)(?: me)?(?: help)?(?: with| to (?:do|work on|build|tackle|focus on))?"
    r"(?: today| now| next| first)?\s*\?",
    r"\bwhat (?:are we|shall we|should we) (?:work(?:ing)? on|do|build(?:ing)?)(?: today| next| now)?\s*\?",
    r"\b(?:is there )?any(?:thing|thing else)(?: else)? (?:i can|you(?:'d| would)? (?:like|need|want))",
    r"\bwas kann ich (?:für|heute)|\bwie kann ich (?:dir|ihnen|euch|helfen|behilflich)",
    r"\bcomment puis-je (?:vous |t')?aider|\b(?:en qué|cómo) puedo ayud",
    r"\bcomo posso (?:te |o |a )?ajud|\bcome posso aiut",
    r"чем (?:я )?могу (?:вам |тебе )?помочь",
    r"(?:有)?什么(?:可以|能)(?:帮|为)|需要我帮|お手伝い(?:できる|しましょう|する)|무엇을 도와|tôi có thể giúp",
)

BROKEN = _any(
    r"\bstill (?:not |does ?n[o']?t |is ?n[o']?t |fail|broken|wrong|see(?:ing)? |get(?:ting)? |the same)",
    r"\bstill (?:crash|error|hav(?:e|ing) (?:the |an? |this |that )?(?:same|error|issue|problem|bug))",
    r"\b(?:does|do|did|is|are)(?:n't| not) (?:work|fix|help|compile|build|pass|run|working)\b",
    r"\bnot working\b|\bsame (?:error|problem|issue|thing)\b|\b(?:it|that) (?:broke|fails|failed|crashes)\b",
    r"\bwe (?:still )?fail\b|\bno luck\b|\bit'?s (?:still )?broken\b|\bsomething broke\b",
    r"\b(?:is|are) failing (?:now|again)\b|\b(?:is|are) now failing\b|\bnow fails?\b|\bnothing happen(?:s|ed)$",
    r"(?:^|\bbut )nothing (?:was|got|has been) (?:written|created|changed|added|saved|fixed)\b",
    r"^traceback \(most recent call last\)",
    r"\b(?:geht|funktioniert|klappt) (?:immer noch )?nicht\b|\bimmer noch\b",
    r"\b(?:ne marche|fonctionne) (?:toujours )?pas\b",
    r"\b(?:sigue sin|no) funciona\b|(?:все|всё) (?:ещё|еще|равно)|не (?:работает|помогло|собирается|запускается)",
    r"動きません|動かない|まだ(?:エラー|失敗|動)|还是(?:不行|报错|失败)",
    r"不(?:行|能用|工作)了?$|여전히|안 ?(?:돼|됩니다)",
)

CORRECTION_BEGINS = _any(
    r"(?:(?:ok(?:ay)?|uh+|um+|hm+|ah+|oh|well)\b[\s,.!…-]*)+(?:no|nope|nah)\b(?! (?:problem|worries|need|rush|idea))",
    r"(?:no|nope|nah|wait|stop|hold on|hmm,? no|not (?:that|this|what|quite|like))\b"
    r"(?! (?:problem|worries|need|rush|idea))",
    r"(?:nein|falsch|halt|so nicht|non|pas ça|no es eso|eso no)\b|(?:нет|стой|не так|неправильно|не то|верни)\b",
    r"(?:違(?:う|います)|そうじゃな|いや|不对|不是|错了|停|아니)|instead,? ",
)
CORRECTION = _any(
    r"\bthat'?s (?:not|wrong|incorrect)\b|\b(?:this|that|it) is (?:wrong|incorrect|not (?:what|right|correct))\b",
    r"\bnot what i (?:asked|meant|want|wanted|said)\b|\bi (?:meant|said|asked (?:you )?(?:for|to))\b",
    r"\b(?:you|u) (?:misunderstood|forgot|missed|broke|deleted|should(?: not|n'?t) have|were (?:not )?supposed)\b",
    r"\bi (?:did ?n[o']?t|never) (?:ask|want|say|tell)|\bwhy (?:did|are|have|would) you\b|\bdon'?t do (?:that|this)\b",
    r"\b(?:revert|undo|roll back|put (?:it|that) back) (?:that|this|it|the|your|all)\b",
    r"\b(?:have|did) you (?:make|made) (?:it|this|that) up\b|\bactually,? (?:no|i|please|let'?s|we|use|do|it)\b",
    r"\binstead of what you\b|\bwtf\b|\b(?:is|are|so|fucking|completely) (?:stupid|useless|ridiculous|terrible)\b",
)

CANNOT = _any(
    r"\bi(?:'m| am| was)? ?(?:still )?(?:un(?:able|fortunately)|not able)\b|\bi (?:could|can)(?:n[o'’]?t| not)\b",
    r"\bi[’']m (?:afraid|sorry)\b",
    r"\b(?:could|can) ?not be (?:completed|done|fixed|resolved|run|removed|created|found)\b",
    r"\b(?:was|were)(?: not|n['’]t) able to\b|\bfailed to (?:complete|fix|resolve|finish|apply|create|run|remove)\b",
    r"\b(?:is|are|remains?) (?:still )?(?:failing|broken|unresolved|blocked)\b|\bstill (?:fails?|failing)\b",
    r"\b(?:request|call|command|permission) was (?:denied|refused|rejected|blocked)\b|\bgave up\b|\bgiving up\b",
    r"\bdid(?:n['’]t| not) (?:work|succeed)\b|\bnot granted\b|\bnot (?:allowed|permitted) to\b",
    r"не (?:удалось|смог|получилось|могу)|できません|できなかった|失敗しました|无法|没能|失败了",
    r"konnte nicht|kann nicht",
)

DONE_WORDS = word_set(
    "done fixed complete completed finished implemented created added updated removed deleted renamed "
    "resolved committed pushed merged refactored configured installed enabled written wrote passes passed "
    "passing pass successful successfully erledigt behoben fertig terminé hecho listo"
)
DONE = _any(
    r"✅|готово|исправ|сделан|добавл|созда[нл]|完了|完成|しました|作成|修正|已(?:经)?(?:修|完|添|更|创|删)|완료"
)
_WORD = re.compile(r"[^\W\d_]+")

# The agent leaves it to the user to see whether it worked.
HEDGE = _any(
    r"\btry (?:it |again|running|this|that|now)\b|\b(?:this|that|it) should (?:now |fix|work|resolve|help)\b",
    r"\blet me know (?:if|whether|what)\b.*\b(?:work|fail|error|happen)",
)

NEXT_STEP = _any(
    r"^next(?: steps?| up)?(?=\W*$|\s*[:,–—-]|\*|\s+(?:is|are|to|i|we|you|would|comes?)\b)",  # not `Next.js`
    r"^(?:remaining(?: work| steps?)?|still (?:to do|open|missing)|follow-?ups?)\b",
    r"^to-? ?dos?(?=\W*$|\*|\s*[:–—-])",  # not the name of something: `Todo interface`
    r"^(?:left to do|not yet done)\b",
    r"\b(?:next step (?:is|would be)|remains? to be|still needs? to|has yet to)\b",
    r"\b(?:you(?:'ll| will)? (?:still )?need to)\b",
    r"^(?:следующ|осталось|дальше)|^(?:nächste|als nächstes|noch offen)|^次(?:は|の|に)|^下一步|^接下来",
)

# The agent says what it is about to do; `let me know` leaves it to the user.
ANNOUNCES = _any(
    r"^(?:(?:ok(?:ay)?|now|next|first|great|good|perfect|so|then|alright)[,.!]? )*(?:let me (?!know\b)|i['’]ll now "
    r"|i(?:['’]ll| will) (?:start|begin|first) )"
)
# What is announced is no work but words about it.
_TELLS = _any(
    r"\b(?:let me|i['’]ll|i will) (?:walk|show|explain|summari[sz]e|recap|describe|tell|give)\b",
    r"^(?:here(?:['’]s| is| are)|in summary|to sum up)\b",
)

_HEADING_CHARS = 40
_BARE_HEADING = re.compile(
    r"(?:next(?: steps?| up)?|remaining(?: work| steps?| tasks?)?|still (?:to do|open|missing)|to ?do|follow-?ups?"
    r"|left to do)\W*"
)

INSIGHT = _any(
    r"\b(?:root cause|the (?:real |actual |underlying )?(?:issue|problem|bug|cause|culprit) (?:is|was))\b",
    r"\b(?:turns out|the fix (?:is|was))\b",
    r"\b(?:found (?:it|the (?:issue|problem|bug|cause))|that'?s why|this (?:fails|failed|happens|happened) because)\b",
    r"причина|проблема в|原因は|原因是|问题(?:是|在于)|문제는",
)

# What begins so agrees with the user or takes its own words back, and finds nothing out by itself.
_TAKES_BACK = re.compile(
    r"(?:ah,? |oh,? )?(?:you(?:'re|’re| are) (?:\w+ )?right|good (?:catch|point)|wait|actually|hmm+)\b"
)
_FINDING_WORDS = 6  # that a finding has at least, from the words on that announce it

REFUSED_BY_RULE = _any(
    r"needs? (?:your )?approval|requires? approval|have ?n[o']t granted|not granted",
    r"permissions? (?:to use|denied by)",
    r"requested permissions? to|rejected by (?:the )?(?:user|policy)|rejected\(",
    r"blocked by (?:a )?(?:hook|policy|rule)|denied by (?:a )?(?:rule|policy|hook)",
)

FAILING_TESTS = re.compile(
    r"\b[1-9]\d* (?:tests? )?(?:failed|failures?|errors?)\b|\bFAILED\b|^FAIL\b|\bfailures=[1-9]|test result: FAILED"
    r"|\bTests?:\s+[1-9]\d* failed|\bnot ok \d+|--- FAIL:|\[\S*test\S*\] ERROR task failed",
    re.MULTILINE,
)

# What checkers of style and types say at the end: their errors are no tests'.
_LINTED = re.compile(
    r"^.*(?:\bproblems? \(\d|\bFound \d+ errors?\b|\berrors?(?:,| and) \d+ warnings?).*$", re.MULTILINE
)

_NO_TESTS = re.compile(
    r"\bno tests? (?:ran|run|found|collected|were (?:run|found|executed))\b|\bno test files\b|\bcollected 0 items\b"
    r"|\bran 0 tests\b|\brunning 0 tests\b|\btests? run: 0\b|\b0 passing\b|\b0 examples\b"
)
_SOME_TESTS = re.compile(r"\b[1-9]\d* (?:tests? )?pass(?:ed|ing)\b|^ok\s+\S|\bran [1-9]\d* tests?\b", re.MULTILINE)

# Most texts hold none of these, and looking for them first takes a tenth of the time of the whole patterns.
_BROKEN_HINTS = _phrases(
    "still |n't work|n't fix|n't help|n't comp|n't build|n't pass|n't run|not work|not fix|not help|"
    "not comp|not build|not pass|not run|same |broke|it fail|that fail|e fail|crashes|no luck|nicht|"
    "immer noch| pas|no funciona|sigue sin|failing now|failing again|now fail|nothing |traceback ("
)
_CORRECTION_HINTS = _phrases(
    "that's |thats | is wrong| is incorrect| is not |not what i|i meant|i said|i asked|why |u misunder|"
    "u forgot|u missed|u broke|u deleted|u should|u were|ou ma|what you|i never|i did|don't do|dont do|"
    "revert|undo |roll back|put it|put that|actually|wtf|stupid|useless|ridiculous|terrible"
)
_INSIGHT_HINTS = _phrases(
    "root cause|issue is|issue was|problem is|problem was|bug is|bug was|cause is|cause was|culprit|"
    "turns out|the fix |found it|found the |that's why|thats why|because"
)
_CANNOT_HINTS = _phrases(
    "unable|unfortunately|not able|n't|n’t|not |afraid|sorry|fail|broken|unresolved|blocked|denied|"
    "refused|rejected|gave up|giving up|nicht"
)
_NEXT_HINTS = _phrases("next|remain|still |todo|to do|follow|left to|not yet|yet to|need to|now|noch")

# The run itself did not take place or was not seen to its end: that says nothing of the tests.
NO_VERDICT = _any(
    r"timed? ?out|command not found|not recognized as|no such file or directory|could not find `cargo\.toml`",
    r"rejected\(|sandbox denied|no tests? (?:ran|found|collected)|collected 0 items$|exit 127\b|needs? approval",
)

_FOREIGN = re.compile("[\u0400-\u04ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")
_TEST_TAIL_CHARS = 2500

CUT_OFF = re.compile(r"^(?:aborted|exit -1|interrupted)", re.IGNORECASE)

COMPACTED = re.compile(
    r"^(?:[Cc]ontext|[Cc]onversation) compacted|^auto compact completed|^summary of the conversation so far"
)


# The user stopped the agent for reasons of their own, or takes the blame.
_GOES_ON = re.compile(
    r"(?:ok(?:ay)?|yes|yep|sure)?\W*(?:go on|go ahead|continue|carry on|keep going|proceed|resume|weiter|mach weiter"
    r"|продолжай|продолжи|дальше|继续|繼續|続けて|계속|continúa|sigue|continuez?)?\W*$"
    r"|(?:sorry|oops|my bad|my mistake)\b"
)


def says_thanks(text: str) -> bool:
    """Whether a text is thanks and nothing more: what is left without them must not be a request."""
    lower = text.lower()
    if len(text) > THANKS_CHARS or "please" in lower or "?" in text or THANKS.search(lower) is None:
        return False
    return len(THANKS.sub("", lower).strip(" .!,")) <= THANKS_REST_CHARS and not says_broken(text)


def asks(sentence: str) -> bool:
    """Whether a sentence is a question that waits for an answer: "How can I help?" is a greeting."""
    return sentence.endswith(("?", "？")) and OFFER.search(sentence.lower()) is None


def says_broken(text: str) -> bool:
    return _finds(BROKEN, _BROKEN_HINTS, text[:HEAD_CHARS])


def corrects(text: str) -> bool:
    head = text[:HEAD_CHARS].strip()
    return CORRECTION_BEGINS.match(head.lower()) is not None or _finds(CORRECTION, _CORRECTION_HINTS, head)


def redirects(text: str) -> bool:
    """Whether words after a stop set the agent right: short, no question, no praise, and no request of its own."""
    lower = text.lower().strip()
    is_request = lower.startswith(("please", "implement", "/")) or lower.endswith(("?", "？"))
    return (
        len(text) <= REDIRECTION_CHARS
        and not is_request
        and _GOES_ON.match(lower) is None
        and THANKS.search(lower) is None
        and "seems to work" not in lower
    )


def insight(text: str) -> str | None:
    """What a message has found out, from the sentence on that announces it; None if it tells no finding."""
    if not _finds(INSIGHT, _INSIGHT_HINTS, text) or _TAKES_BACK.match(text.lower()):
        return None
    announcing = next((one for one in sentences(text) if INSIGHT.search(one.lower())), text)
    found = text[max(0, text.find(announcing)) :]
    return found if len(found.split()) >= _FINDING_WORDS or _FOREIGN.search(found) else None


def was_cut_off(summary: str) -> bool:
    """Whether a call was stopped while it ran, and so had been allowed."""
    return CUT_OFF.match(summary) is not None


def says_cannot(text: str) -> bool:
    return _finds(CANNOT, _CANNOT_HINTS, text)


def says_done(text: str) -> bool:
    lower = text.lower()
    if not DONE_WORDS.isdisjoint(_WORD.findall(lower)) or "all set" in lower or "is now working" in lower:
        return True
    return not lower.isascii() and DONE.search(lower) is not None


def hedges(text: str) -> bool:
    return HEDGE.search(text.lower()) is not None


def names_next_step(text: str) -> bool:
    return _finds(NEXT_STEP, _NEXT_HINTS, text)


def announces_work(answer: str) -> bool:
    """Whether an answer ends with what the agent is about to do, which an end of the work does not."""
    *before, last = sentences(answer) or [""]
    if _TELLS.search(last.lower()) and says_done("\n".join(before)):
        return False
    return last.endswith((":", "：")) or ANNOUNCES.search(last.lower()) is not None


def is_heading(text: str) -> bool:
    """Whether words that name a next step only stand above it."""
    lower = text.lower().rstrip("* ")
    return (len(lower) <= _HEADING_CHARS and lower.endswith(":")) or _BARE_HEADING.fullmatch(lower) is not None


def is_refused_by_rule(text: str) -> bool:
    return REFUSED_BY_RULE.search(text.lower()) is not None


def _finds(pattern: re.Pattern[str], hints: Sequence[str], text: str) -> bool:
    """Whether a pattern is in a text, asked only if one of its hints is, or a script that no hint is in."""
    lower = text.lower()
    for hint in hints:
        if hint in lower:
            return pattern.search(lower) is not None
    return not lower.isascii() and _FOREIGN.search(lower) is not None and pattern.search(lower) is not None


def has_no_verdict(text: str) -> bool:
    return NO_VERDICT.search(text.lower()) is not None


def tests_failed(output: str) -> bool:
    """Whether a test run's own words say that tests failed, whatever its exit code was."""
    tail = output[-_TEST_TAIL_CHARS:]
    lower = tail.lower()
    if "fail" not in lower and "error" not in lower and "not ok" not in lower:
        return False
    return FAILING_TESTS.search(_LINTED.sub("", tail)) is not None


def ran_no_tests(output: str) -> bool:
    """Whether a test run's own words say that there was nothing to run, which is neither good nor bad."""
    tail = output[-_TEST_TAIL_CHARS:].lower()
    if _NO_TESTS.search(tail) is None:
        return False
    return _SOME_TESTS.search(tail) is None and not tests_failed(output)
