"""ledger.jsonl: what cannot be read again from anywhere, one line each, so that memory.db can be made anew."""

import os
from collections.abc import Callable, Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from recollect.clock import now_ms
from recollect.store.durable import replace_file, sync
from recollect.store.locks import write_lock

LEDGER_NAME = "ledger.jsonl"


class LedgerRecord(NamedTuple):
    kind: str
    at_ms: int
    data: dict[str, Any]


class Ledger:
    """The ledger of a store. A line whose checksum is wrong is no record; `damage` names it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.path = folder / LEDGER_NAME

    def append(self, kind: str, data: dict[str, Any]) -> None:
        """Add a record; it is on the disk when this returns."""
        line = _line(LedgerRecord(kind, now_ms(), data))
        with write_lock(self._folder):
            is_new = not self.path.exists()
            fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            try:
                os.write(fd, line)
                os.fsync(fd)
            finally:
                os.close(fd)
            if is_new:
                sync(self._folder)

    def records(self) -> Iterator[LedgerRecord]:
        return (record for _, record in self._lines() if record is not None)

    def damage(self) -> list[str]:
        """Lines that are not as they were written, in words."""
        return [f"{LEDGER_NAME} line {number} is damaged" for number, record in self._lines() if record is None]

    def rewrite(self, keep: Callable[[LedgerRecord], bool]) -> None:
        """Write the ledger anew with the records to keep; damaged lines are left out."""
        with write_lock(self._folder):
            replace_file(self.path, b"".join(_line(record) for record in self.records() if keep(record)))

    def _lines(self) -> Iterator[tuple[int, LedgerRecord | None]]:
        content = self.path.read_bytes() if self.path.exists() else b""
        for number, line in enumerate(content.splitlines(), start=1):
            yield number, _record(line)


def _line(record: LedgerRecord) -> bytes:
    told = record._asdict()
    return orjson.dumps(told | {"sum": _sum(told)}) + b"\n"


def _record(line: bytes) -> LedgerRecord | None:
    try:
        told = orjson.loads(line)
        return LedgerRecord(**told) if told.pop("sum") == _sum(told) else None
    except (orjson.JSONDecodeError, AttributeError, KeyError, TypeError):
        return None


def _sum(told: dict[str, Any]) -> str:
    return blake2b(orjson.dumps(told, option=orjson.OPT_SORT_KEYS), digest_size=8).hexdigest()
