"""Find sessions by what was said, done and printed in them. See docs/search.md."""

import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import NamedTuple

from recollect.model.clock import rfc3339
from recollect.model.text import CJK_RUN
from recollect.recall.filters import NO_FILTERS, Filters, Scope, as_options, scope_of, sessions_in_scope
from recollect.recall.hits import Amendment, Hits, Match, SearchAnswer, SessionHit, hit_of, within_budget
from recollect.recall.query import (
    FEW_WORDS,
    OF_SESSIONS,
    OF_SESSIONS_ONLY,
    Phrase,
    Query,
    Terms,
    Word,
    bare,
    meaningful,
    parse_query,
    sound,
    suggestion,
    terms_of,
    without_filters,
)
from recollect.recall.ranking import Candidate, Coverage, Ranking, Sessions
from recollect.recall.snippets import Span, is_exact
from recollect.store import EventFilter, OutOfTime, Scored, SessionHeader, Store, Wanted

_SESSIONS_AT_ONCE = 100
_LEAST_SENTENCE = 3  # words
_MOST_CORRECTED = 8  # words, and half of them; more that nothing has are no typing errors but another language
SECONDS = 2.0  # of the processor, after which the search of events gives up

Progress = Callable[[int, int], None]


class Options(NamedTuple):
    """How much to show, and what to leave out."""

    limit: int = 10
    offset: int = 0
    filters: Filters = NO_FILTERS
    matches: int = 3
    context: int = 2
    budget_tokens: int | None = None
    exclude: Collection[str] = ()  # ids of sessions to leave out
    mode: str = "words"  # or "substring", "regex"
    scan_seconds: float = 20.0


def search(
    store: Store,
    text: str,
    options: Options | None = None,
    progress: Progress = lambda done, total: None,
) -> SearchAnswer:
    """Answer a query; never fails for what is in it. An empty one shows recent sessions."""
    options, begun = options or Options(), time.perf_counter()
    run = _Search(store, options, progress)
    answer = run.literal(sound(text)) if options.mode != "words" and text.strip() else run.answer(text)
    answer = answer._replace(took_ms=round((time.perf_counter() - begun) * 1000, 3))
    return within_budget(answer, options.budget_tokens) if options.budget_tokens is not None else answer


def with_amendments(
    store: Store, text: str, options: Options, hits: Sequence[SessionHit], amended: Mapping[str, Amendment]
) -> list[SessionHit]:
    """Put each session that amended a hit before it, be it a hit or not, if the search's own filters let it through."""
    newer = {uid: amended[uid] for uid in (hit.session_uid for hit in hits) if uid in amended}
    if not newer:
        return list(hits)
    headers = _let_through(store, text, options, newer.values())
    by_uid, shown = {hit.session_uid: hit for hit in hits}, dict[str, SessionHit]()
    for hit in hits:
        amendment = newer.get(hit.session_uid)
        if amendment is None or amendment.session_uid not in headers:
            shown.setdefault(hit.session_uid, hit)
            continue
        uid = amendment.session_uid
        quote = Match(amendment.event_uid, 0, "decision", None, amendment.text, [], [], uid, 0.0)
        found = by_uid.get(uid) or hit_of(headers[uid], hit.score, [quote], "amends a hit")
        decided = f"now: {amendment.text} · until then: {amendment.until_then}"
        shown.setdefault(uid, found._replace(decided=decided))
        shown.setdefault(hit.session_uid, hit._replace(superseded_by=uid))
    return list(shown.values())


def _let_through(
    store: Store, text: str, options: Options, amendments: Iterable[Amendment]
) -> dict[str, SessionHeader]:
    """Return the sessions of those amendments that a search of these words and options may show."""
    now = datetime.now().astimezone()
    query = parse_query(text, now)
    query = query._replace(filters=(*query.filters, *as_options(options.filters)))
    criteria = sessions_in_scope(store, query, now, options.exclude)
    first, last = rfc3339(criteria.since_ms) or "", rfc3339(criteria.before_ms) or "~"
    uids = {amendment.session_uid for amendment in amendments if first <= (amendment.ts or "") < last}
    allowed = frozenset(uids if criteria.uids is None else uids & criteria.uids)
    keys = store.sessions.keys(criteria._replace(uids=allowed))
    return {header.session_uid: header for header in store.sessions.of(keys).values()}


