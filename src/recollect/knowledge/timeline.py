"""Facts over time: until when each holds, and what took its place.

It is worked out over all facts at once whenever it is asked for. So sessions that are read late, or in any order, give
the same answers, and what is forgotten leaves no trace in the others.
"""

import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import eq

from recollect.clock import rfc3339
from recollect.knowledge.predicates import DECIDED, HAS_VALUE, PREFERS, SURE, judged
from recollect.knowledge.records import Evidence, Fact
from recollect.knowledge.topics import stem, topic_words
from recollect.store import AMENDMENT, Note, StoredFact
from recollect.text import CJK

REMEMBERED = "remember"
RECORDED = "agent"  # a note that an agent made by itself
_RECORDED_SURE = 0.7
_LEAST_OPTIONS = 2
_WRITTEN = ("commit", "rule_file", "claim", "candidate")  # rules that find no words of a talk
_LEAST_SHARED, _LEAST_ENDED = 3, 1  # words of an amendment and of the session, and of each decision, that it is about
_INSTEAD = frozenset({"instead", "now"})
# A wish as it is compared with another: its words but those of any lasting wish, and without what it turns down.
_FORBIDS = re.compile(r"\b(?:do not|don't|dont|must not|no longer)\b|不要|不再|别")
_FILLER = re.compile(
    r"\b(?:always|please|ok|from (?:now|here|today) on|going forward|in (?:the )?future|as a rule|by default|you|we|i"
    r"|want|should|must|need|to|only|now|instead(?! of)|back|immer|bitte|ab (?:jetzt|sofort)|künftig|stattdessen"
    r"|toujours|désormais|plutôt|siempre|sempre)\b"
    r"|以后|今后|今後は?|以後|从现在(?:起|开始)|总是|一律|始终|统一|都|请|要|改|ください|代わりに"
)
_TURNED_DOWN = re.compile(
    r"[,;，]? *(?:\b(?:and not|not|instead of|rather than)\b|(?<=[，,])(?:不|never)用)(?P<what>.*)$"
)
_CHANGES = re.compile(
    r"\binstead\b(?! of)|\b(?:no longer|back to)\b|stattdessen|plutôt|改(?:用|为|成|回)|不再|代わりに"
)
_LANGUAGE = re.compile(
    r"english|german|french|spanish|italian|portuguese|dutch|polish|czech|turkish|russian|ukrainian|arabic|hebrew|hindi"
    r"|chinese|mandarin|japanese|korean|deutsch|englisch|französisch|spanisch|français|anglais|allemand|español|inglés"
    r"|(?:中|英|日|日 本|法|德|韩|俄)(?: [文语語])?"
)
_SAME_VERB = re.compile(r"\b(?:reply|respond)\b")
_WISH_WORD = re.compile(rf"[{CJK}]|[^\W_](?:[\w.+#'-]*\w)?")
_MOST_CHANGED, _LEAST_KEPT = 3, 2  # words of a wish
_SHORT = 2  # a verb and a value, which say little: only if there is one such wish, another one replaces it
_YES_OR_NO = re.compile(r"(?:yes|no|ok(?:ay)?|skip|continue|proceed|cancel|all|none|both)\b")


def fact_of(stored: StoredFact) -> Fact:
    details = stored.details
    return Fact(
        fact_uid=stored.fact_uid,
        predicate=stored.predicate,
        subject_kind=stored.subject_kind,
        subject=stored.subject,
        object_kind=stored.object_kind,
        object=stored.object,
        text=stored.text,
        confidence=judged(stored.confidence, stored.verdict),
        method=stored.rule,
        valid_at=rfc3339(stored.since_ms),
        invalid_at=None,
        recorded_at=rfc3339(stored.recorded_ms) or "",
        superseded_by=None,
        session_uid=stored.session_uid,
        agent=stored.agent,
        repo=stored.repo,
        title=stored.title,
        by=details.get("by") or details.get("chosen_by") or "agent",
        choice=details.get("choice"),
        alternatives=tuple(details.get("alternatives") or ()),
        reason=details.get("reason") or details.get("why"),
        verdict=stored.verdict,
        evidence=tuple(Evidence(**event, session_uid=stored.session_uid) for event in stored.evidence),
    )


def fact_of_note(note: Note, verdict: str | None) -> Fact:
    """What is to be remembered is a fact whose evidence is the note itself."""
    is_recorded = note.origin == RECORDED
    return Fact(
        fact_uid=note.note_uid,
        predicate=DECIDED,
        subject_kind="decision",
        subject=note.topic,
        object_kind="choice",
        object=note.text,
        text=note.text,
        confidence=judged(_RECORDED_SURE if is_recorded else SURE, verdict),
        method=note.origin,
        valid_at=rfc3339(note.since_ms),
        invalid_at=None,
        recorded_at=rfc3339(note.recorded_ms) or "",
        superseded_by=None,
        session_uid=None,
        agent=None,
        repo=note.repo,
        title=None,
        by="agent" if is_recorded else "user",
        choice=None,
        alternatives=(),
        reason=note.reason,
        verdict=verdict,
        evidence=(Evidence(note.note_uid, note.text),),
    )


