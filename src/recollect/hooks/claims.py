"""Adding something once, even if several hooks and servers could. A claim is an empty file; its creator goes ahead."""

import os
import time
from zlib import crc32

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
