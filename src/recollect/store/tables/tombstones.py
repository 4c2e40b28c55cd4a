"""Which sessions were forgotten or are left out by the user's rules, and how they are kept from coming in.

A tombstone has a session's id, the moment, and hashes of its records. It has no word, title or path of it. The hashes
recognise the copies that an agent makes when somebody resumes or forks what is forgotten here. Tombstones are
in memory.db and in the ledger, so that losing either of them brings nothing back.
"""

from array import array
from base64 import b64decode, b64encode
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from hashlib import blake2b
from sys import byteorder
from typing import Any, NamedTuple

import apsw
import orjson

from recollect.model.clock import now_ms
from recollect.model.kinds import SessionKey
from recollect.store.batch import (
    Batch,
    EventRow,
    ProblemRow,
    SourceRow,
    leave_out,
    sessions_of,
    without_text,
)
from recollect.store.ledger import Ledger, LedgerRecord
from recollect.store.payloads.writer import leave_out_events
from recollect.store.sqlite.database import Database
from recollect.store.tables.sources import Sources
from recollect.store.tables.table import BY_SESSION, MEMORY, Table, column

HASH_BYTES = 8


class PackedHashes:
    """The hashes in packed texts, each of which is sorted."""

    def __init__(self, packed: Iterable[bytes]) -> None:
        texts = list(packed)
        self._values = array("Q", b"".join(texts))
        if byteorder == "little":
            self._values.byteswap()  # they are sorted as bytes
        if len(texts) > 1:
            self._values = array("Q", sorted(self._values))

    def __contains__(self, hashed: bytes) -> bool:
        value = int.from_bytes(hashed, "big")
        index = bisect_left(self._values, value)
        return index < len(self._values) and self._values[index] == value


def pack(hashes: Iterable[bytes]) -> bytes:
    return b"".join(sorted(hashes))


def unpack(packed: bytes) -> set[bytes]:
    return {packed[start : start + HASH_BYTES] for start in range(0, len(packed), HASH_BYTES)}


# Rows outlive their sessions, which must not come back. `finished_ms` is set once nothing of one is left.
TOMBSTONES = Table(
    "tombstones",
    MEMORY,
    (
        *column.plain("agent", "native_id"),
        *column.numbers("at_ms"),
        column.hashes("event_keys"),
        *column.numbers("finished_ms?"),
    ),
    key=("agent", "native_id"),
    has_rowid=True,
)

# Sessions that keep what they share with a forgotten one, as the user answered.
KEPT_FORKS = Table("kept_forks", MEMORY, (*column.plain("agent", "native_id"),), key=("agent", "native_id"))

TOMBSTONE = "tombstone"  # of the ledger's lines
FORGOTTEN = "forgotten"  # what the sweep's report counts left-out events as
HIDDEN = "forgotten:"  # begins what replaces the path of a file; a hash of it follows
LINE = "line:"  # begins the key of a forgotten line in a file of several sessions; a hash of it follows

_COPY_KEY = EventRow._fields.index("copy_key")
_KIND = EventRow._fields.index("kind")
_SUMMARY = EventRow._fields.index("summary")
_RETRY_KEY = EventRow._fields.index("retry_key")


class Tombstone(NamedTuple):
    """A session that was forgotten. `event_keys` are hashes of its records, `kept_forks` sessions that keep theirs."""

    agent: str
    native_id: str
    event_keys: bytes
    kept_forks: tuple[str, ...] = ()

    @property
    def key(self) -> SessionKey:
        return SessionKey(self.agent, self.native_id)


def event_key(copy_key: int, kind: str, content: str) -> bytes:
    """A hash of what a copy of a record has in common with it; for `content` see `CONTENT`."""
    return blake2b(f"{copy_key}\x1f{kind}\x1f{content}".encode("utf-8", "replace"), digest_size=HASH_BYTES).digest()


