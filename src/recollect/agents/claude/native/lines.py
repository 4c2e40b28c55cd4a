"""Reading and writing entries: one JSON object per line, every key kept, a line complete or absent."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

Entry = dict[str, Any]


def iter_entries(path: Path) -> Iterator[Entry]:
    """The entries of a file in their order; a line that is damaged, or still being written, is left out."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return
    for line in content.split(b"\n"):  # never splitlines: texts hold other separators
        yield from _parse(line)


def _parse(line: bytes) -> Iterator[Entry]:
    """The objects of a line: a record after a torn write may share its line."""
    text, offset = line.decode("utf-8", "replace").strip(), 0
    while offset < len(text):
        try:
            value, offset = _DECODER.raw_decode(text, offset)
        except (ValueError, RecursionError):
            return
        if isinstance(value, dict):
            yield value


_DECODER = json.JSONDecoder()


def dump(entry: Entry) -> bytes:
    """An entry as one line."""
    text = json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode() + b"\n"
    except UnicodeEncodeError:  # half of a pair of surrogates, which only an escape can express
        return json.dumps(entry, separators=(",", ":")).encode() + b"\n"


def append_entries(path: Path, entries: Iterable[Entry]) -> None:
    """Add entries to a file, made if need be, in one write that is on the disk when this returns."""
    content = b"".join(map(dump, entries))
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    with open(fd, "r+b", buffering=0) as file:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            content = b"\n" + content
        written = file.write(content)
        while written < len(content):  # if the disk is full, the next try fails
            written += file.write(content[written:])
        os.fsync(fd)


def replace(path: Path, content: bytes) -> None:
    """Write a file so that a crash leaves the old content or the new one."""
    _write_beside(path, content).replace(path)
    sync(path.parent)


def _write_beside(path: Path, content: bytes) -> Path:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with open(
        os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "wb"
    ) as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    return beside


def sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
