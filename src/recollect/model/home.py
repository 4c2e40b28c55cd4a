"""This process on this machine: where its store is, which group it works for, how it starts another one.

Apart from the settings, because a status line and a hook have no time to load them.
"""

import os
import sys

TYPE_CHECKING = False  # `typing` takes long to load
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

GROUP_VARIABLE = "RECOLLECT_GROUP"
IPC_VARIABLE = "RECOLLECT_IPC"  # a group's folder for requests and answers
HOOK_TOOL = "hook_event"  # what hooks call in a server; no model is offered it
SPENDING_NAME = "spending.json"  # what a status line shows, in the store's folder
PREPARED_NAME = "prepared"  # what agents get at their start, a file for each folder
SWITCHES_NAME = "hooks.json"  # what the settings say about hooks
SPOOL_NAME = "spool"  # notes that hooks leave for a sweep
RESCUED_NAME = "rescued"  # copies of logs that are about to be compacted; there only while there are some
HOOK_LOG_NAME = "told.jsonl"  # what hooks added to sessions, and when


def store_path(environment: "Mapping[str, str]" = os.environ) -> str:
    """The store's folder as the user or the system names it, `~` included."""
    return environment.get("RECOLLECT_HOME") or data_path(environment)


def environment() -> "Mapping[str, str]":
    """What this process was started with, for hooks, which have no time to load the settings."""
    return os.environ


def store_folder_path() -> str:
    """The store's folder in full."""
    return os.path.expanduser(store_path())  # noqa: PTH111 - pathlib takes too long to load


def is_in_group() -> bool:
    """Whether this process works for a group, which may not see sums over all sessions; or for one it cannot name."""
    return (os.environ.get(GROUP_VARIABLE) or ("" if os.environ.get(IPC_VARIABLE) else "main")) != "main"


def data_path(environment: "Mapping[str, str]") -> str:
    """The folder for the store where the user names none."""
    if sys.platform == "linux":
        # As platformdirs has it, which takes a search longer to load than all else here.
        folder = environment.get("XDG_DATA_HOME", "").strip() or "~/.local/share"
        return f"{folder.rstrip('/')}/recollect"
    from platformdirs import user_data_path

    return str(user_data_path("recollect", appauthor=False))


def start_recollect(words: "Sequence[str]", environment: "Mapping[str, str]", log_path: str) -> None:
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
