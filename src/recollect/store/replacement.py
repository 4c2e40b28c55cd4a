"""Replacing what is stored, so that a crash leaves the old or the new, never a mixture.

The whole store: the new one is complete in a folder below the old one, and the folder's name says so. Whoever opens the
store next finishes what was begun: each step moves one thing and can be repeated.

cache.db: it is made again from the packs, whose frames say whose they are and what they hold. What a repair replaces is
moved into a folder, never deleted.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from itertools import islice
from pathlib import Path

import orjson

from recollect.model.files import new_file, replace_file, sync
from recollect.model.kinds import SessionKey
from recollect.model.schema import SessionSource
from recollect.store import CACHE_NAME, Store
from recollect.store.batch import Batch, SourceRow, StreamBatch
from recollect.store.check import MARK_NAME
from recollect.store.intake import Intake
from recollect.store.ledger import LEDGER_NAME, Ledger
from recollect.store.payloads import packs
from recollect.store.payloads.writer import Origin, hash_source, iter_described, tidy_packs
from recollect.store.sqlite.locks import drop_note, sweep_lock, work_folder, write_lock
from recollect.store.tables.copies import SET_ASIDE, Copy, note_ahead
from recollect.store.tables.evictions import Evicted
from recollect.store.tables.sources import Sources
from recollect.store.tables.table import CACHE, MEMORY
from recollect.store.tables.tombstones import Tombstones, without_forgotten

READY_NAME = "replacement"
FilesOf = Callable[[str, str], Sequence[SessionSource]]

_FRAMES_AT_ONCE = 200
_NOTE = "note.json"  # in the replacement: its parts, and where the old store goes
_PARTS = (MEMORY, CACHE, "packs", LEDGER_NAME)
_KEY = "redaction.key"  # stays in use unless the new store brings its own


def replace_store(folder: Path, unpacked: Path) -> Path | None:
    """Replace the store with what was unpacked; returns where the old one is now, if there was any."""
    with sweep_lock(folder), write_lock(folder):
        _carry_over(folder, unpacked)
        parts = [name for name in (*_PARTS, _KEY) if (unpacked / name).exists()]
        note = {"parts": parts, "aside": f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"}
        replace_file(unpacked / _NOTE, orjson.dumps(note))
        unpacked.rename(folder / READY_NAME)  # from here on it is finished, by this process or by the next one
        sync(folder)
        return _finish(folder)


def finish_replacing(folder: Path) -> None:
    """Finish what a killed process had begun."""
    if (folder / READY_NAME).exists():
        with sweep_lock(folder), write_lock(folder):
            _finish(folder)


def _carry_over(folder: Path, unpacked: Path) -> None:
    """Keep the records that outlive a restore: what was forgotten since stays forgotten."""
    from recollect.store.tables.lasting import OUTLIVES_RESTORE  # it loads more than a search needs

    new = Ledger(unpacked)
    known = {(record.kind, str(record.data)) for record in new.records()}
    for record in Ledger(folder).records():
        if record.kind in OUTLIVES_RESTORE and (record.kind, str(record.data)) not in known:
            new.append(record.kind, record.data)
    for path in unpacked.glob("*.lock"):
        path.unlink()


def _finish(folder: Path) -> Path | None:
    ready = folder / READY_NAME
    if not (ready / _NOTE).exists():  # all was moved; only the last step is left, if no other process took it
        with suppress(FileNotFoundError):
            ready.rmdir()
        return None
    note = orjson.loads((ready / _NOTE).read_bytes())
    aside = folder / note["aside"]
    for name in (*_PARTS, *note["parts"]):
        if (ready / name).exists() or name not in note["parts"]:  # else the new one is in place already
            for old in reversed(files_of(folder / name)):
                if old.exists():
                    aside.mkdir(mode=0o700, exist_ok=True)
                    old.rename(aside / old.name)
        if (ready / name).exists():
            (ready / name).rename(folder / name)
    (folder / MARK_NAME).unlink(missing_ok=True)
    for name in (MEMORY, CACHE):
        drop_note(folder / name)
    sync(folder)
    (ready / _NOTE).unlink()
    ready.rmdir()
    return aside if aside.exists() else None


def files_of(database: Path) -> list[Path]:
    """A database with its log."""
    return [database.with_name(database.name + suffix) for suffix in ("-wal", "-shm", "")]


class Quarantine:
    """The folder that a repair moves damaged files into, made when the first one comes."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.folder = store / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        self.copy: Copy | None = None

    def note(self) -> None:
        """Have the ledger know the folder before there is one: whatever stops this, a later `forget` knows of it."""
        if self.copy is None:
            self.copy = note_ahead(Ledger(self._store), SET_ASIDE, self.folder)
            self.folder.mkdir(mode=0o700)
            sync(self._store)

    def take(self, path: Path) -> None:
        """Move a file of the store here, under the same name; if the write lock is held, `note` first."""
        if path.exists():
            self.note()
            target = self._target(path)
            path.rename(target)
            sync(target.parent)
            sync(path.parent)

    def take_database(self, path: Path) -> None:
        """Move a database here with its log, which goes first: alone it would be taken for that of the next one."""
        for file in files_of(path):
            self.take(file)

    def keep_file(self, path: Path) -> None:
        """Keep a copy of a file that stays in use, once."""
        content = path.read_bytes()  # before the note, which the ledger is given
        self.note()
        with suppress(FileExistsError), new_file(self._target(path)) as copy:
            copy.write(content)

    def _target(self, path: Path) -> Path:
        target = self.folder / path.relative_to(self._store)
        for folder in reversed(target.parents):
            if folder.is_relative_to(self.folder):
                folder.mkdir(mode=0o700, exist_ok=True)
        return target


