"""Tier 2: what sessions teach, each fact with its evidence; what a user said of it or wants remembered; exchanges.

The ledger has what the user said, too. Exchanges, step by step, are the material of workflows.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import orjson

from recollect.model.clock import now_ms
from recollect.model.text import spaced
from recollect.store.sqlite.database import Database
from recollect.store.tables.sessions import ANY_SESSION, OF_DIGESTS, SessionFilter, row_conditions
from recollect.store.tables.table import BY_DIGEST, BY_DIGEST_ROWID, MEMORY, Table, column

if TYPE_CHECKING:
    from recollect.store.ledger import Ledger, LedgerRecord


# `fact_uid` is made of the rule, the predicate and the first event cited: the same whenever it is derived again.
# `since_ms` is when it began to be true. What ended it follows from other facts and is not stored.
FACTS = Table(
    "facts",
    MEMORY,
    (
        column.row_number("id"),
        *column.numbers("digest", "is_sealed"),
        *column.plain("fact_uid", "rule", "predicate", "subject_kind"),
        *column.texts("subject"),
        *column.plain("object_kind"),
        *column.texts("object", "text"),
        *column.reals("confidence"),
        *column.numbers("since_ms?", "recorded_ms"),
        *column.documents("details", "evidence"),
    ),
    owner=BY_DIGEST,
    is_exported=True,
    extras=(
        "CREATE INDEX facts_by_digest ON facts (digest)",
        "CREATE INDEX facts_by_subject ON facts (subject_kind, subject, predicate)",
        "CREATE INDEX facts_by_object ON facts (object_kind, object, predicate)",
        "CREATE INDEX facts_by_predicate ON facts (predicate, since_ms)",
        "CREATE INDEX facts_by_uid ON facts (fact_uid)",
    ),
)

FACT_TEXT = Table(
    "fact_text",
    MEMORY,
    (*column.texts("text"),),
    owner=BY_DIGEST_ROWID,
    is_exported=True,
    tokenizer="porter unicode61 remove_diacritics 2",
    extras=("INSERT INTO fact_text (fact_text, rank) VALUES ('secure-delete', 1)",),
)

# What else the errors of facts are known by: the fingerprints in their details.
ERROR_LINES = Table(
    "error_lines",
    MEMORY,
    (column.row_number("id"), *column.numbers("digest"), *column.texts("line", "error")),
    owner=BY_DIGEST,
    is_exported=True,
    extras=(
        "CREATE INDEX error_lines_by_digest ON error_lines (digest)",
        "CREATE INDEX error_lines_by_line ON error_lines (line, error)",
    ),
)


@dataclass(frozen=True, slots=True)
class FactRow:
    """A fact of a session, ready to be stored."""

    fact_uid: str
    rule: str
    predicate: str
    subject_kind: str
    subject: str
    object_kind: str
    object: str
    text: str
    confidence: float
    since_ms: int | None
    details: dict[str, Any]
    evidence: list[dict[str, str]]


@dataclass(frozen=True, slots=True)
class StoredFact(FactRow):
    """A fact with the session it was learned in, and what the user said of it."""

    recorded_ms: int
    session_uid: str
    agent: str
    repo: str | None
    title: str | None
    cwd: str | None
    group: str
    verdict: str | None


class ExchangeRow(NamedTuple):
    """An exchange as its steps, and the session it is read with. `has_succeeded` is None where nothing tells."""

    since_ms: int | None
    request_uid: str
    goal: str
    steps: str
    has_succeeded: int | None
    tokens: int
    active_ms: int
    usd: float | None
    session_uid: str = ""
    agent: str = ""
    repo: str | None = None


_EXCHANGE = ExchangeRow._fields[:-3]  # all but the session


class Note(NamedTuple):
    """Something that was decided or is preferred, as the user or an agent wants it remembered."""

    note_uid: str
    group_name: str
    repo: str | None
    origin: str
    topic: str
    text: str
    reason: str | None
    since_ms: int
    recorded_ms: int


_PLAIN = [field.name for field in fields(FactRow)][:-2]  # all but the documents, which are last
_COLUMNS = ", ".join(f"f.{name}" for name in (*_PLAIN, "details", "evidence"))
_plain_of = attrgetter(*_PLAIN)
_SELECT = (
    f"SELECT {_COLUMNS}, f.recorded_ms,"
    ' s.session_uid, s.agent, s.repo, s.title, s.cwd, s."group", v.verdict FROM facts f'
    " CROSS JOIN digests d ON d.id = f.digest"
    " CROSS JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
    " LEFT JOIN verdicts v ON v.fact_uid = f.fact_uid"
)
_NAMING = (
    "(f.subject = ? COLLATE NOCASE OR f.object = ? COLLATE NOCASE OR f.subject LIKE '%/' || ?"
    " OR f.object LIKE '%/' || ? OR (f.object_kind = 'commit' AND ? LIKE f.object || '%'))"
)
_OF_FILE = "f.predicate = 'touches' AND f.object_kind = 'file' AND (f.object = ? OR f.object LIKE '%/' || ?)"
_ORDER = " ORDER BY coalesce(f.since_ms, 0), s.session_uid, f.fact_uid"


class FactTable:
    """The facts and exchanges of a store, and what users said of facts."""

    def __init__(self, database: Database, writer: "Callable[[], tuple[Database, Ledger]]") -> None:
        self._database = database
        self._writer = writer

    def errors_showing(self, lines: Sequence[str]) -> list[str]:
        """Return the errors that were fixed and had most of these lines in their output, at least one."""
        marks = ", ".join("?" * len(lines))
        counted = f"SELECT error, count(DISTINCT line) AS shown FROM error_lines WHERE line IN ({marks}) GROUP BY 1"
        rows = self._database.rows(f"{counted} ORDER BY 2 DESC, 1", lines)
        return [error for error, shown in rows if shown == rows[0][1]]

    def select(
        self,
        predicates: Sequence[str] = (),
        sessions: SessionFilter = ANY_SESSION,
        *,
        kind: str | None = None,
        words: str | None = None,
        subject: tuple[str, str] | None = None,
        object: tuple[str, str] | None = None,
        naming: str | None = None,
        file: str | None = None,
        uid: str | None = None,
        with_rejected: bool = False,
    ) -> list[StoredFact]:
        """Facts of these predicates, of sessions that match, the oldest first. The times of `sessions` are the facts'.

        `kind` is that of their subjects, `subject` and `object` are each a kind and a name, `words` a full-text query.
        `naming`: it is their subject or object, or the end of it after a slash, or a longer id of their commit.
        `file`: they say who edited files with this last name. `uid` begins their id.
        """
        tests, bindings = row_conditions(sessions, "s.rowid IN (SELECT rowid FROM sessions WHERE {})", "f.since_ms")
        tests += [] if with_rejected else ["v.verdict IS NOT 'rejected'"]
        for test, values in (
            (f"f.predicate IN ({', '.join('?' * len(predicates))})", predicates or (None,)),
            ("f.subject_kind = ?", (kind,)),
            ("f.subject_kind = ? AND f.subject = ?", subject or (None,)),
            ("f.object_kind = ? AND f.object = ?", object or (None,)),
            ("f.digest IN (SELECT rowid FROM fact_text WHERE fact_text MATCH ?)", (words,)),
            (_NAMING, (naming,) * 5),
            (_OF_FILE, (file, file)),
            ("f.fact_uid >= ? AND f.fact_uid < ? || 'g'", (uid, uid)),
        ):
            if values[0] is not None:
                tests.append(test)
                bindings += values
        documents = (len(_PLAIN), len(_PLAIN) + 1)
        rows = self._database.rows(f"{_SELECT} WHERE {' AND '.join(tests)}{_ORDER}", bindings)
        return [
            StoredFact(*[orjson.loads(value) if place in documents else value for place, value in enumerate(row)])
            for row in rows
        ]

    def has_amendments(self) -> bool:
        """Check whether any decision takes the place of an earlier session's."""
        return bool(self._database.rows("SELECT 1 FROM facts WHERE subject_kind = ? LIMIT 1", (AMENDMENT,)))

    def moment_of(self, place: int, predicates: Sequence[str], sessions: SessionFilter) -> int | None:
        """Return when the fact at this place of such facts began, the newest first; None if they are fewer.

        The `before_ms` of `sessions` is that of the facts.
        """
        untimed = sessions._replace(since_ms=None, before_ms=None)
        tests, bindings = row_conditions(untimed, OF_DIGESTS, "since_ms")
        moment = self._database.value(
            f"SELECT since_ms FROM facts WHERE predicate IN ({', '.join('?' * len(predicates))})"
            f" AND coalesce(since_ms < ?, 1) AND {' AND '.join(tests)} ORDER BY since_ms DESC LIMIT 1 OFFSET ?",
            (*predicates, sessions.before_ms, *bindings, place),
        )
        return None if moment is None else int(moment)

    def exchanges(self, sessions: SessionFilter, latest: int | None = None) -> list[ExchangeRow]:
        """Exchanges of sessions that match, the oldest first; with `latest`, only so many of them.

        The times of `sessions` are those of the exchanges.
        """
        tests, bindings = row_conditions(sessions, OF_DIGESTS, "since_ms")
        columns = ", ".join(f"x.{name}" for name in _EXCHANGE)
        return self._database.read(
            ExchangeRow,
            f"SELECT {columns}, s.session_uid, s.agent, s.repo FROM (SELECT * FROM exchange_steps"
            f" WHERE {' AND '.join(tests)} ORDER BY coalesce(since_ms, 0) DESC, id DESC LIMIT ?) x"
            " CROSS JOIN digests d ON d.id = x.digest"
            " CROSS JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
            " ORDER BY coalesce(x.since_ms, 0), s.session_uid, x.id",
            [*bindings, -1 if latest is None else latest],
        )

    def judge(self, fact_uid: str, verdict: str, group: str) -> None:
        """Keep what a user says of a fact; it stays even if the fact is derived again."""
        data = {"fact_uid": fact_uid, "group_name": group, "verdict": verdict, "at_ms": now_ms()}
        database, ledger = self._writer()
        ledger.append(VERDICT, data)
        with database.transaction() as connection:
            connection.execute(_PUT_VERDICT, data)

    def add_notes(self, notes: list[Note]) -> int:
        """Keep notes; one that is there already stays as it is. Returns how many are new."""
        known = {uid for (uid,) in self._database.rows("SELECT note_uid FROM notes")}
        new = [note for note in {note.note_uid: note for note in notes}.values() if note.note_uid not in known]
        if new:
            database, ledger = self._writer()
            ledger.extend([(NOTE, note._asdict()) for note in new])
            database.write_all(_PUT_NOTE, new)
        return len(new)

    def notes(self) -> list[tuple[Note, str | None]]:
        """Return all notes with what the user said of them since, the oldest first."""
        columns = ", ".join(f"n.{name}" for name in Note._fields)
        rows = self._database.rows(
            f"SELECT {columns}, v.verdict FROM notes n LEFT JOIN verdicts v ON v.fact_uid = n.note_uid"
            " ORDER BY n.since_ms, n.note_uid"
        )
        return [(Note(*row[:-1]), row[-1]) for row in rows]

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """Return all of them as lines of the ledger."""
        names = [one.name for one in VERDICTS.columns]
        rows = self._database.rows(f"SELECT {', '.join(names)} FROM verdicts")
        verdicts = [(VERDICT, dict(zip(names, row, strict=True))) for row in rows]
        return verdicts + [(NOTE, note._asdict()) for note, _ in self.notes()]


