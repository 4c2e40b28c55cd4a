"""How sound the memory is, and what it would have saved: the past replayed against what was known on each day.

Nothing counts against a fix, an answer or a failure that came later, or in the same session. What was saved is the sum
over errors with a known fix that were solved again; an error that nobody solved again has no known cost.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from time import monotonic

from recollect.knowledge.asking import fact_of, with_ends
from recollect.knowledge.demands import is_typed
from recollect.knowledge.records import (
    ANSWER,
    DECIDED,
    FAILS_WITH,
    FIXED_BY,
    GONE,
    PASSED,
    PREFERS,
    TOUCHES,
    Audit,
    Evidence,
    Fact,
    Rehearsal,
    Repeat,
    judged,
)
from recollect.model.clock import rfc3339
from recollect.model.kinds import TOOL_RESULT
from recollect.model.text import evidence
from recollect.sessions import changed_since
from recollect.store import Choice, EventFilter, SessionFilter, Store, StoredFact, Term, Wanted

_LEAST_SURE = 0.5
_WORST = 10
_GIT_SECONDS, _INDEX_SECONDS = 0.7, 0.7
_SEVERAL = 3  # one may be of the failure itself, behind a pipe
_LEAST_USABLE = 0.6
_LEAST_FAILURES = 2  # earlier sessions in which a command failed like this
_FEW_STEPS = 4
_SAID_BY_TEST = re.compile(r"(?:\S*/)?(?P<file>[\w.-]*test[\w.-]*):\d+: ")  # linters give the column, too
_TIMED_OUT = re.compile(r"time[ds]?[ -]?out|deadline exceeded", re.IGNORECASE)
_TEST = "test failed: "  # names a test, which means something in its own repository only


def audit(store: Store, redact: Callable[[str], str]) -> Audit:
    """Measure how much of what is known is of use; `redact` takes the secrets out of a text."""
    stored = store.facts.select(with_rejected=True)
    facts = with_ends(map(fact_of, stored))
    said = [fact for fact in facts if fact.predicate != TOUCHES]  # a request may be made twice
    same = Counter((fact.session_uid, fact.predicate, fact.subject, fact.object) for fact in said)
    copies = [fact for fact in facts if same[fact.session_uid, fact.predicate, fact.subject, fact.object] > 1]
    superseded = [fact for fact in facts if fact.superseded_by is not None]
    contradicted = [fact for fact in superseded if fact.valid_at == fact.invalid_at]
    unsupported = [fact for fact in facts if not fact.evidence or not all(event.quote for event in fact.evidence)]
    echoes = [fact for fact in facts if any(evidence(event.quote) != event.quote for event in fact.evidence)]
    unfinished, pasted, (common, looked_up) = _unfinished(store, facts), _pasted(store, facts), _common(store, stored)
    stale, checked = _stale(stored)
    secrets = [fact for fact in facts if redact(fact.text) != fact.text]
    unsure = [fact for fact in facts if fact.confidence < _LEAST_SURE]
    worst = dict.fromkeys(
        fact.fact_uid
        for fact in [*pasted, *common, *unfinished, *unsupported, *echoes, *secrets, *contradicted, *copies, *unsure]
    )
    by_uid = {fact.fact_uid: fact for fact in facts}
    return Audit(
        facts=len(facts),
        duplicates=sum(count - 1 for count in same.values()),
        superseded=len(superseded),
        contradicted=len(contradicted),
        unsupported=len(unsupported),
        unfinished=len(unfinished),
        common=len(common),
        looked_up=looked_up,
        pasted=len(pasted),
        echoes=len(echoes),
        secrets=len(secrets),
        rejected=sum(fact.verdict == "rejected" for fact in facts),
        unsure=len(unsure),
        stale=stale,
        checked=checked,
        by_method=dict(sorted(Counter(fact.method for fact in facts).items())),
        worst=tuple(by_uid[uid] for uid in list(worst)[:_WORST]),
    )


def _pasted(store: Store, facts: Sequence[Fact]) -> list[Fact]:
    """Wishes in messages that are long, or not all words of the user's own."""
    wishes = [fact for fact in facts if fact.predicate == PREFERS and fact.session_uid and fact.evidence]
    messages = store.events.by_uid([fact.evidence[0].event_uid for fact in wishes])
    said = ((fact, messages.get(fact.evidence[0].event_uid)) for fact in wishes)
    return [fact for fact, message in said if message is not None and not is_typed(message.summary)]


