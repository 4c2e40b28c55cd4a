"""Replacing the whole store, so that a crash leaves the old one or the new one, never a mixture.

The new store is complete in a folder below the old one, and the folder's name says so. Whoever opens the store next
finishes what was begun: each step moves one thing and can be repeated.
"""

from datetime import UTC, datetime
from pathlib import Path

import orjson

from recollect.store.ledger import LEDGER_NAME, Ledger
from recollect.store.sqlite import high_water
from recollect.store.sqlite.files import replace_file, sync
from recollect.store.sqlite.locks import sweep_lock, write_lock

READY_NAME = "replacement"

_NOTE = "note.json"  # in the replacement: its parts, and where the old store goes
_PARTS = ("memory.db", "cache.db", "packs", LEDGER_NAME)
_KEY = "redaction.key"  # stays in use unless the new store brings its own
_SIDE_FILES = ("-wal", "-shm", high_water.LAST_SUFFIX)


def replace_store(folder: Path, unpacked: Path) -> Path | None:
    """Replace the store with what was unpacked; returns where the old one is now, if there was any."""
    with sweep_lock(folder), write_lock(folder):
        _carry_over(folder, unpacked)
        parts = [name for name in (*_PARTS, _KEY) if (unpacked / name).exists()]
        note = {"parts": parts, "aside": f"before-restore-{datetime.now(UTC):%Y%m%dT%H%M%S.%fZ}"}
        replace_file(unpacked / _NOTE, orjson.dumps(note))
        unpacked.rename(folder / READY_NAME)  # from here on it is finished, by this process or by the next one
        sync(folder)
        return _finish(folder)


def finish_replacing(folder: Path) -> None:
    """Finish what a killed process had begun."""
    if (folder / READY_NAME).exists():
        with sweep_lock(folder), write_lock(folder):
            if (folder / READY_NAME).exists():
                _finish(folder)


def _carry_over(folder: Path, unpacked: Path) -> None:
    """Keep the records that outlive a restore: what was forgotten since stays forgotten."""
    from recollect.store.tables.lasting import OUTLIVES_RESTORE  # it loads more than a search needs

    new = Ledger(unpacked)
    known = {(record.kind, str(record.data)) for record in new.records()}
    for record in Ledger(folder).records():
        if record.kind in OUTLIVES_RESTORE and (record.kind, str(record.data)) not in known:
            new.append(record.kind, record.data)
    for path in unpacked.glob("*.lock"):
        path.unlink()


def _finish(folder: Path) -> Path | None:
    ready = folder / READY_NAME
    if not (ready / _NOTE).exists():  # all was moved; only the last step is left
        ready.rmdir()
        return None
    note = orjson.loads((ready / _NOTE).read_bytes())
    aside = folder / note["aside"]
    for name in (*_PARTS, *note["parts"]):
        if (ready / name).exists() or name not in note["parts"]:  # else the new one is in place already
            for old in (folder / name, *(folder / (name + side) for side in _SIDE_FILES)):
                if old.exists():
                    aside.mkdir(mode=0o700, exist_ok=True)
                    old.rename(aside / old.name)
        if (ready / name).exists():
            (ready / name).rename(folder / name)
    (folder / high_water.MARK_NAME).unlink(missing_ok=True)
    sync(folder)
    (ready / _NOTE).unlink()
    ready.rmdir()
    return aside if aside.exists() else None
