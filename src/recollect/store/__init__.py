"""Everything that is kept, and all the SQL there is.

`memory.db` holds what must last and is written with full durability; `cache.db` and the packs hold the bulk, which
can be read again from the agents' files. Code above the store imports from this package only, never from its modules.
"""

import os
from collections import Counter
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

import recollect.store as door  # its own names below load on first use
from recollect.model.errors import NotFound, NotInGroup, RecollectError, StoreDamaged, StoreUnusable, StoreUnwritable
from recollect.model.files import is_full, unwritable
from recollect.model.lazy import lazy_names
from recollect.store.search import Words
from recollect.store.sqlite.database import Database
from recollect.store.tables import migrations
from recollect.store.tables.digests import Digests
from recollect.store.tables.events import Events, Payloads
from recollect.store.tables.sessions import Sessions
from recollect.store.tables.table import CACHE, MEMORY

_NAMES = """
recollect.model.files: drop_abandoned
recollect.store.batch: Batch CostTotalRow EventRow Facts ProblemRow SourceRow StreamBatch UsageRow hash_payload
recollect.store.batch: leave_out sessions_of without_text
recollect.store.check: MARK_NAME Check forget_marks iter_damaged_pages read_marks write_marks
recollect.store.intake: Intake Written merge_infos second_uid
recollect.store.ledger: LEDGER_NAME Ledger
recollect.store.payloads.packs: iter_frames unpack_entry
recollect.store.payloads.rewrite: RESCAN_UNFINISHED Rewrites
recollect.store.payloads.writer: Description LivePack Moved Origin describe hash_source make_frames origin_of
recollect.store.payloads.writer: source_of_host
recollect.store.ports: StoreReads
recollect.store.replacement: Quarantine files_of finish_replacing rebuild_cache replace_store
recollect.store.search: BEST_EVENTS Choice EventFilter OutOfTime Scored Term Wanted
recollect.store.sqlite.database: NETWORK_FILE_SYSTEMS PAGE_BYTES file_system_type
recollect.store.sqlite.locks: SweepState has_live is_sweeping note_finished note_progress note_tokens push_lock
recollect.store.sqlite.locks: read_sweep_state read_tokens read_watch_state sweep_lock watch_lock work_folder write_lock
recollect.store.sqlite.room: give_up_spare
recollect.store.sqlite.snapshot: copy_database frozen keep_copy restore_copy
recollect.store.tables.activity: BLOCK_HOURS Activity ActivityRow Span SpentRow StatRow UseRow
recollect.store.tables.copies: COPY SET_ASIDE ArchiveTable Copies
recollect.store.tables.digest_rows: DigestRow DigestRows Pending
recollect.store.tables.erase: Erasure
recollect.store.tables.events: HIDES_LEARNED IS_ABANDONED IS_CLAMPED IS_ERROR IS_PROVISIONAL IS_REBUILT IS_RETRY
recollect.store.tables.events: MAY_REPEAT PIECE_BYTES TOLD_RETRY EventHeader in_pieces
recollect.store.tables.evictions: DATA_LOSS LAST_COPY_EVICTED Base Evicted Eviction EvictionTable RetentionEvent
recollect.store.tables.facts: AMENDMENT NOTE PINNED PROMOTED ExchangeRow FactRow FactTable Note StoredFact
recollect.store.tables.fulltext: Fulltext
recollect.store.tables.groups: LAST_CHANGE MAIN_GROUP AnnotationTable BookmarkRow GroupRow GroupTable Pointer
recollect.store.tables.kept: ACCOUNT DIGEST Boundary Kept KeptState KeptStates Rules
recollect.store.tables.lasting: Lasting missing_records redact_rows restore_records
recollect.store.tables.live: MEDIA SUMMARY LiveRow LiveSessions MessageRow
recollect.store.tables.raw: HeldSession HeldStream RawCache Sizes
recollect.store.tables.session_rows: Place SessionRow SessionRows
recollect.store.tables.sessions: ANY_SESSION SORTS SessionFilter SessionHeader
recollect.store.tables.sources: KnownSource Sources path_key
recollect.store.tables.steps: Candidate Lineage Request Response SharedResponse Step Steps StoredSession
recollect.store.tables.streams: HALF_BYTES Ancestry NamedValues Streams by_root
recollect.store.tables.texts: Redaction Texts UnreadLine
recollect.store.tables.tombstones: FORGOTTEN HIDDEN TOMBSTONE Exclusion Exclusions Tombstone Tombstones TombstoneTable
recollect.store.tables.tombstones: hidden_path without_forgotten
"""
# The records and functions that cross the door load on first use: a search needs hardly any of them.
if TYPE_CHECKING:
    from collections.abc import Callable

    from recollect.model.files import drop_abandoned
    from recollect.store.batch import (
        Batch,
        CostTotalRow,
        EventRow,
        Facts,
        ProblemRow,
        SourceRow,
        StreamBatch,
        UsageRow,
        hash_payload,
        leave_out,
        sessions_of,
        without_text,
    )
    from recollect.store.check import MARK_NAME, Check, forget_marks, iter_damaged_pages, read_marks, write_marks
    from recollect.store.intake import Intake, Written, merge_infos, second_uid
    from recollect.store.ledger import LEDGER_NAME, Ledger
    from recollect.store.payloads.packs import iter_frames, unpack_entry
    from recollect.store.payloads.rewrite import RESCAN_UNFINISHED, Rewrites
    from recollect.store.payloads.writer import (
        Description,
        LivePack,
        Moved,
        Origin,
        describe,
        hash_source,
        make_frames,
        origin_of,
        source_of_host,
    )
    from recollect.store.ports import StoreReads
    from recollect.store.replacement import Quarantine, files_of, finish_replacing, rebuild_cache, replace_store
    from recollect.store.search import BEST_EVENTS, Choice, EventFilter, OutOfTime, Scored, Term, Wanted
    from recollect.store.sqlite.database import NETWORK_FILE_SYSTEMS, PAGE_BYTES, file_system_type
    from recollect.store.sqlite.locks import (
        SweepState,
        has_live,
        is_sweeping,
        note_finished,
        note_progress,
        note_tokens,
        push_lock,
        read_sweep_state,
        read_tokens,
        read_watch_state,
        sweep_lock,
        watch_lock,
        work_folder,
        write_lock,
    )
    from recollect.store.sqlite.room import give_up_spare
    from recollect.store.sqlite.snapshot import copy_database, frozen, keep_copy, restore_copy
    from recollect.store.tables.activity import BLOCK_HOURS, Activity, ActivityRow, Span, SpentRow, StatRow, UseRow
    from recollect.store.tables.copies import COPY, SET_ASIDE, ArchiveTable, Copies
    from recollect.store.tables.digest_rows import DigestRow, DigestRows, Pending
    from recollect.store.tables.erase import Erasure
    from recollect.store.tables.events import (
        HIDES_LEARNED,
        IS_ABANDONED,
        IS_CLAMPED,
        IS_ERROR,
        IS_PROVISIONAL,
        IS_REBUILT,
        IS_RETRY,
        MAY_REPEAT,
        PIECE_BYTES,
        TOLD_RETRY,
        EventHeader,
        in_pieces,
    )
    from recollect.store.tables.evictions import (
        DATA_LOSS,
        LAST_COPY_EVICTED,
        Base,
        Evicted,
        Eviction,
        EvictionTable,
        RetentionEvent,
    )
    from recollect.store.tables.facts import (
        AMENDMENT,
        NOTE,
        PINNED,
        PROMOTED,
        ExchangeRow,
        FactRow,
        FactTable,
        Note,
        StoredFact,
    )
    from recollect.store.tables.fulltext import Fulltext
    from recollect.store.tables.groups import (
        LAST_CHANGE,
        MAIN_GROUP,
        AnnotationTable,
        BookmarkRow,
        GroupRow,
        GroupTable,
        Pointer,
    )
    from recollect.store.tables.kept import ACCOUNT, DIGEST, Boundary, Kept, KeptState, KeptStates, Rules
    from recollect.store.tables.lasting import Lasting, missing_records, redact_rows, restore_records
    from recollect.store.tables.live import MEDIA, SUMMARY, LiveRow, LiveSessions, MessageRow
    from recollect.store.tables.raw import HeldSession, HeldStream, RawCache, Sizes
    from recollect.store.tables.session_rows import Place, SessionRow, SessionRows
    from recollect.store.tables.sessions import ANY_SESSION, SORTS, SessionFilter, SessionHeader
    from recollect.store.tables.sources import KnownSource, Sources, path_key
    from recollect.store.tables.steps import (
        Candidate,
        Lineage,
        Request,
        Response,
        SharedResponse,
        Step,
        Steps,
        StoredSession,
    )
    from recollect.store.tables.streams import HALF_BYTES, Ancestry, NamedValues, Streams, by_root
    from recollect.store.tables.texts import Redaction, Texts, UnreadLine
    from recollect.store.tables.tombstones import (
        FORGOTTEN,
        HIDDEN,
        TOMBSTONE,
        Exclusion,
        Exclusions,
        Tombstone,
        Tombstones,
        TombstoneTable,
        hidden_path,
        without_forgotten,
    )


