"""Processes that read sources while this one writes.

They are started as programs of their own, not forked: a fork would take SQLite's connections along,
and `multiprocessing` would import the caller's main module again.
"""

import gc
import os
import pickle
import socket
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

import msgspec

from recollect.agents import get_adapter
from recollect.ingest.builder import Protection, Task, read_batches, unsettled
from recollect.model.clock import rfc3339
from recollect.model.errors import RecollectError
from recollect.model.kinds import HISTORY_LANE
from recollect.redact import Redactor
from recollect.store import Batch, has_live

WORKER_BYTES = 8 * 1024 * 1024  # below this much to read, starting processes costs more than it gains
BATCH_EVENTS, BATCH_BYTES = 4000, 16 * 1024 * 1024  # in one transaction: under a tenth of a second
LIVE_EVENTS, LIVE_BYTES = 50, 512 * 1024  # the same while a host appends to live sessions
_BESIDE_HOST = 10  # how nice readers are then to whoever is writing
_WAITING_BATCHES = 32
_SIZE_BYTES = 8  # of a message, before it
_READER = "import sys; from recollect.ingest.pool import serve; serve(int(sys.argv[1]))"

# A batch as it crosses from a reader to the writer: one flat buffer
pack_batch = msgspec.msgpack.Encoder().encode
unpack_batch = msgspec.msgpack.Decoder(Batch).decode


class Finished(NamedTuple):
    """A source that was read to its end, or why it could not be."""

    task: Task
    failure: str | None = None


Reading = Batch | Finished


def stage_of(reading: Reading) -> str | None:
    """How far back reading has come, once a file is finished; histories, which come last, say nothing of that."""
    if isinstance(reading, Batch) or reading.task.source.kind == HISTORY_LANE:
        return None
    date = (rfc3339(reading.task.row.mtime_ns // 1_000_000) or "")[:10]
    return f"reading, back to {date}"


def grouped(readings: Iterable[Reading], folder: Path) -> Iterator[list[Reading]]:
    """Small sources share a transaction; none holds the write lock for long, least of all while hosts append.

    The first batch has one of its own: however soon a sweep is killed, the next one begins behind it.
    """
    group, events, size, limits = list[Reading](), 0, 0, (1, 1)
    for reading in readings:
        group.append(reading)
        if isinstance(reading, Batch):
            events, size = events + reading.events, size + reading.bytes
        if events >= limits[0] or size >= limits[1]:
            yield group
            limits = (LIVE_EVENTS, LIVE_BYTES) if has_live(folder) else (BATCH_EVENTS, BATCH_BYTES)
            group, events, size = [], 0, 0
    yield from [group] if group else []


def read_tasks(tasks: list[Task], protection: Protection) -> Iterator[Reading]:
    """Read all sources, with processes if there is much to read; batches of one source stay in order."""
    is_little = bytes_to_read(tasks) < WORKER_BYTES or _processors() == 1
    return _read_here(tasks, protection) if is_little else _read_in_processes(tasks, protection)


def bytes_to_read(tasks: list[Task]) -> int:
    return sum(task.row.size - task.row.offset for task in tasks)


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
        yield Finished(task, error.message)
    except Exception as error:  # one source must not end the sweep; it is listed by `recollect status --problems`
        # It may have been a lack of memory and not the file: the next sweep tries it again.
        yield Finished(task._replace(row=unsettled(task.row)), f"{type(error).__name__}: {error}"[:500])


def _read_in_processes(tasks: list[Task], protection: Protection) -> Iterator[Reading]:
    protection.compile_rules()
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
                # Here and not in the threads, which would keep this one from running while it holds the turn to write.
                yield unpack_batch(result) if isinstance(result, bytearray) else result
    finally:
        crew.is_stopped.set()  # the caller has had enough: nobody waits for a full queue for ever


class _Crew:
    """Threads that each feed one process task by task and pass on what it reads."""

    def __init__(self, tasks: list[Task], protection: Protection) -> None:
        self._waiting = iter(tasks)
        self._protection = protection
        self._lock = threading.Lock()
        # Not a bounded Queue: an interrupt while waiting for one breaks its lock.
        self._results: SimpleQueue[Finished | bytearray | None] = SimpleQueue()
        self._room = threading.Semaphore(_WAITING_BATCHES)
        self.is_stopped = threading.Event()

    def get(self) -> Finished | bytearray | None:
        """The next thing that was read, a batch as it was sent; None when one of the threads is done."""
        result = self._results.get()
        self._room.release()
        return result

    def drive(self) -> None:
        """Feed a process until nothing waits; if it dies, that task has failed and another one goes on."""
        try:
            task = self._next_task()
            while task is not None:
                with _process() as connection:
                    _send(connection, pickle.dumps(self._protection))
                    task = self._drive_process(connection, task)
        finally:
            self._put(None)

    def _drive_process(self, connection: socket.socket, task: Task | None) -> Task | None:
        while task is not None:
            try:
                _send(connection, pickle.dumps(task))
                while data := _receive(connection):
                    self._put(data)
                self._put(pickle.loads(_receive(connection)))
            except (EOFError, OSError):
                # Not the file's fault, as far as anyone knows: the next sweep tries it again.
                self._put(Finished(task._replace(row=unsettled(task.row)), "the reader process died"))
                return self._next_task()
            task = self._next_task()
        return None

    def _next_task(self) -> Task | None:
        with self._lock:
            return None if self.is_stopped.is_set() else next(self._waiting, None)

    def _put(self, result: Finished | bytearray | None) -> None:
        while not self.is_stopped.is_set():
            if self._room.acquire(timeout=0.2):
                self._results.put(result)
                return


@contextmanager
def _process() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    # -P: nothing in the current folder may shadow a module.
    command = [sys.executable, "-P", "-c", _READER, str(theirs.fileno())]
    with theirs:
        # In a session of its own: Ctrl-C is for this process, which hangs up, and then the reader ends.
        process = subprocess.Popen(
            command, pass_fds=(theirs.fileno(),), stdin=subprocess.DEVNULL, start_new_session=True
        )
    try:
        with ours:
            yield ours
    finally:
        process.wait()


def serve(fd: int) -> None:
    """The program of a reader: read what is asked for until the other side hangs up.

    The batches of a task are followed by an empty message and by how the task ended.
    """
    # Records are made and dropped by the million and hold no cycles: looking for some takes a tenth of the time.
    gc.disable()
    with socket.socket(fileno=fd) as connection, suppress(EOFError, BrokenPipeError, ConnectionResetError):
        protection: Protection = pickle.loads(_receive(connection))
        if has_live(protection.folder):
            os.nice(_BESIDE_HOST)
        redactor = protection.redactor()
        while True:
            for reading in _read_task(pickle.loads(_receive(connection)), redactor):
                if isinstance(reading, Batch):
                    _send(connection, pack_batch(reading))
                else:
                    _send(connection, b"")
                    _send(connection, pickle.dumps(reading))


def _send(connection: socket.socket, message: bytes) -> None:
    connection.sendall(len(message).to_bytes(_SIZE_BYTES))
    connection.sendall(message)


def _receive(connection: socket.socket) -> bytearray:
    """The next message; raises EOFError if the other side has hung up."""
    size = int.from_bytes(_receive_bytes(connection, _SIZE_BYTES))
    return _receive_bytes(connection, size)


def _receive_bytes(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view, flags=socket.MSG_WAITALL)
        if not count:
            raise EOFError
        view = view[count:]
    return data
