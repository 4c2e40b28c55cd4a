"""What an agent states of the things it worked on: values, what needs what, what does not go together."""

import re
from collections.abc import Iterator, Sequence

from recollect import schema
from recollect.distill import one_line, sentences, words
from recollect.knowledge.exchanges import Turn
from recollect.knowledge.facts import Finding, Material
from recollect.knowledge.predicates import CONFLICTS_WITH, HAS_VALUE, REQUIRES
from recollect.knowledge.runs import Change
from recollect.store import Step

RULE = "statement"
_SENTENCE_CHARS = 220
_NAME = r"(?P<name>`?[A-Za-z][\w./-]*(?:[ -][\w./-]+){0,4}?`?)"
_VALUE = (
    r"(?P<value>`?\"?-?[\d.]+\s?(?:%|ms|s|seconds?|minutes?|hours?|days?|MB|GB|KB|connections?)?\"?`?(?!\w|\.\d)"
    r"|`[^`]{1,40}`|true|false)"
)
_SET = re.compile(
    rf"(?:^|[.:!—–-]\s+|\b(?:the|now|so|and)\s+){_NAME} (?:is |are |was |has been )?(?:now )?(?:set|changed"
    rf"|increased|raised"
    rf"|reduced|lowered|bumped|updated) (?:from \S+(?: \w+)? )?to {_VALUE}"
    rf"|\b(?:[Ii]ncreased|[Rr]aised|[Rr]educed|[Ll]owered|[Bb]umped|[Ss]et"
    rf"|[Cc]hanged) (?:the )?(?P<name2>`?[A-Za-z][\w./-]*(?:[ -][\w./-]+){{0,4}}?`?)"
    rf" (?:from \S+(?: \w+)? )?to (?P<value2>`?-?[\d.]+\s?(?:%|ms|s|seconds?|minutes?|hours?|MB|GB)?`?(?!\w|\.\d))"
)
_OTHER = re.compile(
    rf"(?:^|[,.:!] )(?:ah,? |so,? |the )?{_NAME} (?:requires?|needs?) (?:a |an )?different (?P<what>[\w -]{{3,40}})",
    re.I,
)
_CONFLICT = re.compile(
    rf"(?:^|[,.:!] )(?:the )?{_NAME} (?:conflicts with|is (?:in)?compatible with|is not compatible with|does(?:n't"
    rf"| not) work with|cannot be used with)"
    r" (?P<what>[`\w./ -]{3,50})",
    re.IGNORECASE,
)
_REQUIRES = re.compile(
    rf"^(?:the )?{_NAME} requires (?:a |an |the )?(?P<what>[`A-Za-z][\w`./ -]{{2,60}})", re.IGNORECASE
)
# Plain words without which none of the patterns can match: looking for them takes a tenth of the time.
_SET_WORDS = ("set", "chang", "increas", "rais", "reduc", "lower", "bump", "updat")
_CONFLICT_WORDS = ("conflict", "compatible", "work with", "used with")
_STATING_WORDS = ("different ", " requires ", *_CONFLICT_WORDS)
# What begins no name, and what is in none.
_NO_NAMES = re.compile(
    r"(?:this|that|it|which|these|they|we|you|i|he|the user|there|one|each|if|step|currently|main|signature)\b"
    r"|.*\b(?:is|are|might|may|now|would|could|explicitly|that|and|or|to|of|was|will)\b",
    re.IGNORECASE,
)


def statements(material: Material, turns: Sequence[Turn], changes: Sequence[Change]) -> Iterator[Finding]:
    """Facts that an agent states in so many words; of values, only where the exchange changed something."""
    for turn in turns:
        is_problem = any(turn.has(step) for step, _ in material.trace.insights)
        has_changed = any(turn.start < change.position < turn.end for change in changes)
        for step in turn.steps:
            if step.kind in (schema.ASSISTANT_MSG, schema.COMPLETION):
                yield from _stated(material, turn, step, has_changed=has_changed, is_problem=is_problem)


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
            yield from _value(
                turn, quote, match["name"] or match["name2"], match["value"] or match["value2"], is_problem=is_problem
            )
        elif "different " in lowered and (match := _OTHER.search(sentence)) and _is_name(match["name"]):
            default = f"default {one_line(match['what'])}"
            text = f"{match['name']} does not work with the {default}: {sentence}"
            yield Finding(RULE, CONFLICTS_WITH, ("component", match["name"]), ("component", default), text, 0.65, quote)
        elif (
            any(word in lowered for word in _CONFLICT_WORDS)
            and " compatible" not in sentence
            and (match := _CONFLICT.search(sentence))
            and _is_name(match["name"])
        ):
            pair = ("component", match["name"]), ("component", one_line(match["what"]))
            yield Finding(RULE, CONFLICTS_WITH, *pair, sentence, 0.65, quote)
        elif " requires " in lowered and (match := _REQUIRES.search(sentence)) and _is_name(match["name"]):
            pair = ("component", match["name"]), ("component", one_line(match["what"]))
            yield Finding(RULE, REQUIRES, *pair, sentence, 0.6, quote)


def _may_set(lowered: str) -> bool:
    return " to " in lowered and any(word in lowered for word in _SET_WORDS)


def _value(
    turn: Turn, quote: Sequence[tuple[Step, str]], name: str, value: str, *, is_problem: bool
) -> Iterator[Finding]:
    name, value = name.strip("` "), value.strip('`" ')
    if not _is_name(name):
        return
    sentence = quote[0][1]
    yield Finding(RULE, HAS_VALUE, ("setting", name), ("value", value), f"{name} = {value}: {sentence}", 0.7, quote)
    if turn.request is not None and is_problem:
        problem = ("problem", words.gist(turn.request.summary))
        text = f"“{problem[1]}” took {name} = {value}"
        yield Finding(RULE, REQUIRES, problem, ("setting", f"{name} = {value}"), text, 0.65, quote)


def _is_name(name: str) -> bool:
    return _NO_NAMES.match(name.strip("` ")) is None and len(name.split()) <= 4