def with_ends(facts: Iterable[Fact]) -> list[Fact]:
    """The facts with what ended each, the oldest first. Of one matter only the newest fact holds."""
    ordered = sorted(facts, key=lambda fact: (fact.valid_at or "", fact.fact_uid))
    ends: dict[str, Fact] = {}
    last: dict[Hashable, list[Fact]] = defaultdict(list)
    wishes: dict[str | None, list[tuple[list[str], Fact]]] = defaultdict(list)  # by repository
    for place, fact in enumerate(ordered):
        for amended in amended_by(fact, ordered[:place]) if fact.subject_kind == AMENDMENT else ():
            ends.setdefault(amended.fact_uid, fact)
        for matter in _matters(fact):
            for earlier in last[matter]:
                if earlier.object.casefold() != fact.object.casefold():
                    ends.setdefault(earlier.fact_uid, fact)
            last[matter] = [other for other in last[matter] if other.object == fact.object] + [fact]
        if fact.predicate == PREFERS and fact.by == "user":
            words = _wish_words(fact.object)
            outdated = [old for known, old in wishes[fact.repo] if _says_otherwise(known, words, fact.object)]
            for earlier in outdated if len(words) > _SHORT or len(outdated) == 1 else ():
                ends.setdefault(earlier.fact_uid, fact)
            wishes[fact.repo].append((words, fact))
        if fact.predicate == PREFERS and fact.choice:
            repo = fact.repo or ""
            for chosen in (chosen for name in fact.alternatives for chosen in last[repo, _name(name)]):
                ends.setdefault(chosen.fact_uid, fact)
            last[repo, _name(fact.choice)].append(fact)
    replaced = {ends[fact.fact_uid].fact_uid: fact.text for fact in ordered if fact.fact_uid in ends}
    return [_placed(fact, ends.get(fact.fact_uid), replaced.get(fact.fact_uid)) for fact in ordered]


def _placed(fact: Fact, end: Fact | None, until_then: str | None) -> Fact:
    if end is not None:
        fact = replace(fact, invalid_at=end.valid_at, superseded_by=end.fact_uid)
    return replace(fact, until_then=until_then) if until_then else fact


def amended_by(fact: Fact, earlier: Sequence[Fact]) -> list[Fact]:
    """What an amendment takes the place of: decisions of the one earlier session that has most of its words."""
    words = _stems(fact)
    sharing: dict[str, list[tuple[int, Fact]]] = defaultdict(list)
    for other in earlier:
        is_said = other.predicate in (DECIDED, PREFERS) and other.method not in _WRITTEN
        if is_said and other.repo == fact.repo and other.session_uid and other.session_uid != fact.session_uid:
            sharing[other.session_uid].append((len(words & _stems(other)), other))
    best = max(sharing.values(), key=lambda facts: max(shared for shared, _ in facts), default=[])
    if max((shared for shared, _ in best), default=0) < _LEAST_SHARED:
        return []
    return [other for shared, other in best if shared >= _LEAST_ENDED]


def _stems(fact: Fact) -> set[str]:
    return set(map(stem, topic_words(fact.text)))


def _matters(fact: Fact) -> list[Hashable]:
    """What a fact settles so that another one on the same matter takes its place; nothing for most facts."""
    repo = fact.repo or ""
    if fact.method == RECORDED:  # never in place of what a user said
        return [(RECORDED, repo, fact.subject.casefold())]
    if fact.predicate == HAS_VALUE or fact.method in ("answer", REMEMBERED) or fact.session_uid is None:
        return [(fact.predicate, repo, fact.subject.casefold()), *_same_options(fact, repo)]
    if fact.predicate == PREFERS and any(map(str.isdecimal, fact.text)):  # the same wish with another number
        words = frozenset(word for word in _stems(fact) if not word[0].isdecimal()) - _INSTEAD
        return [(PREFERS, repo, words)] if len(words) >= _LEAST_SHARED else []
    return []


def _wish_words(wish: str) -> list[str]:
    lowered = _FORBIDS.sub("never", wish.lower().replace("’", "'"))
    return _WISH_WORD.findall(_SAME_VERB.sub("answer", _FILLER.sub(" ", _TURNED_DOWN.sub("", lowered))))


def _says_otherwise(words: list[str], later: list[str], wish: str) -> bool:
    """Check if a later wish repeats one with another value in one place, and takes its place.

    It does if it says so ("instead", "not VALUE"), if both values are languages, or if only one of them forbids.
    """
    begin = _shared(words, later)
    end = _shared(words[begin:][::-1], later[begin:][::-1])
    was, is_now = words[begin : len(words) - end], later[begin : len(later) - end]
    if (
        begin + end < (1 if len(words) == len(later) == _SHORT else _LEAST_KEPT)
        or max(len(was), len(is_now)) > _MOST_CHANGED
        or was == is_now
    ):
        return False
    if [*was, *is_now] == ["never"]:
        return True
    turned_down = _TURNED_DOWN.search(wish.lower())
    if turned_down and was and all(word in turned_down["what"] for word in was):
        return True
    are_languages = all(_LANGUAGE.fullmatch(" ".join(value)) for value in (was, is_now))
    return bool(was and is_now) and (are_languages or _CHANGES.search(wish.lower()) is not None)


def _shared(words: Sequence[str], others: Sequence[str]) -> int:
    """Count the words that both begin with."""
    return sum(takewhile(bool, map(eq, words, others)))


def _same_options(fact: Fact, repo: str) -> list[Hashable]:
    """A question in other words is the same matter if it offers the same and is about the same thing."""
    options = frozenset(map(_name, (fact.object, *fact.alternatives)))
    if fact.method != "answer" or len(options) < _LEAST_OPTIONS or any(map(_YES_OR_NO.match, options)):
        return []
    return [("options", repo, options, stem(word)) for word in topic_words(fact.subject)]


def _name(text: str) -> str:
    return text.casefold().removeprefix("the ").strip()


def as_of(facts: Sequence[Fact], moment: str | None) -> list[Fact]:
    """The facts of a timeline that held at a moment (RFC 3339); all of them if it is None.

    One of unknown time holds since it was learned: before that, nobody can have known it.
    """
    if moment is None:
        return list(facts)
    return [
        fact
        for fact in facts
        if (fact.valid_at or fact.recorded_at) <= moment and (fact.invalid_at is None or fact.invalid_at > moment)
    ]
