"""Where the time of a first sweep goes: processor time of each stage, all in one process.

    python bench/stages.py AGENT HOME STORE

prints seconds by stage as JSON. Handing over is what readers and the writer do to pass on batches; one process alone
would not do it.
"""

import gc
import json
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from time import process_time
from typing import Any

from recollect import agents, sweep
from recollect.analysis import distiller
from recollect.config import load_settings
from recollect.ingest import builder, pool
from recollect.ingest.pool import pack_batch, unpack_batch
from recollect.model.text import silent
from recollect.redact.redactor import Redactor
from recollect.sessions import account
from recollect.store import Store, open_store
from recollect.store.batch import Batch
from recollect.store.intake import Intake
from recollect.store.tables.fulltext import Fulltext


class Stages:
    """Processor time by stage. A stage within another is not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)
        self._open = ["other"]
        self._since = process_time()

    def _switch(self) -> None:
        now = process_time()
        self.seconds[self._open[-1]] += now - self._since
        self._since = now

    def enter(self, stage: str) -> None:
        self._switch()
        self._open.append(stage)

    def leave(self) -> None:
        self._switch()
        self._open.pop()

    def wrap(self, owner: Any, name: str, stage: str) -> None:
        """Count the time of a function, or of a generator that it returns, to a stage."""
        inner: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **named: Any) -> Any:
            self.enter(stage)
            try:
                result = inner(*args, **named)
            finally:
                self.leave()
            return self._steps(result, stage) if isinstance(result, Iterator) else result

        setattr(owner, name, timed)

    def _steps(self, results: Iterator[Any], stage: str) -> Iterator[Any]:
        while True:
            self.enter(stage)
            try:
                result = next(results)
            except StopIteration:
                return
            finally:
                self.leave()
            yield result


def measure(agent: str, home: Path, store: Path) -> dict[str, float]:
    stages = Stages()
    adapter = agents.get_adapter(agent)
    stages.wrap(type(adapter), "read", "parse lines, make events")
    stages.wrap(builder, "columns_of", "words of events")
    stages.wrap(builder, "make_frames", "frames: compress")
    for name in ("changes", "suspects", "payloads"):
        stages.wrap(Redactor, name, "redact")
    stages.wrap(pool, "read_batches", "rows, hashes, payloads as JSON")
    stages.wrap(Intake, "put", "store rows and frames")
    stages.wrap(Fulltext, "add", "full text")
    stages.wrap(account, "settle_sessions", "account for sessions")
    stages.wrap(distiller, "distil_sessions", "distil")
    stages.wrap(Store, "checkpoint", "checkpoint")
    _hand_over(stages)
    pool.WORKER_BYTES = sys.maxsize
    settings = load_settings(store, [f"{agent}={home}"])
    gc.disable()
    with open_store(settings.folder, create=True) as opened:
        sweep.sweep(opened, settings, silent)
    stages.leave()
    return dict(stages.seconds)


def _hand_over(stages: Stages) -> None:
    """Have batches go through the buffer they would cross processes in."""
    read_task = pool._read_task

    def handed_over(*args: Any) -> Iterator[Any]:
        for reading in read_task(*args):
            if isinstance(reading, Batch):
                stages.enter("hand over")
                reading = unpack_batch(pack_batch(reading))
                stages.leave()
            yield reading

    pool._read_task = handed_over


if __name__ == "__main__":
    print(json.dumps(measure(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))))
