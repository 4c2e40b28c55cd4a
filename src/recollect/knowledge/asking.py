"""Questions about what is known: decisions, what a topic is about, everything on an entity, and how sound it all is."""

import re
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import itemgetter
from time import monotonic

from recollect.clock import rfc3339
from recollect.kinds import TOOL_RESULT
from recollect.knowledge.decisions import CANDIDATE, CLAIM, COMMIT
from recollect.knowledge.demands import is_typed
from recollect.knowledge.predicates import (
    CAUSED_BY,
    CONFLICTS_WITH,
    DECIDED,
    FIXED_BY,
    GONE,
    HAS_VALUE,
    LEAST_CONFIDENCE,
    PASSED,
    PREFERS,
    REQUIRES,
    TOUCHES,
)
from recollect.knowledge.records import Audit, Fact
from recollect.knowledge.timeline import amended_by, as_of, fact_of, fact_of_note, with_ends
from recollect.knowledge.topics import fulltext_query, relevance, stem, topic_words
from recollect.sessions import changed_since
from recollect.store import AMENDMENT, Choice, EventFilter, HeaderFilter, Store, StoredFact, Term, Wanted
from recollect.text import evidence

DECISIONS = (DECIDED, PREFERS, HAS_VALUE)
_REASONS = (DECIDED, PREFERS, HAS_VALUE, CAUSED_BY, FIXED_BY, REQUIRES, CONFLICTS_WITH)
WEAK = (COMMIT, CANDIDATE, CLAIM)  # what drowns the decisions that people made, and the word of agents
_ASIDE = 0.6  # less than any decision
_END_OF_TIME = "9999"
_LEAST_SURE = 0.5
_RELEVANT, _LEAST_RELEVANT = 0.75, 0.5  # of the words of a topic: all of three, three of four; and two of four
_LEAST_WORDS = 2
_TURNED_DOWN = re.compile(r"\b(?:and not|instead of|rather than|over) [\w.+-]+\W*$", re.IGNORECASE)
_WORST = 10
_GIT_SECONDS, _INDEX_SECONDS = 0.7, 0.7
_SEVERAL = 3  # one may be of the failure itself, behind a pipe


def notes_as_facts(store: Store, repos: Sequence[str] | None = None) -> list[Fact]:
    """What users had remembered, for all repositories or for these and for none in particular."""
    notes = [fact_of_note(note, verdict) for note, verdict in store.verdicts.notes() if verdict != "rejected"]
    return notes if repos is None else [note for note in notes if note.repo is None or note.repo in repos]


def find_decisions(
    store: Store,
    sessions: HeaderFilter,
    repos: Sequence[str] | None,
    moment_ms: int | None,
    *,
    with_weak: bool,
    limit: int | None = None,
) -> list[Fact]:
    """What was decided and preferred, newest first: what holds now, or held at a moment, or all of it with its end.

    The times of `sessions` are those of the decisions. What took their place is known whenever it came.
    """
    since, before = rfc3339(sessions.since_ms) or "", rfc3339(sessions.before_ms) or _END_OF_TIME
    last_ms = min((ms for ms in (moment_ms, sessions.before_ms) if ms is not None), default=None)
    asked = sessions._replace(before_ms=last_ms)
    depth = limit
    while True:
        # What took the place of a decision is newer than it, so that older ones need not be read.
        oldest_ms = None if depth is None else store.facts.moment_of(depth, DECISIONS, asked)
        stored = store.facts.select(DECISIONS, sessions._replace(since_ms=oldest_ms, before_ms=None))
        facts = list(map(fact_of, stored))
        if not with_weak:  # those that people made, and that are sure enough
            facts = [fact for fact in facts if fact.method not in WEAK and fact.confidence >= LEAST_CONFIDENCE]
        oldest = rfc3339(oldest_ms) or ""
        facts += [note for note in notes_as_facts(store, repos) if (note.valid_at or "") >= oldest]
        held = as_of(with_ends(facts), rfc3339(moment_ms))[::-1]
        decided = [fact for fact in held if since <= (fact.valid_at or fact.recorded_at) < before]
        if depth is None or oldest_ms is None or (limit and len(decided) >= limit):
            return decided[:limit]
        depth *= 4


def find_reasons(store: Store, topic: str, sessions: HeaderFilter, repos: Sequence[str] | None) -> list[Fact]:
    """Facts that match a topic well, the best answer first; if none does, the best of those that match half of it."""
    words = topic_words(topic)
    if not words:
        return []
    stored = store.facts.select(_REASONS, sessions, words=fulltext_query(words))
    amendments = store.facts.select((DECIDED,), sessions, kind=AMENDMENT)  # in whatever words
    known = {fact.fact_uid: fact_of(fact) for fact in (*stored, *amendments) if fact.rule != CLAIM}
    facts = {fact.fact_uid: fact for fact in with_ends([*known.values(), *notes_as_facts(store, repos)])}
    scored: dict[str, tuple[float, Fact]] = {}
    for fact in facts.values():
        score, current = relevance(words, f"{fact.subject} {fact.text} {fact.reason or ''}"), _current(fact, facts)
        scored[current.fact_uid] = max(
            scored.get(current.fact_uid, (0.0, current)), (score, current), key=itemgetter(0)
        )
    least = min(_RELEVANT, max(_LEAST_RELEVANT, _LEAST_WORDS / len(words)))
    best = [(score, fact) for score, fact in scored.values() if score >= least]
    chosen = _TURNED_DOWN.sub("", topic).strip()
    if not best and chosen != topic:  # a decision need not name what was turned down
        return find_reasons(store, chosen, sessions, repos)
    best.sort(key=lambda one: (-one[0], one[1].invalid_at is not None, -_weight(one[1]), one[1].fact_uid))
    matching = sum(score >= _RELEVANT for score, _ in best)
    return [fact for _, fact in best[: matching or 1]]


