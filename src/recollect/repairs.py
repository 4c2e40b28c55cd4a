"""Rebuilding what is damaged from the agents' files, the packs and the ledger, and saying what cannot be.

`plan` decides from what an inspection found; `apply` acts. Nothing is deleted: a damaged file is set aside in a
folder of its own, sound parts of it are taken over, then a sweep reads the agents' files again.
"""

import os
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from recollect.clock import now_ms, rfc3339
from recollect.config import Settings
from recollect.errors import StoreUnwritable
from recollect.inspection import (
    ABANDONED,
    BEHIND,
    DATABASE,
    KEY,
    LEDGER,
    LEDGER_GAP,
    NO_MARK,
    SESSION,
    STOPPED,
    STREAM,
    Fault,
)
from recollect.progress import Progress
from recollect.redact.marks import KEY_FILE, load_key
from recollect.store import CACHE_NAME, DATABASES, MEMORY_NAME, Store, open_store
from recollect.store.adopting import Adoption, adopt, adopted_sources
from recollect.store.aside import Aside, drop_salvaged, files_of, finish, finish_moving
from recollect.store.batch import EventRow
from recollect.store.copies import KIND as COPY
from recollect.store.evictions import Keys
from recollect.store.frames import HeldStream
from recollect.store.history import forget_history
from recollect.store.holdings import HeldEvent, HeldProblem, HeldSource, Holdings
from recollect.store.ledger import LEDGER_NAME, Ledger
from recollect.store.locks import sweep_lock, write_lock
from recollect.store.mending import LostEvent, read_again, rewrite_stream
from recollect.store.salvage import SalvagedDatabase
from recollect.store.tombstones import Tombstones
from recollect.sweep import sweep

_EVENTS_AT_ONCE = 2000


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """What is to be rebuilt. `steps` says it in sentences."""

    databases: tuple[str, ...] = ()
    streams: tuple[tuple[str, str], ...] = ()
    sessions: tuple[tuple[str, str], ...] = ()
    has_ledger_damage: bool = False
    has_ledger_gap: bool = False
    has_lost_key: bool = False
    is_behind: bool = False
    stopped: tuple[str, ...] = ()  # folders of earlier repairs, oldest first
    abandoned: tuple[str, ...] = ()

    @property
    def steps(self) -> list[str]:
        told = [f"Go on with a repair that was stopped: take over what it set aside in {name}" for name in self.stopped]
        if self.abandoned:
            told.append(f"Remove what commands that were stopped left in the store: {', '.join(self.abandoned)}")
        if CACHE_NAME in self.databases:
            told.append("Set cache.db and the packs aside, take over what is sound in them, read all sources again")
        if MEMORY_NAME in self.databases:
            told.append("Set memory.db aside, make its rows again from cache.db, the ledger and what is sound in it")
        if self.has_ledger_damage:
            told.append("Keep a copy of the ledger with its damaged lines, and write it anew without them")
        if self.has_ledger_gap:
            told.append("Write the records that the ledger has lost again, from memory.db")
        if self.has_lost_key:
            told.append("Make a new key of redaction; `recollect redact --rescan` then marks all secrets with it")
        if self.streams:
            told.append(f"Keep the sound payloads of {len(self.streams):,} sessions, and read their sources again")
        if self.sessions:
            told.append(f"Make the rows of {len(self.sessions):,} sessions again")
        if self.is_behind:
            told.append("Put the records of the ledger back, read what is missing from the sources, take a new mark")
        return told


@dataclass(slots=True)
class RepairReport:
    """What was done, what is lost for good, and where the damaged files are kept."""

    steps: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    set_aside: str | None = None
    events_saved: int = 0
    events_read_again: int = 0
    records_restored: dict[str, int] = field(default_factory=dict)


def plan(faults: Iterable[Fault]) -> RepairPlan:
    """Which parts have to be rebuilt; faults that need nothing done (a changed source) are left out."""
    found = list(faults)

    def names(part: str) -> tuple[Any, ...]:
        return tuple(dict.fromkeys(fault.name for fault in found if fault.part == part))

    return RepairPlan(
        databases=names(DATABASE),
        streams=names(STREAM),
        sessions=names(SESSION),
        has_ledger_damage=bool(names(LEDGER)),
        has_ledger_gap=bool(names(LEDGER_GAP)),
        has_lost_key=bool(names(KEY)),
        is_behind=bool(names(BEHIND) or names(NO_MARK)),
        stopped=names(STOPPED),
        abandoned=names(ABANDONED),
    )


