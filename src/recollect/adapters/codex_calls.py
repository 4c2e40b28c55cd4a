"""Calls and results of a Codex rollout: each call and each result is exactly one event.

The same command may be told three times: as the model's call, as the harness's item (or `…_end` event)
and as the output given to the model. The call is the event of its arguments; the result is the item,
because only it has a real exit code, and the output is its twin. Where no item came first the output is the
result, and an item that follows (a command in the background, one the user cut off) completes it.
An item of a command inside a script (code mode) has no call of its own and makes both events.
"""

from typing import Any

import msgspec
import orjson

from recollect.adapters import codex_text as text
from recollect.adapters.codex_fold import (
    KEPT_CALLS,
    OPEN,
    REFUSED,
    RUNNING,
    TOLD,
    Call,
    Fold,
    is_own_id,
    native,
    payload_of,
    plain,
    state_key,
)
from recollect.adapters.codex_scripts import close_script, open_script
from recollect.adapters.commands import as_mapping, retry_key, shell_kind, summarise
from recollect.adapters.protocol import SessionInfo
from recollect.schema import DECISION, EDIT, ERROR, HUMAN_INTERVENTION, TOOL_CALL, TOOL_RESULT

SHELL_TOOLS = {"shell", "exec_command", "shell_command", "local_shell", "container.exec", "unified_exec"}
QUESTIONS = {"request_user_input"}
NAME_CHARS = 48


class CallItem(msgspec.Struct):
    """A call as the model made it, in all its spellings."""

    name: Any = None
    namespace: Any = None
    arguments: Any = None
    input: Any = None
    action: Any = None
    call_id: Any = None
    id: Any = None
    status: Any = None
    query: Any = None


class OutputItem(msgspec.Struct):
    call_id: Any = None
    output: Any = None
    id: Any = None
    tools: Any = None


def tell_call(fold: Fold, item: CallItem, default_name: str) -> None:
    """A call with its arguments, remembered until its result is told."""
    tool = _tool_name(item, default_name)
    arguments = _arguments(item)
    call_id = _call_id(item)
    native_id = remember_call(fold, call_id, tool)
    kind, summary = describe_call(tool, arguments)
    fields = native(id=item.id, namespace=item.namespace, status=item.status)
    key = None if native_id == call_id else fold.copy_key("call", f"{tool}\x1f{call_id}\x1f{arguments!r}")
    fold.tell(
        kind,
        payload_of("input", arguments, fields),
        summary,
        native_id=native_id,
        tool=tool,
        call_id=call_id,
        retry_key=retry_key(tool, arguments),
        copy_key=key,
        **fold.assistant(),
    )
    if tool == "exec" and call_id:
        open_script(fold.state, call_id, arguments)


def _tool_name(item: CallItem, default_name: str) -> str:
    name = item.name if isinstance(item.name, str) and item.name else default_name
    if isinstance(item.namespace, str) and item.namespace.startswith("mcp__"):
        return f"{item.namespace.rstrip('_')}__{name}"[:200]
    return name[:200]


def _call_id(item: CallItem) -> str | None:
    return next((value for value in (item.call_id, item.id) if isinstance(value, str) and value), None)


def _arguments(item: CallItem) -> Any:
    given: Any = next((v for v in (item.arguments, item.input, item.action, item.query) if v is not None), {})
    if isinstance(given, str) and given[:1] in ("{", "[") and item.input is None:
        try:
            return plain(orjson.loads(given))
        except orjson.JSONDecodeError:
            return given
    return plain(given)


def remember_call(fold: Fold, call_id: str | None, tool: str) -> str:
    """The call's native id: its call id, unless that is missing, too short to be unique, or used before."""
    calls = fold.state.calls
    if call_id is None:
        return fold.here
    key = state_key(call_id)
    native_id = call_id if is_own_id(call_id) and key not in calls else fold.here
    calls.pop(key, None)
    calls[key] = Call("" if native_id == call_id else native_id, tool if len(tool) <= NAME_CHARS else "")
    if len(calls) > KEPT_CALLS:
        del calls[next(iter(calls))]
    return native_id


def describe_call(tool: str, arguments: Any) -> tuple[str, str]:
    """The kind of a call and one line about it."""
    fields = as_mapping(arguments)
    if tool in SHELL_TOOLS:
        argv = fields.get("cmd", fields.get("command"))
        if isinstance(argv, list) and argv[:1] == ["apply_patch"]:
            return EDIT, text.summarise_edit(text.patched_paths(text.shell_command(argv[1:])))
        command = text.shell_command(argv)
        if text.is_patch_command(command):
            return EDIT, text.summarise_edit(text.patched_paths(command))
        return shell_kind(command), text.summarise_command(command)
    if tool == "apply_patch":
        patch = arguments if isinstance(arguments, str) else fields.get("input", fields.get("patch"))
        return EDIT, text.summarise_edit(text.patched_paths(patch if isinstance(patch, str) else ""))
    return TOOL_CALL, _describe_other(tool, arguments)


