"""Asking the full text: which events have these words, how well they fit, which words there are.

All events that match are ranked: bm25() takes about a microsecond for each, counting them a twentieth of that. Reading
an event's row takes another microsecond, so only the best are looked up. A query that runs out of time is stopped.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import apsw

from recollect.model.kinds import HUMAN_INTERVENTION
from recollect.model.text import CJK_RUN, bigrams, identifier_words
from recollect.store.sqlite.database import Database
from recollect.store.tables.events import IS_ERROR

TOKENIZER = ("unicode61", "remove_diacritics", "2")
BEST_EVENTS = 2_000  # of a month: those whose sessions are looked up
ENOUGH_SESSIONS = 40  # that the best events have to be of; else all are looked up
_STEPS_BETWEEN_LOOKS = 20_000  # SQLite's steps between two looks at the clock
_TERMS_AT_ONCE = 400
_FEW_STREAMS = 100


class Term(NamedTuple):
    """Something to look for: words in this order, the last one perhaps only begun."""

    text: str
    is_prefix: bool = False


class Wanted(NamedTuple):
    """All of `needs` (each a choice of terms) and none of `excluded`, in these columns (None: in any)."""

    needs: tuple[tuple[Term, ...], ...]
    excluded: tuple[Term, ...] = ()
    columns: tuple[str, ...] | None = None


class Choice(NamedTuple):
    """A column of `events` with any of these values, or with none of them."""

    column: str
    values: tuple[str, ...]
    is_excluded: bool = False


class EventFilter(NamedTuple):
    """Which events count. `streams` are sessions' numbers in this store; None is any."""

    streams: tuple[int, ...] | None = None
    excluded_streams: tuple[int, ...] = ()
    choices: tuple[Choice, ...] = ()
    since_ms: int | None = None
    before_ms: int | None = None
    is_error: bool | None = None
    with_copies: bool = False

    @property
    def is_open(self) -> bool:
        """True if it lets nearly every event through: all but copies and those of excluded sessions."""
        return self._replace(excluded_streams=(), with_copies=False) == EventFilter()

    @property
    def is_of_sessions(self) -> bool:
        """True if an event's session, and whether it is a copy, is all it looks at."""
        return self._replace(streams=None).is_open


class Scored(NamedTuple):
    """An event that fits, and how well: more is better."""

    id: int
    score: float
    stream: int
    ts_ms: int | None
    flags: int
    kind: str


class OutOfTime(Exception):
    """The question took longer than allowed."""


