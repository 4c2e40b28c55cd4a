"""Taking forgotten sessions out of the store. Whatever stops it, the next forget or sweep goes on with it."""

from collections.abc import Collection
from contextlib import suppress
from typing import Any

from recollect.errors import Busy, StoreUnwritable
from recollect.schema import session_uid
from recollect.store import Store
from recollect.store.ledger import LedgerRecord
from recollect.store.tombstones import KIND, Name

FINISHES_FORGETTING = "`recollect sweep` finishes it; it needs free space and no other reader"


def drop(store: Store, names: Collection[Name]) -> None:
    """Delete what is held of sessions; their bytes may still lie in unused parts of the databases."""
    store.remains.drop(names)
    ids = {native_id for _, native_id in names} | {session_uid(*name) for name in names}
    store.ledger.rewrite(lambda record: record.kind == KIND or not _is_about(record, ids))


def finish_forgetting(store: Store) -> None:
    """Go on with what was stopped: a tombstone whose session is still held, or whose last step is missing."""
    store.tombstones.take_over()
    names = store.tombstones.names()
    left = store.tombstones.unfinished() | store.remains.existing(names) if names else set()
    if not left:
        return
    drop(store, left)
    # For lack of room, or because somebody reads, the last step has to wait; doctor says so.
    with suppress(StoreUnwritable, Busy):
        store.remains.scrub()
        store.tombstones.finish(left)


def _is_about(record: LedgerRecord, ids: Collection[str]) -> bool:
    return any(text in ids for text in _texts(record.data))


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [text for part in inner for text in _texts(part)]
