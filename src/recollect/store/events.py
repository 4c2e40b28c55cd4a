"""Tier 1 as it is read: events, and the payloads behind them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from zstandard import ZstdError

from recollect.errors import StoreDamaged
from recollect.store import packs
from recollect.store.sqlite import Database

_T = TypeVar("_T")

PIECE_BYTES = 4 * 1024 * 1024  # of payloads in one transaction: others wait about a tenth of a second


def in_pieces(events: Iterable[_T], bytes_of: Callable[[_T], int]) -> Iterator[list[_T]]:
    """A session's events, so many at a time that their payloads can be held at once."""
    piece: list[_T] = []
    size = 0
    for event in events:
        piece.append(event)
        size += bytes_of(event)
        if size >= PIECE_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece


class Events:
    """The events of a store and the payloads behind them."""

    def __init__(self, database: Database, folder: Path) -> None:
        self._database = database
        self._folder = folder

    def rows(self, agent: str, native_id: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        """A session's events in reading order, with the columns asked for."""
        return self._database.rows(
            f"SELECT {', '.join(columns)} FROM events"
            " WHERE stream = (SELECT id FROM streams WHERE agent = ? AND native_id = ?)"
            " ORDER BY lane, position, event_uid",
            (agent, native_id),
        )

    def iter_payloads(self, agent: str, native_id: str, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the payloads at (start, bytes) of a session's stream; each frame is unpacked once if they ascend."""
        with self._frames(agent, native_id) as frames:
            if frames is not None:
                yield from (frames.read(start, length) for start, length in places)

    def iter_content(self, agent: str, native_id: str) -> Iterator[bytes]:
        """Yield all that is stored of a session's stream, piece by piece, whether or not an event still has it."""
        with self._frames(agent, native_id) as frames:
            if frames is not None:
                yield from frames.all()

    @contextmanager
    def _frames(self, agent: str, native_id: str) -> Iterator["_Frames | None"]:
        stream = self._database.rows(
            "SELECT id, pack_generation FROM streams WHERE agent = ? AND native_id = ?", (agent, native_id)
        )
        if not stream:
            yield None
            return
        stream_id, generation = stream[0]
        pack = packs.PackReader(lambda: packs.pack_path(self._folder, agent, native_id, generation))
        try:
            yield _Frames(self._database, stream_id, pack)
        finally:
            pack.close()


class _Frames:
    """Random access into one session's compressed stream, remembering the frame read last."""

    def __init__(self, database: Database, stream: int, pack: packs.PackReader) -> None:
        self._rows = database.rows(
            "SELECT start, bytes, pack_offset, pack_bytes FROM frames WHERE stream = ? ORDER BY start",
            (stream,),
        )
        self._database = database
        self._stream = stream
        self._pack = pack
        self._cached: tuple[int, bytes] = (-1, b"")

    def read(self, start: int, length: int) -> bytes:
        end = start + length
        pieces = []
        for row in self._covering(start, end):
            content = self._content(*row)
            pieces.append(content[max(0, start - row[0]) : end - row[0]])
        return b"".join(pieces)

    def all(self) -> Iterator[bytes]:
        return (self._content(*row) for row in self._rows)

    def _covering(self, start: int, end: int) -> Iterator[tuple[Any, ...]]:
        low, high = 0, len(self._rows)
        while low < high:
            middle = (low + high) // 2
            if self._rows[middle][0] + self._rows[middle][1] <= start:
                low = middle + 1
            else:
                high = middle
        for row in self._rows[low:]:
            if row[0] >= end:
                return
            yield row

    def _content(self, start: int, length: int, pack_offset: int | None, pack_bytes: int) -> bytes:
        if self._cached[0] != start:
            if pack_offset is None:
                raw = self._database.value(
                    "SELECT content FROM frames WHERE stream = ? AND start = ?", (self._stream, start)
                )
            else:
                raw = self._pack.read(pack_offset, pack_bytes)
            content = _unpacked(raw)
            if len(content) != length:  # damaged, or another frame lies at its place
                place = self._pack.path if pack_offset is not None else self._database.path
                raise StoreDamaged(f"Payloads are damaged: {place}", "`recollect doctor` says what can be done")
            self._cached = (start, content)
        return self._cached[1]


def _unpacked(raw: bytes) -> bytes:
    """A frame's content; nothing if it is damaged."""
    try:
        return packs.decompress(iter((raw,)))
    except ZstdError:
        return b""
