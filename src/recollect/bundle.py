"""Many files as one: a tar in zstd whose last member lists all others with their hashes.

A bundle without that list was cut off. It is read whole, and compared, before anybody uses what is in it.
"""

import io
import os
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson
import zstandard

from recollect.clock import now_ms, rfc3339
from recollect.errors import BadBackup, StoreUnwritable, UsageError
from recollect.progress import Progress
from recollect.store import Store
from recollect.store.durable import sync
from recollect.store.leftovers import drop_left_beside, remove, work_name

MANIFEST = "manifest.json"

_BLOCK_BYTES = 1024 * 1024
_COMPRESSED_BYTES = 64 * 1024
_ZSTD = b"\x28\xb5\x2f\xfd"


class Manifest:
    """The list of files, while it is being made."""

    def __init__(self, form: str, version: int) -> None:
        self._told = {"format": form, "version": version, "made_at": rfc3339(now_ms())}
        self.files: list[dict[str, Any]] = []

    def add(self, name: str, size: int, digest: str) -> None:
        self.files.append({"name": name, "bytes": size, "sha256": digest})

    def finished(self, **told: Any) -> dict[str, Any]:
        return self._told | told | {"files": self.files}


class BundleWriter:
    """A bundle that is being written."""

    def __init__(self, stream: IO[bytes], manifest: Manifest) -> None:
        self._tar = tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._manifest = manifest

    def add_file(self, name: str, path: Path, first_bytes: int | None = None) -> None:
        """Put a file in, or its beginning. Raises EOFError if it is shorter than that."""
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size if first_bytes is None else first_bytes
            content = _Hashing(file, size)
            self._tar.addfile(_member(name, size), content)
        self._manifest.add(name, size, content.digest.hexdigest())

    def finish(self, **told: Any) -> dict[str, Any]:
        manifest = self._manifest.finished(**told)
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


@contextmanager
def compressed(path: Path) -> Iterator[IO[bytes]]:
    """A new file of the user's alone that is compressed while it is written."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    compressor = zstandard.ZstdCompressor(level=3, write_checksum=True)
    with open(fd, "wb") as file, compressor.stream_writer(file, closefd=False) as stream:
        yield stream


@contextmanager
def unfinished(store: Store, path: Path) -> Iterator[Path]:
    """A name beside `path` to write under; what is written gets its own name when the block ends well.

    Never overwrites. What processes that died left in the folder of copies that the store knows of is removed.
    """
    _refuse_existing(path)
    known = [Path(copy.path) for copy in store.remains.copies()]
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
        raise StoreUnwritable(f"Cannot write ({error.strerror}): {path}", "choose another place") from error
    finally:
        remove(beside)


def _refuse_existing(path: Path) -> None:
    if path.exists():
        raise UsageError(f"There is something already: {path}", "give it another name")


# What people call a bundle and which command takes it, by the name that its list gives itself: so each command can
# say which other one is meant.
_TAKEN_BY = {
    "recollect-backup": ("a backup", "recollect restore"),
    "recollect-export": ("an export", "recollect import"),
}


class Form(NamedTuple):
    """One kind of bundle, and which files belong into it."""

    name: str
    version: int
    is_part: Callable[[str], bool]

    @property
    def noun(self) -> str:
        return _TAKEN_BY[self.name][0]

    @property
    def command(self) -> str:
        return _TAKEN_BY[self.name][1]


_UNCHANGED = "nothing was changed; take another one"


def read_bundle(path: Path, target: Path | None, form: Form, progress: Progress) -> dict[str, Any]:
    """Compare a bundle with its list, unpacking it below `target` if given; returns the list."""
    found = Manifest("", 0)
    manifest: Any = None
    try:
        with path.open("rb") as file:
            stream = _Unpacked(file)
            for name, content in _members(stream):
                if name == MANIFEST and content:
                    manifest = orjson.loads(content.read())
                elif content is None or not form.is_part(name):
                    target = None  # it is read on only to say what it is
                    found.add(name, 0, "")
                else:
                    found.add(name, *_unpack(content, target / name if target else None))
                progress("comparing", file.tell(), path.stat().st_size)
            stream.finish()
    except IsADirectoryError:
        raise _no_file(path, form) from None
    except FileNotFoundError:
        raise BadBackup(f"No such file: {path}", "nothing was changed") from None
    except EOFError:
        raise _unreadable(path, form, "Cut off before its end") from None
    except (tarfile.TarError, zstandard.ZstdError, orjson.JSONDecodeError) as error:
        raise _unreadable(path, form, "Damaged, its bytes are not those that were written") from error
    return compared(path, manifest, form, found.files)


def _unreadable(path: Path, form: Form, message: str) -> BadBackup:
    with path.open("rb") as file:
        is_bundle = file.read(len(_ZSTD)) == _ZSTD
    if is_bundle:
        return BadBackup(f"{message}: {path}", _UNCHANGED)
    return BadBackup(f"Not {form.noun}: {path}", f"`{form.command}` takes what `recollect` itself has written")


def _no_file(path: Path, form: Form) -> BadBackup:
    """What is wrong with a folder in the place of a file."""
    try:
        _require_form(path, orjson.loads((path / MANIFEST).read_bytes()), form)
    except BadBackup as error:
        return error
    except (OSError, orjson.JSONDecodeError):
        pass
    return BadBackup(f"A folder, and not {form.noun}: {path}", "nothing was changed")


class _Unpacked(io.RawIOBase):
    """What was compressed into a file; raises EOFError if that ends before it should."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._ready = b""

    def read(self, size: int = -1) -> bytes:
        while not self._ready and not self._frame.eof:
            block = self._file.read(_COMPRESSED_BYTES)
            if not block:
                raise EOFError
            self._ready = self._frame.decompress(block)
        size = len(self._ready) if size < 0 else size
        piece, self._ready = self._ready[:size], self._ready[size:]
        return piece

    def finish(self) -> None:
        """Read to the end, where the last checksum is, and behind which there is nothing."""
        while self.read(_BLOCK_BYTES):
            pass
        if self._frame.unused_data or self._file.read(1):
            raise zstandard.ZstdError("it goes on behind its end")


