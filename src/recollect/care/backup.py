"""The whole store in one file, and back.

A backup has both databases as of one moment, the packs as of that moment, the ledger, the settings and the key of the
redaction marks. A restore unpacks it beside the store and compares every hash before anything is replaced. Settings are
shown and never applied: they may name a command to run.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recollect.care.bundle import BundleWriter, Form, compressed, read_bundle, unfinished
from recollect.config import Settings
from recollect.errors import BadBackup, RecollectError, StoreDamaged, StoreTooNew, StoreUnwritable
from recollect.files import new_file
from recollect.forget import finish_forgetting
from recollect.store import (
    DATABASES,
    LEDGER_NAME,
    SET_ASIDE,
    Store,
    copy_database,
    finish_replacing,
    frozen,
    open_database,
    open_store,
    replace_store,
    sweep_lock,
    work_folder,
)
from recollect.text import Progress

KEPT_FILES = (LEDGER_NAME, "redaction.key")
SETTINGS_NAME = "config.toml"
RESTORED_SETTINGS_NAME = "config-from-backup.toml"

_TRIES = 3
_SIDE_FILES = ("", "-journal", "-wal", "-shm")


def _is_part(name: str) -> bool:
    """Whether a file of this name belongs in a backup."""
    parts = name.split("/")
    is_pack = len(parts) == 3 and parts[0] == "packs" and ".." not in parts and name.endswith(".pack")
    return is_pack or name in (*DATABASES, *KEPT_FILES, SETTINGS_NAME)


FORM = Form("recollect-backup", 1, _is_part)


@dataclass(frozen=True, slots=True)
class BackupReport:
    """What a backup holds. `is_noted` is off for a read-only store: `forget` cannot name this copy."""

    path: str
    bytes: int
    sessions: int
    events: int
    files: int
    is_noted: bool


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What was restored, and where the previous store is now. `settings`: the backup's, if they differ from yours."""

    path: str
    folder: str
    made_at: str
    sessions: int
    events: int
    set_aside: str | None
    settings: str | None


def make_backup(store: Store, settings: Settings, path: Path, progress: Progress) -> BackupReport:
    """Write a backup, read it back, and only then give it its name. Never overwrites."""
    with unfinished(store, path) as beside, store.copies.noting("backup", path):
        manifest = _write(store, settings, beside, progress)
        if read_bundle(beside, None, FORM, progress) != manifest:
            raise BadBackup(f"Verification failed, the file read back differs: {path}", "check its disk")
    counts = manifest["counts"]
    files, size = len(manifest["files"]), path.stat().st_size
    return BackupReport(str(path), size, counts["sessions"], counts["events"], files, not store.read_only)


def _write(store: Store, settings: Settings, beside: Path, progress: Progress) -> dict[str, Any]:
    """Try again if packs were rewritten meanwhile: the backup must have every pack its database names."""
    for _ in range(_TRIES - 1):
        with suppress(StoreDamaged):
            return _write_once(store, settings, beside, progress)
    return _write_once(store, settings, beside, progress)


def _write_once(store: Store, settings: Settings, beside: Path, progress: Progress) -> dict[str, Any]:
    scratch = beside.with_name(beside.name + ".db")
    try:
        with compressed(beside) as stream, frozen(store):
            bundle = BundleWriter(stream, FORM)
            counts = {"sessions": store.sessions.count(), "events": sum(store.raw.event_counts().values())}
            _add_databases(bundle, store, scratch, progress)
            _add_packs(bundle, store, progress)
            places = [*((name, store.folder / name) for name in KEPT_FILES), (SETTINGS_NAME, settings.config_path)]
            for name, path in places:
                if path.exists():
                    bundle.add_file(name, path)
            return bundle.finish(host=settings.host, counts=counts)
    finally:
        for side in _SIDE_FILES:
            scratch.with_name(scratch.name + side).unlink(missing_ok=True)


def _add_databases(bundle: BundleWriter, store: Store, scratch: Path, progress: Progress) -> None:
    for database in store.databases:
        name = database.path.name
        with new_file(scratch):
            pass  # made before SQLite does it, so that it is the user's alone
        copy_database(database, scratch, lambda done, total, name=name: progress(name, done, total))  # type: ignore[misc]
        bundle.add_file(name, scratch)
        scratch.unlink()


def _add_packs(bundle: BundleWriter, store: Store, progress: Progress) -> None:
    packs = list(store.raw.packs())
    for number, (path, size) in enumerate(packs, start=1):
        try:
            bundle.add_file(path.relative_to(store.folder).as_posix(), path, size)
        except (FileNotFoundError, EOFError):
            raise StoreDamaged(
                f"Pack is missing or truncated: {path}", "`recollect doctor --repair` rebuilds what it can"
            ) from None
        progress("copying", number, len(packs))


def restore_backup(settings: Settings, path: Path, progress: Progress) -> RestoreReport:
    """Replace the store by a backup; the old one is set aside. An incomplete backup changes nothing."""
    folder = settings.folder
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        finish_replacing(folder)
        with work_folder(folder, "unpacking") as unpacked:
            manifest = read_bundle(path, unpacked, FORM, progress)
            _check_databases(path, unpacked)
            shown = _show_settings(unpacked, settings)
            aside = replace_store(folder, unpacked)
    except OSError as error:
        raise StoreUnwritable(f"Cannot restore ({error.strerror}): {folder}", "nothing was changed") from error
    sessions, events = _settle(settings, aside)
    made_at = str(manifest.get("made_at", "an unknown time"))
    return RestoreReport(
        str(path), str(folder), made_at, sessions, events, str(aside) if aside else None, str(shown) if shown else None
    )


def _check_databases(path: Path, unpacked: Path) -> None:
    for name in DATABASES:
        if not (unpacked / name).exists():
            raise BadBackup(f"Incomplete backup, {name} is missing: {path}", "nothing was changed; use another backup")
        try:
            open_database(unpacked / name).close()
        except StoreTooNew:
            raise BadBackup(f"Made by a newer version: {path}", "upgrade `recollect`; nothing was changed") from None
        except RecollectError as error:
            raise BadBackup(
                f"Damaged backup, {name} cannot be read: {path}", "nothing was changed; use another backup"
            ) from error
        for beside in ("-wal", "-shm"):
            (unpacked / (name + beside)).unlink(missing_ok=True)


def _show_settings(unpacked: Path, settings: Settings) -> Path | None:
    """Keep a backup's settings in a file that nothing reads; returns it if they differ from those in force."""
    from_backup, shown = unpacked / SETTINGS_NAME, settings.folder / RESTORED_SETTINGS_NAME
    if not from_backup.exists():
        return None
    if settings.config_path.exists() and settings.config_path.read_bytes() == from_backup.read_bytes():
        from_backup.unlink()
        return None
    from_backup.replace(shown)
    return shown


def _settle(settings: Settings, aside: Path | None) -> tuple[int, int]:
    """Apply what was recorded since the backup; returns how many sessions and events there are then."""
    with open_store(settings.folder) as store, sweep_lock(settings.folder):
        store.restore_records()
        finish_forgetting(store, settings.rules, settings.domains)  # what was forgotten since is in the backup
        store.accept_as_is()
        if aside is not None:
            store.copies.note_copy(SET_ASIDE, aside)
        return store.sessions.count(), sum(store.raw.event_counts().values())
