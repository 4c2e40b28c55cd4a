"""Calls and results of a Codex rollout: each call and each result is exactly one event.

A command may appear three times: as the model's call, as the harness's item (or `…_end` event) and as the output given
to the model. The call is the event of its arguments; the result is the item, because only it has a real exit code, and
the output is its twin. An item that was cut (Codex keeps 10 KB of it) is completed by a longer output, which is
a second result (block 2) if the item had no mark where it was cut. Where no item
came first the output is the result, and an item that follows (a command in the background, one the user cut off)
completes it, or is a second result (block 2) if it lacks what the first one has. An item of a command inside a script
(code mode) has no call of its own and makes both events.
"""

import re
from typing import Any

import orjson

from recollect.agentkit.calls import patched_paths, shell_kind
from recollect.agentkit.protocol import SessionInfo
from recollect.agentkit.values import (
    as_list,
    as_mapping,
    as_text,
    call_key,
    remember,
    short_hash,
    storable,
    summarise,
    texts_in,
)
from recollect.agents.codex import text
from recollect.agents.codex.rollout import (
    CUT,
    DONE,
    KEPT_CALLS,
    OPEN,
    REFUSED,
    RUNNING,
    Call,
    Item,
    Rollout,
    is_own_id,
    native,
    payload_of,
    state_key,
)
from recollect.agents.codex.scripts import (
    Command,
    close_script,
    open_script,
    read_script,
    remember_commands,
    share_output,
)
from recollect.model.kinds import DECISION, EDIT, ERROR, HUMAN_INTERVENTION, TOOL_CALL, TOOL_RESULT

SHELL_TOOLS = {"shell", "exec_command", "shell_command", "local_shell", "container.exec", "unified_exec"}
QUESTIONS = {"request_user_input"}
NAME_CHARS = 48
_TOLD_CODE = re.compile(r"\bexit[_ ]?code\W{1,3}(-?\d{1,9})\b", re.IGNORECASE)  # as scripts print it


def add_call(rollout: Rollout, item: Item, default_name: str) -> None:
    """A call with its arguments, remembered until its result comes."""
    tool = _tool_name(item, default_name)
    call_id = as_text(item.call_id) or as_text(item.id)
    arguments, retry_key = call_key(tool, _arguments(item))
    native_id = remember_call(rollout, call_id, tool)
    kind, summary = describe_call(tool, arguments)
    has_own_id = native_id == call_id
    rollout.add(
        kind,
        payload_of("input", arguments, native(id=item.id, namespace=item.namespace, status=item.status)),
        summary,
        role="assistant",
        native_id=native_id,
        tool=tool,
        call_id=call_id,
        retry_key=retry_key,
        copy_key=None if has_own_id else rollout.copy_key("call", f"{tool}\x1f{call_id}\x1f{arguments!r}"),
        by_model=True,
    )
    if tool == "exec" and call_id:
        open_script(rollout.state, call_id, arguments)
        if not rollout.state.is_paginated:
            script = read_script(arguments)
            if script.commands:
                remember_commands(rollout.state, call_id, script)
            _add_commands(rollout, call_id, native_id, script.commands)


def _add_commands(rollout: Rollout, call_id: str, script_id: str, commands: list[Command]) -> None:
    """The commands of a script in a log that has no items of them."""
    for number, (command, is_template) in enumerate(commands):
        given: dict[str, Any] = {"cmd": command, "is_template": True} if is_template else {"cmd": command}
        arguments, retry_key = call_key("exec_command", given)
        is_unknown = command.startswith("${")
        rollout.add(
            TOOL_CALL if is_unknown else shell_kind(command),
            {"input": arguments},
            summarise(f"exec_command {command}") if is_unknown else text.summarise_command(command),
            role="assistant",
            native_id=script_id,
            block=2 + 2 * number,
            tool="exec_command",
            call_id=f"{call_id}/{number + 1}",
            retry_key=retry_key,
            copy_key=rollout.copy_key("command", f"{call_id}\x1f{command}"),
            metadata={"within_call": call_id},
            by_model=True,
        )


def add_command_result(
    rollout: Rollout, call_id: str, number: int, payload: dict[str, Any], summary: str, *, is_failed: bool
) -> None:
    """The result of a command that was read off a script."""
    call = rollout.state.calls.get(state_key(call_id))
    rollout.add(
        ERROR if is_failed else TOOL_RESULT,
        payload,
        summary,
        role="tool",
        native_id=call.native_id if call and call.native_id else call_id,
        block=3 + 2 * number,
        tool="exec_command",
        call_id=f"{call_id}/{number + 1}",
        status="failed" if is_failed else "ok",
        copy_key=rollout.copy_key("command result", f"{call_id}\x1f{number}\x1f{summary}"),
    )


