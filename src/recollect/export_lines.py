"""The lines of an export as rows of a store. What is not as it should be raises one of UNREADABLE."""

from base64 import b64decode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import orjson
import zstandard

from recollect.errors import BadBackup
from recollect.exports import SAME_NAMES, is_part
from recollect.store.adopting import AdoptedSource, Adoption
from recollect.store.batch import CostTotalRow, EventRow, SourceRow, UsageRow, hash_payload
from recollect.store.flags import IS_ERROR, IS_PROVISIONAL, IS_RETRY, TOLD_RETRY

UNREADABLE = (
    AttributeError,
    IndexError,
    KeyError,
    OverflowError,
    TypeError,
    ValueError,
    zstandard.ZstdError,
    apsw.ConstraintError,
)

_NUMBERS = ("position", "ts_ms", "input_tokens", "output_tokens", "copy_key", "reader")


def key_of(told: dict[str, Any]) -> tuple[str, str]:
    return told["agent"], told["native_session_id"]


def iter_lines(path: Path) -> Iterator[dict[str, Any]]:
    with path.open("rb") as file:
        for line in file:
            yield orjson.loads(line)


def make_adoption(told: dict[str, Any], rows: list[EventRow], folder: Path) -> Adoption:
    agent, native_id = key_of(told["session"])
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
    if not is_part(name) or not (folder / name).is_file():
        raise ValueError(name)
    with (folder / name).open("rb") as file:
        reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        for row in rows:
            payload = _read_exactly(reader, row.payload_bytes)
            if hash_payload(payload) != row.payload_hash:
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


def event_row(told: dict[str, Any]) -> EventRow:
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
        **{name: _same(told, name) for name in SAME_NAMES},
    )


def _source(agent: str, told: dict[str, Any]) -> AdoptedSource:
    row = SourceRow(told["host"], agent, told["path"], told["kind"], told["bytes"], -1, -1, 0, 0, 0, 0, "", "", "{}")
    bad = tuple(
        (line["line"], line["offset"], line["reason"], b64decode(line["raw"]), line["found_ms"])
        for line in told["bad_lines"]
    )
    return AdoptedSource(row, orjson.dumps(told["told"]).decode() if told["told"] else None, bad)


def _same(told: dict[str, Any], name: str) -> Any:
    value = told[name]
    if value is not None and not isinstance(value, int if name in _NUMBERS else str):
        raise TypeError(name)
    return value
