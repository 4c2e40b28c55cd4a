"""Work files: what processes write beside its place until it is complete, and leave behind when they die.

They are called `.<what>.<process>.tmp`, maybe with an ending. A folder among them holds whole texts: its process holds
a lock on it, because process numbers are soon used again.
"""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_NAME = re.compile(r"\.(?P<what>.+)\.(?P<process>[0-9]+)\.tmp(?:[.-].*)?", re.DOTALL)


def work_name(what: str) -> str:
    """The name of this process's work file for `what`."""
    return f".{what}.{os.getpid()}.tmp"


def abandoned(folder: Path) -> list[Path]:
    """Work files that dead processes left in a folder of our own."""
    files = [path for path in _listed(folder) if _NAME.fullmatch(path.name)]
    return sorted(path for path in files if (_is_free(path) if path.is_dir() else not _has_owner(path)))


def left_beside(path: Path) -> list[Path]:
    """Work files of any process for a path."""
    names = ((_NAME.fullmatch(other.name), other) for other in _listed(path.parent))
    return sorted(other for name, other in names if name is not None and name["what"] == path.name)


def drop_abandoned(folder: Path) -> None:
    for path in abandoned(folder):
        remove(path)


def drop_left_beside(path: Path) -> None:
    """Remove work files for a path of dead processes, or of an earlier one with this one's number."""
    for left in left_beside(path):
        if not _has_owner(left):
            remove(left)


def remove(path: Path) -> None:
    import shutil  # slow to load, and seldom needed

    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _listed(folder: Path) -> Iterator[Path]:
    with suppress(OSError):
        yield from folder.iterdir()


def _has_owner(path: Path) -> bool:
    """Whether the process that a name mentions is running, and is not this one."""
    name = _NAME.fullmatch(path.name)
    process = int(name["process"]) if name else 0
    if process in (0, os.getpid()):
        return False
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:
        return True
    return True


def _is_free(folder: Path) -> bool:
    """Whether nobody works in a folder."""
    try:
        fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