def put_facts(connection: apsw.Connection, facts: Iterable[tuple[int, Sequence[FactRow]]], at_ms: int) -> None:
    """Write the facts of sessions' held events, by their digests. Their words come last: see `put_fact_words`."""
    marks = ", ".join("?" * (len(_PLAIN) + 2))
    connection.executemany(
        f"INSERT INTO facts (digest, is_sealed, recorded_ms, {', '.join(_PLAIN)}, details, evidence)"
        f" VALUES (?, 0, ?, {marks})",
        [
            (digest, at_ms, *_plain_of(row), orjson.dumps(row.details).decode(), orjson.dumps(row.evidence).decode())
            for digest, rows in facts
            for row in rows
        ],
    )


def put_fact_words(connection: apsw.Connection, digests: Iterable[int]) -> None:
    """Index what is stored of these digests' facts, the sealed ones included."""
    digests = list(digests)
    said = "SELECT group_concat(concat_ws(char(10), text, subject, details ->> 'reason'), char(10)) FROM facts"
    texts = [(digest, connection.execute(f"{said} WHERE digest = ?", (digest,)).get) for digest in digests]
    connection.executemany(
        "INSERT INTO fact_text (rowid, text) VALUES (?, ?)", [(digest, spaced(text)) for digest, text in texts if text]
    )
    connection.executemany(
        "INSERT INTO error_lines (digest, line, error) SELECT DISTINCT f.digest, l.value, f.subject"
        " FROM facts f, json_each(f.details, '$.lines') l WHERE f.digest = ? AND f.subject_kind = 'error'",
        [(digest,) for digest in digests],
    )