def hidden_path(path: str) -> str:
    """Return what replaces the path of a file that holds only forgotten sessions."""
    return HIDDEN + blake2b(path.encode("utf-8", "replace"), digest_size=16).hexdigest()


def line_name(raw: bytes) -> str:
    """Return the key of a forgotten line that could not be read, in place of a session's id."""
    return LINE + blake2b(raw, digest_size=16).hexdigest()


def is_line(key: SessionKey) -> bool:
    return key.native_id.startswith(LINE)


class TombstoneTable:
    """The tombstones of a store, on disk."""

    def __init__(self, database: Database, ledger: Ledger) -> None:
        self._database = database
        self._ledger = ledger

    def add(self, tombstones: Collection[Tombstone], *, is_finished: bool = False) -> None:
        """Add tombstones; they are on the disk and in the ledger on return. `is_finished` where nothing was held."""
        known = self.names()
        new = [tombstone for tombstone in tombstones if tombstone.key not in known]
        if new:
            self._ledger.extend([(TOMBSTONE, _data(tombstone)) for tombstone in new])
            at_ms = now_ms()
            with self._database.transaction() as connection:
                for tombstone in new:
                    _put(connection, tombstone, at_ms, at_ms if is_finished else None)

    def take_over(self) -> None:
        """Add the tombstones that only the ledger has: memory.db is then a new or an older one."""
        if self._database.read_only:
            return
        known = self.names()
        if missing := [one for one in self._ledger.records(TOMBSTONE) if _from_data(one.data).key not in known]:
            with self._database.transaction() as connection:
                for record in missing:
                    restore_tombstone(connection, record)

    def names(self) -> set[SessionKey]:
        return set(self._database.read(SessionKey, "SELECT agent, native_id FROM tombstones"))

    def unfinished(self) -> set[SessionKey]:
        """Sessions whose removal may have stopped half-way."""
        return set(self._database.read(SessionKey, "SELECT agent, native_id FROM tombstones WHERE finished_ms IS NULL"))

    def finish(self, keys: Collection[SessionKey]) -> None:
        """Note that nothing is left of these sessions."""
        self._database.write_all(
            "UPDATE tombstones SET finished_ms = ? WHERE agent = ? AND native_id = ?",
            [(now_ms(), *key) for key in keys],
        )

    def event_keys(self, agent: str) -> Iterator[bytes]:
        for (keys,) in self._database.iter_rows("SELECT event_keys FROM tombstones WHERE agent = ?", (agent,)):
            yield keys

    def records(self) -> list[tuple[str, dict[str, Any]]]:
        """All of them as lines of the ledger. Each lists all kept forks: which tombstone they were kept for is lost."""
        forks = defaultdict(list)
        for agent, fork in sorted(self.kept_forks()):
            forks[agent].append(fork)
        rows = self._database.rows("SELECT agent, native_id, event_keys FROM tombstones ORDER BY at_ms")
        return [(TOMBSTONE, _data(Tombstone(agent, name, keys, tuple(forks[agent])))) for agent, name, keys in rows]

    def kept_forks(self) -> set[SessionKey]:
        return set(self._database.read(SessionKey, "SELECT agent, native_id FROM kept_forks"))


def _put(connection: apsw.Connection, tombstone: Tombstone, at_ms: int, finished_ms: int | None) -> None:
    row = (*tombstone.key, at_ms, tombstone.event_keys, finished_ms)
    connection.execute("INSERT OR IGNORE INTO tombstones VALUES (?, ?, ?, ?, ?)", row)
    forks = [(tombstone.agent, fork) for fork in tombstone.kept_forks]
    connection.executemany("INSERT OR IGNORE INTO kept_forks VALUES (?, ?)", forks)


def restore_tombstone(connection: apsw.Connection, record: LedgerRecord) -> None:
    """Add a tombstone that only the ledger has; a later sweep checks whether anything of its session is left."""
    _put(connection, _from_data(record.data), record.at_ms, None)