else:
    __getattr__ = lazy_names(__name__, _NAMES)

CACHE_NAME = CACHE
MEMORY_NAME = MEMORY
DATABASES = (MEMORY_NAME, CACHE_NAME)


_T = TypeVar("_T")


def _part(make: "Callable[[Store], _T]", *, in_groups: bool = False) -> "cached_property[_T]":
    """Return a part of the store that is made when it is first asked for; a group's store has only some of them."""

    def checked(store: "Store") -> _T:
        if not in_groups:
            store.refuse_in_group()
        return make(store)

    return cached_property(checked)


class Store:
    """One folder with everything Recollect knows."""

    def __init__(
        self, folder: Path, *, read_only: bool = False, cache_path: Path | None = None, group: str | None = None
    ) -> None:
        self._folder = folder
        self.group = group  # None: sees all
        self.read_only = read_only
        if group is None:
            self._cache = Database(cache_path or folder / CACHE_NAME, migrations.CACHE, "NORMAL", read_only=read_only)
            self._memory = Database(folder / MEMORY_NAME, migrations.MEMORY, "FULL", read_only=read_only)
        else:
            from recollect.store.scope import Scope  # only a group's process needs it

            scope = Scope(folder, group)
            self._cache, self._memory = scope.cache, scope.memory
        # What a search reads. All else loads when it is first asked for, so that a search starts at once.
        self.sessions = Sessions(self._memory)
        self.digests = Digests(self._memory)
        self.events = Events(self._cache)
        self.payloads = Payloads(self._cache, folder)
        self.words = Words(self._cache)
        if not read_only and self._memory.is_new:
            self.restore_records()

    # Reading and writing what users say and sessions teach
    facts = _part(lambda s: door.FactTable(s._memory, s._writer), in_groups=True)
    activity = _part(lambda s: door.Activity(s._memory), in_groups=True)
    annotations = _part(lambda s: door.AnnotationTable(s._memory, s._writer), in_groups=True)
    archives = _part(lambda s: door.ArchiveTable(s._memory, s._writer), in_groups=True)
    groups = _part(lambda s: door.GroupTable(s._memory, s._writer, s.group), in_groups=True)
    # Whole sessions
    streams = _part(lambda s: door.Streams(s._cache), in_groups=True)
    steps = _part(lambda s: door.Steps(s._cache, s.payloads), in_groups=True)
    lineage = _part(lambda s: door.Lineage(s._cache), in_groups=True)
    session_rows = _part(lambda s: door.SessionRows(s._memory))
    digest_rows = _part(lambda s: door.DigestRows(s._memory))
    kept = _part(lambda s: door.KeptStates(s._cache))
    # From sources to rows
    sources = _part(lambda s: door.Sources(s._cache))
    intake = _part(lambda s: door.Intake(s._cache, s.folder))
    fulltext = _part(lambda s: door.Fulltext(s._cache))
    named_values = _part(lambda s: door.NamedValues(s._cache))
    # What must go, and what may
    rules = _part(lambda s: door.Rules(s._memory))
    exclusions = _part(lambda s: door.Exclusions(s._cache, s._memory))
    tombstones = _part(lambda s: door.TombstoneTable(s._memory, s.ledger))
    evictions = _part(lambda s: door.EvictionTable(s._cache, s._memory, s.ledger))
    copies = _part(lambda s: door.Copies(s._memory, s.ledger))
    erasure = _part(lambda s: door.Erasure(s._cache, s._memory, s.folder))
    texts = _part(lambda s: door.Texts(s._cache, s._memory))
    redaction = _part(lambda s: door.Redaction(s._cache, s._memory))
    rewrites = _part(lambda s: door.Rewrites(s._cache, s._memory, s.folder))
    live_pack = _part(lambda s: door.LivePack(s._cache, s.folder))
    live = _part(lambda s: door.LiveSessions(s._cache, s._memory, s.intake, s.fulltext, s.live_pack, s.tombstones))
    # Care
    lasting = _part(lambda s: door.Lasting(s._memory, s.ledger))
    raw = _part(lambda s: door.RawCache(s._cache, s.folder))
    sizes = _part(lambda s: door.Sizes(s._cache, s._memory, s.folder))
    check = _part(lambda s: door.Check(s._cache, s._memory, s.folder))

    @property
    def folder(self) -> Path:
        self.refuse_in_group()
        return self._folder

    def is_outdated(self) -> bool:
        """Check whether an older version wrote the store."""
        return self._cache.is_outdated() or self._memory.is_outdated()

    def refuse_in_group(self) -> None:
        """Raise NotInGroup in a store that was opened for a group: what is asked for is about all of it."""
        if self.group is not None:
            raise NotInGroup(
                f"Not available inside group `{self.group}`", "run it outside the group, without RECOLLECT_GROUP"
            )

    @property
    def _writer(self) -> "Callable[[], tuple[Database, Ledger]]":
        """Return what writes a group's own records; a group's store opens it when there is something to write."""
        return lambda: (self._memory, self.ledger) if self.group is None else self._own_writer

    @cached_property
    def _own_writer(self) -> "tuple[Database, Ledger]":
        database = Database(self._folder / MEMORY_NAME, migrations.MEMORY, "FULL", read_only=False)
        return database, door.Ledger(self._folder)

    @cached_property
    def ledger(self) -> "Ledger":
        return door.Ledger(self.folder, read_only=self.read_only)

    @property
    def databases(self) -> tuple[Database, Database]:
        self.refuse_in_group()
        return self._cache, self._memory

    def commits(self) -> tuple[int, ...]:
        """Count the transactions so far: equal numbers mean that nothing was written in between."""
        return tuple(database.commits() for database in self.databases)

    def drop_stand_ins(self) -> int:
        """Delete events that stood in for what is held itself by now; returns how many.

        Digests come first: one that covers these too would count as better than any that is made without them.
        """
        stand_ins = self.lineage.stand_ins()
        if stand_ins:
            self.digest_rows.cover_less(Counter(stand_ins.values()))
            self.lineage.drop(stand_ins)
        return len(stand_ins)

    def recover_appended(self) -> None:
        """Store what live hosts appended and a power cut took out of the database."""
        if self.live_pack.lost():  # most sweeps need none of the rest
            self.live.recover()

    def restore_records(self) -> Counter[str]:
        """Put the ledger's records back into memory.db; rows that exist stay as they are."""
        with self._memory.transaction() as connection:
            return door.restore_records(connection, self.ledger.records())

    def missing_records(self) -> list[tuple[str, dict[str, Any]]]:
        """Rows of memory.db that the ledger should have too, and does not."""
        tables = (self.tombstones, self.copies, self.evictions, self.groups, self.facts)
        rows = [row for table in tables for row in table.records()]  # first: lines are written before rows
        return door.missing_records(self.ledger, rows)

    def keep_copy(self, *, is_due: bool = False) -> None:
        """Keep a recent copy of memory.db beside it; one that `is_due` is made whatever the age of the last."""
        door.keep_copy(self._memory, is_due=is_due)

    def checkpoint(self) -> None:
        """Empty both write-ahead logs, then note how far the store has come; done at the end of a sweep."""
        marks = self.check.new_marks()
        for database in self.databases:
            database.checkpoint()
        if marks:
            self.keep_copy()
            door.write_marks(self.folder, marks)

    def accept_as_is(self) -> None:
        """Accept the current state and clear its alarms."""
        self.check.forget_marks()
        self.checkpoint()

    def close(self) -> None:
        for part in {"live", "live_pack"} & self.__dict__.keys():
            getattr(self, part).close()
        self._cache.close()
        self._memory.close()
        if "_own_writer" in self.__dict__:
            self._own_writer[0].close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_store(folder: Path, *, create: bool = False) -> Store:
    """Open the store in `folder`, read-only where it cannot be written; raises NotFound if there is none."""
    _refuse_writable_by_others(folder)
    if (folder / "replacement").exists():
        door.finish_replacing(folder)
    if not (folder / MEMORY_NAME).exists() and not create:
        # A store without its main file is not taken for an empty one.
        left = [name for name in (CACHE_NAME, door.LEDGER_NAME, "high-water.json") if (folder / name).exists()]
        if left:
            what = f"{MEMORY_NAME} is missing beside {', '.join(left)}"
            raise StoreDamaged(f"{what}: {folder}", "`recollect doctor --repair` rebuilds it")
        raise NotFound(f"Nothing is stored yet: {folder}", "`recollect sweep` reads your agents' sessions")
    has_packs = next((folder / "packs").glob("*/*.pack"), None) is not None
    has_lost_cache = has_packs and not (folder / CACHE_NAME).exists()
    if create:
        _make_private_folder(folder)
        if has_lost_cache:  # packs are read into a new one before anything is appended to them
            with door.sweep_lock(folder):
                door.rebuild_cache(folder, lambda path: None, lambda done, total: None)
        return Store(folder)
    if has_lost_cache:
        raise StoreDamaged(
            f"{CACHE_NAME} is missing beside its packs: {folder}", "`recollect sweep` rebuilds it from them"
        )
    return Store(folder, read_only=not os.access(folder, os.W_OK) or is_full(folder))


