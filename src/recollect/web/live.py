"""Notices what agents write while the page is open, stores it, and tells the pages that are looking."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from threading import Event, Thread

from recollect.api import Memory, open_memory
from recollect.config import freshness_mode
from recollect.errors import RecollectError
from recollect.web.readers import Readers

_LOOK_SECONDS = 1.0
_TELL_SECONDS = 0.2
_HEARTBEAT_SECONDS = 15.0


class Live:
    """A thread that looks at the agents' files and at the store, and a number that grows with each change."""

    def __init__(self, readers: Readers, *, may_sweep: bool) -> None:
        self._readers = readers
        self._may_sweep = may_sweep
        self._commits: tuple[int, ...] | None = None
        self._stopped = Event()
        self.changes = 0

    def start(self) -> None:
        Thread(target=self._run, name="recollect-live", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    def _run(self) -> None:
        while not self._stopped.wait(_LOOK_SECONDS):
            with suppress(RecollectError, OSError):  # busy or full now: the next look may find it otherwise
                self.look()

    def look(self) -> None:
        """Store what is new if that is quick, and count a change if the store has one."""
        with self._readers.lend() as memory:
            needs_sweep = self._may_sweep and _needs_sweep(memory)
        if needs_sweep:
            with open_memory(create=False) as writer:
                writer.sweep()
        with self._readers.lend() as memory:
            commits = memory.commits()
        if self._commits is not None and commits != self._commits:
            self.changes += 1
        self._commits = commits

    async def stream(self) -> AsyncIterator[str]:
        """Server-sent events: one for each change, and a comment now and then, by which a gone reader is noticed."""
        seen, silent = self.changes, 0.0
        yield ": connected\n\n"
        while not self._stopped.is_set():
            await asyncio.sleep(_TELL_SECONDS)
            silent += _TELL_SECONDS
            if self.changes != seen:
                seen, silent = self.changes, 0.0
                yield f"event: stored\ndata: {seen}\n\n"
            elif silent >= _HEARTBEAT_SECONDS:
                silent = 0.0
                yield ": still here\n\n"


def _needs_sweep(memory: Memory) -> bool:
    if freshness_mode() != "auto" or memory.is_sweeping():
        return False
    freshness = memory.freshness()
    return bool(freshness.files_changed) and freshness.is_quick
