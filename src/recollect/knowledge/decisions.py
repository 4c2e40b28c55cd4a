"""What was decided and preferred: first what the structure of a session shows, then what a user demands in words.

Structure: answers to questions the agent asked, plans that were approved, calls refused with words, options picked by
number, commits, and rules written into instruction files. An agent's own "chose X because" is a candidate only.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from recollect import schema
from recollect.distill import shell
from recollect.distill.signals import asks_back, refusal_reason
from recollect.distill.texts import one_line, sentences, shortened
from recollect.knowledge.exchanges import PLAN_REQUEST, Turn
from recollect.knowledge.facts import DECIDED, PREFERS, Found, Material
from recollect.knowledge.runs import file_changes, inside
from recollect.store import Step

ANSWER, PLAN, REFUSAL, PICK, COMMIT, RULE_FILE = "answer", "plan", "refusal", "pick", "commit", "rule_file"
DEMAND, CANDIDATE, CLAIM = "demand", "candidate", "claim"
STRUCTURAL = (ANSWER, PLAN, REFUSAL, PICK, COMMIT, RULE_FILE)
_SENTENCE_CHARS = 240
_MESSAGE_CHARS = 1500  # a longer one is mostly pasted
_MOST_RULES = 3
_MOST_CLAIMS = 8  # of one edit
_WISH_CHARS = 500  # of a message in which a plain wish is the user's own
_LEAST_WORDS = 4
_MOST_OPTIONS = 4  # not taken: a longer list is of findings

_ANSWERED = re.compile(r'"(?P<question>[^"]{4,400})"\s*=\s*"(?P<answer>[^"]+)"')
# Questions about how to go on, which decide nothing.
_GOES_ON = re.compile(
    r"what (?:would you like|do you want|should (?:i|we)) (?:me )?to do next|\bnext\?|^ready to"
    r"|ready to (?:implement|proceed)"
    r"|would you like (?:me )?to (?:proceed|continue|start)|which (?:pr|issue|file)\b"
    r"|any (?:other|more)|anything else|does this (?:look|capture|plan)|proceed\?",
    re.IGNORECASE,
)
_HEADING = re.compile(
    r"^#{1,3}\s+(?:plan:?\s+|implementation plan:?\s+)?(?P<title>\S.{3,140})$", re.MULTILINE | re.IGNORECASE
)
_PICKED = re.compile(
    r"(?:^|\b(?i:options?|approach|solution|number|with|do|use|take|implement|tackle|think|prefer|for) |#)"
    r"(?i:options? |approach |#)?(?P<pick>\d|[A-D]|[a-d](?=\)|,|$))(?=[\s).,:]|$)"
    r"(?!\s*(?i:%|more|of|files?|tests?|times|commits?|lines?|minutes?|hours?|days?|\d|-))"
)
_OPTION = re.compile(
    r"^\s*(?:[-*]\s+|#{1,4}\s+)?(?:\*\*)?(?:option |approach )?"
    r"(?P<name>\d|[A-D])(?:\*\*)?[.):]\s*(?:\*\*)?(?P<text>\S.{3,300})$",
    re.M | re.I,
)
_DIRECTIVE = re.compile(
    r"^(?:no[,. ]|don'?t|do not|never|always|use|let'?s|keep|make|please|only|instead|rather|we (?:should|need"
    r"|must|don'?t|want)"
    r"|i (?:want|prefer|don'?t want|would like|did not|didn'?t)|you should|should|it should|both|just|also|remove"
    r"|add|merge|put"
    r"|call|name|stop|leave|rename|move|read|first|prefer|avoid|skip|the \w+ should)\b"
    r"|\b(?:should(?:n't| not)?|must(?:n't| not)?"
    r"|instead)\b",
    re.IGNORECASE,
)
_DEMAND = re.compile(
    r"\b(?:always|never|from now on|in (?:the )?future|i(?:'d| would)? (?:rather|prefer)|we (?:prefer|always|never"
    r"|don'?t (?:want|use|need)"
    r"|should(?:n't| not)?|must|only)|instead of|rather than|no need (?:to|for)|stop (?:using|adding|doing|writing"
    r"|creating)"
    r"|(?:do not|don'?t|dont) (?:use|add|create|commit|push|touch|change|write|run|ever|stash|remove|delete|edit"
    r"|make|put|do|mock|want|need to"
    r"|include|rely|call)|make sure (?:to|that|we|you|it)|let'?s (?:just |not )?(?:remove|keep|use|drop|not|always"
    r"|avoid|stick|go with|roll ?back|revert|switch)"
    r"|(?:roll(?:ed)? ?back|revert(?:ed)?) .{3,80} because|we .{3,60} (?:on purpose|by design|intentionally))\b"
    r"|以后|不要|必须|总是|してください|しないで|항상|\bsiempre\b|\bnunca\b|\bimmer\b|\bniemals\b|\btoujours\b|\bjamais\b|всегда|никогда",
    re.IGNORECASE,
)
# Plain wishes, in a short message: how the user wants a thing to be. Tasks ("I want you to check") are none.
_WISH = re.compile(
    r"\bi (?:want|would replace|would go with)\b(?! to (?:know|see|understand|check|look|run|test|ask|discuss|do)\b"
    r"| you to (?:check|look|run|review|find|tell|explain|read)\b)"
    r"|\bi(?:'d| would) (?:go with|rather|prefer|like (?:it|this|that|us|the|\w+s"
    r"|to (?:have|keep|use|change|avoid|do an? [\w -]{2,30}approach)))\b"
    r"|\blet'?s (?:go for|go with|leave|have|drop|limit|skip|start with|put|call"
    r"|default|rename(?! this branch)|set(?! up)|do (?:this|it|that) (?:as|in)"
    r"|go (?:json|\w+ing\b|\d))\b"
    r"|\b(?:it|this|that|they|which|\S+) (?:should(?:n't| not)? (?:still |also |now |just )?"
    r"(?:be|have|use|only|always|never)|needs? (?:to be|no)"
    r"|must(?:n't| not)? be)\b"
    r"|\bideally\b|\bnot as (?:a|an|the) .{3,60}, but\b|\bi think we can (?:just )?(?:drop|remove|skip)\b",
    re.IGNORECASE,
)
_ORDER = re.compile(
    r"(?:(?:ok(?:ay)?|yes|yeah|yep|hm+|no|nah|sure|and|also|but|please|so|then|however|one last thing|-)[,.!]* )*"
    r"(?:(?:use|keep|skip|leave|avoid|prefer|limit|mark|rename|stick to|don'?t|do not|drop)"
    r"|make (?!sure|an?\b|the (?:pr|commit|change)))\b(?! (?:going|it up|on\b|me\b|worry))",
    re.IGNORECASE,
)
_ASKED_CHANGE = re.compile(
    r"\b(?:(?:can|could) (?:we|you)|any chance we can) (?:please |just |also )?(?:make (?:the|it|this|that)|use"
    r"|rename|drop"
    r"|limit|default|stick|sort|hide|invert|not|change (?:the|it|this)"
    r"|add (?:a|an|the|that) (?!.*\btests?\b)|remove)\b .{8,}",
    re.IGNORECASE,
)
# A task for now, not how things should be.
_TASK = re.compile(r"^.{0,40}\b(?:commit|push|rebase|merge|subagents?|check existing)\b.{0,24}$", re.IGNORECASE)
_UNSURE = re.compile(
    r"\?\s*$|\b(?:maybe|perhaps|not sure|what if|should we|do we|(?<!, )(?:can|could) (?:we|you)|i guess|wondering"
    r"|thinking aloud|don'?t know)\b",
    re.I,
)
# Sentences that say how things are, with the same words.
_DESCRIBES = re.compile(
    r"\b(?:causes?|returns?|is|was|are|were|to|will|would|has|have|but|that|which|it|probably"
    r"|_probably_) (?:\w+ )?(?:always|never)\b"
    r"|\b(?:it|this|that|which|code|function|test|probably|but|and|_probably_) (?:do not|don'?t|doesn'?t)\b"
    r"|never (?:called|used|set|actually|mind)|:=|\bcan always\b|instead of \d|can work instead"
    r"|\b(?:crashes|results?|failures|messages?|errors?) instead of\b|\binstead of \w+ing\b(?!.*\b(?:should|use"
    r"|want|let)\b)"
    r"|\b(?:agent|user|code|we) never (?:\w+ed|had|was)\b|\bshould (?:have|be) (?:\w+ed|better|fine|ok(?:ay)?)\b"
    r"|^(?:this|that|consider|how about|\[|\d+ [+-]|[+-] |seeing|since we|[\"“']|keep in mind|ideally just|sorry"
    r"|use ['\"]|the fix requires)"
    r"|\b(?:becomes|should(?:n't| not) be too|in theory|don'?t fix anything|superpower|skill)\b"
    r"|^\S+_test\.\w+:\d+|to hide this notice|`.*`.*`.*`.*`.*`|::|https?://",
    re.IGNORECASE,
)
_LETS = re.compile(r"\blet'?s (?:just )?(?:remove|keep|use|drop|switch|stick|go with)\b", re.IGNORECASE)
_PASTED = re.compile(
    r"severity|operation stopped by|⏺|⎿|^\s*\d+[ │|]\s*[+-]|^diff --git|Traceback \(|suggestion:",
    re.IGNORECASE | re.MULTILINE,
)
_INSTEAD = re.compile(
    r"\b(?:use|prefer|want|go with|choose|take|try|have"
    r"|keep)\s+(?P<choice>[\w`'\"./@ +-]{2,50}?)[,;]?\s+(?:instead of|rather than|over|not)\s+"
    r"(?P<other>[\w`'\"./@+-]{2,40})",
    re.IGNORECASE,
)
_REASON = re.compile(r"\b(?:because|since|as it|so that|due to|otherwise)\b\s*(?P<why>.{6,200})", re.IGNORECASE)
_RULE_FILE = re.compile(r"(?:^|/)(?!README|CHANGELOG|LICENSE|CONTRIBUTING|TODO|REVIEW|PLAN|NOTES)[A-Z]{5,12}\.md$")
_OWN_MEMORY = re.compile(r"(?:^|/)(?:memory|memories)/(?:[\w.-]+/)*[^/]+\.md$", re.IGNORECASE)  # an agent's own
_RECORD = re.compile(r"(?:^|/)(?:adrs?|decisions)/[^/]+\.md$", re.IGNORECASE)
_NORM = re.compile(
    r"(?:[A-Z]{4,}: ?)?(?:always|never|must(?: not)?|do not|don'?t|prefer|avoid|use .{2,60} (?:instead|not|rather)"
    r"|only)\b",
    re.IGNORECASE,
)
_CHOSE = re.compile(
    r"\b(?:i |we |i've |we've )?(?:decided (?:to|on|against)|chose|went with|opted (?:for|to)|settled on)\b.{4,160}"
    r"\b(?:because|since|so that|due to|as it)\b",
    re.IGNORECASE,
)

_CHOSE_WORDS = ("decided", "chose", "went with", "opted", "settled on")  # one of them is in all that it matches


def decisions(material: Material, turns: Sequence[Turn]) -> Iterator[Found]:
    """Everything a session decided, the structural signals first."""
    if material.is_human:
        yield from _answers(material)
        yield from _plans(material)
        yield from _refusals(material)
        yield from _picks(material, turns)
        yield from _demands(material, turns)
    yield from _commits(material)
    yield from _rules(material)
    yield from _candidates(material)


def _decided(
    rule: str,
    topic: str,
    choice: str,
    text: str,
    confidence: float,
    evidence: Sequence[tuple[Step, str]],
    **details: Any,
) -> Found:
    told = {"by": "user", "alternatives": [], "reason": None} | details
    return Found(rule, DECIDED, ("decision", topic), ("choice", choice), text, confidence, evidence, told)


def _answers(material: Material) -> Iterator[Found]:
    for step in material.trace.decisions:
        call = material.trace.calls.get(step.call_id or "")
        if call is None or not call.summary.startswith("asked: "):
            continue
        asked = material.payloads.get(call.event_uid, {}).get("input")
        for question, answer in _pairs(material, call, step):
            offered = _options(asked, question)
            options = [option for option in offered if option.casefold() not in answer.casefold()]
            is_own = bool(offered) and len(options) == len(offered)  # the user's own words, not an option
            if _GOES_ON.search(question) and not (is_own and len(answer.split()) >= _LEAST_WORDS):
                continue
            if "?" in answer or not 2 <= len(answer) <= _SENTENCE_CHARS:
                continue
            answer = answer.removesuffix(" (Recommended)")
            text = f"Asked “{shortened(question, 160)}”, the user chose: {shortened(answer, 200)}"
            turned_down = [option.removesuffix(" (Recommended)") for option in options][:4]
            evidence = [(step, f"{question} {answer}"), (call, call.summary)]
            yield _decided(ANSWER, question, answer, text, 0.95, evidence, alternatives=turned_down)


def _pairs(material: Material, call: Step, answer: Step) -> list[tuple[str, str]]:
    said = material.text(answer)
    if pairs := [(found["question"], found["answer"]) for found in _ANSWERED.finditer(said)]:
        return pairs
    question = call.summary.removeprefix("asked: ")
    rest = answer.summary.removeprefix("answered: ")
    return [(question, rest.removeprefix(question).strip())] if rest.startswith(question) else []


def _options(asked: Any, question: str) -> list[str]:
    """The labels of the options of a question, however the agent lists them."""
    questions = asked.get("questions") if isinstance(asked, Mapping) else None
    for one in questions if isinstance(questions, list) else [asked]:
        if isinstance(one, Mapping) and one.get("question", question) == question:
            listed = one.get("options")
            options = listed if isinstance(listed, list) else []
            labels = (option.get("label") if isinstance(option, Mapping) else option for option in options)
            return [label for label in labels if isinstance(label, str)]
    return []


def _plans(material: Material) -> Iterator[Found]:
    titles: set[str] = set()
    approved = [step for step in material.trace.decisions if step.summary.startswith("approved the plan")]
    proposals = [(step, material.trace.calls.get(step.call_id or "")) for step in approved]
    found = [(step, _plan_of(material, call)) for step, call in proposals if call is not None]
    asked = [step for step in material.trace.requests if PLAN_REQUEST.match(step.summary)]
    for step, plan in [*found, *((step, material.text(step)) for step in asked)]:
        heading = _HEADING.search(plan)
        if heading is None or heading["title"] in titles:
            continue
        title = one_line(heading["title"]).strip("*# ")
        titles.add(heading["title"])
        reason = _first_sentence(plan[heading.end() :])
        text = f"Plan approved: {title}" + (f" ({reason})" if reason else "")
        yield _decided(PLAN, title, title, text, 0.95, [(step, f"approved: {title}")], reason=reason)


def _plan_of(material: Material, call: Step) -> str:
    given = material.payloads.get(call.event_uid, {}).get("input")
    plan = given.get("plan") if isinstance(given, Mapping) else None
    return plan if isinstance(plan, str) else ""


def _first_sentence(text: str) -> str | None:
    lines = [one for one in sentences(text) if len(one) > 30 and not one.startswith(("`", "|"))]
    return shortened(one_line(lines[0]), _SENTENCE_CHARS) if lines else None


def _refusals(material: Material) -> Iterator[Found]:
    for step in material.trace.interventions:
        call = material.trace.calls.get(step.call_id or "")
        reason = refusal_reason(step)
        if call is None or reason is None or step.is_abandoned:
            continue
        if "?" in reason or len(reason.split()) < 3 or not _DIRECTIVE.search(reason):
            continue
        about = "the plan" if asks_back(call) else call.summary
        text = f"Instead of “{shortened(about, 100)}” the user wants: {shortened(reason, 240)}"
        evidence = [(step, reason), (call, call.summary)]
        details = {"by": "user", "alternatives": [shortened(about, 160)], "reason": _reason(reason)}
        yield Found(REFUSAL, PREFERS, ("call", about), ("preference", reason), text, 0.9, evidence, details)


def _picks(material: Material, turns: Sequence[Turn]) -> Iterator[Found]:
    """Options that the agent numbered and the user named by the number."""
    for turn in turns:
        said = material.text(turn.request) if turn.request is not None else ""
        picked = _PICKED.search(said[:_SENTENCE_CHARS]) if len(said) <= _WISH_CHARS else None
        answer = material.trace.answers.get(_request_before(turns, turn))
        if turn.request is None or picked is None or answer is None:
            continue
        options = _last_list(material.text(answer))
        choice, rest = options.pop(picked["pick"].upper(), "?"), one_line(said[picked.end() :])
        if not 1 <= len(options) <= _MOST_OPTIONS or choice.endswith(("?", ":")) or said.rstrip().endswith("?"):
            continue
        choice = _plain(choice)
        others = [_plain(text) for text in list(options.values())[:4]]
        text = f"Of {len(options) + 1} options the user picked: {shortened(choice, 240)}"
        evidence = [(turn.request, turn.request.summary), (answer, choice)]
        yield _decided(
            PICK,
            choice,
            choice,
            text,
            0.9,
            evidence,
            alternatives=others,
            reason=shortened(rest.strip(" ),.-"), 160) or None,
        )


def _last_list(answer: str) -> dict[str, str]:
    """The options of the last numbered list in an answer: what is numbered before it was explained, not offered."""
    options: dict[str, str] = {}
    for found in _OPTION.finditer(answer):
        if found["name"].upper() in options or found["name"].upper() in ("1", "A"):
            options = {}
        options[found["name"].upper()] = found["text"]
    return options


def _request_before(turns: Sequence[Turn], turn: Turn) -> bytes:
    before = [one.request for one in turns if one.end <= turn.start and one.request is not None]
    return before[-1].event_uid if before else b""


def _plain(option: str) -> str:
    return shortened(one_line(option.replace("**", "").replace("`", "")), 200)


def _demands(material: Material, turns: Sequence[Turn]) -> Iterator[Found]:
    """What a user wants to be done or left undone, in a sentence of the user's own."""
    for turn in turns:
        message = material.text(turn.request) if turn.request is not None else ""
        if not message or len(message) > _MESSAGE_CHARS or message.startswith(("/", "<", "[")):
            continue
        if turn.request is None or _PASTED.search(message):
            continue
        has_changed = any(step.kind == schema.EDIT for step in turn.steps)
        for sentence in sentences(message):
            confidence = _demanded(sentence, is_short=len(message) <= _WISH_CHARS, has_changed=has_changed)
            if confidence:
                yield _demand(turn.request, sentence, confidence)


