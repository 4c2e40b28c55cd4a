"""The finished items of a Codex turn (`item_completed`, and the `…_end` events of older logs)."""

from collections.abc import Callable, Iterable
from typing import Any

from recollect.agentkit.calls import shell_kind
from recollect.agentkit.values import (
    as_list,
    as_mapping,
    as_text,
    call_key,
    media_reference,
    storable,
    summarise,
    text_in,
    texts_in,
)
from recollect.agents.codex import text
from recollect.agents.codex.calls import add_command_result, add_item_result, name_spawn, remember_call
from recollect.agents.codex.messages import add_answer, add_prompt, add_reasoning
from recollect.agents.codex.rollout import Item, Rollout, native, payload_of, state_key
from recollect.agents.codex.scripts import find_command, find_script, patched_name
from recollect.model.kinds import EDIT, LIFECYCLE, TOOL_CALL, TOOL_RESULT

# Items that a classic log has as response items too.
CLASSIC_TWINS = frozenset({"UserMessage", "AgentMessage", "Reasoning", "Plan"})


def _user_message(rollout: Rollout, item: Item) -> None:
    parts = text.without_image_marks(texts_in(item.content))
    add_prompt(rollout, Item(content=item.content, id=item.id), parts)


def _plan(rollout: Rollout, item: Item) -> None:
    add_answer(rollout, Item(content=item.text, id=item.id), plan=True)


def add_command(rollout: Rollout, item: Item) -> None:
    """A command that ended. One of the user's, or of a script, has no call of its own."""
    call_id = _id(rollout, item)
    is_user = item.source == "user_shell"
    command = text.shell_command(item.command)
    known = find_command(rollout.state, command) if call_id.startswith("exec-") else None
    if known is None and (is_user or _is_alone(rollout, call_id)):
        _add_call(
            rollout,
            call_id,
            "shell" if is_user else "exec_command",
            {name: value for name, value in (("command", item.command), ("cwd", item.cwd)) if value is not None},
            shell_kind(command),
            _describe_command(item, command),
            role="user" if is_user else "assistant",
            named=(command,),
        )
        rollout.state.shells += is_user
    output = text_in(item.aggregated_output) or text_in(item.stdout) + text_in(item.stderr)
    code = item.exit_code if type(item.exit_code) is int and abs(item.exit_code) < 2**31 else None
    is_failed = item.status in ("failed", "declined") or bool(code)
    payload = payload_of("output", output, native(exit_code=code, status=item.status, duration=item.duration))
    summary = text.summarise_outcome(output, code, is_failed)
    if known is not None:
        add_command_result(rollout, *known, payload, summary, is_failed=is_failed)
        return
    add_item_result(
        rollout,
        call_id,
        payload,
        summary,
        is_failed=is_failed,
        role="user" if is_user else "tool",
    )


def _id(rollout: Rollout, item: Item) -> str:
    return as_text(item.call_id if item.call_id is not None else item.id) or rollout.here


def _is_alone(rollout: Rollout, call_id: str) -> bool:
    """Whether the item has no call, because it ran inside a script.

    The id shows that too: an item whose call was only forgotten must not make that call a second time.
    """
    return state_key(call_id) not in rollout.state.calls and call_id.startswith(("exec-", rollout.here))


def _add_call(
    rollout: Rollout,
    call_id: str,
    tool: str,
    arguments: Any,
    kind: str,
    summary: str,
    *,
    role: str = "assistant",
    named: Iterable[str] = (),
) -> None:
    """A call without a record of its own; `named` is how the script that ran it may name it."""
    arguments, retry_key = call_key(tool, arguments)
    outer = find_script(rollout.state, named or (tool,)) if call_id.startswith("exec-") else None
    rollout.add(
        kind,
        {"input": arguments},
        summary,
        native_id=remember_call(rollout, call_id, tool),
        role=role,
        tool=tool,
        call_id=call_id,
        retry_key=retry_key,
        metadata={"within_call": outer} if outer else None,
        by_model=role == "assistant",
    )


