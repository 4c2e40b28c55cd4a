"""Sessions in files of their own, and back: a line of JSON for what lasts of each, and a pack for its events.

An export is a folder, or the same folder in one `.tar.zst` file; docs/backup.md describes its files. Imported, here or
elsewhere, it gives the same content hashes again.

Before an import stores anything, the export is compared with its manifest, and every session in it checked. What this
store holds already stays as it is, so importing twice adds nothing. Sessions are redacted by this store's rules.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import msgspec
import orjson

from recollect.agentkit.protocol import SessionInfo
from recollect.care.backup import (
    EXPORT,
    SESSIONS_NAME,
    opened_bundle,
    private_file,
    read_bundle,
    read_folder,
    unfinished,
    write_manifest,
)
from recollect.config import Settings
from recollect.digest import parse_digest
from recollect.ingest import Protection, exclude_of, protected_json, protected_line, protected_names, without_secrets
from recollect.model.errors import BadBackup, Busy, StoreUnwritable
from recollect.model.files import remove
from recollect.model.kinds import SessionKey
from recollect.model.schema import Session, to_json
from recollect.model.text import Progress
from recollect.redact import Redactor
from recollect.store import (
    HIDES_LEARNED,
    Batch,
    Description,
    EventRow,
    Facts,
    HeldStream,
    ProblemRow,
    SourceRow,
    Sources,
    Store,
    StreamBatch,
    Tombstones,
    describe,
    hash_payload,
    hash_source,
    iter_frames,
    make_frames,
    origin_of,
    redact_rows,
    without_forgotten,
    work_folder,
)
from recollect.sweep import sweep

FILE_SUFFIX = ".tar.zst"


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written. `damaged` events could not be read as they were stored, and were left out.

    `is_noted` is off for a read-only store, which cannot remember the copy.
    """

    path: str
    sessions: int
    events: int
    bytes: int
    damaged: int
    is_noted: bool


def export_sessions(store: Store, path: Path, sessions: Sequence[Session], progress: Progress) -> ExportReport:
    """Write sessions into a new folder, or into one file if the name ends in `.tar.zst`."""
    is_file = path.name.endswith(FILE_SUFFIX)
    with unfinished(store, path) as beside, store.copies.noting("export", path):
        folder = beside.with_name(beside.name + ".d") if is_file else beside
        try:
            folder.mkdir(mode=0o700)
            writer = _Writer(store, folder)
            writer.write(sessions, progress)
            counts = {"sessions": len(sessions), "events": writer.events}
            if is_file:
                with opened_bundle(beside, EXPORT) as bundle:
                    for file in sorted(path for path in folder.rglob("*") if path.is_file()):
                        bundle.add_file(file.relative_to(folder).as_posix(), file)
                    bundle.finish(counts=counts)
            else:
                write_manifest(folder, EXPORT, counts=counts)
        finally:
            if is_file:
                remove(folder)
    size = sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
    return ExportReport(str(path), len(sessions), writer.events, size, writer.damaged, not store.read_only)


class _Writer:
    """Writes sessions into a folder and counts their events."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._sources = store.raw.sources()
        self._problems = store.raw.problems()
        self.events = self.damaged = 0

    def write(self, sessions: Sequence[Session], progress: Progress) -> None:
        with private_file(self._folder / SESSIONS_NAME) as file:
            for number, session in enumerate(sessions, start=1):
                file.write(orjson.dumps(self._line(session)) + b"\n")
                progress("exporting", number, len(sessions))

    def _line(self, session: Session) -> dict[str, Any]:
        key = SessionKey(session.agent, session.native_session_id)
        stream = self._store.raw.find(*key)
        pack = self._write_pack(stream) if stream else None
        return {
            "session": to_json(session),
            "pack": pack,
            "sources": [self._source(source) for source in self._store.raw.all_sources_of(stream)] if stream else [],
            "lasting": list(self._store.lasting.iter_rows(key, with_derived=pack is None)),
        }

    def _write_pack(self, stream: HeldStream) -> str | None:
        """A session's events, tokens and money in frames, as a store keeps them; None if it has no events."""
        name = f"packs/{sha256(stream.uid.encode()).hexdigest()[:32]}.pack"
        events = 0
        with private_file(self._folder / name) as file:
            for placed, lost, frames in self._store.rewrites.iter_framed(stream):
                events += len(placed)
                self.damaged += len(lost)
                file.writelines(frame.entry for frame in frames)
        self.events += events
        if events:
            return name
        (self._folder / name).unlink()
        return None

    def _source(self, number: int) -> dict[str, Any]:
        row, problems = self._sources[number], self._problems.get(number, ())
        return {
            "host": row.host,
            "path": row.path,
            "kind": row.kind,
            "bytes": row.size,
            "bad_lines": [
                {"line": line.line, "offset": line.offset, "reason": line.reason, "raw": b64encode(line.raw).decode()}
                for line in problems
            ],
        }


INVALID = (AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, apsw.ConstraintError)

_UID_BYTES = 16

