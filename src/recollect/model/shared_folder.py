"""Folders that a sandboxed agent can write to too: nothing in them is followed, trusted or read without end."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from recollect.model.errors import UsageError

TASKS, ANSWERS, INPUT = "tasks", "answers", "input"
HISTORY_NAME, TASKS_NAME = "session_history.json", "current_tasks.json"
CLOSE_NAME = "_close"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW
_MODE = 0o600


class SharedFolder:
    """An open folder. Names are looked up in it alone: a link in its place, or to elsewhere, is not followed."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    @contextmanager
    def below(self, name: str) -> Iterator["SharedFolder"]:
        """A folder in this one, made if it is not there; raises UsageError if something else has its name."""
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=self._fd)
        try:
            fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | _FLAGS, dir_fd=self._fd)
        except OSError as error:
            raise UsageError(f"Not a folder: {name}", "remove whatever is there") from error
        try:
            yield SharedFolder(fd)
        finally:
            os.close(fd)

    def names(self, ending: str = ".json") -> list[str]:
        """The files with a plain name and this ending, in order; unfinished ones (`.x`, `x.tmp`) are left out."""
        with os.scandir(self._fd) as entries:  # a path could be a link by now
            names = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        return sorted(name for name in names if name.endswith(ending) and _NAME.fullmatch(name))

    def drop(self, before_ms: int | None = None) -> None:
        """Delete all files, unfinished ones too, or those that changed before then."""
        with os.scandir(self._fd) as entries:
            names = [entry.name for entry in entries]
        for name in names:
            with suppress(FileNotFoundError):  # its reader may delete it too
                if before_ms is None or self.changed_ms(name) < before_ms:
                    self.remove(name)

    def has(self, name: str) -> bool:
        try:
            os.stat(name, dir_fd=self._fd, follow_symlinks=False)
        except OSError:
            return False
        return True

    def read(self, name: str, most_bytes: int) -> bytes:
        """A file's content; raises UsageError for a link, a device, or more than `most_bytes`."""
        try:
            fd = os.open(name, os.O_RDONLY | os.O_NONBLOCK | _FLAGS, dir_fd=self._fd)
        except OSError as error:
            raise UsageError(f"Cannot be read ({error.strerror}): {name}", "write a plain file") from error
        facts = os.fstat(fd)
        if not stat.S_ISREG(facts.st_mode) or facts.st_nlink != 1:
            os.close(fd)
            raise UsageError(f"Not a plain file: {name}", "write a plain file, then rename it")
        with open(fd, "rb") as file:
            content = file.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise UsageError(f"Larger than {most_bytes:,} bytes: {name}", "send less")
        return content

    def write(self, name: str, content: bytes) -> None:
        """Put a file there whole, or not at all; what has its name is replaced, be it a link or an empty folder.

        Raises UsageError for a folder with something in it.
        """
        unfinished = f".{name}.{os.getpid()}.tmp"
        self.remove(unfinished)
        fd = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, _MODE, dir_fd=self._fd)
        with open(fd, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(fd)
        with suppress(OSError):
            os.rmdir(name, dir_fd=self._fd)
        try:
            self.rename(unfinished, name)
        except IsADirectoryError:
            self.remove(unfinished)
            raise UsageError(f"Not a plain file: {name}", "remove the folder") from None
        os.fsync(self._fd)

    def changed_ms(self, name: str) -> int:
        """When a file got its name or its content, whichever came last."""
        return os.stat(name, dir_fd=self._fd, follow_symlinks=False).st_ctime_ns // 1_000_000

    def rename(self, name: str, new_name: str) -> None:
        os.rename(name, new_name, src_dir_fd=self._fd, dst_dir_fd=self._fd)

    def remove(self, name: str) -> None:
        """Delete a file, if it is there; an empty folder in its place goes too."""
        try:
            os.unlink(name, dir_fd=self._fd)
        except FileNotFoundError:
            return
        except OSError:  # a folder
            with suppress(OSError):
                os.rmdir(name, dir_fd=self._fd)


@contextmanager
def open_shared(path: Path) -> Iterator[SharedFolder]:
    """The folder at `path`, made if it is not there; raises UsageError if something else is."""
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | _FLAGS)
    except (NotADirectoryError, FileExistsError):
        raise UsageError(f"Not a folder: {path}", "remove whatever is there") from None
    try:
        yield SharedFolder(fd)
    finally:
        os.close(fd)


def signal_close(ipc: Path) -> None:
    """Have the group's running agent end: its runner looks for this file."""
    with open_shared(ipc) as folder, folder.below(INPUT) as inputs:
        inputs.write(CLOSE_NAME, b"")
