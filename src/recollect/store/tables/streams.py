"""Whole sessions of cache.db: which changed, what their sources say of them, which values they named."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw
import orjson

from recollect.model.kinds import FILES_LANE, SessionKey
from recollect.store.payloads import packs
from recollect.store.sqlite.database import Database, translated
from recollect.store.tables.events import IS_ABANDONED, IS_RETRY
from recollect.store.tables.sources import READ_ELSEWHERE
from recollect.store.tables.table import (
    BY_NATIVE_ID,
    BY_STREAM,
    CACHE,
    KEYS,
    TOKENS,
    Table,
    column,
    json_keys,
    json_list,
)

if TYPE_CHECKING:
    from recollect.redact import NamedValue
    from recollect.store.batch import Batch
    from recollect.store.tables.steps import Step


# A row for each session whose events are held; `is_dirty` until its row in memory.db is up to date. `redacted_with` is
# the oldest version of the redaction rules that anything of it went through; NULL: none.
STREAMS = Table(
    "streams",
    CACHE,
    (
        column.row_number("id"),
        *column.plain("agent", "native_id"),
        column.count("next_seq", 1),
        column.count("stream_bytes", 0),
        column.count("pack_generation", 1),
        column.count("pack_bytes", 0),
        column.count("is_dirty", 1),
        *column.numbers("discovered_ms"),
        *column.plain("redacted_with?"),
    ),
    owner=BY_NATIVE_ID,
    unique=("agent", "native_id"),
    extras=("CREATE INDEX streams_to_account_for ON streams (id) WHERE is_dirty",),
)

USAGE = Table(
    "usage",
    CACHE,
    (
        *column.numbers("stream"),
        *column.identifiers("usage_id"),
        *column.numbers("ts_ms?"),
        *column.names("model?", "provider?"),
        *column.numbers(*TOKENS),
        *column.reals("usd?"),
        *column.numbers("includes_sub_agents", "cache_write_1h_tokens", "web_searches", "requests"),
        column.count("is_copy", 0),
    ),
    owner=BY_STREAM,
    key=("stream", "usage_id"),
    extras=("CREATE INDEX usage_by_time ON usage (stream, ts_ms)",),
)

# Of a response that is logged more than once, the largest of each count.
FIGURES = (*TOKENS, "cache_write_1h_tokens", "web_searches", "requests")

COST_TOTALS = Table(
    "cost_totals",
    CACHE,
    (
        *column.numbers("stream"),
        *column.identifiers("ledger"),
        *column.reals("usd"),
        *column.numbers("ts_ms?"),
    ),
    owner=BY_STREAM,
    key=("stream", "ledger", "usd"),
)

STREAM_SOURCES = Table(
    "stream_sources",
    CACHE,
    (*column.numbers("stream", "source"),),
    owner=BY_STREAM,
    key=("stream", "source"),
    extras=("CREATE INDEX stream_sources_by_source ON stream_sources (source)",),
)


_LINKS = ("parent_native_id", "root_native_id", "base_native_id")

# What each source says of a session: a session's facts are merged from all its sources.
INFOS = Table(
    "infos",
    CACHE,
    (
        *column.plain("agent", "native_id"),
        *column.numbers("source"),
        *(column.derived(link, f"info ->> '$.first.{link}'") for link in _LINKS),
        *column.numbers("born_ms?"),
        *column.documents("info"),
    ),
    owner=BY_NATIVE_ID,
    key=("agent", "native_id", "source"),
    extras=tuple(f"CREATE INDEX infos_by_{link} ON infos (agent, {link}) WHERE {link} IS NOT NULL" for link in _LINKS),
)


class Ancestry(NamedTuple):
    """Where a session says it comes from, in native ids, and when its file was begun."""

    parent: str | None = None
    root: str | None = None
    base: str | None = None
    born_ms: int | None = None


# Stands in `stream_sources` for what a session's sources held once and hold no more.
LOST = 0
_HAS_LOST = (
    f"SELECT 1 FROM stream_sources t JOIN streams s ON s.id = t.stream WHERE t.source = {LOST}"
    " AND (s.agent, s.native_id) = (infos.agent, infos.native_id)"
)
CHOSEN = KEYS + "SELECT s.id FROM keys JOIN streams s USING (agent, native_id)"
HALF_BYTES = 8  # of an event_uid that name its session
_STREAMS_AT_ONCE = 50  # others wait to write meanwhile


class Streams:
    """Whole sessions of Tier 1, for the steps that need more than one event at a time.

    CROSS JOIN is SQLite's word for a join in the order given: left alone it begins with all events there are.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def dirty(self) -> list[SessionKey]:
        """Sessions that hold something their row in memory.db does not show yet, in order of arrival."""
        return self._keys("SELECT agent, native_id FROM streams WHERE is_dirty ORDER BY id")

    def _keys(self, sql: str, bindings: Sequence[Any] = ()) -> list[SessionKey]:
        return self._database.read(SessionKey, sql, bindings)

    def names(self) -> dict[SessionKey, int]:
        """Return the streams of all sessions."""
        rows = self._database.iter_rows("SELECT id, agent, native_id FROM streams")
        return {SessionKey(agent, native_id): stream for stream, agent, native_id in rows}

    def set_dirty(self, keys: Iterable[tuple[str, str]], is_dirty: bool) -> None:
        self._database.write_all(
            "UPDATE streams SET is_dirty = ? WHERE agent = ? AND native_id = ?", [(is_dirty, *key) for key in keys]
        )

    def set_all_dirty(self) -> None:
        """Have every session settled again. Durable: that it was asked for is noted in the other database next."""
        with self._database.flushing(is_on=True):
            self._database.write("UPDATE streams SET is_dirty = 1")

    def has_infos(self) -> bool:
        """Check whether any source was ever read that says something of a session."""
        return self._database.value("SELECT 1 FROM infos LIMIT 1") is not None

    def infos_of(self, keys: Collection[SessionKey]) -> dict[SessionKey, list[dict[str, Any]]]:
        """Return what each source says about each of these sessions."""
        rows = self._database.rows(
            f"{KEYS}SELECT keys.agent, keys.native_id, i.info FROM keys CROSS JOIN infos i USING (agent, native_id)"
            " JOIN sources s ON s.id = i.source ORDER BY s.kind, s.host, s.path",
            (json_keys(keys),),
        )
        infos: dict[SessionKey, list[dict[str, Any]]] = {}
        with translated(self._database.path):
            for agent, native_id, info in rows:
                infos.setdefault(SessionKey(agent, native_id), []).append(orjson.loads(info))
        return infos

    def origins(self, keys: Collection[SessionKey]) -> dict[SessionKey, Ancestry]:
        """Return what sessions say of their origin: the first source that says anything counts, in a stable order."""
        rows = self._database.iter_rows(
            f"{KEYS}SELECT keys.agent, keys.native_id,"
            " i.parent_native_id, i.root_native_id, i.base_native_id, i.born_ms"
            " FROM keys CROSS JOIN infos i USING (agent, native_id) JOIN sources s ON s.id = i.source"
            " WHERE coalesce(i.parent_native_id, i.root_native_id, i.base_native_id, i.born_ms) IS NOT NULL"
            " ORDER BY s.kind, s.host, s.path",
            (json_keys(keys),),
        )
        origins: dict[SessionKey, Ancestry] = {}
        for agent, native_id, *links in rows:
            key = SessionKey(agent, native_id)
            news = [value if value != native_id else None for value in links]
            known = origins.get(key, Ancestry())
            origins[key] = Ancestry._make(new if old is None else old for old, new in zip(known, news, strict=True))
        return origins

    def spawned(self, agent: str, native_id: str) -> list[str]:
        """Sessions that name this one as their parent."""
        rows = self._database.rows(
            "SELECT DISTINCT native_id FROM infos WHERE agent = ? AND parent_native_id = ?", (agent, native_id)
        )
        return [name for (name,) in rows if name != native_id]

    def derived(self, keys: Collection[SessionKey]) -> set[SessionKey]:
        """Sessions that name one of these as their parent, root or base."""
        below = " UNION ".join(
            "SELECT i.agent, i.native_id FROM keys k CROSS JOIN infos i"
            f" ON i.agent = k.agent AND i.{link} = k.native_id AND i.native_id <> k.native_id"
            for link in _LINKS
        )
        return set(self._keys(KEYS + below, (json_keys(keys),)))

    def set_marks(self, events: Sequence["Step"]) -> None:
        """Write the kinds of events, and whether they are retries or abandoned."""
        if not events:
            return
        derived = IS_RETRY | IS_ABANDONED
        self._database.write_all(
            f"UPDATE events SET kind = ?1, base_kind = nullif(?2, ?1), flags = (flags & {~derived}) | ?3 WHERE id = ?4",
            [(event.kind, event.base_kind, event.flags & derived, event.id) for event in events],
        )

    def keep(self, sources: Collection[int]) -> None:
        """Note that these sources have lost a part: nothing of their sessions is dropped from now on."""
        if sources:
            self._database.write(
                f"INSERT OR IGNORE INTO stream_sources SELECT stream, {LOST} FROM stream_sources"
                " WHERE source IN (SELECT value FROM json_each(?))",
                (json_list(sources),),
            )

    def drop_outdated(self, sources: Collection[int], moments: Callable[[int], set[int]]) -> None:
        """Forget what an older version of an adapter read from these sources, which are read again from their start.

        A session that another source tells of too keeps its events: that one may be gone and the only copy. So does one
        with an event at a moment that its sources do not name: they have been cut or rebuilt, or never had it.
        If the process dies on the way nothing is lost, for the sources still count as outdated.
        """
        links: dict[int, list[int]] = {}
        for stream, source in self._database.rows("SELECT stream, source FROM stream_sources"):
            links.setdefault(stream, []).append(source)
        own = {stream: its for stream, its in links.items() if set(its) <= set(sources)}
        whole = {stream for stream, its in own.items() if self._is_in(stream, its, moments)}
        kept = [(stream, LOST) for stream in own.keys() - whole]
        with self._database.transaction() as connection:
            connection.executemany("INSERT OR IGNORE INTO stream_sources VALUES (?, ?)", kept)
            for table, condition in (("infos", f" AND NOT EXISTS ({_HAS_LOST})"), ("problems", "")):
                connection.execute(
                    f"DELETE FROM {table} WHERE source IN (SELECT value FROM json_each(?)){condition}",
                    (json_list(sources),),
                )
        outdated = self._database.rows(
            "SELECT id, agent, native_id, pack_generation FROM streams WHERE id IN (SELECT value FROM json_each(?))",
            (json_list(whole),),
        )
        for start in range(0, len(outdated), _STREAMS_AT_ONCE):
            some = outdated[start : start + _STREAMS_AT_ONCE]
            with self._database.transaction() as connection:
                _empty(connection, [stream for stream, *_ in some])
            for _, agent, native_id, _ in some:
                packs.drop_own_packs(self._database.path.parent, agent, native_id)

    def _is_in(self, stream: int, sources: Sequence[int], moments: Callable[[int], set[int]]) -> bool:
        """Check whether sources name the moments of all events; files beside a log name none of their own."""
        rows = self._database.rows(
            f"SELECT DISTINCT ts_ms FROM events WHERE stream = ? AND ts_ms IS NOT NULL AND lane <> '{FILES_LANE}'",
            (stream,),
        )
        return {ts_ms for (ts_ms,) in rows} <= set().union(*map(moments, sources)) if rows else True

    def emptied(self, keys: Collection[SessionKey]) -> list[SessionKey]:
        """Return those that only an older version of an adapter found: their source, read again, has none of them."""
        sql = (
            f"{KEYS}SELECT agent, native_id FROM keys JOIN streams s USING (agent, native_id)"
            " WHERE pack_generation > 1 AND NOT EXISTS (SELECT 1 FROM events WHERE stream = s.id)"
            # one that lost its events to damage is not among them while its source cannot be read
            " AND NOT EXISTS (SELECT 1 FROM stream_sources t JOIN sources r ON r.id = t.source"
            f" WHERE t.stream = s.id AND r.reader = {READ_ELSEWHERE})"
        )
        return self._keys(sql, (json_keys(keys),))


