"""The whole store in one file, and back; and the bundles that backups and exports are.

A bundle is a tar in zstd whose last member, the manifest, lists all others with their hashes. Without a manifest it was
cut off. It is read whole and compared before anything in it is used.

A backup has both databases as of one moment, the packs as of that moment, the ledger, the settings and the key of the
redaction marks. A restore unpacks it beside the store and compares every hash before anything is replaced. Settings are
shown and never applied: they may name a command to run.
"""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import zstandard

from recollect.config import Settings
from recollect.lifecycle import finish_forgetting
from recollect.model.clock import now_ms, rfc3339
from recollect.model.errors import (
    BadBackup,
    NotFound,
    RecollectError,
    StoreDamaged,
    StoreTooNew,
    StoreUnwritable,
    UsageError,
)
from recollect.model.files import drop_left_beside, new_file, remove, sync, work_name
from recollect.model.text import Progress
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

MANIFEST = "manifest.json"

_BLOCK_BYTES = 1024 * 1024
_COMPRESSED_BYTES = 2 * 1024  # read at once: even of zeros they unpack to no more than 64 MiB
# Databases and packs compress ten-fold at most; a file that unpacks to far more was made to fill the disk.
_MOST_RATIO, _SPARED_BYTES = 200, 64 * 1024 * 1024
_MANIFEST_BYTES = 256 * 1024 * 1024
_ZSTD = b"\x28\xb5\x2f\xfd"
_UNCHANGED = "nothing was changed; use another copy"

KEPT_FILES = (LEDGER_NAME, "redaction.key")
SETTINGS_NAME = "config.toml"
RESTORED_SETTINGS_NAME = "config-from-backup.toml"
SESSIONS_NAME = "sessions.jsonl"

_TRIES = 3

Entry = dict[str, Any]  # of a manifest: a file's name, bytes and sha256


class Form(NamedTuple):
    """One kind of bundle: what people call it, which command reads it, and which files belong in it beside packs."""

    name: str
    version: int
    noun: str
    command: str
    files: tuple[str, ...]
    parts_of_pack: int  # in the name of a pack

    def is_part(self, name: str) -> bool:
        parts = name.split("/")
        is_pack = parts[0] == "packs" and len(parts) == self.parts_of_pack and name.endswith(".pack")
        return (is_pack and ".." not in parts) or name in self.files

    def manifest(self, files: list[Entry], **fields: Any) -> dict[str, Any]:
        return {"format": self.name, "version": self.version, "made_at": rfc3339(now_ms()), **fields, "files": files}


BACKUP = Form("recollect-backup", 1, "a backup", "recollect restore", (*DATABASES, *KEPT_FILES, SETTINGS_NAME), 3)
EXPORT = Form("recollect-export", 2, "an export", "recollect import", (SESSIONS_NAME,), 2)


def _entry(name: str, size: int, digest: str) -> Entry:
    return {"name": name, "bytes": size, "sha256": digest}


class BundleWriter:
    """A bundle while it is written."""

    def __init__(self, stream: IO[bytes], form: Form) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._form = form
        self._files: list[Entry] = []

    def add_file(self, name: str, path: Path, first_bytes: int | None = None) -> None:
        """Add a file, or its beginning. Raises EOFError if it is shorter than that."""
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size if first_bytes is None else first_bytes
            content = _Hashing(file)
            self._tar.addfile(_member(name, size), content)
        self._files.append(_entry(name, size, content.digest.hexdigest()))

    def finish(self, **fields: Any) -> dict[str, Any]:
        manifest = self._form.manifest(self._files, **fields)
        content = orjson.dumps(manifest, option=orjson.OPT_INDENT_2)
        self._tar.addfile(_member(MANIFEST, len(content)), io.BytesIO(content))
        self._tar.close()
        return manifest


class _Hashing(io.RawIOBase):
    """A file, hashed while it is read; raises EOFError if it has less than it is asked for."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self.digest = sha256()

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(size)
        if len(content) < size:
            raise EOFError
        self.digest.update(content)
        return content


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, now_ms() // 1000
    return member


def write_manifest(folder: Path, form: Form, **fields: Any) -> None:
    """List the files of a folder in its manifest."""
    files = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    with private_file(folder / MANIFEST) as file:
        manifest = form.manifest([_hashed(folder, name) for name in files], **fields)
        file.write(orjson.dumps(manifest, option=orjson.OPT_INDENT_2))


def _hashed(folder: Path, name: str) -> Entry:
    with (folder / name).open("rb") as file:
        digest = file_digest(file, "sha256")
        return _entry(name, file.tell(), digest.hexdigest())


@contextmanager
def opened_bundle(path: Path, form: Form) -> Iterator[BundleWriter]:
    """A new private file that is compressed while it is written."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    with open(fd, "wb") as file, compressor.stream_writer(file, closefd=False) as stream:
        yield BundleWriter(stream, form)


