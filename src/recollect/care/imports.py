"""Importing the sessions of an export, from this store or another.

The export is compared with its manifest, and every session in it checked, before anything is stored. What this store
holds already stays as it is, so importing twice adds nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import apsw
import orjson

from recollect.care.bundle import read_bundle, read_folder
from recollect.care.exported import INVALID, ExportedSession
from recollect.care.exports import FORM, SESSIONS
from recollect.clock import now_ms
from recollect.config import Settings
from recollect.errors import BadBackup, Busy, StoreUnwritable
from recollect.ingest.gate import exclude_of
from recollect.ingest.protection import Protection
from recollect.kinds import SessionKey
from recollect.progress import Progress
from recollect.store import (
    Batch,
    SessionFilter,
    Sources,
    Store,
    Tombstones,
    redact_rows,
    without_forgotten,
    work_folder,
)
from recollect.sweep import sweep

Sessions = dict[SessionKey, ExportedSession]


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was new. `different` sessions have grown here, or were redacted by other rules than those of the export.

    `forgotten` and `excluded` sessions were left out. `is_settled` is off if another sweep was running: the next one
    lists the new sessions.
    """

    path: str
    sessions: int
    sessions_new: int
    events: int
    events_new: int
    different: int
    forgotten: int
    excluded: int
    is_settled: bool


def import_sessions(store: Store, settings: Settings, path: Path, progress: Progress) -> ImportReport:
    """Import an export, a folder or a file; what is held already stays as it is."""
    try:
        if path.is_dir():
            read_folder(path, FORM)
            return _import(store, settings, path, path, progress)
        with work_folder(store.folder, "importing") as unpacked:
            read_bundle(path, unpacked, FORM, progress)
            return _import(store, settings, path, unpacked, progress)
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot import ({error.strerror}): {path}", "sessions imported so far are complete"
        ) from error


def _import(store: Store, settings: Settings, path: Path, folder: Path, progress: Progress) -> ImportReport:
    before = store.sessions.count()
    hint = "nothing was changed; export it again"
    try:
        lines = (folder / SESSIONS).read_bytes().splitlines()
        sessions = {session.key: session for session in (ExportedSession(orjson.loads(line), folder) for line in lines)}
        importer = _Importer(store, settings, sessions)
        hint = "sessions imported so far are complete; export it again"
        importer.put(progress)
    except INVALID as error:
        raise BadBackup(f"Invalid content: {path}", hint) from error
    is_settled = _settle(store, settings, progress)
    return ImportReport(
        path=str(path),
        sessions=len(sessions),
        sessions_new=store.sessions.count() - before,
        events=sum(session.events for session in sessions.values()),
        events_new=importer.events_new,
        different=_count_different(store, sessions) if is_settled else 0,
        forgotten=sum(importer.tombstones.hold(*key) for key in sessions),
        excluded=len(importer.excluded),
        is_settled=is_settled,
    )


class _Importer:
    """Stores the sessions of an export, but for those that the user forgot or excludes."""

    def __init__(self, store: Store, settings: Settings, sessions: Sessions) -> None:
        self._store = store
        self._sessions = sessions
        self._redactor = Protection(store.folder, settings.redaction).redactor()
        self.tombstones = Tombstones(store.tombstones, store.sources)
        self.excluded = _excluded(store, settings, sessions)
        self.events_new = 0

    def put(self, progress: Progress) -> None:
        for done, (key, session) in enumerate(self._sessions.items(), start=1):
            batches = list(session.batches(self._redactor))
            self.tombstones.inherit(key.agent, [info for batch in batches for info in batch.infos.items()])
            if key not in self.excluded and not self.tombstones.hold(*key):
                kept = [without_forgotten(batch, self.tombstones) for batch in batches]
                self.events_new += self._store.intake.put(kept, _save_source).events_new if kept else 0
                self._store.lasting.put(key, redact_rows(self._redactor, session.lasting))
            progress("importing", done, len(self._sessions))
        self._store.keep_copy(is_due=True)


def _save_source(connection: apsw.Connection, batch: Batch) -> int:
    return Sources.save_unread(connection, batch.source, [(*line, now_ms()) for line in batch.problems])


def _excluded(store: Store, settings: Settings, sessions: Sessions) -> set[SessionKey]:
    """The sessions that a sweep would leave out: of an excluded place, or part of a session of one."""
    exclude = exclude_of(store, settings.exclude)
    known = {SessionKey(exclusion.agent, exclusion.native_id) for exclusion in store.exclusions.all()}
    excluded = {
        key
        for key, session in sessions.items()
        if key in known or any(exclude.rule(*place) for place in session.places)
    }
    keys = {session.uid: key for key, session in sessions.items()}
    while more := {
        key
        for key, session in sessions.items()
        if key not in excluded and excluded & {keys.get(uid) for uid in session.above}
    }:
        excluded |= more
    return excluded


def _settle(store: Store, settings: Settings, progress: Progress) -> bool:
    """Make the rows of new sessions: a sweep without sources does just that."""
    try:
        sweep(store, settings._replace(roots={}), progress)
    except Busy:
        return False
    return True


def _count_different(store: Store, sessions: Sessions) -> int:
    hashes = {(row.agent, row.native_session_id): row.content_hash for row in store.sessions.find(SessionFilter())}
    return sum(key in hashes and hashes[key] != session.content_hash for key, session in sessions.items())
