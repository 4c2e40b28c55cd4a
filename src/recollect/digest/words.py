"""Words that tell how a conversation goes, in the languages where a few of them are enough.

Each pattern is meant to be right when it matches rather than to match often: what it misses leaves a session
`unknown`, what it invents is a false claim in a digest.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from recollect.digest.texts import sentences, word_set

HEAD_CHARS = 200  # a user says it at the beginning, or not at all


def _any(*patterns: str) -> re.Pattern[str]:
    """One pattern for lower-case text: ignoring case takes several times as long."""
    return re.compile("|".join(patterns))


def _says(*patterns: str, chars: int | None = None) -> Callable[[str], bool]:
    """Make a check whether a text, or the beginning of it, says any of these, in whatever case."""
    pattern = _any(*patterns)
    return lru_cache(maxsize=1_000)(lambda text: pattern.search(text[:chars].lower()) is not None)


THANKS = _any(
    r"\b(?:thanks|thank you|thx|ty|perfect|great(?: job| work)?|awesome|excellent|nice(?: work| job|ly done)?"
    r"|well done|lgtm|looks good|(?:it |that )?works(?: now| great| perfectly)?|good job|love it)\b",
    r"\b(?:danke|vielen dank|super|passt|merci|parfait|gracias|perfecto|obrigad[oa]|grazie|perfetto)\b",
    r"спасибо|отлично|работает|класс(?:но)?\b|ありがとう|完璧|谢谢|很好|太好了|감사|고마워|좋아요",
)
# A thank-you is short; a long text that holds one of its words is a new request.
THANKS_CHARS = 60
THANKS_REST_CHARS = 20
_REDIRECTION_CHARS = 80
REDIRECTION = _any(
    r"\b(?:don'?t|do not|not|no|instead|rather|stop|wait|never|first|only|just|shouldn'?t|too (?:slow|much|many"
    r"|big))\b",
    r"^use |^go back|\b(?:but|leave|keep|skip)\b",
    r"\b(?:nicht|statt|erst|lieber|nur|sondern|pas|plutôt|mejor|en vez)\b|не |лучше|вместо|сначала|ではなく|代わり"
    r"|先に|不要|而是"
    r"|先|말고|대신",
)

# What an agent asks when there is nothing to do yet, or any more: nothing in particular.
_offers_help = _says(
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
    r"\b(?:how|what|anything|something)(?: else)? (?:can|could|may|would|should|you)\b.*\b(?:help|like|assist|work on"
    r"|do|need)\b.*(?:today|next|else|with|you)?\?",
    r"\banything else\b|\b(?:womit|wie|was) kann ich\b.*\bhelfen|\ben quoi puis-je|\ben qué puedo|чем (?:я )?могу"
    r"|お手伝い|需要我|帮(?:你|您)什么|무엇을 도와",
)

# As programs print it: only the case of its letters separates `FAIL` from “fail”.
_OUTPUT = re.compile(
    r"Traceback \(most recent call last\)|--- FAIL:|FAIL\s|fatal: |[Ee]rror: |error\[|panic: |npm (?:ERR!|error)"
    r"|remote: |(?:Uncaught |Unhandled )?[A-Z]\w*(?:Error|Exception): "
)
_REVIEW = _any(r"\b(?:low|medium|high|critical) severity\b", r"\bseverity: (?:low|medium|high|critical)\b")
# A paragraph about code, in which nobody speaks.
_PROSE_CHARS = 120
_PROSE = re.compile(r"(?:[Ii]n \S+: )?(?:[A-Z][\w`]+|[\w.]+\(\S*) (?=[^\n]*[a-z])")
_SPEAKS = _any(r"\b(?:i|i'm|i'd|we|we're|you|my|our|your|me|let'?s|can|could|please|why)\b")
# It asks for something or about something: the agent may see a point in it, but nothing is set right.
_ASKS = _any(
    r"(?:(?:but|so|and|hmm|ok)\b,? )*(?:(?:can|could|should|shall|would|are|is) (?:we|you|i|there)\b|any ideas"
    r"|got this feedback|question\b|what|which|who\b|how\b|we could|also\b|please\b)",
    r"(?!yeah|yes|no\b)(?s:.*)(?:[?？]|[吗嗎呢]\W*)$",
)

says_broken = _says(
    r"\bstill (?:not |does ?n[o']?t |is ?n[o']?t |fail|broken|wrong|seeing |getting |the same|leak|show|crash|error"
    r"|reads|us(?:es|ing)|hav(?:e|ing) (?:the |an? |this |that )?(?:same|error|issue|problem|bug)"
    r"|(?:have|got) (?:merge|a ))",
    r"\b(?:i|we|it|this|you)(?: can)? still (?:see|get)s? |\bit somehow\b",
    r"\bi (?:just )?(?:checked|tested|tried)\b.*\b(?:none|nothing|not|still)\b",
    r"(?<!\bhe )(?<!she )(?<!they )\b(?:(?:does|did|is|are|was)(?:n't| not)|(?:they|we|tests|hooks) do(?:n't"
    r"| not)) (?:(?:seem|appear) to )?(?:be )?"
    r"(?:work|fix|help|compile|build|pass|run|working)\b",
    r"^(?:but |and |hmm+,? )*(?:it|this|that) (?:does|did|is)(?:n't| not) ",
    r"\bnot working\b|\bsame (?:error|problem|issue)\b|\b(?:it|that) (?:broke|fails|failed|crashes)\b",
    r"\bwe (?:still )?fail\b|\bno luck\b|\bit'?s (?:still )?broken\b|\bsomething broke\b",
    r"\b(?:is|are) failing(?: now| again)?\W*$|\b(?:is|are) (?:now|still) failing\b|\bnow fails?\b"
    r"|\bnothing (?:is |)happen(?:s|ed|ing)\b",
    r"^(?:we |i )?(?:have|got|there(?:'s| is| are)) (?:a |an |some |new )?(?:\w+ )?(?:failures?|failz|errors?"
    r"|import cycle)\b",
    r"\b(?:(?:i(?:'m| am)?|we(?:'re| are)?) (?:still |now |just )?(?:get(?:ting)?|got|see(?:ing)?)|throwing|throws) "
    r"(?:this|the following|an?|that|the) (?:\w+ )?(?:error|exception|warning)\b",
    r"^now (?:i'm|i am|it's|it is|we're|we are|i|it|we) (?:get|got|see|show|fail|throw)",
    r"\bi(?:'m| am) not seeing\b|\bi (?:do ?n[o']t|can ?n?[o']?t) see (?:the|any|it|that|this)\b",
    r"^(?:but |hmm,? |and )?why (?:is|are|does|do|did) (?:it|this|that|the|we|they)\b.*(?:\bnot\b|n't\b|\bstill\b"
    r"|\bno longer\b)",
    r"(?:^|\bbut )nothing (?:was|got|has been) (?:written|created|changed|added|saved|fixed)\b",
    r"\bin theory (?:there|it|this|that|we) should\b|\bwould have expected\b|\bis(?: now|) supposed to\b.*\bbut\b",
    # Pasted from a terminal without a word.
    r"^(?:\S+ )?(?:traceback \(most recent call last\)|--- fail:|fail\s|fatal: |error: |error\[|panic: |npm err!"
    r"|remote: )"
    r"|^(?:uncaught |unhandled )?\w*(?:error|exception): |\berror: \S+.*\bfailed to\b",
    r"\b(?:geht|funktioniert|klappt|stimmt) (?:immer noch |so |leider )?nicht\b|\bimmer noch\b|\bkommt (?:ein"
    r"|der) fehler\b",
    r"\b(?:ne marche|fonctionne) (?:toujours )?pas\b|\btoujours (?:pas|la même)\b",
    r"\b(?:sigue sin|no|sigue fallando|não|non) funziona\b|\b(?:sigue sin|no) funciona\b|\bnão funciona\b"
    r"|\bda errore\b",
    r"\bwerkt (?:nog steeds )?niet\b|\bnie działa\b|\bçalışmıyor\b",
    r"(?:все|всё) (?:ещё|еще|равно)|не (?:работает|помогло|собирается|запускается)|ошибка (?:та же|осталась)",
    r"動きません|動かない|動いてい?ない|まだ(?:エラー|失敗|動)|エラーが(?:出|で)"
    r"|여전히|안 ?(?:돼|됩니다|되네|되는데)|작동하지",
    r"(?:还是|還是|仍然?|依然|依舊)(?:不|没|沒|有|会|會|报|報|出|失败|一样|一樣)|(?:还|還)有.{0,8}(?:问题|問題|错误|錯誤|报错)"
    r"|(?:怎么|怎麼|为什么|為什麼)(?:还|還|又|没|沒|会|會|总|一直)",
    r"(?:没|沒)有?(?:任何|一点|什么)*(?:生效|效果|反应|反應|变化|作用|解决|修好|改对|显示|更新)|反[应應](?:都|也)[没沒]有"
    r"|[报報出]错了?$|又[报報出]错|打不开|不见了|闪退|崩溃|不(?:行|能用|工作|生效|显示|起作用)了?$",
    chars=HEAD_CHARS,
)

_FILLERS = r"(?:(?:ok(?:ay)?|uh+|um+|em+|hm+|ah+|oh|well|but|so|and|eh+|mh+)\b[\s,.!…:–-]*)*"
CORRECTION_BEGINS = _any(
    rf"{_FILLERS}(?:no|nope|nah)\b(?!,? (?:problem|worries|need|rush|idea|changes?|(?:it'?s|this is|that'?s) fine"
    rf"|i think"
    r"|write|go\b|continue|proceed|keep|leave|commit|push))",
    rf"{_FILLERS}(?:wait(?! (?:for|until|till))|stop(?! words?)|hold on|let'?s pause"
    r"|not (?:that|this|what|quite|like|just))\b",
    rf"{_FILLERS}(?:please )?(?:don'?t|do not|never) (?!mind|forget|worry|hesitate|we |you )\w+",
    rf"{_FILLERS}technically\b|{_FILLERS}why (?:exactly )?(?:did|have|are|would)(?:n'?t| not)? you\b",
    r"(?:nein(?!,? danke)|falsch|halt|so nicht|non|pas ça|no es eso|eso no|stopp|lass das|não|nee|nie|hayır|nej)\b",
    r"(?:нет(?!,? проблем)|стой|не так|неправильно|не то|верни|не надо)\b",
    r"(?:違(?:う|います)|そうじゃな|そうではな|いや(?!あ)|不对|不是|错了|停(?!车)|别(?![的人])"
    r"|等一?下(?!$)|[去删]掉|去除|不(?:要|用|需要|必)(?!了|[担谢，。])|아니|그게 아니)",
    r"instead,? ",
)
CORRECTION = _any(
    r"\bthat'?s (?:not (?:what|right|correct|it|how|true|quite)|wrong|incorrect)\b",
    r"\b(?:this|that|it|which) is (?:wrong|incorrect|inaccurate|misleading|not (?:what|right|correct|expected|quite"
    r"|fully|entirely))\b",
    r"\bnot (?:fully|entirely|quite) (?:right|correct|true)\b|\bit'?s not (?:expected|what|right|correct|a )",
    r"\bnot what i (?:asked|meant|want|wanted|said)\b|\bi (?:actually )?(?:meant|said|asked (?:you )?(?:for|to))\b",
    r"\b(?:you|u) (?:misunderstood|forgot|missed|broke|deleted|should(?: not|n'?t) have|were (?:not )?supposed)\b",
    r"\bi (?:did ?n[o']?t|never) (?:ask|want|say|tell)|\bwhy (?:did|are|have|would) you\b|\bdon'?t do (?:that|this)\b",
    r"\b(?:revert|undo|roll back|put (?:it|that) back) (?:that|this|it|the|your|all)\b"
    r"|\b(?:can you|need to|should|have to|please|let'?s) (?:revert|undo|roll back)\b"
    r"|\bi(?:'m| am) (?:questioning|not convinced)\b|\bmy point (?:is|was)\b",
    r"\b(?:have|did) you (?:make|made) (?:it|this|that) up\b|\bactually,? (?:no|i|please|let'?s|we|use|do|it)\b",
    r"\binstead of what you\b|\bwtf\b|\b(?:is|are|so|fucking|completely) (?:stupid|useless|ridiculous|terrible)\b",
    r"<- (?:this|that|it|should)\b|\b(?:this|that|it) should(?: not|n'?t) (?:be )?(?:ch\w*nged|removed|happen)",
    r"\b(?:das|es) (?:ist|war) (?:falsch|nicht)\b|\b(?:das )?stimmt nicht\b|\bwar das nicht\b"
    r"|\bdu hast .{1,40} (?:gelöscht|vergessen|übersehen|kaputt)|\bich meinte\b|\bwarum hast du\b|\brückgängig\b",
    r"\bc'est (?:faux|pas)\b|\btu as oublié\b|\btu t'es trompé",
    r"\bestá (?:mal|errado)\b|\b(?:te olvidaste|te equivocaste|deshaz|me refería)\b",
    r"\b(?:è|hai) sbagliato\b|\bto (?:jest )?źle\b|\bbu yanlış|\bdet är fel\b|\bhai dimenticato\b"
    r"|\bdat klopt niet\b",
    r"ты (?:забыл|сломал|удалил|ошибся)|это не то|неверно|неправильно|откати|я имел в виду",
    r"間違(?:って|い)|元に戻して|あなたが(?:消|壊)"
    r"|你(?:忘了|搞错|弄错|理解错|删了)|不是这样|这样不行|[，。；、](?:而且)?不(?:要|用|需要|必)(?!了|担心)|没有?必要"
    r"|不应该?|应该(?:放|用|先|显示|改|叫)|我(?:说|要|指|想)的是|我没有?(?:让|要|说)|(?:似乎|描述|显示|结果|逻辑|样式)不"
    r"|不(?:一致|正确|准确|合理)|(?:语义|内容)重复|[搞弄写改]反了|多余|撤销|回滚|틀렸|잘못|되돌려",
)
# With these an agent takes a reply for what it is: a correction.
gives_in = _says(
    r"^(?:(?:ah|oh|hmm|yes|yeah|sorry),? )*(?:you(?:'|’)re|you are) (?:absolutely |completely |totally |quite |so )?"
    r"(?:right|correct)\b(?! to ask)",
    r"^(?:(?:ah|oh|hmm|yes),? )*(?:(?:good|great|excellent|nice) catch|fair (?:point|enough)|my (?:mistake|bad"
    r"|apologies))\b",
    r"^(?:(?:ah|oh|hmm|yes),? )*(?:i (?:apologi[sz]e|misunderstood|was wrong|missed|misread)|sorry|apologies|oops)\b",
    r"^right(?: —|,| -) (?:the|i|my|that)\b",
    r"^(?:du hast|sie haben|ihr habt) recht|^stimmt[,!. ]|^vous avez raison|^tu as raison|^tienes? razón|^hai ragione",
    r"^você (?:está|tem) (?:certo|razão)|^(?:ты|вы) (?:абсолютно )?прав|^верно подмечено|^извин|^[你您]说得对|^抱歉",
    r"^おっしゃる通り|^ご指摘|^申し訳|^失礼|^맞습니다|^죄송|^지적",
    chars=HEAD_CHARS,
)

says_cannot = _says(
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
hedges = _says(
    r"\btry (?:it |again|running|this|that|now)\b|\b(?:this|that|it) should (?:now |fix|work|resolve|help)\b",
    r"\blet me know (?:if|whether|what)\b.*\b(?:work|fail|error|happen)",
)

# The agent waits for something that only the user has.
asks_user = _says(
    r"\b(?:please|could you|can you|you(?:'ll| will)? need to) (?:provide|share|send|paste|upload|attach|tell me"
    r"|specify|clarify|give me)\b",
    r"\bi(?:'ll| will)? need (?:you to|your|more (?:information|details|context))\b"
    r"|请(?:提供|告诉我|发|贴)|教えてください",
)

names_next_step = _says(
    r"^next(?: steps?| up)?(?=\W*$|\s*[:,–—-]|\*|\s+(?:is|are|to|i|we|you|would|comes?)\b)",  # not `Next.js`
    r"^(?:remaining(?: work| steps?)?|still (?:to do|open|missing)|follow-?ups?)\b",
    r"^to-? ?dos?(?=\W*$|\*|\s*[:–—-])",  # not the name of something: `Todo interface`
    r"^(?:left to do|not yet done)\b",
    r"\b(?:next step (?:is|would be)|remains? to be|still needs? to|has yet to)\b",
    r"\b(?:you(?:'ll| will)? (?:still )?need to)\b",
    r"^(?:следующ|осталось|дальше)|^(?:nächste|als nächstes|noch offen)|^次(?:は|の|に)|^下一步|^接下来",
)

_CLOSING_SENTENCES = 3
# It offers to go on in one way or another, and waits for the word.
OFFERS = _any(
    r"\b(?:want me to|would you like|should (?:i|we)|shall (?:i|we)|do you (?:want|prefer)|which (?:one|approach"
    r"|option|would|of)|your preference|sound good|what do you think)\b"
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
    r"\broot cause\b(?! (?:investigation|analysis|documented|fix))",
    r"\bthe (?:real |actual |underlying )?(?:issue|problem|bug|cause|culprit) (?:is|was)\b"
    r"(?! (?:now |already |also |fully )*(?:fixed|resolved|solved|gone|addressed|confirmed))",
    r"\bturns out\b|\bthe fix (?:is|was) (?!complete|working|in\b|done|now|ready|correct|applied|already|verified"
    r"|backward)",
    r"\b(?:found (?:it|the (?:issue|problem|bug|cause))|that'?s why|this (?:fails|failed|happens|happened) because)\b",
    r"причина|проблема в|原因は|原因是|问题(?:是|在于)|문제는",
)

# What begins so agrees with the user or takes its own words back, and finds nothing out by itself.
_TAKES_BACK = re.compile(
    r"(?:ah,? |oh,? )?(?:you(?:'re|’re| are) (?:\w+ )?right|good (?:catch|point)|wait|actually|hmm+)\b"
)
# A sentence that begins so says what is to be looked for or done, not what was found.
_PLANS = re.compile(
    r"(?:(?:ok(?:ay)?|now|next|first|great|good|so|then|phase \d+)\b[,.!:]? )*(?:let me|let['’]s|i['’]ll|i will"
    r"|i(?:['’]m| am) going to|i (?:need|want) to)\b"
)
_FINDING_WORDS = 6  # that a finding has at least, from the words on that announce it

# Whole sentences that say nothing of their own. A word of praise is one only with the mark that ends it: `Good point`
# is none, nor is `Yes`, which may be all that was asked for.
_PREAMBLE = re.compile(
    r"^(?:(?:perfect|excellent|great|good|done|ok(?:ay)?|sure|all (?:set|done))(?:[.!:…]|\s?[—–-])+\s+(?=\S)"
    r"|(?:(?:all|the) )?(?:\w+ )?(?:tests?|checks?)(?: all)? pass(?:es|ing)?[^.:!]{0,60}[.:!]\s+"
    r"|(?:now )?i (?:now )?(?:have (?:a|all|enough|everything|the (?:full|whole))\b|see\b(?! that\b))"
    r"[^.:!]{0,60}[.:!]\s+"
    r"|let me (?:share|summari[sz]e|walk|create|give|address)[^.:!]{0,80}[.:!]\s+"
    r"|here(?:['’]s| is| are)\b[^.:!]{0,80}[.:!]\s+|this is\b[^.:!]{0,80}:\s+|(?:---|\*\*\*)\s+"
    r"|#+ (?:[^\w#]{0,3})(?:summary|overview|changes made|the fix)\b[:\s]*)+",
    re.IGNORECASE,
)
_LEAST_GIST_CHARS = 40  # or the whole is told

is_refused_by_rule = _says(
    r"needs? (?:your )?approval|requires? approval|have ?n[o']t granted|not granted",
    r"permissions? (?:to use|denied by)",
    r"requested permissions? to|rejected by (?:the )?(?:user|policy)|rejected\(",
    r"blocked by (?:a )?(?:hook|policy|rule)|denied by (?:a )?(?:rule|policy|hook)",
)

_FOREIGN = re.compile("[\u0400-\u04ff\u3040-\u30ff\u4e00-\u9fff\uac00-\ud7af]")

# Of a call that somebody stopped, or that never ran because one beside it failed.
CUT_OFF = re.compile(
    r"^(?:failed: )?(?:aborted|cancell?ed|interrupted|exit (?:-1|130|143)\b|sibling tool call|request interrupted)",
    re.IGNORECASE,
)

SERVICE_ERROR = "service error"
_SERVICE_STOPS = (
    (
        _any(
            r"(?:\S+ ){0,2}usage limit reached"
            r"|(?:you['’]ve|you have) (?:hit|reached|used|exceeded) your\b.*\b(?:limit|quota)"
            r"|(?:\S+ )?(?:5-hour|weekly|daily|monthly|session|opus|sonnet) limit reached|limit reached\b"
            r"|(?:api error\b.{0,80})?(?:usage_limit|insufficient_quota|quota exceeded)"
            r"|credit balance is too low|out of (?:extra )?(?:usage|credits)"
        ),
        "usage limit",
    ),
    (
        _any(
            r"(?:api error\b.{0,80})?(?:prompt is too long|input (?:length|is too long)|context_length_exceeded"
            r"|context (?:length|window) (?:exceeded|limit)|\w* ?ran out of room in the model's context)"
        ),
        "prompt is too long",
    ),
    (_any(r"api error\b.*(?:rate.?limit|\b429\b)|rate limit"), "rate limit"),
    (_any(r"invalid api key|please run /login|api error: 40[13]|oauth token|not logged in|unauthorized"), "no access"),
    (
        _any(
            r"api error\b|(?:internal )?server error\b|overloaded|stream (?:error|disconnected)|connection error"
            r"|request timed out$|error communicating|unexpected status \d"
        ),
        SERVICE_ERROR,
    ),
)
wants_permission = _says(
    r"\b(?:your|need|needs|requires?|without|grant|granted|missing) (?:\w+ ){0,3}(?:approval|permissions?)\b",
    r"\b(?:permission|approval|access)s? (?:to \w+ )?(?:(?:was|were|has been|is|are) )?(?:not )?"
    r"(?:denied|refused|granted|needed|required|rejected)",
    r"\b(?:approve|allow|grant) (?:it|this|the|me)\b|\bnot (?:allowed|permitted)\b|\b(?:blocked|denied|rejected)\b",
)
timed_out = _says(r"timed? ?out")  # a call that was stopped because it took too long: that is a failure of its own

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


@lru_cache(maxsize=5_000)
def corrects(text: str) -> bool:
    head = text[:HEAD_CHARS].strip().lower()
    return CORRECTION_BEGINS.match(head) is not None or CORRECTION.search(head) is not None


def is_pasted_output(text: str) -> bool:
    """Whether a text begins with what a program printed: it shows a failure, without a word about it."""
    return _OUTPUT.match(text) is not None


def is_pasted_review(text: str) -> bool:
    """Whether a text is, or quotes, a finding of a review program: it is about code, whoever wrote that."""
    head = text[:HEAD_CHARS].lower()
    if CORRECTION_BEGINS.match(head) is not None:
        return False
    is_prose = (
        not is_pasted_output(text)
        and len(text) >= _PROSE_CHARS
        and _PROSE.match(text) is not None
        and _SPEAKS.search(head) is None
    )
    return is_prose or _REVIEW.search(head) is not None


def asks(text: str) -> bool:
    """Whether a text is a question, or a request for more."""
    return _ASKS.match(text.strip().lower()) is not None


def redirects(text: str) -> bool:
    """Whether words after a stop turn the agent to something else: they name what not to do, or what first."""
    lower = text[:_REDIRECTION_CHARS].lower().strip()
    if lower.startswith(("implement", "/")) or text.rstrip().endswith(("?", "？")):
        return False
    return _GOES_ON.match(lower) is None and THANKS.search(lower) is None and REDIRECTION.search(lower) is not None


def insight(text: str) -> str | None:
    """What a message has found out, from the sentence on that announces it; None if it tells no finding."""
    if INSIGHT.search(text.lower()) is None or _TAKES_BACK.match(text.lower()):
        return None
    # Without what the agent says it is about to do: “Let me explain: the issue is …”.
    said = (one.partition(": ")[2] if _PLANS.match(one.lower()) else one for one in sentences(text))
    announcing = next((sentence for sentence in said if INSIGHT.search(sentence.lower())), None)
    if announcing is None:
        return None
    finding = text[max(0, text.find(announcing)) :]
    return finding if len(finding.split()) >= _FINDING_WORDS or _FOREIGN.search(finding) else None


def gist(answer: str) -> str:
    """An answer in a line, without what goes before its first statement: “Perfect! Here's a summary of it:”."""
    rest = _PREAMBLE.sub("", answer)
    return rest if len(rest) >= _LEAST_GIST_CHARS else answer


def was_cut_off(summary: str) -> bool:
    """Whether a call was stopped while it ran, and so had been allowed."""
    return CUT_OFF.match(summary) is not None


def service_stop(text: str) -> str | None:
    """What the service of a model ended the work for, if these are its words; an agent may talk of such things."""
    head = text[:HEAD_CHARS].lower().removeprefix("failed: ")
    return next((name for pattern, name in _SERVICE_STOPS if pattern.match(head)), None)


def says_done(text: str) -> bool:
    lower = text.lower()
    if not DONE_WORDS.isdisjoint(_WORD.findall(lower)) or "all set" in lower or "is now working" in lower:
        return True
    return not lower.isascii() and DONE.search(lower) is not None


def closing_question(said: Sequence[str]) -> str | None:
    """The question with which an answer ends, or which it offers shortly before; an offer of help at large is none."""
    for distance, sentence in enumerate(reversed(said[-_CLOSING_SENTENCES:])):
        lower = sentence.lower()
        if lower.endswith(("?", "？")) and not _offers_help(lower) and (distance == 0 or OFFERS.search(lower)):
            return sentence
    return None


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