def _members(stream: _Unpacked) -> Iterator[tuple[str, IO[bytes] | None]]:
    """The files of a tar; None instead of what is not a plain one."""
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
        file.flush()
        if target:
            os.fsync(file.fileno())
    return size, digest.hexdigest()


def private_file(path: Path) -> IO[bytes]:
    """A new file, and the two folders above it, of the user's alone."""
    for folder in (path.parent.parent, path.parent):
        folder.mkdir(mode=0o700, exist_ok=True)
    return open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb")


def compared(path: Path, manifest: Any, form: Form, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The list, if it is one of this form and the files are those it names."""
    told = _require_form(path, manifest, form)
    foreign = [file["name"] for file in found if not form.is_part(file["name"])]
    if foreign:
        raise BadBackup(f"Does not belong into {form.noun}, `{foreign[0]}`: {path}", _UNCHANGED)
    wanted = {file["name"]: file for file in told["files"]}
    seen = {file["name"]: file for file in found}
    wrong = sorted(name for name in wanted.keys() | seen.keys() if wanted.get(name) != seen.get(name))
    if wrong:
        raise BadBackup(f"Not whole, or changed since it was made ({', '.join(wrong[:3])}): {path}", _UNCHANGED)
    return told


def _require_form(path: Path, manifest: Any, form: Form) -> dict[str, Any]:
    if manifest is None:
        raise BadBackup(f"Not {form.noun}, or not a whole one; it has no {MANIFEST}: {path}", _UNCHANGED)
    told = manifest if isinstance(manifest, dict) else {}
    name, version, files = told.get("format"), told.get("version"), told.get("files")
    if isinstance(name, str) and name in _TAKEN_BY and name != form.name:
        noun, command = _TAKEN_BY[name]
        raise BadBackup(f"This is {noun}, and not {form.noun}: {path}", f"`{command}` takes it; nothing was changed")
    if isinstance(version, int) and version > form.version:
        raise BadBackup(f"Made by a newer version: {path}", "upgrade `recollect`; nothing was changed")
    is_list = isinstance(files, list) and all(map(_is_entry, files))
    if name != form.name or not isinstance(version, int) or not is_list:
        raise BadBackup(f"Its {MANIFEST} cannot be understood: {path}", _UNCHANGED)
    return told


def _is_entry(told: Any) -> bool:
    return isinstance(told, dict) and isinstance(told.get("name"), str)