class Tombstones:
    """Serves a sweep: tombstones are loaded once and asked for every batch."""

    def __init__(self, table: TombstoneTable, sources: Sources) -> None:
        self._table = table
        self._names: dict[str, set[str]] = defaultdict(set)
        forgotten = table.names()
        for agent, native_id in forgotten:
            self._names[agent].add(native_id)
        self._with_lines = {key.agent for key in forgotten if is_line(key)}
        self._kept_forks = table.kept_forks() if self._names else set()
        self._hashes: dict[str, PackedHashes] = {}
        self._sources = sources
        self._shown: set[str] = set()  # files that hold other sessions too
        self._hidden: set[str] = set()  # and those that do not

    def concern(self, agent: str) -> bool:
        return agent in self._names

    def hold(self, agent: str, native_id: str) -> bool:
        """Return True if a session was forgotten, or is named after one that was, as sub-agents are."""
        names = self._names[agent]
        return native_id in names or ("/" in native_id and native_id.partition("/")[0] in names)

    def inherit(self, agent: str, infos: Iterable[tuple[str, str]]) -> None:
        """Sub-agents of forgotten sessions that turn up later are forgotten too."""
        heirs = []
        for name, info in infos:
            if not self.hold(agent, name):
                first = orjson.loads(info)["first"]
                above = filter(None, (first.get("parent_native_id"), first.get("root_native_id")))
                heirs += [name] if any(self.hold(agent, other) for other in above) else []
        if heirs:
            self._table.add([Tombstone(agent, name, b"") for name in heirs], is_finished=True)
            self._names[agent].update(heirs)

    def without_lines(self, agent: str, problems: list[ProblemRow]) -> list[ProblemRow]:
        """Return the unread lines, forgotten ones without their text."""
        if agent not in self._with_lines:
            return problems
        names = self._names[agent]
        return [row._replace(raw=b"") if line_name(row.raw) in names else row for row in problems]

    def without_copies(self, batch: Batch) -> Batch:
        """Leave records out that were copied from a forgotten session."""
        agent, before = batch.source.agent, batch.events
        streams = [
            stream
            if (agent, stream.native_id) in self._kept_forks
            else leave_out_events(batch, stream, [row for row in stream.rows if not self._is_copy(agent, row)])
            for stream in batch.streams
        ]
        if dropped := before - sum(len(stream.rows) for stream in streams):
            batch.streams = [stream for stream in streams if stream.rows or not stream.facts.is_empty]
            batch.skipped = batch.skipped | {FORGOTTEN: batch.skipped.get(FORGOTTEN, 0) + dropped}
            batch.problems = without_text(batch.problems)
        return batch

    def _is_copy(self, agent: str, row: tuple[Any, ...]) -> bool:
        if row[_COPY_KEY] is None:
            return False
        if agent not in self._hashes:
            self._hashes[agent] = PackedHashes(self._table.event_keys(agent))
        content = row[_SUMMARY] if row[_RETRY_KEY] is None else row[_RETRY_KEY].hex().upper()
        return event_key(row[_COPY_KEY], row[_KIND], content) in self._hashes[agent]

    def hide(self, batch: Batch, is_left_out: bool) -> None:
        """Replace the path of a file that holds only forgotten sessions by a hash."""
        path = batch.source.path
        if sessions_of(batch):
            self._shown.add(path)
        elif (
            path not in self._shown
            and (is_left_out or self._is_hidden(batch.source))
            and not self._sources.is_known(batch.source)
        ):
            self._hidden.add(path)
            batch.source = _hidden(batch.source)

    def _is_hidden(self, source: SourceRow) -> bool:
        return source.path in self._hidden or self._sources.is_known(_hidden(source))

    def concealed(self, source: SourceRow) -> SourceRow:
        """A file that could not be read, without its path if all that was read from it is forgotten."""
        if not self.concern(source.agent) or source.path in self._shown or not self._is_hidden(source):
            return source
        return _hidden(source)


