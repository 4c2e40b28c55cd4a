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
from typing import BinaryIO

from recollect.agentkit.files import Cursor, Source, open_beneath
from recollect.agentkit.log import FINGERPRINT_BYTES, LineReader, fingerprint
from recollect.agents import get_adapter
from recollect.ingest.builder import Task, cursor_of, unsettled
from recollect.ingest.discover import find_changes
from recollect.model.errors import SourceUnreadable
from recollect.model.files import remove, sync
from recollect.model.home import RESCUED_NAME
from recollect.redact import Learned, Redactor
from recollect.store import SourceRow, Store

_HOME, _NOTE = "home", "copy.json"
_FINISHED, _UNFINISHED = ".copy", ".new"
_BLOCK_BYTES = 1024 * 1024
_ABANDONED_S = 3600


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
            texts = block.split(b"\n")
            for changed in redactor.changes(texts, learned):
                texts[changed.number] = changed.document
            file.write(b"\n".join(texts))
            end_line, end_offset = end_line + len(texts) - 1, end_offset + len(block)
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


def take_copies(store: Store, host: str) -> list[Task]:
    """What to read from copies, because their logs do not hold it any more. Removes copies that are not needed."""
    tasks: list[Task] = []
    for folder, source, row, end in _copies(store.folder):
        if not _holds(source, end):
            tasks += _tasks(folder, row)
        else:
            known = store.sources.known(host, row.agent, [row.path]).get(row.path)
            if known is not None and known.row.offset >= end.offset:
                remove(folder)
    return tasks


def drop_copies(store: Store, tasks: list[Task]) -> None:
    """Remove copies that were read."""
    for task in tasks:
        remove(task.source.root.parent)
    with suppress(OSError):  # others are left
        (store.folder / RESCUED_NAME).rmdir()


def _copies(store_folder: Path) -> Iterator[tuple[Path, Source, SourceRow, Cursor]]:
    """Each copy's folder, the log it is of, the cursor from which on it has that, and the one up to which."""
    for folder in sorted((store_folder / RESCUED_NAME).glob(f"*{_FINISHED}")):
        try:
            note = json.loads((folder / _NOTE).read_bytes())
            row, end = SourceRow(*note["row"]), Cursor(*note["end"])
        except (OSError, ValueError, LookupError, TypeError):  # its session was forgotten, or the disk damaged it
            remove(folder)
            continue
        yield folder, Source(row.agent, row.kind, Path(note["root"]), Path(note["path"])), row, end
    for folder in (store_folder / RESCUED_NAME).glob(f"*{_UNFINISHED}"):
        if folder.is_dir() and time.time() - folder.stat().st_mtime > _ABANDONED_S:
            remove(folder)


def _holds(source: Source, end: Cursor) -> bool:
    """Whether the log still begins as it did when the copy was made, to the copy's end."""
    try:
        return LineReader(source, end).offset == end.offset
    except SourceUnreadable:
        return False


def _tasks(folder: Path, copied: SourceRow) -> Iterator[Task]:
    """The copy as a log to read under its original's name; next, the original itself is read from its start."""
    adapter = get_adapter(copied.agent)
    for source in adapter.discover(folder / _HOME):
        hole = fingerprint(bytes(min(FINGERPRINT_BYTES, copied.offset)))
        state = copied.state if copied.reader == adapter.version else "{}"
        row = unsettled(copied)._replace(
            kind=source.kind, size=source.path.stat().st_size, reader=adapter.version, head=hole, tail=hole, state=state
        )
        yield Task(source, row, has_cursor=row.offset > 0)