def _refuse_writable_by_others(folder: Path) -> None:
    """Whoever can write to the folder can replace what is remembered, and read it."""
    mode = folder.stat().st_mode & 0o777 if folder.exists() else 0
    if mode & 0o022:
        raise StoreUnusable(f"Other users can write to the store (mode {mode:o}): {folder}", f"chmod 700 {folder}")


def open_database(path: Path) -> Database:
    """One database of a store, read-only; raises what opening the store would."""
    steps = migrations.CACHE if path.name == CACHE_NAME else migrations.MEMORY
    return Database(path, steps, "FULL", read_only=True)


def open_for_reading(folder: Path, group: str | None = None) -> Store:
    """Open the store to read it, with connections of its own: waits for no writer. Raises NotFound if there is none.

    For a `group` it has that group's rows only.
    """
    try:
        is_there = (folder / MEMORY_NAME).exists()
    except OSError as error:
        raise RecollectError(
            f"Cannot read the store ({error.strerror}): {folder}", "set RECOLLECT_HOME to a folder you can read"
        ) from error
    if not is_there:
        raise NotFound(f"Nothing is stored yet: {folder}", "`recollect sweep` reads your agents' sessions")
    _refuse_writable_by_others(folder)
    if (folder / "replacement").exists():
        open_store(folder).close()  # which finishes an interrupted restore
    store = Store(folder, read_only=True, group=group)
    if store.is_outdated():
        store.close()
        open_store(folder).close()
        store = Store(folder, read_only=True, group=group)
    if group is not None and not store.groups.all():
        store.close()
        raise NotFound(f"No group has this name: {group}", "`recollect group list` lists groups")
    return store


def _make_private_folder(folder: Path) -> None:
    try:
        is_new = not folder.exists()
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if is_new:
            folder.chmod(0o700)  # whatever the user's umask takes away
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot create the store ({error.strerror}): {folder}",
            "set RECOLLECT_HOME to a folder you can write to",
        ) from error
    if not os.access(folder, os.W_OK):
        raise unwritable(folder, "no write permission")
