"""Reading a session's payloads out of its packs."""

from bisect import bisect_right
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
        columns = ", ".join(f"f.{name}" for name in FrameRow._fields)
        rows = database.rows(
            f"SELECT s.pack_generation, {columns} FROM streams s LEFT JOIN frames f ON f.stream = s.id"
            " WHERE s.agent = ? AND s.native_id = ? ORDER BY f.start, f.bytes, f.pack, f.pack_offset",
            (agent, native_id),
        )
        generation = rows[0][0] if rows else 0
        self.is_held = bool(rows)
        self._rows = [FrameRow(*row) for _, *row in rows if row[0] is not None]
        self._ends = [row.start + row.bytes for row in self._rows]
        self._folder = folder
        self._session = agent, native_id, generation
        self._packs = PackReader()
        self._last: tuple[FrameRow | None, Content] = None, Content(memoryview(b""), memoryview(b""))

    def read(self, start: int, length: int) -> bytes:
        """The payload at a place; raises StoreDamaged if it cannot be had."""
        index = bisect_right(self._ends, start)
        row = self._rows[index] if index < len(self._rows) else None
        if row is None or not row.start <= start <= start + length <= row.start + row.bytes:
            raise StoreDamaged(f"A payload is in no pack: {':'.join(self._session[:2])}", packs.ADVICE)
        return bytes(self.content(row).payloads[start - row.start : start - row.start + length])

    def __iter__(self) -> Iterator[FrameRow]:
        return iter(self._rows)

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
