"""Erasing forgotten sessions. Whatever stops it, the next forget or sweep finishes it."""

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from recollect.errors import Busy, StoreUnwritable
from recollect.home import PREPARED_NAME, SPENDING_NAME, TOLD_NAME
from recollect.kinds import SessionKey, session_uid
from recollect.store import TOMBSTONE, LedgerRecord, Store, Tombstone, remove

FINISHES_FORGETTING = "`recollect sweep` finishes it; it needs free space, and no other program reading the store"


def drop(store: Store, keys: Collection[SessionKey]) -> None:
    """Delete what is held of sessions; bytes of it may stay in unused parts of the databases until a scrub."""
    store.erasure.drop(keys)
    drop_prepared(store)
    ids = {key.native_id for key in keys} | {session_uid(*key) for key in keys}
    store.ledger.rewrite(lambda record: record.kind == TOMBSTONE or not _is_about(record, ids))


def drop_prepared(store: Store) -> None:
    """Remove files with sums and quotes of sessions beside the databases; the next sweep makes them again."""
    for name in (SPENDING_NAME, TOLD_NAME):
        (store.folder / name).unlink(missing_ok=True)
    remove(store.folder / PREPARED_NAME)


def _forget_heirs(store: Store) -> None:
    """Sub-agents of forgotten sessions that were stored before a log showed whose they are go too."""
    while heirs := store.erasure.heirs(store.tombstones.names()):
        store.tombstones.add([Tombstone(*key, b"") for key in heirs])


def finish_forgetting(store: Store) -> None:
    """Finish what was stopped: a tombstone whose session is still held, or whose last step is missing."""
    store.tombstones.take_over()
    _forget_heirs(store)
    forgotten = store.tombstones.names()
    left = store.tombstones.unfinished() | store.erasure.existing(forgotten) if forgotten else set()
    if not left:
        return
    drop(store, left)
    # Without room, or while somebody reads, the last step has to wait; doctor reports it.
    with suppress(StoreUnwritable, Busy):
        store.erasure.scrub()
        store.tombstones.finish(left)


def drop_leftovers(store: Store) -> None:
    """Remove packs and bytes with the old text that an earlier rescan, or one that was killed, left."""
    store.erasure.scrub_if_due()
    if store.rewrites.has_old():
        store.rewrites.drop_old()


def _is_about(record: LedgerRecord, ids: Collection[str]) -> bool:
    return any(text in ids for text in _texts(record.data))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in _texts(part)]
