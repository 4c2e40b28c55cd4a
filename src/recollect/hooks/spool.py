"""What hooks leave for a sweep: one small file per call, never content; and the sweep of just these files."""

import json
import os
import time

from recollect.home import GROUP_VARIABLE, IPC_VARIABLE, SPOOL_NAME, environment, start_recollect

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from recollect.hooks.event import HookEvent


def spool_folder(store_folder: str) -> str:
    return f"{store_folder}/{SPOOL_NAME}"


def leave(store_folder: str, event: "HookEvent") -> None:
    """Note that a session has news."""
    folder = spool_folder(store_folder)
    os.makedirs(folder, 0o700, exist_ok=True)
    note = {
        "agent": event.hooks.agent,
        "session": event.session,
        "path": event.transcript,
        "event": event.name,
        "at_ms": time.time_ns() // 1_000_000,
    }
    path = f"{folder}/{time.time_ns()}-{os.getpid()}"
    with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(note, file)
    os.rename(f"{path}.new", f"{path}.json")


def start_sweep(log_path: str) -> None:
    """Start one sweep of what is in the spool, detached. One that runs already takes it along.

    It works for no group, even if a group's agent starts it: its sessions are stored like all others.
    """
    variables = {name: value for name, value in environment().items() if name not in (GROUP_VARIABLE, IPC_VARIABLE)}
    start_recollect(("hooks", "sweep"), variables, log_path)
