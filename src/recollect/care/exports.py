"""Sessions in files of their own: a line of JSON for what lasts of each, and a pack for its events.

An export is a folder, or the same folder in one `.tar.zst` file; docs/backup.md describes its files. Imported, here or
elsewhere, it gives the same content hashes again.
"""

import os
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from recollect.care.bundle import BundleWriter, Form, compressed, private_file, unfinished, write_manifest
from recollect.kinds import SessionKey
from recollect.schema import Session, to_json
from recollect.store import HeldStream, Store, remove
from recollect.text import Progress

FILE_SUFFIX = ".tar.zst"
SESSIONS = "sessions.jsonl"


def is_part(name: str) -> bool:
    """Whether a file of this name belongs in an export."""
    parts = name.split("/")
    is_pack = len(parts) == 2 and parts[0] == "packs" and name.endswith(".pack")
    return is_pack or name == SESSIONS


FORM = Form("recollect-export", 2, is_part)


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
                _bundle(folder, beside, counts)
            else:
                write_manifest(folder, FORM, counts=counts)
        finally:
            if is_file:
                remove(folder)
    size = sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
    return ExportReport(str(path), len(sessions), writer.events, size, writer.damaged, not store.read_only)


def _bundle(folder: Path, target: Path, counts: dict[str, int]) -> None:
    with compressed(target) as stream:
        bundle = BundleWriter(stream, FORM)
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            bundle.add_file(file.relative_to(folder).as_posix(), file)
        bundle.finish(counts=counts)


class _Writer:
    """Writes sessions into a folder and counts their events."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._sources = store.raw.sources()
        self._problems = store.raw.problems()
        self.events = self.damaged = 0

    def write(self, sessions: Sequence[Session], progress: Progress) -> None:
        with private_file(self._folder / SESSIONS) as file:
            for number, session in enumerate(sessions, start=1):
                file.write(orjson.dumps(self._line(session)) + b"\n")
                progress("exporting", number, len(sessions))
            file.flush()
            os.fsync(file.fileno())

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
            for framed in self._store.rewrites.iter_framed(stream):
                events += len(framed.rows)
                self.damaged += len(framed.lost)
                file.writelines(frame.entry for frame in framed.frames)
            file.flush()
            os.fsync(file.fileno())
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
