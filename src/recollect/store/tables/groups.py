"""Groups (workspaces kept apart), the session each of them is at, and the bookmarks of those it put aside.

And what a user says about sessions: stars, tags, notes, names, and views: lists of sessions that the user named. These
are kept until the user or `forget` removes them.
"""

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

import apsw

from recollect.model.clock import now_ms
from recollect.model.errors import NotFound, NotInGroup
from recollect.model.kinds import SessionKey
from recollect.model.text import spaced
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.sqlite.database import Database
from recollect.store.tables.table import BY_SESSION, MEMORY, Table, column, json_list

GROUPS = Table(
    "groups",
    MEMORY,
    (
        *column.plain("name", "agent"),
        *column.paths("path", "home?"),
        *column.numbers("created_ms"),
    ),
    key=("name",),
    group_column="name",
)

POINTERS = Table(
    "pointers",
    MEMORY,
    (
        *column.plain("group_name", "agent", "native_session_id", "last_uuid?"),
        *column.numbers("updated_ms"),
    ),
    owner=BY_SESSION,
    key=("group_name",),
    group_column="group_name",
)

SESSION_HISTORY = Table(
    "session_history",
    MEMORY,
    (
        column.lasting_number("id"),
        *column.plain("group_name", "agent", "native_session_id"),
        *column.texts("name"),
        *column.numbers("created_ms", "archived_ms"),
    ),
    owner=BY_SESSION,
    unique=("group_name", "agent", "native_session_id"),
    is_exported=True,
    group_column="group_name",
)

# What sandboxed agents had done, with the answers: a request that is met again is not done again. An answer expires,
# the rest of its row stays.
GROUP_REQUESTS = Table(
    "group_requests",
    MEMORY,
    (
        *column.plain("group_name", "request"),
        *column.documents("answer"),
        *column.numbers("at_ms"),
    ),
    key=("group_name", "request"),
    group_column="group_name",
)

GROUP, BOOKMARK = "group", "bookmark"  # of the ledger's lines
MAIN_GROUP = "main"
LAST_CHANGE = "!last"  # the request of what no request asked for: no id begins like it
_EXPIRED = '{"expired":true}'


class GroupRow(NamedTuple):
    """A group. Without a `home`, its agents' homes are in its folder of the store."""

    name: str
    agent: str
    path: str
    home: str | None
    created_ms: int


class Pointer(NamedTuple):
    """The session a group is at, and the last message of the agent in it as far as a runner saw one."""

    session: SessionKey
    last_uuid: str | None
    updated_ms: int


class BookmarkRow(NamedTuple):
    """A session that a group put aside under a name."""

    id: int
    group_name: str
    session: SessionKey
    name: str
    created_ms: int
    archived_ms: int