def _demanded(sentence: str, *, is_short: bool, has_changed: bool) -> float:
    """How sure it is that a sentence is a demand: less of a plain wish, which has to be in a short message."""
    if not 12 <= len(sentence) <= _SENTENCE_CHARS or sentence.endswith((":", "{", ";")):
        return 0.0
    if is_short and has_changed and _ASKED_CHANGE.search(sentence):
        return 0.6
    is_described = _DESCRIBES.search(sentence) is not None and not _LETS.search(sentence)
    if _UNSURE.search(sentence) or is_described or _TASK.match(sentence) or sentence.endswith("?"):
        return 0.0
    if _DEMAND.search(sentence):
        return 0.7
    is_wish = _WISH.search(sentence) or (len(sentence.split()) >= _LEAST_WORDS and _ORDER.match(sentence))
    return 0.6 if is_short and is_wish else 0.0


def _demand(request: Step, sentence: str, confidence: float) -> Found:
    other = _INSTEAD.search(sentence)
    choice = other["choice"].strip("`'\" ") if other else None
    details = {
        "by": "user",
        "alternatives": [other["other"].strip("`'\" ")] if other else [],
        "choice": choice,
        "reason": _reason(sentence),
    }
    about = ("preference", choice or sentence)
    text = f"The user wants: {sentence}"
    return Found(DEMAND, PREFERS, about, ("preference", sentence), text, confidence, [(request, sentence)], details)