def _empty(connection: apsw.Connection, streams: list[int]) -> None:
    """Delete all that is held of these sessions; copies of their events elsewhere are to be judged anew."""
    chosen = f"({', '.join(map(str, streams))})"
    copies = f"copy_of IS NOT NULL AND copy_of IN (SELECT event_uid FROM events WHERE stream IN {chosen})"
    connection.execute(f"UPDATE streams SET is_dirty = 1 WHERE id IN (SELECT stream FROM events WHERE {copies})")
    connection.execute(f"UPDATE events SET copy_of = NULL WHERE {copies}")
    for table in ("events", "frames", "usage", "cost_totals", "stream_sources"):
        connection.execute(f"DELETE FROM {table} WHERE stream IN {chosen}")
    connection.execute(
        "UPDATE streams SET next_seq = 1, stream_bytes = 0, pack_generation = pack_generation + 1, pack_bytes = 0,"
        f" is_dirty = 1 WHERE id IN {chosen}"
    )


# Values that sessions named, as the digits of their marks: what is read later is compared with them. One `is_due` until
# it is hidden in all that was stored of its session before it was named.
NAMED_VALUES = Table(
    "named_values",
    CACHE,
    (*column.numbers("stream"), *column.plain("digits", "rule"), column.count("is_due", 1)),
    owner=BY_STREAM,
    key=("stream", "digits"),
    extras=("CREATE INDEX IF NOT EXISTS named_values_due ON named_values (stream) WHERE is_due",),
)