def apply(settings: Settings, repair: RepairPlan, progress: Progress) -> RepairReport:
    """Rebuild. May be ended at any moment: what was set aside stays and is marked, and the next repair goes on with it.

    Raises StoreUnwritable, before anything is moved, where there is no room for it.
    """
    _require_room(settings.folder, repair)
    aside = Aside(settings.folder)
    stopped = [settings.folder / name for name in repair.stopped]
    report = RepairReport(steps=repair.steps, set_aside=str(stopped[-1]) if stopped else None)
    with sweep_lock(settings.folder):
        drop_salvaged(settings.folder)
        _finish_moving(settings.folder, stopped)
        _set_aside(settings.folder, repair, aside)
        with open_store(settings.folder, create=True) as store:
            lost = _rebuild(store, repair, aside, report, progress)
    with open_store(settings.folder) as store:
        before = store.sessions.event_counts() | store.evictions.later_counts()
        report.events_read_again = sweep(store, settings, progress).events_new
        if store.evictions.note_held_usage():  # by sources that were read again
            sweep(store, settings, progress)
        report.lost += [*_fewer(store, settings, before), *_still_lost(store, lost)]
        store.accept_as_is()
        if aside.copy is not None:
            store.copies.put(aside.copy)
            report.set_aside = str(aside.folder)
    for folder in (*stopped, aside.folder):
        finish(folder)
    return report


def _require_room(folder: Path, repair: RepairPlan) -> None:
    """The old files stay; their rows are written twice: into a copy while they are sorted, and into the new file."""
    damaged = [*_damaged(folder, repair), *_set_aside_before(folder, repair)]
    rows = sum(path.stat().st_size for path in damaged if path.is_file())
    needed = 2 * rows + sum(pack.stat().st_size for path in damaged for pack in path.rglob("*.pack"))
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreUnwritable(
            f"A repair needs {needed:,} bytes, and {free:,} are free: {folder}", "free some space; nothing was changed"
        )


def _set_aside_before(folder: Path, repair: RepairPlan) -> Iterator[Path]:
    for stopped in repair.stopped:
        yield from (folder / stopped / name for database in DATABASES for name in files_of(database))


def _finish_moving(store: Path, stopped: list[Path]) -> None:
    with write_lock(store):
        for folder in reversed(stopped):
            finish_moving(store, folder)


def _set_aside(folder: Path, repair: RepairPlan, aside: Aside) -> None:
    ledger = (folder / LEDGER_NAME).read_bytes() if repair.has_ledger_damage else b""  # as it is before the note
    paths = [path for path in _damaged(folder, repair) if path.exists()]
    if paths or ledger:
        aside.note(paths)
    with write_lock(folder):
        for path in paths:
            aside.take(path)
    if repair.databases:
        forget_history(folder, repair.databases)
    if repair.has_ledger_damage:
        aside.keep_copy(folder / LEDGER_NAME, ledger)
        Ledger(folder).rewrite(lambda record: True, is_repair=True)
    if repair.has_lost_key:
        load_key(folder)


def _damaged(folder: Path, repair: RepairPlan) -> Iterator[Path]:
    for database in repair.databases:
        yield from (folder / name for name in files_of(database))
    if repair.has_lost_key:
        yield folder / KEY_FILE


def _rebuild(
    store: Store, repair: RepairPlan, aside: Aside, report: RepairReport, progress: Progress
) -> list[LostEvent]:
    lost: list[LostEvent] = []
    folders = [*(store.folder / name for name in repair.stopped), aside.folder]
    # First: it tells what was forgotten and evicted.
    _take_over_memory(store, folders, report, is_new=MEMORY_NAME in repair.databases)
    for folder in folders:
        if (folder / CACHE_NAME).exists():
            lost += _take_over_cache(store, folder, report, progress)
    for number, name in enumerate(repair.streams, start=1):
        lost += _mend(store, name, aside)
        progress("mending", number, len(repair.streams))
    if repair.databases or repair.is_behind or repair.stopped:
        own = Counter({COPY: len(repair.stopped) + (aside.copy is not None)})
        report.records_restored = dict(store.restore_records() - own)
        store.evictions.note_held_usage()
        store.streams.set_all_dirty()
    if missing := store.missing_records():
        store.ledger.extend(missing)
    wanted = (store.streams.find(*name) for name in repair.sessions)
    store.streams.set_dirty([stream for stream in wanted if stream is not None], True)
    return lost


def _mend(store: Store, name: tuple[str, str], aside: Aside) -> list[LostEvent]:
    stream = store.holdings.find(*name)
    if stream is None:
        return []
    frames = store.holdings.frames(stream)
    frames.close()
    read_again(store.databases[0], stream.id)
    lost = rewrite_stream(store.databases[0], store.folder, stream)
    aside.take(frames.pack_path)
    return lost


