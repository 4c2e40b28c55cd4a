"""Questions about what is known: decisions, what a topic is about, everything on an entity, what fixed an error.

What ended each fact, and what took its place, is worked out over all facts at once whenever it is asked for. So
sessions that are read late, or in any order, give the same answers, and what is forgotten leaves no trace.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import eq
from typing import Any

from recollect.digest import word_set
from recollect.knowledge.records import (
    CAUSED_BY,
    COMMIT,
    CONFLICTS_WITH,
    DECIDED,
    FAILS_WITH,
    FIXED_BY,
    HAS_VALUE,
    LEAST_CONFIDENCE,
    PREFERS,
    REQUIRES,
    RULE_FILE,
    SURE,
    Evidence,
    Fact,
    Fix,
    FixStep,
    judged,
)
from recollect.knowledge.signature import differs_by_name, is_literal, place_of, signatures_in
from recollect.model.clock import rfc3339
from recollect.model.text import CJK, CJK_RUN, plural, spaced
from recollect.sessions import changed_since
from recollect.store import AMENDMENT, Note, SessionFilter, Store, StoredFact

REMEMBERED = "remember"
RECORDED = "agent"  # a note that an agent made by itself
_RECORDED_SURE = 0.7
_LEAST_OPTIONS = 2
_WRITTEN = (COMMIT, RULE_FILE)  # rules that find no words of a talk
_LEAST_SHARED, _LEAST_ENDED = 3, 1  # words of an amendment and of the session, and of each decision, that it is about
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
_WHY = re.compile(r"(?:(?<=instead)[,;:.]| (?:because|since|so that)\b| [—–] ).*")
_LANGUAGE_OR_NUMBER = re.compile(
    r"\d[\d.]*|english|german|french|spanish|italian|portuguese|dutch|polish|czech|turkish|russian|ukrainian|arabic|hebrew|hindi"
    r"|chinese|mandarin|japanese|korean|deutsch|englisch|französisch|spanisch|français|anglais|allemand|español|inglés"
    r"|(?:中|英|日|日 本|法|德|韩|俄)(?: [文语語])?"
)
_SAME_VERB = re.compile(r"\b(?:reply|respond)\b")
_WISH_WORD = re.compile(rf"[{CJK}]|[^\W_](?:[\w.+#'-]*\w)?")
_MOST_CHANGED, _LEAST_KEPT = 3, 2  # words of a wish
_SHORT = 2  # a verb and a value, which say little: only if there is one such wish, another one replaces it
_YES_OR_NO = re.compile(r"(?:yes|no|ok(?:ay)?|skip|continue|proceed|cancel|all|none|both)\b")
_WORD = re.compile(r"[^\W_][\w'’-]*")
_COMMON = word_set(
    "a an the and or of to in on for with from by at as is are was were be been do does did we i you it our your my "
    "this that these those what why how when where which who whose can could should would will shall may might not no "
    "have has had there here about into out over issue problem error bug fix fixed fixing get got make made use used "
    "using last time session changes change thing things again before after"
)
# What only holds a Chinese or Japanese question together, and the particles between two of its words.
_CJK_COMMON = re.compile(
    r"(?:为什么|為什麼|为何)(?:不[用要选選]|没用)?|怎么(?:样|办)?|怎麼|怎样|如何|什么|什麼|哪(?:一?[种个些里]|裡)|是否|要不要|还是|還是|我们|我們|关于|[的了吗呢呀吧啊]"
    r"|なぜ|どう(?:して|やって)?|どの|どれ|何故|について|(?:する|した|している)?(?:方法|理由)|ください|です(?:か)?|ます(?:か)?"
    r"|(?<![ぁ-ゖ])[のをはがにでとへも](?![ぁ-ゖ])|왜|어떻게|무엇"
)
_ENDINGS = ("ations", "ation", "ings", "ing", "ies", "ers", "ed", "er", "es", "s", "e")
_STEM_CHARS = 4
_APART, _LEAST_JOINED = re.compile(r"[ _-]"), 6


def topic_words(text: str) -> list[str]:
    """The words that say what a question is about, CJK as it is indexed; all of its words if every one is common."""
    if not text.isascii():
        text = _spaced(_CJK_COMMON.sub(" ", text)) or _spaced(text)
    words = [word.strip("'’-").lower() for word in _WORD.findall(text)]
    return [word for word in dict.fromkeys(words) if word and word not in _COMMON] or list(dict.fromkeys(words))


def _spaced(text: str) -> str:
    """CJK as it is indexed, without letters that stand by themselves unless there is nothing else."""
    words = spaced(text).split()
    longer = [word for word in words if len(word) > 1 or not re.fullmatch(CJK_RUN, word)]
    return " ".join(longer or words)


def fulltext_query(words: Iterable[str]) -> str:
    """A full-text query for facts that have any of these words."""
    return " OR ".join(f'"{word}"' for word in words)


def relevance(words: list[str], text: str) -> float:
    """The share of the words that a text has, in whatever form, or apart (`roll back` for `rollback`)."""
    asked, lowered = [stem(word) for word in words], (text if text.isascii() else spaced(text)).lower()
    # Only a word that begins with a stem can have it, and most texts have few of them.
    begun = tuple(word for word in asked if word in lowered)
    stems = {stem(word) for word in _WORD.findall(lowered) if word.startswith(begun)} if begun else set()
    joined = _APART.sub("", lowered)
    present = [
        word in stems or (len(word) >= _LEAST_JOINED and word not in lowered and word in joined) for word in asked
    ]
    return sum(present) / len(words) if words else 0.0


def stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= _STEM_CHARS:
            return word.removesuffix(ending)
    return word


def has_word(text: str, word: str) -> bool:
    return word in text and re.search(rf"(?<!\w){re.escape(word)}(?!\w)", text) is not None


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
        recorded_at=rfc3339(stored.recorded_ms) or "",
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
        recorded_at=rfc3339(note.recorded_ms) or "",
        repo=note.repo,
        by="agent" if is_recorded else "user",
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
        if fact.predicate == PREFERS and fact.by == "user" and fact.confidence >= LEAST_CONFIDENCE:
            wish = _FORBIDS.sub("never", _WHY.sub("", fact.object.lower().replace("’", "'")))
            words = _WISH_WORD.findall(_SAME_VERB.sub("answer", _FILLER.sub(" ", _TURNED_DOWN.sub("", wish))))
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
    for place, fact in enumerate(ordered):
        if end := ends.get(fact.fact_uid):
            fact = replace(fact, invalid_at=end.valid_at, superseded_by=end.fact_uid)
        ordered[place] = replace(fact, until_then=until) if (until := replaced.get(fact.fact_uid)) else fact
    return ordered


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
        # A question in other words is the same matter if it offers the same and is about the same thing.
        options = frozenset(map(_name, (fact.object, *fact.alternatives)))
        offers = fact.method == "answer" and len(options) >= _LEAST_OPTIONS and not any(map(_YES_OR_NO.match, options))
        about = topic_words(fact.subject) if offers else ()
        return [(fact.predicate, repo, fact.subject.casefold()), *(("options", repo, options, stem(w)) for w in about)]
    return []


def _says_otherwise(words: list[str], later: list[str], wish: str) -> bool:
    """Check if a later wish repeats one with another value in one place, and takes its place.

    It does if it says so ("instead", "not VALUE"), if both values are languages or numbers, or if only one of them
    forbids.
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
    are_alike = all(_LANGUAGE_OR_NUMBER.fullmatch(" ".join(value)) for value in (was, is_now))
    return bool(was and is_now) and (are_alike or _CHANGES.search(wish.lower()) is not None)


