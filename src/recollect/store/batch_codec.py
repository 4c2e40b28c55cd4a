"""A batch as it crosses from a reader process to the writer: one flat buffer."""

from typing import Any

import msgspec

from recollect.redact import NamedValue
from recollect.store.batch import Batch, Facts, ProblemRow, SourceRow, StreamBatch
from recollect.store.payloads.packs import Frame
from recollect.text import Columns

_Rows = list[tuple[Any, ...]]
_Part = tuple[str, _Rows, list[Frame], list[Columns | None], tuple[str | None, _Rows, _Rows], list[NamedValue]]
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[SourceRow, list[_Part], list[ProblemRow], dict[str, int], int, int, str]).decode


def pack_batch(batch: Batch) -> bytes:
    parts = [(part.native_id, part.rows, part.frames, part.texts, part.facts, part.named) for part in batch.streams]
    return _encode((batch.source, parts, batch.problems, batch.skipped, batch.lines, batch.bytes, batch.redacted_with))


def unpack_batch(data: bytes | bytearray) -> Batch:
    source, parts, problems, skipped, lines, size, rules = _decode(data)
    streams = [
        StreamBatch(name, rows, frames, texts, Facts(*facts), named)
        for name, rows, frames, texts, facts, named in parts
    ]
    return Batch(source, streams, problems, skipped, lines, size, rules)