Place = tuple[str | None, str | None, str | None]  # where a session worked: folder, git root, remote


class ExportedSession:
    """One session of an export: its line, and its pack in the export's folder. Making one reads and checks both."""

    def __init__(self, line: dict[str, Any], folder: Path) -> None:
        session = line["session"]
        self.key = SessionKey(session["agent"], session["native_session_id"])
        self.uid: str = session["session_uid"]
        self.content_hash: str | None = session["content_hash"]
        self.above = {session["parent_session_uid"], session["root_session_uid"]}
        self.lasting = [(str(table), dict(values)) for table, values in line["lasting"]]
        pack: str | None = line["pack"]
        if pack is not None and not (EXPORT.is_part(pack) and (folder / pack).is_file()):
            raise ValueError(f"no such pack: {pack}")
        self._pack = folder / pack if pack else None
        self._sources = {hash_source(source["host"], source["path"]): source for source in line["sources"]}
        for source in line["sources"]:
            _source_row(self.key, source)
            _bad_lines(source)
        self.events = 0
        self.places: list[Place] = []
        self._check()

    def _check(self) -> None:
        if not self.key.agent.isprintable() or not isinstance(self.key.native_id, str):
            raise ValueError(self.key)
        for table, values in self.lasting:
            if table == "sessions":
                self.places.append((values["cwd"], values["git_root"], values["git_remote"]))
            elif table == "digests" and values["digest"] is not None:
                parse_digest(values["digest"].encode())
        for (_, rows, facts), _ in self._frames():
            self.events += len(rows)
            if facts.info:
                first, last = _parse_info(facts.info)
                self.places.append((first.cwd, last.git_root, last.git_remote))

    def _frames(self) -> Iterator[tuple[Description, list[bytes]]]:
        """Every frame with its payloads. The frames must cover the pack: a damaged one is not left out."""
        end = 0
        for frame, content in iter_frames(self._pack) if self._pack else ():
            origin, rows, facts = describe(content)
            if frame.offset != end or origin[:2] != self.key:
                raise ValueError(f"not a frame of {self.uid}, at byte {end}")
            yield (origin, rows, facts), list(_payloads(rows, content.payloads))
            end += len(frame.entry)
        if self._pack and end != self._pack.stat().st_size:
            raise ValueError(f"damaged at byte {end}: {self._pack}")

    def batches(self, redactor: Redactor) -> Iterator[Batch]:
        """The events of the session and what was read with them, a batch for each frame and each other source."""
        sources = dict(self._sources)
        for (origin, rows, facts), payloads in self._frames():
            batch = self._batch(redactor, self._sources.get(origin.source_hash))
            if sources.pop(origin.source_hash, None) is None:
                batch.problems = []  # they came with an earlier frame
            batch.streams.append(self._part(redactor, batch, rows, facts, payloads))
            yield batch
        for source in sources.values() if self._pack else ():
            batch = self._batch(redactor, source)
            batch.streams.append(StreamBatch(self.key.native_id, has_events=True))
            yield batch

    def _batch(self, redactor: Redactor, source: dict[str, Any] | None) -> Batch:
        unknown = {"host": "unknown", "path": self.key.native_id, "kind": "unknown", "bytes": 0, "bad_lines": []}
        row = _source_row(self.key, source or unknown)
        host, path, kind = map(redactor.functional, (row.host, row.path, row.kind))
        problems = [
            line._replace(reason=redactor.text(line.reason), raw=protected_line(redactor, line.raw))
            for line in _bad_lines(source or unknown)
        ]
        row = row._replace(host=host, path=path, kind=kind)
        return Batch(row, problems=problems, redacted_with=redactor.version, is_adopted=True)

    def _part(
        self, redactor: Redactor, batch: Batch, events: list[EventRow], told: Facts, contents: list[bytes]
    ) -> StreamBatch:
        """What a frame holds, without secrets, whoever let them pass before."""
        rows, payloads = _redact_events(redactor, events, contents)
        info, usage, totals = told
        facts = Facts(
            protected_json(redactor, [info.encode()])[0].decode() if info else None,
            [protected_names(redactor, row) for row in usage],
            [protected_names(redactor, row) for row in totals],
        )
        frames = make_frames(origin_of(batch, self.key.native_id), rows, payloads, facts)
        return StreamBatch(self.key.native_id, list(rows), frames, facts=facts, has_events=True)


def _source_row(key: SessionKey, source: dict[str, Any]) -> SourceRow:
    host, path, kind = source["host"], source["path"], source["kind"]
    if not all(isinstance(text, str) for text in (host, path, kind)):
        raise TypeError(source)
    return SourceRow(host, key.agent, path, kind, int(source["bytes"]), 0, 0, 0, 0, 0, 0, "", "", "{}")


def _bad_lines(source: dict[str, Any]) -> list[ProblemRow]:
    return [
        msgspec.convert([line[name] for name in ProblemRow._fields], ProblemRow)  # bytes are base64 in JSON
        for line in source["bad_lines"]
    ]


