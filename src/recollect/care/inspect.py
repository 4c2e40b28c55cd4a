"""A look at every byte that is stored: what was damaged, what is missing, what has changed at its source.

Nothing is changed. Each look is a generator that says after every step how far it is, so that a time limit can
end it anywhere, and what was not looked at is reported.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

import apsw

from recollect.agentkit.files import resolve_root, unreadable_reason
from recollect.agentkit.protocol import FOLDER, Adapter, Source
from recollect.agents import adapters
from recollect.care.doctor import ABANDONED_MESSAGE, NOTE, OK, PROBLEM, Finding
from recollect.config import Settings
from recollect.ingest import Protection, SourceNames, Task, read_batches
from recollect.model.errors import NotFound, RecollectError, StoreTooNew
from recollect.model.files import abandoned
from recollect.model.kinds import SessionKey
from recollect.model.schema import HISTORY_LANE, QUEUE_ONLY, STAND_IN_LANE, Session
from recollect.model.text import Progress
from recollect.redact import KEY_BYTES, KEY_FILE, Redactor, key_id, key_of, without_rules
from recollect.sessions import content_hash
from recollect.store import (
    CACHE_NAME,
    DATABASES,
    HIDES_LEARNED,
    IS_PROVISIONAL,
    LEDGER_NAME,
    MARK_NAME,
    MAY_REPEAT,
    PAGE_BYTES,
    Batch,
    EventRow,
    Evicted,
    HeldStream,
    KnownSource,
    Ledger,
    RawCache,
    Store,
    StreamBatch,
    iter_damaged_pages,
    open_database,
    open_store,
    read_marks,
    second_uid,
    unpack_entry,
)

_STAND_INS = (HISTORY_LANE, STAND_IN_LANE)  # dropped once the log itself is held


# What a fault is about, for those who repair it
DATABASE = "database"
STREAM = "stream"
LEDGER = "ledger"
LEDGER_GAP = "ledger gap"
KEY = "key"
OTHER_KEY = "other key"
SESSION = "session"
BEHIND = "behind"
NO_MARK = "no mark"
ABANDONED = "abandoned"
LEFTOVER = "leftover"
SOURCE = "source"
UNREADABLE = "unreadable"

_NOTES = (LEFTOVER, SOURCE, OTHER_KEY, NO_MARK)
_SHOWN_OF_A_KIND = 20
_REPAIR = "`recollect doctor --repair` rebuilds what it can and lists what it cannot"
_ADVICE = {
    KEY: "restore it from a backup; otherwise `recollect doctor --repair` makes a new one, and secrets get new marks",
    OTHER_KEY: "restore the old one if a backup has it; secrets stay hidden either way, but one may have two marks",
    NO_MARK: "`recollect sweep` sets a new one; until then an outdated database would go unnoticed",
    UNREADABLE: "check the permissions of the store's files and its disk; repair cannot help",
}
_NEEDS_BOTH = "what needs both databases: packs, sessions, sources"
_PAGES_A_STEP = 256


class Fault(NamedTuple):
    """One thing that is not as it should be. `name` is the file, or the session as (agent, native id)."""

    part: str
    name: str | tuple[str, str]
    message: str


# After every step: how much of how much is done, and the faults that it found.
Look = Iterator[tuple[int, int, Sequence[Fault]]]


class Inspection:
    """What was found, and what was not looked at: for lack of time, or because something was in the way."""

    def __init__(self, progress: Progress, max_seconds: float | None) -> None:
        self.faults: list[Fault] = []
        self.out_of_reach: list[str] = []
        self._looked_at: dict[str, int] = {}
        self._not_looked_at: list[str] = []
        self._progress = progress
        self._deadline = None if max_seconds is None else time.monotonic() + max_seconds

    def has(self, part: str) -> bool:
        return any(fault.part == part for fault in self.faults)

    def has_time(self) -> bool:
        return self._deadline is None or time.monotonic() < self._deadline

    def look(self, name: str, look: Look) -> None:
        """Take one step after the other until the time is over."""
        done, total, missed = 0, 0, self._not_looked_at
        try:
            while self.has_time():
                step = next(look, None)
                if step is None:
                    self._looked_at[name] = done
                    return
                done, total, faults = step
                self.faults += faults
                self._progress(name, done, total)
        except apsw.InterruptError:
            pass
        except StoreTooNew:
            raise  # that is no damage, and nothing for this version to judge
        except (RecollectError, OSError, apsw.Error) as error:
            self.faults.append(_unreadable(error, name))
            missed = self.out_of_reach
        missed.append(f"{name} ({done:,} of {total:,} were)" if total else name)

    def findings(self) -> list[Finding]:
        """As doctor reports them, with many of a kind summed up; leftovers it has reported already."""
        parts = dict.fromkeys(fault.part for fault in self.faults if fault.part != ABANDONED)
        findings = [finding for part in parts for finding in self._told(part)]
        findings += [Finding(NOTE, "deep", f"Not checked, out of time: {name}") for name in self._not_looked_at]
        findings += [Finding(NOTE, "deep", f"Not checked: {name}") for name in self.out_of_reach]
        if not any(finding.level == PROBLEM for finding in findings):
            seen = ", ".join(f"{count:,} {name}" for name, count in self._looked_at.items() if count > 1)
            findings.append(Finding(OK, "deep", f"Every byte checked is intact: {seen}"))
        return findings

    def _told(self, part: str) -> Iterator[Finding]:
        faults = [fault for fault in self.faults if fault.part == part]
        level, advice = (NOTE, _ADVICE.get(part)) if part in _NOTES else (PROBLEM, _ADVICE.get(part, _REPAIR))
        for fault in faults[:_SHOWN_OF_A_KIND]:
            yield Finding(level, "deep", fault.message, advice)
        if len(faults) > _SHOWN_OF_A_KIND:
            yield Finding(level, "deep", f"and {len(faults) - _SHOWN_OF_A_KIND:,} more of this kind", advice)


def inspect_store(settings: Settings, progress: Progress, max_seconds: float | None = None) -> Inspection:
    """Look at the whole store, as far as the time goes. A store that is not there has no faults.

    Raises StoreTooNew for the store of a newer version.
    """
    run = Inspection(progress, max_seconds)
    left = [Fault(ABANDONED, path.name, f"{ABANDONED_MESSAGE}: {path}") for path in abandoned(settings.folder)]
    run.look("leftovers of interrupted commands", _one_step(left))
    for name in DATABASES:
        run.look(f"pages of {name}", _pages(settings.folder, name))
    damaged = {fault.name for fault in run.faults}
    for name in DATABASES:
        if name not in damaged:
            run.look(name, _opening(settings.folder, name))
    if run.has(DATABASE):
        run.look("ledger lines", _ledger(Ledger(settings.folder)))
        run.out_of_reach.append(_NEEDS_BOTH)
    else:
        with suppress(NotFound), open_store(settings.folder) as store:
            _look_at_store(store, settings, run)
    return run


def _look_at_store(store: Store, settings: Settings, run: Inspection) -> None:
    run.look("alarms", _one_step(_alarms(store)))
    run.look("ledger lines", _ledger(store.ledger))
    for database in store.databases:
        name = database.path.name
        for what, faults in ("structure", store.check.iter_structure_faults), ("rows", store.check.iter_content_faults):
            found = (Fault(DATABASE, name, message) for message in faults(name, run.has_time))
            run.look(f"{what} of {name}", _one_step(found))
    if run.has(DATABASE):
        run.out_of_reach.append(_NEEDS_BOTH)
        return
    run.look("ledger records", _one_step(_ledger_gaps(store)))
    run.look("redaction key", _one_step(_key_faults(store, store.folder / KEY_FILE)))
    run.look("sessions", _streams(store))
    run.look("session rows", _rows(store))
    if run.has(KEY):
        run.out_of_reach.append("source files (compared after redaction)")
    else:
        run.look("source files", _sources(store, settings))


def _unreadable(error: Exception, look: str) -> Fault:
    """A look that came upon something unreadable; the message has the path of it.

    A database is rebuilt for its own errors only: a file that cannot be read beside it says nothing of it.
    """
    named = next((name for text in (str(error), look) for name in DATABASES if name in text), None)
    if named is None and isinstance(error, OSError):
        return Fault(UNREADABLE, str(error.filename), str(error))
    return Fault(DATABASE, named or CACHE_NAME, str(error))


def _pages(folder: Path, name: str) -> Look:
    path = folder / name
    if not path.exists():
        return
    total = path.stat().st_size // PAGE_BYTES
    for number, page in enumerate(iter_damaged_pages(path, lambda: open_database(path)), start=1):
        if page is not None:
            message = f"Page {page:,} of {name} is damaged: {path}"
            yield min(number, total), total, [Fault(DATABASE, name, message)]
        elif number % _PAGES_A_STEP == 0 or number == total:
            yield number, total, ()


def _opening(folder: Path, name: str) -> Look:
    path = folder / name
    if path.exists():
        try:
            open_database(path).close()
        except StoreTooNew:
            raise
        except (RecollectError, OSError, apsw.Error) as error:
            yield 1, 1, [Fault(DATABASE, name, str(error))]
    elif others := [other for other in (*DATABASES, LEDGER_NAME) if (folder / other).exists()]:
        yield 1, 1, [Fault(DATABASE, name, f"{name} is missing beside {', '.join(others)}: {folder}")]
    yield 1, 1, ()


def _one_step(faults: Iterable[Fault]) -> Look:
    yield 1, 1, list(faults)


def _alarms(store: Store) -> Iterator[Fault]:
    alarms, path = store.check.alarms(), store.folder / MARK_NAME
    if path.exists() and not read_marks(store.folder):
        alarms.append(f"Cannot read the high-water mark: {path}")
    yield from (Fault(BEHIND, MARK_NAME, alarm) for alarm in alarms)
    if store.check.mark_is_missing():
        yield Fault(NO_MARK, MARK_NAME, f"High-water mark is missing: {path}")


def _ledger(ledger: Ledger) -> Look:
    damage = ledger.damage()
    count = sum(1 for _ in ledger.records()) + len(damage)
    yield count, count, [Fault(LEDGER, LEDGER_NAME, f"{line}: {ledger.path}") for line in damage]


def _ledger_gaps(store: Store) -> Iterator[Fault]:
    """What memory.db has and the ledger has lost: without it, what was forgotten would come back one day."""
    counts = Counter(kind for kind, _ in store.missing_records())
    for kind, count in counts.items():
        yield Fault(LEDGER_GAP, LEDGER_NAME, f"The ledger has lost {count:,} × {kind}: {store.ledger.path}")


def _key_faults(store: Store, path: Path) -> Iterator[Fault]:
    """Whether the key is there that stored secrets were marked with; to load it would make a new one."""
    versions = store.raw.rule_versions()
    if not path.exists():
        if versions:
            yield Fault(KEY, KEY_FILE, f"Redaction key is missing: {path}")
    elif path.stat().st_size != KEY_BYTES:
        yield Fault(KEY, KEY_FILE, f"Redaction key is damaged: {path}")
    else:
        own = key_id(path.read_bytes())
        count = sum(sessions for version, sessions in versions.items() if key_of(version) not in (None, own))
        if count:
            message = f"Secrets of {count:,} sessions were marked with a different key than this one: {path}"
            yield Fault(OTHER_KEY, KEY_FILE, message)


def _streams(store: Store) -> Look:
    """Every frame and every payload of every session, and packs that nobody has."""
    streams = store.raw.streams()
    for number, stream in enumerate(streams, start=1):
        yield number, len(streams), [Fault(STREAM, stream[1:3], message) for message in store.raw.faults(stream)]
    unknown = [Fault(LEFTOVER, str(path), f"Pack belongs to no session: {path}") for path in store.raw.unknown_packs()]
    yield len(streams), len(streams), unknown


def _rows(store: Store) -> Look:
    """Whether each session's row in memory.db tells of the events that are held."""
    sessions = {(row.agent, row.native_session_id): row for row in store.sessions.find()}
    streams = {(stream.agent, stream.native_id): stream for stream in store.raw.streams()}
    names = sessions.keys() | streams
    for number, name in enumerate(sorted(names), start=1):
        message = _row_fault(store, sessions.get(name), streams.get(name))
        yield number, len(names), [Fault(SESSION, name, f"{message}: {':'.join(name)}")] if message else []


