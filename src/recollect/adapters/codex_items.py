"""The finished items of a Codex turn (`item_completed`, and the `…_end` events of older logs)."""

from collections.abc import Iterable
from typing import Any

import msgspec
import orjson

from recollect.adapters import codex_text as text
from recollect.adapters.codex_calls import name_spawn, remember_call, tell_item_result
from recollect.adapters.codex_fold import Fold, native, payload_of, plain, state_key
from recollect.adapters.codex_messages import Message, Reasoning, tell_answer, tell_prompt, tell_reasoning
from recollect.adapters.codex_scripts import find_script, patched_name
from recollect.adapters.commands import as_mapping, media_reference, retry_key, shell_kind, summarise
from recollect.schema import EDIT, LIFECYCLE, OTHER, TOOL_CALL, TOOL_RESULT


class Item(msgspec.Struct):
    """An item of any type; `call_id`, `stdout` and `success` are the older events' words."""

    type: Any = None
    id: Any = None
    call_id: Any = None
    content: Any = None
    phase: Any = None
    text: Any = None
    summary_text: Any = None
    raw_content: Any = None
    command: Any = None
    cwd: Any = None
    parsed_cmd: Any = None
    source: Any = None
    status: Any = None
    success: Any = None
    aggregated_output: Any = None
    exit_code: Any = None
    duration: Any = None
    process_id: Any = None
    changes: Any = None
    stdout: Any = None
    stderr: Any = None
    server: Any = None
    tool: Any = None
    arguments: Any = None
    invocation: Any = None
    result: Any = None
    error: Any = None
    kind: Any = None
    agent_thread_id: Any = None
    agent_path: Any = None
    receiver_thread_ids: Any = None
    new_thread_id: Any = None
    query: Any = None
    action: Any = None
    results: Any = None
    path: Any = None
    saved_path: Any = None
    revised_prompt: Any = None
    content_items: Any = None
    review: Any = None
    fragments: Any = None


# Items that a classic log has said already, as response items.
_CLASSIC_TWINS = {"UserMessage", "AgentMessage", "Reasoning", "Plan"}
_ITEM = msgspec.json.Decoder(Item)


def decode_item(raw: bytes) -> tuple[Item, bytes]:
    """An item and its own bytes, which are kept whole if its type is unknown."""
    return _ITEM.decode(raw), raw


def tell_item(fold: Fold, found: tuple[Item, bytes]) -> None:
    item, raw = found
    name = item.type if isinstance(item.type, str) else ""
    if name in _CLASSIC_TWINS and not fold.state.is_paginated:
        fold.skip(f"item/{name} (twin)")
    elif name in ITEMS:
        ITEMS[name](fold, item)
    else:
        whole, native_id = plain(orjson.loads(raw)), fold.native_id(item.id)
        fold.tell(OTHER, {"native": whole}, summarise(f"item {name}"), native_id=native_id)


def _user_message(fold: Fold, item: Item) -> None:
    parts = text.without_image_marks(text.text_parts(item.content))
    tell_prompt(fold, Message(content=item.content, id=item.id), parts)


def _agent_message(fold: Fold, item: Item) -> None:
    tell_answer(fold, Message(content=item.content, id=item.id, phase=item.phase))


def _plan(fold: Fold, item: Item) -> None:
    tell_answer(fold, Message(content=item.text, id=item.id), plan=True)


def _reasoning(fold: Fold, item: Item) -> None:
    tell_reasoning(fold, Reasoning(summary_text=item.summary_text, raw_content=item.raw_content, id=item.id))


def tell_command(fold: Fold, item: Item) -> None:
    """A command that ended. One of the user's, or of a script, has no call of its own."""
    call_id = _id(fold, item)
    is_user = item.source == "user_shell"
    command = text.shell_command(item.command)
    if is_user or _stands_alone(fold, call_id):
        arguments = native(command=item.command, cwd=item.cwd)
        _tell_call(
            fold,
            call_id,
            "shell" if is_user else "exec_command",
            arguments,
            (shell_kind(command), _describe_command(item, command)),
            role="user" if is_user else "assistant",
            named=(command,),
        )
        fold.state.shells += is_user
    output = item.aggregated_output if isinstance(item.aggregated_output, str) else ""
    code = item.exit_code if type(item.exit_code) is int and abs(item.exit_code) < 2**31 else None
    is_failed = item.status in ("failed", "declined") or bool(code)
    tell_item_result(
        fold,
        call_id,
        payload_of("output", output, native(exit_code=code, status=item.status, duration=item.duration)),
        text.summarise_outcome(output, code, is_failed),
        is_failed=is_failed,
        role="user" if is_user else "tool",
    )