class NamedMark(NamedTuple):
    """A value that a session named, by the digits of its mark."""

    session: SessionKey
    digits: str
    rule: str


def note_named(connection: apsw.Connection, stream: int, values: "Sequence[NamedValue]") -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO named_values (stream, digits, rule) VALUES (?, ?, ?)",
        [(stream, value.digits, value.rule) for value in values],
    )


class NamedValues:
    """The named values of a store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.at_hand: dict[SessionKey, list[NamedValue]] = defaultdict(list)  # until they are settled

    def remember(self, batches: "Iterable[Batch]") -> None:
        """Keep the values of batches at hand, in memory only."""
        for batch in batches:
            for part in batch.streams:
                if part.named:
                    self.at_hand[SessionKey(batch.source.agent, part.native_id).root] += part.named

    def all(self) -> dict[SessionKey, dict[str, str]]:
        """Return the rules of all values by the digits of their marks, for each session with its sub-agents."""
        return by_root(self._marks("1"))

    def due(self) -> list[NamedMark]:
        return self._marks("is_due")

    def _marks(self, condition: str) -> list[NamedMark]:
        rows = self._database.rows(
            "SELECT s.agent, s.native_id, n.digits, n.rule FROM named_values n"
            f" JOIN streams s ON s.id = n.stream WHERE {condition}"
        )
        return [NamedMark(SessionKey(agent, native_id), *rest) for agent, native_id, *rest in rows]

    def settle(self, marks: Iterable[NamedMark]) -> None:
        """Note that values are hidden in all that is stored of their sessions."""
        self.at_hand.clear()
        self._database.write_all(
            f"UPDATE named_values SET is_due = 0 WHERE {BY_STREAM} AND digits = ?3",
            [(*mark.session, mark.digits) for mark in marks],
        )


def by_root(marks: Iterable[NamedMark]) -> dict[SessionKey, dict[str, str]]:
    rules: dict[SessionKey, dict[str, str]] = {}
    for mark in marks:
        rules.setdefault(mark.session.root, {})[mark.digits] = mark.rule
    return rules
