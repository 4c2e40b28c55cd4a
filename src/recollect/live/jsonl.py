"""Sessions as JSON lines: the shape that docs/agent-hosts.md defines, and older ones that hosts have.

A file is a session. Its first line may describe the session; every other line is a message. The file that is written
here is derived from the store, line by line, so that it can be made again at any time. Files that a host already has
are imported explicitly, once, and with a report.
"""

import fcntl
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import orjson

from recollect.agentkit.files import open_beneath
from recollect.agentkit.log import LINE_LIMIT_BYTES
from recollect.agentkit.values import as_id, parse_time_ms, short_hash
from recollect.live.appender import calls_of
from recollect.live.host import Live
from recollect.live.records import FileStatus, ImportReport, LiveSession, Message
from recollect.model.errors import NotFound, SourceUnreadable
from recollect.model.files import written_beside

SUFFIX, KEPT = ".jsonl", ".old"  # what is put behind the name of a file that an older host wrote
_TAIL_BYTES = 64 * 1024
_NAME_BYTES = 180
_TIMES = ("timestamp", "ts", "created_at", "time")
_FIELDS = ("content_type", "provider", "model", "tokens", "metadata")
_NAMED = {"type", "id", "role", "content", *_TIMES, *_FIELDS}


@dataclass(slots=True)
class Line:
    """A message of a file."""

    id: str
    role: str
    content: Any
    at: datetime | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)  # what else it has


@dataclass(slots=True)
class SessionFile:
    """What a file holds. `session_uid` is the session that it was derived from; an older file has none.

    `skipped` are the lines that are no messages, each with its number, the reason, and the message that it follows.
    """

    path: Path
    key: str
    header: dict[str, Any] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
    session_uid: str | None = None
    lines: list[Line] = field(default_factory=list)
    skipped: list[tuple[int, str, str | None, bytes]] = field(default_factory=list)


def path_of(folder: Path, key: str) -> Path:
    """The file of a session: its key, with everything escaped that a file name cannot have."""
    return folder / _file_name(quote(key, safe="@+,"))


def find_path(folder: Path, key: str) -> Path:
    """The file of a session, or the one in which a host that writes `_` for `:` and the like has it."""
    own, older = path_of(folder, key), _older_path(folder, key)
    return older if not own.exists() and _is_of(older, key) else own


def paths_of(folder: Path, key: str) -> list[Path]:
    """All files of a session, with what is left of an older host's."""
    own, older = path_of(folder, key), _older_path(folder, key)
    theirs = [path for path in (older, _kept(older)) if path not in (own, _kept(own)) and _is_of(path, key)]
    return [*(path for path in (own, _kept(own)) if path.exists()), *theirs]


def _kept(path: Path) -> Path:
    return path.with_name(f"{path.name}{KEPT}")


def _older_path(folder: Path, key: str) -> Path:
    return folder / _file_name(re.sub(r'[<>:"/\\|?*]', "_", key))


def _is_of(path: Path, key: str) -> bool:
    return path.is_file() and not path.is_symlink() and read_file(path).key == key


def _file_name(name: str) -> str:
    """A long name is cut and gets a hash: file systems take 255 bytes."""
    data = name.encode()
    short = name if len(data) <= _NAME_BYTES else f"{data[:_NAME_BYTES].decode('utf-8', 'ignore')}~{short_hash(name)}"
    return f"{short}{SUFFIX}"


def _key_of(path: Path) -> str:
    """The key that a file without one in it stands for: `telegram%3A42` and `telegram_42` are telegram:42."""
    name = unquote(path.name.removesuffix(KEPT).removesuffix(SUFFIX))
    return name if ":" in name or "%" in path.name else name.replace("_", ":", 1)


