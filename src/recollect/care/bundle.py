"""Many files as one: a tar in zstd whose last member, the manifest, lists all others with their hashes.

A bundle without a manifest was cut off. It is read whole and compared before anything in it is used.
"""

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from hashlib import file_digest, sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import zstandard

from recollect.clock import now_ms, rfc3339
from recollect.errors import BadBackup, NotFound, StoreUnwritable, UsageError
from recollect.files import drop_left_beside, new_file, remove, sync, work_name
from recollect.store import Store
from recollect.text import Progress

MANIFEST = "manifest.json"

_BLOCK_BYTES = 1024 * 1024
_COMPRESSED_BYTES = 2 * 1024  # read at once: even of zeros they unpack to no more than 64 MiB
# Databases and packs compress ten-fold at most; a file that unpacks to far more was made to fill the disk.
_MOST_RATIO, _SPARED_BYTES = 200, 64 * 1024 * 1024
_MANIFEST_BYTES = 256 * 1024 * 1024
_ZSTD = b"\x28\xb5\x2f\xfd"
_UNCHANGED = "nothing was changed; use another copy"

# What people call a bundle and which command reads it, by the format its manifest names.
_KINDS = {
    "recollect-backup": ("a backup", "recollect restore"),
    "recollect-export": ("an export", "recollect import"),
}

Entry = dict[str, Any]  # of a manifest: a file's name, bytes and sha256


class Form(NamedTuple):
    """One kind of bundle, and which files belong in it."""

    name: str
    version: int
    is_part: Callable[[str], bool]

    @property
    def noun(self) -> str:
        return _KINDS[self.name][0]

    def manifest(self, files: list[Entry], **fields: Any) -> dict[str, Any]:
        return {"format": self.name, "version": self.version, "made_at": rfc3339(now_ms()), **fields, "files": files}


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
            content = _Hashing(file, size)
            self._tar.addfile(_member(name, size), content)
        self._files.append(_entry(name, size, content.digest.hexdigest()))

    def finish(self, **fields: Any) -> dict[str, Any]:
        manifest = self._form.manifest(self._files, **fields)
        content = orjson.dumps(manifest, option=orjson.OPT_INDENT_2)
        self._tar.addfile(_member(MANIFEST, len(content)), io.BytesIO(content))
        self._tar.close()
        return manifest


class _Hashing(io.RawIOBase):
    """The first bytes of a file, hashed while they are read."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._left = size
        self.digest = sha256()

    def read(self, size: int = -1) -> bytes:
        content = self._file.read(self._left if size < 0 else min(size, self._left))
        if not content and self._left and size:
            raise EOFError
        self._left -= len(content)
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
def compressed(path: Path) -> Iterator[IO[bytes]]:
    """A new private file that is compressed while it is written."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    with open(fd, "wb") as file, compressor.stream_writer(file, closefd=False) as stream:
        yield stream


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
    return BadBackup(
        f"Not {form.noun}: {path}", f"`{_KINDS[form.name][1]}` accepts only files that `recollect` has written"
    )


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
    if isinstance(name, str) and name in _KINDS and name != form.name:
        noun, command = _KINDS[name]
        raise BadBackup(f"Not {form.noun}, but {noun}: {path}", f"use `{command}`; nothing was changed")
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
