"""Messages, reasoning and turns of a Codex rollout.

Logs before the paginated ones hold each text twice. What the agent says and thinks is read from the `response_item`,
which every generation has, even a short session without any `event_msg`. A prompt is read from whichever comes first,
and the other is its twin: neither is always there.
"""

from typing import Any

from recollect.agentkit.calls import shell_kind
from recollect.agentkit.values import as_list, as_mapping, positive_int, short_hash, summarise, text_in, texts_in
from recollect.agents.codex import text
from recollect.agents.codex.rollout import (
    KEPT_ECHOES,
    KEPT_PROMPTS,
    Item,
    Rollout,
    add_cwd,
    add_instructions,
    native,
    payload_of,
)
from recollect.model import kinds


def add_message(rollout: Rollout, item: Item) -> None:
    if item.role == "assistant":
        if rollout.state.is_paginated:
            rollout.skip("response_item/message assistant (twin)")
        else:
            add_answer(rollout, item)
    elif item.role == "user":
        _add_user_message(rollout, item)
    else:
        rollout.skip("response_item/message developer")


def add_answer(rollout: Rollout, item: Item, **metadata: Any) -> None:
    """The agent's text."""
    words = text_in(item.content)
    if not words.strip():
        rollout.skip("empty")
        return
    rollout.add(
        kinds.ASSISTANT_MSG,
        payload_of("text", words, native(id=item.id, phase=item.phase)),
        summarise(words),
        native_id=rollout.native_id(item.id),
        copy_key=rollout.copy_key("assistant", words),
        metadata=metadata or None,
        role="assistant",
        by_model=True,
    )


def _add_user_message(rollout: Rollout, item: Item) -> None:
    parts = text.without_image_marks(texts_in(item.content))
    if parts and parts[0].lstrip().startswith(text.USER_SHELL):
        _add_user_shell(rollout, item, parts[0])
    elif _is_prompt(item, parts):
        if rollout.state.is_paginated or _is_echo(rollout, "event", "item", ["\n".join(parts), *parts]):
            rollout.skip("response_item/message user (twin)")
        else:
            add_prompt(rollout, item, parts)
    else:
        _add_context(rollout, item, parts)


def _is_prompt(item: Item, parts: list[str]) -> bool:
    kinds = as_mapping(item.internal_chat_message_metadata_passthrough).get("content_item_kinds")
    if isinstance(kinds, list) and kinds and all(isinstance(kind, str) for kind in kinds):
        return any(kind.startswith("user.") for kind in kinds)
    return not parts or not all(text.is_injected(part) for part in parts)


def add_prompt(rollout: Rollout, item: Item, parts: list[str]) -> None:
    """A request: typed, sent by a script, or by the parent to a sub-agent."""
    words = "\n".join(parts)
    media, addresses = text.find_media(item.content)
    if not words.strip() and not media and not addresses:
        rollout.skip("empty")
        return
    prompts = rollout.state.prompts
    if not prompts and text.asks_title(words):
        rollout.add_info(session_class=kinds.WARM_UP)
    request, context = text.split_request(words)
    fields = native(
        id=item.id, images=addresses or None, author=item.author, recipient=item.recipient, context=context or None
    )
    rollout.add(
        kinds.USER_MSG,
        payload_of("text", request, fields, media),
        summarise(request) or "an image",
        native_id=rollout.native_id(item.id),
        role="user",
        copy_key=rollout.copy_key("user", words),
    )
    prompts.append(rollout.position)
    del prompts[:-KEPT_PROMPTS]


def _is_echo(rollout: Rollout, other: str, own: str, texts: list[str]) -> bool:
    """Whether the other lane has had this prompt; if not, remember it for its twin."""
    hashes = [short_hash(words.strip()) for words in texts[:8]]
    echoes = rollout.state.echoes
    for index, (lane, *known) in enumerate(echoes):
        if lane == other and not set(known).isdisjoint(hashes):
            del echoes[index]
            return True
    echoes.append([own, *hashes])
    del echoes[:-KEPT_ECHOES]
    return False


def _add_context(rollout: Rollout, item: Item, parts: list[str]) -> None:
    """Text of the harness in the user's name: never a turn."""
    words = "\n".join(parts)
    for part in parts:
        if part.startswith("<environment_context>"):
            add_cwd(rollout, text.find_cwd(part))
        add_instructions(rollout, text.find_instructions(part))
    if rollout.state.is_paginated:
        # Items are the lane of such a log; this is only what the model was sent.
        rollout.skip("response_item/message user (context)")
        return
    rollout.add(
        kinds.LIFECYCLE,
        payload_of("text", words, native(id=item.id)),
        summarise(words),
        native_id=rollout.native_id(item.id),
        role="system",
        copy_key=rollout.copy_key("context", words),
    )


