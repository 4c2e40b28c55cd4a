"""Making cache.db again from the packs: every frame says whose it is and what it holds."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path

from recollect.schema import SessionSource
from recollect.store import CACHE_NAME, Store
from recollect.store.batch import Batch, SourceRow, StreamBatch
from recollect.store.intake import Intake
from recollect.store.payloads import packs
from recollect.store.payloads.frames import Origin, describe, hash_source
from recollect.store.payloads.packs import StoredFrame
from recollect.store.payloads.writer import OWN, tidy_shared
from recollect.store.sqlite.files import sync
from recollect.store.sqlite.locks import drop_note, work_folder, write_lock
from recollect.store.tables.evictions import Evicted
from recollect.store.tables.sources import Sources
from recollect.store.tables.tombstones import Tombstones, without_forgotten

_FRAMES_AT_ONCE = 200

FilesOf = Callable[[str, str], Sequence[SessionSource]]


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
        tidy_shared(store.databases[0], store.folder)
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
        session = store.sessions.find_named(agent, native_id)
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
    number, file_bytes = int(path.stem) if is_shared else OWN, path.stat().st_size
    for found in packs.iter_frames(path):
        try:
            origin, rows, facts = describe(found.content)
        except ValueError:
            continue  # sound, and still none of ours
        frame = packs.Frame(len(found.content.payloads), found.entry)
        stored = StoredFrame(*frame, number, found.offset, generation, file_bytes)
        is_in_place = is_shared or generation == newest[name]
        part = StreamBatch(
            origin.native_id, list(rows), [stored if is_in_place else frame], facts=facts, has_events=bool(rows)
        )
        yield Batch(_source(origin, files_of), [part], redacted_with=origin.redacted_with)


def _source(origin: Origin, files_of: FilesOf) -> SourceRow:
    files = files_of(origin.agent, origin.native_id)
    known = (file for file in files if hash_source(file.host, file.path) == origin.source_hash)
    file = next(known, None) or SessionSource(f"unknown/{origin.source_hash.hex()}", 0, origin.host, None)
    return SourceRow(file.host, origin.agent, file.path, origin.source_kind, file.bytes, 0, 0, 0, 0, 0, 0, "", "", "{}")