class GroupTable:
    """The groups of a store; `only` is the one that may be written by a store opened for that group."""

    def __init__(self, database: Database, writer: Callable[[], tuple[Database, Ledger]], only: str | None) -> None:
        self._database = database
        self._writer = writer
        self._only = only

    def all(self) -> list[GroupRow]:
        columns = ", ".join(GroupRow._fields)
        return self._database.read(GroupRow, f"SELECT {columns} FROM groups ORDER BY name")

    def add(self, group: GroupRow) -> None:
        database, ledger = self._writing(group.name, changes_groups=True)
        ledger.append(GROUP, _group_data(group))
        database.write(_INSERT_GROUP, group)

    def remove(self, name: str) -> None:
        """Drop a group with its pointer and bookmarks; its sessions and files stay."""
        database, ledger = self._writing(name, changes_groups=True)
        with database.transaction() as connection:
            connection.execute("DELETE FROM groups WHERE name = ?", (name,))
            for table in (POINTERS, SESSION_HISTORY, GROUP_REQUESTS):
                connection.execute(f"DELETE FROM {table.name} WHERE group_name = ?", (name,))
        ledger.rewrite(lambda record: record.kind not in (GROUP, BOOKMARK) or record.data["group"] != name)

    def pointer(self, group: str) -> Pointer | None:
        sql = "SELECT agent, native_session_id, last_uuid, updated_ms FROM pointers WHERE group_name = ?"
        for agent, native_id, last_uuid, updated_ms in self._database.rows(sql, (group,)):
            return Pointer(SessionKey(agent, native_id), last_uuid, updated_ms)
        return None

    def set_pointer(self, group: str, session: SessionKey, last_uuid: str | None, was: SessionKey | None) -> bool:
        """Point a group at a session, unless it was moved meanwhile: it has to be at `was`, or at this one already."""
        database, _ = self._writing(group)
        with database.transaction() as connection:
            now = connection.execute(
                "SELECT agent, native_session_id FROM pointers WHERE group_name = ?", (group,)
            ).fetchone()
            if now not in (was, session):
                return False
            _require_own(connection, group, session)
            _point(connection, group, Pointer(session, last_uuid, now_ms()))
        return True

    def bookmarks(self, group: str | None = None) -> list[BookmarkRow]:
        """Return the bookmarks of a group, or of all there are, the newest first."""
        rows = self._database.rows(
            "SELECT id, group_name, agent, native_session_id, name, created_ms, archived_ms FROM session_history"
            " WHERE ?1 IS NULL OR group_name = ?1 ORDER BY id DESC",
            (group,),
        )
        return [BookmarkRow(row[0], row[1], SessionKey(row[2], row[3]), *row[4:]) for row in rows]

    def change(
        self,
        group: str,
        bookmark: BookmarkRow | None = None,
        *,
        restored: BookmarkRow | None = None,
        pointer: Pointer | None = None,
        answer: tuple[str, str] | None = None,
    ) -> None:
        """Keep a bookmark, remove a restored one and move the pointer, all at once; without a pointer, drop it.

        `answer` goes with the request it answers, so that both are there or neither is.
        """
        database, ledger = self._writing(group)
        if bookmark is not None:
            ledger.append(BOOKMARK, _bookmark_data(bookmark))
        with database.transaction() as connection:
            if bookmark is not None:
                connection.execute(_INSERT_BOOKMARK, _bookmark_values(bookmark))
            if restored is not None:
                connection.execute("DELETE FROM session_history WHERE id = ?", (restored.id,))
            connection.execute("DELETE FROM pointers WHERE group_name = ?", (group,))
            if pointer is not None:
                _point(connection, group, pointer)
            if answer is not None:
                connection.execute(
                    "INSERT OR REPLACE INTO group_requests VALUES (?, ?, ?, ?)", (group, *answer, now_ms())
                )
        if restored is not None:
            gone = _bookmark_data(restored)
            ledger.rewrite(lambda record: record.kind != BOOKMARK or record.data != gone)

    def answer(self, group: str, request: str) -> str | None:
        """Return the answer that a request got, as JSON; None for a new one."""
        sql = "SELECT answer FROM group_requests WHERE group_name = ? AND request = ?"
        answer = self._database.value(sql, (group, request))
        return None if answer is None else str(answer)

    def answered(self) -> list[tuple[str, str]]:
        """Groups and ids of the requests whose answers are held."""
        return self._database.rows(
            "SELECT group_name, request FROM group_requests WHERE answer <> ? AND request <> ?", (_EXPIRED, LAST_CHANGE)
        )

    def expire_answers(self, before_ms: int | None = None) -> None:
        """Keep nothing but the outcome of the requests answered before then, or of all."""
        condition = "WHERE answer <> ?1 AND at_ms < coalesce(?2, at_ms + 1)"
        if self._database.value(f"SELECT 1 FROM group_requests {condition}", (_EXPIRED, before_ms)):
            self._writer()[0].write(f"UPDATE group_requests SET answer = ?1 {condition}", (_EXPIRED, before_ms))

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """Groups and bookmarks as lines of the ledger."""
        groups = [(GROUP, _group_data(group)) for group in self.all()]
        return groups + [(BOOKMARK, _bookmark_data(bookmark)) for bookmark in self.bookmarks()]

    def _writing(self, group: str, *, changes_groups: bool = False) -> tuple[Database, Ledger]:
        if self._only is not None and (changes_groups or group != self._only):
            raise NotInGroup(f"Not allowed inside group `{self._only}`")
        return self._writer()


_INSERT_GROUP = (
    f"INSERT OR IGNORE INTO groups ({', '.join(GroupRow._fields)}) VALUES ({', '.join('?' * len(GroupRow._fields))})"
)
_INSERT_BOOKMARK = (
    "INSERT INTO session_history (group_name, agent, native_session_id, name, created_ms, archived_ms)"
    " VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET name = excluded.name, archived_ms = excluded.archived_ms"
)


def _require_own(connection: apsw.Connection, group: str, session: SessionKey) -> None:
    """A group's session may be too new to be stored, but it may not be another group's."""
    stored = connection.execute(
        'SELECT "group" FROM sessions WHERE agent = ? AND native_session_id = ?', session
    ).fetchone()
    if group != MAIN_GROUP and stored is not None and stored[0] != group:
        raise NotFound(f"No session of group `{group}` has this id: {':'.join(session)}")


def _point(connection: apsw.Connection, group: str, pointer: Pointer) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO pointers (group_name, agent, native_session_id, last_uuid, updated_ms)"
        " VALUES (?, ?, ?, ?, ?)",
        (group, *pointer.session, pointer.last_uuid, pointer.updated_ms),
    )


def _group_data(group: GroupRow) -> dict[str, Any]:
    return {"group": group.name} | {name: value for name, value in group._asdict().items() if name != "name"}


def _bookmark_data(bookmark: BookmarkRow) -> dict[str, Any]:
    names = ("group", "agent", "native_session_id", "name", "created_ms", "archived_ms")
    return dict(zip(names, _bookmark_values(bookmark), strict=True))


def _bookmark_values(bookmark: BookmarkRow) -> tuple[Any, ...]:
    return (bookmark.group_name, *bookmark.session, bookmark.name, bookmark.created_ms, bookmark.archived_ms)


def restore_group(connection: apsw.Connection, record: LedgerRecord) -> None:
    data = {name: value for name, value in record.data.items() if name != "group"}
    connection.execute(_INSERT_GROUP, GroupRow(name=record.data["group"], **data))


def restore_bookmark(connection: apsw.Connection, record: LedgerRecord) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO session_history (group_name, agent, native_session_id, name, created_ms, archived_ms)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        tuple(record.data.values()),
    )


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