def _current(fact: Fact, facts: Mapping[str, Fact]) -> Fact:
    """What holds now instead of a fact."""
    while newer := facts.get(fact.superseded_by or ""):
        fact = newer
    return fact


def find_amended(store: Store, query: str, sessions: Collection[str], repos: Collection[str]) -> dict[str, Fact]:
    """Those of these sessions whose decisions on what a query asks were amended later, each with the amendment.

    `repos` are the repositories of the sessions.
    """
    criteria = HeaderFilter(chosen=(("repo", tuple(repos)),))
    amendments = store.facts.select((DECIDED,), criteria, kind=AMENDMENT) if repos else []
    own = [fact_of(fact) for fact in store.facts.select(DECISIONS, HeaderFilter(uids=frozenset(sessions)))]
    if not any(amended_by(fact_of(amendment), own) for amendment in amendments):
        return {}  # as mostly: working out the time of a whole repository takes a while
    asked = set(map(stem, topic_words(query)))
    facts = {fact.fact_uid: fact for fact in with_ends(map(fact_of, store.facts.select(DECISIONS, criteria)))}
    holding = {fact.session_uid for fact in facts.values() if fact.superseded_by is None and fact.method not in WEAK}
    amended = {}
    for fact in facts.values():
        newer = facts.get(fact.superseded_by or "")
        if (
            fact.session_uid is None
            or fact.session_uid not in sessions
            or newer is None
            or newer.subject_kind != AMENDMENT
        ):
            continue
        said = set(map(stem, topic_words(f"{fact.text} {newer.text}")))
        # Where all that a session decided was amended, whatever finds it is about that.
        if fact.session_uid not in holding or len(asked & said) >= min(_LEAST_WORDS, len(asked)):
            amended[fact.session_uid] = _current(newer, facts)
    return amended


def _weight(fact: Fact) -> float:
    """How well a fact explains: one with a reason best, a commit or the fix of a failed run least."""
    weight = fact.confidence + (0.2 if fact.reason else 0.0) + (0.1 if fact.predicate in (CAUSED_BY, PREFERS) else 0.0)
    is_of_run = fact.predicate == FIXED_BY and fact.subject_kind == "error"
    return weight - (_ASIDE if is_of_run or fact.method in WEAK else 0.0)


def fixed_by(store: Store, path: str, event_uid: str) -> str | None:
    """What an edit of this file fixed: why, if the agent said so, or else the error; None if it is in no fix."""
    fixes = (fact for fact in store.facts.naming(path.rpartition("/")[2]) if fact.predicate == FIXED_BY)
    citing = (fact for fact in fixes if any(event["event_uid"] == event_uid for event in fact.evidence))
    return next((fact.details["why"] or fact.details["headline"] for fact in citing), None)


def find_facts(store: Store, entity: str) -> list[Fact]:
    """Everything that has this file, command, package, error or setting as its subject or object, oldest first."""
    notes = [note for note in notes_as_facts(store) if note.subject.casefold() == entity.casefold()]
    return with_ends([*map(fact_of, store.facts.naming(entity)), *notes])


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
    messages = store.event_headers.by_uid([fact.evidence[0].event_uid for fact in wishes])
    said = ((fact, messages.get(fact.evidence[0].event_uid)) for fact in wishes)
    return [fact for fact, message in said if message is not None and not is_typed(message.summary)]


def _common(store: Store, stored: Sequence[StoredFact]) -> tuple[list[Fact], int]:
    """Fixes of errors whose line the index finds in several results that are no errors; how many were looked up."""
    end, common, count = monotonic() + _INDEX_SECONDS, list[Fact](), 0
    chosen = EventFilter(choices=(Choice("kind", (TOOL_RESULT,)),), is_error=False)
    for fact in reversed(stored):
        if fact.predicate == FIXED_BY and fact.subject_kind == "error" and monotonic() < end:
            line = Wanted(((Term(fact.details["headline"]),),))
            common += [fact_of(fact)] if len(store.fulltext_search.matching(line, chosen)) >= _SEVERAL else []
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
    failed = store.event_headers.failed([uid for _, uid in cited])
    after = [fact for fact in facts if any(event.quote.startswith(GONE) for event in fact.evidence)]
    return [*(fact for fact, uid in cited if uid in failed), *after]


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
