"""Files that Recollect itself writes from what it holds."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from recollect.agentkit.files import resolve_root
from recollect.agentkit.source import Source
from recollect.agents import get_adapter
from recollect.ingest.builder import Task, read_batches, unsettled
from recollect.ingest.discover import SourceNames
from recollect.ingest.protection import Protection
from recollect.store import SourceRow, Store

Files = Sequence[tuple[Path, bytes]]


def pass_over(
    store: Store, host: str, agent: str, roots: Mapping[str, tuple[Path, ...]], protection: Protection, files: Files
) -> None:
    """Count files that are about to be written as read to their end: nothing in them is new, and what follows will be.

    It comes before they are written, from a copy: a process that is killed in between leaves no file that a sweep
    would take for new.
    """
    adapter, redactor = get_adapter(agent), protection.redactor()
    names, known = SourceNames(lambda: redactor), store.sources.known(host, agent)
    batches = []
    for source, path, size in _copied(agent, roots.get(agent, ()), files):
        source_key = (host, agent, names.find(path, known), source.kind)
        row = unsettled(SourceRow(*source_key, size, 0, 0, 0, adapter.version, 0, 0, "", "", "{}"))
        *_, last = read_batches(adapter, Task(source, row, has_cursor=False), redactor)
        last.streams, last.problems = [], []
        batches.append(last)
    store.intake.put(batches, store.sources.save)


def _copied(agent: str, roots: Sequence[Path], files: Files) -> Iterator[tuple[Source, Path, int]]:
    """The sources among these files as they lie in a copy of their home, where they will be, and their sizes.

    Their home may be none of the `roots` that are read now; it is then the nearest folder above them in which the
    adapter finds them.
    """
    for root in (*map(resolve_root, roots), *files[0][0].parents):
        inside = {path.relative_to(root): content for path, content in files if path.is_relative_to(root)}
        if not inside:
            continue
        with TemporaryDirectory() as folder:
            home = resolve_root(Path(folder))
            for name, content in inside.items():
                (home / name).parent.mkdir(parents=True, exist_ok=True)
                (home / name).write_bytes(content)
            sources = list(get_adapter(agent).discover(home))
            for source in sources:
                name = source.path.relative_to(home)
                yield source, root / name, len(inside[name])
        if sources:
            return