def _describe_command(item: Item, command: str) -> str:
    parsed = as_list(item.parsed_cmd)
    only = as_mapping(parsed[0]) if len(parsed) == 1 else {}
    if only.get("type") == "read" and isinstance(only.get("name"), str):
        return summarise(f"read {only['name']}")
    return text.summarise_command(command)


def add_file_change(rollout: Rollout, item: Item) -> None:
    """Files that a patch changed: only this has line numbers, and what was in a deleted file."""
    call_id = _id(rollout, item)
    changes = as_mapping(item.changes)
    kept = storable(changes)
    if _is_alone(rollout, call_id):
        summary = text.summarise_edit([str(path) for path in changes])
        named = map(patched_name, changes)
        _add_call(rollout, call_id, "apply_patch", {"changes": changes}, EDIT, summary, named=named)
        kept = {path: as_mapping(change).get("type") for path, change in changes.items()}
    output = text_in(item.stdout) + text_in(item.stderr)
    is_failed = item.status in ("failed", "declined") or item.success is False
    add_item_result(
        rollout,
        call_id,
        payload_of("output", output, native(status=item.status, changes=kept)),
        text.summarise_outcome(output, None, is_failed),
        is_failed=is_failed,
        may_be_cut=False,
    )


def add_mcp_call(rollout: Rollout, item: Item) -> None:
    invocation = as_mapping(item.invocation)
    server, tool = item.server or invocation.get("server"), item.tool or invocation.get("tool")
    arguments = item.arguments if item.arguments is not None else invocation.get("arguments")
    name = f"mcp__{server}__{tool}"[:200]
    result = as_mapping(item.result)
    error = item.error or result.get("Err")
    answer = as_mapping(result.get("Ok", result))
    is_failed = bool(error) or answer.get("isError") is True or item.status == "failed"
    _add_tool(rollout, item, name, arguments, error or answer.get("content"), is_failed)


def _dynamic_call(rollout: Rollout, item: Item) -> None:
    is_failed = item.success is False or item.status == "failed"
    _add_tool(rollout, item, str(item.tool)[:200], item.arguments, item.content_items, is_failed)


def _add_tool(rollout: Rollout, item: Item, name: str, arguments: Any, output: Any, is_failed: bool) -> None:
    call_id = _id(rollout, item)
    if _is_alone(rollout, call_id):
        _add_call(rollout, call_id, name, arguments, TOOL_CALL, summarise(f"called {name}"))
    words = text_in(output)
    media = [
        media_reference("image", part.get("mimeType"), part["data"])
        for part in as_list(output)
        if isinstance(part, dict) and isinstance(part.get("data"), str)
    ]
    fields = native(status=item.status, duration=item.duration)
    add_item_result(
        rollout,
        call_id,
        payload_of("output", words, fields, media),
        text.summarise_outcome(words, None, is_failed),
        is_failed=is_failed,
    )


def add_web_search(rollout: Rollout, item: Item) -> None:
    query = item.query or as_mapping(item.action).get("query") or ""
    arguments, retry_key = call_key("web_search", native(query=item.query, action=item.action))
    native_id = rollout.native_id(item.id or item.call_id)
    rollout.add(
        TOOL_CALL,
        payload_of("input", arguments, native(results=item.results)),
        summarise(f"searched the web: {query}"),
        native_id=native_id,
        tool="web_search",
        call_id=native_id,
        retry_key=retry_key,
        copy_key=rollout.copy_key("web_search", str(arguments)),
        role="assistant",
        by_model=True,
    )


def add_search_results(rollout: Rollout, item: Item) -> None:
    """The results of a search, which only this event of older logs holds; of a script's search also the call."""
    call_id = _id(rollout, item)
    if is_alone := _is_alone(rollout, call_id):
        arguments = native(query=item.query, action=item.action)
        summary = summarise(f"searched the web: {item.query or ''}")
        _add_call(rollout, call_id, "web_search", arguments, TOOL_CALL, summary)
    if not item.results:
        if not is_alone:
            rollout.skip("event_msg/web_search_end (twin)")
        return
    rollout.add(
        TOOL_RESULT,
        {"output": storable(item.results)},
        summarise(f"found: {item.query or ''}"),
        native_id=call_id if is_alone else None,
        block=1 if is_alone else 0,
        role="tool",
        tool="web_search",
        status="ok",
        call_id=call_id,
    )