def _add_user_shell(rollout: Rollout, item: Item, words: str) -> None:
    """The user's own command, unless an item has been read for it."""
    if rollout.state.shells:
        rollout.state.shells -= 1
        rollout.skip("response_item/message user (twin)")
        return
    command = (text.between(words, "<command>\n", "\n</command>") or "").strip()
    result = text.between(words, "<result>\n", "\n</result>") or ""
    outcome = text.parse_outcome(result)
    native_id, copy_key = rollout.native_id(item.id), rollout.copy_key("shell", words)
    shared: Any = {"native_id": native_id, "role": "user", "tool": "shell", "call_id": native_id, "copy_key": copy_key}
    rollout.add(shell_kind(command), {"input": {"command": command}}, text.summarise_command(command), **shared)
    rollout.add(
        kinds.ERROR if outcome.is_failed else kinds.TOOL_RESULT,
        payload_of("output", outcome.body, native(exit_code=outcome.exit_code)),
        text.summarise_outcome(outcome.body, outcome.exit_code, outcome.is_failed),
        block=1,
        status="failed" if outcome.is_failed else "ok",
        parent=native_id,
        **shared,
    )


def add_user_event(rollout: Rollout, notice: Item) -> None:
    """`event_msg/user_message`: a prompt, unless its `response_item` came first."""
    words = text_in(notice.message)
    if _is_echo(rollout, "item", "event", [words]):
        rollout.skip("event_msg/user_message (twin)")
        return
    images = [*as_list(notice.images), *as_list(notice.local_images)]
    content = [{"image_url": image} for image in images if isinstance(image, str)]
    add_prompt(rollout, Item(content=content), [words])


def add_agent_message(rollout: Rollout, item: Item) -> None:
    """A message between agents: a request where it comes from above, else a notice."""
    author, recipient = item.author, item.recipient
    is_request = isinstance(author, str) and isinstance(recipient, str) and recipient.startswith(f"{author}/")
    parts = texts_in(item.content)
    if is_request:
        add_prompt(rollout, item, parts)
        return
    words = "\n".join(parts)
    fields = native(id=item.id, author=author, recipient=recipient)
    payload, native_id = payload_of("text", words, fields), rollout.native_id(item.id)
    rollout.add(kinds.LIFECYCLE, payload, summarise(words), native_id=native_id, role="system")


def add_reasoning(rollout: Rollout, item: Item) -> None:
    """The readable part of the agent's reasoning; an encrypted block alone is no event."""
    # Finished items have the first two, response items the others.
    fields = (item.summary_text, item.raw_content, item.summary, item.content)
    words = "\n".join(next(filter(None, map(texts_in, fields)), []))
    if not words.strip():
        rollout.skip("reasoning without text")
        return
    rollout.add(
        kinds.THINKING,
        payload_of("text", words, native(id=item.id)),
        summarise(words),
        native_id=rollout.native_id(item.id),
        copy_key=rollout.copy_key("reasoning", words),
        role="assistant",
        by_model=True,
    )


def add_title(rollout: Rollout, notice: Item) -> None:
    if isinstance(notice.thread_name, str) and notice.thread_name.strip():
        rollout.add_info(title=notice.thread_name.strip()[:500], title_rank=2)


def add_notice(rollout: Rollout, notice: Item, name: str) -> None:
    """A report of the harness about a turn."""
    kind, role, status = kinds.LIFECYCLE, "system", None
    summary = NOTICES[name]
    if name == "turn_aborted":
        kind, role, status = kinds.HUMAN_INTERVENTION, "user", "interrupted"
    elif name == "error" or (name in ("task_complete", "turn_complete") and notice.error):
        kind, role, status = kinds.ERROR, "assistant", "failed"
        reason = text_in(notice.message) or text_in(as_mapping(notice.error).get("message") or notice.error)
        summary = summarise(f"failed: {reason[:400] or 'no reason given'}")
    elif name == "stream_error":
        kind, status = kinds.RETRY, "retrying"
    words = text_in(notice.message)
    fields = native(type=name, **{key: getattr(notice, key) for key in _NOTICE_FIELDS})
    rollout.add(
        kind,
        payload_of("text", words or summary, fields),
        summary if not words or kind == kinds.ERROR else summarise(f"{summary}: {words[:400]}"),
        role=role,
        status=status,
        copy_key=rollout.copy_key(name, f"{notice.turn_id}\x1f{words}"),
        metadata=_rolled_back(rollout, notice) if name == "thread_rolled_back" else None,
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


def _rolled_back(rollout: Rollout, notice: Item) -> dict[str, Any] | None:
    """The position from which a rewind inside one file leaves events behind: that of the n-th last prompt."""
    number, prompts = positive_int(notice.num_turns), rollout.state.prompts
    if not 0 < number <= len(prompts):
        return None
    rewind_to = prompts[-number]
    del prompts[-number:]
    return {"rewind_to": rewind_to}