def _reason(text: str) -> str | None:
    found = _REASON.search(text)
    return one_line(found["why"]).rstrip(". ") if found else None


def _commits(material: Material) -> Iterator[Found]:
    for commit in material.trace.commits:
        command = shell.command_given(material.payloads.get(commit.call.event_uid, {}))
        message = (shell.commit_message(command) if command else None) or commit.message
        subject = one_line(message or "").strip("\"'")
        if len(subject.split()) < 3 or commit.call.is_abandoned:
            continue
        text = f"Committed: {subject}"
        yield _decided(COMMIT, subject, subject, text, 0.9, [(commit.call, subject)], by="commit")


def _rules(material: Material) -> Iterator[Found]:
    """Rules that were written into the files agents are instructed by, and records of decisions."""
    for edit in material.trace.edits:
        if edit.has_failed or edit.call.is_abandoned or not any(path.endswith(".md") for path in edit.paths):
            continue
        for change in file_changes(material, edit.call):
            added = [line[1:].strip() for hunk in change.hunks for line in hunk.lines if line.startswith("+")]
            if _OWN_MEMORY.search(change.path):
                yield from _claims(edit.call, change.path, added)
                continue
            is_record = _RECORD.search(change.path) is not None
            if not is_record and _RULE_FILE.search(change.path) is None:
                continue
            name = inside(change.path, material.subject.cwd)
            rules = [rule for line in added if (rule := _rule(line))]
            if is_record:
                rules = [line.lstrip("# ") for line in added if line.startswith("# ")]
            for rule in rules[:_MOST_RULES]:
                text = f"Written into {name}: {rule}"
                yield _decided(RULE_FILE, rule, rule, text, 0.9, [(edit.call, rule)], by="file", file=name)