def drop_facts(connection: apsw.Connection, digests: Iterable[tuple[int]]) -> None:
    """Delete what was derived from sessions' held events."""
    digests = list(digests)
    connection.executemany("DELETE FROM fact_text WHERE rowid = ?", digests)
    connection.executemany("DELETE FROM error_lines WHERE digest = ?", digests)
    for table in ("facts", "exchange_steps"):
        connection.executemany(f"DELETE FROM {table} WHERE digest = ? AND NOT is_sealed", digests)


def seal_facts(connection: apsw.Connection, digest: int, *, is_sealed: bool) -> None:
    """Make facts last beyond their events; or not, when all events are held again."""
    for table in ("facts", "exchange_steps"):
        connection.execute(f"UPDATE {table} SET is_sealed = ? WHERE digest = ?", (int(is_sealed), digest))


AMENDMENT = "amendment"  # the kind of a decision that takes the place of an earlier session's

VERDICT = "verdict"  # of the ledger's lines
NOTE = "note"
PROMOTED, REJECTED, PINNED = "promoted", "rejected", "pinned"

VERDICTS = Table(
    "verdicts",
    MEMORY,
    (*column.plain("fact_uid", "group_name", "verdict"), *column.numbers("at_ms")),
    key=("fact_uid",),
    group_column="group_name",
)
# `origin` is where a note came from: `remember`, `agent` if one recorded it, or the name of a file that was imported.
NOTES = Table(
    "notes",
    MEMORY,
    (
        *column.plain("note_uid", "group_name"),
        *column.names("repo?", "origin"),
        *column.texts("topic", "text", "reason?"),
        *column.numbers("since_ms", "recorded_ms"),
    ),
    key=("note_uid",),
    group_column="group_name",
)