def _shared(words: Sequence[str], others: Sequence[str]) -> int:
    """Count the words that both begin with."""
    return sum(takewhile(bool, map(eq, words, others)))


def _name(text: str) -> str:
    return text.casefold().removeprefix("the ").strip()


def as_of(facts: Sequence[Fact], moment: str | None) -> list[Fact]:
    """The facts of a timeline that held at a moment (RFC 3339); all of them if it is None.

    One of unknown time holds since it was learned: before that, nobody can have known it.
    """
    if moment is None:
        return list(facts)
    known = (fact for fact in facts if (fact.valid_at or fact.recorded_at) <= moment)
    return [fact for fact in known if fact.invalid_at is None or fact.invalid_at > moment]


DECISIONS = (DECIDED, PREFERS, HAS_VALUE)
_REASONS = (DECIDED, PREFERS, HAS_VALUE, CAUSED_BY, FIXED_BY, REQUIRES, CONFLICTS_WITH)
_ASIDE = 0.6  # less than any decision
_END_OF_TIME = "9999"
_RELEVANT, _LEAST_RELEVANT = 0.75, 0.5  # of the words of a topic: all of three, three of four; and two of four
_LEAST_WORDS = 2
_OVER_OTHERS = re.compile(r"\b(?:and not|instead of|rather than|over) [\w.+-]+\W*$", re.IGNORECASE)


