"""The whole store in one file, and back.

A backup is a tar in zstd: both databases as of one moment, the packs as of that moment, the ledger, the settings and the
key of the redaction marks. Its last member is a list of all others with their hashes, so a backup without it was cut off.
A restore unpacks beside the store and compares every hash before anything is replaced.
"""

import io
import os
import shutil
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import orjson
import zstandard

from recollect.clock import now_ms, rfc3339
from recollect.config import Settings
from recollect.errors import BadBackup, RecollectError, StoreDamaged, StoreUnwritable, UsageError
from recollect.store import DATABASES, Store, open_database, open_store
from recollect.store.durable import sync
from recollect.store.ledger import LEDGER_NAME
from recollect.store.packs import pack_path
from recollect.store.replacing import replace_store
from recollect.store.snapshot import copy_database, frozen

Progress = Callable[[str, int, int], None]

FORMAT = "recollect-backup"
VERSION = 1
MANIFEST = "manifest.json"
KEPT_FILES = (LEDGER_NAME, "redaction.key")

_BLOCK_BYTES = 1024 * 1024
_TRIES = 3


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
    if path.exists():
        raise UsageError(f"There is something already: {path}", "give the backup another name")
    is_noted = _note(store, path)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        manifest = _write(store, settings, beside, progress)
        _verify(beside, manifest, progress)
        _publish(beside, path)
    except BaseException as error:
        _undo(store, beside, path, is_noted=is_noted)
        if isinstance(error, OSError):
            raise StoreUnwritable(
                f"Cannot write the backup ({error.strerror}): {path}", "choose another place"
            ) from error
        raise
    counts = manifest["counts"]
    return BackupReport(
        str(path), path.stat().st_size, counts["sessions"], counts["events"], len(manifest["files"]), is_noted
    )


def _note(store: Store, path: Path) -> bool:
    """Remember the backup before it exists: what is forgotten meanwhile may be in it."""
    if store.read_only:
        return False
    store.copies.note_copy("backup", path)
    return True


def _undo(store: Store, beside: Path, path: Path, *, is_noted: bool) -> None:
    beside.unlink(missing_ok=True)
    if is_noted:
        with suppress(RecollectError):
            store.copies.drop_copy(path)


def _publish(beside: Path, path: Path) -> None:
    """Give the file its name unless somebody else took it meanwhile."""
    sync(beside)
    try:
        os.link(beside, path)
    except FileExistsError:
        raise UsageError(f"There is something already: {path}", "give the backup another name") from None
    except OSError:  # a file system without links
        beside.rename(path)
    beside.unlink(missing_ok=True)
    sync(path.parent)


def _write(store: Store, settings: Settings, beside: Path, progress: Progress) -> dict[str, Any]:
    """Try again if packs were rewritten meanwhile: what the frozen database names must all be there."""
    for attempt in range(1, _TRIES + 1):
        try:
            return _write_once(store, settings, beside, progress)
        except _PackGone as gone:
            if attempt == _TRIES:
                raise StoreDamaged(
                    f"Pack is missing or cut off: {gone.path}", "`recollect doctor --repair` rebuilds what it can"
                ) from None
    raise AssertionError


class _PackGone(Exception):
    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


def _write_once(store: Store, settings: Settings, beside: Path, progress: Progress) -> dict[str, Any]:
    scratch = beside.with_suffix(".db")
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        with open(fd, "wb") as file, _compressed(file) as stream, frozen(store):
            archive = _Archive(stream)
            counts = {"sessions": store.sessions.count(), "events": sum(store.holdings.event_counts().values())}
            for database in store.databases:
                _add_database(archive, store, database, scratch, progress)
            _add_packs(archive, store, progress)
            for name in KEPT_FILES:
                archive.add_file(name, store.folder / name)
            archive.add_file("config.toml", settings.config_path)
            return archive.finish(counts, settings.host)
    finally:
        scratch.unlink(missing_ok=True)