_PUT_VERDICT = "INSERT OR REPLACE INTO verdicts VALUES (:fact_uid, :group_name, :verdict, :at_ms)"
_PUT_NOTE = f"INSERT OR IGNORE INTO notes VALUES ({', '.join('?' * len(Note._fields))})"


def restore_verdict(connection: apsw.Connection, record: "LedgerRecord") -> None:
    connection.execute(_PUT_VERDICT, record.data)


def restore_note(connection: apsw.Connection, record: "LedgerRecord") -> None:
    connection.execute(_PUT_NOTE, Note(**record.data))


# `steps` are names of tools and families of commands with a space between two, a failed one with `!` behind it.
EXCHANGE_STEPS = Table(
    "exchange_steps",
    MEMORY,
    (
        column.row_number("id"),
        *column.numbers("digest", "is_sealed", "since_ms?"),
        *column.plain("request_uid"),
        *column.texts("goal", "steps"),
        *column.numbers("has_succeeded?", "tokens", "active_ms"),
        *column.reals("usd?"),
    ),
    owner=BY_DIGEST,
    is_exported=True,
    extras=("CREATE INDEX exchange_steps_by_digest ON exchange_steps (digest)",),
)


def put_exchanges(connection: apsw.Connection, exchanges: Iterable[tuple[int, Sequence[ExchangeRow]]]) -> None:
    connection.executemany(
        f"INSERT INTO exchange_steps (digest, is_sealed, {', '.join(_EXCHANGE)})"
        f" VALUES (?, 0, {', '.join('?' * len(_EXCHANGE))})",
        [(digest, *row[: len(_EXCHANGE)]) for digest, rows in exchanges for row in rows],
    )