def _id(fold: Fold, item: Item) -> str:
    own = item.call_id if item.call_id is not None else item.id
    return own if isinstance(own, str) and own else fold.here


def _stands_alone(fold: Fold, call_id: str) -> bool:
    """Whether no call was seen for this item: it ran inside a script.

    The id says so too: an item whose call was only forgotten must not make that call a second time.
    """
    return state_key(call_id) not in fold.state.calls and call_id.startswith(("exec-", fold.here))


def _tell_call(
    fold: Fold,
    call_id: str,
    tool: str,
    arguments: Any,
    told: tuple[str, str],
    *,
    role: str = "assistant",
    named: Iterable[str] = (),
) -> None:
    """A call no record of its own tells; `named` is what the script it may lie in says of it."""
    kind, summary = told
    arguments = plain(arguments)
    outer = find_script(fold.state, named or (tool,)) if call_id.startswith("exec-") else None
    fold.tell(
        kind,
        {"input": arguments},
        summary,
        native_id=remember_call(fold, call_id, tool),
        role=role,
        tool=tool,
        call_id=call_id,
        retry_key=retry_key(tool, arguments),
        metadata={"within_call": outer} if outer else None,
        model=fold.state.model if role == "assistant" else None,
        provider=fold.state.provider if role == "assistant" else None,
    )


def _describe_command(item: Item, command: str) -> str:
    parsed = item.parsed_cmd if isinstance(item.parsed_cmd, list) else []
    only = as_mapping(parsed[0]) if len(parsed) == 1 else {}
    if only.get("type") == "read" and isinstance(only.get("name"), str):
        return summarise(f"read {only['name']}")
    return text.summarise_command(command)


def tell_file_change(fold: Fold, item: Item) -> None:
    """Files that a patch changed. The diff is kept where no call holds the patch."""
    call_id = _id(fold, item)
    changes = as_mapping(item.changes)
    if _stands_alone(fold, call_id):
        told = (EDIT, text.summarise_edit([str(path) for path in changes]))
        _tell_call(fold, call_id, "apply_patch", {"changes": changes}, told, named=map(patched_name, changes))
    output = "".join(part for part in (item.stdout, item.stderr) if isinstance(part, str))
    kinds = {path: as_mapping(change).get("type") for path, change in changes.items()}
    is_failed = item.status in ("failed", "declined") or item.success is False
    tell_item_result(
        fold,
        call_id,
        payload_of("output", output, native(status=item.status, changes=kinds)),
        text.summarise_outcome(output, None, is_failed),
        is_failed=is_failed,
    )


def tell_mcp_call(fold: Fold, item: Item) -> None:
    invocation = as_mapping(item.invocation)
    server, tool = item.server or invocation.get("server"), item.tool or invocation.get("tool")
    arguments = item.arguments if item.arguments is not None else invocation.get("arguments")
    name = f"mcp__{server}__{tool}"[:200]
    result = as_mapping(item.result)
    error = item.error or result.get("Err")
    answer = as_mapping(result.get("Ok", result))
    is_failed = bool(error) or answer.get("isError") is True or item.status == "failed"
    _tell_tool(fold, item, name, arguments, error or answer.get("content"), is_failed)


def _dynamic_call(fold: Fold, item: Item) -> None:
    is_failed = item.success is False or item.status == "failed"
    _tell_tool(fold, item, str(item.tool)[:200], item.arguments, item.content_items, is_failed)


def _tell_tool(fold: Fold, item: Item, name: str, arguments: Any, output: Any, is_failed: bool) -> None:
    call_id = _id(fold, item)
    if _stands_alone(fold, call_id):
        _tell_call(fold, call_id, name, arguments, (TOOL_CALL, summarise(f"called {name}")))
    words = text.join_parts(text.text_parts(output))
    media = [
        media_reference("image", part.get("mimeType"), part["data"])
        for part in (output if isinstance(output, list) else ())
        if isinstance(part, dict) and isinstance(part.get("data"), str)
    ]
    fields = native(status=item.status, duration=item.duration)
    tell_item_result(
        fold,
        call_id,
        payload_of("output", words, fields, media),
        text.summarise_outcome(words, None, is_failed),
        is_failed=is_failed,
    )