def _add_database(archive: "_Archive", store: Store, database: Any, scratch: Path, progress: Progress) -> None:
    scratch.unlink(missing_ok=True)
    os.close(os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    copy_database(database, scratch, lambda done, total: progress(database.path.name, done, total))
    archive.add_file(database.path.name, scratch)


def _add_packs(archive: "_Archive", store: Store, progress: Progress) -> None:
    streams = [stream for stream in store.holdings.streams() if stream.pack_bytes]
    for number, stream in enumerate(streams, start=1):
        path = pack_path(store.folder, stream.agent, stream.native_id, stream.pack_generation)
        name = path.relative_to(store.folder).as_posix()
        try:
            archive.add_file(name, path, first_bytes=stream.pack_bytes, is_needed=True)
        except (FileNotFoundError, EOFError):
            raise _PackGone(path) from None
        progress("packs", number, len(streams))


@contextmanager
def _compressed(file: IO[bytes]) -> Iterator[IO[bytes]]:
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    with compressor.stream_writer(file, closefd=False) as stream:
        yield stream


class _Hashing(io.RawIOBase):
    """A file that is read, and hashed on the way."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size
        self.digest = sha256()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(self._left if size < 0 else min(size, self._left))
        if not content and self._left and size:
            raise EOFError
        self._left -= len(content)
        self.digest.update(content)
        return content


class _Archive:
    """A tar that is being written, with the list of what is in it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w|", format=tarfile.PAX_FORMAT)
        self._files: list[dict[str, Any]] = []

    def add_file(self, name: str, path: Path, *, first_bytes: int | None = None, is_needed: bool = False) -> None:
        try:
            file = path.open("rb")
        except FileNotFoundError:
            if is_needed:
                raise
            return
        with file:
            size = os.fstat(file.fileno()).st_size if first_bytes is None else first_bytes
            content = _Hashing(file, size)
            self._tar.addfile(_member(name, size), content)
        self._files.append({"name": name, "bytes": size, "sha256": content.digest.hexdigest()})

    def finish(self, counts: dict[str, int], host: str) -> dict[str, Any]:
        told = {"format": FORMAT, "version": VERSION, "made_at": rfc3339(now_ms()), "host": host}
        manifest = told | {"counts": counts, "files": self._files}
        content = orjson.dumps(manifest, option=orjson.OPT_INDENT_2)
        self._tar.addfile(_member(MANIFEST, len(content)), io.BytesIO(content))
        self._tar.close()
        return manifest


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, 0o600, now_ms() // 1000
    return member


def _verify(path: Path, manifest: dict[str, Any], progress: Progress) -> None:
    """Read a backup back: it is worth nothing if that fails later."""
    if read_backup(path, None, progress) != manifest:
        raise BadBackup(f"What was written is not what was read back: {path}", "look at the disk it was written to")


def read_backup(path: Path, target: Path | None, progress: Progress) -> dict[str, Any]:
    """Compare everything in a backup with its list, unpacking it below `target` if given; returns the list."""
    hashes: dict[str, tuple[int, str]] = {}
    manifest: dict[str, Any] | None = None
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    content = tar.extractfile(member) if _is_allowed(member) else None
                    if content is None:
                        raise BadBackup(f"Not a member of a backup, `{member.name}`: {path}", "take another backup")
                    if member.name == MANIFEST:
                        manifest = orjson.loads(content.read())
                    else:
                        hashes[member.name] = _unpack(content, target / member.name if target else None)
                    progress("comparing", file.tell(), path.stat().st_size)
            while stream.read(_BLOCK_BYTES):  # to the end, where the last checksum is
                pass
    except (tarfile.TarError, zstandard.ZstdError, orjson.JSONDecodeError, EOFError) as error:
        raise BadBackup(f"Backup is damaged ({error}): {path}", "nothing was changed; take another one") from error
    except FileNotFoundError:
        raise BadBackup(f"No such backup: {path}", "nothing was changed") from None
    return _compared(path, manifest, hashes)


def _is_allowed(member: tarfile.TarInfo) -> bool:
    parts = Path(member.name).parts
    known = (*DATABASES, *KEPT_FILES, "config.toml", MANIFEST)
    is_pack = len(parts) == 3 and parts[0] == "packs" and ".." not in parts and parts[2].endswith(".pack")
    return member.isreg() and (member.name in known or is_pack)


def _unpack(content: IO[bytes], target: Path | None) -> tuple[int, str]:
    digest, size = sha256(), 0
    with _private_file(target) if target else open(os.devnull, "wb") as file:
        while block := content.read(_BLOCK_BYTES):
            digest.update(block)
            file.write(block)
            size += len(block)
        file.flush()
        if target:
            os.fsync(file.fileno())
    return size, digest.hexdigest()


def _private_file(path: Path) -> IO[bytes]:
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def _compared(path: Path, manifest: dict[str, Any] | None, hashes: dict[str, tuple[int, str]]) -> dict[str, Any]:
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise BadBackup(f"Not a whole backup: {path}", "nothing was changed; take another one")
    if manifest["version"] > VERSION:
        raise BadBackup(f"Backup was made by a newer version: {path}", "upgrade `recollect`")
    wanted = {told["name"]: (told["bytes"], told["sha256"]) for told in manifest["files"]}
    wrong = sorted(name for name in wanted.keys() | hashes.keys() if wanted.get(name) != hashes.get(name))
    if wrong or not set(DATABASES) <= wanted.keys():
        raise BadBackup(f"Backup is damaged ({', '.join(wrong[:3]) or 'no databases'}): {path}", "take another one")
    return manifest


def restore_backup(settings: Settings, path: Path, progress: Progress) -> RestoreReport:
    """Put a backup in the store's place; what is there is set aside. A backup that is not whole changes nothing."""
    folder = settings.folder
    unpacked = folder / f".unpacking-{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        unpacked.mkdir(mode=0o700)
        manifest = read_backup(path, unpacked, progress)
        _check_databases(unpacked)
        _place_settings(unpacked, settings)
        aside = replace_store(folder, unpacked)
    except OSError as error:
        raise StoreUnwritable(f"Cannot restore ({error.strerror}): {folder}", "nothing was changed") from error
    finally:
        shutil.rmtree(unpacked, ignore_errors=True)
    with open_store(folder) as store:
        store.restore_records()
        store.accept_as_is()
        if aside is not None:
            store.copies.note_copy("set aside", aside)
    counts = manifest["counts"]
    return RestoreReport(
        str(path), str(folder), manifest["made_at"], counts["sessions"], counts["events"], str(aside) if aside else None
    )


def _check_databases(folder: Path) -> None:
    for name in DATABASES:
        open_database(folder / name).close()
        for beside in ("-wal", "-shm"):
            (folder / (name + beside)).unlink(missing_ok=True)


def _place_settings(unpacked: Path, settings: Settings) -> None:
    """Settings come back only where there are none: those in force are the user's last word."""
    told = unpacked / "config.toml"
    if told.exists() and not settings.config_path.exists():
        settings.config_path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        shutil.copyfile(told, settings.config_path)
    told.unlink(missing_ok=True)
