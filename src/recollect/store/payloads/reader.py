"""Reading a session's payloads out of its packs."""

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from recollect.errors import StoreDamaged
from recollect.store.payloads import packs
from recollect.store.payloads.packs import Content, PackReader
from recollect.store.sqlite.database import Database


class FrameRow(NamedTuple):
    """Where a frame is: its payloads in the session's, and itself in a pack."""

    start: int
    bytes: int
    pack: int
    pack_offset: int
    pack_bytes: int


class StreamReader:
    """Random access to one session's payloads, remembering the frame read last."""

    def __init__(self, database: Database, folder: Path, agent: str, native_id: str) -> None:
        sql = "SELECT id, pack_generation FROM streams WHERE agent = ? AND native_id = ?"
        rows = database.rows(sql, (agent, native_id))
        self.is_held = bool(rows)
        self._stream, generation = rows[0] if rows else (0, 0)
        self._database = database
        self._folder = folder
        self._session = agent, native_id, generation
        self._packs = PackReader()
        self._last: tuple[FrameRow | None, Content] = None, Content(memoryview(b""), memoryview(b""))

    def read(self, start: int, length: int) -> bytes:
        """The payload at a place; raises StoreDamaged if it cannot be had."""
        row = self._last[0]
        if row is None or not _holds(row, start, length):
            row = next(iter(self._select("start <= ? AND bytes > 0 ORDER BY start DESC LIMIT 1", start)), None)
        if row is None or not _holds(row, start, length):
            raise StoreDamaged(f"A payload is in no pack: {':'.join(self._session[:2])}", packs.ADVICE)
        return bytes(self.content(row).payloads[start - row.start : start - row.start + length])

    def __iter__(self) -> Iterator[FrameRow]:
        return iter(self._select("true ORDER BY start, bytes, pack, pack_offset"))

    def _select(self, condition: str, *bindings: int) -> list[FrameRow]:
        sql = f"SELECT {', '.join(FrameRow._fields)} FROM frames WHERE stream = ? AND {condition}"
        return [FrameRow(*row) for row in self._database.rows(sql, (self._stream, *bindings))]

    def content(self, row: FrameRow) -> Content:
        """What a frame holds; raises StoreDamaged if it is not what was stored."""
        if self._last[0] != row:
            path = self.path(row)
            content = packs.unpack_entry(self._packs.read(path, row.pack_offset, row.pack_bytes))
            if content is None or len(content.payloads) != row.bytes:
                raise StoreDamaged(f"Payloads are damaged, at byte {row.pack_offset:,} of {path}", packs.ADVICE)
            self._last = row, content
        return self._last[1]

    def path(self, row: FrameRow) -> Path:
        return packs.shared_pack(self._folder, row.pack) if row.pack else self._own_pack

    @cached_property
    def _own_pack(self) -> Path:
        return packs.own_pack(self._folder, *self._session)

    def close(self) -> None:
        self._packs.close()


def _holds(row: FrameRow, start: int, length: int) -> bool:
    return row.start <= start <= start + length <= row.start + row.bytes