def _common(store: Store, stored: Sequence[StoredFact]) -> tuple[list[Fact], int]:
    """Fixes of errors whose line the index finds in several results that are no errors; how many were looked up."""
    end, common, count = monotonic() + _INDEX_SECONDS, list[Fact](), 0
    chosen = EventFilter(choices=(Choice("kind", (TOOL_RESULT,)),), is_error=False)
    for fact in reversed(stored):
        if fact.predicate == FIXED_BY and fact.subject_kind == "error" and monotonic() < end:
            line = Wanted(((Term(fact.details["headline"]),),))
            common += [fact_of(fact)] if len(store.words.matching(line, chosen)) >= _SEVERAL else []
            count += 1
    return common, count


def _unfinished(store: Store, facts: Sequence[Fact]) -> list[Fact]:
    """Fixes after which the next run failed, as their evidence says, or the event that they cite as passed."""
    cited = [
        (fact, event.event_uid)
        for fact in facts
        if fact.predicate == FIXED_BY
        for event in fact.evidence
        if event.quote.startswith(PASSED)
    ]
    events = store.events.by_uid([uid for _, uid in cited])
    after = [fact for fact in facts if any(event.quote.startswith(GONE) for event in fact.evidence)]
    return [*(fact for fact, uid in cited if uid in events and events[uid].is_error), *after]


def _stale(stored: Sequence[StoredFact]) -> tuple[int, int]:
    """How many fixes are of files that all changed since, and of how many git told so in time, the newest first."""
    end, stale, checked = monotonic() + _GIT_SECONDS, 0, 0
    for fact in reversed(stored):
        files = [step["name"] for step in fact.details.get("steps", ()) if step["kind"] == "edit"]
        moment = rfc3339(fact.details.get("fixed_ms"))
        if fact.predicate != FIXED_BY or not fact.cwd or not files or moment is None or monotonic() > end:
            continue
        changed = changed_since(fact.cwd, files, moment, seconds=max(0.1, end - monotonic()))
        checked += changed is not None
        stale += changed is not None and len(changed) == len(files)
    return stale, checked


def make_rehearsal(store: Store, sessions: SessionFilter) -> Rehearsal:
    """Everything that sessions met although an earlier one had dealt with it, in order."""
    everything = store.facts.select((FAILS_WITH, FIXED_BY, DECIDED))
    chosen = {fact.fact_uid for fact in store.facts.select((FAILS_WITH, DECIDED), sessions)}
    met = [fact for fact in everything if fact.predicate == FAILS_WITH and fact.fact_uid in chosen]
    answers = [fact for fact in everything if fact.rule == ANSWER]
    repeats = list(_errors(met, everything))
    for fact in (one for one in answers if one.fact_uid in chosen):
        earlier = (one for one in answers if one.subject.casefold() == fact.subject.casefold())
        if known := [one for one in earlier if _was_known(one, fact)]:
            repeats.append(_repeat("question", fact, known[-1], known[-1].text))
    solved = [repeat for repeat in repeats if repeat.kind == "error" and repeat.seconds is not None]
    repeats.sort(key=lambda repeat: (repeat.at or "", repeat.fact_uid))
    return Rehearsal(
        sessions=len({fact.session_uid for fact in met}),
        errors_met=len(met),
        repeats=tuple(repeats),
        seconds=sum(repeat.seconds or 0 for repeat in solved),
        tokens=sum(repeat.tokens or 0 for repeat in solved),
        usd=round(sum(repeat.usd or 0.0 for repeat in solved), 4),
    )


