"""How long-running work reports its progress."""

from collections.abc import Callable

Progress = Callable[[str, int, int], None]  # stage, done, total


def silent(stage: str, done: int, total: int) -> None:
    """Report to nobody."""
