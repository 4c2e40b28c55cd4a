"""The files the store was read from: how far, what they looked like then, and what was wrong with them."""

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from recollect.model.clock import now_ms
from recollect.store.sqlite.database import Database
from recollect.store.tables.table import BY_SOURCE, CACHE, Table, column

if TYPE_CHECKING:
    from recollect.store.batch import Batch


SOURCES = Table(
    "sources",
    CACHE,
    (
        column.row_number("id"),
        *column.plain("host", "agent"),
        *column.paths("path"),
        *column.labels("kind"),
        *column.numbers("size", "mtime_ns", "ctime_ns", "inode", "reader", "offset", "line"),
        *column.plain("head", "tail"),
        *column.documents("state"),
        *column.labels("failure?"),
        *column.numbers("read_ms", "gone_ms?"),
    ),
    unique=("host", "agent", "path"),
)

PROBLEMS = Table(
    "problems",
    CACHE,
    (
        column.row_number("id"),
        *column.numbers("source", "line?", "offset?"),
        *column.labels("reason"),
        *column.text_bytes("raw"),
        *column.numbers("found_ms"),
    ),
    owner=BY_SOURCE,
    unique=("source", "offset"),
)


class SourceRow(NamedTuple):
    """What is remembered of a file: its signature, and the cursor up to which it was read."""

    host: str
    agent: str
    path: str
    kind: str
    size: int = 0
    mtime_ns: int = -1  # of no file: one that is found there counts as changed
    ctime_ns: int = -1
    inode: int = 0
    reader: int = 0
    offset: int = 0
    line: int = 0
    head: str = ""
    tail: str = ""
    state: str = "{}"


class KnownSource(NamedTuple):
    """A file as it was when it was last read. Its `row` has no state, which is long and seldom needed."""

    id: int
    row: SourceRow
    failure: str | None
    gone_ms: int | None

    @property
    def signature(self) -> tuple[int, int, int, int]:
        return self.row.size, self.row.mtime_ns, self.row.ctime_ns, self.row.inode


class SkippedLine(NamedTuple):
    agent: str
    path: str
    line: int | None
    offset: int | None
    reason: str
    raw: bytes
    found_ms: int


# Newer than any version of an adapter: such a source is read from its start, and nothing of it is dropped before.
READ_ELSEWHERE = 1 << 30

_COLUMNS = SourceRow._fields
_UPDATES = ", ".join(f"{name} = excluded.{name}" for name in (*_COLUMNS[3:], "failure", "read_ms", "gone_ms"))
_UPSERT = (
    f"INSERT INTO sources ({', '.join(_COLUMNS)}, failure, read_ms, gone_ms)"
    f" VALUES ({', '.join('?' * len(_COLUMNS))}, ?, ?, NULL)"
    f" ON CONFLICT (host, agent, path) DO UPDATE SET {_UPDATES} RETURNING id"
)
_MARK_UNREAD = (
    f"INSERT INTO sources ({', '.join(_COLUMNS)}, read_ms) VALUES ({', '.join('?' * len(_COLUMNS))}, ?)"
    " ON CONFLICT (host, agent, path) DO UPDATE SET mtime_ns = -1"
)
_INSERT_PROBLEM = (
    "INSERT OR IGNORE INTO problems (source, line, offset, reason, raw, found_ms) VALUES (?, ?, ?, ?, ?, ?)"
)
# A file that tells of more sessions is a prompt history: each of them need not know how long it is by now.
_SESSIONS_OF_A_LOG = 32