def rebuild_cache(folder: Path, set_aside: Callable[[Path], None], advance: Callable[[int, int], None]) -> int:
    """Make cache.db anew, beside the old one if there is one, and then put it in its place; returns how many events.

    The sweep's lock must be held. If this is stopped, the packs are as they were and it can be done again.
    """
    with work_folder(folder, "rebuilding") as work:
        with Store(folder, cache_path=work / CACHE_NAME) as store:
            store.restore_records()  # they say what was forgotten and evicted
            events = _index_packs(store, advance)
        with write_lock(folder):
            set_aside(folder / CACHE_NAME)
            (work / CACHE_NAME).rename(folder / CACHE_NAME)
            drop_note(folder / CACHE_NAME)
            sync(folder)
    with Store(folder) as store:
        for path in store.raw.unknown_packs():  # what is in them was replaced, or must not come back
            path.unlink()
        tidy_packs(store.databases[0], store.folder)
    return events


def _index_packs(store: Store, advance: Callable[[int, int], None]) -> int:
    """Put all that packs hold and that may be held into a new cache.db. Frames stay where they are."""
    database = store.databases[0]
    intake, events, pack_paths = Intake(database, store.folder), 0, packs.all_packs(store.folder)
    tombstones, evicted = Tombstones(store.tombstones, store.sources), Evicted(store.evictions)
    shared = [path for path in pack_paths if path.parent.name == packs.SHARED]
    # Of a session's own packs the last is the newest: an older one is copied from, as far as it has more.
    newest = dict(sorted(packs.own_name(path) for path in pack_paths if path not in shared))
    # Known first: what has to be framed anew meanwhile is appended behind the last of them.
    rows = [(int(path.stem), path.stat().st_size) for path in shared]
    database.write_all("INSERT OR REPLACE INTO shared_packs VALUES (?, ?, 0)", rows)

    @cache
    def files_of(agent: str, native_id: str) -> Sequence[SessionSource]:
        session = store.sessions.find_named(SessionKey(agent, native_id))
        return session.sources if session else ()

    for number, path in enumerate(pack_paths, start=1):
        found = _batches(path, newest, files_of)
        while batches := list(islice(found, _FRAMES_AT_ONCE)):
            admitted = [evicted.without(without_forgotten(batch, tombstones)) for batch in batches]
            events += intake.put(admitted, Sources.save_unread).events_new
        advance(number, len(pack_paths))
    database.checkpoint()
    return events


def _batches(path: Path, newest: dict[str, int], files_of: FilesOf) -> Iterator[Batch]:
    is_shared = path.parent.name == packs.SHARED
    name, generation = ("", 0) if is_shared else packs.own_name(path)
    number, file_bytes = int(path.stem) if is_shared else packs.OWN, path.stat().st_size
    is_in_place = is_shared or generation == newest[name]
    for frame, _, (origin, rows, facts) in iter_described(path):
        placed = frame._replace(pack=number if is_in_place else None, generation=generation, file_bytes=file_bytes)
        part = StreamBatch(origin.native_id, list(rows), [placed], facts=facts)
        yield Batch(_source(origin, files_of), [part], redacted_with=origin.redacted_with)


def _source(origin: Origin, files_of: FilesOf) -> SourceRow:
    files = files_of(origin.agent, origin.native_id)
    known = (file for file in files if hash_source(file.host, file.path) == origin.source_hash)
    file = next(known, None) or SessionSource(f"unknown/{origin.source_hash.hex()}", 0, origin.host, None)
    return SourceRow(file.host, origin.agent, file.path, origin.source_kind, file.bytes, 0, 0, 0, 0, 0, 0, "", "", "{}")
