"""Rebuilding what is damaged, and saying what cannot be.

`plan_repair` decides from what an inspection found; `apply_repair` acts. cache.db is made again from the packs, beside
the damaged one, and takes its place when it is whole; memory.db from its copy, the ledger and cache.db. Damaged files
are set aside, never deleted. A repair that was stopped is simply run again.

`rehydrate_session` brings an evicted session's raw detail back from the agent's own file.
"""

import os
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from recollect.care.inspect import ABANDONED, BEHIND, DATABASE, KEY, LEDGER, LEDGER_GAP, NO_MARK, SESSION, STREAM, Fault
from recollect.config import Settings
from recollect.lifecycle import finish_evictions
from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import NotFound, StoreUnwritable
from recollect.model.kinds import SessionKey
from recollect.model.schema import Session
from recollect.model.text import Progress
from recollect.redact import KEY_FILE, OPENING, load_key
from recollect.store import (
    CACHE_NAME,
    COPY,
    LEDGER_NAME,
    MEMORY_NAME,
    EventRow,
    Ledger,
    Quarantine,
    Store,
    files_of,
    forget_marks,
    open_store,
    rebuild_cache,
    restore_copy,
    sweep_lock,
    write_lock,
)
from recollect.sweep import sweep
from recollect.sweep_report import SweepReport

# What is done about the faults of a part, or of a database, in this order
_STEPS = {
    ABANDONED: "Remove leftovers of interrupted commands: {names}",
    CACHE_NAME: "Rebuild cache.db from the packs, set the damaged one aside, read all sources again",
    MEMORY_NAME: "Set memory.db aside, rebuild it from its copy, the ledger and cache.db",
    LEDGER: "Keep a copy of the ledger, and rewrite it without its damaged lines",
    LEDGER_GAP: "Restore records missing from the ledger from memory.db",
    KEY: "Create a new redaction key; `recollect redact --rescan` then marks all secrets with it",
    STREAM: "Keep the intact payloads of {count:,} sessions, and read their sources again",
    SESSION: "Rebuild the rows of {count:,} sessions",
    BEHIND: "Restore the records of the ledger, read what is missing from the sources, set a new high-water mark",
}


RepairPlan = defaultdict[str, list[Any]]  # what is to be rebuilt: by part, the names of what has faults


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


def plan_repair(faults: Iterable[Fault]) -> RepairPlan:
    """Which parts have to be rebuilt; faults that need nothing done (a changed source) are in no step."""
    repair = RepairPlan(list)
    for fault in faults:
        known = repair[BEHIND if fault.part == NO_MARK else fault.part]
        known += [] if fault.name in known else [fault.name]
    return repair


def repair_steps(repair: RepairPlan) -> list[str]:
    """The plan in sentences."""
    due = repair | {name: [name] for name in repair[DATABASE]}
    return [
        sentence.format(names=", ".join(map(str, due[part])), count=len(due[part]))
        for part, sentence in _STEPS.items()
        if due.get(part)
    ]


LostEvent = tuple[str, EventRow]  # of a session: its content is gone, as far as this store goes


def apply_repair(settings: Settings, repair: RepairPlan, progress: Progress) -> RepairReport:
    """Rebuild. May be ended at any moment and run again. Raises StoreUnwritable first where there is no room for it."""
    _require_room(settings.folder, repair)
    aside, report = Quarantine(settings.folder), RepairReport(steps=repair_steps(repair))
    with sweep_lock(settings.folder):
        _set_aside(settings.folder, repair, aside)
        if CACHE_NAME in repair[DATABASE]:
            advance = partial(progress, "reading packs")
            report.events_saved = rebuild_cache(settings.folder, aside.take_database, advance)
        with open_store(settings.folder, create=True) as store:
            lost = _rebuild(store, repair, aside, report, progress)
    with open_store(settings.folder) as store:
        before = store.session_rows.event_counts() | store.evictions.later_counts()
        report.events_read_again = sweep(store, settings, progress).events_new
        if store.evictions.note_held_usage():  # by sources that were read again
            sweep(store, settings, progress)
        report.lost += [*_fewer(store, settings, before), *_still_lost(store, lost)]
        store.accept_as_is()
        if aside.copy is not None:
            store.copies.put(aside.copy)
            report.set_aside = str(aside.folder)
        store.keep_copy(is_due=True)
    return report


def _require_room(folder: Path, repair: RepairPlan) -> None:
    """A database is built beside the damaged one, which stays."""
    needed = sum((folder / name).stat().st_size for name in repair[DATABASE] if (folder / name).exists())
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreUnwritable(
            f"Not enough space, a repair needs {needed:,} bytes and {free:,} are free: {folder}",
            "free some space; nothing was changed",
        )


