"""Power cuts: everything a program does to a folder is taped, and disks are made as a cut may leave them.

What was not synced may be on the disk, or not, or in part: data by sectors of 512 bytes and in any order, names
(files made, renamed, removed) in the order of each folder. A file's sync does not save its name, as POSIX has it;
file systems in use are kinder than that.

The tape hears SQLite by a VFS and everything else by `os`. What it missed would be no fault of the program, so
`Tape.check` compares what was taped with what is there. SQLite cannot share a VFS written in Python among
processes, so its connections are exclusive meanwhile; the order of its writes and syncs is the same.
"""

import os
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import apsw
import pytest

from recollect.store.sqlite import database, snapshot

SECTOR_BYTES = 512
_JOURNALS = apsw.SQLITE_OPEN_MAIN_JOURNAL | apsw.SQLITE_OPEN_WAL | apsw.SQLITE_OPEN_SUPER_JOURNAL
WRITE, CUT, SYNC, CREATE, MKDIR, RENAME, REMOVE, SYNC_FOLDER, ACKNOWLEDGE = (
    "write",
    "cut",
    "sync",
    "create",
    "mkdir",
    "rename",
    "remove",
    "sync folder",
    "acknowledge",
)


class Act(NamedTuple):
    """One thing done to the folder. `what` is bytes, a new name, or what was acknowledged."""

    kind: str
    path: str
    offset: int = 0
    what: Any = b""


