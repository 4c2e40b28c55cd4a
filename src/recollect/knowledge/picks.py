"""What a user takes of what the agent offers: an option by its number or letter, or the whole with a yes."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

from recollect.distill import one_line, sentences, shortened, words
from recollect.knowledge.demands import MESSAGE_CHARS
from recollect.knowledge.exchanges import Turn
from recollect.knowledge.facts import Finding, Material, decided
from recollect.knowledge.proposals import SENTENCE_CHARS, proposal_in, says_what, without_code
from recollect.knowledge.runs import Change
from recollect.store import Step

PICK, AGREEMENT = "pick", "agreement"
_LEAST_OPTION_WORDS = 3  # of an option: less is only a heading
_LEAST_SAME = 20  # characters of an option that tell it from others
_MOST_BEFORE = 3  # sentences that lead a list in
_MOST_OPTIONS = 4  # not taken: a longer list is of findings

# Questions about how to go on, which decide nothing.
GOES_ON = re.compile(
    r"what (?:would you like|do you want|should (?:i|we)) (?:me )?to do next|\bnext\?|^ready to"
    r"|ready to (?:implement|proceed)"
    r"|would you like (?:me )?to (?:proceed|continue|start)|which (?:pr|issue|file)\b"
    r"|what would you like to \w+ (?:today|first)|any (?:other|more)|anything else"
    r"|does this (?:look|capture|plan)|proceed\?|\b(?:this|parallel|separate|new) session\)",
    re.IGNORECASE,
)
_PICKED = re.compile(
    r"(?:^|\b(?i:options?|approach|solution|number|(?<!problem )with|do|use|take|implement|tackle|think|prefer|go for"
    r"|like|question) |#)(?i:options? |approach |#)?(?P<pick>\d|[A-D]|[a-d](?=\)|,|$))(?=[\s).,:]|$)"
    r"(?!\s*(?i:%|more|of|files?|tests?|times|commits?|lines?|minutes?|hours?|days?|\d|-))"
)
_PICKED_OPTION = re.compile(r"(?i:\b(?:option|approach) )(?P<pick>\d|[A-D])\b")
_PICKED_TOO = re.compile(r"\s*(?:,|\+|&|and)\s*(?P<pick>\d|[A-D])\b")
_TAKES_ALL = re.compile(r"(?:all|both|any) of\b|(?:both|combination)\b", re.IGNORECASE)
_QUESTION = re.compile(r"\?$|\b(?:what|which|how|where|when|would|should|do) .*:$", re.IGNORECASE)
# Questions about what there is, whose answer decides nothing.
_DIAGNOSES = re.compile(
    r"\bwhat (?:\w+ ){0,2}(?:leads?|led|causes?|caused|happens|happened)\b|^why (?:is|are|does|do|did)\b"
    r"|\bwhat(?:'s| is| are) the (?:\w+ )?(?:cause|causes|problem|pain)",
    re.IGNORECASE,
)
_PICKED_FIRST = re.compile(r"(?:\d|[A-Da-d])(?:,|\.| and| but)\s")
_QUOTED_ITEM = re.compile(r"\d\. [A-Z`]")  # of a list of the agent, before a word on it
_OPTION = re.compile(
    r"^\s*(?:[-*|]\s+|#{1,4}\s+)?(?:\*\*)?(?P<label>option |approach )?"
    r"(?P<name>\d|[A-D])(?:\*\*)?[.):]\s*(?:\*\*)?(?P<text>\S.{3,300})$",
    re.M | re.I,
)
_AGREES = re.compile(
    r"(?:(?:ok(?:ay)?|yes|yep|yeah|yup|ja|sure|sounds? good|great|perfect|good|agreed?|correct|exactly|please|cool"
    r"|(?:please )?do(?: (?:it|that|this|so))?|go (?:ahead|for it)|let'?s (?:do (?:it|that|this)|go)|i agree"
    r"|makes sense|(?:fix|implement|apply|add|make) (?:it|that|this|the change))\b[\s,.!]*)+",
    re.IGNORECASE,
)
# Offers of a step, or of several things to choose from: a yes to it decides nothing.
_OFFERS_STEP = re.compile(
    r"\b(?:me to|should i|shall i|should we) (?:also |now |then |just |go ahead and )*(?:commit|push|open|run|check"
    r"|look|create (?:a|the) (?:pr|pull|commit|branch|plan)|investigate|explore|continue|proceed\?|start|begin|test"
    r"|verify|review|rebase|merge|show|explain|draft|write (?:a |the |some )?(?:\w+ )?(?:tests?|plan)|save|dig"
    r"|fix (?:th\w+|it|them|all)\b|address|add (?:\w+ ){0,3}tests?)\b"
    r"|\bor (?:would|do|should|shall|just|something|keep|leave|is there)\b|\b(?:committed|pushed)\b",
    re.IGNORECASE,
)


def picks(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """Options that the agent numbered and the user named by the number, or agreed to when the agent named one."""
    for _, request, _, answer in _replies(material, turns):
        said, offered = material.text(request).strip(), material.text(answer)
        is_agreed = _AGREES.fullmatch(said) is not None
        naming = proposal_in(offered)[0] if is_agreed else said
        naming = naming[:SENTENCE_CHARS] if len(said) <= MESSAGE_CHARS else ""
        picked = _PICKED_OPTION.search(naming) or _PICKED.search(naming)
        if picked is None or (said.endswith("?") and not _PICKED_FIRST.match(said)) or _QUOTED_ITEM.match(said):
            continue
        listed = _list_with(picked["pick"].upper(), offered)
        question = _question_of(listed, offered)
        if GOES_ON.search(question) or _DIAGNOSES.search(question) or any(map(GOES_ON.search, listed.values())):
            continue
        names = [picked["pick"].upper()]
        if too := _PICKED_TOO.match(naming, picked.end()):
            names.append(too["pick"].upper())
        choice = "; ".join(_plain(listed[name]) for name in names if name in listed)
        if not 2 <= len(listed) <= _MOST_OPTIONS + 1 or not choice or choice.endswith(("?", ":")):
            continue
        others = [_plain(text) for name, text in listed.items() if name not in names]
        if _TAKES_ALL.match(choice):
            choice, others = f"{choice}: {'; '.join(others)}", []
        rest = "" if is_agreed else one_line(naming[picked.end() :]).strip(" ),.-")
        asked = f", asked: “{shortened(question, 160)}”" if says_what(question) else ""
        text = f"{shortened(choice, 240)} (picked from {len(listed)} options{asked})"
        evidence = [(request, request.summary), (answer, choice)]
        yield decided(
            PICK, choice, choice, text, 0.9, evidence, alternatives=others, reason=shortened(rest, 160) or None
        )


def _question_of(options: Mapping[str, str], answer: str) -> str:
    """What an answer asks before a list of options or after it: best in words that say of what."""
    first = next(iter(options.values()), "")[:_LEAST_SAME]
    before, _, after = without_code(answer).rpartition(first) if first else ("", "", "")
    asked = [
        sentence.replace("**", "")
        for sentence in [*sentences(before)[-_MOST_BEFORE:], *sentences(after)]
        if _QUESTION.search(sentence.strip("*_ "))
    ]
    return next((sentence for sentence in asked if says_what(sentence)), asked[0] if asked else "")


def _list_with(name: str, answer: str) -> dict[str, str]:
    """The last list of options that has this one: lists called options first, what is numbered else may explain."""
    lists: dict[tuple[bool, bool], dict[str, str]] = {}
    for match in _OPTION.finditer(answer):
        number, kind = match["name"].upper(), (match["label"] is None, match["name"].isdigit())
        if number in ("1", "A") or number in lists.get(kind, {}):
            lists[kind] = {}
        lists.setdefault(kind, {})[number] = _described(match["text"], answer[match.end() :])
    return next((lists[kind] for kind in sorted(lists) if name in lists[kind]), {})


def _described(option: str, following: str) -> str:
    """An option with the line under it, if it is only a heading."""
    if len(option.split()) >= _LEAST_OPTION_WORDS:
        return option
    line = next((line.strip(" -*") for line in following.splitlines() if line.strip(" -*")), "")
    is_about = bool(line) and not line.endswith("?") and not re.search(r"\boption\b", line, re.IGNORECASE)
    return f"{option.rstrip(':* ')}: {line}" if is_about and not _OPTION.match(line) else option


def agreements(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """What the agent proposed, the user agreed to in a word or two, and the agent then changed something for."""
    for turn, request, before, answer in _replies(material, turns):
        said = material.text(request).strip()
        if not _AGREES.fullmatch(said) or not any(turn.start < change.position < turn.end for change in changes):
            continue
        proposal, confidence = proposal_in(material.text(answer))
        if not proposal or _OFFERS_STEP.search(proposal) or _PICKED.search(proposal):
            continue
        topic = shortened(words.gist(before.summary), 160)
        if "?" in before.summary:  # the user had proposed it
            confidence = max(confidence, 0.6)
        text = f"{proposal} (agreed, on “{topic}”)"
        yield decided(AGREEMENT, topic, proposal, text, confidence, [(request, said), (answer, proposal)])


def _replies(material: Material, turns: Sequence[Turn]) -> Iterator[tuple[Turn, Step, Step, Step]]:
    """Requests that follow an answer of the agent, with the request before and its answer."""
    asked = [(turn, turn.request) for turn in turns if turn.request is not None]
    for (_, before), (turn, request) in pairwise(asked):
        answer = material.trace.answers.get(before.event_uid)
        if answer is not None:
            yield turn, request, before, answer


def _plain(option: str) -> str:
    if option.endswith("|"):  # a row of a table
        option = option.strip("| ").replace(" | ", ": ")
    return shortened(one_line(option.replace("**", "").replace("`", "")), 200)
