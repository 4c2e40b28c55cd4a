"""The same for programs that must not wait: every call runs in a thread."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from recollect.agents.claude.native.home import NativeHome
from recollect.agents.claude.native.session import NativeSession


class InThreads:
    """A home or a session whose methods are awaited; sessions that they return are of this kind, too."""

    def __init__(self, of: NativeHome | NativeSession) -> None:
        self._of = of

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._of, name)
        return _awaited(value) if callable(value) else value


def _awaited(method: Callable[..., Any]) -> Callable[..., Awaitable[Any]]:
    async def call(*args: Any, **options: Any) -> Any:
        result = await asyncio.to_thread(method, *args, **options)
        return [_twin(item) for item in result] if isinstance(result, list) else _twin(result)

    return call


def _twin(value: Any) -> Any:
    return InThreads(value) if isinstance(value, NativeSession) else value
