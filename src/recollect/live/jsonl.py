"""Sessions as JSON lines: the shape that docs/agent-hosts.md defines, and older ones that hosts have.

A file is a session. Its first line may describe the session; every other line is a message. The file that is written
here is derived from the store, line by line, so that it can be made again at any time.
"""

import fcntl
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import orjson

from recollect.agentkit.files import open_beneath
from recollect.agentkit.lines import LINE_LIMIT_BYTES
from recollect.agentkit.values import as_id, parse_time_ms, short_hash
from recollect.live.records import LiveSession, Message

SUFFIX = ".jsonl"
_TAIL_BYTES = 64 * 1024
_TIMES = ("timestamp", "ts", "created_at", "time")


@dataclass(slots=True)
class Line:
    """A message of a file."""

    id: str
    role: str
    content: Any
    at: datetime | None = None
    fields: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class SessionFile:
    """What a file holds. `session_uid` is the session that it was derived from; an older file has none."""

    path: Path
    key: str
    facts: dict[str, Any] = field(default_factory=dict)
    session_uid: str | None = None
    lines: list[Line] = field(default_factory=list)
    bad_lines: int = 0


def path_of(folder: Path, key: str) -> Path:
    """The file of a session: its key, with everything escaped that a file name cannot have."""
    return folder / f"{quote(key, safe='@+,')}{SUFFIX}"


def read_file(path: Path, root: Path | None = None) -> SessionFile:
    """All that can be read of a file below `root` (its own folder); lines that are no messages are counted.

    Raises SourceUnreadable for a link, a device, a pipe or another user's file.
    """
    found = SessionFile(path, unquote(path.name.removesuffix(SUFFIX)))
    with open(open_beneath(root or path.parent, path), "rb") as file:
        _read_lines(found, iter(lambda: file.readline(LINE_LIMIT_BYTES), b""))
    return found


def _read_lines(found: SessionFile, lines: Iterator[bytes]) -> None:
    for number, raw in enumerate(lines):
        if not raw.strip():
            continue
        try:
            record = orjson.loads(raw)
        except orjson.JSONDecodeError:
            record = None
        if not isinstance(record, dict):
            found.bad_lines += 1
        elif "role" not in record:
            _describe(found, record, is_first=number == 0)
        elif (line := _line(record, found.key, number, raw)) is not None:
            found.lines.append(line)
        else:
            found.bad_lines += 1


def _describe(found: SessionFile, record: Mapping[str, Any], *, is_first: bool) -> None:
    if not is_first and record.get("type") not in ("session", None):
        found.bad_lines += 1
        return
    found.key = record.get("key") if isinstance(record.get("key"), str) else found.key  # type: ignore[assignment]
    found.session_uid = record.get("session_uid")
    texts = ("channel", "chat_id", "user_id", "character_id", "title")
    found.facts |= {name: str(record[name]) for name in texts if record.get(name)}
    if isinstance(record.get("metadata"), dict):
        found.facts["metadata"] = record["metadata"]


def _line(record: dict[str, Any], key: str, number: int, raw: bytes) -> Line | None:
    role, content = record.get("role"), record.get("content")
    if not isinstance(role, str) or content is None:
        return None
    times = (moment for name in _TIMES if (moment := _moment(record.get(name))) is not None)
    # Without an id of its own a message is known by its place and its words: the same file gives the same ids.
    name = as_id(record.get("id")) or f"jsonl:{short_hash(key, str(number), raw.decode('utf-8', 'replace'))}"
    known = ("content_type", "provider", "model", "tokens", "metadata")
    fields = {field: value for field in known if (value := record.get(field))}
    return Line(name, role, content, next(times, None), fields)


def _moment(value: Any) -> datetime | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value_ms = round(value * (1 if value > 1e11 else 1000))
    else:
        value_ms = parse_time_ms(value) or 0
        if not value_ms and isinstance(value, str):
            return _local(value)
    try:
        return datetime.fromtimestamp(value_ms / 1000).astimezone() if value_ms > 0 else None
    except (OverflowError, OSError, ValueError):
        return None


def _local(text: str) -> datetime | None:
    """A time as Python writes it, without a zone: the host's own."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        return None


def header(session: LiveSession) -> bytes:
    names = ("key", "session_uid", "channel", "chat_id", "user_id", "character_id", "title", "created_at")
    facts = {name: value for name in names if (value := getattr(session, name)) is not None}
    return _encoded({"type": "session", **facts, "metadata": dict(session.metadata)})


def line_of(message: Message) -> bytes:
    names = ("content_type", "model", "provider")
    more = {name: value for name in names if (value := getattr(message, name)) is not None}
    more |= {name: dict(value) for name in ("tokens", "metadata") if (value := getattr(message, name))}
    fields = {"type": "message", "id": message.id, "role": message.role, "content": message.content}
    return _encoded({**fields, "timestamp": message.ts, **more})


def _encoded(record: Mapping[str, Any]) -> bytes:
    return orjson.dumps(record) + b"\n"


def write_file(path: Path, session: LiveSession, messages: Iterable[Message]) -> None:
    """Derive a whole file from the store; it is complete, or as it was."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with beside.open("wb") as file:
        file.write(header(session))
        file.writelines(map(line_of, messages))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(path)


@contextmanager
def appending(path: Path) -> Iterator["Tail"]:
    """The end of a file to append to, while no other process does."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield Tail(fd)
    finally:
        os.close(fd)


class Tail:
    """The last lines of a file. A line that its writer did not finish is cut off: the store has the message."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        size = os.fstat(fd).st_size
        start = max(0, size - _TAIL_BYTES)
        data = os.pread(fd, size - start, start)
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data) and _is_torn(data[len(whole) :]):
            size -= len(data) - len(whole)
            os.ftruncate(fd, size)
            data = whole
        self._size, self._needs_end = size, bool(data) and not data.endswith(b"\n")
        self.is_empty = size == 0
        lines = data.split(b"\n")[1 if start else 0 :]
        records = [record for line in lines if line.strip() and isinstance(record := _parsed(line), dict)]
        self.ids = [record["id"] for record in records if isinstance(record.get("id"), str)]
        self.session_uid = next((record.get("session_uid") for record in records if "role" not in record), None)

    def add(self, lines: bytes) -> None:
        if lines:
            os.pwrite(self._fd, b"\n" * self._needs_end + lines, self._size)
            os.fsync(self._fd)


def _is_torn(line: bytes) -> bool:
    """Whether a last line without its end was cut; other hosts may end a file without one."""
    return _parsed(line) is None


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None
