"""Files that changed -> the store: read, admitted and written, a group of batches at a time.

The gate lets through what may be stored: nothing that was forgotten or evicted, nor what the user excludes.

Nothing is stored first and deleted later. The folder of a session may be named in another file than its messages, so
batches of a session whose folder is not known yet wait until everything has been read. If they take too much memory,
the largest files are dropped and read again at the end.
"""

import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recollect.ingest.builder import Protection, Task
from recollect.ingest.exclude import IGNORE_FILE, REPO_SETTINGS, UNLISTED, Exclude, RuleFiles, unusable_lines
from recollect.ingest.pool import Finished, Reading, grouped, read_tasks, stage_of
from recollect.model.kinds import SessionKey
from recollect.model.schema import session_uid
from recollect.sessions import Checkouts
from recollect.store import (
    FORGOTTEN,
    Batch,
    Evicted,
    Exclusion,
    Place,
    Store,
    Tombstones,
    has_live,
    leave_out,
    sessions_of,
    without_forgotten,
    without_text,
)

SKIPPED = "excluded"  # the name under which the sweep's report counts events that are left out
WAITING_BYTES = 64 * 1024 * 1024
FACTS_BYTES = 64 * 1024

_KEPT = ""
_DEEPEST = 32  # logs may name two sessions as each other's parents

Name = tuple[str, str]  # agent, native id
SourceKey = tuple[str, ...]  # host, agent and path of a source
Read = Callable[[list[Task]], Iterator[Reading]]
LeftOut = dict[str, set[str]]  # the reason, and the sessions


def exclude_of(store: Store, patterns: Sequence[str], allow: Sequence[str] | None = None) -> Exclude:
    """The user's rules, and what the store knows about repositories. With `allow`, nothing else may be stored."""

    def checkouts() -> Checkouts:
        return Checkouts({(place.cwd, place.git_root, place.git_remote) for place in store.session_rows.places()})

    allowed = None if allow is None else Exclude(allow, checkouts, dict)
    return Exclude(patterns, checkouts, store.exclusions.folders, allowed)


def held_although_excluded(store: Store, patterns: Sequence[str]) -> list[Place]:
    """Sessions that were stored before a rule excluded them, or before their folder was known."""
    exclude = exclude_of(store, patterns)
    places = store.session_rows.places()
    return [place for place in places if exclude.rule(place.cwd, place.git_root, place.git_remote) is not None]


def unusable_rules(store: Store) -> list[tuple[Path, str]]:
    """The ignore files of known folders, each with a line of it that has no effect."""
    seen = {Path(exclusion.rule) for exclusion in store.exclusions.all() if exclusion.rule.endswith(f"/{IGNORE_FILE}")}
    files = seen | RuleFiles().ignore_files({place.cwd for place in store.session_rows.places() if place.cwd})
    return [(path, line) for path in sorted(files) for line in unusable_lines(path)]


def reconsider(store: Store) -> None:
    """Have excluded sessions judged again, except those of repositories that were deleted with their rule files."""

    def is_gone(rule: str) -> bool:
        folder, _, name = rule.rpartition("/")
        return name in (IGNORE_FILE, REPO_SETTINGS) and not os.access(f"{folder}/", os.F_OK)

    lifted = [exclusion for exclusion in store.exclusions.all() if not is_gone(exclusion.rule)]
    if lifted:
        store.exclusions.lift(lifted)


def unlisted(store: Store) -> Counter[str]:
    """How many sessions were left out because nobody has said whether to store them, by folder."""
    rules = {(row.agent, row.native_id): row.rule for row in store.exclusions.all() if row.rule.startswith(UNLISTED)}
    return Counter(rule.removeprefix(UNLISTED) for rule in rules.values())


def lift_unlisted(store: Store) -> None:
    """Have the next sweep judge again what was left out for want of an answer."""
    store.exclusions.lift([row for row in store.exclusions.all() if row.rule.startswith(UNLISTED)])


