"""What a user says about sessions: stars, tags, notes, names, and views: lists of sessions that the user named.

Rows are kept until the user or `forget` removes them.
"""

from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import apsw

from recollect.clock import now_ms
from recollect.errors import NotFound
from recollect.kinds import SessionKey
from recollect.store.ledger import Ledger
from recollect.store.sqlite.database import Database
from recollect.store.tables.table import BY_SESSION, MEMORY, Table, column, json_list
from recollect.text import spaced

STAR, TAG, NOTE, NAME = "star", "tag", "note", "name"
FORGET = "forget"  # an agent's request, which the user may confirm; its text is the reason
MANY = (TAG, NOTE)  # of which a session may have several

ANNOTATIONS = Table(
    "annotations",
    MEMORY,
    (
        *column.plain("agent"),
        *column.identifiers("native_session_id"),
        *column.plain("kind"),
        *column.texts("text"),
        *column.numbers("made_ms"),
    ),
    owner=BY_SESSION,
    key=("agent", "native_session_id", "kind", "text"),
    is_exported=True,
)


VIEWS = Table(
    "views",
    MEMORY,
    (*column.plain("group_name"), *column.texts("name", "query"), *column.numbers("made_ms")),
    key=("group_name", "name"),
    group_column="group_name",
)


class View(NamedTuple):
    """A list of sessions by its name."""

    name: str
    query: str
    made_ms: int


class Annotation(NamedTuple):
    """One thing a user said about a session; a star says nothing more."""

    agent: str
    native_session_id: str
    kind: str
    text: str
    made_ms: int


class AnnotationTable:
    """The annotations and saved lists of a store; in a group's only its own."""

    def __init__(self, database: Database, writer: Callable[[], tuple[Database, Ledger]]) -> None:
        self._database = database
        self._writer = writer

    def put(self, key: SessionKey, kind: str, text: str) -> None:
        """Keep an annotation; of a kind that a session has one of, in place of the one before."""
        with self._writing(key).transaction() as connection:
            if kind not in MANY:
                _drop(connection, key, kind)
            connection.execute("INSERT OR IGNORE INTO annotations VALUES (?, ?, ?, ?, ?)", (*key, kind, text, now_ms()))
            if kind == NAME:
                name_sessions(connection, [key])
                _index_name(connection, key, text)

    def drop(self, key: SessionKey, kind: str, text: str | None = None) -> None:
        """Remove one annotation, or all of a kind."""
        with self._writing(key).transaction() as connection:
            _drop(connection, key, kind, text)

    def _writing(self, key: SessionKey) -> Database:
        if not self._database.value("SELECT 1 FROM sessions WHERE agent = ? AND native_session_id = ?", key):
            raise NotFound(f"No session has this id: {':'.join(key)}")
        return self._writer()[0]

    def of(self, key: SessionKey) -> list[Annotation]:
        """Return what was said about a session, the oldest first."""
        return self._database.read(
            Annotation,
            "SELECT * FROM annotations WHERE agent = ? AND native_session_id = ? ORDER BY made_ms, kind, text",
            key,
        )

    def tags(self) -> list[str]:
        """Return all tags, the most frequent first."""
        sql = "SELECT text FROM annotations WHERE kind = 'tag' GROUP BY text ORDER BY count(*) DESC, text"
        return self._database.column(sql)

    def of_kind(self, kind: str) -> list[Annotation]:
        """Return all of one kind, the oldest first."""
        return self._database.read(Annotation, "SELECT * FROM annotations WHERE kind = ? ORDER BY made_ms", (kind,))

    def having(self, kind: str, texts: Collection[str] = ()) -> list[SessionKey]:
        """Return the sessions with such an annotation; with `texts`, with one of these, in any case."""
        return self._database.read(
            SessionKey,
            "SELECT DISTINCT agent, native_session_id FROM annotations WHERE kind = ?1"
            " AND (?2 = '[]' OR lower(text) IN (SELECT lower(value) FROM json_each(?2)))",
            (kind, json_list(texts)),
        )

    def views(self, group: str) -> list[View]:
        """Return the lists of a group, the oldest first."""
        return self._database.read(
            View, "SELECT name, query, made_ms FROM views WHERE group_name = ? ORDER BY made_ms, name", (group,)
        )

    def put_view(self, group: str, name: str, query: str) -> None:
        """Keep a list, in place of one of the same name."""
        self._writer()[0].write("INSERT OR REPLACE INTO views VALUES (?, ?, ?, ?)", (group, name, query, now_ms()))

    def drop_view(self, group: str, name: str) -> None:
        """Remove a list, if there is one of this name."""
        self._writer()[0].write("DELETE FROM views WHERE group_name = ? AND name = ?", (group, name))


def _drop(connection: apsw.Connection, key: SessionKey, kind: str, text: str | None = None) -> None:
    connection.execute(
        "DELETE FROM annotations WHERE agent = ?1 AND native_session_id = ?2 AND kind = ?3 AND coalesce(text = ?4, 1)",
        (*key, kind, text),
    )


def _index_name(connection: apsw.Connection, key: SessionKey, name: str) -> None:
    """Make search find a session by its name, as it finds others by the titles in their digests."""
    connection.execute(
        "UPDATE digest_text SET text = ?1 || char(10) || text WHERE NOT instr(text, ?1)"
        " AND rowid IN (SELECT id FROM digests WHERE agent = ?2 AND native_session_id = ?3)",
        (spaced(name), *key),
    )


def name_sessions(connection: apsw.Connection, keys: Sequence[SessionKey]) -> None:
    """Give sessions that the user named that title, whatever their logs say."""
    connection.executemany(
        "UPDATE sessions SET title = n.text FROM annotations n WHERE n.kind = 'name'"
        " AND n.agent = sessions.agent AND n.native_session_id = sessions.native_session_id"
        " AND sessions.agent = ? AND sessions.native_session_id = ?",
        keys,
    )