def _image_generation(rollout: Rollout, item: Item) -> None:
    native_id = rollout.native_id(item.id or item.call_id)
    media = [media_reference("image", None, item.result)] if isinstance(item.result, str) and item.result else []
    fields = native(status=item.status, saved_path=item.saved_path)
    rollout.add(
        TOOL_CALL,
        payload_of("input", native(prompt=item.revised_prompt), fields, media),
        summarise(f"made an image: {item.revised_prompt or ''}"),
        native_id=native_id,
        tool="image_generation",
        call_id=native_id,
        role="assistant",
        by_model=True,
    )


def _image_view(rollout: Rollout, item: Item) -> None:
    _add_if_alone(rollout, item, "view_image", native(path=item.path), f"looked at {item.path}")


def _add_if_alone(rollout: Rollout, item: Item, tool: str, arguments: dict[str, Any], words: str) -> None:
    """The call of an item whose result is only in the output."""
    call_id = _id(rollout, item)
    if _is_alone(rollout, call_id):
        _add_call(rollout, call_id, tool, arguments, TOOL_CALL, summarise(words))
    else:
        rollout.skip(f"item/{item.type} (twin)")


def _collab_call(rollout: Rollout, item: Item) -> None:
    """A call to another agent: the call and its output are events; this names the agents it spawned."""
    threads = as_list(item.receiver_thread_ids)
    if item.tool in ("spawn_agent", "spawnAgent"):
        for thread in threads:
            name_spawn(rollout, thread, _id(rollout, item))
    _add_if_alone(rollout, item, str(item.tool)[:200], {"receiver_thread_ids": threads}, f"called {item.tool}")


def add_spawn_end(rollout: Rollout, item: Item) -> None:
    name_spawn(rollout, item.new_thread_id, item.call_id)
    rollout.skip("event_msg/collab_agent_spawn_end")


def _sub_agent_activity(rollout: Rollout, item: Item) -> None:
    if item.kind == "started":
        name_spawn(rollout, item.agent_thread_id, item.id)
    fields = native(id=item.id, kind=item.kind, agent_thread_id=item.agent_thread_id, agent_path=item.agent_path)
    summary = summarise(f"sub-agent {item.agent_path or ''} {item.kind or ''}")
    # A start has the id of the spawning call: then the event is named by its place in the log.
    native_id = rollout.here if state_key(_id(rollout, item)) in rollout.state.calls else rollout.native_id(item.id)
    rollout.add(LIFECYCLE, {"text": summary, "native": fields}, summary, native_id=native_id, role="system")


def _note(summary: str) -> Callable[[Rollout, Item], None]:
    def add(rollout: Rollout, item: Item) -> None:
        words = text_in(item.review) or text_in(item.fragments)
        payload = payload_of("text", words or summary, native(id=item.id, type=item.type))
        rollout.add(LIFECYCLE, payload, summary, native_id=rollout.native_id(item.id), role="system")

    return add


ITEMS: dict[Any, Callable[[Rollout, Item], None]] = {
    "UserMessage": _user_message,
    "AgentMessage": add_answer,
    "Plan": _plan,
    "Reasoning": add_reasoning,
    "CommandExecution": add_command,
    "FileChange": add_file_change,
    "McpToolCall": add_mcp_call,
    "DynamicToolCall": _dynamic_call,
    "WebSearch": add_web_search,
    "ImageView": _image_view,
    "ImageGeneration": _image_generation,
    "CollabAgentToolCall": _collab_call,
    "SubAgentActivity": _sub_agent_activity,
    "ContextCompaction": _note("context compacted"),
    "HookPrompt": _note("a hook spoke"),
    "EnteredReviewMode": _note("review started"),
    "ExitedReviewMode": _note("review ended"),
}
