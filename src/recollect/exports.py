"""Sessions as plain files: JSON lines for what happened, packs for the full content.

An export is a folder, or the same folder in one `.tar.zst` file. Reading it needs no Recollect: docs/backup.md and the
JSON schemas say what is in each line. Imported, here or elsewhere, it gives the same content hashes again.
"""

import os
from base64 import b64encode
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from recollect.bundle import MANIFEST, BundleWriter, Form, Manifest, compressed, private_file, unfinished
from recollect.clock import rfc3339
from recollect.progress import Progress
from recollect.schema import Session, as_json
from recollect.store import Store
from recollect.store.adopting import AdoptedSource, adopted_sources
from recollect.store.batch import EventRow
from recollect.store.flags import IS_ERROR, IS_PROVISIONAL, TOLD_RETRY
from recollect.store.frames import HeldStream
from recollect.store.leftovers import remove
from recollect.store.packs import compress

FILE_SUFFIX = ".tar.zst"
SESSIONS = "sessions.jsonl"
EVENTS = "events.jsonl"

_PIECE_BYTES = 4 * 1024 * 1024


def is_part(name: str) -> bool:
    """Whether a file of this name belongs into an export."""
    parts = name.split("/")
    is_pack = len(parts) == 2 and parts[0] == "packs" and name.endswith(".pack")
    return is_pack or name in (SESSIONS, EVENTS)


FORM = Form("recollect-export", 1, is_part)


@dataclass(frozen=True, slots=True)
class ExportReport:
    """What was written. `damaged` events have no content that could be trusted, and were left out."""

    path: str
    sessions: int
    events: int
    bytes: int
    damaged: int
    is_noted: bool


def export_sessions(store: Store, path: Path, sessions: Sequence[Session], progress: Progress) -> ExportReport:
    """Write sessions into a new folder, or into a new file if its name ends so."""
    with unfinished(store, path) as beside, store.copies.noting("export", path):
        folder = beside.with_name(beside.name + ".d") if path.name.endswith(FILE_SUFFIX) else beside
        try:
            folder.mkdir(mode=0o700)
            with closing(_ExportWriter(store, folder)) as writer:
                for number, session in enumerate(sessions, start=1):
                    writer.add(session)
                    progress("exporting", number, len(sessions))
                writer.finish()
            if folder != beside:
                _bundle(folder, beside)
        finally:
            if folder != beside:
                remove(folder)
    size = sum(file.stat().st_size for file in (path.rglob("*") if path.is_dir() else [path]) if file.is_file())
    return ExportReport(str(path), len(sessions), writer.events, size, writer.damaged, not store.read_only)


def _bundle(folder: Path, target: Path) -> None:
    with compressed(target) as stream:
        bundle = BundleWriter(stream, Manifest(FORM.name, FORM.version))
        told = orjson.loads((folder / MANIFEST).read_bytes())
        for name in [file["name"] for file in told["files"]]:
            bundle.add_file(name, folder / name)
        bundle.finish(counts=told["counts"])


class _ExportWriter:
    """An export that is being written, session by session."""

    def __init__(self, store: Store, folder: Path) -> None:
        self._store = store
        self._folder = folder
        self._sources = store.holdings.sources()
        self._problems = store.holdings.problems()
        self._manifest = Manifest(FORM.name, FORM.version)
        self._files = {name: _HashedFile(folder / name) for name in (SESSIONS, EVENTS)}
        self.sessions = self.events = self.damaged = 0

    def add(self, session: Session) -> None:
        stream = self._store.holdings.find(*_name(session))
        told: dict[str, Any] = {"session": as_json(session)}
        told["row"] = self._store.sessions.raw(*_name(session))
        told |= (
            self._content(session, stream) if stream else {"pack": None, "sources": [], "usage": [], "cost_totals": []}
        )
        is_distilled_only = told["pack"] is None  # else the digest is made again from the events
        told["digest"] = self._store.digests.read_back(*_name(session)) if is_distilled_only else None
        self._files[SESSIONS].put_line(told)
        self.sessions += 1

    def _content(self, session: Session, stream: HeldStream) -> dict[str, Any]:
        holdings = self._store.holdings
        sources = adopted_sources(holdings, stream, self._sources, self._problems)
        return {
            "pack": self._write_events(session, stream),
            "sources": [_source_json(source) for source in sources],
            "usage": [row._asdict() for row in holdings.usage(stream)],
            "cost_totals": [row._asdict() for row in holdings.cost_totals(stream)],
        }

    def _write_events(self, session: Session, stream: HeldStream) -> str | None:
        """Every event as a line, its payload in the session's pack; returns the pack's name."""
        name = f"packs/{sha256(session.session_uid.encode()).hexdigest()[:32]}.pack"
        pack = _Pack(self._folder / name)
        frames = self._store.holdings.frames(stream)
        try:
            for row, payload in self._store.holdings.iter_events(stream, frames):
                if payload is None:
                    self.damaged += 1
                    continue
                self._files[EVENTS].put_line(_event_json(session, row._replace(payload_start=pack.add(payload))))
                self.events += 1
        finally:
            frames.close()
            size, digest = pack.finish()
        if size:
            self._manifest.add(name, size, digest)
        return name if size else None

    def finish(self) -> None:
        for name, file in self._files.items():
            self._manifest.add(name, *file.finish())
        counts = {"sessions": self.sessions, "events": self.events}
        manifest = _HashedFile(self._folder / MANIFEST)
        manifest.put(orjson.dumps(self._manifest.finished(counts=counts), option=orjson.OPT_INDENT_2))
        manifest.finish()

    def close(self) -> None:
        for file in self._files.values():
            file.close()


