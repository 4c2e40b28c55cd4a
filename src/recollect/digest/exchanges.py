"""A session cut into exchanges: a request with everything until the next one, filtered to what is worth reading again.

What people and agents said is kept in full; a call is its name and arguments with one line of what came back, or with
no `max_result_chars` one line with its result: `Action: Read(a.py) → Success (2,134 lines)`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import orjson

from recollect.digest import ExchangeRules
from recollect.digest.texts import as_text, clean, estimate_tokens, input_text, one_line, payload_text, shortened
from recollect.model import schema
from recollect.model.clock import AsDatetime, rfc3339
from recollect.model.kinds import KIND_FAMILY
from recollect.store import Step

_CALLS = KIND_FAMILY[schema.TOOL_CALL]
_ABOUT_CHARS = 100  # of what a call is about, and of what a user decided, where results are left out
_SPOKEN = (schema.ASSISTANT_MSG, schema.COMPLETION)
_RESULTS = (schema.TOOL_RESULT, schema.ERROR, schema.DECISION, schema.HUMAN_INTERVENTION)
_TRACE_STARTS = ("Traceback (most recent call last)", "Stack trace", "stack backtrace", "goroutine ")

Payload = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Exchange:
    """A part of an exchange, filtered. `tokens` are of `body`, `raw_tokens` of all it stands for; both are estimates.

    Long exchanges are split between events: `part` of `parts`. `is_copy`: copied from another session as a whole.
    """

    session_uid: str
    number: int
    part: int
    parts: int
    started_at: str | None
    event_uids: tuple[str, ...]
    is_copy: bool
    is_abandoned: bool
    tokens: int
    raw_tokens: int
    body: str

    started = AsDatetime("started_at")


@dataclass(slots=True)
class _Piece:
    """One event of an exchange: its words, if it has any left, and what it took before."""

    step: Step
    text: str
    tokens: int
    raw_tokens: int


def cut(
    session_uid: str, steps: Iterable[tuple[Step, Payload]], rules: ExchangeRules, number: int = 0
) -> Iterator[Exchange]:
    """The exchanges of a session, from its events in reading order with their payloads; `number` came before them."""
    pieces: list[_Piece] = []
    called: dict[str, Step] = {}
    actions: dict[str, _Piece] = {}  # that wait for their results
    for step, payload in steps:
        if step.kind == schema.USER_MSG and any(piece.text for piece in pieces):
            number += 1
            yield from _parts(session_uid, number, pieces, rules)
            pieces, actions = [], {}
        piece = _piece(step, payload, called, rules)
        if step.call_id and step.kind in _CALLS:
            called[step.call_id] = step
            actions |= {step.call_id: piece} if piece.text else {}
        elif not rules.max_result_chars and piece.text and (action := actions.pop(step.call_id or "", None)):
            action.text = f"{action.text} → {piece.text}"
            action.tokens, piece.text, piece.tokens = estimate_tokens(action.text), "", 0
        pieces.append(piece)
    if any(piece.text for piece in pieces):
        yield from _parts(session_uid, number + 1, pieces, rules)


def _piece(step: Step, payload: Payload, called: Mapping[str, Step], rules: ExchangeRules) -> _Piece:
    raw = next((payload[name] for name in ("text", "input", "output") if name in payload), "")
    text = clean(_words(step, payload, called, rules))
    return _Piece(step, text, estimate_tokens(text), estimate_tokens(as_text(raw)))


def _words(step: Step, payload: Payload, called: Mapping[str, Step], rules: ExchangeRules) -> str:
    """What is kept of an event; nothing for notes of the agent's own machinery."""
    if step.kind == schema.USER_MSG:
        return f"User: {payload_text(payload) or step.summary}"
    if step.kind in _SPOKEN:
        return f"Agent: {payload_text(payload) or step.summary}"
    if step.kind == schema.THINKING:
        return f"Reasoning: {payload_text(payload)}" if rules.keep_reasoning and payload_text(payload) else ""
    if step.kind in _CALLS and step.role != "system":
        return _call(step, payload, rules) if rules.keep_tool_calls else ""
    if step.kind in _RESULTS or step.kind == schema.RETRY:
        is_of_call = step.call_id is not None and step.kind == schema.TOOL_RESULT
        return "" if is_of_call and not rules.keep_tool_calls else _result(step, payload, called, rules)
    return ""


def _call(step: Step, payload: Payload, rules: ExchangeRules) -> str:
    who = "User ran" if step.role == "user" else "Call" if rules.max_result_chars else "Action"
    given = payload.get("input") if rules.max_result_chars else input_text(payload)
    chars = rules.max_result_chars or _ABOUT_CHARS
    if isinstance(given, Mapping):
        about = ", ".join(f"{name}={_argument(value, chars)}" for name, value in given.items())
    else:
        about = shortened(as_text(given), chars) if given else ""
    return f"{who}: {step.tool or 'tool'}({about})"