@dataclass
class Tape:
    """What was done to a folder, in order."""

    folder: Path
    acts: list[Act] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, kind: str, path: str, offset: int = 0, what: Any = b"") -> None:
        if path == str(self.folder) or path.startswith(f"{self.folder}/"):
            with self._lock:  # packs are synced by several threads
                self.acts.append(Act(kind, path, offset, what))

    def acknowledge(self, what: Any) -> None:
        """The program has told somebody that this is saved."""
        self.add(ACKNOWLEDGE, str(self.folder), what=what)

    def acknowledged(self, cut: int) -> list[Any]:
        return [act.what for act in self.acts[:cut] if act.kind == ACKNOWLEDGE]

    def check(self) -> None:
        """Raise unless the tape gives exactly the files that are there."""
        disk = _Disk(str(self.folder), self.acts)
        taped = {path: bytes(file.now()) for path, file in disk.names.items() if file is not None}
        paths = [path for path in self.folder.rglob("*") if path.is_file()]
        there = {str(path): path.read_bytes() for path in paths if _is_of_the_store(path)}
        ours = {path: content for path, content in taped.items() if _is_of_the_store(Path(path))}
        assert ours.keys() == there.keys(), ours.keys() ^ there.keys()
        different = [path for path in ours if ours[path] != there[path]]
        assert different == [], different

    def make_disk(self, cut: int, chance: random.Random, target: Path) -> None:
        """Write what may be left of the folder if the power goes after `cut` acts."""
        disk = _Disk(str(self.folder), self.acts[:cut])
        for path, content in disk.survivors(chance).items():
            place = target / Path(path).relative_to(self.folder)
            if not _is_of_the_store(place):
                continue
            if content is None:
                place.mkdir(parents=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(content)


def _is_of_the_store(path: Path) -> bool:
    """Not what is made again if it is missing, what counts until the next boot only, nor the key, which is there
    before a tape begins."""
    is_aside = path.name.startswith("spending") or path.name.startswith("redaction") or "prepared" in path.parts
    return path.suffix not in (".lock", ".db-shm") and not is_aside


@dataclass
class _File:
    """A file's bytes on the disk, and what was done to it since its last sync."""

    synced: bytearray = field(default_factory=bytearray)
    waiting: list[tuple[int, bytes | None]] = field(default_factory=list)  # None: cut at the offset

    def sync(self) -> None:
        self.synced = self.now()
        self.waiting = []

    def now(self) -> bytearray:
        return _applied(self.synced, self.waiting)

    def survivor(self, chance: random.Random) -> bytes:
        return bytes(_applied(self.synced, [_torn(act, chance) for act in _some(self.waiting, chance)]))


def _above(path: str) -> str:
    return str(Path(path).parent)


def _applied(content: bytearray, acts: list[tuple[int, bytes | None]]) -> bytearray:
    content = bytearray(content)
    for offset, data in acts:
        if data is None:
            del content[offset:]
        content.extend(bytes(max(0, offset - len(content))))
        if data is not None:
            content[offset : offset + len(data)] = data
    return content


def _some(acts: list[tuple[int, bytes | None]], chance: random.Random) -> list[tuple[int, bytes | None]]:
    how = chance.choice(["none", "first", "any", "all"])
    if how == "first":
        return acts[: chance.randrange(len(acts) + 1)]
    return [act for act in acts if how == "all" or (how == "any" and chance.random() < 0.5)]


def _torn(act: tuple[int, bytes | None], chance: random.Random) -> tuple[int, bytes | None]:
    offset, data = act
    if data is None or len(data) <= SECTOR_BYTES or chance.random() > 0.3:
        return act
    return offset, data[: SECTOR_BYTES * chance.randrange(1, -(-len(data) // SECTOR_BYTES))]


class _Disk:
    """The state that acts lead to: names as the program sees them, and as they are on the disk."""

    def __init__(self, folder: str, acts: list[Act]) -> None:
        self.names: dict[str, _File | None] = {}  # None: a folder
        self._synced: dict[str, _File | None] = {}
        self._waiting: dict[str, list[tuple[str, _File | None, bool]]] = defaultdict(list)
        self._folder = folder
        does: dict[str, Callable[[Act], None]] = {
            WRITE: lambda act: self._file(act).waiting.append((act.offset, act.what)),
            CUT: lambda act: self._file(act).waiting.append((act.offset, None)),
            SYNC: lambda act: self._file(act).sync(),
            CREATE: lambda act: self._name(act.path, _File()),
            MKDIR: lambda act: self._name(act.path, None),
            RENAME: self._rename,
            REMOVE: lambda act: self._forget(act.path),
            SYNC_FOLDER: lambda act: self._sync_folder(act.path),
            ACKNOWLEDGE: lambda act: None,
        }
        for act in acts:
            does[act.kind](act)

    def _file(self, act: Act) -> _File:
        file = self.names[act.path]
        assert file is not None, act.path
        return file

    def _name(self, path: str, file: _File | None) -> None:
        self.names[path] = file
        self._waiting[_above(path)].append((path, file, True))

    def _forget(self, path: str) -> None:
        self._waiting[_above(path)].append((path, self.names.pop(path), False))

    def _rename(self, act: Act) -> None:
        file = self.names.pop(act.path)
        self.names[act.what] = file
        # In one step: whoever has the new name has lost the old one, as within one folder it is promised.
        self._waiting[_above(act.what)].append((f"{act.path}\0{act.what}", file, True))

    def _sync_folder(self, folder: str) -> None:
        for step in self._waiting.pop(folder, []):
            _take(self._synced, step)

    def survivors(self, chance: random.Random) -> dict[str, bytes | None]:
        names = dict(self._synced)
        for steps in self._waiting.values():
            for step in steps[: chance.choice([0, len(steps), chance.randrange(len(steps) + 1)])]:
                _take(names, step)
        found = {path: file and file.survivor(chance) for path, file in names.items() if self._has_folders(path, names)}
        return dict(sorted(found.items()))

    def _has_folders(self, path: str, names: dict[str, _File | None]) -> bool:
        above = _above(path)
        return above == self._folder or (above in names and self._has_folders(above, names))


def _take(names: dict[str, _File | None], step: tuple[str, _File | None, bool]) -> None:
    path, file, is_there = step
    old, _, new = path.partition("\0")
    if new:
        names.pop(old, None)
    if is_there:
        names[new or old] = file
    else:
        names.pop(old, None)


# Listening


class _TapedFile(apsw.VFSFile):  # type: ignore[misc]
    def __init__(self, tape: Tape, name: Any, flags: list[int]) -> None:
        path = name.filename() if isinstance(name, apsw.URIFilename) else name
        self._tape, self._path = tape, path or ""
        is_new = bool(path) and not Path(path).exists()
        super().__init__("unix", name, flags)
        # SQLite syncs the folder with the first sync of a journal that it made.
        self._syncs_folder = is_new and bool(flags[0] & _JOURNALS)
        if is_new:
            tape.add(CREATE, self._path)

    def xWrite(self, data: bytes, offset: int) -> None:
        super().xWrite(data, offset)
        self._tape.add(WRITE, self._path, offset, bytes(data))

    def xTruncate(self, size: int) -> None:
        super().xTruncate(size)
        self._tape.add(CUT, self._path, size)

    def xSync(self, flags: int) -> None:
        super().xSync(flags)
        self._tape.add(SYNC, self._path)
        if self._syncs_folder:
            self._tape.add(SYNC_FOLDER, _above(self._path))
            self._syncs_folder = False


class _TapedVFS(apsw.VFS):  # type: ignore[misc]
    def __init__(self, tape: Tape) -> None:
        self._tape = tape
        super().__init__("taped", "unix", makedefault=True)

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
        return _TapedFile(self._tape, name, flags)

    def xDelete(self, path: str, syncdir: bool) -> None:
        super().xDelete(path, syncdir)
        self._tape.add(REMOVE, path)
        if syncdir:
            self._tape.add(SYNC_FOLDER, _above(path))


@contextmanager
def taped(folder: Path) -> Iterator[Tape]:
    """Tape what this process does below a folder, which must be empty."""
    tape = Tape(folder)
    database.checksum_layer()  # loaded before there is a listener that it would stand on
    listener = _TapedVFS(tape)
    apsw.connection_hooks.append(_make_exclusive)
    with pytest.MonkeyPatch.context() as patch:
        _listen(tape, patch)
        for user in (database, snapshot):
            patch.setattr(user, "checksum_layer", lambda: None)  # it would write past the listener
        try:
            yield tape
        finally:
            apsw.connection_hooks.remove(_make_exclusive)
            listener.unregister()


def _make_exclusive(connection: apsw.Connection) -> None:
    connection.pragma("locking_mode", "exclusive")


def _listen(tape: Tape, patch: pytest.MonkeyPatch) -> None:
    """Have what Python does by `os` taped; what it does otherwise `Tape.check` would miss."""
    paths: dict[int, str] = {}
    real = {name: getattr(os, name) for name in ("open", "write", "ftruncate", "fsync", "mkdir")}
    real |= {name: getattr(os, name) for name in ("rename", "replace", "unlink", "remove")}

    def open_(path: Any, flags: int, *rest: Any, **more: Any) -> int:
        is_new = bool(flags & os.O_CREAT) and not Path(path).exists()
        fd: int = real["open"](path, flags, *rest, **more)
        paths[fd] = os.fspath(path) if more.get("dir_fd") is None else ""
        if is_new:
            tape.add(CREATE, paths[fd])
        return fd

    def write(fd: int, data: Any) -> int:
        offset = os.lseek(fd, 0, os.SEEK_CUR) if fd in paths else 0
        count: int = real["write"](fd, data)
        tape.add(WRITE, paths.get(fd, ""), offset, bytes(data[:count]))
        return count

    def ftruncate(fd: int, size: int) -> None:
        real["ftruncate"](fd, size)
        tape.add(CUT, paths.get(fd, ""), size)

    def fsync(fd: int) -> None:
        real["fsync"](fd)
        path = paths.get(fd, "")
        tape.add(SYNC_FOLDER if Path(path).is_dir() else SYNC, path)

    def mkdir(path: Any, *rest: Any, **more: Any) -> None:
        real["mkdir"](path, *rest, **more)
        tape.add(MKDIR, os.fspath(path))

    def rename(old: Any, new: Any) -> None:
        real["rename"](old, new)
        tape.add(RENAME, os.fspath(old), what=os.fspath(new))

    def remove(path: Any, **more: Any) -> None:
        real["remove"](path, **more)
        tape.add(REMOVE, os.fspath(path))

    patch.setattr(os, "open", open_)
    patch.setattr(os, "write", write)
    patch.setattr(os, "ftruncate", ftruncate)
    patch.setattr(os, "fsync", fsync)
    patch.setattr(os, "fdatasync", fsync)  # a length that is needed to read the data is synced with it
    patch.setattr(os, "mkdir", mkdir)
    for name in ("rename", "replace"):
        patch.setattr(os, name, rename)
    for name in ("unlink", "remove"):
        patch.setattr(os, name, remove)