def _name(session: Session) -> tuple[str, str]:
    return session.agent, session.native_session_id


class _HashedFile:
    """A new file that knows its size and hash."""

    def __init__(self, path: Path) -> None:
        self._file = private_file(path)
        self._digest = sha256()
        self._size = 0

    def put(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)
        self._size += len(content)

    def put_line(self, value: Any) -> None:
        self.put(orjson.dumps(value) + b"\n")

    def finish(self) -> tuple[int, str]:
        """Have it on the disk; returns its size and hash."""
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        return self._size, self._digest.hexdigest()

    def close(self) -> None:
        self._file.close()


class _Pack:
    """A session's payloads one after another, compressed in frames; the file is made with the first of them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: _HashedFile | None = None
        self._waiting: list[bytes] = []
        self._waiting_bytes = self._start = 0

    def add(self, payload: bytes) -> int:
        """Where in the unpacked stream the payload begins."""
        start = self._start + self._waiting_bytes
        self._waiting.append(payload)
        self._waiting_bytes += len(payload)
        if self._waiting_bytes >= _PIECE_BYTES:
            self._flush()
        return start

    def _flush(self) -> None:
        self._file = self._file or _HashedFile(self._path)
        for frame in compress(b"".join(self._waiting)):
            self._file.put(frame.content)
        self._start += self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0

    def finish(self) -> tuple[int, str]:
        if self._waiting:
            self._flush()
        return self._file.finish() if self._file else (0, "")


# Fields that have one name in the store and in an export
SAME_NAMES = (
    "lane",
    "position",
    "native_id",
    "ts_ms",
    "kind",
    "role",
    "tool",
    "call_id",
    "status",
    "summary",
    "model",
    "provider",
    "content_type",
    "input_tokens",
    "output_tokens",
    "copy_key",
    "reader",
)


def _event_json(session: Session, row: EventRow) -> dict[str, Any]:
    return {
        "session_uid": session.session_uid,
        "agent": session.agent,
        "native_session_id": session.native_session_id,
        "event_uid": row.event_uid.hex(),
        "parent_event_uid": row.parent_uid.hex() if row.parent_uid else None,
        "ts": rfc3339(row.ts_ms),
        **{name: getattr(row, name) for name in SAME_NAMES},
        "is_error": bool(row.flags & IS_ERROR),
        "is_retry": bool(row.flags & TOLD_RETRY),
        "is_provisional": bool(row.flags & IS_PROVISIONAL),
        "retry_key": row.retry_key.hex() if row.retry_key else None,
        "payload_ref": [row.payload_start, row.payload_bytes],
        "payload_hash": row.payload_hash.hex(),
        "metadata": orjson.loads(row.metadata) if row.metadata else {},
    }


def _source_json(source: AdoptedSource) -> dict[str, Any]:
    row = source.row
    return {
        "host": row.host,
        "path": row.path,
        "kind": row.kind,
        "bytes": row.size,
        "told": orjson.loads(source.info) if source.info else None,
        "bad_lines": [
            {"line": line, "offset": offset, "reason": reason, "raw": b64encode(raw).decode(), "found_ms": found_ms}
            for line, offset, reason, raw, found_ms in source.problems
        ],
    }