def notes_as_facts(store: Store, repos: Sequence[str] | None = None) -> list[Fact]:
    """What users had remembered, for all repositories or for these and for none in particular."""
    notes = [fact_of_note(note, verdict) for note, verdict in store.facts.notes() if verdict != "rejected"]
    return notes if repos is None else [note for note in notes if note.repo is None or note.repo in repos]


def find_decisions(
    store: Store,
    sessions: SessionFilter,
    repos: Sequence[str] | None,
    moment_ms: int | None,
    *,
    with_commits: bool,
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
        if not with_commits:  # those that people made, and that are sure enough
            facts = [fact for fact in facts if fact.method != COMMIT and fact.confidence >= LEAST_CONFIDENCE]
        oldest = rfc3339(oldest_ms) or ""
        facts += [note for note in notes_as_facts(store, repos) if (note.valid_at or "") >= oldest]
        held = as_of(with_ends(facts), rfc3339(moment_ms))[::-1]
        decided = [fact for fact in held if since <= (fact.valid_at or fact.recorded_at) < before]
        if depth is None or oldest_ms is None or (limit and len(decided) >= limit):
            return decided[:limit]
        depth *= 4


def find_reasons(store: Store, topic: str, sessions: SessionFilter, repos: Sequence[str] | None) -> list[Fact]:
    """Facts that match a topic well, the best answer first; if none does, the best of those that match half of it."""
    words = topic_words(topic)
    if not words:
        return []
    stored = store.facts.select(_REASONS, sessions, words=fulltext_query(words))
    amendments = store.facts.select((DECIDED,), sessions, kind=AMENDMENT)  # in whatever words
    known = {fact.fact_uid: fact_of(fact) for fact in (*stored, *amendments)}
    facts = {fact.fact_uid: fact for fact in with_ends([*known.values(), *notes_as_facts(store, repos)])}
    scored: dict[str, tuple[float, Fact]] = {}
    for fact in facts.values():
        score, current = relevance(words, f"{fact.subject} {fact.text} {fact.reason or ''}"), _current(fact, facts)
        known_score, _ = scored.get(current.fact_uid, (0.0, current))
        scored[current.fact_uid] = max(known_score, score), current
    least = min(_RELEVANT, max(_LEAST_RELEVANT, _LEAST_WORDS / len(words)))
    best = [(score, fact) for score, fact in scored.values() if score >= least]
    chosen = _OVER_OTHERS.sub("", topic).strip()
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
    criteria = SessionFilter(chosen=(("repo", tuple(repos)),))
    amendments = store.facts.select((DECIDED,), criteria, kind=AMENDMENT) if repos else []
    own = [fact_of(fact) for fact in store.facts.select(DECISIONS, SessionFilter(uids=frozenset(sessions)))]
    if not any(amended_by(fact_of(amendment), own) for amendment in amendments):
        return {}  # as mostly: working out the time of a whole repository takes a while
    asked = set(map(stem, topic_words(query)))
    facts = {fact.fact_uid: fact for fact in with_ends(map(fact_of, store.facts.select(DECISIONS, criteria)))}
    holding = {fact.session_uid for fact in facts.values() if fact.superseded_by is None and fact.method != COMMIT}
    amended = {}
    for fact in facts.values():
        newer = facts.get(fact.superseded_by or "")
        uid = fact.session_uid
        if uid is None or uid not in sessions or newer is None or newer.subject_kind != AMENDMENT:
            continue
        said = set(map(stem, topic_words(f"{fact.text} {newer.text}")))
        # Where all that a session decided was amended, whatever finds it is about that.
        if uid not in holding or len(asked & said) >= min(_LEAST_WORDS, len(asked)):
            amended[uid] = _current(newer, facts)
    return amended


def _weight(fact: Fact) -> float:
    """How well a fact explains: one with a reason best, a commit or the fix of a failed run least."""
    weight = fact.confidence + (0.2 if fact.reason else 0.0) + (0.1 if fact.predicate in (CAUSED_BY, PREFERS) else 0.0)
    is_of_run = fact.predicate == FIXED_BY and fact.subject_kind == "error"
    return weight - (_ASIDE if is_of_run or fact.method == COMMIT else 0.0)


def fixed_by(store: Store, path: str, event_uid: str) -> str | None:
    """What an edit of this file fixed: why, if the agent said so, or else the error; None if it is in no fix."""
    fixes = store.facts.select((FIXED_BY,), naming=path.rpartition("/")[2])
    citing = (fact for fact in fixes if any(event["event_uid"] == event_uid for event in fact.evidence))
    return next((fact.details["why"] or fact.details["headline"] for fact in citing), None)


def find_facts(store: Store, entity: str) -> list[Fact]:
    """Everything that has this file, command, package, error or setting as its subject or object, oldest first."""
    notes = [note for note in notes_as_facts(store) if note.subject.casefold() == entity.casefold()]
    return with_ends([*map(fact_of, store.facts.select(naming=entity)), *notes])


_LEAST_FIX = 0.5
_LEAST_ALIKE = 0.6
_LEAST_DESCRIBED = 0.75  # of the words
_LONG_WORD = re.compile(r"\w{3,}")
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

    def rank(fix: Fix) -> tuple[bool, int, float, str]:
        """By the repository, then by how much is the same: the whole line, or the file it names."""
        place = place_of(fix.headline)
        nearness = 2 if fix.headline in error_text else int(place is not None and place[0] in error_text)
        return repo is not None and fix.repo != repo, -nearness, -fix.confidence, fix.fact_uid

    return _merged(sorted(fixes, key=rank))


def fixes_of(store: Store, signature: str, *, is_same_error: bool = True) -> list[Fix]:
    """Every fix of an error with this signature that is likely enough."""
    fixed = store.facts.select((FIXED_BY,), subject=("error", signature))
    if not fixed:
        return []
    met = store.facts.select((FAILS_WITH,), object=("error", signature))
    fixes = (_fix(fact, fixed, met, is_same_error=is_same_error) for fact in fixed)
    return [fix for fix in fixes if fix.confidence >= _LEAST_FIX]


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
    merged = []
    for same in alike.values():
        best = same[0]
        cited = {
            event.event_uid: event for event in (*best.evidence, *(fix.evidence[0] for fix in same if fix.evidence))
        }
        sessions = dict.fromkeys(session for fix in same for session in (fix.session_uid, *fix.sessions))
        count = len({fix.fact_uid for fix in same})
        shown = tuple(cited.values())[:_MOST_EVIDENCE]
        merged.append(replace(best, sessions=tuple(sessions), fixed_count=count, evidence=shown))
    return merged


def fix_lines(fix: Fix) -> list[str]:
    """A fix for an agent: the error, what was changed, why, and what did not help, each once."""
    shown = fix.steps[:_MOST_SHOWN]
    done = (f"edit {step.name}: {step.gist}" if step.kind == "edit" else f"run `{step.name}`" for step in shown)
    lines = [f"error: {fix.headline}", *(f"fix: {line.removesuffix(': ')}" for line in done)]
    left = fix.step_count - len(shown)
    lines += [f"and {plural(left, 'more change')}"] if left > 0 else []
    lines += [f"why: {fix.why}"] if fix.why else []
    lines += [f"the user asked for it: {fix.quote}"] if fix.quote else []
    return lines + [f"did not help: {tried}" for tried in fix.tried[:_MOST_SHOWN]]


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
    # Later sessions of the same repository that met the error again.
    elsewhere = [one for one in met if one.session_uid != fact.session_uid and one.repo == fact.repo]
    returns = len({one.session_uid for one in elsewhere if fixed_ms is not None and (one.since_ms or 0) > fixed_ms})
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
        steps=tuple(FixStep(**step) for step in details["steps"]),
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
    words = set(_LONG_WORD.findall(signature.lower()))
    if len(words) < _LEAST_WORDS:
        return [], []
    query = fulltext_query(sorted(words, key=lambda word: (-len(word), word))[:_MOST_WORDS])
    known = {fact.subject for fact in store.facts.select((FIXED_BY,), words=query) if fact.subject_kind == "error"}
    parts = sorted(other for other in known if _is_part(signature, other) or _is_part(other, signature))
    spoken = ((set(_LONG_WORD.findall(other.lower())), other) for other in known)
    weighed = ((len(words & others) / len(words | others), other) for others, other in spoken)
    alike = [one for one in sorted(weighed, key=lambda one: (-one[0], one[1])) if one[0] >= _LEAST_ALIKE]
    return parts if len(parts) <= _MOST_SHARING else [], [other for _, other in alike]


def _is_part(part: str, whole: str) -> bool:
    """Whether a part of an error's line says enough to name it."""
    return has_word(whole.lower(), part.lower()) and len(set(_LONG_WORD.findall(part.lower()))) > _LEAST_WORDS


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
