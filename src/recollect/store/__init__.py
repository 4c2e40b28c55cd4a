"""Everything that is kept, and all the SQL there is.

`memory.db` holds what must last and is written with full durability; `cache.db` and the packs hold the
bulk, which may be read again from the agents' files.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from recollect.errors import NotFound, RecollectError, StoreDamaged, StoreUnwritable
from recollect.store import ballast, history, migrations
from recollect.store.access import is_full, unwritable
from recollect.store.cards import Cards
from recollect.store.events import Events
from recollect.store.excerpts import Excerpts
from recollect.store.fulltext_search import FulltextSearch
from recollect.store.sqlite import Database, translated

if TYPE_CHECKING:
    from recollect.store.copies import Copies
    from recollect.store.digests import Digests
    from recollect.store.evictions import EvictionTable
    from recollect.store.exclusions import Exclusions
    from recollect.store.fulltext import Fulltext
    from recollect.store.holdings import Holdings
    from recollect.store.intake import Intake
    from recollect.store.ledger import Ledger
    from recollect.store.mentions import Mentions
    from recollect.store.remains import Remains
    from recollect.store.rewrite import Rewrites
    from recollect.store.sessions import Sessions
    from recollect.store.sources import Sources
    from recollect.store.steps import Steps
    from recollect.store.streams import Streams
    from recollect.store.tallies import Tallies
    from recollect.store.tiers import Tiers
    from recollect.store.tombstones import TombstoneTable

CACHE_NAME = "cache.db"
MEMORY_NAME = "memory.db"
DATABASES = (MEMORY_NAME, CACHE_NAME)


class Store:
    """One folder with everything Recollect knows."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._cache = Database(folder / CACHE_NAME, migrations.CACHE, "NORMAL", read_only=read_only)
        self._memory = Database(folder / MEMORY_NAME, migrations.MEMORY, "FULL", read_only=read_only)
        self.events = Events(self._cache, folder)
        self.excerpts = Excerpts(self._cache)
        self.fulltext_search = FulltextSearch(self._cache)
        self.cards = Cards(self._memory)
        if not read_only and self._memory.is_new:
            self.restore_records()

    # A search needs none of these, and is to begin at once: they are loaded when they are asked for.

    @cached_property
    def intake(self) -> "Intake":
        from recollect.store.intake import Intake

        return Intake(self._cache, self.folder)

    @cached_property
    def fulltext(self) -> "Fulltext":
        from recollect.store.fulltext import Fulltext

        return Fulltext(self._cache)

    @cached_property
    def sources(self) -> "Sources":
        from recollect.store.sources import Sources

        return Sources(self._cache)

    @cached_property
    def streams(self) -> "Streams":
        from recollect.store.streams import Streams

        return Streams(self._cache)

    @cached_property
    def steps(self) -> "Steps":
        from recollect.store.steps import Steps

        return Steps(self._cache, self.events)

    @cached_property
    def sessions(self) -> "Sessions":
        from recollect.store.sessions import Sessions

        return Sessions(self._memory)

    @cached_property
    def ledger(self) -> "Ledger":
        from recollect.store.ledger import Ledger

        return Ledger(self.folder, read_only=self.read_only)

    @cached_property
    def tombstones(self) -> "TombstoneTable":
        from recollect.store.tombstones import TombstoneTable

        return TombstoneTable(self._memory, self.ledger)

    @cached_property
    def exclusions(self) -> "Exclusions":
        from recollect.store.exclusions import Exclusions

        return Exclusions(self._cache, self._memory)

    @cached_property
    def remains(self) -> "Remains":
        from recollect.store.remains import Remains

        return Remains(self._cache, self._memory, self.folder)

    @cached_property
    def mentions(self) -> "Mentions":
        from recollect.store.mentions import Mentions

        return Mentions(self._cache, self._memory)

    @cached_property
    def copies(self) -> "Copies":
        from recollect.store.copies import Copies

        return Copies(self._memory, self.ledger)

    @cached_property
    def digests(self) -> "Digests":
        from recollect.store.digests import Digests

        return Digests(self._memory)

    @cached_property
    def tallies(self) -> "Tallies":
        from recollect.store.tallies import Tallies

        return Tallies(self._memory)

    @cached_property
    def evictions(self) -> "EvictionTable":
        from recollect.store.evictions import EvictionTable

        return EvictionTable(self._cache, self._memory, self.ledger)

    @cached_property
    def tiers(self) -> "Tiers":
        from recollect.store.tiers import Tiers

        return Tiers(self._cache, self._memory, self.folder)

    @cached_property
    def rewrites(self) -> "Rewrites":
        from recollect.store.rewrite import Rewrites

        return Rewrites(self._cache, self._memory, self.folder)

    @cached_property
    def holdings(self) -> "Holdings":
        from recollect.store.holdings import Holdings

        return Holdings(self._cache, self.folder)

    @property
    def databases(self) -> tuple[Database, Database]:
        return self._cache, self._memory

    def commits(self) -> tuple[int, ...]:
        """How many transactions there were: equal numbers mean that nothing was written in between."""
        return tuple(history.last_commit(database.connection).number for database in self.databases)

    def drop_stand_ins(self) -> int:
        """Delete events that stood in for what is held itself by now; returns how many.

        Digests come first: one that covers these too would else count as better than any that is made without them.
        """
        found = self.streams.stand_ins()
        if found:
            self.digests.cover_less(Counter(found.values()))
            self.streams.drop_events(found)
        return len(found)

    def restore_records(self) -> Counter[str]:
        """Put what the ledger holds back into memory.db; what is there stays as it is."""
        from recollect.store.restoring import restore_records

        with self._memory.transaction() as connection:
            return restore_records(connection, self.ledger.records())

    def missing_records(self) -> list[tuple[str, dict[str, Any]]]:
        """What memory.db holds and the ledger should, and does not."""
        from recollect.store.restoring import missing_records

        return missing_records(self.ledger, (self.tombstones, self.copies, self.evictions))

    def take_over_memory(self, old: Database) -> None:
        """Have memory.db, which was just made, hold what was saved of another one; the ledger's records come after."""
        from recollect.store.salvage import take_over_rows

        take_over_rows(old, self._memory)

    def add_memory(self, old: Database) -> None:
        """Have memory.db hold also what only another one tells; the ledger's records come before."""
        from recollect.store.salvage import add_rows

        add_rows(old, self._memory)

    def checkpoint(self) -> None:
        """Empty both write-ahead logs, then note how far the store has come; done at the end of a sweep."""
        marks = self._new_marks()
        for database in self.databases:
            database.checkpoint()
        if marks:
            with translated(self.folder / history.MARK_NAME):
                history.write_mark(self.folder, marks)
        ballast.ensure(self.folder, self._bytes())

    def _new_marks(self) -> dict[str, history.Mark]:
        """A mark for each database; none if nothing was written since the last one, or if one is behind that."""
        known = history.read_mark(self.folder)
        if all(self._is_marked(database, known) for database in self.databases) or self._is_behind(known):
            return {}
        marks = {}
        for database in self.databases:
            counts = self._counts(database)
            with database.transaction() as connection:
                marks[database.path.name] = history.add_mark(connection, counts)
        return marks

    def _is_marked(self, database: Database, known: dict[str, history.Mark]) -> bool:
        mark = known.get(database.path.name)
        return mark is not None and mark.commits == history.last_commit(database.connection).number

    def _is_behind(self, known: dict[str, history.Mark]) -> bool:
        """Whether a database has less than was marked. A cache that was read again whole is as good as the lost one."""
        for database in self.databases:
            name, counts = database.path.name, self._counts(database)
            mark = known.get(name)
            is_whole = mark is not None and all(counts.get(noun, 0) >= had for noun, had in mark.counts.items())
            is_refilled = database is self._cache and is_whole
            if history.behind_mark(name, database.connection, mark, counts) and not is_refilled:
                return True
        return False

    def accept_as_is(self) -> None:
        """Take the store as it stands for whole: the alarms were answered."""
        history.forget_history(self.folder, [database.path.name for database in self.databases])
        self.checkpoint()

    def iter_faults_of_structure(self, database: Database, keep_going: Callable[[], bool]) -> Iterator[str]:
        """All that SQLite's own full check finds wrong; ends early, with apsw.InterruptError, when told to."""
        with _stoppable(database, keep_going):
            for (message,) in database.rows("PRAGMA integrity_check(100)"):
                if message != "ok":
                    yield f"{database.path.name}: {message}"

    def iter_faults_of_content(self, database: Database, keep_going: Callable[[], bool]) -> Iterator[str]:
        """Rows that can be read, and are not what was ever stored; ends early like a look at the structure."""
        from recollect.store.shapes import iter_nonsense

        with _stoppable(database, keep_going):
            for message in iter_nonsense(database):
                yield f"{database.path.name}: {message}"

    def alarms(self) -> list[str]:
        """In words, which databases have less than they had: a lost log, an old copy put back."""
        known, found = history.read_mark(self.folder), []
        for database in (database for database in self.databases if database.has_history()):
            name, connection = database.path.name, database.connection
            found.append(history.behind_mark(name, connection, known.get(name), self._counts(database)))
            found.append(history.behind_last(database.path, connection))
        return [alarm for alarm in found if alarm]

    def _counts(self, database: Database) -> dict[str, int]:
        if database is self._memory:
            return {"sessions": self.sessions.count()}
        sessions, events = database.rows("SELECT count(*), coalesce(sum(next_seq - 1), 0) FROM streams")[0]
        return {"sessions": sessions, "events": events}

    def damage(self) -> list[str]:
        """What SQLite's own checks find wrong, in words; empty when nothing is."""
        found = []
        for database in (self._cache, self._memory):
            rows = database.rows("PRAGMA quick_check(20)")
            found += [f"{database.path.name}: {message}" for (message,) in rows if message != "ok"]
            found += self.iter_faults_of_content(database, lambda: True)
        return found

    def size_bytes(self) -> dict[str, int]:
        """Bytes on disk by part of the store."""
        packs = sum(file.stat().st_size for file in (self.folder / "packs").rglob("*.pack"))
        sizes = {name: _size(self.folder / name) for name in DATABASES}
        return {**sizes, "packs": packs, "total": packs + sum(sizes.values())}

    def _bytes(self) -> int:
        """About how large the store is, without a look at every pack."""
        packed = self._cache.value("SELECT coalesce(sum(pack_bytes), 0) FROM streams")
        return int(packed) + sum(_size(database.path) for database in self.databases)

    def close(self) -> None:
        self._cache.close()
        self._memory.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def _stoppable(database: Database, keep_going: Callable[[], bool]) -> Iterator[None]:
    """Have statements end with apsw.InterruptError once they are not to go on."""
    database.connection.set_progress_handler(lambda: not keep_going(), 100_000)
    try:
        yield
    finally:
        database.connection.set_progress_handler(None)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


