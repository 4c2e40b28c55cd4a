"""Tier 1 as it is read: events, and the payloads behind them."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

from recollect.kinds import HISTORY_LANE, LIFECYCLE, QUEUE_ONLY, STAND_IN_LANE, USER_MSG
from recollect.store.payloads.reader import StreamReader
from recollect.store.sqlite.database import Database
from recollect.store.tables import column
from recollect.store.tables.table import BY_STREAM, CACHE, Table

# SQL: events that may stand in for others, requests that follow another event, what a user typed. An index serves only
# statements with the very words it was made with.
STANDS_IN = f"lane IN ('{HISTORY_LANE}', '{STAND_IN_LANE}') OR status = '{QUEUE_ONLY}'"
IS_REQUEST = f"kind = '{USER_MSG}' AND parent_uid IS NOT NULL"
IS_TYPED = f"kind IN ('{USER_MSG}', '{LIFECYCLE}') AND retry_key IS NOT NULL"

EVENTS = Table(
    "events",
    CACHE,
    (
        column.row_number("id"),
        *column.numbers("stream"),
        *column.blobs("event_uid"),
        *column.numbers("seq"),
        *column.blobs("parent_uid?"),
        *column.identifiers("lane"),
        *column.numbers("position"),
        *column.identifiers("native_id"),
        *column.numbers("ts_ms?"),
        *column.plain("kind", "base_kind?"),
        *column.labels("role?"),
        *column.names("tool?"),
        *column.identifiers("call_id?"),
        *column.names("status?"),
        column.count("flags", 0),
        *column.blobs("copy_of?"),
        *column.numbers("copy_key?"),
        *column.blobs("retry_key?"),
        *column.texts("summary"),
        *column.numbers("payload_start?", "payload_bytes?"),
        *column.blobs("payload_hash"),
        *column.names("model?", "provider?"),
        *column.labels("content_type?"),
        *column.numbers("input_tokens?", "output_tokens?", "reader"),
        *column.documents("metadata?"),
    ),
    owner=BY_STREAM,
    is_raw=True,
    extras=(
        "CREATE UNIQUE INDEX events_by_uid ON events (event_uid)",
        "CREATE INDEX events_by_stream ON events (stream, seq)",
        "CREATE INDEX events_in_order ON events (stream, lane, position)",
        "CREATE INDEX events_by_copy_key ON events (copy_key, stream) WHERE copy_key IS NOT NULL",
        "CREATE INDEX events_by_copy_of ON events (stream, copy_of) WHERE copy_of IS NOT NULL",
        "CREATE INDEX events_by_original ON events (copy_of) WHERE copy_of IS NOT NULL",
        f"CREATE INDEX events_standing_in ON events (stream) WHERE {STANDS_IN}",
        f"CREATE INDEX events_of_requests ON events (parent_uid) WHERE {IS_REQUEST}",
        f"CREATE INDEX events_as_typed ON events (stream, retry_key) WHERE {IS_TYPED}",
    ),
)

# SQL: what copies of an event have in common beside their kind. A call has its arguments: its summary may be made with
# the working directory.
CONTENT = "iif({0}retry_key IS NULL, {0}summary, hex({0}retry_key))"

# A session's payloads are one stream of bytes, cut into frames: `pack` is the number of a shared pack, or 0 for the
# session's own.
FRAMES = Table(
    "frames",
    CACHE,
    column.numbers("stream", "start", "bytes", "pack", "pack_offset", "pack_bytes"),
    owner=BY_STREAM,
    key=("stream", "start", "pack", "pack_offset"),
    is_raw=True,
    extras=("CREATE INDEX frames_by_pack ON frames (pack, pack_offset) WHERE pack > 0",),
)

# How long each shared pack is, and how much of it is blank: -1 until frames that were replaced are.
SHARED_PACKS = Table(
    "shared_packs", CACHE, (column.row_number("number"), *column.numbers("bytes", "blank_bytes")), is_raw=True
)

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

    def rows(
        self, agent: str, native_id: str, columns: Sequence[str], *, last: int | None = None
    ) -> list[tuple[Any, ...]]:
        """A session's events in reading order, with the columns asked for; with `last`, only so many from the end."""
        rows = self._database.rows(
            f"SELECT {', '.join(columns)} FROM events"
            " WHERE stream = (SELECT id FROM streams WHERE agent = ? AND native_id = ?)"
            " ORDER BY lane DESC, position DESC, event_uid DESC LIMIT ?",
            (agent, native_id, -1 if last is None else last),
        )
        return rows[::-1]

    def iter_payloads(self, agent: str, native_id: str, places: Sequence[tuple[int, int]]) -> Iterator[bytes]:
        """Yield the payloads at (start, bytes) of a session; each frame is unpacked once if they ascend."""
        with closing(StreamReader(self._database, self._folder, agent, native_id)) as reader:
            if reader.is_held:
                yield from (reader.read(start, length) for start, length in places)

    def iter_content(self, agent: str, native_id: str) -> Iterator[bytes]:
        """Yield all that is stored in a session's frames, whether or not an event still has it."""
        with closing(StreamReader(self._database, self._folder, agent, native_id)) as reader:
            yield from (bytes(reader.content(row).payloads) for row in reader)