def read_file(path: Path, key: str | None = None, root: Path | None = None) -> SessionFile:
    """All that can be read of a file below `root` (its own folder).

    Its key is the one that it names, else `key`, else that of its own name. Raises SourceUnreadable for a link, a
    device, a pipe or another user's file.
    """
    found = SessionFile(path, key or _key_of(path))
    with open(open_beneath(root or path.parent, path), "rb") as file:
        _read_lines(found, iter(lambda: file.readline(LINE_LIMIT_BYTES), b""))
    return found


def _read_lines(found: SessionFile, lines: Iterator[bytes]) -> None:
    for number, raw in enumerate(line.removesuffix(b"\n") for line in lines):
        if not raw.strip():
            continue
        try:
            record = orjson.loads(raw)
        except orjson.JSONDecodeError:
            record = None
        if isinstance(record, dict) and "role" not in record and (number == 0 or record.get("type") == "session"):
            _describe(found, record)
        elif isinstance(record, dict) and (line := _line(record, found.key, number, raw)) is not None:
            found.lines.append(line)
        else:
            reason = "not JSON" if record is None else "no message"
            found.skipped.append((number + 1, reason, found.lines[-1].id if found.lines else None, raw))


def _describe(found: SessionFile, record: dict[str, Any]) -> None:
    found.header = record
    found.key = record.get("key") if isinstance(record.get("key"), str) else found.key  # type: ignore[assignment]
    found.session_uid = record.get("session_uid")
    texts = ("channel", "chat_id", "user_id", "character_id", "title")
    found.facts |= {name: str(record[name]) for name in texts if record.get(name)}
    if isinstance(record.get("metadata"), dict):
        found.facts["metadata"] = record["metadata"]


def _line(record: dict[str, Any], key: str, number: int, raw: bytes) -> Line | None:
    role, content = record.get("role"), record.get("content")
    if not isinstance(role, str) or (content is None and not any(calls_of(record))):
        return None
    times = (moment for name in _TIMES if (moment := _moment(record.get(name))) is not None)
    # Without an id of its own a message is known by its place and its words: the same file gives the same ids.
    name = as_id(record.get("id")) or f"jsonl:{short_hash(key, str(number), raw.decode('utf-8', 'replace'))}"
    fields = {field: value for field in _FIELDS if (value := record.get(field))}
    extra = {field: value for field, value in record.items() if field not in _NAMED}
    return Line(name, role, content, next(times, None), fields, extra)


def _moment(value: Any) -> datetime | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        value_ms = round(value * (1 if value > 1e11 else 1000))
    else:
        value_ms = parse_time_ms(value) or 0
        if not value_ms and isinstance(value, str):
            with suppress(ValueError):
                return datetime.fromisoformat(value).astimezone()  # as Python writes it, without a zone: the host's own
    try:
        return datetime.fromtimestamp(value_ms / 1000).astimezone() if value_ms > 0 else None
    except (OverflowError, OSError, ValueError):
        return None


def header(session: LiveSession, before: Mapping[str, Any] | None = None) -> bytes:
    """The first line; what another host wrote `before` is kept."""
    names = ("key", "session_uid", "channel", "chat_id", "user_id", "character_id", "title", "created_at")
    facts = {name: value for name in names if (value := getattr(session, name)) is not None}
    return _encoded({**(before or {}), "type": "session", **facts, "metadata": dict(session.metadata)})


def line_of(message: Message) -> bytes:
    names = ("content_type", "model", "provider")
    more = {name: value for name in names if (value := getattr(message, name)) is not None}
    more |= {name: dict(value) for name in ("tokens", "metadata") if (value := getattr(message, name))}
    fields = {"type": "message", "id": message.id, "role": message.role, "content": message.content}
    return _encoded({**fields, **message.extra, "timestamp": message.ts, **more})


def _encoded(record: Mapping[str, Any]) -> bytes:
    return orjson.dumps(record) + b"\n"