def open_store(folder: Path, *, create: bool = False) -> Store:
    """Open the store in `folder`, read-only where it cannot be written; raises NotFound if there is none."""
    from recollect.store.replacing import finish_replacing  # not needed to look something up

    finish_replacing(folder)
    if not (folder / MEMORY_NAME).exists() and not create:
        _refuse_remains(folder)
        raise NotFound(f"Nothing is stored yet: {folder}", "`recollect sweep` reads your agents' sessions")
    if create:
        _make_private_folder(folder)
        return Store(folder)
    return Store(folder, read_only=not os.access(folder, os.W_OK) or is_full(folder))


def open_database(path: Path) -> Database:
    """One database of a store, to be looked at only; raises what opening the store would."""
    steps = migrations.CACHE if path.name == CACHE_NAME else migrations.MEMORY
    return Database(path, steps, "FULL", read_only=True)


def _refuse_remains(folder: Path) -> None:
    """A store without its main file is not empty: somebody has to know."""
    from recollect.store.ledger import LEDGER_NAME

    left = [name for name in (CACHE_NAME, LEDGER_NAME, history.MARK_NAME) if (folder / name).exists()]
    if left:
        raise StoreDamaged(
            f"{MEMORY_NAME} is missing beside {', '.join(left)}: {folder}", "`recollect doctor --repair` makes it again"
        )


def open_for_reading(folder: Path) -> Store:
    """Open the store only to look something up: waits for no writer. Raises NotFound if there is none."""
    try:
        is_there = (folder / MEMORY_NAME).exists()
    except OSError as error:
        raise RecollectError(
            f"Cannot look into the store ({error.strerror}): {folder}", "set RECOLLECT_HOME to a folder you can read"
        ) from error
    if not is_there:
        raise NotFound(f"Nothing is stored yet: {folder}", "`recollect sweep` reads your agents' sessions")
    return Store(folder, read_only=True)


def _make_private_folder(folder: Path) -> None:
    try:
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_new:
            folder.chmod(0o700)  # whatever the user's umask takes away
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot make the store ({error.strerror}): {folder}",
            "set RECOLLECT_HOME to a folder you can write",
        ) from error
    if not os.access(folder, os.W_OK):
        raise unwritable(folder, "it cannot be written")
