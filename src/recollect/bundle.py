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
from typing import IO, Any

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


def read_bundle(
    path: Path, target: Path | None, is_allowed: Callable[[str], bool], progress: Progress
) -> dict[str, Any]:
    """Compare a bundle with its list, unpacking it below `target` if given; returns the list."""
    found = Manifest("", 0)
    manifest: Any = None
    try:
        with path.open("rb") as file, zstandard.ZstdDecompressor().stream_reader(file) as stream:
            for name, content in _members(path, stream, is_allowed):
                if name == MANIFEST:
                    manifest = orjson.loads(content.read())
                else:
                    found.add(name, *_unpack(content, target / name if target else None))
                progress("comparing", file.tell(), path.stat().st_size)
            while stream.read(_BLOCK_BYTES):  # to the end, where the last checksum is
                pass
    except (tarfile.TarError, zstandard.ZstdError, orjson.JSONDecodeError, EOFError) as error:
        raise BadBackup(f"Damaged ({error}): {path}", "nothing was changed; take another one") from error
    except (FileNotFoundError, IsADirectoryError) as error:
        raise BadBackup(f"No such file ({error.strerror}): {path}", "nothing was changed") from None
    return compared(path, manifest, found.files)


def _members(path: Path, stream: IO[bytes], is_allowed: Callable[[str], bool]) -> Iterator[tuple[str, IO[bytes]]]:
    with tarfile.open(fileobj=stream, mode="r|") as tar:
        for member in tar:
            is_plain = member.isreg() and (member.name == MANIFEST or is_allowed(member.name))
            content = tar.extractfile(member) if is_plain else None
            if content is None:
                raise BadBackup(f"Does not belong into it, `{member.name}`: {path}", "nothing was changed")
            yield member.name, content


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


def compared(path: Path, manifest: Any, found: list[dict[str, Any]]) -> dict[str, Any]:
    """The list, if it is one and the files are those it names."""
    if not isinstance(manifest, dict) or not isinstance(manifest.get("files"), list):
        raise BadBackup(f"Not whole, its list of files is missing: {path}", "nothing was changed; take another one")
    wanted = {told["name"]: told for told in manifest["files"]}
    seen = {told["name"]: told for told in found}
    wrong = sorted(name for name in wanted.keys() | seen.keys() if wanted.get(name) != seen.get(name))
    if wrong:
        raise BadBackup(f"Damaged ({', '.join(wrong[:3])}): {path}", "nothing was changed; take another one")
    return manifest


def require_form(path: Path, manifest: dict[str, Any], form: str, version: int) -> None:
    if manifest.get("format") != form:
        raise BadBackup(f"Not a {form}: {path}", "`restore` takes backups, `import` takes exports")
    if manifest.get("version", 0) > version:
        raise BadBackup(f"Made by a newer version: {path}", "upgrade `recollect`")
