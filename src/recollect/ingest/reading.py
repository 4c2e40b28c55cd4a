"""Files that changed -> the store: read, admitted and written, a group of batches at a time."""

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

from recollect.ingest.builder import Task
from recollect.ingest.exclude import Exclude
from recollect.ingest.gate import LeftOut, admit
from recollect.ingest.pool import Failure, grouped, read_tasks, stage_of
from recollect.ingest.protection import Protection
from recollect.store import Batch, Store, has_live


class Group(NamedTuple):
    """Batches and ends of files that were written together, and how far reading has come with them."""

    batches: list[Batch]
    failures: list[Failure]
    files_read: int
    events_new: int
    events_replaced: int
    stage: str
    bytes_done: int


def take_in(
    store: Store, tasks: list[Task], exclude: Exclude, protection: Protection, left_out: LeftOut
) -> Iterator[Group]:
    """Read and store what may be stored; what is left out is added to `left_out`, by the reason."""
    read = partial(read_tasks, protection=protection)
    stage, done = "reading", 0
    for readings in grouped(admit(store, exclude, tasks, read, left_out), store.folder):
        batches = [reading for reading in readings if isinstance(reading, Batch)]
        failures = [reading for reading in readings if isinstance(reading, Failure)]
        new = replaced = 0
        if batches:
            if has_live(store.folder):  # nobody who waits for the turn to write waits for a disk, too
                store.live_pack.place(batches)
                store.databases[0].leave_log()
            written = store.intake.put(batches, store.sources.save, store.fulltext.add)
            store.named_values.remember(batches)
            store.databases[0].shorten_log()
            new, replaced = written.events_new, written.events_replaced
        for failure in failures:
            store.sources.save_failure(failure.task.row, failure.reason)
        stage = next(filter(None, map(stage_of, reversed(readings))), stage)
        done += sum(batch.bytes for batch in batches)
        yield Group(batches, failures, len(readings) - len(batches) - len(failures), new, replaced, stage, done)


def bytes_to_read(tasks: list[Task]) -> int:
    return sum(task.row.size - task.row.offset for task in tasks)
