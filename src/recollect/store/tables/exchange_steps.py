"""Tier 2: what each exchange of a session did, step by step, and how it went: the material of workflows."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import apsw

from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.session_headers import HeaderFilter, header_conditions
from recollect.store.tables.table import BY_DIGEST, MEMORY, Table

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


class ExchangeRow(NamedTuple):
    """An exchange as its steps. `has_succeeded` is None where nothing tells."""

    since_ms: int | None
    request_uid: str
    goal: str
    steps: str
    has_succeeded: int | None
    tokens: int
    active_ms: int
    usd: float | None


class StoredExchange(NamedTuple):
    """An exchange with its session."""

    since_ms: int | None
    request_uid: str
    goal: str
    steps: str
    has_succeeded: int | None
    tokens: int
    active_ms: int
    usd: float | None
    session_uid: str
    agent: str
    repo: str | None


class ExchangeSteps:
    """The exchanges of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def select(self, sessions: HeaderFilter, latest: int | None = None) -> list[StoredExchange]:
        """Exchanges of sessions that match, the oldest first; with `latest`, only so many of them.

        The times of `sessions` are those of the exchanges.
        """
        of_sessions, bindings = header_conditions(sessions._replace(since_ms=None, before_ms=None))
        of_digests = f"SELECT d.id FROM sessions JOIN digests d USING (agent, native_session_id) WHERE {of_sessions}"
        tests = [f"digest IN ({of_digests})"] if bindings else ["1"]
        for test, value in (("since_ms >= ?", sessions.since_ms), ("since_ms < ?", sessions.before_ms)):
            if value is not None:
                tests.append(test)
                bindings.append(value)
        columns = ", ".join(f"x.{name}" for name in ExchangeRow._fields)
        return self._database.read(
            StoredExchange,
            f"SELECT {columns}, s.session_uid, s.agent, s.repo FROM (SELECT * FROM exchange_steps"
            f" WHERE {' AND '.join(tests)} ORDER BY coalesce(since_ms, 0) DESC, id DESC LIMIT ?) x"
            " CROSS JOIN digests d ON d.id = x.digest"
            " CROSS JOIN sessions s ON s.agent = d.agent AND s.native_session_id = d.native_session_id"
            " ORDER BY coalesce(x.since_ms, 0), s.session_uid, x.id",
            [*bindings, -1 if latest is None else latest],
        )


def put_exchanges(connection: apsw.Connection, exchanges: Iterable[tuple[int, Sequence[ExchangeRow]]]) -> None:
    names, marks = ", ".join(ExchangeRow._fields), ", ".join("?" * len(ExchangeRow._fields))
    connection.executemany(
        f"INSERT INTO exchange_steps (digest, is_sealed, {names}) VALUES (?, 0, {marks})",
        [(digest, *row) for digest, rows in exchanges for row in rows],
    )
