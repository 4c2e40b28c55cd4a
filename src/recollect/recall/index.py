"""Bring the full text up to date with what is stored: part of a sweep, cut off anywhere it goes on from there."""

from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter

import orjson

from recollect.store import PIECE_BYTES, Entry, PendingEvent, PendingStream, Store, in_pieces
from recollect.text import columns_of

Indexed = tuple[PendingStream, list[Entry]]


def index_pending(store: Store, advance: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Index all events that are not in the full text yet; return how many."""
    store.fulltext.drop_gone()
    streams = store.fulltext.pending()
    places = {stream.id: place for place, stream in enumerate(streams, start=1)}
    done = 0
    for batch in _batches(store, streams):
        store.fulltext.put(batch)
        done += sum(len(entries) for _, entries in batch)
        advance(places[batch[-1][0].id], len(streams))
    if streams:
        store.fulltext.settle(streams)
    return done


def _batches(store: Store, streams: Sequence[PendingStream]) -> Iterator[list[Indexed]]:
    """Small sessions together, large ones in pieces."""
    batch: list[Indexed] = []
    size = 0
    for stream in streams:
        for piece in in_pieces(store.fulltext.pending_events(stream), attrgetter("payload_bytes")):
            batch.append((stream, _entries(store, stream, piece)))
            size += sum(event.payload_bytes for event in piece)
            if size >= PIECE_BYTES:
                yield batch
                batch, size = [], 0
    if batch:
        yield batch


def _entries(store: Store, stream: PendingStream, piece: Sequence[PendingEvent]) -> list[Entry]:
    places = [(event.payload_start, event.payload_bytes) for event in piece]
    # Parsed as they come: a large one is not held beside what is made of it.
    contents = map(orjson.loads, store.payloads.iter(stream.agent, stream.native_id, places))
    return [Entry(event, columns_of(event.kind, content)) for event, content in zip(piece, contents, strict=True)]
