"""Messages, reasoning and turns of a Codex rollout.

Logs before the paginated ones tell a text twice. The `response_item` is taken for what the agent says and
thinks: it is there in every generation, also where a short session has no `event_msg` at all. A prompt is
taken from whichever of the two comes first, and the other is its twin: neither is always there.
"""

from typing import Any

import msgspec

from recollect.adapters import codex_text as text
from recollect.adapters.codex_fold import KEPT_ECHOES, KEPT_PROMPTS, Fold, native, payload_of
from recollect.adapters.commands import as_mapping, positive_int, shell_kind, summarise
from recollect.adapters.protocol import Usage
from recollect.schema import (
    ASSISTANT_MSG,
    ERROR,
    HUMAN_INTERVENTION,
    LIFECYCLE,
    RETRY,
    THINKING,
    TOOL_RESULT,
    USER_MSG,
)


class Message(msgspec.Struct):
    role: Any = None
    content: Any = None
    id: Any = None
    phase: Any = None
    author: Any = None
    recipient: Any = None
    internal_chat_message_metadata_passthrough: Any = None


class Reasoning(msgspec.Struct):
    summary: Any = None
    summary_text: Any = None
    content: Any = None
    raw_content: Any = None
    id: Any = None


class Notice(msgspec.Struct):
    """A record of the harness about a turn, an error or a setting."""

    turn_id: Any = None
    message: Any = None
    reason: Any = None
    error: Any = None
    codex_error_info: Any = None
    duration_ms: Any = None
    num_turns: Any = None
    thread_name: Any = None
    window_id: Any = None
    window_number: Any = None
    previous_window_id: Any = None
    images: Any = None
    local_images: Any = None


def tell_message(fold: Fold, item: Message) -> None:
    if item.role == "assistant":
        if fold.state.is_paginated:
            fold.skip("response_item/message assistant (twin)")
        else:
            tell_answer(fold, item)
    elif item.role == "user":
        _tell_user_message(fold, item)
    else:
        fold.skip("response_item/message developer")


def tell_answer(fold: Fold, item: Message, **metadata: Any) -> None:
    """The agent's text."""
    words = text.join_parts(text.text_parts(item.content))
    if not words.strip():
        fold.skip("empty")
        return
    fold.tell(
        ASSISTANT_MSG,
        payload_of("text", words, native(id=item.id, phase=item.phase)),
        summarise(words),
        native_id=fold.native_id(item.id),
        copy_key=fold.copy_key("assistant", words),
        metadata=metadata or None,
        **fold.assistant(),
    )


def _tell_user_message(fold: Fold, item: Message) -> None:
    parts = text.without_image_marks(text.text_parts(item.content))
    if parts and parts[0].lstrip().startswith(text.USER_SHELL):
        _tell_user_shell(fold, item, parts[0])
    elif _is_prompt(item, parts):
        if fold.state.is_paginated:
            fold.skip("response_item/message user (twin)")
        elif not _is_echo(fold, "event", "item", [text.join_parts(parts), *parts]):
            tell_prompt(fold, item, parts)
        else:
            fold.skip("response_item/message user (twin)")
    else:
        _tell_context(fold, item, parts)


def _is_prompt(item: Message, parts: list[str]) -> bool:
    kinds = as_mapping(item.internal_chat_message_metadata_passthrough).get("content_item_kinds")
    if isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds):
        return any(kind.startswith("user.") for kind in kinds)
    return not parts or not all(text.is_injected(part) for part in parts)


def tell_prompt(fold: Fold, item: Message, parts: list[str]) -> None:
    """A request: typed, sent by a script, or by the parent to a sub-agent."""
    words = text.join_parts(parts)
    media, addresses = text.find_media(item.content)
    if not words.strip() and not media and not addresses:
        fold.skip("empty")
        return
    fields = native(id=item.id, images=addresses or None, author=item.author, recipient=item.recipient)
    fold.tell(
        USER_MSG,
        payload_of("text", words, fields, media),
        summarise(words) or "an image",
        native_id=fold.native_id(item.id),
        role="user",
        copy_key=fold.copy_key("user", words),
    )
    prompts = fold.state.prompts
    prompts.append(fold.position)
    del prompts[:-KEPT_PROMPTS]


