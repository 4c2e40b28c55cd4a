"""Taking over the sessions of an export, from this store or another.

The export is compared with its list of files before anything is stored. Each session is taken over whole or not at all;
what is held already stays as it is, so importing twice adds nothing.
"""

import dataclasses
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson
import zstandard

from recollect.bundle import MANIFEST, Manifest, compared, read_bundle, require_form
from recollect.config import Settings
from recollect.errors import BadBackup, Busy, StoreUnwritable
from recollect.exports import EVENTS, FORM, SAME_NAMES, SESSIONS, VERSION
from recollect.foreign import protected_adoption
from recollect.progress import Progress
from recollect.protection import Protection, protected_json
from recollect.redact.redactor import Redactor
from recollect.store import Store
from recollect.store.adopting import AdoptedSource, Adoption, adopt
from recollect.store.batch import CostTotalRow, EventRow, SourceRow, UsageRow
from recollect.store.flags import IS_ERROR, IS_PROVISIONAL, IS_RETRY, TOLD_RETRY
from recollect.store.locks import work_folder
from recollect.store.sessions import SessionFilter
from recollect.store.tombstones import Tombstones
from recollect.sweep import sweep

_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ImportReport:
    """What was new. `different` sessions have grown here, or were redacted by other rules than those of the export;
    `forgotten` ones stay so. `is_settled` is off while another sweep is running, whose end makes their rows."""

    path: str
    sessions: int
    sessions_new: int
    events: int
    events_new: int
    different: int
    forgotten: int
    is_settled: bool


def import_sessions(store: Store, settings: Settings, path: Path, progress: Progress) -> ImportReport:
    """Take over the sessions of an export, a folder or a file; what is held already stays as it is."""
    try:
        if path.is_dir():
            require_form(path, _read_folder(path), FORM, VERSION)
            return _import(store, settings, path, path, progress)
        with work_folder(store.folder, "importing") as unpacked:
            require_form(path, read_bundle(path, unpacked, is_part, progress), FORM, VERSION)
            return _import(store, settings, path, unpacked, progress)
    except (KeyError, TypeError, ValueError, zstandard.ZstdError) as error:
        raise BadBackup(f"An export that cannot be understood ({error!r}): {path}", "export it again") from error
    except OSError as error:
        raise StoreUnwritable(f"Cannot import ({error.strerror}): {path}", "whole sessions were taken over") from error


def is_part(name: str) -> bool:
    """Whether a file of this name belongs into an export."""
    parts = name.split("/")
    is_pack = len(parts) == 2 and parts[0] == "packs" and name.endswith(".pack")
    return is_pack or name in (SESSIONS, EVENTS)


def _read_folder(folder: Path) -> dict[str, Any]:
    try:
        manifest = orjson.loads((folder / MANIFEST).read_bytes())
    except (OSError, orjson.JSONDecodeError):
        manifest = None
    found = Manifest("", 0)
    files = manifest.get("files", []) if isinstance(manifest, dict) else []
    for name in [told["name"] for told in files if is_part(told["name"]) and (folder / told["name"]).is_file()]:
        with (folder / name).open("rb") as file:
            digest, size = sha256(), 0
            while block := file.read(_BLOCK_BYTES):
                digest.update(block)
                size += len(block)
        found.add(name, size, digest.hexdigest())
    return compared(folder, manifest, found.files)


