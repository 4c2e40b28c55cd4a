"""Folders in the store that a repair moves damaged files into, and what tells that one was stopped half-way.

A folder has a marker, which tells what is to be moved into it, from before the first file is moved until all that was
sound in it has been taken over.
"""

import os
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from recollect.store import CACHE_NAME, DATABASES
from recollect.store.copies import SET_ASIDE, Copy, note_ahead
from recollect.store.durable import replace_file, sync
from recollect.store.ledger import Ledger

PACKS = "packs"
_FOLDERS = "damaged-*"
_MARKER = "unfinished"


def find_unfinished(store: Path) -> list[Path]:
    """Folders of repairs that were stopped, oldest first: the store may not have all that lies in them."""
    return sorted(marker.parent for marker in store.glob(f"{_FOLDERS}/{_MARKER}"))


def finish(folder: Path) -> None:
    """Note that a folder is not needed any more: all that could be saved of it is in the store, and on the disk."""
    if folder.exists():
        (folder / _MARKER).unlink(missing_ok=True)
        sync(folder)


def drop_salvaged(store: Path) -> None:
    """Delete the copies of rows that a stopped repair was sorting."""
    for path in store.glob(f"{_FOLDERS}/*-salvaged"):
        path.unlink()


def files_of(database: str) -> Iterator[str]:
    """What is moved with a database, in this order: a new one that a sweep makes in between must not write to packs."""
    if database == CACHE_NAME:
        yield PACKS
    yield from (database, f"{database}-wal", f"{database}-shm")


def finish_moving(store: Path, folder: Path) -> None:
    """Move what a stopped repair was about to: without its packs and its log, a database is another one."""
    marker = folder / _MARKER
    wanted = marker.read_text(errors="replace").split() if marker.exists() else ()
    for database in DATABASES:
        for name in files_of(database):
            is_new = name.startswith(f"{database}-") and (store / database).exists()  # of one that was made since
            if name in wanted and (store / name).exists() and not (folder / name).exists() and not is_new:
                _move(store / name, folder / name)


class Aside:
    """The folder that damaged files are moved into; made when the first one comes."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.folder = store / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        self.copy: Copy | None = None

    def note(self, paths: Iterable[Path] = ()) -> None:
        """Have the ledger tell of the folder before there is one: whatever stops this, who forgets a session knows.

        `paths` are going to be moved one after the other: the marker tells them.
        """
        if self.copy is None:
            self.copy = note_ahead(Ledger(self._store), SET_ASIDE, self.folder)
            self.folder.mkdir(mode=0o700)
            replace_file(self.folder / _MARKER, "\n".join(path.name for path in paths).encode())
            sync(self._store)

    def take(self, path: Path) -> None:
        """Move a file or folder of the store here, under the same name; if the write lock is held, `note` first."""
        if path.exists():
            self.note()
            _move(path, self._place(path))

    def keep_copy(self, path: Path, content: bytes) -> None:
        with open(os.open(self._place(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def _place(self, path: Path) -> Path:
        target = self.folder / path.relative_to(self._store)
        for folder in reversed(target.parents):
            if folder.is_relative_to(self.folder):
                folder.mkdir(mode=0o700, exist_ok=True)
        return target


def _move(path: Path, target: Path) -> None:
    path.rename(target)
    sync(target.parent)
    sync(path.parent)
