"""Which sources there are now, compared with what was read before."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from recollect.adapters import get_adapter
from recollect.adapters.protocol import Adapter, Source
from recollect.ingest import Task
from recollect.store import Store
from recollect.store.batch import SourceRow
from recollect.store.sources import KnownSource


@dataclass(slots=True)
class Found:
    """What a walk over the agents' folders found."""

    sources: int = 0
    tasks: list[Task] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    moved: list[tuple[KnownSource, str]] = field(default_factory=list)


def find_changes(store: Store, host: str, roots: Mapping[str, tuple[Path, ...]], *, verify: bool) -> Found:
    """Walk all roots. A file whose size, times and inode are as before is not opened, unless `verify`."""
    found = Found()
    for agent, paths in roots.items():
        adapter = get_adapter(agent)
        known = store.sources.known(host, agent)
        for root in dict.fromkeys(path.resolve() for path in paths):
            _compare(adapter, host, root, known, found, verify=verify)
    return found


def _compare(
    adapter: Adapter, host: str, root: Path, known: dict[str, KnownSource], found: Found, *, verify: bool
) -> None:
    present: dict[str, tuple[Source, os.stat_result]] = {}
    for source, info in _sources(adapter, root):
        present[path_key(source.path)] = (source, info)
    found.sources += len(present)
    missing = {path: source for path, source in known.items() if path not in present and _is_below(path, root)}
    for path, (source, info) in present.items():
        before = known.get(path) or _moved_from(missing, source, info)
        if before is not None and before.row.path != path:
            found.moved.append((before, path))
            del missing[before.row.path]
        elif before is not None and before.gone_ms is not None:
            found.back.append(before.id)
        task = _task(adapter, host, source, path, info, before)
        if verify or before is None or before.signature != _signature(task.row) or before.row.reader != adapter.version:
            found.tasks.append(task)
    if present:  # a folder that is suddenly empty is an unmounted disk, not a clean-up
        gone = (source for source in missing.values() if source.gone_ms is None)
        found.gone += [source.id for source in gone if _is_missing(source.row.path)]


def _is_missing(path: str) -> bool:
    """Whether a file is really not there, and not only out of reach."""
    try:
        Path(path).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return False


def _sources(adapter: Adapter, root: Path) -> Iterator[tuple[Source, os.stat_result]]:
    for source in adapter.discover(root):
        try:
            yield source, source.path.lstat()
        except FileNotFoundError:
            continue  # deleted since the walk saw it


def _signature(row: SourceRow) -> tuple[int, int, int, int]:
    return row.size, row.mtime_ns, row.ctime_ns, row.inode


def _moved_from(missing: dict[str, KnownSource], source: Source, info: os.stat_result) -> KnownSource | None:
    """The source this file was before it was renamed: the same inode under the same name, elsewhere gone."""
    for before in missing.values():
        is_same_file = (before.row.inode, before.row.mtime_ns) == (info.st_ino, info.st_mtime_ns)
        if is_same_file and Path(before.row.path).name == source.path.name:
            return before
    return None


def _task(
    adapter: Adapter, host: str, source: Source, path: str, info: os.stat_result, before: KnownSource | None
) -> Task:
    row = SourceRow(
        host, adapter.agent, path, source.kind, info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino,
        adapter.version, 0, 0, "", "", "{}",
    )  # fmt: skip
    if before is None or before.row.reader != adapter.version or before.failure is not None:
        return Task(source, row, has_cursor=False)
    old = before.row
    row = row._replace(offset=old.offset, line=old.line, head=old.head, tail=old.tail, state=old.state)
    return Task(source, row, has_cursor=True)


def _is_below(path: str, root: Path) -> bool:
    return path.startswith(path_key(root).rstrip("/") + "/")


def path_key(path: Path) -> str:
    """A path as text that a database takes: bytes that are no UTF-8 are written as escapes."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")
