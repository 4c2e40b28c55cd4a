"""All rules over one session: what it teaches, as facts with evidence, and the steps of its exchanges.

The simplest are here: which request changed which file, with hashes of the lines that were written; which commits,
branches and pull requests it made, and which packages it took. They outlive the events, so that a line can still be
traced to its request when its edit is gone. And what an agent states of the things it worked on: values, what needs
what, what does not go together, and the causes of what its user showed or described.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from recollect.agentkit.calls import line_hash
from recollect.digest import one_line, sentences, shortened, words
from recollect.knowledge.decisions import decisions
from recollect.knowledge.material import (
    Change,
    Finding,
    Material,
    Run,
    Turn,
    changes_of,
    distinct,
    fact_rows,
    is_plan,
    runs_of,
    turns_of,
)
from recollect.knowledge.records import CAUSED_BY, CONFLICTS_WITH, HAS_VALUE, REQUIRES, TOUCHES
from recollect.knowledge.resolutions import EXPLANATION_CHARS, resolutions
from recollect.knowledge.signature import error_in, fingerprint
from recollect.knowledge.workflows import exchange_rows
from recollect.model import schema
from recollect.store import ExchangeRow, FactRow, Step

RULE, GIT, INSTALL = "edit", "git", "install"
_COMMITTED = re.compile(
    r"\[(?P<branch>[^\s\[\]]+)(?: \(root-commit\))? (?P<commit>[0-9a-f]{7,40})\]"
)  # git's own words
_INSTALLS = re.compile(
    r"(?:^|[;&(\n]|\s)(?:pip3?|uv|npm|pnpm|yarn|bun|cargo|go|brew|apt(?:-get)?|gem|poetry|pdm|conda|composer)"
    r" (?:install|i|add|get|require)\b(?P<rest>[^;&|<>\n]*(?:[<>]=?[\d.]+[^;&|<>\n]*)*)"
)
_OF_OPTION = re.compile(
    r"(?:^|\s)(?:-[rceti]|--(?:requirement|constraint|editable|target|(?:extra-)?index-url|registry|prefix))[ =]\S+"
)
_PACKAGE = re.compile(
    r"[\"']?(?P<name>@?[A-Za-z][\w.-]*(?:/[\w.-]+)*)(?:\[[\w,-]+\])?(?:[=<>~!@^][\w.*=<>!,^-]*)?[\"']?"
)
_MOST_LINES = 2_000  # of an exchange in one file
_REQUEST_CHARS = 300
_COMMAND_CHARS = 120


def touches(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """Each file that an exchange edited, once."""
    cwd = (material.subject.cwd or "").rstrip("/")
    edits = [change for change in changes if change.edit is not None and not change.step.is_abandoned]
    for turn in turns:
        by_path: dict[str, list[Change]] = {}
        for change in edits:
            if turn.start <= change.position < turn.end:
                by_path.setdefault(change.name, []).append(change)
        for name, made in by_path.items():
            asked, goal = turn.request.summary if turn.request is not None else "", _goal(turn)
            details: dict[str, Any] = {
                "path": name if name.startswith("/") or not cwd else f"{cwd}/{name}",
                "request": shortened(asked, _REQUEST_CHARS) or None,
                "request_seq": turn.request.seq if turn.request is not None else None,
                "edits": [_window(change) for change in made],
            }
            text, evidence = f"“{goal}” changed {name}", [(made[0].step, made[0].step.summary)]
            yield Finding(RULE, TOUCHES, ("task", goal), ("file", name), text, 0.95, evidence, details)


def git_work(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """What an exchange made in git, as git and the forge answered: commits with their branch, and pull requests."""
    calls = {call.call_id for call, _ in material.trace.commits}
    for turn in turns:
        for step in turn.steps:
            made = (
                _COMMITTED.search(step.summary) if step.kind == schema.TOOL_RESULT and step.call_id in calls else None
            )
            if made is not None:
                yield _made(turn, "commit", made["commit"], step, step.summary)
                yield _made(turn, "branch", made["branch"], step, step.summary)
        for call, address, title in material.trace.pull_requests:
            if turn.has(call):
                yield _made(turn, "pull request", address, call, title or address)


def installs(turns: Sequence[Turn], runs: Sequence[Run]) -> Iterator[Finding]:
    """The packages that an exchange installed by name."""
    for turn in turns:
        for run in runs:
            if turn.start <= run.position < turn.end and run.has_failed is False:
                taken = (_OF_OPTION.sub(" ", match["rest"]) for match in _INSTALLS.finditer(run.command))
                named = (_PACKAGE.fullmatch(word) for rest in taken for word in rest.split())
                for name in dict.fromkeys(match["name"] for match in named if match):
                    goal, command = _goal(turn), shortened(run.command, _COMMAND_CHARS)
                    text = f"“{goal}” took the package {name}: `{command}`"
                    pair = ("task", goal), ("package", name)
                    yield Finding(INSTALL, REQUIRES, *pair, text, 0.8, [(run.call, f"ran {command}")])


def _made(turn: Turn, kind: str, name: str, step: Step, quote: str) -> Finding:
    goal = _goal(turn)
    return Finding(GIT, TOUCHES, ("task", goal), (kind, name), f"“{goal}” made {kind} {name}", 0.95, [(step, quote)])


def _goal(turn: Turn) -> str:
    asked = turn.request.summary if turn.request is not None else ""
    return shortened(words.gist(asked), 120) if asked else "no request"


def _window(change: Change) -> dict[str, Any]:
    """An edit as hashes: of the lines that it wrote, and of those it left around them."""
    assert change.edit is not None
    lines = [(line[0], text) for hunk in change.edit.hunks for line in hunk.lines if (text := line[1:].strip())]
    lines = lines[:_MOST_LINES]
    return {
        "event_uid": change.step.uid,
        "at_ms": change.step.ts_ms,
        "seq": change.step.seq,
        "renamed_from": change.edit.renamed_from,
        "added": sum(hunk.added for hunk in change.edit.hunks),
        "removed": sum(hunk.removed for hunk in change.edit.hunks),
        "wrote": "".join([line_hash(text) for sign, text in lines if sign == "+"]),
        "left": "".join([line_hash(text) for sign, text in lines if sign == " "]),
    }


STATEMENT = "statement"
_SENTENCE_CHARS = 220
_NAME = r"`?[A-Za-z][\w./-]*(?: [\w./][\w./-]*){0,4}?`?"
_UNIT = r"(?:%|ms|s|seconds?|minutes?|hours?|days?|MB|GB|KB|connections?)"
_VALUE = rf"(?P<value>`?\"?-?[\d.]+\s?{_UNIT}?\"?`?(?!\w|\.\d)|`[^`]{{1,40}}`|true|false)"
_SET = re.compile(
    rf"(?:(?:^|[.:!—–-]\s+|\b(?:the|now|so|and)\s+)(?P<name>{_NAME}) (?:is |are |was |has been )?(?:now )?"
    r"(?:set|changed|increased|raised|reduced|lowered|bumped|updated)"
    rf"|\b(?:[Ii]ncreased|[Rr]aised|[Rr]educed|[Ll]owered|[Bb]umped|[Ss]et|[Cc]hanged) (?:the )?(?P<name2>{_NAME}))"
    rf" (?:from \S+(?: \w+)? )?to {_VALUE}"
)
_BEGINS = r"(?:^|[,.:!] )(?:ah,? |so,? |because |since |but |and |as |the )*"
_OTHER = re.compile(
    rf"{_BEGINS}(?P<name>{_NAME}) (?:requires?|needs?) (?:a |an )?different (?P<what>[\w -]{{3,40}})", re.IGNORECASE
)
_CONFLICT = re.compile(
    rf"{_BEGINS}(?P<name>{_NAME}) (?:conflicts with|is (?:incompatible|not compatible) with|isn't compatible with"
    r"|does(?:n't| not) work with|cannot be used with) (?:(?:a|an|the) )?(?P<what>[`\w./ -]{3,50})",
    re.IGNORECASE,
)
_REQUIRES = re.compile(
    rf"^(?:the )?(?P<name>{_NAME}) requires (?:a |an |the )?(?P<what>[`A-Za-z][\w`./ -]{{2,60}})", re.IGNORECASE
)
_GOES_ON = re.compile(r" (?:because|since|so|when|if|which|that|and|but|as|or|to) .*")  # behind the name of a thing
# Plain words without which none of the patterns can match: looking for them takes a tenth of the time.
_SET_WORDS = ("set", "chang", "increas", "rais", "reduc", "lower", "bump", "updat")
_CONFLICT_WORDS = ("conflict", "compatible", "work with", "used with")
_STATING_WORDS = ("different ", " requires ", *_CONFLICT_WORDS)
# What begins no name, and what is in none.
_NO_NAMES = re.compile(
    r"(?:this|that|it|which|what|these|those|they|we|you|i|he|the user|there|one|each|all|both|nothing|if|when|while"
    r"|because|since|but|so|as|step|currently|main|signature|issue|problem|cause)\b"
    r"|.*\b(?:is|are|might|may|now|would|could|explicitly|that|and|or|to|of|was|will)\b",
    re.IGNORECASE,
)


def statements(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """Facts that an agent states in so many words; of values, only those set by a change before the words."""
    for turn in turns:
        is_problem = any(turn.has(step) for step, _ in material.trace.insights)
        changed = next((change.position for change in changes if turn.start < change.position < turn.end), turn.end)
        stated = [
            finding
            for position, step in enumerate(turn.steps, turn.start)
            if step.kind in (schema.ASSISTANT_MSG, schema.COMPLETION)
            for finding in _stated(material, turn, step, has_changed=position > changed, is_problem=is_problem)
        ]
        named = {one.subject for one in stated if one.predicate == CONFLICTS_WITH and not _is_default(one)}
        yield from (one for one in stated if not (_is_default(one) and one.subject in named))


def _is_default(finding: Finding) -> bool:
    """Whether a conflict only says that something else is needed; words that name what is in the way say more."""
    return (
        finding.predicate == CONFLICTS_WITH
        and finding.object[1].startswith("default ")
        and "different " in finding.text
    )


def _stated(material: Material, turn: Turn, step: Step, *, has_changed: bool, is_problem: bool) -> Iterator[Finding]:
    said = material.text(step)
    lowered = said.lower()
    has_changed = has_changed and _may_set(lowered)
    if not has_changed and not any(word in lowered for word in _STATING_WORDS):
        return
    for sentence in sentences(said):
        if len(sentence) > _SENTENCE_CHARS or sentence.endswith("?"):
            continue
        quote, lowered = [(step, sentence)], sentence.lower()
        if has_changed and _may_set(lowered) and (match := _SET.search(sentence)):
            yield from _value(turn, quote, match["name"] or match["name2"], match["value"], is_problem=is_problem)
        elif "different " in lowered and (match := _OTHER.search(sentence)):
            default = f"default {_plain(match['what'])}"
            text = f"{match['name']} does not work with the {default}: {sentence}"
            yield from _pair(CONFLICTS_WITH, match["name"], default, text, 0.65, quote)
        elif any(word in lowered for word in _CONFLICT_WORDS) and (match := _CONFLICT.search(sentence)):
            yield from _pair(CONFLICTS_WITH, match["name"], match["what"], sentence, 0.65, quote)
        elif " requires " in lowered and (match := _REQUIRES.search(sentence)):
            yield from _pair(REQUIRES, match["name"], match["what"], sentence, 0.6, quote)


def _may_set(lowered: str) -> bool:
    return " to " in lowered and any(word in lowered for word in _SET_WORDS)


def _pair(
    predicate: str, name: str, other: str, text: str, confidence: float, quote: Sequence[tuple[Step, str]]
) -> Iterator[Finding]:
    other = _plain(_GOES_ON.sub("", one_line(other)))
    if other and _is_name(name):
        yield Finding(STATEMENT, predicate, ("component", _plain(name)), ("component", other), text, confidence, quote)


def _value(
    turn: Turn, quote: Sequence[tuple[Step, str]], name: str, value: str, *, is_problem: bool
) -> Iterator[Finding]:
    """A setting and its value; where it solved the problem of the request, what that took."""
    if not _is_name(name):
        return
    name, value = _plain(name), _plain(value)
    if is_problem and words.insight(quote[0][1]):
        return  # what was wrong
    if turn.request is not None and is_problem:
        problem = ("problem", words.gist(turn.request.summary))
        text = f"“{problem[1]}” took {name} = {value}"
        yield Finding(STATEMENT, REQUIRES, problem, ("setting", f"{name} = {value}"), text, 0.65, quote)
    else:
        text = f"{name} = {value}: {quote[0][1]}"
        yield Finding(STATEMENT, HAS_VALUE, ("setting", name), ("value", value), text, 0.7, quote)


def _plain(name: str) -> str:
    return name.strip('`" ').rstrip(".,;")


def _is_name(name: str) -> bool:
    return _NO_NAMES.match(name.strip("` ")) is None and len(name.split()) <= 4


CAUSE = "cause"
_WHOLE_CHARS = 60  # of a sentence that tells a cause by itself
_REPORT_CHARS = 1500  # of a request that describes a problem
_NO_CAUSE = re.compile(
    r"\b(?:let me|the fix is|is fixed|likely not|your question|here's (?:the|what)|i'll|i will|i've completed|in how"
    r"|look at|issues?:$)\b|```|:$",
    re.IGNORECASE,
)
_PROBLEM = re.compile(
    r"\b(?:issue|bug|errors?|wrong|broken|crash\w*|fail\w*|not (?:work|see|show|updat)\w*|does(?:n't| not)"
    r"|is(?:n't| not)|missing|problem|weird|unexpected|stuck|hangs?|slow|timeout|why (?:is|does|do|are))\b"
    r"|ошибк|не работает|エラー|错误|오류|fehler",
    re.IGNORECASE,
)


def causes_found(material: Material, turns: Sequence[Turn]) -> Iterator[Finding]:
    """The causes that an agent found of what its user showed or described."""
    for turn in turns:
        if not material.is_human or turn.request is None or is_plan(material, turn.request):
            continue
        request = material.text(turn.request)
        headline = error_in(request)
        cause = next((insight for insight in material.trace.insights if turn.has(insight[0])), None)
        if cause is None or (headline is None and not _PROBLEM.search(request[:_REPORT_CHARS])):
            continue
        why = _cause_sentence(material, cause)
        if not _NO_CAUSE.search(why[1]):
            problem = ("error", fingerprint(headline)) if headline else ("problem", words.gist(turn.request.summary))
            shown, named = headline or turn.request.summary, _SET.search(why[1])
            # “the expiry is set to 0” names a value: `expiry = 0`.
            is_value = named is not None and bool(named["name"]) and _is_name(named["name"])
            found = f"{_plain(named['name'])} = {_plain(named['value'])}" if named and is_value else why[1]
            text = f"“{shortened(shown, 160)}”: {why[1]}"
            yield Finding(CAUSE, CAUSED_BY, problem, ("cause", found), text, 0.75, [why, (turn.request, shown)])


def _cause_sentence(material: Material, cause: tuple[Step, str]) -> tuple[Step, str]:
    step, text = cause
    said = sentences(material.text(step))
    index = next((index for index, sentence in enumerate(said) if words.insight(sentence)), None)
    if index is None:
        return step, shortened(one_line(text), EXPLANATION_CHARS)
    chosen = said[index]
    following = "".join(said[index + 1 : index + 2])
    if (len(chosen) < _WHOLE_CHARS or chosen.endswith(":")) and not _NO_CAUSE.search(following):
        chosen = f"{chosen} {following}"
    return step, shortened(one_line(chosen.replace("**", "")), EXPLANATION_CHARS)


@dataclass(frozen=True, slots=True)
class Lessons:
    """What a session teaches, or a part of one."""

    facts: tuple[FactRow, ...] = ()
    exchanges: tuple[ExchangeRow, ...] = ()

    def __add__(self, later: "Lessons") -> "Lessons":
        return Lessons(distinct(self.facts + later.facts), self.exchanges + later.exchanges)


def derive(material: Material) -> Lessons:
    """The lessons of a session; none of one that only copies another."""
    if not material.trace.has_own:
        return Lessons()
    turns, runs, changes = turns_of(material.trace), runs_of(material), changes_of(material)
    facts = fact_rows(
        [
            *resolutions(material, turns, runs, changes),
            *causes_found(material, turns),
            *decisions(material, turns, changes),
            *statements(material, turns, changes),
            *touches(material, turns, changes),
            *git_work(material, turns),
            *installs(turns, runs),
        ],
        material.subject.started_ms,
    )
    return Lessons(distinct(facts), tuple(exchange_rows(material, turns, runs)))