def _row_fault(store: Store, session: Session | None, stream: HeldStream | None) -> str | None:
    if (session and session.evicted_at is not None) or (stream and stream.is_dirty):
        return None
    if stream is None:
        return "Session has a row but no events"
    held = store.steps.read([SessionKey(stream.agent, stream.native_id)])
    hashed = next((content_hash(part.steps) for part in held if part.steps), None)
    if session is None:
        return "Session has events but no row" if hashed else None
    return None if hashed == session.content_hash else "Session's events do not match its row"


def _sources(store: Store, settings: Settings) -> Look:
    """Every file that is still there, read again from its start and compared with what is held of it."""
    redactor = cache(Protection(store.folder, settings.redaction).redactor)
    names, sources = SourceNames(redactor), list[tuple[Source, KnownSource]]()
    unreadable: list[Fault] = []
    for agent, roots in settings.roots.items():
        known = store.sources.known(settings.host, agent)
        for source in (source for root in roots for source in _discovered(adapters()[agent], root)):
            before = None if source.failure else known.get(names.find(source.path, known))
            if source.failure:
                message = f"Not compared, the file {source.failure}: {source.path}"
                unreadable.append(Fault(SOURCE, str(source.path), message))
            elif before is not None and before.failure is None:
                sources.append((source, before))
    for number, (source, before) in enumerate(sources, start=1):
        yield number, len(sources), list(_source_faults(store, source, before, redactor()))
    yield len(sources), len(sources), unreadable


