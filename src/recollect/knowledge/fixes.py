"""How an error was fixed before: facts of all sessions, joined when it is asked for."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from recollect.clock import rfc3339
from recollect.knowledge.asking import fulltext_query, has_word, relevance, topic_words
from recollect.knowledge.records import FAILS_WITH, FIXED_BY, SURE, Evidence, Fix, FixStep, judged
from recollect.knowledge.signature import differs_by_name, is_literal, place_of, signatures_in
from recollect.sessions import changed_since
from recollect.store import Store, StoredFact
from recollect.text import plural

LEAST_CONFIDENCE = 0.5
_LEAST_ALIKE = 0.6
_LEAST_DESCRIBED = 0.75  # of the words
_WORD = re.compile(r"\w{3,}")
_LEAST_WORDS = 2
_MOST_WORDS = 12
_MOST_SHARING = 3  # errors in whose output a line was, for it to name them
_LESS_SURE_BY_LINE = 0.1
_MOST_EVIDENCE = 8
_MOST_SHOWN = 4  # changes, to an agent


def find_fixes(store: Store, error_text: str, repo: str | None = None) -> list[Fix]:
    """What fixed this error, the surest first; what fixed errors that read alike if nobody met this one."""
    signatures = signatures_in(error_text)
    if not any(signatures):
        return []
    fixes = fixes_of(store, signatures[0]) or fixes_showing(store, signatures)
    if not fixes and not is_literal(signatures[0]):
        parts, alike = _alike(store, signatures[0])
        # Where only a name tells one error from the next, none is like another.
        others = parts or ([] if differs_by_name(signatures[0]) else alike or _described(store, error_text))
        fixes = [fix for other in others for fix in fixes_of(store, other, is_same_error=bool(parts))]
    fixes.sort(
        key=lambda fix: (
            fix.repo != repo if repo else False,
            -_nearness(fix, error_text),
            -fix.confidence,
            fix.fact_uid,
        )
    )
    return _merged(fixes)


def _nearness(fix: Fix, error_text: str) -> int:
    """How much of what differs from one time to the next is the same: the whole line, or the file it names."""
    place = place_of(fix.headline)
    return 2 if fix.headline in error_text else int(place is not None and place[0] in error_text)


def fixes_of(store: Store, signature: str, *, is_same_error: bool = True) -> list[Fix]:
    """Every fix of an error with this signature that is likely enough."""
    fixed = store.facts.select((FIXED_BY,), subject=("error", signature))
    if not fixed:
        return []
    met = store.facts.select((FAILS_WITH,), object=("error", signature))
    fixes = (_fix(fact, fixed, met, is_same_error=is_same_error) for fact in fixed)
    return [fix for fix in fixes if fix.confidence >= LEAST_CONFIDENCE]


def fixes_showing(store: Store, lines: Sequence[str]) -> list[Fix]:
    """Fixes of errors that had one of these lines in their output, if few enough had."""
    errors = store.facts.errors_showing(lines)
    if len(errors) > _MOST_SHARING:
        return []
    fixes = (fix for error in errors for fix in fixes_of(store, error))
    return [replace(fix, confidence=round(max(0.0, fix.confidence - _LESS_SURE_BY_LINE), 2)) for fix in fixes]


def _merged(fixes: Sequence[Fix]) -> list[Fix]:
    """Each set of changes once, where it comes first, with the evidence of every time it helped."""
    alike: dict[Any, list[Fix]] = {}
    for fix in fixes:
        changes = frozenset((step.kind, step.name.rpartition("/")[2], step.gist) for step in fix.steps)
        alike.setdefault((fix.is_same_error, changes), []).append(fix)
    return [_together(same) for same in alike.values()]


def _together(same: Sequence[Fix]) -> Fix:
    best = same[0]
    cited = {
        event.event_uid: event for fix in (best, *same) for event in (fix.evidence if fix is best else fix.evidence[:1])
    }
    sessions = dict.fromkeys(session for fix in (best, *same) for session in (fix.session_uid, *fix.sessions))
    return replace(
        best,
        sessions=tuple(sessions),
        fixed_count=len({fix.fact_uid for fix in same}),
        evidence=tuple(cited.values())[:_MOST_EVIDENCE],
    )


def fix_lines(fix: Fix) -> list[str]:
    """A fix for an agent: the error, what was changed, why, and what did not help, each once."""
    lines = [f"error: {fix.headline}", *(f"fix: {_step_line(step)}" for step in fix.steps[:_MOST_SHOWN])]
    left = fix.step_count - len(fix.steps[:_MOST_SHOWN])
    lines += [f"and {plural(left, 'more change')}"] if left > 0 else []
    lines += [f"why: {fix.why}"] if fix.why else []
    lines += [f"the user asked for it: {fix.quote}"] if fix.quote else []
    return lines + [f"did not help: {tried}" for tried in fix.tried[:_MOST_SHOWN]]


def _step_line(step: FixStep) -> str:
    if step.kind == "edit":
        return f"edit {step.name}" + (f": {step.gist}" if step.gist else "")
    return f"run `{step.name}`"


def with_changed_files(fix: Fix, folder: str | None, seconds: float) -> Fix:
    """The fix with those of its files that changed since, if its session's folder is a checkout on this machine."""
    files = list(dict.fromkeys(step.name for step in fix.steps if step.kind == "edit"))
    if folder is None or fix.fixed_at is None or not files or seconds <= 0:
        return fix
    return replace(fix, changed_files=changed_since(folder, files, fix.fixed_at, seconds=seconds))