def _set_aside(folder: Path, repair: RepairPlan, aside: Quarantine) -> None:
    if repair[LEDGER]:
        aside.keep_file(folder / LEDGER_NAME)
        Ledger(folder).rewrite(lambda record: True, is_repair=True)
    if any(path.exists() for name in repair[DATABASE] for path in files_of(folder / name)):
        aside.note()  # now: it takes the write lock, which is held later
    if MEMORY_NAME in repair[DATABASE]:
        with write_lock(folder):
            aside.take_database(folder / MEMORY_NAME)
            restore_copy(folder / MEMORY_NAME)
    if repair[DATABASE]:
        forget_marks(folder, repair[DATABASE])
    if repair[KEY]:
        aside.take(folder / KEY_FILE)
    load_key(folder)  # a store that cannot be opened does not say that its key is gone, too


def _rebuild(
    store: Store, repair: RepairPlan, aside: Quarantine, report: RepairReport, progress: Progress
) -> list[LostEvent]:
    lost: list[LostEvent] = []
    for number, name in enumerate(repair[STREAM], start=1):
        lost += _drop_damaged(store, name, aside)
        progress("repairing", number, len(repair[STREAM]))
    if repair[DATABASE] or repair[BEHIND]:
        own = Counter({COPY: int(aside.copy is not None)})
        report.records_restored = dict(store.restore_records() - own)
        store.evictions.note_held_usage()
        store.streams.set_all_dirty()
    if missing := store.missing_records():
        store.ledger.extend(missing)
    store.streams.set_dirty(repair[SESSION], True)
    return lost


def _drop_damaged(store: Store, name: tuple[str, str], aside: Quarantine) -> list[LostEvent]:
    """Keep what is sound of a session, and have its sources read again."""
    stream = store.raw.find(*name)
    if stream is None:
        return []
    for path in store.raw.packs_of(stream):
        aside.keep_file(path)
    store.sources.read_again(stream.id)
    lost = store.rewrites.drop_damaged(stream)
    store.rewrites.drop_old()
    return [(stream.uid, row) for row in lost]


def _fewer(store: Store, settings: Settings, before: dict[tuple[str, str], int]) -> Iterator[str]:
    """Sessions that had more events. One that has none left keeps its row, which says so."""
    now = store.raw.event_counts()
    missing = {name: count - now.get(name, 0) for name, count in before.items() if count > now.get(name, 0)}
    gone = missing.keys() - now.keys() - store.evictions.names()
    store.session_rows.set(("evicted_ms",), {SessionKey(*name): (now_ms(),) for name in gone})
    for name, count in missing.items():
        yield f"{count:,} of {before[name]:,} events are {_whereabouts(store, settings, name)}"


def _whereabouts(store: Store, settings: Settings, name: tuple[str, str]) -> str:
    """What became of events that were not read again: their file may lie outside of the folders that were read."""
    agent, native_id = name
    roots = [os.path.realpath(root) for root in settings.roots.get(agent, ())]
    session = store.sessions.find_named(SessionKey(*name))
    for source in session.sources if session else ():
        if os.access(source.path, os.F_OK) and not any(Path(source.path).is_relative_to(root) for root in roots):
            return f"missing, `recollect sweep --root {agent}=PATH` may read them again: {source.path}"
    return f"lost, no source has them: {agent}:{native_id}"


def _still_lost(store: Store, lost: list[LostEvent]) -> list[str]:
    """The events that no source could tell again, as far as they are known."""
    back = store.raw.stored([row.event_uid for _, row in lost])
    return [
        f"  {rfc3339(row.ts_ms) or 'no time'}  {row.kind}  {row.summary}: {uid}"
        for uid, row in lost
        if row.event_uid not in back
    ]


def rehydrate_session(store: Store, settings: Settings, session: Session, progress: Progress) -> SweepReport:
    """Read an evicted session again; raises NotFound if it is not evicted, or if its file is gone.

    Whatever stops it, the session is evicted and found by its digest until its events are held again.
    """
    name = (session.agent, session.native_session_id)
    if name not in store.evictions.names():
        raise NotFound(f"Not evicted, nothing to bring back: {session.session_uid}", "`recollect show` shows it")
    with sweep_lock(store.folder):
        finish_evictions(store)
        # Of a path that held a secret only the sweep can say whether there is a file.
        logs = store.sizes.logs(name, settings.host)
        paths = [path for path in logs if OPENING.decode() in path or os.access(path, os.R_OK)]
        if not paths:
            raise NotFound(
                f"The agent has deleted its file, so the raw detail is gone: {session.session_uid}",
                "`recollect digest` shows what is kept",
            )
    with store.evictions.awaiting(name):
        report = sweep(store, settings, progress)
    if name in store.evictions.names():
        raise NotFound(
            f"The sweep did not read this file: {paths[0]}",
            "it is outside the folders that are swept (`--root`), or exceeds the budget (`recollect retention`)",
        )
    return report