def _parse_info(info: str) -> tuple[SessionInfo, SessionInfo]:
    """What a source said of the session first, and what it said last."""
    parts = orjson.loads(info)
    if not all(isinstance(text, str) for name, text in parts["last"].items() if name.startswith("title_")):
        raise TypeError(info)
    first, last = (msgspec.convert({"native_session_id": ""} | parts[name], SessionInfo) for name in ("first", "last"))
    return first, last


def _payloads(rows: Sequence[EventRow], content: memoryview) -> Iterator[bytes]:
    for row in rows:
        payload = bytes(content[row.payload_start : row.payload_start + row.payload_bytes])
        if {len(row.event_uid), len(row.parent_uid or row.event_uid)} != {_UID_BYTES}:
            raise ValueError(f"not the id of an event: {row.event_uid!r}")
        if hash_payload(payload) != row.payload_hash or not isinstance(orjson.loads(payload), dict):
            raise ValueError(f"not the content of the event: {row.event_uid.hex()}")
        if row.metadata is not None and not isinstance(orjson.loads(row.metadata), dict):
            raise ValueError(f"not the metadata of an event: {row.metadata}")
        yield payload


def _redact_events(
    redactor: Redactor, events: Sequence[EventRow], contents: Sequence[bytes]
) -> tuple[list[EventRow], list[bytes]]:
    rows, payloads = list(events), list(contents)
    for number, payload, secrets, is_learned in redactor.changes(contents):
        payloads[number] = payload
        row = EventRow._make(without_secrets(redactor, rows[number], secrets))
        flags = row.flags | (HIDES_LEARNED if is_learned else 0)
        rows[number] = row._replace(flags=flags, payload_bytes=len(payload), payload_hash=hash_payload(payload))
    for number in redactor.suspects(["\n".join(text for text in row if isinstance(text, str)) for row in rows]):
        row = rows[number]
        metadata = protected_json(redactor, [row.metadata.encode()])[0].decode() if row.metadata else None
        rows[number] = EventRow._make(protected_names(redactor, row))._replace(metadata=metadata)
    start = 0
    for number, row in enumerate(rows):
        rows[number] = row._replace(seq=number, payload_start=start)
        start += row.payload_bytes
    return rows, payloads


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
            read_folder(path, EXPORT)
            return _import(store, settings, path, path, progress)
        with work_folder(store.folder, "importing") as unpacked:
            read_bundle(path, unpacked, EXPORT, progress)
            return _import(store, settings, path, unpacked, progress)
    except OSError as error:
        raise StoreUnwritable(
            f"Cannot import ({error.strerror}): {path}", "sessions imported so far are complete"
        ) from error


def _import(store: Store, settings: Settings, path: Path, folder: Path, progress: Progress) -> ImportReport:
    before, events_new = store.sessions.count(), 0
    hint = "nothing was changed; export it again"
    try:
        lines = (folder / SESSIONS_NAME).read_bytes().splitlines()
        sessions = {session.key: session for session in (ExportedSession(orjson.loads(line), folder) for line in lines)}
        redactor = Protection(store.folder, settings.redaction).redactor()
        tombstones = Tombstones(store.tombstones, store.sources)
        excluded = _excluded(store, settings, sessions)
        hint = "sessions imported so far are complete; export it again"
        for done, (key, session) in enumerate(sessions.items(), start=1):
            events_new += _put(store, session, redactor, tombstones, is_excluded=key in excluded)
            progress("importing", done, len(sessions))
        store.keep_copy(is_due=True)
    except INVALID as error:
        raise BadBackup(f"Invalid content: {path}", hint) from error
    try:
        sweep(store, settings._replace(roots={}), progress)  # without sources it just makes the rows of new sessions
        is_settled = True
    except Busy:
        is_settled = False
    rows = store.sessions.find() if is_settled else ()
    hashes = {key: session.content_hash for key, session in sessions.items()}
    return ImportReport(
        path=str(path),
        sessions=len(sessions),
        sessions_new=store.sessions.count() - before,
        events=sum(session.events for session in sessions.values()),
        events_new=events_new,
        different=sum(
            row.content_hash != hashes.get(SessionKey(row.agent, row.native_session_id), row.content_hash)
            for row in rows
        ),
        forgotten=sum(tombstones.hold(*key) for key in sessions),
        excluded=len(excluded),
        is_settled=is_settled,
    )


def _put(
    store: Store, session: ExportedSession, redactor: Redactor, tombstones: Tombstones, *, is_excluded: bool
) -> int:
    """Store a session, unless the user forgot or excludes it; returns how many events were new."""
    key, batches = session.key, list(session.batches(redactor))
    tombstones.inherit(key.agent, [info for batch in batches for info in batch.infos.items()])
    if is_excluded or tombstones.hold(*key):
        return 0
    kept = [without_forgotten(batch, tombstones) for batch in batches]
    events_new = store.intake.put(kept, Sources.save_unread).events_new if kept else 0
    store.lasting.put(key, redact_rows(redactor, session.lasting))
    return events_new


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
