"""Open memories for the requests that run at the same time."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, LifoQueue
from threading import BoundedSemaphore

from recollect.api import Memory

_AT_ONCE = 4  # more would only wait for each other's interpreter lock


class Readers:
    """Lends memories, one to a request at a time: a connection cannot answer two at once."""

    def __init__(self, open_one: Callable[[], Memory]) -> None:
        self._open = open_one
        self._idle: LifoQueue[Memory] = LifoQueue()
        self._room = BoundedSemaphore(_AT_ONCE)

    @contextmanager
    def lend(self) -> Iterator[Memory]:
        """A memory for the block. One in which anything went wrong is closed, not lent again."""
        with self._room:
            try:
                memory = self._idle.get_nowait()
            except Empty:
                memory = self._open()
            try:
                yield memory
            except BaseException:
                memory.close()
                raise
            self._idle.put(memory)

    def close(self) -> None:
        while not self._idle.empty():
            self._idle.get_nowait().close()