def _import(store: Store, settings: Settings, path: Path, folder: Path, progress: Progress) -> ImportReport:
    before = store.sessions.count()
    sessions = {_key(told["session"]): told for told in _lines(folder / SESSIONS)}
    events = new = 0
    redactor = Protection(store.folder, settings.redaction).redactor()
    tombstones = Tombstones(store.tombstones, store.sources)
    for done, (key, lines) in enumerate(groupby(_lines(folder / EVENTS), key=_key), start=1):
        told = sessions[key]
        rows = [_event_row(line) for line in lines]
        events += len(rows)
        adoption = protected_adoption(redactor, _adoption(told, rows, folder))
        new += adopt(store, adoption, tombstones).events_new
        progress("importing", done, len(sessions))
    _put_without_events(store, redactor, tombstones, sessions)
    is_settled = _settle(store, settings, progress)
    return ImportReport(
        path=str(path),
        sessions=len(sessions),
        sessions_new=store.sessions.count() - before,
        events=events,
        events_new=new,
        different=_different(store, sessions) if is_settled else 0,
        forgotten=sum(tombstones.hold(*key) for key in sessions),
        is_settled=is_settled,
    )


def _key(told: dict[str, Any]) -> tuple[str, str]:
    return told["agent"], told["native_session_id"]


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            yield orjson.loads(line)


def _adoption(told: dict[str, Any], rows: list[EventRow], folder: Path) -> Adoption:
    agent, native_id = _key(told["session"])
    return Adoption(
        agent,
        native_id,
        [_source(agent, source) for source in told["sources"]],
        rows,
        list(_payloads(folder, told["pack"], rows)),
        [UsageRow(**usage) for usage in told["usage"]],
        [CostTotalRow(**total) for total in told["cost_totals"]],
    )


def _payloads(folder: Path, name: str, rows: list[EventRow]) -> Iterator[bytes]:
    """The payloads of a session's events, which lie in its pack in the same order."""
    with (folder / name).open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for row in rows:
            payload = _read_exactly(reader, row.payload_bytes)
            if sha256(payload).digest()[:16] != row.payload_hash:
                raise BadBackup(f"An event's content is not what its line says, `{row.event_uid.hex()}`: {name}")
            yield payload


def _read_exactly(reader: zstandard.ZstdDecompressionReader, size: int) -> bytes:
    pieces = []
    while size:
        piece = reader.read(size)
        if not piece:
            break
        pieces.append(piece)
        size -= len(piece)
    return b"".join(pieces)


def _put_without_events(
    store: Store, redactor: Redactor, tombstones: Tombstones, sessions: dict[tuple[str, str], dict[str, Any]]
) -> None:
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


def _different(store: Store, sessions: dict[tuple[str, str], dict[str, Any]]) -> int:
    here = {(found.agent, found.native_session_id): found for found in store.sessions.find(SessionFilter())}
    return sum(
        key in here and here[key].content_hash != told["session"]["content_hash"] for key, told in sessions.items()
    )


def _event_row(told: dict[str, Any]) -> EventRow:
    flags = (IS_ERROR if told["is_error"] else 0) | (IS_PROVISIONAL if told["is_provisional"] else 0)
    return EventRow(
        seq=0,
        event_uid=bytes.fromhex(told["event_uid"]),
        parent_uid=bytes.fromhex(told["parent_event_uid"]) if told["parent_event_uid"] else None,
        flags=flags | (IS_RETRY | TOLD_RETRY if told["is_retry"] else 0),
        retry_key=bytes.fromhex(told["retry_key"]) if told["retry_key"] else None,
        payload_start=told["payload_ref"][0],
        payload_bytes=told["payload_ref"][1],
        payload_hash=bytes.fromhex(told["payload_hash"]),
        metadata=orjson.dumps(told["metadata"]).decode() if told["metadata"] else None,
        **{name: told[name] for name in SAME_NAMES},
    )


def _source(agent: str, told: dict[str, Any]) -> AdoptedSource:
    row = SourceRow(told["host"], agent, told["path"], told["kind"], told["bytes"], -1, -1, 0, 0, 0, 0, "", "", "{}")
    bad = tuple(
        (line["line"], line["offset"], line["reason"], b64decode(line["raw"]), line["found_ms"])
        for line in told["bad_lines"]
    )
    return AdoptedSource(row, orjson.dumps(told["told"]).decode() if told["told"] else None, bad)
