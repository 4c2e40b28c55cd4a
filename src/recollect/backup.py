"""The whole store in one file, and back.

A backup has both databases as of one moment, the packs as of that moment, the ledger, the settings and the key of the
redaction marks. A restore unpacks it beside the store and compares every hash before anything is replaced.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.bundle import (
    BundleWriter,
    Form,
    Manifest,
    compressed,
    read_bundle,
    unfinished,
)
from recollect.config import Settings
from recollect.errors import BadBackup, RecollectError, StoreDamaged, StoreTooNew, StoreUnwritable
from recollect.progress import Progress
from recollect.removal import finish_forgetting
from recollect.store import DATABASES, Store, open_database, open_store
from recollect.store.copies import SET_ASIDE
from recollect.store.ledger import LEDGER_NAME
from recollect.store.locks import sweep_lock, work_folder
from recollect.store.packs import pack_path
from recollect.store.replacing import finish_replacing, replace_store
from recollect.store.snapshot import copy_database, frozen

KEPT_FILES = (LEDGER_NAME, "redaction.key")
SETTINGS_NAME = "config.toml"

_TRIES = 3
_SIDE_FILES = ("", "-journal", "-wal", "-shm")


def _is_part(name: str) -> bool:
    """Whether a file of this name belongs into a backup."""
    parts = name.split("/")
    is_pack = len(parts) == 3 and parts[0] == "packs" and ".." not in parts and name.endswith(".pack")
    return is_pack or name in (*DATABASES, *KEPT_FILES, SETTINGS_NAME)


FORM = Form("recollect-backup", 1, _is_part)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds; `is_noted` is off where the store could not be written, so that `forget` cannot name it."""

    path: str
    bytes: int
    sessions: int
    events: int
    files: int
    is_noted: bool


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was put in place, and where the store that was there before lies now."""

    path: str
    folder: str
    made_at: str
    sessions: int
    events: int
    set_aside: str | None


def make_backup(store: Store, settings: Settings, path: Path, progress: Progress) -> BackupReport:
    """Write a backup, read it again, and only then give it its name. Never overwrites."""
    with unfinished(store, path) as beside, store.copies.noting("backup", path):
        manifest = _write(store, settings, beside, progress)
        if read_bundle(beside, None, FORM, progress) != manifest:
            raise BadBackup(f"What was written is not what was read back: {path}", "look at the disk it is on")
    counts = manifest["counts"]
    files, size = len(manifest["files"]), path.stat().st_size
    return BackupReport(str(path), size, counts["sessions"], counts["events"], files, not store.read_only)


def _write(store: Store, settings: Settings, beside: Path, progress: Progress) -> dict[str, Any]:
    """Try again if packs were rewritten meanwhile: all that the frozen database names must be there."""
    for _ in range(_TRIES):
        try:
            return _write_once(store, settings, beside, progress)
        except _PackGone as gone:
            path = gone.path
    raise StoreDamaged(f"Pack is missing or cut off: {path}", "`recollect doctor --repair` rebuilds what it can")


class _PackGone(Exception):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def _write_once(store: Store, settings: Settings, beside: Path, progress: Progress) -> dict[str, Any]:
    scratch = beside.with_name(beside.name + ".db")
    try:
        with compressed(beside) as stream, frozen(store):
            bundle = BundleWriter(stream, Manifest(FORM.name, FORM.version))
            counts = {"sessions": store.sessions.count(), "events": sum(store.holdings.event_counts().values())}
            _add_databases(bundle, store, scratch, progress)
            _add_packs(bundle, store, progress)
            for name, path in _other_files(store, settings):
                bundle.add_file(name, path)
            return bundle.finish(host=settings.host, counts=counts)
    finally:
        for side in _SIDE_FILES:
            scratch.with_name(scratch.name + side).unlink(missing_ok=True)


def _other_files(store: Store, settings: Settings) -> Iterator[tuple[str, Path]]:
    places = [*((name, store.folder / name) for name in KEPT_FILES), (SETTINGS_NAME, settings.config_path)]
    return ((name, path) for name, path in places if path.exists())


def _add_databases(bundle: BundleWriter, store: Store, scratch: Path, progress: Progress) -> None:
    for database in store.databases:
        name = database.path.name
        os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        copy_database(database, scratch, lambda done, total, name=name: progress(name, done, total))  # type: ignore[misc]
        bundle.add_file(name, scratch)
        scratch.unlink()


def _add_packs(bundle: BundleWriter, store: Store, progress: Progress) -> None:
    streams = [stream for stream in store.holdings.streams() if stream.pack_bytes]
    for number, stream in enumerate(streams, start=1):
        path = pack_path(store.folder, stream.agent, stream.native_id, stream.pack_generation)
        try:
            bundle.add_file(path.relative_to(store.folder).as_posix(), path, stream.pack_bytes)
        except (FileNotFoundError, EOFError):
            raise _PackGone(path) from None
        progress("packs", number, len(streams))


def restore_backup(settings: Settings, path: Path, progress: Progress) -> RestoreReport:
    """Put a backup in the store's place; what is there is set aside. A backup that is not whole changes nothing."""
    folder = settings.folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        finish_replacing(folder)
        with work_folder(folder, "unpacking") as unpacked:
            manifest = read_bundle(path, unpacked, FORM, progress)
            _check_databases(path, unpacked)
            _place_settings(unpacked, settings)
            aside = replace_store(folder, unpacked)
    except OSError as error:
        raise StoreUnwritable(f"Cannot restore ({error.strerror}): {folder}", "nothing was changed") from error
    sessions, events = _settle(folder, aside)
    made_at = str(manifest.get("made_at", "an unknown time"))
    return RestoreReport(str(path), str(folder), made_at, sessions, events, str(aside) if aside else None)


def _check_databases(path: Path, unpacked: Path) -> None:
    for name in DATABASES:
        if not (unpacked / name).exists():
            raise BadBackup(f"Not whole, {name} is not in it: {path}", "nothing was changed; take another one")
        try:
            open_database(unpacked / name).close()
        except StoreTooNew:
            raise BadBackup(f"Made by a newer version: {path}", "upgrade `recollect`; nothing was changed") from None
        except RecollectError as error:
            raise BadBackup(
                f"Damaged, {name} in it cannot be read: {path}", "nothing was changed; take another one"
            ) from error
        for beside in ("-wal", "-shm"):
            (unpacked / (name + beside)).unlink(missing_ok=True)


def _place_settings(unpacked: Path, settings: Settings) -> None:
    """Settings come back only where there are none: those in force are the user's last word."""
    told = unpacked / SETTINGS_NAME
    if told.exists() and not settings.config_path.exists():
        settings.config_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(told, settings.config_path)
    told.unlink(missing_ok=True)


def _settle(folder: Path, aside: Path | None) -> tuple[int, int]:
    """Finish what the store knows better than the backup; how many sessions and events there are then."""
    with open_store(folder) as store, sweep_lock(folder):
        store.restore_records()
        finish_forgetting(store)  # what was forgotten since is in the backup
        store.accept_as_is()
        if aside is not None:
            store.copies.note_copy(SET_ASIDE, aside)
        return store.sessions.count(), sum(store.holdings.event_counts().values())