def _add_printed(rollout: Rollout, call_id: str, names: list[str], printed: list[int], output: Any) -> None:
    """What the output of a script shows of its commands."""
    for number, parts in share_output(names, printed, texts_in(output)).items():
        outcome = text.parse_outcome("".join(parts))
        code, is_failed = outcome.exit_code, outcome.is_failed
        if code is None and len(parts) > 1 and (told := _TOLD_CODE.search(parts[-1])):
            code = int(told[1])
            is_failed = bool(code)
        summary = text.summarise_outcome(outcome.body, code, is_failed)
        payload = payload_of("output", outcome.body, native(exit_code=code))
        add_command_result(rollout, call_id, number, payload, summary, is_failed=is_failed)


def _tool_name(item: Item, default_name: str) -> str:
    name = as_text(item.name) or default_name
    if isinstance(item.namespace, str) and item.namespace.startswith("mcp__"):
        return f"{item.namespace.rstrip('_')}__{name}"[:200]
    return name[:200]


def _arguments(item: Item) -> Any:
    given = item.arguments
    if given is None:
        given = next((value for value in (item.input, item.action, item.query) if value is not None), {})
    if isinstance(given, str) and given.startswith(("{", "[")) and item.input is None:
        try:
            return orjson.loads(given)
        except orjson.JSONDecodeError:
            return given
    return given


def remember_call(rollout: Rollout, call_id: str | None, tool: str) -> str:
    """The call's native id: its call id, unless that is missing, too short to be unique, or used before."""
    if call_id is None:
        return rollout.here
    calls, key = rollout.state.calls, state_key(call_id)
    native_id = call_id if is_own_id(call_id) and key not in calls else rollout.here
    call = Call("" if native_id == call_id else native_id, tool if len(tool) <= NAME_CHARS else "")
    remember(calls, key, call, KEPT_CALLS)
    return native_id


def describe_call(tool: str, arguments: Any) -> tuple[str, str]:
    """The kind of a call and one line about it."""
    fields = as_mapping(arguments)
    if tool in SHELL_TOOLS:
        argv = fields.get("cmd", fields.get("command"))
        if isinstance(argv, list) and argv[:1] == ["apply_patch"]:
            return EDIT, text.summarise_edit(patched_paths(text.shell_command(argv[1:])))
        command = text.shell_command(argv)
        if text.is_patch_command(command):
            return EDIT, text.summarise_edit(patched_paths(command))
        return shell_kind(command), text.summarise_command(command)
    if tool == "apply_patch":
        patch = arguments if isinstance(arguments, str) else fields.get("input", fields.get("patch"))
        return EDIT, text.summarise_edit(patched_paths(patch if isinstance(patch, str) else ""))
    return TOOL_CALL, _describe_other(tool, arguments)


def _describe_other(tool: str, arguments: Any) -> str:
    fields = as_mapping(arguments)
    if tool in QUESTIONS:
        first = next(iter(as_list(fields.get("questions"))), None)
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


def add_output(rollout: Rollout, item: Item, native_type: str) -> None:
    """The output given to the model: the result, unless an item was it."""
    state, call_id = rollout.state, as_text(item.call_id)
    key = state_key(call_id) if call_id else ""
    call = state.calls.get(key)
    is_answered = call is not None and call.result not in (OPEN, CUT)
    output, media, words = _output(item.output if item.output is not None else item.tools)
    close_script(state, key, words)
    is_over = key not in state.scripts
    names, printed = (state.commands.pop(key, []), state.printed.pop(key, [])) if is_over else ([], [])
    outcome = text.parse_outcome(words)
    if call is not None and is_answered and not _has_more(outcome.body, call):
        rollout.skip(f"{native_type} (twin)")
        return
    body = outcome.body if isinstance(output, str) and words.startswith('{"output":') else output
    if call and call.tool == "spawn_agent":
        _add_spawn(rollout, call_id, words)
    if call is not None and call.result == CUT:
        output = outcome.body if isinstance(output, str) else output
        payload = payload_of("output", output, native(id=item.id), media)
        _complete(rollout, call_id, call, native_type, payload, outcome.body)
        return
    _add_result(
        rollout,
        call_id,
        call,
        payload_of("output", body, native(id=item.id, exit_code=outcome.exit_code), media),
        text.summarise_outcome(outcome.body, outcome.exit_code, outcome.is_failed or outcome.is_refused),
        outcome.body,
        result=REFUSED if outcome.is_refused else RUNNING if outcome.is_running else DONE,
        is_failed=outcome.is_failed,
        is_further=is_answered,
    )
    if names and call_id:
        _add_printed(rollout, call_id, names, printed, output)


def _has_more(output: str, call: Call) -> bool:
    """Whether the item of a command was cut without a mark: the outputs of other tools are only written otherwise."""
    return call.tool in SHELL_TOOLS and len(output.rstrip()) > call.chars