def _errors(met: Sequence[StoredFact], everything: Sequence[StoredFact]) -> Iterator[Repeat]:
    """Errors that an earlier session had fixed, and commands that had failed like this in several of them."""
    fixes: dict[str, list[StoredFact]] = defaultdict(list)
    failures: dict[tuple[str, str], list[StoredFact]] = defaultdict(list)
    for fact in everything:
        if fact.predicate == FIXED_BY and judged(fact.confidence, fact.verdict) >= _LEAST_USABLE:
            fixes[fact.subject].append(fact)
        elif fact.predicate == FAILS_WITH:
            failures[fact.subject, fact.object].append(fact)
    seen: set[tuple[str, str]] = set()
    for fact in met:
        if fact.since_ms is None or (_root(fact), fact.object) in seen:
            continue
        known = [one for one in fixes[fact.object] if _was_known(one, fact) and _is_usable(one, fact, fixes)]
        failed = [one for one in failures[fact.subject, fact.object] if _was_known(one, fact)]
        earlier = {_root(one) for one in failed if _is_same_work(one, fact)}
        if known:
            # Of the same repository, small enough to copy, sure, recent.
            best = max(
                known,
                key=lambda one: (
                    one.repo == fact.repo,
                    one.details["step_count"] <= _FEW_STEPS,
                    one.confidence,
                    one.since_ms or 0,
                ),
            )
            seen.add((_root(fact), fact.object))
            yield _repeat("error", fact, best, best.text)
        elif len(earlier) >= _LEAST_FAILURES and not fixes[fact.object] and not fact.object.startswith(_TEST):
            seen.add((_root(fact), fact.object))
            yield _repeat("command", fact, failed[-1], f"it had failed like this in {len(earlier)} earlier sessions")


def _is_usable(fix: StoredFact, fact: StoredFact, fixes: Mapping[str, Sequence[StoredFact]]) -> bool:
    """Whether an earlier fix tells what to do now: it is no edit, or says why, or is of a file that matters here.

    What a test itself says means something in that test only, and a test may fail in many ways.
    """
    details, headline = fix.details, fact.details["headline"]
    if not _is_same_work(fix, fact):
        return False
    if fact.object.startswith(_TEST) and not set(details["lines"]) & set(fact.details.get("lines", ())):
        return False
    tests = [found and found["file"] for found in map(_SAID_BY_TEST.match, (headline, details["headline"]))]
    if tests[0] != tests[1]:
        return False
    if fix.object_kind != "edit" or details.get("why"):
        return True
    own = [one.details for one in fixes[fact.object] if one.session_uid == fact.session_uid]
    if not own:  # nobody solved it again
        return fix.repo == fact.repo
    touched = {step["name"].rpartition("/")[2] for one in own for step in one["steps"]}
    return any(
        step["name"].rpartition("/")[2] in touched or step["name"].rpartition("/")[2] in headline
        for step in details["steps"]
    )


def _is_same_work(earlier: StoredFact, fact: StoredFact) -> bool:
    """Whether two errors are of the same command, if they say no more than that it took too long."""
    return _TIMED_OUT.search(fact.object) is None or earlier.details.get("command") == fact.details.get("command")


def _was_known(earlier: StoredFact, fact: StoredFact) -> bool:
    """Whether a session had learned something before another one met it, and it applies there."""
    if _root(earlier) == _root(fact) or fact.since_ms is None:
        return False
    learned_ms = earlier.details.get("fixed_ms") or earlier.since_ms
    is_here = earlier.repo == fact.repo or not fact.object.startswith(_TEST)
    return is_here and learned_ms is not None and learned_ms < fact.since_ms


def _root(fact: StoredFact) -> str:
    return fact.session_uid.partition("/")[0]


def _repeat(kind: str, fact: StoredFact, known: StoredFact, known_text: str) -> Repeat:
    active_ms = fact.details.get("active_ms")
    learned_ms = known.details.get("fixed_ms") or known.since_ms
    cited = [(fact, one) for one in fact.evidence[:1]] + [(known, one) for one in known.evidence[:2]]
    return Repeat(
        kind=kind,
        text=fact.text,
        at=rfc3339(fact.since_ms),
        session_uid=fact.session_uid,
        known=known_text,
        known_at=rfc3339(learned_ms),
        known_session_uid=known.session_uid,
        fact_uid=fact.fact_uid,
        seconds=None if active_ms is None else active_ms // 1000,
        tokens=fact.details.get("tokens"),
        usd=fact.details.get("usd"),
        evidence=tuple(Evidence(**one, session_uid=cited_by.session_uid) for cited_by, one in cited),
    )
