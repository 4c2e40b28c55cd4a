"""The folder that a repair moves damaged files into; they are never deleted."""

import os
from datetime import UTC, datetime
from pathlib import Path

from recollect.store.ledger import Ledger
from recollect.store.sqlite.files import sync
from recollect.store.tables.copies import SET_ASIDE, Copy, note_ahead


def files_of(database: Path) -> list[Path]:
    """A database with its log."""
    return [database.with_name(database.name + suffix) for suffix in ("-wal", "-shm", "")]


class Quarantine:
    """Made when the first file comes."""

    def __init__(self, store: Path) -> None:
        self._store = store
        self.folder = store / f"damaged-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"
        self.copy: Copy | None = None

    def note(self) -> None:
        """Have the ledger know the folder before there is one: whatever stops this, a later `forget` knows of it."""
        if self.copy is None:
            self.copy = note_ahead(Ledger(self._store), SET_ASIDE, self.folder)
            self.folder.mkdir(mode=0o700)
            sync(self._store)

    def take(self, path: Path) -> None:
        """Move a file of the store here, under the same name; if the write lock is held, `note` first."""
        if path.exists():
            self.note()
            target = self._target(path)
            path.rename(target)
            sync(target.parent)
            sync(path.parent)

    def take_database(self, path: Path) -> None:
        """Move a database here with its log, which goes first: alone it would be taken for that of the next one."""
        for file in files_of(path):
            self.take(file)

    def keep_copy(self, path: Path, content: bytes) -> None:
        with open(os.open(self._target(path), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())

    def keep_file(self, path: Path) -> None:
        """Keep a copy of a file that stays in use, once."""
        self.note()
        if not self._target(path).exists():
            self.keep_copy(path, path.read_bytes())

    def _target(self, path: Path) -> Path:
        target = self.folder / path.relative_to(self._store)
        for folder in reversed(target.parents):
            if folder.is_relative_to(self.folder):
                folder.mkdir(mode=0o700, exist_ok=True)
        return target
