"""Which sources there are now, compared with what was read before."""

import os
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from hashlib import blake2b
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from recollect.agentkit.files import CONTAINER, FOLDER, Cursor, Source, resolve_root, signature_of, unreadable_reason
from recollect.agents import get_adapter
from recollect.model.errors import SourceUnreadable
from recollect.model.kinds import HISTORY_LANE
from recollect.store import (
    HIDDEN,
    KnownSource,
    SourceRow,
    Sources,
    Store,
    hidden_path,
    path_key,
)

if TYPE_CHECKING:
    from recollect.agentkit.protocol import Adapter
    from recollect.ingest.builder import Task
    from recollect.redact import Redactor

MakeRedactor = Callable[[], "Redactor"]
Chosen = Collection[Source] | None  # the sources a sweep is limited to
_RECENT_S = 86_400
_Signature = tuple[int, int, int, int]  # size, mtime_ns, ctime_ns, inode
_File = tuple[str, Source, _Signature]  # by the name it is known by


@dataclass(slots=True)
class Changes:
    """What a walk over the agents' folders found, compared with what was read before."""

    sources: int = 0
    tasks: "list[Task]" = field(default_factory=list)
    gone: list[int] = field(default_factory=list)
    back: list[int] = field(default_factory=list)
    moved: list[tuple[KnownSource, str, str]] = field(default_factory=list)  # to which host and path
    readable: list[int] = field(default_factory=list)  # folders that could not be read before
    outdated: dict[int, Source] = field(default_factory=dict)  # an older adapter read them: to be read again whole
    torn: list[int] = field(default_factory=list)  # they no longer hold all that was read from them
    containers: list[tuple[SourceRow, list[SourceRow]]] = field(default_factory=list)  # each with its changed units

    def note(self, store: Store) -> None:
        """Have the store know which files are gone, back or moved, and drop what will be read again whole."""
        for source, host, path in self.moved:
            store.sources.move(source, host, path)
        store.sources.mark_gone(self.gone)
        store.sources.mark_gone(self.back, is_gone=False)
        store.sources.drop(self.readable)
        for container, changed in self.containers:
            store.sources.note(container, unread=changed)
        store.streams.keep(self.torn)
        if self.outdated:
            from recollect.agentkit.log import moments_in  # only needed after an upgrade

            moments = lru_cache(maxsize=32)(lambda source: moments_in(self.outdated[source]))  # a history has many
            store.streams.drop_outdated(self.outdated, moments)


def find_changes(
    store: Store,
    host: str,
    roots: Mapping[str, tuple[Path, ...]],
    make_redactor: MakeRedactor,
    *,
    verify: bool,
    only: Chosen = None,
) -> Changes:
    """Walk all roots, or look at these sources only, which says nothing of what is gone or moved elsewhere.

    A file whose size, times and inode are as before is not opened, unless `verify`. What cannot be read becomes a task
    that fails: it is reported like a file, and all others are read. The newest files come first, so that the last weeks
    can be searched early; prompt histories come last (see `Source`).
    """
    if verify:
        from recollect.ingest.gate import reconsider  # loads all that reading takes

        reconsider(store)
    changes = Changes()
    names = SourceNames(make_redactor)
    for agent, paths in roots.items():
        chosen = None if only is None else [source for source in only if source.agent == agent]
        if chosen == []:
            continue
        known = _known(store.sources, host, agent, chosen)
        comparison = _Comparison(get_adapter(agent), store.sources, host, known, names, changes, verify=verify)
        if chosen is not None:
            comparison.look_at(chosen)
            continue
        for path in paths:
            comparison.walk(path)
    changes.tasks.sort(key=lambda task: (task.source.kind == HISTORY_LANE, -task.row.mtime_ns))
    return changes


