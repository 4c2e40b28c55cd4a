"""The command line with a bug built in, to prove that the rigs find it: `python broken.py BUG WORDS…`.

One patch is no bug: `small_batches`, with which few messages are many transactions.

The bugs are those that programs of this kind have had. Each is a patch of one function; none of them, nor a
way to switch one on, is in the program itself.
"""

import dataclasses
import os
import secrets
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import apsw

import recollect.store
from recollect.agentkit import log as jsonl
from recollect.agentkit.log import fingerprint
from recollect.cli import main
from recollect.ingest import pool
from recollect.store import intake
from recollect.store.batch import Batch, EventRow
from recollect.store.intake import Index, Intake, SaveSource, Written
from recollect.store.payloads import packs
from recollect.store.sqlite.database import Database

Patch = Callable[[Any, str, Any], None]  # `setattr`, or one that can be undone

_put = Intake.put


def cursor_before_rows(patch: Patch) -> None:
    """The cursor is committed first: what was not stored by then is never read again."""

    def put(self: Intake, batches: Sequence[Batch], save: SaveSource, index: Index | None = None) -> Written:
        with self._database.transaction() as connection:
            sources = {id(batch): save(connection, batch) for batch in batches}
        return _put(self, batches, lambda connection, batch: sources[id(batch)], index)

    patch(Intake, "put", put)


def cursor_after_rows_without_key(patch: Patch) -> None:
    """The cursor is committed last, and events have no name of their own: what is read again is there twice."""

    def put(self: Intake, batches: Sequence[Batch], save: SaveSource, index: Index | None = None) -> Written:
        written = _put(self, batches, lambda connection, batch: _find_or_add(connection, batch, save), index)
        with self._database.transaction() as connection:
            for batch in batches:
                save(connection, batch)
        return written

    def sort_out(
        connection: apsw.Connection, rows: list[tuple[Any, ...]], known: object, rules: str
    ) -> tuple[list[tuple[Any, ...]], list[Any]]:
        return [EventRow._make(row)._replace(event_uid=secrets.token_bytes(16)) for row in rows], []

    patch(Intake, "put", put)
    patch(intake, "_sort_out", sort_out)


def _find_or_add(connection: apsw.Connection, batch: Batch, save: SaveSource) -> int:
    """A source as it is; if there is none, one that was not read yet."""
    row = batch.source
    found = connection.execute("SELECT id FROM sources WHERE (host, agent, path) = (?, ?, ?)", row[:3]).get
    if found is not None:
        return int(found)
    nothing = fingerprint(b"")
    unread = row._replace(mtime_ns=-1, offset=0, line=0, head=nothing, tail=nothing, state="{}")
    return save(connection, dataclasses.replace(batch, source=unread))


def torn_last_line_taken(patch: Patch) -> None:
    """A line is read that its agent is still writing."""
    patch(jsonl, "_is_whole", lambda last: True)


def torn_tail_of_a_pack_kept(patch: Patch) -> None:
    """What a dead process appended stays, and later frames lie behind the place the database says."""
    patch(packs, "cut_to", lambda fd, path, known_bytes: os.lseek(fd, 0, os.SEEK_END))


def payloads_not_synced(patch: Patch) -> None:
    """Rows are committed though a power cut may take the payloads they lead to."""
    patch(packs, "make_durable", lambda paths: None)


def names_of_folders_not_synced(patch: Patch) -> None:
    """A pack is on the disk, the folder it lies in is not."""

    def make_durable(paths: Collection[Path]) -> None:
        for place in [*paths, *(path.parent for path in paths)]:
            packs.sync(place)

    patch(packs, "make_durable", make_durable)


def lasting_rows_not_synced(patch: Patch) -> None:
    """What must last is acknowledged before it is on the disk."""

    def hasty(path: Path, migrations: Any, synchronous: str, *, read_only: bool) -> Database:
        return Database(path, migrations, "NORMAL", read_only=read_only)

    patch(recollect.store, "Database", hasty)


BUGS = {
    bug.__name__: bug
    for bug in (
        cursor_before_rows,
        cursor_after_rows_without_key,
        torn_last_line_taken,
        torn_tail_of_a_pack_kept,
        payloads_not_synced,
        names_of_folders_not_synced,
        lasting_rows_not_synced,
    )
}


def small_batches(patch: Patch) -> None:
    """A long session is stored in several transactions, so that a sweep can be struck between two of them."""
    patch(jsonl, "BATCH_LINES", 100)
    patch(pool, "BATCH_EVENTS", 100)


if __name__ == "__main__":
    {**BUGS, small_batches.__name__: small_batches}[sys.argv[1]](setattr)
    main(sys.argv[2:])
