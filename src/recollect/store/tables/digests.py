"""Reading digests and signals: by key, by their words, by what they say. `digest_rows` writes them."""

from collections.abc import Collection
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from recollect.model.clock import rfc3339
from recollect.model.errors import StoreDamaged
from recollect.model.kinds import SessionKey
from recollect.store.search import ensure_terms
from recollect.store.sqlite.database import Database
from recollect.store.tables.sessions import (
    HEADER_COLUMNS,
    SessionFilter,
    SessionHeader,
    row_conditions,
    session_conditions,
)
from recollect.store.tables.table import hash_of, json_list

if TYPE_CHECKING:
    from recollect.model.schema import Signal


class Saved(NamedTuple):
    """What filtering saves over all sessions, in tokens, and how many of them are distilled."""

    sessions: int
    raw_tokens: int
    kept_tokens: int


_BEST_DIGESTS = 1_000
_KEY = "agent = ? AND native_session_id = ?"
_SIGNALS = (
    "FROM signals g JOIN digests d ON d.id = g.digest"
    " JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
)


class Digests:
    """The digests and signals of a store, for whoever reads them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, key: SessionKey) -> bytes | None:
        """Return a session's digest as JSON, checked against its hash; None if it has none of its own."""
        rows = self._database.rows(f"SELECT digest, digest_hash FROM digests WHERE {_KEY} AND digest IS NOT NULL", key)
        if not rows:
            return None
        text, expected_hash = rows[0]
        raw = text.encode()
        if hash_of(raw) != expected_hash:
            raise StoreDamaged(f"Digest is damaged: {':'.join(key)}", "`recollect doctor` shows what to do")
        return bytes(raw)

    def dropped_requests(self, agent: str, native_id: str) -> int:
        """Count how many requests of a session were dropped, as far as its digest tells."""
        sql = f"SELECT sealed ->> '$.request_count' FROM digests WHERE {_KEY}"
        return int(self._database.value(sql, (agent, native_id)) or 0)

    def evicted_with_edits(self) -> list[SessionKey]:
        """Sessions without raw detail whose digests tell of files that they changed."""
        return self._database.read(
            SessionKey,
            "SELECT agent, native_session_id FROM sessions JOIN digests USING (agent, native_session_id)"
            " WHERE evicted_ms IS NOT NULL AND digest ->> 'file_count' > 0",
        )

    def text(self, key: SessionKey) -> str | None:
        """Return a session's digest as JSON; None if there is none of its own yet."""
        sql = "SELECT digest FROM digests WHERE agent = ? AND native_session_id = ?"
        digest = self._database.value(sql, key)
        return None if digest is None else str(digest)

    def words(self, uids: Collection[str]) -> dict[str, str]:
        """Return the texts by which sessions' digests are found, of those that have one."""
        rows = self._database.rows(
            "SELECT s.session_uid, t.text FROM sessions s JOIN digests d USING (agent, native_session_id)"
            " JOIN digest_text t ON t.rowid = d.id WHERE s.session_uid IN (SELECT value FROM json_each(?))",
            (json_list(uids),),
        )
        return dict(rows)

    def count(self, expression: str | None = None) -> int:
        """Count how many digests there are, or match an expression of FTS5."""
        if expression is None:
            return int(self._database.value("SELECT count(*) FROM digests"))
        sql = "SELECT count(*) FROM digest_text WHERE digest_text MATCH ?"
        return int(self._database.value(sql, (expression,))) if expression else 0

    def word_counts(self, words: Collection[str]) -> dict[str, int]:
        """Return in how many digests each of these words stands, without those that stand in none."""
        ensure_terms(self._database, "digest_text")
        # A join, for fts5vocab takes one word at a time: with IN it would read every word there is.
        sql = "SELECT v.term, v.doc FROM json_each(?) k CROSS JOIN temp.terms_digest_text v ON v.term = k.value"
        return dict(self._database.rows(sql, (json_list(words),)))

    def search(
        self, expression: str, criteria: SessionFilter, *, is_evicted: bool = False, most: int = _BEST_DIGESTS
    ) -> list[tuple[SessionHeader, float]]:
        """Sessions whose digests match an expression of FTS5, and how well (BM25), best first.

        `is_evicted`: only those without raw detail.
        """
        conditions, bindings = session_conditions(criteria)
        filtered = f" AND s.rowid IN (SELECT rowid FROM sessions WHERE {conditions})" if bindings else ""
        # Looking up a session takes as long as ranking ten; without a filter the best are enough.
        most = -1 if bindings or is_evicted else most
        rows = self._database.rows(
            "WITH hit AS MATERIALIZED (SELECT rowid, bm25(digest_text) AS rank FROM digest_text"
            " WHERE digest_text MATCH ? ORDER BY 2 LIMIT ?)"
            f" SELECT {HEADER_COLUMNS}, -hit.rank FROM hit CROSS JOIN digests d ON d.id = hit.rowid"
            " CROSS JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
            f" WHERE {'s.evicted_ms IS NOT NULL' if is_evicted else '1'}{filtered}"
            " ORDER BY hit.rank, s.session_uid",
            [expression, most, *bindings],
        )
        return [(SessionHeader(*row[:-1]), row[-1]) for row in rows]

    def roots(self, expression: str) -> set[str]:
        """Return the roots of the sessions whose digests match an expression of FTS5."""
        return set(
            self._database.column(
                "SELECT DISTINCT s.root_session_uid FROM digest_text t CROSS JOIN digests d ON d.id = t.rowid"
                " CROSS JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
                " WHERE t.digest_text MATCH ?",
                (expression,),
            )
        )

    def signals(
        self,
        criteria: SessionFilter,
        session: SessionKey | None = None,
        signal: str | None = None,
        limit: int | None = None,
        offset: int = 0,
    ) -> "list[Signal]":
        """Signals of one session or of all that match, newest first. Times are those of the signals."""
        from recollect.model.schema import Signal  # takes time to load, and most sweeps need none

        where, bindings = _signal_conditions(criteria, session, signal)
        rows = self._database.rows(
            f"SELECT s.session_uid, g.signal, g.ts_ms, g.detail, g.count, g.evidence {_SIGNALS}{where}"
            " ORDER BY coalesce(g.ts_ms, 0) DESC, s.session_uid, g.id LIMIT ? OFFSET ?",
            [*bindings, -1 if limit is None else limit, offset],
        )
        return [
            Signal(uid, name, rfc3339(ts_ms), detail, count, tuple(orjson.loads(evidence)))
            for uid, name, ts_ms, detail, count, evidence in rows
        ]

    def signal_count(self, criteria: SessionFilter, session: SessionKey | None, signal: str | None) -> int:
        where, bindings = _signal_conditions(criteria, session, signal)
        return int(self._database.value(f"SELECT count(*) {_SIGNALS}{where}", bindings))

    def saved(self) -> Saved:
        rows = self._database.rows(
            "SELECT count(*), coalesce(sum(raw_tokens), 0), coalesce(sum(kept_tokens), 0) FROM digests"
        )
        return Saved(*rows[0])


def _signal_conditions(
    criteria: SessionFilter, session: SessionKey | None, signal: str | None
) -> tuple[str, list[Any]]:
    tests, bindings = row_conditions(criteria, "s.rowid IN (SELECT rowid FROM sessions WHERE {})", "g.ts_ms")
    if signal is not None:
        tests.append("g.signal = ?")
        bindings.append(signal)
    if session is not None:
        tests.append("d.agent = ? AND d.native_session_id = ?")
        bindings += session
    return f" WHERE {' AND '.join(tests)}", bindings