def private_file(path: Path) -> AbstractContextManager[IO[bytes]]:
    """A new file that only the user may read, like the two folders above it; on the disk at the end of the block."""
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    return new_file(path)


@contextmanager
def unfinished(store: Store, path: Path) -> Iterator[Path]:
    """A name beside `path` to write under; the result is renamed to `path` when the block succeeds.

    Never overwrites. Work files that killed processes left beside known copies in this folder are removed.
    """
    _refuse_existing(path)
    known = [Path(copy.path) for copy in store.copies.all()]
    for copy in {path, *(copy for copy in known if copy.parent == path.parent)}:
        drop_left_beside(copy)
    beside = path.with_name(work_name(path.name))
    try:
        yield beside
        sync(beside)
        _refuse_existing(path)
        beside.rename(path)
        sync(path.parent)
    except OSError as error:
        raise StoreUnwritable(f"Cannot write ({error.strerror}): {path}", "choose another path") from error
    finally:
        remove(beside)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise UsageError(f"File exists: {path}", "choose another name")


def read_bundle(path: Path, target: Path | None, form: Form, progress: Progress) -> dict[str, Any]:
    """Compare a bundle with its manifest, unpacking it below `target` if given; returns the manifest."""
    files: list[Entry] = []
    manifest: Any = None
    try:
        with path.open("rb") as file:
            stream = _Unpacked(file)
            for name, content in _members(stream):
                if name == MANIFEST and content:
                    manifest = orjson.loads(content.read(_MANIFEST_BYTES))
                elif content is None or not form.is_part(name):
                    target = None  # the rest is read only for its manifest, which says what this is
                    files.append(_entry(name, 0, ""))
                else:
                    files.append(_entry(name, *_unpack(content, target / name if target else None)))
                progress("verifying", file.tell(), path.stat().st_size)
            stream.finish()
    except IsADirectoryError:
        read_folder(path, form)  # which says better what is wrong with it
        raise BadBackup(f"Not {form.noun}, but a folder: {path}", "nothing was changed") from None
    except FileNotFoundError:
        raise NotFound(f"No such file: {path}", "check the path; nothing was changed") from None
    except EOFError:
        raise _unreadable(path, form, "Truncated file") from None
    except OverflowError:
        raise BadBackup(f"Unpacks to an absurd size: {path}", _UNCHANGED) from None
    except (tarfile.TarError, zstandard.ZstdError, orjson.JSONDecodeError) as error:
        raise _unreadable(path, form, "Damaged file, its checksum does not match") from error
    return _compared(path, _checked(path, manifest, form), form, files)


def read_folder(folder: Path, form: Form) -> None:
    """Compare a folder with its manifest."""
    try:
        content = orjson.loads((folder / MANIFEST).read_bytes())
    except OSError:
        content = None
    except orjson.JSONDecodeError:
        content = {}
    manifest = _checked(folder, content, form)
    names = [file["name"] for file in manifest["files"] if form.is_part(file["name"])]
    _compared(folder, manifest, form, [_hashed(folder, name) for name in names if (folder / name).is_file()])


def _unreadable(path: Path, form: Form, message: str) -> BadBackup:
    with path.open("rb") as file:
        is_bundle = file.read(len(_ZSTD)) == _ZSTD
    if is_bundle:
        return BadBackup(f"{message}: {path}", _UNCHANGED)
    return BadBackup(f"Not {form.noun}: {path}", f"`{form.command}` accepts only files that `recollect` has written")


