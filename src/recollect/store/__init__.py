"""Everything that is kept, and all the SQL there is.

`memory.db` holds what must last and is written with full durability; `cache.db` and the packs hold the
bulk, which may be read again from the agents' files.
"""

import os
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from recollect.errors import NotFound, StoreUnwritable
from recollect.store import migrations
from recollect.store.cards import Cards
from recollect.store.events import Events
from recollect.store.excerpts import Excerpts
from recollect.store.fulltext_search import FulltextSearch
from recollect.store.sqlite import Database, is_full

if TYPE_CHECKING:
    from recollect.store.fulltext import Fulltext
    from recollect.store.sessions import Sessions
    from recollect.store.sources import Sources
    from recollect.store.streams import Streams


class Store:
    """One folder with everything Recollect knows."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.folder = folder
        self.read_only = read_only
        self._cache = Database(folder / "cache.db", migrations.CACHE, "NORMAL", read_only=read_only)
        self._memory = Database(folder / "memory.db", migrations.MEMORY, "FULL", read_only=read_only)
        self.events = Events(self._cache, folder)
        self.excerpts = Excerpts(self._cache)
        self.fulltext_search = FulltextSearch(self._cache)
        self.cards = Cards(self._memory)

    # A search needs none of these, and is to begin at once: they are loaded when they are asked for.

    @cached_property
    def fulltext(self) -> "Fulltext":
        from recollect.store.fulltext import Fulltext

        return Fulltext(self._cache)

    @cached_property
    def sources(self) -> "Sources":
        from recollect.store.sources import Sources

        return Sources(self._cache)

    @cached_property
    def streams(self) -> "Streams":
        from recollect.store.streams import Streams

        return Streams(self._cache)

    @cached_property
    def sessions(self) -> "Sessions":
        from recollect.store.sessions import Sessions

        return Sessions(self._memory)

    def checkpoint(self) -> None:
        """Empty both write-ahead logs; done at the end of a sweep."""
        self._cache.checkpoint()
        self._memory.checkpoint()

    def damage(self) -> list[str]:
        """What SQLite's own checks find wrong, in words; empty when nothing is."""
        found = []
        for database in (self._cache, self._memory):
            rows = database.rows("PRAGMA quick_check(20)")
            found += [f"{database.path.name}: {message}" for (message,) in rows if message != "ok"]
        return found

    def size_bytes(self) -> dict[str, int]:
        """Bytes on disk by part of the store."""
        packs = sum(file.stat().st_size for file in (self.folder / "packs").rglob("*.pack"))
        sizes = {name: _size(self.folder / name) for name in ("cache.db", "memory.db")}
        return {**sizes, "packs": packs, "total": packs + sum(sizes.values())}

    def close(self) -> None:
        self._cache.close()
        self._memory.close()

    def __enter__(self) -> "Store":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in path.parent.glob(path.name + "*"))


def open_store(folder: Path, *, create: bool = False) -> Store:
    """Open the store in `folder`, read-only where it cannot be written; raises NotFound if there is none."""
    if not (folder / "memory.db").exists() and not create:
        raise NotFound(f"Nothing is stored yet: {folder}", "`recollect sweep` reads your agents' sessions")
    if create:
        _make_private_folder(folder)
        return Store(folder)
    return Store(folder, read_only=not os.access(folder, os.W_OK) or is_full(folder))


def open_for_reading(folder: Path) -> Store:
    """Open the store only to look something up: waits for no writer. Raises NotFound if there is none."""
    if not (folder / "memory.db").exists():
        raise NotFound(f"Nothing is stored yet: {folder}", "`recollect sweep` reads your agents' sessions")
    return Store(folder, read_only=True)


def _make_private_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot make the store ({error.strerror}): {folder}",
            "set RECOLLECT_HOME to a folder you can write",
        ) from error
    if not os.access(folder, os.W_OK):
        raise StoreUnwritable(f"Store is read-only: {folder}", "set RECOLLECT_HOME to a folder you can write")
