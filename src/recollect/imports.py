"""Taking over the sessions of an export, from this store or another.

The export is compared with its list of files before anything is stored. Each session is taken over whole or not at all;
what is held already stays as it is, so importing twice adds nothing.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import file_digest
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

from recollect.admission import exclude_of
from recollect.bundle import MANIFEST, Manifest, compared, read_bundle
from recollect.config import Settings
from recollect.errors import BadBackup, Busy, StoreUnwritable
from recollect.exclusion import Exclude
from recollect.export_lines import UNREADABLE, event_row, iter_lines, key_of, make_adoption
from recollect.exports import EVENTS, FORM, SESSIONS, is_part
from recollect.foreign import protected_adoption
from recollect.progress import Progress
from recollect.protection import Protection, protected_json
from recollect.redact.redactor import Redactor
from recollect.store import Store
from recollect.store.adopting import adopt
from recollect.store.locks import work_folder
from recollect.store.sessions import SessionFilter
from recollect.store.tombstones import Name, Tombstones
from recollect.sweep import sweep

Told = dict[Name, dict[str, Any]]  # the lines of sessions, by agent and native id


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was new. `different` sessions have grown here, or were redacted by other rules than those of the export.

    `forgotten` ones stay so, and `excluded` ones are of places that the user keeps out. `is_settled` is off while
    another sweep is running, whose end makes their rows.
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
    """Take over the sessions of an export, a folder or a file; what is held already stays as it is."""
    try:
        if path.is_dir():
            _read_folder(path)
            return _import(store, settings, path, path, progress)
        with work_folder(store.folder, "importing") as unpacked:
            read_bundle(path, unpacked, FORM, progress)
            return _import(store, settings, path, unpacked, progress)
    except OSError as error:
        raise StoreUnwritable(f"Cannot import ({error.strerror}): {path}", "whole sessions were taken over") from error


def _read_folder(folder: Path) -> None:
    """Compare an export that is a folder with its list."""
    try:
        manifest = orjson.loads((folder / MANIFEST).read_bytes())
    except OSError:
        manifest = None
    except orjson.JSONDecodeError:
        manifest = {}
    files = manifest.get("files") if isinstance(manifest, dict) else None
    names = [told.get("name") for told in files if isinstance(told, dict)] if isinstance(files, list) else []
    found = Manifest("", 0)
    for name in names:
        if isinstance(name, str) and is_part(name) and (folder / name).is_file():
            with (folder / name).open("rb") as file:
                digest = file_digest(file, "sha256")
                found.add(name, file.tell(), digest.hexdigest())
    compared(folder, manifest, FORM, found.files)


def _import(store: Store, settings: Settings, path: Path, folder: Path, progress: Progress) -> ImportReport:
    before = store.sessions.count()
    taking = _Taking(store, settings)
    try:
        sessions = {key_of(told["session"]): told for told in iter_lines(folder / SESSIONS)}
        taking.take(sessions, folder, progress)
    except UNREADABLE as error:
        raise BadBackup(
            f"A line of this export cannot be understood: {path}",
            "export it again; whole sessions were taken over",
        ) from error
    is_settled = _settle(store, settings, progress)
    return ImportReport(
        path=str(path),
        sessions=len(sessions),
        sessions_new=store.sessions.count() - before,
        events=taking.events,
        events_new=taking.events_new,
        different=_different(store, sessions) if is_settled else 0,
        forgotten=sum(taking.tombstones.hold(*key) for key in sessions),
        excluded=len(taking.excluded),
        is_settled=is_settled,
    )


class _Taking:
    """Takes the sessions of an export over, but for those that the user forgot or keeps out."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self._store = store
        self._redactor = Protection(store.folder, settings.redaction).redactor()
        self._exclude = exclude_of(store, settings.exclude)
        self.tombstones = Tombstones(store.tombstones, store.sources)
        self.excluded: set[Name] = set()
        self.events = self.events_new = 0

    def take(self, sessions: Told, folder: Path, progress: Progress) -> None:
        self.excluded = _excluded(self._store, self._exclude, sessions)
        for done, (key, lines) in enumerate(groupby(iter_lines(folder / EVENTS), key=key_of), start=1):
            told = sessions[key]
            rows = [event_row(line) for line in lines]
            self.events += len(rows)
            if key not in self.excluded:
                adoption = protected_adoption(self._redactor, make_adoption(told, rows, folder))
                self.events_new += adopt(self._store, adoption, self.tombstones).events_new
            progress("importing", done, len(sessions))
        _put_without_events(
            self._store,
            self._redactor,
            self.tombstones,
            {key: told for key, told in sessions.items() if key not in self.excluded},
        )


def _excluded(store: Store, exclude: Exclude, sessions: Told) -> set[Name]:
    """Those that a sweep would leave out: of a place that is kept out, or part of a session of one."""
    found = {(left_out.agent, left_out.native_id) for left_out in store.exclusions.all()} & sessions.keys()
    found |= {key for key, told in sessions.items() if any(exclude.rule(*place) for place in _places(told))}
    uids = {told["session"]["session_uid"]: key for key, told in sessions.items()}

    def is_part_of_one(key: Name) -> bool:
        session = sessions[key]["session"]
        above = {uids.get(session[name]) for name in ("parent_session_uid", "root_session_uid")}
        return bool(above & found)

    while more := {key for key in sessions.keys() - found if is_part_of_one(key)}:
        found |= more
    return found


def _places(told: dict[str, Any]) -> Iterator[tuple[str | None, str | None, str | None]]:
    """Where a session worked, as its row and each of its sources tell it: folder, git root, remote."""
    row = told["row"] or {}
    yield row.get("cwd"), row.get("git_root"), row.get("git_remote")
    for info in (source["told"] for source in told["sources"] if source["told"]):
        yield info["first"].get("cwd"), info["last"].get("git_root"), info["last"].get("git_remote")


def _put_without_events(store: Store, redactor: Redactor, tombstones: Tombstones, sessions: Told) -> None:
    """Sessions whose events were dropped before the export have only their row and their digest."""
    known = {(session.agent, session.native_session_id) for session in store.sessions.find(SessionFilter())}
    bare = {key: told for key, told in sessions.items() if told["pack"] is None and key not in known}
    wanted = {key: told for key, told in bare.items() if not tombstones.hold(*key)}
    if not wanted:
        return
    store.sessions.put_raw([_redacted(redactor, told["row"]) for told in wanted.values()])
    digests = {key: told["digest"] for key, told in wanted.items() if told.get("digest")}
    store.digests.put_back({key: _redacted(redactor, digest) for key, digest in digests.items()})


def _redacted(redactor: Redactor, told: dict[str, Any]) -> dict[str, Any]:
    """A row as it may be stored: an export may come from a store with fewer rules."""
    # A digest is JSON inside of a field, and is looked through as such.
    inner = {"digest": orjson.loads(told["digest"])} if told.get("digest") else {}
    found: dict[str, Any] = orjson.loads(protected_json(redactor, [orjson.dumps(told | inner)])[0])
    return found | {name: orjson.dumps(found[name]).decode() for name in inner}


def _settle(store: Store, settings: Settings, progress: Progress) -> bool:
    """Make the rows of what is new: a sweep that has nothing to read does just that."""
    try:
        sweep(store, dataclasses.replace(settings, roots={}), progress)
    except Busy:
        return False
    return True


def _different(store: Store, sessions: Told) -> int:
    here = {(found.agent, found.native_session_id): found for found in store.sessions.find(SessionFilter())}
    return sum(
        key in here and here[key].content_hash != told["session"]["content_hash"] for key, told in sessions.items()
    )
