"""The two small files beside Codex's rollouts: titles and typed prompts."""

from collections.abc import Iterator
from typing import Any

import msgspec

from recollect.adapters.codex_fold import MALFORMED
from recollect.adapters.commands import summarise
from recollect.adapters.jsonl import KEPT_BAD_BYTES, LineReader, salvage
from recollect.adapters.protocol import BadLine, Cursor, EventRecord, Record, SessionInfo, Source
from recollect.schema import HISTORY_LANE, PROMPTS_ONLY, USER_MSG
from recollect.text import cut_short

KEPT_SESSIONS = 200
TITLE_CHARS = 500


class Title(msgspec.Struct):
    id: str
    thread_name: str


class Prompt(msgspec.Struct):
    session_id: str
    text: str
    ts: int


def read_titles(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Names of threads; the last one told of a thread holds."""
    reader = LineReader(source, cursor)
    for line in reader:
        for title in _decode(line, Title):
            if isinstance(title, BadLine):
                yield title
            elif title.id and title.thread_name.strip():
                yield SessionInfo(title.id, title=cut_short(title.thread_name.strip(), TITLE_CHARS), title_rank=2)
    yield from reader.too_long
    yield reader.checkpoint({})


def read_prompts(source: Source, cursor: Cursor | None) -> Iterator[Record]:
    """Prompts typed in the terminal, kept by Codex beyond the life of the rollouts.

    Codex may cut the file's old end off, so nothing here is named by its offset.
    """
    reader = LineReader(source, cursor)
    # Per session the second of its last prompt and how many were typed in it.
    last: dict[str, list[int]] = dict(reader.state.get("last", {}))
    for line in reader:
        for prompt in _decode(line, Prompt):
            if isinstance(prompt, BadLine):
                yield prompt
            elif prompt.text.strip() and 0 < prompt.ts < 2**38 and len(prompt.session_id) <= 128:
                yield from _prompt(prompt, last)
        if reader.is_due:
            yield reader.checkpoint({"last": dict(last)})
    yield from reader.too_long
    yield reader.checkpoint({"last": dict(last)})


def _prompt(prompt: Prompt, last: dict[str, list[int]]) -> Iterator[Record]:
    session, ts = prompt.session_id, prompt.ts
    before = last.pop(session, None)
    number = before[1] + 1 if before and before[0] == ts else 0
    last[session] = [ts, number]
    if len(last) > KEPT_SESSIONS:
        del last[next(iter(last))]
    if before is None:
        yield SessionInfo(session, session_class=PROMPTS_ONLY)
    yield EventRecord(
        session,
        f"history:{ts}:{number}",
        ts * 256 + min(number, 255),
        ts * 1000,
        USER_MSG,
        {"text": prompt.text},
        summarise(prompt.text),
        lane=HISTORY_LANE,
        role="user",
    )


def _decode(line: tuple[int, int, bytes], shape: type[Any]) -> Iterator[Any]:
    number, offset, raw = line
    try:
        yield msgspec.json.decode(raw, type=shape)
        return
    except MALFORMED:
        found = salvage(raw)
    reason = found.bad
    for record in found.records:
        try:
            yield msgspec.convert(record, shape)
        except msgspec.ValidationError:
            reason = "no record"
    if reason:
        yield BadLine(number, offset, reason, raw[:KEPT_BAD_BYTES])