def _hidden(source: SourceRow) -> SourceRow:
    return source._replace(path=hidden_path(source.path))


def without_forgotten(batch: Batch, tombstones: Tombstones) -> Batch:
    """Leave what was forgotten out of the batch."""
    agent = batch.source.agent
    if not tombstones.concern(agent):
        return batch
    tombstones.inherit(agent, batch.infos.items())
    sessions = sessions_of(batch)
    forgotten = {native_id for native_id in sessions if tombstones.hold(agent, native_id)}
    kept = tombstones.without_copies(leave_out(batch, forgotten, FORGOTTEN))
    if len({native_id.partition("/")[0] for native_id in sessions}) != 1:
        kept.problems = without_text(kept.problems)
    kept.problems = tombstones.without_lines(agent, kept.problems)
    tombstones.hide(kept, bool(forgotten))
    return kept


def _data(tombstone: Tombstone) -> dict[str, Any]:
    return {
        "agent": tombstone.agent,
        "native_session_id": tombstone.native_id,
        "event_keys": b64encode(tombstone.event_keys).decode(),
        "kept_forks": list(tombstone.kept_forks),
    }


def _from_data(data: dict[str, Any]) -> Tombstone:
    return Tombstone(data["agent"], data["native_session_id"], b64decode(data["event_keys"]), tuple(data["kept_forks"]))


# The sessions that the user's rules leave out; what comes later of one is left out too. So are folders, by hash, that
# one of them shows to be a checkout of an excluded repository: others have only the folder.
EXCLUSIONS = Table(
    "exclusions",
    MEMORY,
    (
        *column.plain("agent", "native_session_id", "host"),
        *column.paths("path"),
        *column.plain("rule"),
    ),
    owner=BY_SESSION,
    key=("agent", "native_session_id", "host", "path"),
)

_FOLDER = "folder:"  # begins what stands for a folder in place of a session's id
_IS_SESSION = "agent <> ''"


class Exclusion(NamedTuple):
    """A session that a rule of the user leaves out, and the file it was met in."""

    agent: str
    native_id: str
    host: str
    path: str
    rule: str


class Exclusions:
    """The left-out sessions of a store."""

    def __init__(self, cache: Database, memory: Database) -> None:
        self._cache = cache
        self._memory = memory

    def all(self) -> list[Exclusion]:
        return self._memory.read(
            Exclusion, f"SELECT agent, native_session_id, host, path, rule FROM exclusions WHERE {_IS_SESSION}"
        )

    def folders(self) -> dict[str, str]:
        """Hashes of the folders that are checkouts of excluded repositories, with the rules."""
        rows = self._memory.rows(f"SELECT native_session_id, rule FROM exclusions WHERE NOT {_IS_SESSION}")
        return {name.removeprefix(_FOLDER): rule for name, rule in rows}

    def add_folder(self, key: str, rule: str) -> None:
        """Remember a folder by its hash: the session that showed it is not stored."""
        self.add([Exclusion("", _FOLDER + key, "", "", rule)])

    def add(self, exclusions: Collection[Exclusion]) -> None:
        self._memory.write_all("INSERT OR REPLACE INTO exclusions VALUES (?, ?, ?, ?, ?)", exclusions)

    def lift(self, exclusions: Collection[Exclusion]) -> None:
        """Let sessions in again; their files will be read from the start."""
        self._cache.write_all(
            "UPDATE sources SET mtime_ns = -1, offset = 0, line = 0, head = '', tail = '', state = '{}'"
            " WHERE host = ? AND agent = ? AND path = ?",
            [(exclusion.host, exclusion.agent, exclusion.path) for exclusion in exclusions],
        )
        self._memory.write_all(
            "DELETE FROM exclusions WHERE agent = ? AND native_session_id = ? AND host = ? AND path = ?",
            [exclusion[:4] for exclusion in exclusions],
        )
