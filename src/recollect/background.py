"""A command of ours that runs on by itself."""

import os
import sys

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


def start(words: "Sequence[str]", environment: "Mapping[str, str]", log_path: str) -> None:
    """Start `recollect WORDS`, detached from this process and its terminal; what it prints replaces the log."""
    # A server that starts many would keep those that have ended as zombies.
    _STARTED[:] = [process for process in _STARTED if os.waitpid(process, os.WNOHANG) == (0, 0)]
    process = os.posix_spawn(
        sys.executable,
        [sys.executable, "-I", "-m", "recollect", *words],
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, log_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    _STARTED.append(process)


_STARTED: list[int] = []