def _is_echo(fold: Fold, other: str, own: str, texts: list[str]) -> bool:
    """Whether the other lane has told this prompt; if not, remember it for its twin."""
    hashes = [text.short_hash(words.strip()) for words in texts[:8]]
    echoes = fold.state.echoes
    for index, (lane, *told) in enumerate(echoes):
        if lane == other and not set(told).isdisjoint(hashes):
            del echoes[index]
            return True
    echoes.append([own, *hashes])
    del echoes[:-KEPT_ECHOES]
    return False


def _tell_context(fold: Fold, item: Message, parts: list[str]) -> None:
    """Text the harness put into the user's mouth: never a turn."""
    words = text.join_parts(parts)
    for part in parts:
        _learn(fold, part)
    if fold.state.is_paginated:
        # Its items are the lane of such a log; this is only what the model was sent.
        fold.skip("response_item/message user (context)")
        return
    fold.tell(
        LIFECYCLE,
        payload_of("text", words, native(id=item.id)),
        summarise(words),
        native_id=fold.native_id(item.id),
        role="system",
        copy_key=fold.copy_key("context", words),
    )


def _learn(fold: Fold, part: str) -> None:
    cwd = text.find_cwd(part) if part.startswith("<environment_context>") else None
    if cwd and fold.state.cwd is None:
        fold.state.cwd = text.short_hash(cwd)
        fold.inform(cwd=cwd)
    learn_instructions(fold, text.find_instructions(part))


def learn_instructions(fold: Fold, found: dict[str, str] | None) -> None:
    if found and fold.state.instructions != found["sha256"]:
        fold.state.instructions = found["sha256"]
        fold.inform(instructions=(found,))


def _tell_user_shell(fold: Fold, item: Message, words: str) -> None:
    """The user's own command, where no item has told it."""
    if fold.state.shells:
        fold.state.shells -= 1
        fold.skip("response_item/message user (twin)")
        return
    command = (text.between(words, "<command>\n", "\n</command>") or "").strip()
    result = text.between(words, "<result>\n", "\n</result>") or ""
    outcome = text.parse_outcome(result)
    native_id, key = fold.native_id(item.id), fold.copy_key("shell", words)
    shared: dict[str, Any] = {
        "native_id": native_id,
        "role": "user",
        "tool": "shell",
        "call_id": native_id,
        "copy_key": key,
    }
    fold.tell(shell_kind(command), {"input": {"command": command}}, text.summarise_command(command), **shared)
    fold.tell(
        ERROR if outcome.is_failed else TOOL_RESULT,
        payload_of("output", outcome.body, native(exit_code=outcome.exit_code)),
        text.summarise_outcome(outcome.body, outcome.exit_code, outcome.is_failed),
        block=1,
        status="failed" if outcome.is_failed else "ok",
        is_error=outcome.is_failed,
        parent_native_id=native_id,
        **shared,
    )


def tell_user_event(fold: Fold, notice: Notice) -> None:
    """`event_msg/user_message`: a prompt, unless its `response_item` has told it."""
    words = notice.message if isinstance(notice.message, str) else ""
    if _is_echo(fold, "item", "event", [words]):
        fold.skip("event_msg/user_message (twin)")
        return
    images = [image for group in (notice.images, notice.local_images) if isinstance(group, list) for image in group]
    content = [{"image_url": image} for image in images if isinstance(image, str)]
    tell_prompt(fold, Message(content=content), [words])


def tell_agent_message(fold: Fold, item: Message) -> None:
    """A message between agents: a request where it comes from above, else a notice."""
    author, recipient = item.author, item.recipient
    is_request = isinstance(author, str) and isinstance(recipient, str) and recipient.startswith(f"{author}/")
    parts = text.text_parts(item.content)
    if is_request:
        tell_prompt(fold, item, parts)
        return
    words = text.join_parts(parts)
    fields = native(id=item.id, author=author, recipient=recipient)
    payload, native_id = payload_of("text", words, fields), fold.native_id(item.id)
    fold.tell(LIFECYCLE, payload, summarise(words), native_id=native_id, role="system")


def tell_reasoning(fold: Fold, item: Reasoning) -> None:
    """The readable part of the agent's reasoning; an encrypted block alone is no event."""
    parts = text.text_parts(item.summary) or text.text_parts(item.summary_text)
    words = text.join_parts(parts or text.text_parts(item.content) or text.text_parts(item.raw_content))
    if not words.strip():
        fold.skip("reasoning without text")
        return
    fold.tell(
        THINKING,
        payload_of("text", words, native(id=item.id)),
        summarise(words),
        native_id=fold.native_id(item.id),
        copy_key=fold.copy_key("reasoning", words),
        **fold.assistant(),
    )