def find_sources(
    roots: Mapping[str, tuple[Path, ...]], paths: Iterable[Path], *, with_recent: bool = False
) -> list[Source]:
    """The sources among these files: what lies below a root and is on its agent's list.

    `with_recent` adds the files of sessions that the same agents wrote in the last day: a session's sub-agents, its
    title, its folder may be in files of their own, which only reading them would show to belong to it.
    """
    real_paths = {Path(os.path.realpath(path)) for path in paths}
    since_s = time.time() - _RECENT_S if with_recent else inf
    sources = []
    for agent, folders in roots.items():
        for root in map(resolve_root, folders):
            if any(path.is_relative_to(root) for path in real_paths):
                listed = get_adapter(agent).discover(root)
                sources += [s for s in listed if not real_paths.isdisjoint(s.files) or _is_newer(s, since_s)]
    return sources


def _is_newer(source: Source, since_s: float) -> bool:
    with suppress(OSError):  # the agent may just have deleted it
        return source.session is not None and source.path.stat().st_mtime >= since_s
    return False


def _known(sources: Sources, host: str, agent: str, chosen: Sequence[Source] | None) -> dict[str, KnownSource]:
    """What was read before of these sources; of all if one is new, for it may be known by a redacted name."""
    if chosen is None or any(source.holds_units for source in chosen):
        return sources.known(host, agent)
    keys = [path_key(source.path) for source in chosen]
    known = sources.known(host, agent, keys)
    return known if len(known) == len(keys) else sources.known(host, agent)


class SourceNames:
    """The names under which files are known: their paths, without the secrets they may contain."""

    def __init__(self, make_redactor: MakeRedactor) -> None:
        self._make_redactor = make_redactor

    @cached_property
    def _redactor(self) -> "Redactor":  # made for the first path that is not known: most sweeps find none
        return self._make_redactor()

    def find(self, path: Path, known: Mapping[str, KnownSource]) -> str:
        key = path_key(path)
        return key if key in known else self._redactor.functional(key)

    def find_root(self, root: Path, known: Iterable[str]) -> str:
        """What the names of files below a root begin with."""
        below = path_key(root).rstrip("/") + "/"
        return below if any(path.startswith(below) for path in known) else self._redactor.functional(below)