class Words:
    """Reads the index that `Fulltext` writes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._vocabularies: set[str] = set()
        self._end: float | None = None

    @cached_property
    def _tokenize(self) -> Callable[[str], Iterable[Any]]:
        name, *options = TOKENIZER
        tokenizer = self._database.connection.fts5_tokenizer(name, options)
        return lambda text: tokenizer(
            text.encode("utf-8", "replace"), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False
        )

    @cached_property
    def _by_number(self) -> str:
        """Has SQLite find an event's session without reading its row. A group's view of the events has no index."""
        is_view = "SELECT 1 FROM temp.sqlite_schema WHERE name = 'events'"
        has_index = f"SELECT 1 FROM sqlite_schema WHERE name = 'events_by_number' AND NOT EXISTS ({is_view})"
        return "INDEXED BY events_by_number" if self._database.value(has_index) else ""

    def tokens(self, text: str) -> list[str]:
        """Return the words of a text as the index has them: folded, CJK in pairs."""
        return [token for tokens in self._tokenize(_grams(text)) for token in tokens]

    def months(self) -> dict[str, int]:
        """Count how many events each month of the index holds; nothing in a store that was never indexed."""
        if not self._database.value("SELECT 1 FROM sqlite_schema WHERE name = 'fulltext_months'"):
            return {}
        return dict(self._database.rows("SELECT month, events FROM fulltext_months WHERE events > 0"))

    def limit_time(self, seconds: float | None) -> None:
        """End all questions to the index with OutOfTime after so much work from now on; None lifts the limit.

        Time of the processor, for on a busy machine the same question is not to find less.
        """
        self._end = None if seconds is None else time.thread_time() + seconds

    def frequencies(self, tokens: Iterable[str]) -> dict[str, dict[str, int]]:
        """Return in how many events of each month a word stands: month -> word -> events, without words it has not."""
        wanted = sorted(set(tokens))
        return {month: self._count(month, wanted) for month in self.months()}

    def _count(self, month: str, tokens: Sequence[str]) -> dict[str, int]:
        found: dict[str, int] = {}
        vocabulary = self._vocabulary(month)
        for start in range(0, len(tokens), _TERMS_AT_ONCE):
            some = tokens[start : start + _TERMS_AT_ONCE]
            # A join, for fts5vocab takes one word at a time: with IN it would read every word there is.
            marks = ", ".join(["(?)"] * len(some))
            asked = f"WITH asked (word) AS (VALUES {marks}) SELECT v.term, v.doc FROM asked"
            sql = f"{asked} CROSS JOIN {vocabulary} v ON v.term = asked.word"
            found |= dict(self._rows(sql, some))
        return found

    def counts(self, wanted: Wanted) -> dict[str, int]:
        """Count how many events of each month match, whatever a filter says."""
        match = self.expression(wanted)
        sql = "SELECT count(*) FROM {0} WHERE {0} MATCH ?"
        months = self.months() if match else {}
        return {month: int(self._rows(sql.format(table_of(month)), (match,))[0][0]) for month in months}

    def sessions_with(self, wanted: Wanted | None, chosen: EventFilter) -> set[int]:
        """Sessions with an event that a filter lets through and, if anything is wanted, that matches."""
        if wanted is None:
            conditions, values = _conditions(chosen)
            rows = iter(self._rows(f"SELECT DISTINCT stream FROM events e WHERE {conditions}", values))
            return {stream for (stream,) in rows}
        rows = self._matching("DISTINCT e.stream", wanted, chosen, self._by_number if chosen.is_of_sessions else "")
        return {stream for (stream,) in rows}

    def matching(self, wanted: Wanted, chosen: EventFilter) -> list[Scored]:
        """Return every event that matches and that a filter lets through, not ranked."""
        columns = "e.id, 0.0, e.stream, e.ts_ms, e.flags, e.kind"
        return [Scored(*row) for row in self._matching(columns, wanted, chosen)]

    def _matching(
        self, columns: str, wanted: Wanted, chosen: EventFilter, by_index: str = ""
    ) -> Iterator[tuple[Any, ...]]:
        match = self.expression(wanted)
        conditions, values = _conditions(chosen, "+e.stream")
        for table in map(table_of, self.months() if match else ()):
            yield from self._rows(
                f"SELECT {columns} FROM {table} f CROSS JOIN events e {by_index} ON e.id = f.rowid"
                f" WHERE f.{table} MATCH ? AND {conditions}",
                [match, *values],
            )

    def words_with(self, part: str, limit: int, *, at_end: bool = False) -> list[str]:
        """Words that have `part` inside, or at their end, of all months; reads the whole vocabulary."""
        sql = f"SELECT term FROM {{}} WHERE instr({'substr(term, -length(?1))' if at_end else 'term'}, ?1) LIMIT ?2"
        found = [self._rows(sql.format(self._vocabulary(month)), (part, limit)) for month in self.months()]
        return sorted({term for rows in found for (term,) in rows})

    def _vocabulary(self, month: str) -> str:
        """Return a table of the words of a month, which this connection alone sees."""
        name = terms_of(table_of(month))
        if name not in self._vocabularies:
            ensure_terms(self._database, table_of(month))
            self._vocabularies.add(name)
        return f"temp.{name}"

    def find(
        self,
        month: str,
        wanted: Wanted,
        weights: Sequence[float],
        chosen: EventFilter,
        of_session: int,
    ) -> list[Scored]:
        """Return a month's best events, so many of each session, sessions far behind left out. Scores are its own."""
        match = self.expression(wanted)
        if not match:
            return []
        table = table_of(month)
        conditions, values = _conditions(chosen, "+e.stream")
        score = f"bm25({table}, {', '.join(map(str, weights))}) AS score"
        best = f"SELECT rowid AS id, {score} FROM {table} WHERE {table} MATCH ? ORDER BY score LIMIT {BEST_EVENTS}"
        by_index = self._by_number if chosen.is_of_sessions else ""
        # To score an event takes longer than to look it up, and that longer than to find its number in a small set.
        few = chosen.streams if chosen.streams is not None and len(chosen.streams) <= _FEW_STREAMS else None
        of_few = f"+f.rowid IN (SELECT id FROM events WHERE stream IN ({', '.join(map(str, few))}))" if few else "1"
        passing = (
            f"SELECT f.rowid AS id, {score} FROM {table} f CROSS JOIN events e {by_index} ON e.id = f.rowid"
            f" WHERE f.{table} MATCH ? AND {of_few} AND {conditions}"
        )
        if chosen.is_open:
            rows = self._placed(best, conditions, [match, *values, of_session])
            if rows and (rows[0][-1] < BEST_EVENTS or len({row[2] for row in rows}) >= ENOUGH_SESSIONS):
                return [Scored(*row[:-1]) for row in rows]
        return [Scored(*row[:-1]) for row in self._placed(passing, "1", [match, *values, of_session])]

    def _placed(self, hits: str, conditions: str, values: Sequence[Any]) -> list[tuple[Any, ...]]:
        """Return so many of each session's hits, the best first, each with the number of all."""
        return self._rows(
            f"WITH hit AS MATERIALIZED ({hits}), placed AS MATERIALIZED (SELECT hit.id, hit.score, e.stream,"
            " row_number() OVER (PARTITION BY e.stream ORDER BY hit.score, hit.id DESC) AS place"
            f" FROM hit CROSS JOIN events e {self._by_number} ON e.id = hit.id WHERE {conditions})"
            " SELECT p.id, -p.score, p.stream, e.ts_ms, e.flags, e.kind, (SELECT count(*) FROM hit)"
            " FROM placed p CROSS JOIN events e ON e.id = p.id WHERE p.place <= ? ORDER BY p.score, p.id DESC",
            values,
        )

    def newest(self, chosen: EventFilter, limit: int, below: int | None = None) -> list[Scored]:
        """Return the events stored last (before the one numbered `below`) that a filter lets through."""
        conditions, values = _conditions(chosen)
        before = "" if below is None else f" AND e.id < {below:d}"
        rows = self._rows(
            f"SELECT e.id, 0.0, e.stream, e.ts_ms, e.flags, e.kind FROM events e WHERE {conditions}{before}"
            " ORDER BY e.id DESC LIMIT ?",
            [*values, limit],
        )
        return [Scored(*row) for row in rows]

    def latest(self, chosen: EventFilter, of_session: int) -> list[Scored]:
        """Return the last events of each session, of those that a filter lets through; the newest first."""
        conditions, values = _conditions(chosen)
        rows = self._rows(
            f"WITH timed AS (SELECT e.id, e.stream, {_TIME} AS ts_ms, e.flags, e.kind FROM events e"
            f" WHERE {conditions}),"
            " placed AS (SELECT *, row_number() OVER (PARTITION BY stream ORDER BY ts_ms DESC, id DESC) AS place"
            " FROM timed) SELECT id, 0.0, stream, ts_ms, flags, kind FROM placed WHERE place <= ?"
            " ORDER BY ts_ms DESC, id DESC",
            [*values, of_session],
        )
        return [Scored(*row) for row in rows]

    def _rows(self, sql: str, bindings: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        if self._end is None:
            return self._database.rows(sql, bindings)
        end = self._end
        connection = self._database.connection
        connection.set_progress_handler(lambda: time.thread_time() > end, _STEPS_BETWEEN_LOOKS)
        try:
            return self._database.rows(sql, bindings)
        except apsw.InterruptError:
            raise OutOfTime from None
        finally:
            connection.set_progress_handler(None)

    def expression(self, wanted: Wanted) -> str:
        """Return the question in FTS5's own language; empty if it has no word in it."""
        needs = ["(" + " OR ".join(choice) + ")" for need in wanted.needs if (choice := self._phrases(need))]
        excluded = self._phrases(wanted.excluded)
        if not needs:
            return ""
        match = " AND ".join(needs)
        if excluded:
            match = f"({match}) NOT ({' OR '.join(excluded)})"
        return f"{{{' '.join(wanted.columns)}}} : ({match})" if wanted.columns else match

    def _phrases(self, terms: Iterable[Term]) -> list[str]:
        return [phrase for term in terms for phrase in self._spellings(term)]

    def _spellings(self, term: Term) -> list[str]:
        """Return the term as a phrase; of a name with humps also its words: they find `snake_case` and longer names.

        `strasse` is `straße` too, which the tokenizer does not know.
        """
        spellings = [term.text]
        words = identifier_words(term.text)
        if len(words) > 1:
            spellings.append(" ".join(words))
        lowered = term.text.lower()
        if "ß" in lowered or "ss" in lowered:
            spellings.append(lowered.replace("ß", "ss") if "ß" in lowered else lowered.replace("ss", "ß"))
        return [self._phrase(text, term.is_prefix) for text in spellings if self.tokens(text)]

    def _phrase(self, text: str, is_prefix: bool) -> str:
        quoted = _grams(text).replace('"', '""').replace("\0", " ")
        ends_inside = is_prefix or _ends_with_single(text)
        return f'"{quoted}" *' if ends_inside else f'"{quoted}"'


def table_of(month: str) -> str:
    """Return the index of a month; its events are its rows."""
    return f"fts_{int(month):06d}"


def terms_of(table: str) -> str:
    """Return the list of the words of a full-text table: a table of the connection, in a group's store a view."""
    return f"terms_{table}"


def ensure_terms(database: Database, table: str) -> None:
    """Make the list of a table's words, unless there is one."""
    terms = terms_of(table)
    if not database.value("SELECT 1 FROM temp.sqlite_schema WHERE name = ?", (terms,)):
        database.rows(f"CREATE VIRTUAL TABLE temp.{terms} USING fts5vocab(main, {table}, row)")


def _grams(text: str) -> str:
    """CJK in pairs, as indexed, but for the last letter of a run at the end: there the text may go on."""
    if text.isascii():
        return text
    end = len(text.rstrip())

    def paired(run: re.Match[str]) -> str:
        pairs = bigrams(run[0])
        is_open = run.end() == end and len(pairs) > 1
        return f" {' '.join(pairs[:-1] if is_open else pairs)} "

    return re.sub(CJK_RUN, paired, text)


def _ends_with_single(text: str) -> bool:
    """Check whether the text ends with one CJK letter by itself, which begins a pair or ends a run."""
    runs = [] if text.isascii() else re.findall(CJK_RUN, text)
    return bool(runs) and len(runs[-1]) == 1 and text.rstrip().endswith(runs[-1])


# When an event happened. Some logs tell no more than when they began: then the last time before it, else the first
# of its session.
_TIME = (
    "coalesce(e.ts_ms, (SELECT x.ts_ms FROM events x WHERE x.stream = e.stream AND x.seq < e.seq"
    " AND x.ts_ms IS NOT NULL ORDER BY x.seq DESC LIMIT 1),"
    " (SELECT min(x.ts_ms) FROM events x WHERE x.stream = e.stream),"
    " (SELECT min(i.born_ms) FROM streams s JOIN infos i ON i.agent = s.agent AND i.native_id = s.native_id"
    " WHERE s.id = e.stream))"
)
# What a person refused or stopped did not fail.
_IS_ERROR = f"(e.flags & {IS_ERROR} <> 0 AND e.kind <> '{HUMAN_INTERVENTION}')"


def _conditions(chosen: EventFilter, stream: str = "e.stream") -> tuple[str, list[Any]]:
    """SQL that lets through what a filter does. A `stream` with a plus is only compared, never looked up."""
    tests: list[tuple[str, Any]] = [
        (f"{stream} IN (SELECT value FROM json_each(?))", _json(chosen.streams)),
        ("e.stream NOT IN (SELECT value FROM json_each(?))", _json(chosen.excluded_streams or None)),
        (f"{_TIME} >= ?", chosen.since_ms),
        (f"{_TIME} < ?", chosen.before_ms),
        (f"{_IS_ERROR} = ?", chosen.is_error),
    ]
    clauses = [test for test, value in tests if value is not None]
    bindings = [value for _, value in tests if value is not None]
    for column, values, is_excluded in chosen.choices:
        marks = ", ".join("?" * len(values))
        test = f"coalesce(e.{column}, '') COLLATE NOCASE IN ({marks})"
        clauses.append(f"NOT {test}" if is_excluded else test)
        bindings += values
    if not chosen.with_copies:
        clauses.append("e.copy_of IS NULL")
    return " AND ".join(clauses) or "1", bindings


def _json(numbers: Sequence[int] | None) -> str | None:
    return None if numbers is None else f"[{','.join(map(str, numbers))}]"
