"""Processes that read sources while this one writes.

They are started as programs of their own, not forked: a fork would take SQLite's connections along,
and `multiprocessing` would import the caller's main module again.
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import NamedTuple

from recollect.adapters import get_adapter
from recollect.errors import RecollectError
from recollect.ingest import Task, read_batches, unsettled
from recollect.protection import Protection
from recollect.redact.redactor import Redactor
from recollect.schema import HISTORY_LANE
from recollect.store.batch import Batch

WORKER_BYTES = 8 * 1024 * 1024  # below this much to read, starting processes costs more than it gains
_WAITING_BATCHES = 32


class Failure(NamedTuple):
    """A source that could not be read, and why."""

    task: Task
    reason: str


class Finished(NamedTuple):
    task: Task


Reading = Batch | Failure | Finished


def read_tasks(tasks: list[Task], protection: Protection) -> Iterator[Reading]:
    """Read all sources, with processes if there is much to read; batches of one source stay in order."""
    if sum(task.row.size - task.row.offset for task in tasks) < WORKER_BYTES or _processors() == 1:
        return _read_here(tasks, protection)
    return _read_in_processes(sorted(tasks, key=_turn), protection)


def _turn(task: Task) -> tuple[bool, int]:
    """Large files first, so that no process is left with one at the end; histories last (see `Source`)."""
    return task.source.kind == HISTORY_LANE, -task.row.size


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read_here(tasks: list[Task], protection: Protection) -> Iterator[Reading]:
    if not tasks:
        return
    redactor = protection.redactor()
    for task in tasks:
        yield from _read_task(task, redactor)


def _read_task(task: Task, redactor: Redactor) -> Iterator[Reading]:
    try:
        yield from read_batches(get_adapter(task.source.agent), task, redactor)
        yield Finished(task)
    except RecollectError as error:
        yield Failure(task, error.message)
    except Exception as error:  # one source must not end the sweep; it is listed by `recollect problems`
        # It may have been a lack of memory and not the file: the next sweep tries it again.
        yield Failure(task._replace(row=unsettled(task.row)), f"{type(error).__name__}: {error}"[:500])


def _read_in_processes(tasks: list[Task], protection: Protection) -> Iterator[Reading]:
    crew = _Crew(tasks, protection)
    count = min(_processors(), len(tasks))
    for _ in range(count):
        threading.Thread(target=crew.drive, daemon=True).start()
    try:
        while count:
            result = crew.get()
            if result is None:
                count -= 1
            else:
                yield result
    finally:
        crew.is_stopped.set()  # the caller has had enough: nobody waits for a full queue for ever


class _Crew:
    """Threads that each feed one process task by task and pass on what it reads."""

    def __init__(self, tasks: list[Task], protection: Protection) -> None:
        self._waiting = iter(tasks)
        self._protection = protection
        self._lock = threading.Lock()
        # Not a bounded Queue: an interrupt while waiting for one breaks its lock.
        self._results: SimpleQueue[Reading | None] = SimpleQueue()
        self._room = threading.Semaphore(_WAITING_BATCHES)
        self.is_stopped = threading.Event()

    def get(self) -> Reading | None:
        """The next thing that was read; None when one of the threads is done."""
        result = self._results.get()
        self._room.release()
        return result

    def drive(self) -> None:
        """Feed a process until nothing waits; if it dies, that task has failed and another one goes on."""
        try:
            task = self._next_task()
            while task is not None:
                with _process() as connection:
                    connection.send(self._protection)
                    task = self._drive_process(connection, task)
        finally:
            self._put(None)

    def _drive_process(self, connection: Connection, task: Task | None) -> Task | None:
        while task is not None:
            try:
                connection.send(task)
                while not isinstance(result := connection.recv(), Finished | Failure):
                    self._put(result)
                self._put(result)
            except (EOFError, OSError):
                # Not the file's fault, as far as anyone knows: the next sweep tries it again.
                self._put(Failure(task._replace(row=unsettled(task.row)), "the reading process died"))
                return self._next_task()
            task = self._next_task()
        return None

    def _next_task(self) -> Task | None:
        with self._lock:
            return None if self.is_stopped.is_set() else next(self._waiting, None)

    def _put(self, result: Reading | None) -> None:
        while not self.is_stopped.is_set():
            if self._room.acquire(timeout=0.2):
                self._results.put(result)
                return


@contextmanager
def _process() -> Iterator[Connection]:
    ours, theirs = socket.socketpair()
    # -P: nothing in the current folder may shadow a module.
    command = [sys.executable, "-P", "-m", "recollect.reader_process", str(theirs.fileno())]
    with theirs:
        # In a session of its own: Ctrl-C is for this process, which hangs up, and then the reader ends.
        process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        with Connection(ours.detach()) as connection:
            yield connection
    finally:
        process.wait()


def serve(connection: Connection) -> None:
    """Read what is asked for until the other side hangs up."""
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        redactor = connection.recv().redactor()
        while True:
            for reading in _read_task(connection.recv(), redactor):
                connection.send(reading)