def _argument(value: Any, chars: int) -> str:
    """An argument in a line; a long one (a file's new content) as its beginning and its size."""
    text = value if isinstance(value, str) else orjson.dumps(value).decode("utf-8", "replace")
    if len(text) <= chars:
        return one_line(text)
    return f"{shortened(text, chars // 2)} [{_size(text)}]"


def _result(step: Step, payload: Payload, called: Mapping[str, Step], rules: ExchangeRules) -> str:
    if step.kind in (schema.ERROR, schema.RETRY):
        return f"Error: {_error(step, payload_text(payload), rules.max_error_chars)}"
    if step.kind == schema.DECISION:
        return f"User decided: {shortened(step.summary, rules.max_result_chars or _ABOUT_CHARS)}"
    if step.kind == schema.HUMAN_INTERVENTION:
        return f"User stopped it: {shortened(step.summary, rules.max_result_chars or _ABOUT_CHARS)}"
    if not rules.max_result_chars:
        return f"Success ({_size(payload_text(payload)).partition(', ')[0]})"
    output, call = payload_text(payload), called.get(step.call_id or "")
    if len(output) <= rules.max_result_chars:
        return f"Result: {one_line(output) or 'no output'}"
    size = _size(output)  # and of a test run the last line, where the count stands
    if call is not None and call.kind == schema.TEST_RUN:
        size = shortened(f"{size}: {output.rstrip().rpartition(chr(10))[2]}", rules.max_result_chars)
    return f"Result: {size}"


def _size(text: str) -> str:
    count, size = text.count("\n") + 1, len(text.encode("utf-8", "replace"))
    lines = "1 line" if count == 1 else f"{count:,} lines"
    return f"{lines}, {size:,} B" if size < 1000 else f"{lines}, {size / 1000:,.0f} KB"


def _error(step: Step, output: str, chars: int) -> str:
    """What went wrong, and the first place of the trace if there is one."""
    lines, summary = output.splitlines(), one_line(step.summary)
    frames = (below for line, below in pairwise(lines) if any(mark in line for mark in _TRACE_STARTS))
    frame = one_line(next(frames, ""))
    return shortened(f"{summary} | {frame}" if frame else summary, chars)


def _parts(session_uid: str, number: int, pieces: Sequence[_Piece], rules: ExchangeRules) -> Iterator[Exchange]:
    parts = _split(pieces, rules.max_tokens)
    is_copy = all(piece.step.copy_of is not None for piece in pieces)
    is_abandoned = pieces[0].step.is_abandoned
    for index, part in enumerate(parts, 1):
        body = "\n".join(piece.text for piece in part if piece.text)
        yield Exchange(
            session_uid=session_uid,
            number=number,
            part=index,
            parts=len(parts),
            started_at=rfc3339(next((piece.step.ts_ms for piece in part if piece.step.ts_ms), None)),
            event_uids=tuple(piece.step.uid for piece in part),
            is_copy=is_copy,
            is_abandoned=is_abandoned,
            tokens=estimate_tokens(body),
            raw_tokens=sum(piece.raw_tokens for piece in part),
            body=body,
        )


def _shortened(piece: _Piece, max_tokens: int) -> Iterator[_Piece]:
    """An event in pieces of at most so many tokens, cut at blanks; the first one counts what it took before."""
    text, raw_tokens = piece.text, piece.raw_tokens
    while (tokens := estimate_tokens(text)) > max_tokens:
        size = max(1, len(text) * max_tokens // tokens)
        while size > 1 and estimate_tokens(text[:size]) > max_tokens:
            size -= size // 10 or 1
        blank = max(text.rfind(" ", size // 2, size), text.rfind("\n", size // 2, size))
        size = blank + 1 or size
        yield _Piece(piece.step, text[:size], estimate_tokens(text[:size]), raw_tokens)
        text, raw_tokens = text[size:], 0
    yield _Piece(piece.step, text, tokens, raw_tokens)


def _split(pieces: Sequence[_Piece], max_tokens: int) -> list[list[_Piece]]:
    """Cut between events, and within one that is longer by itself."""
    parts: list[list[_Piece]] = [[]]
    tokens = 0
    for piece in (short for whole in pieces for short in _shortened(whole, max_tokens)):
        if tokens and tokens + piece.tokens > max_tokens:
            parts.append([])
            tokens = 0
        parts[-1].append(piece)
        tokens += piece.tokens
    return parts