class _Search:
    def __init__(self, store: Store, options: Options, progress: Progress) -> None:
        self._store = store
        self._index = store.words
        self._options = options
        self._now = datetime.now().astimezone()
        self._progress = progress
        self._sessions = Sessions(store)
        self._hits = Hits(store, self._sessions, options.matches, options.context)
        self._notes: list[str] = []
        self._is_partial = False

    def answer(self, text: str) -> SearchAnswer:
        query = parse_query(text, self._now)
        query = query._replace(filters=(*query.filters, *as_options(self._options.filters)))
        self._notes += query.notes
        scope = scope_of(self._store, query, self._now, self._options.exclude, self._notes)
        if not self._index.months() and not self._store.digests.count():
            who = "a sweep outside the group" if self._store.group else "`recollect sweep`"
            note = f"Nothing is indexed yet: {who} reads your agents' sessions"
            return SearchAnswer(query.text, 0.0, [], notes=[note], total=0)
        if query.is_empty or (not query.needs and _is_of_sessions(query)):
            return self._recent(query, scope)
        meant, candidates, coverage = self._candidates(query, scope)
        if query.has_of_events:
            self._note_evicted(scope, "filters of events")
        return self._answer(query.text, candidates, coverage, suggestion=meant if meant != query.text else None)

    def _recent(self, query: Query, scope: Scope) -> SearchAnswer:
        """The sessions that were active last, each with its last request."""
        hits = self._hits.recent(scope.timed, self._options.limit, self._options.offset)
        return SearchAnswer(
            query.text, 0.0, hits, notes=self._notes, total=self._store.sessions.recent_count(scope.timed)
        )

    def _answer(
        self,
        text: str,
        candidates: Sequence[Candidate],
        coverage: Coverage | None = None,
        *,
        spans: Mapping[int, Span] | None = None,
        suggestion: str | None = None,
    ) -> SearchAnswer:
        limit, offset = self._options.limit, self._options.offset
        hits = self._hits.of(candidates, limit + offset, coverage, spans)[offset:]
        total = len(candidates) if len(hits) == limit else len(hits) + offset
        known = total if hits or not offset else None
        return SearchAnswer(text, 0.0, hits, suggestion, self._notes, total=known, is_least=self._is_partial)

    def _candidates(self, query: Query, scope: Scope) -> tuple[str, list[Candidate], Coverage | None]:
        """The query as it was probably meant, the sessions that match, best first, and what to show them by."""
        if not any(self._index.tokens(phrase.text) for need in query.needs for phrase in need):
            return query.text, self._latest(query, scope.events), None
        meant, terms = self._terms(query)
        if terms is None:
            return meant, [], None
        ranking = Ranking(
            self._store, scope, self._sessions, round(self._now.timestamp() * 1000), self._options.matches
        )
        self._index.limit_time(SECONDS)
        try:
            candidates = ranking.candidates(terms, not query.has_of_events, self._notes)
            self._is_partial = ranking.is_partial
        except OutOfTime:
            self._notes.append(f"Stopped after {SECONDS} s: fewer or rarer words are faster")
            return meant, [], None
        finally:
            self._index.limit_time(None)
        # In a longer query a path is one hint among many.
        words = terms.words if len(terms.words) <= FEW_WORDS else ()
        single = [word.choice[0] for word in words if len(word.choice) == 1]
        if not self._hits.verify(candidates, single) and candidates:
            typed = [f"`{bare(phrase.text)}`" for phrase in single if is_exact(phrase)]
            names = typed[0] if len(typed) == 1 else f"{' and '.join(typed)} together"
            whose = "its" if len(typed) == 1 else "their"
            self._notes.append(f"No exact match for {names}; showing matches for {whose} words")
        coverage = Coverage(self._store, self._sessions, terms, scope.events)
        return meant, sorted(candidates, key=Candidate.order), coverage

    def _terms(self, query: Query) -> tuple[str, Terms | None]:
        """What to rank by, with the query as it was probably meant; None if it needs what no session has."""
        needs = [need for need in _split(query.needs) if any(self._index.tokens(phrase.text) for phrase in need)]
        counted = [self._counted(need) for need in (needs if _is_bracketed(query) else self._meaningful(needs))]
        most = min(_MOST_CORRECTED, max(1, len(counted) // 2))
        is_typed = sum(not word.is_known for word in counted) <= most
        words: dict[tuple[Phrase, ...], Word] = {}
        meant = query.text
        unknown: list[Word] = []
        for word in counted:
            # What nothing has is replaced by a word that differs by a letter, else by its parts.
            corrected = self._corrected(word.choice) if is_typed and not word.is_known else []
            others = [word] if word.is_known else corrected or self._apart(word.choice)
            words |= {other.choice: other for other in others}
            if not others:
                unknown.append(word)
            elif len(others) > 1 or (word.is_required and not word.is_known):
                self._notes.append(f"No exact match for `{word.text}`; showing matches for its words")
            elif not word.is_known:
                meant = meant.replace(word.text, others[0].text)
                self._notes.append(f"No match for `{word.text}`; showing `{others[0].text}`")
        if unknown:
            self._notes.append(f"No match for {', '.join(f'`{word.text}`' for word in unknown)}")
        if not words or any(word.is_required for word in unknown):
            return meant, None
        parts = self._parts(list(words.values())) if len(words) > 1 else []
        sentence = self._sentence(query) if meant == query.text else None
        return meant, Terms(list(words.values()), parts, sentence, query.excluded)

    def _meaningful(self, needs: Sequence[tuple[Phrase, ...]]) -> list[tuple[Phrase, ...]]:
        """The needs without words such as `how` and `the`, unless there is nothing else."""
        tokens = {need: self._index.tokens(need[0].text) for need in needs}
        plain = {need: words[0] for need, words in tokens.items() if len(words) == 1 and _is_plain(need)}
        kept = meaningful([*plain.values(), *(need[0].text for need in needs if need not in plain)])
        dropped = [need for need, token in plain.items() if token not in kept]
        if dropped:
            self._notes.append(f"Ignored: {', '.join(bare(need[0].text) for need in dropped)}")
        return [need for need in needs if need not in dropped]

    def _counted(self, need: tuple[Phrase, ...]) -> Word:
        wanted = Wanted(terms_of([need]))
        digests = self._store.digests.count(self._index.expression(wanted))
        is_repo = _is_plain(need) and need[0].text.lower() in self._repo_names
        return Word(need, self._index.counts(wanted), digests, is_repo)

    @cached_property
    def _repo_names(self) -> set[str]:
        return {repo.rstrip("/").rpartition("/")[2].lower() for repo in self._store.sessions.names("repo")}

    def _corrected(self, need: tuple[Phrase, ...]) -> list[Word]:
        """The need with words that nothing has replaced by ones that differ by a letter."""
        if len(need) > 1 or need[0].is_prefix:
            return []
        tokens = self._index.tokens(need[0].text)
        known = self._frequencies(tokens)
        changes = {
            token: meant for token in tokens if not known[token] and (meant := suggestion(self._frequencies, token))
        }
        text = " ".join(changes.get(token, token) for token in tokens)
        word = self._counted((need[0]._replace(text=text),)) if changes else None
        return [word] if word is not None and word.is_known else []

    def _frequencies(self, words: Collection[str]) -> Counter[str]:
        """How many events and digests have each of these words."""
        counts = Counter(self._store.digests.word_counts(words))
        for month in self._index.frequencies(words).values():
            counts.update(month)
        return counts

    def _apart(self, need: tuple[Phrase, ...]) -> list[Word]:
        """The words of what was typed as one (`action-taking`) or quoted, those that there are."""
        tokens = self._index.tokens(need[0].text)
        if len(tokens) == 1 or len(need) > 1 or need[0].is_prefix:
            return []
        kept = tokens if need[0].is_quoted and len(tokens) <= FEW_WORDS else meaningful(tokens)
        return [word for token in kept if (word := self._counted((Phrase(token),))).is_known]

    def _parts(self, words: Sequence[Word]) -> list[Word]:
        """The words inside paths and the like: elsewhere they are apart."""
        known = {word.text.lower() for word in words}
        inside = [
            token
            for word in words
            if _is_plain(word.choice) and len(tokens := self._index.tokens(word.text)) > 1
            for token in meaningful(tokens)
            if token not in known
        ]
        return [self._counted((Phrase(token),)) for token in dict.fromkeys(inside)]

    def _sentence(self, query: Query) -> Word | None:
        """All of a query as one phrase, if some event has it: a pasted command or sentence."""
        is_cjk = not query.sentence.isascii() and re.search(CJK_RUN, query.sentence) is not None
        least = _LEAST_SENTENCE - (is_cjk or _is_bracketed(query))
        if len(self._index.tokens(query.sentence)) < least or not (is_cjk or len(query.needs) > 1):
            return None
        word = self._counted((Phrase(query.sentence),))
        return word if word.total else None

    def _note_evicted(self, scope: Scope, what: str) -> None:
        if count := self._store.sessions.count(scope.timed._replace(roots_only=True, is_evicted=True)):
            sessions = "1 session is" if count == 1 else f"{count:,} sessions are"
            self._notes.append(f"{sessions} kept as digests only, which {what} cannot search")

    def _latest(self, query: Query, chosen: EventFilter) -> list[Candidate]:
        """No word in the query: the last events that the filters let through, of the sessions active last."""
        if not query.filters:
            self._notes.append("The query contains no words; `--substring` also finds symbols")
        if not query.filters or _is_of_sessions(query):
            return []
        events: list[Scored] = []
        offset = 0
        while keys := self._store.sessions.latest(_SESSIONS_AT_ONCE, offset):
            offset += len(keys)
            streams = set(self._store.events.streams(keys.keys()).values())
            batch = tuple(sorted(streams if chosen.streams is None else streams & set(chosen.streams)))
            events += self._index.latest(chosen._replace(streams=batch), self._options.matches)
            self._sessions.load({event.stream for event in events})
            # Sessions that ended earlier have no newer events than these.
            newest = {
                self._sessions.root(event.stream).session_uid
                for event in events
                if (event.ts_ms or 0) >= min(keys.values())
            }
            if len(newest) >= self._options.limit + self._options.offset:
                break
        return self._grouped(sorted(events, key=lambda event: -(event.ts_ms or 0)))

    def _grouped(self, events: Sequence[Scored]) -> list[Candidate]:
        """The sessions of these events, those first whose events come first."""
        self._sessions.load({event.stream for event in events})
        candidates: dict[str, Candidate] = {}
        for event in events:
            root = self._sessions.root(event.stream)
            candidates.setdefault(root.session_uid, Candidate(root)).events.append(event)
        return list(candidates.values())

    def literal(self, text: str) -> SearchAnswer:
        """Substrings and regular expressions, verified in the payloads."""
        from recollect.recall.literal import Scan, read_literal  # loads what a search for words does not need

        piece, filters = without_filters(text, self._now)
        query = Query(piece, filters=(*filters, *as_options(self._options.filters)))
        scope = scope_of(self._store, query, self._now, self._options.exclude, self._notes)
        is_regex, seconds = self._options.mode == "regex", self._options.scan_seconds
        pattern = read_literal(piece, is_regex, self._notes)
        scan = Scan(self._store, pattern, is_regex, seconds, self._progress, self._notes)
        scan.run(scope.events)
        self._is_partial = scan.is_partial
        self._note_evicted(scope, f"`--{self._options.mode}`")
        candidates = self._grouped(sorted(scan.events, key=lambda event: (-event.score, -(event.ts_ms or 0))))
        return self._answer(text, candidates, spans=scan.spans)


def _split(needs: Sequence[tuple[Phrase, ...]]) -> list[tuple[Phrase, ...]]:
    """The needs, with runs of CJK letters as the pairs they are indexed by, which are the words of such a text."""
    split: list[tuple[Phrase, ...]] = []
    for need in needs:
        text = need[0].text
        if _is_plain(need) and not text.isascii() and (runs := re.findall(CJK_RUN, text)):
            rest = re.sub(CJK_RUN, " ", text).split()
            pairs = [run[place : place + 2] for run in runs for place in range(max(1, len(run) - 1))]
            split += [(Phrase(part),) for part in (*rest, *pairs)]
        else:
            split.append(need)
    return list(dict.fromkeys(split))


def _is_plain(need: Sequence[Phrase]) -> bool:
    return len(need) == 1 and not (need[0].is_quoted or need[0].is_prefix)


def _is_bracketed(query: Query) -> bool:
    """Whether a few words were copied with the brackets around them, all of which count then."""
    text = query.sentence.strip()
    return text[:1] + text[-1:] in ("()", "[]", "{}") and len(query.needs) <= FEW_WORDS


def _is_of_sessions(query: Query) -> bool:
    """Whether the filters ask for sessions only, whatever is in them."""
    names = {item.name for item in query.filters if item.name != "is" or item.value not in OF_SESSIONS_ONLY}
    return names <= {*OF_SESSIONS, "session", "file", "has", "tag", "since", "before"}
