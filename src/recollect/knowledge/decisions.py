"""What was decided, as the structure of a session shows it.

Answers to questions the agent asked, plans that were approved, calls refused with words, options picked by number,
offers the user agreed to, commits, and rules written into instruction files.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from recollect.agentkit.calls import FileChange
from recollect.digest import asks_back, one_line, refusal_reason, sentences, shell, shortened, words
from recollect.knowledge.asking import relevance, topic_words
from recollect.knowledge.demands import (
    MESSAGE_CHARS,
    SENTENCE_CHARS,
    demanded,
    demands,
    proposal_in,
    reason_in,
    says_what,
    settlements,
    without_code,
)
from recollect.knowledge.material import Change, Finding, Material, Turn, decided, file_changes, inside, is_plan
from recollect.knowledge.records import ANSWER, COMMIT, LEAST_CONFIDENCE, PLAN, PREFERS, REFUSAL, RULE_FILE, STANDING
from recollect.model import schema
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


_MOST_RULES = 3
_LEAST_WORDS = 4

_ANSWERED = re.compile(r'"(?P<question>[^"]{4,400})"\s*=\s*"(?P<answer>[^"]+)"')
_HEADING = re.compile(
    r"^#{1,3}\s+(?:plan:?\s+|implementation plan:?\s+)?(?P<title>\S.{3,140})$", re.MULTILINE | re.IGNORECASE
)
_MOST_TITLES = 3
_SAME = 0.6  # of an option in an answer in the user's own words, who then took it
_MOST_STATING = 24  # lines at the beginning of a plan, which say what it is about
_LABEL = re.compile(r"^(?:the )?(?:fix|goal|solution|(?:fix )?approach|change|decision|strategy)(?: \d)?: *", re.I)
_DOES = re.compile(
    rf"{_LABEL.pattern}|(?:this (?:plan|change)|we(?:'ll| will| want to| need to| should)|the (?:fix|plan|change) is)\b"
    r"|(?:add|change|create|replace|remove|move|use|update|enhance|make|refactor|consolidate|extract|introduce|fix|split"
    r"|rename|delete|drop|store|keep|write|convert|merge|switch|implement|extend|build|calculate|compute|simplify"
    r"|normalize|optimize|invert|pass|return|show|wire|allow|support|route|wrap|skip|call|filter|have)\b",
    re.I,
)
_TESTS = re.compile(r"(?:add|write|update|create) (?:[\w`-]+ ){0,4}tests?\b", re.I)
_RULE_FILE = re.compile(r"(?:^|/)(?!README|CHANGELOG|LICENSE|CONTRIBUTING|TODO|REVIEW|PLAN|NOTES)[A-Z]{5,12}\.md$")
_PLAN_FILE = re.compile(r"(?:^|/)plans?/[^/]+\.md$")
_RECORD = re.compile(r"(?:^|/)(?:adrs?|decisions)/[^/]+\.md$", re.IGNORECASE)
_NORM = re.compile(
    r"(?:[A-Z]{4,}: ?)?(?:always|never|must(?: not)?|do not|don'?t|prefer|avoid|use .{2,60} (?:instead|not|rather)"
    r"|only)\b",
    re.IGNORECASE,
)


def decisions(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """Everything a session decided, the structural signals first."""
    if material.is_human:
        yield from _answers(material)
        yield from _plans(material)
        yield from _refusals(material)
        yield from picks(material, turns)
        yield from agreements(material, turns, changes)
        yield from demands(material, turns)
        yield from settlements(material, turns)
    yield from _commits(material)
    yield from _rules(material)


def _answers(material: Material) -> Iterator[Finding]:
    for step in material.trace.decisions:
        call = material.trace.calls.get(step.call_id or "")
        if call is None or not call.summary.startswith("asked: "):
            continue
        asked = material.payloads.get(call.event_uid, {}).get("input")
        for question, answer in _pairs(material, call, step):
            offered = _options(asked, question)
            options = [option for option in offered if option.casefold() not in answer.casefold()]
            is_own = bool(offered) and len(options) == len(offered)  # the user's own words, not an option
            if GOES_ON.search(question) and not (is_own and len(answer.split()) >= _LEAST_WORDS):
                continue
            if "?" in answer or not 2 <= len(answer) <= SENTENCE_CHARS:
                continue
            answer = answer.strip().removesuffix(" (Recommended)")
            options = [option for option in options if relevance(topic_words(option), answer) < _SAME]
            text = f"{shortened(answer, 200)} (asked: “{shortened(question, 160)}”)"
            turned_down = [option.removesuffix(" (Recommended)") for option in options][:4]
            evidence = [(step, f"{question} {answer}"), (call, call.summary)]
            yield decided(ANSWER, question, answer, text, 0.95, evidence, alternatives=turned_down)


def _pairs(material: Material, call: Step, answer: Step) -> list[tuple[str, str]]:
    said = material.text(answer)
    if pairs := [(match["question"], match["answer"]) for match in _ANSWERED.finditer(said)]:
        return pairs
    question = call.summary.removeprefix("asked: ")
    rest = answer.summary.removeprefix("answered: ")
    return [(question, rest.removeprefix(question).strip())] if rest.startswith(question) else []


def _options(asked: Any, question: str) -> list[str]:
    """The labels of the options of a question, however the agent lists them."""
    questions = asked.get("questions") if isinstance(asked, Mapping) else None
    for entry in questions if isinstance(questions, list) else [asked]:
        if isinstance(entry, Mapping) and entry.get("question", question) == question:
            listed = entry.get("options")
            options = listed if isinstance(listed, list) else []
            labels = (option.get("label") if isinstance(option, Mapping) else option for option in options)
            return [label for label in labels if isinstance(label, str)]
    return []


def _plans(material: Material) -> Iterator[Finding]:
    titles: set[str] = set()
    approved = [step for step in material.trace.decisions if step.summary.startswith("approved the plan")]
    proposals = [(step, material.trace.calls.get(step.call_id or "")) for step in approved]
    plans = [(step, _plan_of(material, call)) for step, call in proposals if call is not None]
    plans += [(step, material.text(step)) for step in material.trace.requests if is_plan(material, step)]
    for step, plan in plans:
        heading = _HEADING.search(plan)
        if heading is None or heading["title"] in titles:
            continue
        title = one_line(heading["title"]).strip("*# ")
        titles.add(heading["title"])
        lines = (line.replace("**", "") for line in sentences(without_code(plan[heading.end() :])))
        # Without what leads something in.
        said = [line for line in lines if len(line) > 30 and line[-1] != ":" and not line.startswith(("`", "|", "["))]
        aim, reason = _aim(title, said), shortened(one_line(said[0]), SENTENCE_CHARS) if said else None
        how = "approved" if step.kind == schema.DECISION else "to implement"
        text = f"Plan {how}: {title}" + (f" ({aim})" if aim else "")
        yield decided(PLAN, title, title, text, 0.95, [(step, f"{how}: {title}")], reason=reason)


def _plan_of(material: Material, call: Step) -> str:
    """The plan that a call proposed: in its input, or in the file of plans that was written last before it."""
    given = material.payloads.get(call.event_uid, {}).get("input")
    plan = given.get("plan") if isinstance(given, Mapping) else None
    if isinstance(plan, str):
        return plan
    written = [
        change
        for edit in material.trace.edits
        if edit.call.seq < call.seq and not edit.has_failed and any(map(_PLAN_FILE.search, edit.paths))
        for change in file_changes(material, edit.call)
    ]
    headed = [text for change in written if _HEADING.search(text := "\n".join(_added(change)))]
    return headed[-1] if headed else ""


def _added(change: FileChange) -> list[str]:
    return [line[1:].strip() for hunk in change.hunks for line in hunk.lines if line.startswith("+")]


def _aim(title: str, said: Sequence[str]) -> str | None:
    """What a plan says will be done: what it calls its aim, or else the titles of its first steps."""
    is_of_tests = _TESTS.match(title) is not None
    does = [line for line in said[:_MOST_STATING] if _DOES.match(line) and (is_of_tests or not _TESTS.match(line))]
    aims = [line for line in does if _LABEL.match(line)] or does
    whole = aims[:1] if aims and aims[0].endswith(".") else aims[:_MOST_TITLES]
    return (
        shortened("; ".join(_LABEL.sub("", one_line(aim)) for aim in whole).replace(".;", ";"), SENTENCE_CHARS) or None
    )


def _refusals(material: Material) -> Iterator[Finding]:
    """Rules and choices among the words of a refusal; the rest of them only says what to do instead."""
    for step in material.trace.interventions:
        call = material.trace.calls.get(step.call_id or "")
        reason = refusal_reason(step)
        if call is None or reason is None or step.is_abandoned:
            continue
        confidence = max(map(demanded, sentences(reason)), default=0.0)
        # What is chosen in place of a part of a plan may change with the next draft.
        if confidence < (STANDING if asks_back(call) else LEAST_CONFIDENCE):
            continue
        about = call.summary
        if asks_back(call):
            heading = _HEADING.search(_plan_of(material, call))
            about = f"the plan “{one_line(heading['title']).strip('*# ')}”" if heading else "the plan"
        text = f"{shortened(reason, 240)} (instead of: {shortened(about, 100)})"
        evidence = [(step, reason), (call, call.summary)]
        details = {"by": "user", "alternatives": [shortened(about, 160)], "reason": reason_in(reason)}
        yield Finding(REFUSAL, PREFERS, ("call", about), ("preference", reason), text, confidence, evidence, details)


def _commits(material: Material) -> Iterator[Finding]:
    for call, message in material.trace.commits:
        command = shell.command_given(material.payloads.get(call.event_uid, {}))
        subject = one_line((command and shell.commit_message(command)) or message).strip("\"'")
        if len(subject.split()) < 3 or call.is_abandoned:
            continue
        text = f"Committed: {subject}"
        yield decided(COMMIT, subject, subject, text, 0.9, [(call, subject)], by="commit")


def _rules(material: Material) -> Iterator[Finding]:
    """Rules that were written into the files agents are instructed by, and records of decisions."""
    for edit in material.trace.edits:
        if edit.has_failed or edit.call.is_abandoned or not any(path.endswith(".md") for path in edit.paths):
            continue
        for change in file_changes(material, edit.call):
            added = _added(change)
            is_record = _RECORD.search(change.path) is not None
            if not is_record and _RULE_FILE.search(change.path) is None:
                continue
            name = inside(change.path, material.subject.cwd)
            if is_record:
                rules = [line.lstrip("# ") for line in added if line.startswith("# ")]
            else:
                lines = [line.lstrip("-*#> ").replace("**", "").strip() for line in added]
                whole = [line for line in lines if 24 <= len(line) <= SENTENCE_CHARS and line[-1] not in ":,`"]
                rules = list(filter(_NORM.match, whole))
            for rule in rules[:_MOST_RULES]:
                text = f"{rule} (written into {name})"
                yield decided(RULE_FILE, rule, rule, text, 0.9, [(edit.call, rule)], by="file", file=name)