def _fix(fact: StoredFact, fixed: Sequence[StoredFact], met: Sequence[StoredFact], *, is_same_error: bool) -> Fix:
    details = fact.details
    fixed_ms = details["fixed_ms"] or fact.since_ms
    others = [other for other in (*fixed, *met) if other.session_uid != fact.session_uid]
    sessions = tuple(dict.fromkeys([fact.session_uid, *(other.session_uid for other in others)]))
    returns = _returns(fact, fixed_ms, met)
    steps = tuple(FixStep(**step) for step in details["steps"])
    cited = [
        (source, event)
        for source, most in ((fact, None), *((other, 1) for other in others))
        for event in source.evidence[:most]
    ]
    return Fix(
        fact_uid=fact.fact_uid,
        error=fact.subject,
        headline=details["headline"],
        text=fact.text,
        steps=steps,
        step_count=details["step_count"],
        why=details["why"],
        chosen_by=details["chosen_by"],
        quote=details["quote"],
        tried=tuple(details["tried"]),
        confidence=adjusted(fact, fixed, returns, is_same_error=is_same_error),
        fixed_at=rfc3339(fixed_ms),
        session_uid=fact.session_uid,
        agent=fact.agent,
        repo=fact.repo,
        sessions=sessions,
        fixed_count=1,
        returns=returns,
        evidence=tuple(Evidence(**event, session_uid=source.session_uid) for source, event in cited[:_MOST_EVIDENCE]),
        is_same_error=is_same_error,
    )


def _returns(fact: StoredFact, fixed_ms: int | None, met: Sequence[StoredFact]) -> int:
    """In how many later sessions of the same repository the error was met again."""
    if fixed_ms is None:
        return 0
    later = {
        other.session_uid
        for other in met
        if other.session_uid != fact.session_uid and other.repo == fact.repo and (other.since_ms or 0) > fixed_ms
    }
    return len(later)


def adjusted(fact: StoredFact, fixed: Sequence[StoredFact], returns: int, *, is_same_error: bool) -> float:
    """How sure a fix is, with all that is known of the error: the same fix elsewhere, and whether it came back."""
    same = {
        other.session_uid
        for other in fixed
        if other.session_uid != fact.session_uid
        and other.object_kind == fact.object_kind
        and other.object == fact.object
    }
    confidence = fact.confidence + 0.05 * min(2, len(same)) - 0.05 * min(2, returns) - (0.0 if is_same_error else 0.2)
    return judged(round(max(0.0, min(SURE, confidence)), 2), fact.verdict)


def _alike(store: Store, signature: str) -> tuple[list[str], list[str]]:
    """Signatures of fixed errors of which one is a part, or that are a part of it; and those with most of its words."""
    words = set(_WORD.findall(signature.lower()))
    if len(words) < _LEAST_WORDS:
        return [], []
    query = fulltext_query(sorted(words, key=lambda word: (-len(word), word))[:_MOST_WORDS])
    known = {fact.subject for fact in store.facts.select((FIXED_BY,), words=query) if fact.subject_kind == "error"}
    parts = sorted(other for other in known if _is_part(signature, other) or _is_part(other, signature))
    weighed = ((_likeness(words, set(_WORD.findall(other.lower()))), other) for other in known)
    alike = [one for one in sorted(weighed, key=lambda one: (-one[0], one[1])) if one[0] >= _LEAST_ALIKE]
    return parts if len(parts) <= _MOST_SHARING else [], [other for _, other in alike]


def _is_part(part: str, whole: str) -> bool:
    """Whether a part of an error's line says enough to name it."""
    return has_word(whole.lower(), part.lower()) and len(set(_WORD.findall(part.lower()))) > _LEAST_WORDS


def _described(store: Store, description: str) -> list[str]:
    """Subjects of fixes that a description in a few words is about: by what the errors say, or else by all of a fix."""
    words = topic_words(description)
    if not words or len(words) > _MOST_WORDS:
        return []
    facts = store.facts.select((FIXED_BY,), words=fulltext_query(words))
    for texts in ([fact.subject for fact in facts], [f"{fact.subject} {fact.text} {fact.details}" for fact in facts]):
        scored = [(relevance(words, text), fact.subject) for text, fact in zip(texts, facts, strict=True)]
        best = sorted((one for one in scored if one[0] >= _LEAST_DESCRIBED), key=lambda one: (-one[0], one[1]))
        if best:
            return list(dict.fromkeys(subject for _, subject in best))
    return []


def _likeness(words: set[str], others: set[str]) -> float:
    return len(words & others) / max(1, len(words | others))
