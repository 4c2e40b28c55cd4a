"""The same API for asyncio: every method runs in one thread, so that no event loop waits for a disk."""

import asyncio
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any


class AsyncLive:
    """Methods of an object as coroutines: `await live.aio.append_message(…)`.

    One thread for all calls: a store serves one at a time, and messages stay in the order they were appended in.
    """

    def __init__(self, target: Any) -> None:
        self._target = target
        self._thread = ThreadPoolExecutor(1, "recollect-live")

    async def run(self, function: Callable[..., Any], *args: Any, **options: Any) -> Any:
        """Call a function that uses the same store, in the same thread."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, partial(function, *args, **options))

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._target, name)
        if not callable(method):
            raise AttributeError(name)
        return partial(self.run, method)

    def close(self) -> None:
        """End the thread; calls that have begun are finished first."""
        self._thread.shutdown()