def _output(output: Any) -> tuple[Any, list[dict[str, Any]], str]:
    """An output to keep, references to the media in it, and its words."""
    if isinstance(output, dict):
        content = output.get("content", output.get("output"))
        output = content if content is not None else orjson.dumps(storable(output)).decode()
    if isinstance(output, list):
        media, _ = text.find_media(output)
        return storable([_without_media(part) for part in output]), media, "".join(texts_in(output))
    words = output if isinstance(output, str) else "" if output is None else str(output)
    return words, [], words


def _without_media(part: Any) -> Any:
    if not isinstance(part, dict):
        return part
    return {key: value for key, value in part.items() if not (isinstance(value, str) and value.startswith("data:"))}


def _add_spawn(rollout: Rollout, call_id: str | None, words: str) -> None:
    """In logs without items the answer to the call holds the spawned agent's id."""
    try:
        name_spawn(rollout, as_mapping(orjson.loads(words)).get("agent_id"), call_id)
    except orjson.JSONDecodeError:
        return


def name_spawn(rollout: Rollout, child: Any, call_id: Any) -> None:
    """Name the call of this session that spawned another thread."""
    thread = rollout.state.thread
    if is_own_id(child) and child != thread and isinstance(call_id, str):
        rollout.out.append(SessionInfo(child, parent_native_id=thread, spawn_call_id=call_id))


def _complete(
    rollout: Rollout, call_id: str | None, call: Call, native_type: str, payload: dict[str, Any], words: str
) -> None:
    """The output of a call whose item was cut: the longer text, with what only the item has."""
    if call.chars and len(words) <= call.chars:
        rollout.skip(f"{native_type} (twin)")
        call.result = DONE
        return
    payload["native"] = {**payload.get("native", {}), **call.facts}
    summary = text.summarise_outcome(words, call.facts.get("exit_code"), call.is_failed)
    _add_result(rollout, call_id, call, payload, summary, words, result=DONE, is_failed=call.is_failed)
    call.result, call.facts = DONE, {}


def add_item_result(
    rollout: Rollout,
    call_id: str,
    payload: dict[str, Any],
    summary: str,
    *,
    is_failed: bool,
    role: str = "tool",
    may_be_cut: bool = True,
) -> None:
    """The result as the harness saw it: it settles what an output said before, or adds what that did not say."""
    call = rollout.state.calls.get(state_key(call_id))
    known = OPEN if call is None else call.result
    words = payload["output"]
    if call is not None and known in (CUT, DONE) and len(words) <= call.chars and is_failed <= call.is_failed:
        rollout.skip("item of a call already answered")
        return
    has_printed = call is not None and short_hash(words[: call.chars]) == call.head  # what the running command had
    is_cut = call is not None and known == OPEN and may_be_cut and (not words or text.is_cut(words))
    _add_result(
        rollout,
        call_id,
        call,
        payload,
        summary,
        words,
        result=REFUSED if known == REFUSED else CUT if is_cut else DONE,
        is_failed=is_failed,
        role=role,
        is_settled=not is_cut,
        is_further=call is not None and (known in (CUT, DONE) or (known == RUNNING and not has_printed)),
    )
    if call is not None:
        call.result, call.facts = (CUT, payload.get("native", {})) if is_cut else (DONE, {})


def _add_result(
    rollout: Rollout,
    call_id: str | None,
    call: Call | None,
    payload: dict[str, Any],
    summary: str,
    words: str,
    *,
    result: int,
    is_failed: bool,
    role: str = "tool",
    is_settled: bool = False,
    is_further: bool = False,
) -> None:
    tool = call.tool if call else ""
    # A further result of a call that failed adds its text: the failure counts once.
    is_known = is_further and call is not None and call.is_failed
    kind, role, status = _result_kind(tool, result, is_failed and not is_known, role)
    native_id = (call.native_id if call and call.native_id else call_id) if call or is_own_id(call_id) else None
    previous = rollout.state.previous
    # A result that is completed later stays where it first appeared.
    first = call if call is not None and call.result != OPEN and not is_further else None
    rollout.add(
        kind,
        payload,
        summary,
        role=role,
        native_id=native_id,
        block=2 if is_further else 1,
        parent=native_id if call else None,
        position=first.position if first else None,
        ts_ms=first.ts_ms if first else None,
        tool=tool or None,
        call_id=call_id,
        status=status,
        is_provisional=result in (RUNNING, REFUSED, CUT) and not is_settled,
        copy_key=None if native_id == call_id else rollout.copy_key("result", summary),
    )
    if first is not None:
        rollout.state.previous = previous
    elif call is not None:
        call.result, call.position, call.ts_ms = result, rollout.position, rollout.ts_ms
    if call is not None:
        call.chars, call.is_failed = len(words), is_failed
        call.head = short_hash(words) if result == RUNNING else ""


def _result_kind(tool: str, result: int, is_failed: bool, role: str) -> tuple[str, str, str]:
    if result == REFUSED:
        return HUMAN_INTERVENTION, "user", "denied"
    if is_failed:
        return ERROR, role, "failed"
    if tool in QUESTIONS:
        return DECISION, "user", "ok"
    return TOOL_RESULT, role, "ok"