class Sources:
    """Cursors and problems of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def known(self, host: str, agent: str, paths: Iterable[str] | None = None) -> dict[str, KnownSource]:
        """Return the files of an agent that this host has read, by path: all, or those among `paths`."""
        condition = "host = ? AND agent = ?"
        if paths is None:
            sources = self._known(condition, (host, agent))
        else:
            sources = [s for path in paths for s in self._known(f"{condition} AND path = ?", (host, agent, path))]
        return {source.row.path: source for source in sources}

    def known_elsewhere(self, host: str, agent: str) -> dict[str, KnownSource]:
        """Return every file of an agent that exactly one other host has read, by path."""
        sources = self._known("host <> ? AND agent = ?", (host, agent))
        times = Counter(source.row.path for source in sources)
        return {source.row.path: source for source in sources if times[source.row.path] == 1}

    def _known(self, condition: str, bindings: tuple[str, ...]) -> list[KnownSource]:
        rows = self._database.rows(
            f"SELECT {', '.join(_COLUMNS[:-1])}, '', id, failure, gone_ms FROM sources WHERE {condition}", bindings
        )
        size = len(_COLUMNS)
        return [KnownSource(row[size], SourceRow._make(row[:size]), row[size + 1], row[size + 2]) for row in rows]

    def state(self, source: int) -> str:
        """Return what the adapter remembers of a source."""
        return str(self._database.value("SELECT state FROM sources WHERE id = ?", (source,)))

    def is_known(self, row: SourceRow) -> bool:
        """Check whether a file at this place was read before."""
        key = (row.host, row.agent, row.path)
        return self._database.value("SELECT 1 FROM sources WHERE host = ? AND agent = ? AND path = ?", key) is not None

    def save(self, connection: apsw.Connection, batch: "Batch") -> int:
        """Move a source's cursor, in the transaction that stores what was read up to it."""
        source = int(connection.execute(_UPSERT, (*batch.source, None, now_ms())).get)
        _make_dirty(connection, [source], at_most=_SESSIONS_OF_A_LOG)
        if batch.problems:
            connection.executemany(_INSERT_PROBLEM, [(source, *problem, now_ms()) for problem in batch.problems])
        return source

    @staticmethod
    def save_unread(connection: apsw.Connection, batch: "Batch") -> int:
        """Know a file that another store read, or that only packs tell of; one that is known keeps its cursor.

        It has no cursor: if it is ever found here, it is read from its start.
        """
        row = batch.source
        sql = "SELECT id FROM sources WHERE host = ? AND agent = ? AND path = ?"
        source = connection.execute(sql, (row.host, row.agent, row.path)).get
        if source is None:
            columns = (*SourceRow._fields, "read_ms", "gone_ms")
            bare = SourceRow(*row[:4], size=row.size, reader=READ_ELSEWHERE)
            connection.execute(
                f"INSERT INTO sources ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})",
                (*bare, now_ms(), now_ms()),
            )
            source = connection.last_insert_rowid()
        for problem in batch.problems:
            connection.execute(
                "INSERT INTO problems (source, line, offset, reason, raw, found_ms) SELECT ?1, ?2, ?3, ?4, ?5, ?6"
                " WHERE NOT EXISTS (SELECT 1 FROM problems WHERE source = ?1 AND line IS ?2 AND offset IS ?3)",
                (source, *problem, now_ms()),
            )
        return int(source)

    def read_again(self, stream: int) -> None:
        """Make the next sweep read all files of a session from their start."""
        self._database.write(
            "UPDATE sources SET mtime_ns = -1, reader = ?, offset = 0, line = 0, head = '', tail = '', state = '{}'"
            " WHERE id IN (SELECT source FROM stream_sources WHERE stream = ?)",
            (READ_ELSEWHERE, stream),
        )

    def note(self, row: SourceRow, failure: str | None = None, unread: Sequence[SourceRow] = ()) -> None:
        """Note what a file looks like that has no cursor, so that the next sweep does not open it unchanged.

        It could not be read, or is a container with these units to be read.
        """
        with self._database.transaction() as connection:
            connection.execute(_UPSERT, (*row, failure, now_ms()))
            connection.executemany(_MARK_UNREAD, [(*row._replace(mtime_ns=-1), now_ms()) for row in unread])

    def move(self, source: KnownSource, host: str, path: str) -> None:
        """Note that a source is elsewhere: its agent moved the file, say to archive it, or the host was renamed."""
        with self._database.transaction() as connection:
            connection.execute(
                "UPDATE sources SET host = ?, path = ?, gone_ms = NULL WHERE id = ?", (host, path, source.id)
            )
            _make_dirty(connection, [source.id])

    def mark_gone(self, sources: Sequence[int], *, is_gone: bool = True) -> None:
        """Note that files are no longer there, or there again. What was read from them stays."""
        if sources:
            gone_ms = now_ms() if is_gone else None
            with self._database.transaction() as connection:
                sql = "UPDATE sources SET gone_ms = ? WHERE id = ?"
                connection.executemany(sql, [(gone_ms, source) for source in sources])
                _make_dirty(connection, sources)

    def drop(self, sources: Iterable[int]) -> None:
        """Strike out what was only known for a failure that is over."""
        ids = [(source,) for source in sources]
        if ids:
            self._database.write_all("DELETE FROM sources WHERE id = ?", ids)

    def latest(self, host: str, limit: int) -> list[tuple[str, int, int]]:
        """Path, size and mtime_ns of the files that were written last, as they were when they were read."""
        return self._database.rows(
            "SELECT path, size, mtime_ns FROM sources WHERE host = ? AND gone_ms IS NULL"
            " ORDER BY mtime_ns DESC LIMIT ?",
            (host, limit),
        )

    def folders(self, host: str) -> set[str]:
        """Return the folders in which files were read, with a slash at their end."""
        paths = self._database.iter_rows("SELECT path FROM sources WHERE host = ?", (host,))
        return {path.rpartition("/")[0] + "/" for (path,) in paths}

    def roots(self, host: str, roots: Mapping[str, Iterable[Path]]) -> dict[str, list[str]]:
        """Return the agents' homes, links resolved, below which files are known; by agent."""
        resolved = {agent: sorted({os.path.realpath(path) for path in paths}) for agent, paths in roots.items()}
        sql = "SELECT 1 FROM sources WHERE host = ? AND agent = ? AND path > ? || '/' AND path < ? || '0' LIMIT 1"
        return {  # `0` comes after `/`
            agent: [path for path in paths if self._database.value(sql, (host, agent, *[path_key(Path(path))] * 2))]
            for agent, paths in resolved.items()
        }

    def problems(self) -> list[SkippedLine]:
        return self._database.read(
            SkippedLine,
            "SELECT s.agent, s.path, p.line, p.offset, p.reason, p.raw, p.found_ms"
            " FROM problems p JOIN sources s ON s.id = p.source"
            " UNION ALL SELECT agent, path, NULL, NULL, failure, x'', read_ms FROM sources"
            " WHERE failure IS NOT NULL AND gone_ms IS NULL"
            " ORDER BY 1, 2, 4",
        )

    def counts(self) -> dict[str, Any]:
        total, failed, gone, size = self._database.rows(
            "SELECT count(*) FILTER (WHERE kind NOT IN ('folder', 'container')), count(failure), count(gone_ms),"
            " coalesce(sum(size) FILTER (WHERE kind <> 'container'), 0)"
            " FROM sources WHERE kind <> 'live'"  # a host is no file
        )[0]
        bad_lines = self._database.value("SELECT count(*) FROM problems")
        return {
            "sources": total,
            "sources_failed": failed,
            "sources_gone": gone,
            "source_bytes": size,
            "bad_lines": bad_lines,
        }


def _make_dirty(connection: apsw.Connection, sources: Sequence[int], at_most: int = 1 << 30) -> None:
    """Mark the sessions of these sources to be accounted for again, but for sources that tell of too many."""
    connection.executemany(
        "UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM stream_sources WHERE source = ?1)"
        " AND (SELECT count(*) FROM stream_sources WHERE source = ?1) <= ?2",
        [(source, at_most) for source in sources],
    )


def path_key(path: Path) -> str:
    """Return a path as text that a database takes: bytes that are no UTF-8 are written as escapes."""
    text = str(path)
    return text if text.isascii() else os.fsencode(text).decode("utf-8", "backslashreplace")