class _Unpacked(io.RawIOBase):
    """The content of a compressed file; raises EOFError if the file was cut off, OverflowError if it is a bomb."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = memoryview(b"")  # a view: what is left of many megabytes is not copied at each read
        self._unpacked_bytes = self._packed_bytes = 0

    def read(self, size: int = -1) -> bytes:
        while not self._ready and not self._frame.eof:
            block = self._file.read(_COMPRESSED_BYTES)
            if not block:
                raise EOFError
            self._ready = memoryview(self._frame.decompress(block))
            self._packed_bytes += len(block)
            self._unpacked_bytes += len(self._ready)
            if self._unpacked_bytes > _SPARED_BYTES + _MOST_RATIO * self._packed_bytes:
                raise OverflowError
        size = len(self._ready) if size < 0 else size
        piece, self._ready = self._ready[:size], self._ready[size:]
        return bytes(piece)

    def finish(self) -> None:
        """Read to the end, where the checksum is; nothing may follow it."""
        while self.read(_BLOCK_BYTES):
            pass
        if self._frame.unused_data or self._file.read(1):
            raise zstandard.ZstdError("it has data after its end")


def _members(stream: _Unpacked) -> Iterator[tuple[str, IO[bytes] | None]]:
    """The files of a tar; None instead of the content of anything that is not a plain file."""
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            yield member.name, tar.extractfile(member) if member.isreg() else None


def _unpack(content: IO[bytes], target: Path | None) -> tuple[int, str]:
    digest, size = sha256(), 0
    with private_file(target) if target else open(os.devnull, "wb") as file:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
            file.write(block)
            size += len(block)
    return size, digest.hexdigest()


def _checked(path: Path, manifest: Any, form: Form) -> dict[str, Any]:
    """The manifest, if it is one of this form."""
    if manifest is None:
        raise BadBackup(f"Not {form.noun}, or incomplete (no {MANIFEST}): {path}", _UNCHANGED)
    fields = manifest if isinstance(manifest, dict) else {}
    name, version, files = fields.get("format"), fields.get("version"), fields.get("files")
    for other in (BACKUP, EXPORT):
        if name == other.name != form.name:
            raise BadBackup(f"Not {form.noun}, but {other.noun}: {path}", f"use `{other.command}`; nothing was changed")
    if isinstance(version, int) and version > form.version:
        raise BadBackup(f"Made by a newer version: {path}", "upgrade `recollect`; nothing was changed")
    listed = files if isinstance(files, list) else [None]
    is_sound = all(isinstance(file, dict) and isinstance(file.get("name"), str) for file in listed)
    if name != form.name or version != form.version or not is_sound:
        raise BadBackup(f"Invalid {MANIFEST}: {path}", _UNCHANGED)
    return fields


def _compared(path: Path, manifest: dict[str, Any], form: Form, files: list[Entry]) -> dict[str, Any]:
    """The manifest, if the files are those that it lists."""
    foreign = [file["name"] for file in files if not form.is_part(file["name"])]
    if foreign:
        raise BadBackup(f"Unexpected file `{foreign[0]}` in {form.noun}: {path}", _UNCHANGED)
    listed = {file["name"]: file for file in manifest["files"]}
    actual = {file["name"]: file for file in files}
    wrong = sorted(name for name in listed.keys() | actual.keys() if listed.get(name) != actual.get(name))
    if wrong:
        raise BadBackup(f"Incomplete, or changed since it was made ({', '.join(wrong[:3])}): {path}", _UNCHANGED)
    return manifest


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
        if read_bundle(beside, None, BACKUP, progress) != manifest:
            raise BadBackup(f"Verification failed, the file read back differs: {path}", "check its disk")
    counts = manifest["counts"]
    files, size = len(manifest["files"]), path.stat().st_size
    return BackupReport(str(path), size, counts["sessions"], counts["events"], files, not store.read_only)


def _write(store: Store, settings: Settings, beside: Path, progress: Progress, tries: int = _TRIES) -> dict[str, Any]:
    """Try again if packs were rewritten meanwhile: the backup must have every pack its database names."""
    scratch = beside.with_name(beside.name + ".db")
    try:
        with opened_bundle(beside, BACKUP) as bundle, frozen(store):
            counts = {"sessions": store.sessions.count(), "events": sum(store.raw.event_counts().values())}
            _add_databases(bundle, store, scratch, progress)
            _add_packs(bundle, store, progress)
            places = [*((name, store.folder / name) for name in KEPT_FILES), (SETTINGS_NAME, settings.config_path)]
            for name, path in places:
                if path.exists():
                    bundle.add_file(name, path)
            return bundle.finish(host=settings.host, counts=counts)
    except StoreDamaged:
        if tries == 1:
            raise
    finally:
        for side in ("", "-journal", "-wal", "-shm"):
            scratch.with_name(scratch.name + side).unlink(missing_ok=True)
    return _write(store, settings, beside, progress, tries - 1)


def _add_databases(bundle: BundleWriter, store: Store, scratch: Path, progress: Progress) -> None:
    for database in store.databases:
        name = database.path.name
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
            manifest = read_bundle(path, unpacked, BACKUP, progress)
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