def _claims(call: Step, path: str, added: Sequence[str]) -> Iterator[Found]:
    """What an agent wrote into its own memory: its word, not a fact."""
    file = path.rpartition("/")[2]
    claims = [line.lstrip("-*> ").replace("**", "").strip() for line in added if not line.startswith(("#", "---", "|"))]
    for claim in [one for one in claims if 24 <= len(one) <= _SENTENCE_CHARS and not one.endswith(":")][:_MOST_CLAIMS]:
        text = f"The agent noted in {file}: {claim}"
        yield _decided(CLAIM, file, claim, text, 0.4, [(call, claim)], by="agent", file=path)


def _rule(line: str) -> str | None:
    """A line of an instruction file if it is a rule and whole."""
    text = line.lstrip("-*#> ").replace("**", "").strip()
    is_whole = 24 <= len(text) <= _SENTENCE_CHARS and not text.endswith((":", ",", "`"))
    return text if is_whole and _NORM.match(text) else None


def _candidates(material: Material) -> Iterator[Found]:
    for answer in material.trace.answers.values():
        for sentence in sentences(material.text(answer)):
            lowered = sentence.lower()
            if len(sentence) > _SENTENCE_CHARS or not any(word in lowered for word in _CHOSE_WORDS):
                continue
            if _CHOSE.search(sentence):
                text = f"The agent says: {sentence}"
                details = {"by": "agent", "reason": _reason(sentence)}
                yield _decided(CANDIDATE, sentence, sentence, text, 0.4, [(answer, sentence)], **details)
                break