def _discovered(adapter: Adapter, root: Path) -> Iterator[Source]:
    """The files of an agent, and the folders that cannot be read."""
    try:
        yield from adapter.discover(resolve_root(root))
    except OSError as error:
        yield Source(adapter.agent, FOLDER, root, root, failure=unreadable_reason(error))


def _source_faults(store: Store, source: Source, known: KnownSource, redactor: Redactor) -> Iterator[Fault]:
    adapter = adapters()[source.agent]
    if source.is_rewritten or known.row.reader != adapter.version:
        return  # such a file is compared as a whole by every sweep; an older reading is replaced by the next one
    row = known.row._replace(offset=0, line=0, head="", tail="", state="{}")
    changed, evicted = 0, Evicted(store.evictions)
    try:
        for batch in read_batches(adapter, Task(source, row, has_cursor=False), redactor):
            if batch.source.offset > known.row.offset:
                break  # what was added since is for the next sweep
            changed += sum(_changed_events(store.raw, batch, stream) for stream in evicted.without(batch).streams)
    except (RecollectError, OSError):
        return  # the next sweep says so
    if changed:
        message = f"File changed since it was read, {changed:,} events differ: {source.path}"
        yield Fault(SOURCE, str(source.path), message)


def _changed_events(raw: RawCache, batch: Batch, stream: StreamBatch) -> int:
    """How many events of a session are held as something else than its file says."""
    if raw.rules(batch.source.agent, stream.native_id) != batch.redacted_with:
        return 0  # forgotten, or redacted by other rules
    rows = [EventRow._make(row) for row in stream.rows]
    held = raw.stored([row.event_uid for row in rows])
    missing, other = 0, list[EventRow]()
    for row in rows:
        stored = held.get(row.event_uid)
        if stored is None:
            is_dropped = row.lane in _STAND_INS or row.status == QUEUE_ONLY or row.flags & MAY_REPEAT
            missing += not is_dropped
        elif (row.flags | stored.flags) & (IS_PROVISIONAL | HIDES_LEARNED) or stored.payload_hash == row.payload_hash:
            continue
        elif not raw.stored([second_uid(row.event_uid, row.payload_hash)]):
            other.append(row)
    whole = raw.find(batch.source.agent, stream.native_id) if other else None
    if whole is None:
        return missing
    # Whichever rule found a secret in an event first, it is the same event.
    content = b"".join(part.payloads for frame in stream.frames if (part := unpack_entry(frame.entry)))
    payloads = {row.event_uid: without_rules(payload or b"") for row, payload in raw.iter_events(whole)}
    read = ((row.event_uid, content[row.payload_start : row.payload_start + row.payload_bytes]) for row in other)
    return missing + sum(payloads.get(uid, b"") != without_rules(new) for uid, new in read)
