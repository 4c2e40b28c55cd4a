"""The file of records that exist nowhere else: tombstones, evictions, and whatever a user made by hand.

`ledger.jsonl` has a line of JSON for each record, and every line ends in a checksum of itself, so that the databases
can be made anew from it. docs/forgetting.md describes the format.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recollect.model.clock import as_ms, now_ms, rfc3339
from recollect.model.files import replace_file, sync, unwritable
from recollect.store.sqlite.database import translated
from recollect.store.sqlite.locks import write_lock

LEDGER_NAME = "ledger.jsonl"
_SUM = b',"sum":"'
_PIECE_BYTES = 64 * 1024


class LedgerRecord(NamedTuple):
    kind: str
    at_ms: int
    data: dict[str, Any]


class Ledger:
    """The ledger of a store. It takes the write lock itself, so never call it inside a transaction."""

    def __init__(self, folder: Path, *, read_only: bool = False) -> None:
        self.path = folder / LEDGER_NAME
        self._read_only = read_only

    def append(self, kind: str, data: dict[str, Any]) -> None:
        """Add a record; it is on the disk when this returns."""
        self.extend([(kind, data)])

    def extend(self, records: list[tuple[str, dict[str, Any]]]) -> None:
        """Add several records, durable together."""
        at_ms = now_ms()
        content = b"".join(_line(LedgerRecord(kind, at_ms, data)) for kind, data in records)
        with self._writing():
            is_new = not self.path.exists()
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with open(fd, "r+b") as file:
                _cut_torn_line(file.fileno())
                file.seek(0, os.SEEK_END)
                file.write(content)
                file.flush()
                os.fsync(fd)
            if is_new:
                sync(self.path.parent)

    def records(self, kind: str | None = None) -> Iterator[LedgerRecord]:
        """All records, or those of one kind, in the order they were written; damaged lines are skipped."""
        opening = orjson.dumps({"kind": kind})[:-1] + b"," if kind else b""
        for line in self._lines():
            if line.startswith(opening) and (record := _parse(line)) is not None:
                yield record

    def damage(self) -> list[str]:
        """Describe the lines that do not match their checksum."""
        return [
            f"{LEDGER_NAME}: line {number} does not match its checksum"
            for number, line in enumerate(self._lines(), start=1)
            if _parse(line) is None
        ]

    def rewrite(self, keep: Callable[[LedgerRecord], bool], *, is_repair: bool = False) -> int:
        """Drop the records that `keep` refuses, and return how many; a repair drops damaged lines, too.

        The new file replaces the old one at once: a crash leaves one or the other.
        """

        def kept(line: bytes, record: LedgerRecord | None) -> bytes:
            return line if (not is_repair if record is None else keep(record)) else b""

        return self._replace(kept)

    def update(self, change: Callable[[LedgerRecord], dict[str, Any] | None]) -> bool:
        """Replace the data of records where `change` returns other data; return whether any changed."""

        def updated(line: bytes, record: LedgerRecord | None) -> bytes:
            if record is None or (data := change(record)) is None or data == record.data:
                return line
            return _line(record._replace(data=data))

        return bool(self._replace(updated))

    def _replace(self, replaced: Callable[[bytes, LedgerRecord | None], bytes]) -> int:
        with self._writing():
            pairs = [(line, replaced(line, _parse(line))) for line in self._lines()]
            changed = sum(line != new for line, new in pairs)
            if changed:
                replace_file(self.path, b"".join(new for _, new in pairs))
        return changed

    def _lines(self) -> Iterator[bytes]:
        """Whole lines only: what follows the last line end was never acknowledged."""
        try:
            with self.path.open("rb") as file:
                yield from (line for line in file if line.endswith(b"\n"))
        except FileNotFoundError:
            return

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if self._read_only:
            raise unwritable(self.path.parent, "it was opened read-only")
        with translated(self.path), write_lock(self.path.parent):
            yield


def _line(record: LedgerRecord) -> bytes:
    body = orjson.dumps({"kind": record.kind, "at": rfc3339(record.at_ms), "data": record.data})
    return body[:-1] + _SUM + _checksum(body) + b'"}\n'


def _parse(line: bytes) -> LedgerRecord | None:
    """A line's record, or None if any byte of it has changed."""
    body, _, checksum = line.rpartition(_SUM)
    if checksum != _checksum(body + b"}") + b'"}\n':
        return None
    record = orjson.loads(body + b"}")
    at_ms = as_ms(record["at"])
    return LedgerRecord(record["kind"], at_ms, record["data"])


def _checksum(body: bytes) -> bytes:
    return blake2b(body, digest_size=8).hexdigest().encode()


def _cut_torn_line(fd: int) -> None:
    """Cut off the unfinished line of a process that died."""
    end = size = os.fstat(fd).st_size
    while end and (piece := os.pread(fd, min(end, _PIECE_BYTES), max(0, end - _PIECE_BYTES))):
        newline = piece.rfind(b"\n")
        if newline >= 0:
            end += newline + 1 - len(piece)
            break
        end -= len(piece)
    if end < size:
        os.ftruncate(fd, end)