def _take_over_cache(store: Store, folder: Path, report: RepairReport, progress: Progress) -> list[LostEvent]:
    """Put every event that is sound in a damaged cache into the new one; returns those that are not."""
    lost: list[LostEvent] = []
    with closing(_salvaged(folder / CACHE_NAME, report)) as database:
        old = Holdings(database, folder)
        rescue = _Rescue(store, old)
        for number, (stream, event) in enumerate(old.iter_all_events(), start=1):
            if event.payload is None:
                lost.append(_lost(stream, event.row))
            else:
                rescue.add(stream, event)
            if number % _EVENTS_AT_ONCE == 0:
                rescue.flush()
                progress("taking over", number, 0)
        rescue.finish()
        report.events_saved += rescue.saved
    return lost


def _salvaged(path: Path, report: RepairReport) -> SalvagedDatabase:
    database = SalvagedDatabase(path)
    if not database.has_rows:
        report.notes.append(f"Nothing of the damaged {path.name} can be read")
    return database


def _lost(stream: HeldStream, row: EventRow) -> LostEvent:
    return LostEvent(stream.agent, stream.native_id, row.event_uid, row.ts_ms, row.kind, row.summary)


class _Rescue:
    """Takes events over from a damaged cache, some at a time."""

    def __init__(self, store: Store, old: Holdings) -> None:
        self._store = store
        self._tombstones = Tombstones(store.tombstones, store.sources)
        self._evicted: dict[tuple[str, str], Keys] = {
            name: store.evictions.keys(name) for name in store.evictions.names()
        }
        self._old = old
        self._sources: dict[int, HeldSource] = old.sources()
        self._problems: dict[int, list[HeldProblem]] = old.problems()
        self._waiting: dict[HeldStream, list[HeldEvent]] = {}
        self.saved = 0

    def add(self, stream: HeldStream, event: HeldEvent) -> None:
        keys = self._evicted.get((stream.agent, stream.native_id))
        if keys is None or not keys.hold(event.row.event_uid, event.row.payload_hash):
            self._waiting.setdefault(stream, []).append(event)

    def finish(self) -> None:
        """Take over the rest, and what is still held of sessions that were evicted: it tells who paid for what."""
        self._waiting |= {
            stream: []
            for stream in self._old.streams()
            if stream not in self._waiting and (stream.agent, stream.native_id) in self._evicted
        }
        self.flush()

    def flush(self) -> None:
        for stream, events in self._waiting.items():
            known = self._store.holdings.stored([event.row.event_uid for event in events])
            news = [event for event in events if event.row.event_uid not in known]
            adoption = Adoption(
                stream.agent,
                stream.native_id,
                list(adopted_sources(self._old, stream, self._sources, self._problems)),
                [event.row for event in news],
                [event.payload or b"" for event in news],
                self._old.usage(stream),
                self._old.cost_totals(stream),
            )
            self.saved += adopt(self._store, adoption, self._tombstones).events_new
        self._waiting = {}


def _take_over_memory(store: Store, folders: list[Path], report: RepairReport, *, is_new: bool) -> None:
    """Rows of sessions that only memory.db knew, as far as they can be read; then what the ledger tells beside them.

    The newest of several is the first: what a later one tells of a session counts.
    """
    for folder in reversed(folders):
        if (folder / MEMORY_NAME).exists():
            with closing(_salvaged(folder / MEMORY_NAME, report)) as database:
                store.restore_records()
                (store.take_over_memory if is_new else store.add_memory)(database)
            is_new = False
            store.restore_records()


def _fewer(store: Store, settings: Settings, before: dict[tuple[str, str], int]) -> Iterator[str]:
    """Sessions that had more events. One that has none left keeps its row, which says so."""
    now = store.holdings.event_counts()
    missing = {name: count - now.get(name, 0) for name, count in before.items() if count > now.get(name, 0)}
    gone = missing.keys() - now.keys() - store.evictions.names()
    store.sessions.set_evicted(sorted(gone), now_ms())
    for name, count in missing.items():
        yield f"{count:,} of {before[name]:,} events are {_whereabouts(store, settings, name)}"


def _whereabouts(store: Store, settings: Settings, name: tuple[str, str]) -> str:
    """What became of events that were not read again: their file may lie outside of the folders that were read."""
    agent, native_id = name
    roots = [os.path.realpath(root) for root in settings.roots.get(agent, ())]
    session = store.sessions.find_named(*name)
    for source in session.sources if session else ():
        if os.access(source.path, os.F_OK) and not any(Path(source.path).is_relative_to(root) for root in roots):
            return f"not held, `recollect sweep --root {agent}=PATH` may read them again: {source.path}"
    return f"lost, no source has them: {agent}:{native_id}"


def _still_lost(store: Store, lost: list[LostEvent]) -> list[str]:
    """The events that no source could tell again, as far as they are known."""
    back = store.holdings.stored([event.event_uid for event in lost])
    missing = [event for event in lost if event.event_uid not in back]
    return [
        f"  {rfc3339(event.ts_ms) or 'no time'}  {event.kind}  {event.summary}: {event.agent}:{event.native_id}"
        for event in missing
    ]