class _Gate:
    """Judges batches as they come. A verdict is the rule that excludes a session, `_KEPT`, or None: not known yet."""

    def __init__(self, store: Store, exclude: Exclude, tasks: list[Task], read: Read, left_out: LeftOut) -> None:
        self._store = store
        self._read = read
        self._left_out = left_out
        self._facts_beside: dict[Path, list[Task]] = defaultdict(list)
        facts = [task for task in tasks if task.source.is_rewritten and task.row.size <= FACTS_BYTES]
        self._facts = {task.row.path for task in facts}
        for task in facts:
            self._facts_beside[task.source.path.parent].append(task)
        self._exclude = exclude
        self._tombstones = Tombstones(store.tombstones, store.sources)
        self._evicted = Evicted(store.evictions)
        self._excluded = set(store.exclusions.all())
        self._verdicts: dict[Name, str] = {(row.agent, row.native_id): row.rule for row in self._excluded}
        self._sources = {(row.host, row.agent, row.path) for row in self._excluded}
        self._facts_by_name: dict[Name, dict[str, Any]] = {}
        self._is_first = not store.streams.has_infos()
        self._waiting: dict[SourceKey, list[Reading]] = {}
        self._waiting_bytes = 0
        self._too_big: set[SourceKey] = set()
        self._is_waiting_over = False
        self._to_read_again: list[Task] = []

    def admit(self, tasks: list[Task]) -> Iterator[Reading]:
        """Read all sources and yield what may be stored, the batches of each source in order."""
        yield from self._pass_on(self._read(tasks))
        # Everything has been read: a session whose folder is still unknown has none.
        self._is_waiting_over = True
        self._too_big.clear()
        for readings in self._waiting.values():
            yield from map(self._admitted, readings)
        self._waiting.clear()
        yield from self._pass_on(self._read(self._to_read_again))

    def _pass_on(self, readings: Iterable[Reading]) -> Iterator[Reading]:
        """Yield what may be stored now, and hold what has to wait."""
        for reading in readings:
            if isinstance(reading, Batch):
                self._learn(reading)
            if self._must_wait(reading):
                self._wait(reading)
            else:
                yield self._admitted(reading)

    def _must_wait(self, reading: Reading) -> bool:
        if self._is_waiting_over:
            return False
        source = _source_key(reading)
        if source in self._waiting or source in self._too_big:
            return True
        return (
            isinstance(reading, Batch) and not self._is_clear(reading) and not self._is_clear_with_files_beside(reading)
        )

    def _is_clear_with_files_beside(self, batch: Batch) -> bool:
        """Whether small files beside a log name its folder: they are read for that now, and for all else later."""
        if batch.source.path in self._facts:
            return False
        beside = self._facts_beside.pop(Path(batch.source.path).parent, [])
        for reading in self._read(beside):
            if isinstance(reading, Batch):
                self._learn(reading)
        return bool(beside) and self._is_clear(batch)

    def _is_clear(self, batch: Batch) -> bool:
        agent = batch.source.agent
        has_tombstones = self._tombstones.concern(agent)
        return all(
            (has_tombstones and self._tombstones.hold(agent, name)) or self._verdict((agent, name)) is not None
            for name in sessions_of(batch)
        )

    def _wait(self, reading: Reading) -> None:
        source = _source_key(reading)
        if source not in self._too_big:
            self._waiting.setdefault(source, []).append(reading)
            self._waiting_bytes += reading.bytes if isinstance(reading, Batch) else 0
        elif not isinstance(reading, Batch):
            self._to_read_again.append(reading.task)
        while self._waiting_bytes > WAITING_BYTES:
            self._drop_biggest()

    def _drop_biggest(self) -> None:
        source = max(self._waiting, key=lambda source: _bytes(self._waiting[source]))
        readings = self._waiting.pop(source)
        self._waiting_bytes -= _bytes(readings)
        self._too_big.add(source)
        self._to_read_again += [reading.task for reading in readings if not isinstance(reading, Batch)]

    def _learn(self, batch: Batch) -> None:
        """Note where sessions worked and what they belong to; the first file that says it counts."""
        for native_id, info in batch.infos.items():
            name = (batch.source.agent, native_id)
            if name not in self._verdicts:
                facts = _facts(orjson.loads(info)) | self._facts_by_name.get(name, {})
                self._facts_by_name[name] = facts
                # Of checkouts of excluded repositories, other logs may name only the folder.
                folder = self._exclude.learn(facts.get("cwd"), facts.get("git_root"), facts.get("git_remote"))
                if folder:
                    self._store.exclusions.add_folder(*folder)

    def _verdict(self, name: Name, depth: int = 0) -> str | None:
        if name not in self._verdicts:
            verdict = self._judge(name, depth)
            if verdict is None:
                return None
            self._verdicts[name] = verdict
            self._facts_by_name.pop(name, None)
        return self._verdicts[name]

    def _judge(self, name: Name, depth: int) -> str | None:
        agent, native_id = name
        facts = self._facts_of(name)
        above = native_id.rpartition("/")[0] or facts.get("root_native_id") or facts.get("parent_native_id")
        inherited = self._verdict((agent, above), depth + 1) if above and depth < _DEEPEST else None
        if inherited:
            return inherited
        if facts.get("cwd") is None and facts.get("git_remote") is None and not self._is_waiting_over:
            return inherited
        where = facts.get("cwd"), facts.get("git_root"), facts.get("git_remote")
        rule = self._exclude.rule(*where)
        # The session it belongs to decides, and may have worked elsewhere; or another one may name its repository.
        is_open = (above and inherited is None and depth < _DEEPEST) or not self._exclude.is_certain(*where)
        is_final = self._is_waiting_over or not is_open or (rule and not rule.startswith(UNLISTED))
        return (rule or _KEPT) if is_final else None

    def _facts_of(self, name: Name) -> dict[str, Any]:
        facts = self._facts_by_name.get(name, {})
        if not self._is_first:  # an earlier sweep may have read it
            for info in self._store.streams.infos_of([SessionKey(*name)]).get(SessionKey(*name), ()):
                facts = facts | _facts(info)
        return facts

    def _admitted(self, reading: Reading) -> Reading:
        if isinstance(reading, Batch):
            return self._admitted_batch(reading)
        task = reading.task
        return reading._replace(task=task._replace(row=self._tombstones.concealed(task.row)))

    def _admitted_batch(self, batch: Batch) -> Batch:
        agent = batch.source.agent
        names = sessions_of(batch)
        batch = self._evicted.without(without_forgotten(batch, self._tombstones))
        if self._tombstones.concern(agent):
            self._report(FORGOTTEN, agent, [name for name in names if self._tombstones.hold(agent, name)])
        rules = {name: rule for name in sessions_of(batch) if (rule := self._verdict((agent, name)))}
        unlisted = {name for name, rule in rules.items() if rule.startswith(UNLISTED)}
        self._report(SKIPPED, agent, rules.keys() - unlisted)
        self._report(UNLISTED.strip(), agent, unlisted)
        if rules:
            self._remember(batch, rules)
        elif batch.source[:3] in self._sources:
            batch.problems = without_text(batch.problems)
        return leave_out(batch, rules, SKIPPED)

    def _report(self, reason: str, agent: str, names: Collection[str]) -> None:
        if names:
            self._left_out.setdefault(reason, set()).update(session_uid(agent, name) for name in names)

    def _remember(self, batch: Batch, rules: dict[str, str]) -> None:
        """Store which sessions are excluded, before anything else of the batch."""
        host, agent, path = batch.source[:3]
        exclusions = {Exclusion(agent, name, host, path, rule) for name, rule in rules.items()}
        if not exclusions <= self._excluded:
            self._store.exclusions.add(exclusions)
            self._excluded |= exclusions
            self._sources.add((host, agent, path))