def tell_web_search(fold: Fold, item: Item) -> None:
    query = item.query or as_mapping(item.action).get("query") or ""
    arguments = native(query=item.query, action=item.action)
    native_id = fold.native_id(item.id or item.call_id)
    fold.tell(
        TOOL_CALL,
        payload_of("input", arguments, native(results=item.results)),
        summarise(f"searched the web: {query}"),
        native_id=native_id,
        tool="web_search",
        call_id=native_id,
        retry_key=retry_key("web_search", arguments),
        copy_key=fold.copy_key("web_search", str(arguments)),
        **fold.assistant(),
    )


def tell_search_results(fold: Fold, item: Item) -> None:
    """What a search found, which only this event of older logs tells."""
    if not item.results:
        fold.skip("event_msg/web_search_end (twin)")
        return
    summary = summarise(f"found: {item.query or ''}")
    payload = {"output": plain(item.results)}
    fold.tell(TOOL_RESULT, payload, summary, role="tool", tool="web_search", status="ok", call_id=_id(fold, item))


def _image_generation(fold: Fold, item: Item) -> None:
    native_id = fold.native_id(item.id or item.call_id)
    media = [media_reference("image", None, item.result)] if isinstance(item.result, str) and item.result else []
    fields = native(status=item.status, saved_path=item.saved_path)
    fold.tell(
        TOOL_CALL,
        payload_of("input", native(prompt=item.revised_prompt), fields, media),
        summarise(f"made an image: {item.revised_prompt or ''}"),
        native_id=native_id,
        tool="image_generation",
        call_id=native_id,
        **fold.assistant(),
    )


def _image_view(fold: Fold, item: Item) -> None:
    call_id = _id(fold, item)
    if _stands_alone(fold, call_id):
        told = (TOOL_CALL, summarise(f"looked at {item.path}"))
        _tell_call(fold, call_id, "view_image", native(path=item.path), told)
    else:
        fold.skip("item/ImageView (twin)")


def _collab_call(fold: Fold, item: Item) -> None:
    """A call to another agent: told by the call and its output; here is who was spawned."""
    call_id = _id(fold, item)
    threads = item.receiver_thread_ids if isinstance(item.receiver_thread_ids, list) else []
    if item.tool in ("spawn_agent", "spawnAgent"):
        for thread in threads:
            name_spawn(fold, thread, call_id)
    if _stands_alone(fold, call_id):
        told = (TOOL_CALL, summarise(f"called {item.tool}"))
        _tell_call(fold, call_id, str(item.tool)[:200], {"receiver_thread_ids": threads}, told)
    else:
        fold.skip("item/CollabAgentToolCall (twin)")


def tell_spawn_end(fold: Fold, item: Item) -> None:
    name_spawn(fold, item.new_thread_id, item.call_id)
    fold.skip("event_msg/collab_agent_spawn_end")


def _sub_agent_activity(fold: Fold, item: Item) -> None:
    if item.kind == "started":
        name_spawn(fold, item.agent_thread_id, item.id)
    fields = native(id=item.id, kind=item.kind, agent_thread_id=item.agent_thread_id, agent_path=item.agent_path)
    summary = summarise(f"sub-agent {item.agent_path or ''} {item.kind or ''}")
    # The id of a start is the spawning call's: then the event is named by its place in the log.
    native_id = fold.here if state_key(_id(fold, item)) in fold.state.calls else fold.native_id(item.id)
    fold.tell(LIFECYCLE, {"text": summary, "native": fields}, summary, native_id=native_id, role="system")


def _note(summary: str) -> Any:
    def tell(fold: Fold, item: Item) -> None:
        words = item.review if isinstance(item.review, str) else text.join_parts(text.text_parts(item.fragments))
        payload = payload_of("text", words or summary, native(id=item.id, type=item.type))
        fold.tell(LIFECYCLE, payload, summary, native_id=fold.native_id(item.id), role="system")

    return tell


ITEMS = {
    "UserMessage": _user_message,
    "AgentMessage": _agent_message,
    "Plan": _plan,
    "Reasoning": _reasoning,
    "CommandExecution": tell_command,
    "FileChange": tell_file_change,
    "McpToolCall": tell_mcp_call,
    "DynamicToolCall": _dynamic_call,
    "WebSearch": tell_web_search,
    "ImageView": _image_view,
    "ImageGeneration": _image_generation,
    "CollabAgentToolCall": _collab_call,
    "SubAgentActivity": _sub_agent_activity,
    "ContextCompaction": _note("context compacted"),
    "HookPrompt": _note("a hook spoke"),
    "EnteredReviewMode": _note("review started"),
    "ExitedReviewMode": _note("review ended"),
}