def tell_notice(fold: Fold, notice: Notice, name: str) -> None:
    """A step of a turn that the harness reports."""
    kind, role, status = LIFECYCLE, "system", None
    summary = NOTICES[name]
    if name == "turn_aborted":
        kind, role, status = HUMAN_INTERVENTION, "user", "interrupted"
    elif name == "error" or (name in ("task_complete", "turn_complete") and notice.error):
        kind, role, status = ERROR, "assistant", "failed"
        summary = summarise(f"failed: {_error_words(notice)}")
    elif name == "stream_error":
        kind, status = RETRY, "retrying"
    words = notice.message if isinstance(notice.message, str) else ""
    fields = native(type=name, **{key: getattr(notice, key) for key in _NOTICE_FIELDS})
    fold.tell(
        kind,
        payload_of("text", words or summary, fields),
        summary if not words or kind == ERROR else summarise(f"{summary}: {words[:400]}"),
        role=role,
        status=status,
        is_error=status in ("failed", "retrying"),
        is_retry=kind == RETRY,
        copy_key=fold.copy_key(name, f"{notice.turn_id}\x1f{words}"),
        metadata=_rolled_back(fold, notice) if name == "thread_rolled_back" else None,
    )


NOTICES = {
    "task_started": "turn started",
    "turn_started": "turn started",
    "task_complete": "turn ended",
    "turn_complete": "turn ended",
    "turn_aborted": "interrupted by the user",
    "error": "failed",
    "stream_error": "the model service failed, trying again",
    "warning": "warning",
    "deprecation_notice": "deprecation notice",
    "thread_rolled_back": "rewound",
    "undo_completed": "undid the last turn",
    "entered_review_mode": "review started",
    "exited_review_mode": "review ended",
    "shutdown_complete": "session ended",
    "compacted": "context compacted",
}
_NOTICE_FIELDS = (
    "turn_id",
    "reason",
    "error",
    "codex_error_info",
    "duration_ms",
    "num_turns",
    "window_id",
    "window_number",
    "previous_window_id",
)


def _error_words(notice: Notice) -> str:
    told = notice.message or as_mapping(notice.error).get("message") or notice.error
    return told[:400] if isinstance(told, str) else "no reason told"


def _rolled_back(fold: Fold, notice: Notice) -> dict[str, Any] | None:
    """The place from which a rewind inside one file leaves events behind: that of the n-th last prompt."""
    number, prompts = positive_int(notice.num_turns), fold.state.prompts
    if not 0 < number <= len(prompts):
        return None
    rewind_to = prompts[-number]
    del prompts[-number:]
    return {"rewind_to": rewind_to}


def count_usage(fold: Fold, usage: Any, usage_id: str) -> None:
    """Tokens of one response; the log counts cached input as input, the schema does not."""
    told = as_mapping(usage)
    figures = {name: positive_int(told.get(name)) for name in _USAGE}
    cached, written = figures["cached_input_tokens"], figures["cache_write_input_tokens"]
    if not any(figures.values()):
        return
    fold.out.append(
        Usage(
            fold.state.thread,
            usage_id,
            fold.ts_ms,
            fold.state.model,
            fold.state.provider,
            max(0, figures["input_tokens"] - cached - written),
            figures["output_tokens"],
            cached,
            written,
            figures["reasoning_output_tokens"],
        )
    )


_USAGE = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


def count_totals(fold: Fold, info: Any) -> None:
    """Tokens since the total told before. A total that falls, or comes first, is a start of its own."""
    state = fold.state
    totals = as_mapping(as_mapping(info).get("total_token_usage"))
    if not totals:
        return
    now = {name: positive_int(totals.get(name)) for name in _USAGE}
    before, state.totals = state.totals, now
    if before == now:
        return
    if before and all(now[name] >= before.get(name, 0) for name in _USAGE):
        spent: Any = {name: now[name] - before.get(name, 0) for name in _USAGE}
    else:
        spent = as_mapping(as_mapping(info).get("last_token_usage")) or now
    count_usage(fold, spent, f"{state.origin}:total:{now['input_tokens']}/{now['output_tokens']}")