def _facts(info: dict[str, Any]) -> dict[str, Any]:
    first, last = info["first"], info["last"]
    facts = {name: first.get(name) for name in ("cwd", "parent_native_id", "root_native_id")}
    facts |= {name: last.get(name) for name in ("git_root", "git_remote")}
    return {name: value for name, value in facts.items() if value is not None}


def _source_key(reading: Reading) -> SourceKey:
    return reading.source[:3] if isinstance(reading, Batch) else reading.task.row[:3]


def _bytes(readings: list[Reading]) -> int:
    return sum(reading.bytes for reading in readings if isinstance(reading, Batch))


class Group(NamedTuple):
    """Batches and ends of files that were written together, and how far reading has come with them."""

    batches: list[Batch]
    failures: list[Finished]
    files_read: int
    events_new: int
    events_replaced: int
    stage: str
    bytes_done: int


def take_in(
    store: Store, tasks: list[Task], exclude: Exclude, protection: Protection, left_out: LeftOut
) -> Iterator[Group]:
    """Read and store what may be stored; what is left out is added to `left_out`, by the reason."""
    gate = _Gate(store, exclude, tasks, partial(read_tasks, protection=protection), left_out)
    stage, done = "reading", 0
    for readings in grouped(gate.admit(tasks), store.folder):
        batches = [reading for reading in readings if isinstance(reading, Batch)]
        failures = [reading for reading in readings if isinstance(reading, Finished) and reading.failure]
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
            store.sources.note(failure.task.row, failure.failure)
        stage = next(filter(None, map(stage_of, reversed(readings))), stage)
        done += sum(batch.bytes for batch in batches)
        yield Group(batches, failures, len(readings) - len(batches) - len(failures), new, replaced, stage, done)
