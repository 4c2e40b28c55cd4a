"""What hooks leave in the store's folder: a small file per call for the next sweep, never content; and the log of what
they added to sessions and when, one JSON object per line. And claims, which are empty files: what several hooks and
servers could add is added by the one that creates its file."""

import json
import os
import time
from zlib import crc32

from recollect.model.home import GROUP_VARIABLE, HOOK_LOG_NAME, IPC_VARIABLE, SPOOL_NAME, environment, start_recollect

TYPE_CHECKING = False  # `typing` takes as long to load as the rest of a hook
if TYPE_CHECKING:
    from recollect.hooks.answers import HookEvent

ERRORS_NAME = "hooks-error.log"
_MOST_BYTES = 8_000_000


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


def note_failure(store_folder: str) -> None:
    """Log why the last hook failed, if possible."""
    import traceback  # seldom needed
    from contextlib import suppress

    with suppress(OSError), open(f"{store_folder}/{ERRORS_NAME}", "w", encoding="utf-8", errors="replace") as file:
        file.write(traceback.format_exc())


def add_to_log(store_folder: str, event: "HookEvent", text: str, error: str) -> None:
    """Add a line, with the fingerprint of the error it is about; a log that grew too large is started over."""
    path = f"{store_folder}/{HOOK_LOG_NAME}"
    line = {
        "at_ms": time.time_ns() // 1_000_000,
        "agent": event.hooks.agent,
        "session": event.session,
        "event": event.name,
        "turn": event.turn,
        "error": error,
        "text": text,
    }
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        if os.fstat(descriptor).st_size > _MOST_BYTES:
            os.ftruncate(descriptor, 0)
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


_KEPT_S = 7 * 86_400


def claim(store_folder: str, *parts: str) -> bool:
    """Whether nobody has claimed this before."""
    folder = f"{store_folder}/claims"
    name = "\0".join(parts).encode("utf-8", "replace")
    path = f"{folder}/{crc32(name):08x}{crc32(name[::-1]):08x}"
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    except FileNotFoundError:
        os.mkdir(folder, 0o700)  # raises if there is no store
        return claim(store_folder, *parts)
    except FileExistsError:
        return False
    return True


def drop_old(store_folder: str) -> None:
    """Remove claims of sessions that are long over."""
    before = time.time() - _KEPT_S
    with os.scandir(f"{store_folder}/claims") as entries:
        for entry in entries:
            if entry.stat().st_mtime < before:
                os.unlink(entry.path)


def agent_process() -> str:
    """The process of the agent that started this one, directly or through a shell; the same for hooks and servers.

    Agents name their processes after themselves; where the system does not show them, the parent is used.
    """
    pid = parent = os.getppid()
    for _ in range(4):
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                name, _, rest = file.read().partition("(")[2].rpartition(")")
        except OSError:
            break
        if name not in _SHELLS:
            return f"{pid} {rest.split()[19]}"  # with the moment it began: numbers are used again
        pid = int(rest.split()[1])
    return str(parent)


_SHELLS = ("sh", "bash", "dash", "zsh", "ash", "timeout", "env")