class _Comparison:
    """One agent's files beside what is known of them."""

    def __init__(
        self,
        adapter: "Adapter",
        sources: Sources,
        host: str,
        known: Mapping[str, KnownSource],
        names: SourceNames,
        changes: Changes,
        *,
        verify: bool,
    ) -> None:
        self._adapter = adapter
        self._sources = sources
        self._host = host
        self._names = names
        self._changes = changes
        self._verify = verify
        self._known = known
        self._has_hidden = any(path.startswith(HIDDEN) for path in self._known)
        self._seen: set[str] = set()
        self._walked: set[Path] = set()
        self._unreadable: set[str] = set()

    def walk(self, root: Path) -> None:
        """Compare the files below a root with what is known of them."""
        try:
            resolved = resolve_root(root)
        except OSError as error:
            self._fail(root, root, unreadable_reason(error))
            return
        if resolved in self._walked:
            return
        self._walked.add(resolved)
        before_walk = len(self._seen)
        new = self._compare_known(self._files(self._discovered(resolved)))
        missing = self._missing(resolved)  # a file that is new may be a known one that was moved
        for path, source, signature in new:
            self._compare_new(path, source, signature, missing)
        self._changes.sources += len(self._seen) - before_walk
        if len(self._seen) > before_walk:  # a folder that is suddenly empty is an unmounted disk, not a clean-up
            gone = (source for source in missing.values() if source.gone_ms is None)
            self._changes.gone += [source.id for source in gone if _is_missing(source.row.path)]
        self._changes.readable += self._readable(resolved)

    def look_at(self, sources: Iterable[Source]) -> None:
        """Compare just these files."""
        for path, source, signature in self._compare_known(self._files(sources)):
            self._compare_new(path, source, signature, {})
        self._changes.sources += len(self._seen)

    def _compare_known(self, files: Iterable[_File]) -> list[_File]:
        """Compare files with what is known of them; returns those of which nothing is."""
        new = []
        for path, source, signature in files:
            before = self._find_known(path)
            if before is None:
                new.append((path, source, signature))
            else:
                self._compare(path, source, signature, before)
        return new

    def _find_known(self, path: str) -> KnownSource | None:
        before = self._known.get(path)
        if before is None and self._has_hidden:  # it may hold nothing but forgotten sessions
            before = self._known.get(hidden_path(path))
        return before

    def _files(self, sources: Iterable[Source]) -> Iterator[_File]:
        for source in sources:
            path = self._names.find(source.path, self._known)
            if path in self._seen:
                continue  # a root below another root
            if source.failure:
                self._fail(source.root, source.path, source.failure)
                continue
            try:
                info = os.lstat(source.path)
            except FileNotFoundError:
                continue  # deleted since the walk saw it
            except OSError as error:  # no file of that folder can be looked at
                self._fail(source.root, source.path.parent, unreadable_reason(error))
                continue
            self._seen.add(path)
            if source.holds_units:
                yield from self._units(path, source, info)
            else:
                yield path, source, (info.st_size, info.st_mtime_ns, info.st_ctime_ns, info.st_ino)

    def _units(self, path: str, container: Source, info: os.stat_result) -> Iterator[_File]:
        """The units of a container that changed; those of another one count as seen.

        The container is known by its new signature before its units are read, and those that changed are known as
        unread: what a sweep that is killed leaves of them, the next one reads.
        """
        signature = signature_of(container.path, info)
        row = self._row(path, CONTAINER, signature)
        known = {name: unit.row for name, unit in self._known.items() if name.startswith(f"{path}#")}
        before = self._known.get(path)
        is_read = all(unit.mtime_ns >= 0 and unit.reader == row.reader for unit in known.values())
        if is_read and before and before.signature == signature and before.gone_ms is None and not self._verify:
            self._seen |= known.keys()
            return
        try:
            units = self._adapter.units(container)
        except SourceUnreadable as error:
            self._seen |= known.keys()
            self._fail(container.root, container.path, str(error))
            return
        size, mtime_ns, _, inode = signature
        files = [
            (f"{path}#{unit.unit}", unit, (size // len(units), mtime_ns, _number_of(unit.stamp), inode))
            for unit in units
        ]
        self._seen.update(name for name, *_ in files)
        news = [file for file in files if not _is_as_before(self._find_known(file[0]), *file[1:])]
        self._changes.containers.append((row, [self._row(name, unit.kind, at) for name, unit, at in news]))
        yield from files

    def _discovered(self, root: Path) -> Iterator[Source]:
        try:
            yield from self._adapter.discover(root)
        except OSError as error:  # the root itself cannot be looked into
            self._fail(root, root, unreadable_reason(error))

    def _fail(self, root: Path, folder: Path, reason: str) -> None:
        """Have a folder reported: once, and not again by later sweeps that find it as it was."""
        path = self._names.find(folder, self._known)
        before = self._known.get(path)
        is_told = before is not None and before.failure == reason and not self._verify
        if path not in self._unreadable and not is_told:
            source = Source(self._adapter.agent, FOLDER, root, folder, failure=reason)
            self._changes.tasks.append(_make_task(source, self._row(path, FOLDER, (0, -1, 0, 0)), has_cursor=False))
        self._unreadable.add(path)

    def _readable(self, root: Path) -> list[int]:
        """Folders at and below a root that could not be read the last time, and now could."""
        below = self._names.find_root(root, self._known)
        folders = (source for source in self._known.values() if source.row.kind == FOLDER)
        paths = ((source.id, source.row.path) for source in folders)
        return [id for id, path in paths if path not in self._unreadable and f"{path}/".startswith(below)]

    def _missing(self, root: Path) -> dict[tuple[int, int, str], KnownSource]:
        """Sources below a root that are not where they were, by what a file keeps when it is moved."""
        below = self._names.find_root(root, self._known)
        names = (path for path in self._known if path not in self._seen and path.startswith(below))
        rows = ((self._known[path].row, self._known[path]) for path in names if self._known[path].row.kind != FOLDER)
        return {(row.inode, row.mtime_ns, _name(row.path)): source for row, source in rows}

    def _compare(self, path: str, source: Source, signature: _Signature, before: KnownSource) -> None:
        if before.gone_ms is not None:
            self._changes.back.append(before.id)
        is_outdated = before.row.reader != self._adapter.version
        if not (self._verify or is_outdated or not _is_as_before(before, source, signature)):
            return
        self._changes.tasks.append(self._task(path, source, signature, before))
        if not _is_as_read(source, before.row):
            # A history is cut as a matter of course.
            self._changes.torn += [before.id] if source.kind != HISTORY_LANE else []
        elif before.row.reader < self._adapter.version:
            self._changes.outdated[before.id] = source

    def _compare_new(
        self, path: str, source: Source, signature: _Signature, missing: dict[tuple[int, int, str], KnownSource]
    ) -> None:
        _, mtime_ns, _, inode = signature
        before = missing.pop((inode, mtime_ns, _name(path)), None) or self._on_other_host(path, source, signature)
        if before is None:
            self._changes.tasks.append(self._task(path, source, signature, None))
        else:
            self._changes.moved.append((before, self._host, path))
            self._compare(path, source, signature, before)

    @cached_property
    def _elsewhere(self) -> dict[str, KnownSource]:
        return self._sources.known_elsewhere(self._host, self._adapter.agent)

    def _on_other_host(self, path: str, source: Source, signature: _Signature) -> KnownSource | None:
        """The same file at the same place under another host's name: this host was renamed, as containers are."""
        known = self._elsewhere.get(path)
        if known is None:
            return None
        row, (size, mtime_ns, _, inode) = known.row, signature
        is_same = (row.size, row.mtime_ns, row.inode) == (size, mtime_ns, inode)
        return known if is_same or (source.unit and _is_as_before(known, source, signature)) else None

    def _row(self, path: str, kind: str, signature: _Signature) -> SourceRow:
        """What is kept of a source of which nothing was read."""
        return SourceRow(self._host, self._adapter.agent, path, kind, *signature, reader=self._adapter.version)

    def _task(self, path: str, source: Source, signature: _Signature, before: KnownSource | None) -> "Task":
        row = self._row(path, source.kind, signature)
        if before is None or before.row.reader != row.reader or before.failure is not None:
            return _make_task(source, row, has_cursor=False)
        old, state = before.row, self._sources.state(before.id)
        row = row._replace(offset=old.offset, line=old.line, head=old.head, tail=old.tail, state=state)
        return _make_task(source, row, has_cursor=True)


def _make_task(source: Source, row: SourceRow, *, has_cursor: bool) -> "Task":
    from recollect.ingest.builder import Task  # loads all that reading takes: most sweeps read nothing

    return Task(source, row, has_cursor)


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def _is_as_before(before: KnownSource | None, source: Source, signature: _Signature) -> bool:
    """Whether nothing suggests that a source changed. A unit has the times of its container, and a stamp of its own."""
    if before is None:
        return False
    if source.unit is not None:
        return before.row.ctime_ns == signature[2] and before.row.mtime_ns >= 0
    return before.signature == signature


def _number_of(stamp: str) -> int:
    """A stamp as a database stores it among the times of a file."""
    return int.from_bytes(blake2b(stamp.encode(), digest_size=7).digest())


def _is_as_read(source: Source, row: SourceRow) -> bool:
    """Whether a file can be read, and still holds all that was read from it before.

    Nobody knows of a unit: its rows may be deleted one by one.
    """
    if source.unit is not None:
        return False
    from recollect.agentkit.log import LineReader  # only needed where there is something to read

    try:
        lines = LineReader(source, Cursor(row.offset, row.line, row.head, row.tail))
    except SourceUnreadable:
        return False
    return source.is_rewritten or lines.offset == row.offset


def _is_missing(path: str) -> bool:
    """Whether a file is really not there, and not only out of reach."""
    try:
        Path(path).lstat()
    except OSError as error:
        return isinstance(error, FileNotFoundError | NotADirectoryError)
    return False
