"""Files that Recollect itself wrote from what it holds."""

from collections.abc import Mapping
from pathlib import Path

from recollect.agents import get_adapter
from recollect.ingest.builder import read_batches
from recollect.ingest.discover import find_changes, find_sources
from recollect.ingest.protection import Protection
from recollect.store import Store


def pass_over(
    store: Store, host: str, roots: Mapping[str, tuple[Path, ...]], protection: Protection, path: Path
) -> None:
    """Count a file as read to its end: nothing in it is new, and what follows will be."""
    redactor = protection.redactor()
    sources = find_sources(roots, [path])
    changes = find_changes(store, host, roots, lambda: redactor, verify=False, only=sources)
    for task in changes.tasks:
        *_, last = read_batches(get_adapter(task.source.agent), task, redactor)
        last.streams, last.problems = [], []
        store.intake.put([last], store.sources.save)