def write_file(path: Path, session: LiveSession, messages: Iterable[Message], before: SessionFile | None) -> None:
    """Derive a whole file from the store; it is complete, or as it was. Lines of the file before that are no messages
    stay where they were."""
    kept: dict[str | None, list[bytes]] = defaultdict(list)
    for _, _, follows, raw in before.skipped if before is not None else ():
        kept[follows].append(raw + b"\n")
    with written_beside(path) as fd, open(fd, "wb", closefd=False) as file:
        file.write(header(session, before.header if before is not None else None))
        file.writelines(kept.pop(None, ()))
        for message in messages:
            file.write(line_of(message))
            file.writelines(kept.pop(message.id, ()))
        for lines in kept.values():
            file.writelines(lines)
        file.flush()
        os.fsync(fd)


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
        # A last line without its end was cut, unless it can be read: other hosts may end a file so.
        if len(whole) < len(data) and _parsed(data[len(whole) :]) is None:
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


def _parsed(line: bytes) -> Any:
    try:
        return orjson.loads(line)
    except orjson.JSONDecodeError:
        return None


IN_STEP, FILE_BEHIND, STORE_BEHIND, NOT_IMPORTED = "in step", "file behind", "store behind", "not imported"
_SHOWN_AT_ONCE = 500


class Backfill:
    """Takes files into the store. A message that is stored is left alone, so that doing it again writes nothing."""

    def __init__(self, live: Live) -> None:
        self._live = live

    def run(self, folder: Path, *, dry_run: bool = False) -> ImportReport:
        """Store what only the files of a folder have."""
        report = ImportReport(dry_run)
        waiting: list[str] = []
        for found in self._files(folder, report):
            is_new = self._live.find(found.key) is None
            new = self.take(found, dry_run=dry_run, is_shown=False)
            report.files += 1
            report.sessions_new += is_new and new > 0
            report.messages_new += new
            report.messages_known += len(found.lines) - new
            report.bad_lines += len(found.skipped)
            report.skipped += [(str(found.path), number, reason) for number, reason, _, _ in found.skipped]
            waiting += [found.key] if new and not dry_run else []
            if len(waiting) >= _SHOWN_AT_ONCE:
                self._live.show(waiting)
                waiting = []
        self._live.show(waiting)
        return report

    def _files(self, folder: Path, report: ImportReport) -> Iterator[SessionFile]:
        if not folder.is_dir():
            raise NotFound(f"No such folder: {folder}", "name the folder that holds the `.jsonl` files")
        for path in sorted(folder.rglob(f"*{SUFFIX}")):
            try:
                yield read_file(path, root=folder)
            except (OSError, SourceUnreadable) as error:
                report.failures.append((str(path), getattr(error, "strerror", None) or str(error)))

    def take(self, found: SessionFile, *, dry_run: bool = False, is_shown: bool = True) -> int:
        """Store the messages that only a file has, in one transaction; returns how many."""
        known = self._live.known_ids(found.key)
        lines = [line for line in {line.id: line for line in found.lines}.values() if line.id not in known]
        if lines and not dry_run:
            self._live.append_lines(found.key, lines, found.facts, is_shown=is_shown)
        return len(lines)

    def status(self, folder: Path) -> list[FileStatus]:
        """How far each file is behind the store, or the store behind it."""
        return [self._status(found) for found in self._files(folder, ImportReport(True))]

    def _status(self, found: SessionFile) -> FileStatus:
        in_file = {line.id for line in found.lines}
        session = self._live.find(found.key)
        in_store = {message.id for message in self._live.all_messages(found.key)} if session else set()
        known = self._live.known_ids(found.key)
        only_in_file = len(in_file - known)
        only_in_store = len(in_store - in_file)
        state = STORE_BEHIND if only_in_file else FILE_BEHIND if only_in_store else IN_STEP
        return FileStatus(
            str(found.path),
            found.key,
            NOT_IMPORTED if in_file and not in_file & known else state,
            len(in_file),
            len(in_store),
            only_in_file,
            only_in_store,
            len(found.skipped),
        )
