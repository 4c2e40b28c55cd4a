"""Codex: rollout files, one per thread, below `sessions` and `archived_sessions`."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import orjson

from recollect.adapters.codex_document import read_document
from recollect.adapters.codex_fold import AGENT, MALFORMED, Fold, State
from recollect.adapters.codex_rollout import Unreadable, read_record
from recollect.adapters.codex_side import read_prompts, read_titles
from recollect.adapters.files import iter_files, unreadable_folders
from recollect.adapters.jsonl import KEPT_BAD_BYTES, LineReader, salvage
from recollect.adapters.packed import PackedLineReader
from recollect.adapters.protocol import AgentProfile, BadLine, Cursor, Record, Skipped, Source
from recollect.errors import SourceUnreadable

ROLLOUT, PACKED, DOCUMENT, TITLES, HISTORY = "rollout", "packed rollout", "document", "titles", "history"
_KINDS = {".jsonl": ROLLOUT, ".jsonl.zst": PACKED, ".json": DOCUMENT}
_FOLDERS = ("sessions", "archived_sessions")
_SIDE_FILES = {"session_index.jsonl": TITLES, "history.jsonl": HISTORY}
_NAME = re.compile(r"rollout-.*?([0-9a-f]{8}-[0-9a-f-]{27})(?:_([0-9a-f-]{8,64}))?\.jsonl?(?:\.zst)?")


class CodexAdapter:
    """Reader of `$CODEX_HOME`."""

    agent = AGENT
    home = "~/.codex"
    home_variable = "CODEX_HOME"
    version = 1
    profile = AgentProfile("Codex")

    def discover(self, root: Path) -> Iterator[Source]:
        """Rollouts, the list of titles and the prompt history; credentials are not on the list."""
        folders = [root / name for name in _FOLDERS if (root / name).is_dir()]
        unreadable: list[OSError] = []
        for folder in folders or [root]:
            for path in iter_files(folder, unreadable):
                kind = _kind(path)
                if kind is not None:
                    yield Source(AGENT, kind, root, path, kind != ROLLOUT, session=_thread(path)[0])
        yield from unreadable_folders(AGENT, root, unreadable)
        for name, kind in _SIDE_FILES.items():
            path = root / name
            if path.is_file() and not path.is_symlink():
                yield Source(AGENT, kind, root, path)

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        """Yield what one file tells; see the modules of its kind."""
        if source.kind == DOCUMENT:
            return read_document(source, cursor, _state(source, {}))
        if source.kind == TITLES:
            return read_titles(source, cursor)
        if source.kind == HISTORY:
            return read_prompts(source, cursor)
        return _read_rollout(source, cursor)


def _kind(path: Path) -> str | None:
    """What a file is by its name. Of a packed log and its plain twin both count: either may be broken."""
    name = path.name
    return _KINDS.get(name[name.find(".json") :]) if name.startswith("rollout-") else None


def _state(source: Source, told: dict[str, Any]) -> State:
    if told:
        return msgspec.convert(told, State)
    thread, named = _thread(source.path)
    return State(thread=thread, unit=(named and named[2]) or thread, has_name=named is not None)


def _thread(path: Path) -> tuple[str, re.Match[str] | None]:
    """The thread a rollout is named after, and what its name tells if it is as Codex makes them."""
    named = _NAME.fullmatch(path.name)
    return named[1] if named else Path(path.name.removesuffix(".zst")).stem[:128], named


def _read_rollout(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    reader = PackedLineReader(source, cursor) if source.kind == PACKED else LineReader(source, cursor)
    fold = Fold(_state(source, reader.state))
    for number, offset, raw in reader:
        try:
            read_record(fold, offset, raw)
        except (*MALFORMED, Unreadable):
            _read_damaged(fold, number, offset, raw)
        if fold.out:
            yield from fold.out
            fold.out.clear()
        if reader.is_due:
            yield from _drain_skipped(fold)
            yield reader.checkpoint(msgspec.to_builtins(fold.state))
    yield from _drain_skipped(fold)
    yield from reader.too_long
    yield reader.checkpoint(msgspec.to_builtins(fold.state))
    if reader.failure:
        yield reader.checkpoint({})  # with the next one here, what came before the last one is stored
        raise SourceUnreadable(f"{reader.failure}: {reader.line:,} lines of it could be read")


def _read_damaged(fold: Fold, number: int, offset: int, raw: bytes) -> None:
    """Read what is left of a damaged line; records glued together lie at offsets of their own."""
    found = salvage(raw)
    reason = found.bad
    fold.is_lossy = found.is_lossy
    for index, record in enumerate(found.records):
        try:
            read_record(fold, offset + index, orjson.dumps(record))
        except Unreadable as error:
            reason = str(error)
        except (*MALFORMED, orjson.JSONEncodeError):
            reason = "no record"
    fold.is_lossy = False
    if reason:
        fold.out.append(BadLine(number, offset, reason, raw[:KEPT_BAD_BYTES]))


def _drain_skipped(fold: Fold) -> Iterator[Record]:
    for name, count in fold.skipped.items():
        yield Skipped(name, count)
    fold.skipped.clear()


ADAPTER = CodexAdapter()
