"""What a log held before its agent compacts the conversation, copied to the store's side without its secrets.

An agent may begin its log anew when it compacts, before a sweep has seen the end of the old one. A hook therefore
copies what is not stored yet. Every sweep first reads the copies of logs that no longer hold those lines, and removes
a copy once its lines are stored.

A copy is a home of the agent with one log in it: a hole as long as what is stored already, then the lines after it.
"""

import json
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

from recollect.agentkit.files import Cursor, Source, open_beneath
from recollect.agentkit.log import FINGERPRINT_BYTES, LineReader, fingerprint
from recollect.agents import get_adapter
from recollect.errors import SourceUnreadable
from recollect.files import remove, sync
from recollect.home import RESCUED_NAME
from recollect.ingest.builder import Task, cursor_of, unsettled
from recollect.ingest.discover import find_changes
from recollect.redact import Learned, Redactor
from recollect.store import SourceRow, Store

_HOME, _NOTE = "home", "copy.json"
_FINISHED, _UNFINISHED = ".copy", ".new"
_BLOCK_BYTES = 1024 * 1024
_ABANDONED_S = 3600


class _Copy(NamedTuple):
    """Of `source`, from the cursor in `row` up to `end`."""

    folder: Path
    source: Source
    row: SourceRow
    end: Cursor


def save_copy(store: Store, host: str, source: Source, redactor: Redactor) -> None:
    """Have the lines of a log that are not stored yet on disk when this returns."""
    changes = find_changes(store, host, {source.agent: (source.root,)}, lambda: redactor, verify=False, only=[source])
    if not changes.tasks:
        return
    row = changes.tasks[0].row
    lines = LineReader(source, cursor_of(changes.tasks[0]))
    row = row._replace(offset=lines.offset, line=lines.line, state=json.dumps(lines.state))
    folder = store.folder / RESCUED_NAME / f"{time.time_ns()}-{os.getpid()}{_UNFINISHED}"
    log = folder / _HOME / source.path.relative_to(source.root)
    log.parent.mkdir(mode=0o700, parents=True)
    end_line, end_offset, learned = lines.line, lines.offset, Learned()
    with open(open_beneath(source.root, source.path), "rb") as original, log.open("wb") as file:
        original.seek(end_offset)
        file.seek(end_offset)
        for block in _blocks(original):
            redacted, count = _redacted(block, redactor, learned)
            file.write(redacted)
            end_line, end_offset = end_line + count, end_offset + len(block)
    sync(log)
    end = lines.checkpoint({}, at=(end_line, end_offset)).cursor
    origin = {"root": str(source.root), "path": str(source.path)}
    note = origin | {"row": row, "end": [end.offset, end.line, end.head, end.tail]}
    (folder / _NOTE).write_text(json.dumps(note), encoding="utf-8")
    sync(folder / _NOTE)
    folder.rename(folder.with_suffix(_FINISHED))
    sync(folder.parent)


def _blocks(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines, many at a time; what an agent is still writing is left out."""
    rest = b""
    while data := file.read(_BLOCK_BYTES):
        data = rest + data
        end = data.rfind(b"\n") + 1
        if end:
            yield data[:end]
        rest = data[end:]


def _redacted(block: bytes, redactor: Redactor, learned: Learned) -> tuple[bytes, int]:
    """A block without its secrets, and how many lines it has."""
    lines = block.split(b"\n")
    changes = redactor.changes(lines, learned)
    for changed in changes:
        lines[changed.number] = changed.document
    return b"\n".join(lines) if changes else block, len(lines) - 1


def take_copies(store: Store, host: str) -> list[Task]:
    """What to read from copies, because their logs do not hold it any more. Removes copies that are not needed."""
    tasks: list[Task] = []
    for copy in _copies(store.folder):
        if not _holds(copy):
            tasks += _tasks(copy)
        else:
            known = store.sources.known(host, copy.row.agent, [copy.row.path]).get(copy.row.path)
            if known is not None and known.row.offset >= copy.end.offset:
                remove(copy.folder)
    return tasks


def drop_copies(store: Store, tasks: list[Task]) -> None:
    """Remove copies that were read."""
    for task in tasks:
        remove(task.source.root.parent)
    with suppress(OSError):  # others are left
        (store.folder / RESCUED_NAME).rmdir()


def _copies(store_folder: Path) -> Iterator[_Copy]:
    for folder in sorted((store_folder / RESCUED_NAME).glob(f"*{_FINISHED}")):
        try:
            note = json.loads((folder / _NOTE).read_bytes())
            row, end = SourceRow(*note["row"]), Cursor(*note["end"])
        except (OSError, ValueError, LookupError, TypeError):  # its session was forgotten, or the disk damaged it
            remove(folder)
            continue
        yield _Copy(folder, Source(row.agent, row.kind, Path(note["root"]), Path(note["path"])), row, end)
    for folder in (store_folder / RESCUED_NAME).glob(f"*{_UNFINISHED}"):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > _ABANDONED_S:
            remove(folder)


def _holds(copy: _Copy) -> bool:
    """Whether the log still begins as it did when the copy was made, to the copy's end."""
    try:
        return LineReader(copy.source, copy.end).offset == copy.end.offset
    except SourceUnreadable:
        return False


def _tasks(copy: _Copy) -> Iterator[Task]:
    """The copy as a log to read under its original's name; next, the original itself is read from its start."""
    adapter = get_adapter(copy.row.agent)
    for source in adapter.discover(copy.folder / _HOME):
        hole = fingerprint(bytes(min(FINGERPRINT_BYTES, copy.row.offset)))
        state = copy.row.state if copy.row.reader == adapter.version else "{}"
        row = unsettled(copy.row)._replace(
            kind=source.kind, size=source.path.stat().st_size, reader=adapter.version, head=hole, tail=hole, state=state
        )
        yield Task(source, row, has_cursor=row.offset > 0)
