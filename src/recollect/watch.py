"""File changes -> a sweep of just those.

The system reports changes below the agents' homes; each batch of changed files is swept by itself. What such reports
miss (a sleeping machine, a home that did not exist, a file moved in) is found by a sweep of everything: at the start,
every ten minutes, and whenever time has passed without a look.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from recollect.agentkit.files import Source
from recollect.agents import get_adapter
from recollect.config import Settings
from recollect.model.clock import now_ms
from recollect.model.errors import RecollectError
from recollect.model.text import silent
from recollect.sessions import with_group_homes
from recollect.store import NETWORK_FILE_SYSTEMS, file_system_type, open_store, watch_lock
from recollect.sweep import sweep
from recollect.sweep_report import SweepReport

FULL_SECONDS = 600
_LOOK_SECONDS = 1  # how often the watcher looks up while nothing changes
_ASLEEP_SECONDS = 60  # without a look: the machine slept
_GROUP_MS = 500  # changes are gathered until nothing changed for the step, at most for this long
_STEP_MS = 200
_POLL_MS = 2000  # on network file systems, which report nothing
_REST = 4  # times as long as the last sweep took, so that an agent that never stops costs a fifth of a processor
_LONGEST_REST = 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 60.0  # after a failure: mostly another sweep, which is over soon


@dataclass(frozen=True, slots=True)
class Attempt:
    """One sweep of the watcher: what it did, or why it could not. `files` is None for one of everything."""

    files: int | None
    report: SweepReport | None = None
    error: RecollectError | None = None


class SourceFinder:
    """Which of the files that changed are sources. Remembers the answers: a walk takes long in a large home.

    What it knows from the start is not reported as new, so it is made before a sweep of everything.
    """

    def __init__(self, roots: dict[str, tuple[Path, ...]]) -> None:
        self._roots = roots
        self._known: dict[Path, Source | None] = {path: source for source in self._all() for path in source.files}

    def find(self, paths: Iterable[Path]) -> list[Source]:
        paths = set(paths)
        if unknown := paths - self._known.keys():
            known = {path: source for source in self._all() for path in source.files}
            # Of a new folder only the folder itself may be reported, not what was written into it at once.
            paths |= {path for path in known.keys() - self._known.keys() if not unknown.isdisjoint(path.parents)}
            self._known |= dict.fromkeys(unknown) | known
        return [source for path in paths if (source := self._known[path]) is not None]

    def _all(self) -> Iterator[Source]:
        for agent, roots in self._roots.items():
            for root in roots:
                with suppress(OSError):  # a home that cannot be read; sweeps report it
                    yield from get_adapter(agent).discover(root)


class _Watcher:
    """What is still to be swept, and when."""

    def __init__(self, settings: Settings, stop: Event, tell: Callable[[Attempt], None]) -> None:
        self._settings = settings
        self.settings = settings  # with the homes of groups
        self._stop = stop
        self._tell = tell
        self._changed: set[Path] = set()
        self.is_full_due = True  # everything is looked at next
        self._swept_at = 0.0  # by the wall's clock, like all here: the other one stops while the machine sleeps
        self._pause_until = 0.0
        self._failures = 0
        self._finder = SourceFinder({})

    def note(self, paths: Iterable[Path]) -> None:
        self._changed.update(paths)

    def work(self) -> None:
        """Sweep what is due, after the rest of a short pause; a long one goes on."""
        pause = self._pause_until - time.time()
        if pause > _LOOK_SECONDS or (pause > 0 and self._stop.wait(pause)):
            return
        if self.is_full_due or time.time() - self._swept_at >= FULL_SECONDS:
            self._sweep(None)
        elif sources := self._finder.find(self._changed):
            self.note(source.path for source in sources)  # in case this sweep fails: a folder is new only once
            self._sweep(sources)
        else:
            self._changed.clear()

    def _sweep(self, sources: list[Source] | None) -> None:
        began, files = time.time(), None if sources is None else len(sources)
        try:
            with open_store(self._settings.folder, create=True) as store:
                self.settings = self._settings._replace(roots=with_group_homes(store, self._settings.roots))
                if sources is None:
                    self._finder = SourceFinder(existing_roots(self.settings))
                report = sweep(store, self.settings, silent, only=sources)
        except RecollectError as error:  # another sweep, a full disk: try again, ever less often
            self._pause_until = time.time() + min(_FIRST_PAUSE * 2**self._failures, _LONGEST_PAUSE)
            self._failures += 1
            self._tell(Attempt(files, error=error))
            return
        if sources is None:
            self.is_full_due, self._swept_at = False, began
        else:
            self._pause_until = time.time() + min((time.time() - began) * _REST, _LONGEST_REST)
        self._failures = 0
        self._changed.clear()
        self._tell(Attempt(files, report))


def watch(
    settings: Settings, stop: Event, tell: Callable[[Attempt], None], *, every_minutes: float | None = None
) -> None:
    """Keep the store up to date until `stop` is set: as files change, or with a sweep every so many minutes.

    Raises Busy if another process does it already.
    """
    watcher = _Watcher(settings, stop, tell)
    with _announced(settings, every_minutes):
        if every_minutes is not None:
            while not stop.is_set():
                watcher.is_full_due = True
                watcher.work()
                stop.wait(every_minutes * 60)
            return
        while not stop.is_set():
            _watch_homes(watcher, existing_roots(watcher.settings), stop)


@contextmanager
def _announced(settings: Settings, every_minutes: float | None) -> Iterator[None]:
    open_store(settings.folder, create=True).close()
    with watch_lock(settings.folder, now_ms(), every_minutes):
        yield


def _watch_homes(watcher: _Watcher, roots: dict[str, tuple[Path, ...]], stop: Event) -> None:
    """Sweep what changes below these homes, until there are others."""
    looked_at = 0.0
    for number, paths in enumerate(_changes([root for agent in roots.values() for root in agent], stop)):
        if number == 0 or time.time() - looked_at > _ASLEEP_SECONDS:
            watcher.is_full_due = True
        watcher.note(paths)
        watcher.work()
        looked_at = time.time()
        if existing_roots(watcher.settings) != roots:
            return


def _changes(folders: list[Path], stop: Event) -> Iterator[set[Path]]:
    """The files that changed, every second even if none did, until `stop` is set.

    The first set comes when the system is watching already: a sweep of everything then misses nothing.
    """
    while not folders and not stop.wait(_LOOK_SECONDS):
        yield set()
    if stop.is_set():
        return
    from watchfiles import watch as watch_files

    for changes in watch_files(
        *folders,
        watch_filter=None,
        debounce=_GROUP_MS,
        step=_STEP_MS,
        stop_event=stop,
        rust_timeout=_LOOK_SECONDS * 1000,
        yield_on_timeout=True,
        raise_interrupt=False,
        force_polling=any(file_system_type(folder) in NETWORK_FILE_SYSTEMS for folder in folders) or None,
        poll_delay_ms=_POLL_MS,
        ignore_permission_denied=True,
    ):
        yield {Path(path) for _, path in changes}


def existing_roots(settings: Settings) -> dict[str, tuple[Path, ...]]:
    """The agents' homes that exist, links followed."""
    homes = {agent: tuple(root.resolve() for root in roots if root.is_dir()) for agent, roots in settings.roots.items()}
    return {agent: roots for agent, roots in homes.items() if roots}