def _describe_other(tool: str, arguments: Any) -> str:
    fields = as_mapping(arguments)
    if tool in QUESTIONS:
        first = next(iter(fields.get("questions") or ()), None) if isinstance(fields.get("questions"), list) else None
        return summarise(f"asked: {as_mapping(first).get('question', '')}")
    if tool == "exec" and isinstance(arguments, str):
        return summarise(f"ran script: {arguments[:400]}")
    if tool == "view_image":
        return summarise(f"looked at {fields.get('path', 'an image')}")
    if tool == "update_plan":
        return "updated the plan"
    if tool == "spawn_agent":
        return summarise(f"spawned {fields.get('task_name') or 'an agent'}: {str(fields.get('message', ''))[:400]}")
    words = next((value for value in fields.values() if isinstance(value, str) and value), "")
    return summarise(f"{tool} {words[:400]}")


def tell_output(fold: Fold, item: OutputItem, native_type: str) -> None:
    """The output given to the model: the result, unless an item has told it already."""
    call_id = item.call_id if isinstance(item.call_id, str) and item.call_id else None
    call = fold.state.calls.get(state_key(call_id)) if call_id else None
    output, media, words = _output(item.output if item.output is not None else item.tools)
    if call_id:
        close_script(fold.state, call_id, words)
    if call is not None and call.told != OPEN:
        fold.skip(f"{native_type} (twin)")
        return
    outcome = text.parse_outcome(words)
    body = outcome.body if isinstance(output, str) and words.startswith('{"output":') else output
    fields = native(id=item.id, exit_code=outcome.exit_code)
    tool = call.tool if call else ""
    _tell_spawn(fold, tool, call_id, words)
    told = REFUSED if outcome.is_refused else RUNNING if outcome.is_running else TOLD
    _tell_result(
        fold,
        call_id,
        payload_of("output", body, fields, media),
        text.summarise_outcome(outcome.body, outcome.exit_code, outcome.is_failed or outcome.is_refused),
        told=told,
        is_failed=outcome.is_failed,
    )


def _output(output: Any) -> tuple[Any, list[dict[str, Any]], str]:
    """An output to keep, references to the media in it, and its words."""
    if isinstance(output, dict):
        content = output.get("content", output.get("output"))
        output = content if content is not None else orjson.dumps(plain(output)).decode()
    if isinstance(output, list):
        media, _ = text.find_media(output)
        parts = [plain(_without_media(part)) for part in output]
        return parts, media, "".join(text.text_parts(output))
    words = output if isinstance(output, str) else "" if output is None else str(output)
    return words, [], words


def _without_media(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if not (isinstance(value, str) and value.startswith("data:"))}


def _tell_spawn(fold: Fold, tool: str, call_id: str | None, words: str) -> None:
    """A spawned agent's id stands in the answer to the call, in logs without items."""
    if tool != "spawn_agent" or not words.startswith("{"):
        return
    try:
        child = as_mapping(orjson.loads(words)).get("agent_id")
    except orjson.JSONDecodeError:
        return
    name_spawn(fold, child, call_id)


def name_spawn(fold: Fold, child: Any, call_id: Any) -> None:
    """Tell which call of this session spawned another thread."""
    thread = fold.state.thread
    if is_own_id(child) and child != thread and isinstance(call_id, str):
        fold.out.append(SessionInfo(child, parent_native_id=thread, spawn_call_id=call_id))


def tell_item_result(
    fold: Fold, call_id: str, payload: dict[str, Any], summary: str, *, is_failed: bool, role: str = "tool"
) -> None:
    """The result as the harness saw it: settles what an output may have told before."""
    call = fold.state.calls.get(state_key(call_id))
    if call is not None and call.told == TOLD:
        fold.skip("item of a call already answered")
        return
    is_refused = call is not None and call.told == REFUSED
    told = REFUSED if is_refused else TOLD
    _tell_result(fold, call_id, payload, summary, told=told, is_failed=is_failed, role=role, is_settled=True)
    if call is not None:
        call.told = TOLD


def _tell_result(
    fold: Fold,
    call_id: str | None,
    payload: dict[str, Any],
    summary: str,
    *,
    told: int,
    is_failed: bool,
    role: str = "tool",
    is_settled: bool = False,
) -> None:
    call = fold.state.calls.get(state_key(call_id)) if call_id else None
    tool = call.tool if call else ""
    kind, role, status = _result_kind(tool, told, is_failed, role)
    native_id = (call.native_id if call and call.native_id else call_id) if call or is_own_id(call_id) else None
    is_first = call is None or call.told == OPEN
    previous = fold.state.previous
    fold.tell(
        kind,
        payload,
        summary,
        native_id=native_id,
        block=1,
        parent_native_id=native_id if call else None,
        # A result that is completed later stays where it was first told.
        position=fold.position if call is None or is_first else call.position,
        ts_ms=fold.ts_ms if call is None or is_first else call.ts_ms,
        role=role,
        tool=tool or None,
        call_id=call_id,
        status=status,
        is_error=status in ("failed", "denied"),
        is_provisional=told in (RUNNING, REFUSED) and not is_settled,
        copy_key=None if native_id == call_id else fold.copy_key("result", summary),
    )
    if call is not None and is_first:
        call.told, call.position, call.ts_ms = told, fold.position, fold.ts_ms
    elif call is not None:
        fold.state.previous = previous


def _result_kind(tool: str, told: int, is_failed: bool, role: str) -> tuple[str, str, str]:
    if told == REFUSED:
        return HUMAN_INTERVENTION, "user", "denied"
    if is_failed:
        return ERROR, role, "failed"
    if tool in QUESTIONS:
        return DECISION, "user", "ok"
    return TOOL_RESULT, role, "ok"
