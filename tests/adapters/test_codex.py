"""What becomes of Codex's logs, generation by generation."""

import json
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.agentkit.protocol import (
    STATE_LIMIT_BYTES,
    BadLine,
    Checkpoint,
    Cursor,
    EventRecord,
    Record,
    SessionInfo,
    Skipped,
    Source,
    Usage,
)
from recollect.agents.codex import ADAPTER
from recollect.agents.codex.events import SKIPPED
from recollect.agents.codex.scripts import read_script
from recollect.api import open_memory
from tests.conftest import swept

DATA = Path(__file__).parent.parent / "data" / "codex"
THREAD = "01a1e089-5b26-7b22-9365-07c5967e0ad7"
PARENT = "01a1e089-0000-7b22-9365-07c5967e0ad7"
SEGMENT = "01a1e08a-8ddc-7723-86ec-6f4cd12b2ce9"
NAME = f"rollout-2026-11-15T18-47-40-{THREAD}.jsonl"


@dataclass
class Reading:
    """What one or more readings of a source have told, the last telling of an event holding."""

    events: dict[tuple[str, str, int | str], EventRecord] = field(default_factory=dict)
    infos: list[SessionInfo] = field(default_factory=list)
    usage: dict[str, Usage] = field(default_factory=dict)
    skipped: Counter[str] = field(default_factory=Counter)
    bad: list[BadLine] = field(default_factory=list)
    cursor: Cursor | None = None

    def add(self, record: Record) -> None:
        match record:
            case EventRecord():
                key = (record.native_session_id, record.native_id, record.block)
                before = self.events.get(key)
                assert before is None or before.is_provisional or before == record, "a settled event changed"
                self.events[key] = record
            case SessionInfo():
                self.infos.append(record)
            case Usage():
                self.usage[record.usage_id] = record
            case Skipped():
                if not record.native_type.endswith("(no event)"):
                    self.skipped[record.native_type] += record.count
            case BadLine():
                self.bad.append(record)
            case Checkpoint():
                assert len(orjson.dumps(record.cursor.state)) <= STATE_LIMIT_BYTES
                self.cursor = record.cursor

    @property
    def told(self) -> list[EventRecord]:
        return sorted(self.events.values(), key=lambda event: event.position)

    def kinds(self) -> list[tuple[str, str | None, str | None]]:
        return [(event.kind, event.role, event.status) for event in self.told]

    def of(self, kind: str) -> list[EventRecord]:
        return [event for event in self.told if event.kind == kind]

    def fact(self, name: str) -> Any:
        return next((v for info in reversed(self.infos) if (v := getattr(info, name)) not in (None, 0)), None)


class Log:
    """Lines of a rollout: bare, wrapped or paginated."""

    def __init__(self, *, is_paginated: bool = False, is_bare: bool = False, first_ordinal: int = 0) -> None:
        self.is_paginated, self.is_bare = is_paginated, is_bare
        self.ordinal = first_ordinal
        self.second = 0
        self.lines: list[bytes] = []

    def raw(self, line: bytes) -> "Log":
        self.lines.append(line)
        return self

    def add(self, kind: str, /, **payload: Any) -> "Log":
        line: dict[str, Any] = {"timestamp": f"2026-11-15T18:{self.second // 60:02}:{self.second % 60:02}.000Z"}
        if self.is_paginated:
            line["ordinal"] = self.ordinal
        self.ordinal += 1
        self.second += 1
        line |= {"type": kind, "payload": payload}
        return self.raw(orjson.dumps(payload if self.is_bare else line))

    def meta(self, thread: str = THREAD, **facts: Any) -> "Log":
        return self.add("session_meta", id=thread, timestamp="2026-11-15T18:00:00.000Z", **facts)

    def item(self, kind: str, /, **payload: Any) -> "Log":
        return self.add("response_item", **{"type": kind, **payload})

    def event(self, kind: str, /, **payload: Any) -> "Log":
        return self.add("event_msg", **{"type": kind, **payload})

    def done(self, kind: str, /, **item: Any) -> "Log":
        return self.event("item_completed", thread_id=THREAD, turn_id="t", item={"type": kind, **item})

    def say(self, role: str, words: str, **facts: Any) -> "Log":
        part = {"type": "output_text" if role == "assistant" else "input_text", "text": words}
        return self.item("message", role=role, content=[part], **facts)

    def call(self, call_id: str, name: str = "exec_command", **arguments: Any) -> "Log":
        return self.item("function_call", name=name, arguments=json.dumps(arguments), call_id=call_id)

    def output(self, call_id: str, output: Any) -> "Log":
        return self.item("function_call_output", call_id=call_id, output=output)

    def command(self, item_id: str, words: str, output: str = "", exit_code: int = 0, **facts: Any) -> "Log":
        return self.done(
            "CommandExecution",
            id=item_id,
            command=["/bin/bash", "-lc", words],
            status="failed" if exit_code else "completed",
            aggregated_output=output,
            exit_code=exit_code,
            **facts,
        )

    @property
    def content(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)


def paginated() -> Log:
    return Log(is_paginated=True).meta(history_mode="paginated")


def wrapped() -> Log:
    return Log().meta()


def call_id(number: int) -> str:
    return f"call_{number:024}"


def write(folder: Path, content: bytes, name: str = NAME) -> Source:
    path = folder / "sessions" / "2026" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return Source("codex", "rollout", folder, path)


def read(source: Source, into: Reading | None = None) -> Reading:
    reading = into or Reading()
    for record in ADAPTER.read(source, reading.cursor):
        reading.add(record)
    return reading


@pytest.fixture
def reading_of(tmp_path: Path) -> Any:
    return lambda log, name=NAME: read(write(tmp_path, log.content, name))


# Messages


def test_a_paginated_text_is_told_by_its_item_alone(reading_of: Any) -> None:
    log = (
        paginated()
        .say("user", "Fix it", id="msg_000000000000000001")
        .done("UserMessage", id="01a1e089-6b20-7bd3-8252-9496ce477bd0", content=[{"type": "text", "text": "Fix it"}])
        .done("Reasoning", id="rs_0000000000000000001", summary_text=["Look first."], raw_content=[])
        .item("reasoning", id="rs_0000000000000000001", summary=[{"type": "summary_text", "text": "Look first."}])
        .done("AgentMessage", id="msg_000000000000000002", content=[{"type": "Text", "text": "Done."}], phase="final")
        .say("assistant", "Done.", id="msg_000000000000000002")
    )

    reading = reading_of(log)

    assert [(event.kind, event.payload["text"]) for event in reading.told] == [
        ("user_msg", "Fix it"),
        ("thinking", "Look first."),
        ("assistant_msg", "Done."),
    ]
    assert [event.native_id for event in reading.told] == [
        "01a1e089-6b20-7bd3-8252-9496ce477bd0",
        "rs_0000000000000000001",
        "msg_000000000000000002",
    ]


def test_a_finished_item_of_reasoning_is_read_by_its_own_fields(reading_of: Any) -> None:
    own, others = {"summary_text": ["Look first."], "raw_content": ["Raw."]}, {"summary": ["No."], "content": ["No."]}
    log = (
        paginated()
        .done("Reasoning", id="rs_0000000000000000001", **own, **others)
        .done("Reasoning", id="rs_0000000000000000002", **own | {"summary_text": []}, **others)
    )

    reading = reading_of(log)

    assert [event.payload["text"] for event in reading.told] == ["Look first.", "Raw."]


def test_a_wrapped_text_is_told_once(reading_of: Any) -> None:
    log = (
        wrapped()
        .say("user", "Fix it")
        .event("user_message", message="Fix it", kind="plain")
        .event("agent_reasoning", text="Look first.")
        .item("reasoning", summary=[{"type": "summary_text", "text": "Look first."}], encrypted_content="Z0FB")
        .event("agent_message", message="Done.")
        .say("assistant", "Done.")
    )

    reading = reading_of(log)

    assert [event.kind for event in reading.told] == ["user_msg", "thinking", "assistant_msg"]
    assert reading.skipped["event_msg/user_message (twin)"] == 1


@pytest.mark.parametrize("is_event_first", [True, False])
def test_a_prompt_asked_twice_is_two_prompts_in_either_order_of_twins(reading_of: Any, is_event_first: bool) -> None:
    log = wrapped()
    for _ in range(2):
        if is_event_first:
            log.event("user_message", message="go on").say("user", "go on")
        else:
            log.say("user", "go on").event("user_message", message="go on")

    reading = reading_of(log)

    assert len(reading.of("user_msg")) == 2


def test_a_prompt_without_any_event_is_told(reading_of: Any) -> None:
    reading = reading_of(wrapped().say("user", "Only here"))

    assert [event.payload["text"] for event in reading.of("user_msg")] == ["Only here"]


@pytest.mark.parametrize(
    "words",
    [
        "<environment_context>\n  <cwd>/home/x</cwd>\n</environment_context>",
        "# AGENTS.md instructions for /home/x\n\n<INSTRUCTIONS>\nbe kind\n</INSTRUCTIONS>",
        "<user_instructions>\n\nbe kind\n\n</user_instructions>",
        "<turn_aborted>\nThe user interrupted\n</turn_aborted>",
        "<subagent_notification>\n{}\n</subagent_notification>",
        "<skill>\n<name>x</name>\n</skill>",
    ],
)
def test_text_of_the_harness_is_no_turn(reading_of: Any, words: str) -> None:
    reading = reading_of(wrapped().say("user", words))

    assert reading.kinds() == [("lifecycle", "system", None)]


def test_the_kinds_of_a_message_tell_context_from_a_prompt(reading_of: Any) -> None:
    kinds = {"content_item_kinds": ["generic.something_new"]}

    reading = reading_of(wrapped().say("user", "New words", internal_chat_message_metadata_passthrough=kinds))

    assert reading.kinds() == [("lifecycle", "system", None)]


def test_context_sent_to_the_model_is_outside_the_lane_of_a_paginated_log(reading_of: Any) -> None:
    reading = reading_of(paginated().say("user", "<environment_context>\n  <cwd>/home/x</cwd>\n</environment_context>"))

    assert reading.told == []
    assert reading.skipped == {"response_item/message user (context)": 1}
    assert reading.fact("cwd") == "/home/x"


def test_instructions_in_force_are_named_and_hashed(reading_of: Any) -> None:
    log = paginated().add("world_state", full=True, state={"agents_md": {"directory": "/home/x", "text": "be kind"}})

    instructions = reading_of(log).fact("instructions")

    assert instructions == (
        {
            "name": "/home/x/AGENTS.md",
            "sha256": "959c5805d5c257bf3270f6fddfaaf04a72e02b5871d950154c42148369ee5378",
        },
    )


def test_an_image_of_a_prompt_is_kept_as_a_reference(reading_of: Any) -> None:
    content = [
        {"type": "input_text", "text": "<image name=[Image #1]>"},
        {"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8="},
        {"type": "input_text", "text": "</image>"},
        {"type": "input_text", "text": "What is this?"},
    ]
    log = wrapped().item("message", role="user", content=content).event("user_message", message="What is this?")

    reading = reading_of(log)

    assert [event.payload["text"] for event in reading.told] == ["What is this?"]
    [reference] = reading.told[0].payload["media"]
    assert (reference["mime"], reference["bytes"]) == ("image/png", 5)
    assert "aGVsbG8" not in json.dumps(reading.told[0].payload)


def test_reasoning_without_words_is_skipped(reading_of: Any) -> None:
    reading = reading_of(wrapped().item("reasoning", summary=[], content=None, encrypted_content="Z0FB"))

    assert reading.told == []
    assert reading.skipped == {"reasoning without text": 1}


def test_developer_messages_and_tool_lists_are_skipped_by_name(reading_of: Any) -> None:
    log = paginated().say("developer", "vendor's words").item("additional_tools", tools=[{}])

    reading = reading_of(log)

    assert reading.skipped == {"response_item/message developer": 1, "response_item/additional_tools": 1}
    assert "response_item/additional_tools" in SKIPPED


# Calls and results


def test_a_call_and_its_item_are_two_events_and_the_output_is_a_twin(reading_of: Any) -> None:
    log = (
        paginated()
        .call(call_id(1), cmd="python boom.py")
        .command(call_id(1), "python boom.py", "Traceback\nKeyError: 'x'\n", 1)
        .output(call_id(1), "Chunk ID: 1\nProcess exited with code 1\nOutput:\nTraceback\nKeyError: 'x'\n")
    )

    reading = reading_of(log)

    assert reading.kinds() == [("tool_call", "assistant", None), ("error", "tool", "failed")]
    call, result = reading.told
    assert (call.summary, result.summary) == ("ran python boom.py", "exit 1: KeyError: 'x'")
    assert (call.native_id, result.native_id) == (call_id(1), call_id(1))
    assert (call.block, result.block) == (0, 1)
    assert call.payload["input"] == {"cmd": "python boom.py"}
    assert result.payload["native"]["exit_code"] == 1
    assert result.tool == "exec_command"
    assert reading.skipped == {"response_item/function_call_output (twin)": 1}


@pytest.mark.parametrize(
    ("output", "kind", "code"),
    [
        ('{"output":"3 failed\\n","metadata":{"exit_code":1,"duration_seconds":0.1}}', "error", 1),
        ('{"output":"fine\\n","metadata":{"exit_code":0,"duration_seconds":0.1}}', "tool_result", 0),
        ("Exit code: 2\nWall time: 0 seconds\nOutput:\nno\n", "error", 2),
        (
            "Chunk ID: a\nWall time: 1\nProcess exited with code 0\nOutput:\nProcess exited with code 9",
            "tool_result",
            0,
        ),
        ("exec_command failed: CreateProcess { message: blocked by policy }", "error", None),
        ("plain words", "tool_result", None),
    ],
)
def test_every_dialect_of_an_output_tells_how_the_call_ended(
    reading_of: Any, output: str, kind: str, code: int | None
) -> None:
    reading = reading_of(wrapped().call(call_id(1), "shell", command=["bash", "-lc", "x"]).output(call_id(1), output))

    assert reading.told[1].kind == kind
    assert reading.told[1].payload.get("native", {}).get("exit_code") == code


def test_tests_and_patches_have_kinds_of_their_own(reading_of: Any) -> None:
    patch = "*** Begin Patch\n*** Update File: src/auth.py\n@@\n-a\n+b\n*** End Patch"
    log = (
        wrapped()
        .call(call_id(1), cmd="python -m pytest -q")
        .item("custom_tool_call", name="apply_patch", input=patch, call_id=call_id(2))
        .item(
            "function_call", name="shell", arguments=json.dumps({"command": ["apply_patch", patch]}), call_id=call_id(3)
        )
        .call(call_id(4), cmd="sed -i s/a/b/ x.py")
    )

    reading = reading_of(log)

    assert [(event.kind, event.summary) for event in reading.told] == [
        ("test_run", "ran python -m pytest -q"),
        ("edit", "edited src/auth.py"),
        ("edit", "edited src/auth.py"),
        ("tool_call", "ran sed -i s/a/b/ x.py"),
    ]


def test_equal_calls_have_equal_retry_keys(reading_of: Any) -> None:
    log = wrapped().call(call_id(1), cmd="make  it").call(call_id(2), cmd="make it").call(call_id(3), cmd="make other")

    first, second, third = (event.retry_key for event in reading_of(log).told)

    assert first == second != third


def test_a_file_change_is_the_result_of_its_patch(reading_of: Any) -> None:
    log = (
        paginated()
        .item("custom_tool_call", name="apply_patch", input="*** Begin Patch\n*** Add File: a.py\n", call_id=call_id(1))
        .done("FileChange", id=call_id(1), changes={"/x/a.py": {"type": "add"}}, status="completed", stdout="Success")
        .item("custom_tool_call_output", call_id=call_id(1), output="Exit code: 0\nOutput:\nSuccess")
    )

    reading = reading_of(log)

    assert reading.kinds() == [("edit", "assistant", None), ("tool_result", "tool", "ok")]
    assert reading.told[1].payload == {
        "output": "Success",
        "native": {"status": "completed", "changes": {"/x/a.py": {"type": "add"}}},
    }


def test_what_a_script_runs_is_a_pair_of_events_for_each_item(reading_of: Any) -> None:
    answer = {"content": [{"type": "text", "text": "locked"}], "isError": True}
    log = (
        paginated()
        .item("custom_tool_call", name="exec", namespace="functions", input="await x()", call_id=call_id(1))
        .command("exec-4a50b6ec-b3df-4c0c-ad18-37b6efa8343c", "pytest -q", "1 failed", 1)
        .done("FileChange", id="exec-5a50b6ec-b3df-4c0c-ad18-37b6efa8343c", changes={"/x/a.py": {"type": "add"}})
        .done(
            "McpToolCall", id="exec-6a50b6ec-b3df-4c0c-ad18-37b6efa8343c", server="memo", tool="recall", result=answer
        )
        .item(
            "custom_tool_call_output", call_id=call_id(1), output=[{"type": "input_text", "text": "Script completed"}]
        )
    )

    reading = reading_of(log)

    assert [(event.kind, event.tool, event.block) for event in reading.told] == [
        ("tool_call", "exec", 0),
        ("test_run", "exec_command", 0),
        ("error", "exec_command", 1),
        ("edit", "apply_patch", 0),
        ("tool_result", "apply_patch", 1),
        ("tool_call", "mcp__memo__recall", 0),
        ("error", "mcp__memo__recall", 1),
        ("tool_result", "exec", 1),
    ]
    assert reading.told[1].metadata == {"within_call": call_id(1)}


def script(log: Log, number: int, command: str) -> Log:
    words = f"const r = await tools.exec_command({{cmd: {json.dumps(command)}}});"
    return log.item("custom_tool_call", name="exec", input=words, call_id=call_id(number))


def within(reading: Reading) -> list[tuple[str, Any]]:
    inner = [event for event in reading.told if event.block == 0 and event.tool != "exec"]
    return [(event.summary, (event.metadata or {}).get("within_call")) for event in inner]


def test_an_item_belongs_to_the_parallel_script_that_names_its_command(reading_of: Any) -> None:
    log = script(script(paginated(), 1, "ls"), 2, 'python -c "1"')
    patch = 'await tools.apply_patch("*** Begin Patch\\n*** Add File: src/a.py\\n+x\\n*** End Patch")'
    log.item("custom_tool_call", name="exec", input=patch, call_id=call_id(3))
    log.item("custom_tool_call", name="exec", input="await tools.mcp__memo__recall({})", call_id=call_id(4))
    log.done("McpToolCall", id=f"exec-{4:020}", server="memo", tool="recall", result={"content": []})
    log.command(f"exec-{2:020}", 'python -c "1"').command(f"exec-{1:020}", "ls")
    log.done("FileChange", id=f"exec-{3:020}", changes={"/x/src/a.py": {"type": "add"}})

    assert within(reading_of(log)) == [
        ("called mcp__memo__recall", call_id(4)),
        ('ran python -c "1"', call_id(2)),
        ("ran ls", call_id(1)),
        ("edited /x/src/a.py", call_id(3)),
    ]


def test_an_item_no_script_or_more_than_one_names_belongs_to_the_first_still_open(reading_of: Any) -> None:
    log = script(script(script(paginated(), 1, "a"), 2, "ls"), 3, "ls")
    log.item("custom_tool_call_output", call_id=call_id(1), output="Script completed")
    log.command(f"exec-{1:020}", "ls").command(f"exec-{2:020}", "put together")
    log.item("custom_tool_call_output", call_id=call_id(2), output="Script completed")
    log.command(f"exec-{3:020}", "ls")

    assert [call for _, call in within(reading_of(log))] == [call_id(2), call_id(2), call_id(3)]


def test_an_item_that_comes_when_no_script_is_open_is_left_unlinked(reading_of: Any) -> None:
    log = script(paginated(), 1, "ls").item("custom_tool_call_output", call_id=call_id(1), output="Script completed")

    assert within(reading_of(log.command(f"exec-{1:020}", "ls"))) == [("ran ls", None)]


def test_a_script_the_user_cut_off_keeps_the_items_it_names(reading_of: Any) -> None:
    log = script(paginated(), 1, "sleep 9")
    log.item("custom_tool_call_output", call_id=call_id(1), output="aborted by user after 7.6s")
    log.command(f"exec-{1:020}", "ls").command(f"exec-{2:020}", "sleep 9")

    assert within(reading_of(log)) == [("ran ls", None), ("ran sleep 9", call_id(1))]


def test_a_command_in_the_background_ends_as_one_result(reading_of: Any) -> None:
    log = (
        paginated()
        .call(call_id(1), cmd="serve")
        .output(call_id(1), "Chunk ID: a\nProcess running with session ID 7\nOutput:\nserving\n")
        .call(call_id(2), cmd="sleep 2")
        .command(call_id(1), "serve", "serving\nbye\n")
    )

    reading = reading_of(log)

    [result] = reading.of("tool_result")
    assert result.payload["output"] == "serving\nbye\n"
    assert not result.is_provisional
    assert [event.call_id for event in reading.told] == [call_id(1), call_id(1), call_id(2)]


def test_a_call_the_user_cut_off_stays_an_intervention_when_its_item_comes_late(reading_of: Any) -> None:
    log = (
        paginated()
        .call(call_id(1), cmd="sleep 45")
        .output(call_id(1), "Wall time: 4.9 seconds\naborted by user")
        .event("turn_aborted", turn_id="t", reason="interrupted")
        .command(call_id(1), "sleep 45", "started\n", -1)
    )

    reading = reading_of(log)

    assert reading.kinds() == [
        ("tool_call", "assistant", None),
        ("human_intervention", "user", "denied"),
        ("human_intervention", "user", "interrupted"),
    ]
    assert reading.told[1].payload["output"] == "started\n"
    assert reading.told[1].is_error


def test_the_answer_to_a_question_is_a_decision(reading_of: Any) -> None:
    log = (
        wrapped()
        .call(call_id(1), "request_user_input", questions=[{"id": "c", "question": "Which colour do you like?"}])
        .output(call_id(1), '{"answers":{"c":{"answers":["red"]}}}')
    )

    reading = reading_of(log)

    assert reading.kinds() == [("tool_call", "assistant", None), ("decision", "user", "ok")]
    assert reading.told[0].summary == "asked: Which colour do you like?"


def test_a_shell_command_of_the_user_is_the_users(reading_of: Any) -> None:
    result = "<result>\nExit code: 2\nOutput:\nnone\n</result>"
    told = f"<user_shell_command>\n<command>\nls nope\n</command>\n{result}\n</user_shell_command>"
    from_item = paginated().command("3ab12f9f-0b03-4f07-9987-b7940e6acff3", "ls nope", "none\n", 2, source="user_shell")

    both = reading_of(from_item.say("user", told))
    alone = reading_of(wrapped().say("user", told))

    for reading in (both, alone):
        assert reading.kinds() == [("tool_call", "user", None), ("error", "user", "failed")]
        assert {event.tool for event in reading.told} == {"shell"}


def test_an_item_of_older_logs_settles_its_call(reading_of: Any) -> None:
    log = (
        wrapped()
        .call(call_id(1), cmd="false")
        .event(
            "exec_command_end", call_id=call_id(1), command=["bash", "-lc", "false"], aggregated_output="", exit_code=1
        )
        .output(call_id(1), "whatever")
        .call(call_id(2), "mcp__memo__recall", query="x")
        .event(
            "mcp_tool_call_end",
            call_id=call_id(2),
            invocation={"server": "memo", "tool": "recall"},
            result={"Err": "gone"},
        )
        .output(call_id(2), "gone")
        .item("custom_tool_call", name="apply_patch", input="", call_id=call_id(3))
        .event("patch_apply_end", call_id=call_id(3), success=False, stdout="", stderr="bad patch", changes={})
    )

    reading = reading_of(log)

    results = [event for event in reading.told if event.block == 1]
    assert [(event.kind, event.call_id) for event in results] == [("error", call_id(number)) for number in (1, 2, 3)]


def test_an_image_in_an_output_is_kept_as_a_reference(reading_of: Any) -> None:
    parts = [{"type": "input_image", "image_url": "data:image/png;base64,aGVsbG8="}]

    reading = reading_of(wrapped().call(call_id(1), "view_image", path="dot.png").output(call_id(1), parts))

    assert reading.told[1].payload["media"][0]["bytes"] == 5
    assert "aGVsbG8" not in json.dumps(reading.told[1].payload)


def test_a_web_search_is_a_call(reading_of: Any) -> None:
    log = wrapped().item("web_search_call", status="completed", action={"type": "search", "query": "jwt"})

    assert [(event.kind, event.summary) for event in reading_of(log).told] == [("tool_call", "searched the web: jwt")]


def test_call_ids_that_repeat_do_not_swallow_calls(reading_of: Any) -> None:
    log = wrapped()
    for number in range(3):
        log.call("call_0", cmd=f"echo {number}").output("call_0", f"Exit code: {number}\nOutput:\n{number}")

    reading = reading_of(log)

    assert [event.summary for event in reading.told if event.block == 0] == ["ran echo 0", "ran echo 1", "ran echo 2"]
    assert len({event.native_id for event in reading.told}) == 3


# Turns


def test_turns_errors_and_compactions_are_told(reading_of: Any) -> None:
    log = (
        paginated()
        .event("task_started", turn_id="t1")
        .add("compacted", message="Summary so far", replacement_history=[{"type": "message"}])
        .done("ContextCompaction", id="01a1e08a-6fd9-72d2-b47c-41520dcd9afc")
        .event("task_complete", turn_id="t1", last_agent_message="x")
        .event(
            "task_complete",
            turn_id="t2",
            last_agent_message=None,
            error={"message": "quota", "codex_error_info": "other"},
        )
        .event("error", message="stream closed")
        .event("stream_error", message="retrying 1/5")
        .event("turn_aborted", turn_id="t3", reason="interrupted")
    )

    reading = reading_of(log)

    assert reading.kinds() == [
        ("lifecycle", "system", None),
        ("lifecycle", "system", None),
        ("lifecycle", "system", None),
        ("lifecycle", "system", None),
        ("error", "assistant", "failed"),
        ("error", "assistant", "failed"),
        ("retry", "system", "retrying"),
        ("human_intervention", "user", "interrupted"),
    ]
    assert reading.told[1].payload["text"] == "Summary so far"
    assert reading.told[4].summary == "failed: quota"
    assert reading.told[6].is_retry


def test_the_last_model_holds(reading_of: Any) -> None:
    log = paginated().add("turn_context", model="gpt-5.5").add("turn_context", model="gpt-6")

    assert reading_of(log).fact("model") == "gpt-6"


def test_an_unknown_record_is_kept_whole(reading_of: Any) -> None:
    log = paginated().event("brand_new", words={"deep": [1]}).done("Novelty", words=1).add("future", words=2)

    reading = reading_of(log)

    assert [event.kind for event in reading.told] == ["other"] * 3
    assert reading.told[0].payload["native"]["payload"]["words"] == {"deep": [1]}
    assert reading.told[1].payload["native"]["words"] == 1


# Sessions


def test_a_session_tells_where_and_with_what_it_ran(reading_of: Any) -> None:
    git = {"branch": "main", "repository_url": "https://github.com/example/calc.git"}
    log = Log(is_paginated=True).meta(
        cwd="/home/x", originator="codex_exec", source="exec", cli_version="0.166.0", model_provider="openai", git=git
    )

    [info] = reading_of(log).infos

    assert (info.native_session_id, info.cwd, info.git_branch, info.git_remote) == (
        THREAD, "/home/x", "main", "https://github.com/example/calc.git"
    )  # fmt: skip
    assert (info.agent_version, info.provider, info.session_class) == ("0.166.0", "openai", "automation")


def test_a_session_with_nothing_but_its_first_line_has_no_events(reading_of: Any) -> None:
    reading = reading_of(paginated())

    assert reading.told == []
    assert len(reading.infos) == 1


def test_a_sub_agent_names_its_parent_and_the_parent_the_call(reading_of: Any) -> None:
    spawn = {"thread_spawn": {"parent_thread_id": PARENT, "depth": 1, "agent_nickname": "Anscombe"}}
    child = Log(is_paginated=True).meta(session_id=PARENT, parent_thread_id=PARENT, source={"subagent": spawn})
    child.item(
        "agent_message", author="/root", recipient="/root/count", content=[{"type": "input_text", "text": "Count"}]
    )
    parent = (
        Log(is_paginated=True)
        .meta(PARENT)
        .call(call_id(1), "spawn_agent", message="Count")
        .done("SubAgentActivity", id=call_id(1), kind="started", agent_thread_id=THREAD, agent_path="/root/count")
        .item("agent_message", author="/root/count", recipient="/root", content=[{"type": "input_text", "text": "3"}])
    )

    below = reading_of(child)
    above = reading_of(parent, f"rollout-2026-{PARENT}.jsonl")

    [info] = below.infos
    assert (info.parent_native_id, info.root_native_id, info.session_class) == (PARENT, PARENT, "sub-agent")
    assert info.metadata == {"nickname": "Anscombe"}
    assert below.kinds() == [("user_msg", "user", None)]
    assert above.infos[-1] == SessionInfo(THREAD, parent_native_id=PARENT, spawn_call_id=call_id(1))
    assert [event.kind for event in above.told] == ["tool_call", "lifecycle", "lifecycle"]


def test_a_spawned_agent_is_found_in_the_answer_of_older_logs(reading_of: Any) -> None:
    log = wrapped().call(call_id(1), "spawn_agent", message="x").output(call_id(1), json.dumps({"agent_id": PARENT}))

    assert SessionInfo(PARENT, parent_native_id=THREAD, spawn_call_id=call_id(1)) in reading_of(log).infos


def test_a_fork_by_reference_names_its_base(reading_of: Any) -> None:
    base = {"thread_id": SEGMENT, "end_ordinal_exclusive": 134}
    log = Log(is_paginated=True).meta(forked_from_id=PARENT, forked_from_ordinal_exclusive=134, history_base=base)

    [info] = reading_of(log).infos

    assert (info.base_native_id, info.base_end) == (PARENT, "134")


def test_the_segment_of_a_rewind_is_the_same_session_and_says_what_is_left_behind() -> None:
    folder = DATA / "0.166.0"
    [path] = folder.rglob(f"*_{SEGMENT}.jsonl")

    reading = read(Source("codex", "rollout", folder, path))

    rewound = reading.told[0]
    assert (rewound.kind, rewound.summary, rewound.metadata) == ("lifecycle", "rewound", {"rewind_to": 120 * 256})
    assert rewound.native_id == f"{SEGMENT}:120"
    assert {event.native_session_id for event in reading.told} == {THREAD}
    assert [event.summary for event in reading.of("user_msg")] == ["Please say hello after the rewind"]


LATER_SEGMENT = "01a1e08a-9ddc-7723-86ec-6f4cd12b2ce9"


def exchange(log: Log, words: str) -> Log:
    log.done("UserMessage", id=f"user_{words:>020}", content=[{"type": "text", "text": f"ask {words}"}])
    return log.done("AgentMessage", id=f"agent_{words:>020}", content=[{"type": "Text", "text": f"answer {words}"}])


def segment(base: str, end: int, second: int, **facts: Any) -> Log:
    """The file a rewind begins: its ordinals go on where the base is cut."""
    log = Log(is_paginated=True, first_ordinal=end)
    log.second = second
    at = f"2026-11-15T18:00:{second:02}.000Z"
    history = {"thread_id": base, "end_ordinal_exclusive": end}
    return log.add("session_meta", id=THREAD, timestamp=at, history_base=history, **facts)


def told_by_store(folder: Path, logs: dict[str, Log]) -> list[tuple[str, str, bool]]:
    """Kind, summary and whether abandoned, in the order the store shows, files swept one by one."""
    with open_memory(folder / "store", [f"codex={folder / 'home'}"]) as memory:
        for name, log in logs.items():
            write(folder / "home", log.content, f"rollout-2026-11-15T18-00-00-{name}.jsonl")
            assert memory.sweep().failures == []
        [session] = memory.sessions()
        return [(event.kind, event.summary, event.is_abandoned) for event in memory.events(session)]


@pytest.mark.parametrize("is_base_first", [True, False])
def test_a_rewound_session_reads_on_after_all_that_was_left_behind(tmp_path: Path, is_base_first: bool) -> None:
    base = exchange(exchange(exchange(paginated(), "1"), "2"), "3")
    logs = {THREAD: base, f"{THREAD}_{SEGMENT}": exchange(segment(THREAD, 3, 20), "4")}

    told = told_by_store(tmp_path, logs if is_base_first else dict(reversed(logs.items())))

    assert told == [
        ("user_msg", "ask 1", False),
        ("completion", "answer 1", False),
        ("user_msg", "ask 2", True),
        ("completion", "answer 2", True),
        ("user_msg", "ask 3", True),
        ("completion", "answer 3", True),
        ("lifecycle", "rewound", False),
        ("user_msg", "ask 4", False),
        ("completion", "answer 4", False),
    ]


@pytest.mark.parametrize(
    ("base", "end", "left_behind"),
    [
        (SEGMENT, 6, ["ask 2", "answer 2", "ask 4", "answer 4"]),
        (THREAD, 1, ["ask 1", "answer 1", "ask 2", "answer 2", "rewound", "ask 3", "answer 3", "ask 4", "answer 4"]),
    ],
)
def test_a_second_rewind_leaves_behind_what_follows_its_point_in_either_file(
    tmp_path: Path, base: str, end: int, left_behind: list[str]
) -> None:
    logs = {
        f"{THREAD}_{LATER_SEGMENT}": exchange(segment(base, end, 40), "5"),
        f"{THREAD}_{SEGMENT}": exchange(exchange(segment(THREAD, 3, 20), "3"), "4"),
        THREAD: exchange(exchange(paginated(), "1"), "2"),
    }

    told = told_by_store(tmp_path, logs)

    asked = [summary for _, summary, _ in told if summary != "rewound"]
    assert asked == [f"{what} {number}" for number in range(1, 6) for what in ("ask", "answer")]
    assert [summary for _, summary, is_abandoned in told if is_abandoned] == left_behind


def test_a_fork_rewound_to_before_its_first_line_leaves_all_of_it_behind(tmp_path: Path) -> None:
    fork: dict[str, Any] = {"forked_from_id": PARENT, "forked_from_ordinal_exclusive": 10}
    logs = {
        THREAD: exchange(Log(is_paginated=True, first_ordinal=10).meta(**fork), "1"),
        f"{THREAD}_{SEGMENT}": exchange(segment(PARENT, 5, 20, **fork), "2"),
    }

    told = told_by_store(tmp_path, logs)

    assert [summary for _, summary, is_abandoned in told if is_abandoned] == ["ask 1", "answer 1"]
    assert [summary for _, summary, _ in told] == ["ask 1", "answer 1", "rewound", "ask 2", "answer 2"]


@pytest.mark.parametrize("unit", [SEGMENT, "ffffffff-ffff-7fff-bfff-ffffffffffff"])
def test_a_position_fits_in_the_store_whatever_the_segments_time(reading_of: Any, unit: str) -> None:
    log = exchange(segment(THREAD, 2**40 - 9, 20), "1")

    reading = reading_of(log, f"rollout-2026-{THREAD}_{unit}.jsonl")

    assert all(2**49 < event.position < 2**62 for event in reading.told)


def test_a_rewind_inside_a_file_goes_back_to_its_prompt(reading_of: Any) -> None:
    log = wrapped().say("user", "one").say("user", "two").say("user", "three").event("thread_rolled_back", num_turns=2)

    reading = reading_of(log)

    assert reading.told[3].metadata == {"rewind_to": reading.told[1].position}


def test_copies_in_a_resumed_file_share_their_keys_with_the_original(reading_of: Any) -> None:
    def history(log: Log) -> Log:
        log.say("user", "go on").say("assistant", "yes").say("user", "go on").call(call_id(1), cmd="ls")
        return log.event("token_count", info={"total_token_usage": {"input_tokens": 10, "output_tokens": 2}})

    original = reading_of(history(Log().meta(PARENT)), f"rollout-2026-{PARENT}.jsonl")
    copy = reading_of(history(Log().meta().meta(PARENT)).say("user", "new"))
    unrelated = reading_of(history(Log().meta(SEGMENT)), f"rollout-2026-{SEGMENT}.jsonl")

    def keys(reading: Reading) -> list[str]:
        return [event.copy_key or event.native_id for event in reading.told]

    assert copy.fact("base_native_id") == PARENT
    assert {event.native_session_id for event in copy.told} == {THREAD}
    assert keys(copy)[:4] == keys(original)
    assert len(set(keys(copy))) == 5
    assert keys(unrelated)[:3] != keys(original)[:3]
    assert list(copy.usage) == list(original.usage)


def test_each_event_follows_the_one_before(reading_of: Any) -> None:
    log = wrapped().say("user", "a").call(call_id(1), cmd="x").output(call_id(1), "ok").say("assistant", "b")

    user, call, result, answer = reading_of(log).told

    assert user.parent_native_id is None
    assert call.parent_native_id == user.native_id
    assert result.parent_native_id == call.native_id
    assert answer.parent_native_id == call.native_id


# Tokens


def test_a_usage_record_counts_each_response_and_totals_are_not_counted_again(reading_of: Any) -> None:
    usage = {
        "input_tokens": 100, "cached_input_tokens": 60, "cache_write_input_tokens": 10, "output_tokens": 9,
        "reasoning_output_tokens": 4,
    }  # fmt: skip
    log = (
        paginated()
        .add("turn_context", model="gpt-6")
        .add("token_usage_record", response_id="resp_1", usage=usage)
        .event("token_count", info={"total_token_usage": usage})
    )

    [spent] = reading_of(log).usage.values()

    assert (spent.usage_id, spent.model) == ("resp_1", "gpt-6")
    assert (spent.input_tokens, spent.cache_read_tokens, spent.cache_write_tokens) == (30, 60, 10)
    assert (spent.output_tokens, spent.reasoning_tokens) == (9, 4)


def test_cumulative_totals_are_counted_by_their_differences(reading_of: Any) -> None:
    def total(number: int, last: int) -> dict[str, Any]:
        figures = {"cached_input_tokens": 0, "output_tokens": 0}
        return {
            "total_token_usage": {"input_tokens": number, **figures},
            "last_token_usage": {"input_tokens": last, **figures},
        }

    log = wrapped().event("token_count", info=None)
    for number, last in ((100, 100), (100, 100), (250, 150), (40, 40)):
        log.event("token_count", info=total(number, last))

    assert [spent.input_tokens for spent in reading_of(log).usage.values()] == [100, 150, 40]


# Older generations


def test_a_bare_log_has_its_time_and_place_from_its_first_lines(reading_of: Any) -> None:
    log = Log(is_bare=True)
    log.raw(orjson.dumps({"id": THREAD, "timestamp": "2025-08-31T12:14:27.805Z", "git": {"branch": "main"}}))
    log.raw(b'{"record_type":"state"}')
    log.say("user", "<environment_context>\n  <cwd>/home/x</cwd>\n</environment_context>", id=None)
    log.say("user", "What now?", id=None).call(call_id(1), "shell", command=["bash", "-lc", "ls"])
    log.output(call_id(1), '{"output":"a","metadata":{"exit_code":0}}').say("assistant", "This.")

    reading = reading_of(log)

    assert [event.kind for event in reading.told] == [
        "lifecycle", "user_msg", "tool_call", "tool_result", "assistant_msg"
    ]  # fmt: skip
    assert [event.ts_ms for event in reading.told] == [1756642467805, None, None, None, None]
    assert (reading.fact("cwd"), reading.fact("git_branch")) == ("/home/x", "main")
    assert reading.told[1].native_id.startswith(f"{THREAD}:")
    assert reading.skipped == {"record_type=state": 1}


def test_the_document_of_the_first_generation_is_read_whole(tmp_path: Path) -> None:
    items = [
        {"role": "user", "content": [{"type": "text", "text": "List"}]},
        {
            "role": "assistant",
            "content": "I list.",
            "reasoning": "Use ls",
            "tool_calls": [{"id": "c1", "function": {"name": "shell", "arguments": '{"command":["ls"]}'}}],
        },
        {"role": "tool", "tool_call_id": "c1", "content": '{"output":"a","metadata":{"exit_code":0}}'},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done"}]},
    ]
    document = {"session": {"timestamp": "2025-08-23T11:03:20.415Z", "id": THREAD}, "items": items}
    path = tmp_path / f"rollout-2025-08-23-{THREAD}.json"
    path.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    [source] = ADAPTER.discover(tmp_path)

    reading = read(source)
    again = list(ADAPTER.read(source, reading.cursor))

    assert [event.kind for event in reading.told] == [
        "user_msg", "thinking", "assistant_msg", "tool_call", "tool_result", "assistant_msg"
    ]  # fmt: skip
    assert all(event.is_provisional for event in reading.told)
    assert again == []


def test_a_real_wrapped_log_is_told_once_each() -> None:
    folder = DATA / "0.45.0"
    [source] = ADAPTER.discover(folder)

    reading = read(source)

    counts = Counter(event.kind for event in reading.told)
    assert counts == {
        "lifecycle": 2, "user_msg": 1, "assistant_msg": 3, "thinking": 2, "tool_call": 4, "edit": 1, "error": 5
    }  # fmt: skip
    assert sum(spent.output_tokens for spent in reading.usage.values()) == 465


def test_a_real_paginated_log_is_told_once_each() -> None:
    folder = DATA / "0.166.0"
    source = next(source for source in ADAPTER.discover(folder) if "18-40-15" in source.path.name)

    reading = read(source)

    counts = Counter(event.kind for event in reading.told)
    assert counts == {
        "lifecycle": 2, "user_msg": 1, "assistant_msg": 3, "thinking": 2, "tool_call": 4, "edit": 1, "error": 5
    }  # fmt: skip
    assert reading.fact("model") == "gpt-5.5"


# Side files


def test_the_last_title_of_a_thread_holds(tmp_path: Path) -> None:
    rows = [{"id": THREAD, "thread_name": name, "updated_at": "x"} for name in ("first", "second")]
    (tmp_path / "session_index.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    [source] = ADAPTER.discover(tmp_path)

    reading = read(source)

    assert [(info.title, info.title_rank) for info in reading.infos] == [("first", 2), ("second", 2)]


def test_a_title_told_inside_a_rollout_counts(reading_of: Any) -> None:
    reading = reading_of(wrapped().event("thread_name_updated", thread_id=THREAD, thread_name="Calc"))

    assert reading.fact("title") == "Calc"


def test_prompts_of_the_history_are_told_in_a_lane_of_their_own(tmp_path: Path) -> None:
    rows = [{"session_id": THREAD, "ts": 1794768464, "text": text} for text in ("one", "two")]
    (tmp_path / "history.jsonl").write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows) + b'{"ts":1}\n')
    [source] = ADAPTER.discover(tmp_path)

    reading = read(source)

    assert [(event.lane, event.kind, event.native_id) for event in reading.told] == [
        ("history", "user_msg", "history:1794768464:0"),
        ("history", "user_msg", "history:1794768464:1"),
    ]
    assert reading.infos[0].session_class == "prompts-only"
    assert len(reading.bad) == 1


# Discovery


def test_only_logs_are_discovered(tmp_path: Path) -> None:
    wanted = (f"sessions/2026/11/15/{NAME}", f"archived_sessions/{NAME}", "session_index.jsonl", "history.jsonl")
    others = (
        "auth.json",
        "config.toml",
        "state_5.sqlite",
        "shell_snapshots/a.sh",
        "sessions/notes.jsonl",
        "log/x.jsonl",
    )
    for name in wanted + others:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"{}\n")
    (tmp_path / "sessions" / "rollout-link.jsonl").symlink_to(tmp_path / "auth.json")

    found = [source.path.relative_to(tmp_path).as_posix() for source in ADAPTER.discover(tmp_path)]

    assert sorted(found) == sorted(wanted)


def test_a_folder_of_loose_rollouts_is_a_root_too(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / NAME).write_bytes(b"")

    assert [source.path.name for source in ADAPTER.discover(tmp_path)] == [NAME]


# Damage


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"timestamp":"2026-11-15T18:00:00Z","type":"response_item","payload":{"type":"mess', "not JSON"),
        (b"[1,2]", "not an object"),
        (b'"words"', "not an object"),
        (b'{"nothing":1}', "not a rollout record"),
        (b'{"type":"event_msg","payload":7}', "payload is not an object"),
        (b"\x00" * 64, "block of NUL bytes"),
    ],
)
def test_a_line_that_is_no_record_is_a_bad_line_and_the_rest_is_read(reading_of: Any, line: bytes, reason: str) -> None:
    reading = reading_of(wrapped().raw(line).say("user", "after"))

    assert [(bad.line, bad.reason) for bad in reading.bad] == [(2, reason)]
    assert [event.summary for event in reading.told] == ["after"]


def test_glued_records_are_both_read(reading_of: Any) -> None:
    one = Log().say("user", "one").lines[0]
    two = Log().say("user", "two").lines[0]

    reading = reading_of(wrapped().raw(one + two).raw(b'{"timestamp":"2026-11-15T18:' + two))

    assert [event.summary for event in reading.told] == ["one", "two", "two"]
    assert len(reading.bad) == 1


@pytest.mark.parametrize("words", [b'"\\ud800 half"', b'"\xff\xfe bytes"'])
def test_characters_that_are_none_are_replaced_and_marked(reading_of: Any, words: bytes) -> None:
    line = (
        b'{"timestamp":"2026-11-15T18:00:00Z","type":"response_item","payload":{"type":"message","role":"user","content":'
        + words
        + b"}}"
    )

    reading = reading_of(wrapped().raw(line))

    [event] = reading.told
    assert "\ufffd" in event.payload["text"]
    assert event.metadata == {"lossy": True}


_VALUES = st.sampled_from(
    (
        None,
        True,
        -1,
        10**25,
        1.5,
        "",
        "x",
        "call_0",
        "\ud800",
        [],
        [None],
        [[]],
        ["a", 5],
        {},
        {"type": 5},
        {"text": []},
    )
)


_FIELDS = (
    "role", "content", "id", "call_id", "name", "arguments", "input", "output", "summary", "message", "info", "item",
    "source", "git", "history_base", "state", "usage", "model", "cwd", "turn_id", "error", "command", "changes",
    "result",
)  # fmt: skip
_TYPES = (
    "message", "reasoning", "function_call", "function_call_output", "custom_tool_call", "user_message", "token_count",
    "item_completed", "exec_command_end", "patch_apply_end", "mcp_tool_call_end", "task_complete", "web_search_call",
    "x",
)  # fmt: skip


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_wrong_types_never_stop_a_reading(data: st.DataObject) -> None:
    log = Log(is_paginated=data.draw(st.booleans()))
    for _ in range(data.draw(st.integers(1, 6))):
        kind = data.draw(st.sampled_from(("response_item", "event_msg", "session_meta", "turn_context", "world_state",
                                          "compacted", "token_usage_record", "y")))  # fmt: skip
        payload = {"type": data.draw(st.sampled_from(_TYPES))} | data.draw(
            st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=6)
        )
        if data.draw(st.booleans()):
            payload["item"] = {
                "type": data.draw(st.sampled_from(("CommandExecution", "FileChange", "UserMessage")))
            } | data.draw(st.dictionaries(st.sampled_from(_FIELDS), _VALUES, max_size=4))
        log.raw(json.dumps({"timestamp": data.draw(_VALUES), "type": kind, "payload": payload}).encode())

    with tempfile.TemporaryDirectory() as folder:
        reading = read(write(Path(folder), log.content))

    for event in reading.told:
        orjson.dumps(event.payload)
        assert len(event.summary) <= 200


# Pieces


def busy_log(*, is_paginated: bool) -> bytes:
    log = paginated() if is_paginated else wrapped()
    usage = {"input_tokens": 5, "output_tokens": 2}
    for turn in range(3):
        log.event("task_started", turn_id=f"t{turn}").add("turn_context", model=f"gpt-{turn}", cwd="/x")
        log.say("user", "go on", id=f"msg_{turn:020}").event("user_message", message="go on")
        log.done("UserMessage", id=f"usr_{turn:020}", content=[{"type": "text", "text": "go on"}])
        log.call(call_id(turn), cmd="make").call("call_0", cmd="serve")
        log.output("call_0", "Chunk ID: a\nProcess running with session ID 7\nOutput:\nserving\n")
        log.command(call_id(turn), "make", "done") if is_paginated else log.output(
            call_id(turn), "Exit code: 1\nOutput:\n"
        )
        log.command("call_0", "serve", "serving\nbye")
        log.item("custom_tool_call", name="exec", input="x", call_id=call_id(100 + turn))
        log.command(f"exec-{turn:020}", "pytest", "ok").item(
            "custom_tool_call_output", call_id=call_id(100 + turn), output=[]
        )
        log.event("token_count", info={"total_token_usage": {key: value * (turn + 1) for key, value in usage.items()}})
        log.add("token_usage_record", response_id=f"r{turn}", usage=usage)
        log.raw(b'{"torn').raw(log.lines[-1])
        log.call(call_id(50 + turn), cmd="sleep").output(call_id(50 + turn), "aborted by user")
        log.command(call_id(50 + turn), "sleep", "started", -1).event("turn_aborted", turn_id=f"t{turn}")
    return log.content


@settings(max_examples=60, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("is_paginated", [True, False])
def test_pieces_of_any_size_tell_what_the_whole_file_tells(is_paginated: bool, data: st.DataObject) -> None:
    content = busy_log(is_paginated=is_paginated)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=12)))

    with tempfile.TemporaryDirectory() as folder:
        whole = read(write(Path(folder), content))
        pieces = Reading()
        for cut in [*cuts, len(content)]:
            pieces = read(write(Path(folder), content[:cut]), pieces)
            assert pieces.cursor is not None
            state = orjson.loads(orjson.dumps(pieces.cursor.state))
            pieces.cursor = Cursor(
                *(getattr(pieces.cursor, name) for name in ("offset", "line", "head", "tail")), state
            )

    assert pieces.events == whole.events
    assert pieces.usage == whole.usage
    assert pieces.infos == whole.infos
    assert pieces.skipped == whole.skipped
    assert [bad.offset for bad in pieces.bad] == [bad.offset for bad in whole.bad]


def test_an_unchanged_file_tells_nothing_again(tmp_path: Path) -> None:
    source = write(tmp_path, busy_log(is_paginated=True))
    first = read(source)

    again = list(ADAPTER.read(source, first.cursor))

    assert [type(record) for record in again] == [Checkpoint]


def test_the_memory_of_an_endless_log_stays_bounded(tmp_path: Path) -> None:
    log = wrapped()
    for number in range(1500):
        log.say("user", f"prompt {number}").call(f"é{'x' * 60}{number}", "t" * 48, cmd="x")
        log.call(f"{number:064}", "t" * 48, cmd="x")
    source = write(tmp_path, log.content)

    reading = read(source)

    assert len(reading.of("user_msg")) == 1500
    assert len(reading.of("tool_call")) == 3000


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open files are counted by way of /proc")
def test_a_reading_leaves_no_file_open(tmp_path: Path) -> None:
    source = write(tmp_path, busy_log(is_paginated=True))
    before = len(list(Path("/proc/self/fd").iterdir()))

    for _ in range(5):
        read(source)

    assert len(list(Path("/proc/self/fd").iterdir())) == before


# What an item was cut to, its twin has whole


def ended(log: Log, item_id: str, output: str, exit_code: int = 0) -> Log:
    """The end of a command in the logs of 0.117 to 0.121."""
    return log.event(
        "exec_command_end",
        call_id=item_id,
        command=["/bin/bash", "-lc", "go test ./..."],
        aggregated_output=output,
        exit_code=exit_code,
        status="completed" if exit_code == 0 else "failed",
    )


def test_a_whole_output_replaces_the_item_that_was_cut_and_keeps_its_exit_code(reading_of: Any) -> None:
    whole = "first line\n" + "x" * 30_000 + "\nFAIL: TestLast\n"
    cut = whole[:5000] + "…20026 chars truncated…" + whole[-5000:]
    log = ended(wrapped().call(call_id(1), cmd="go test ./..."), call_id(1), cut, 1)
    log.output(call_id(1), f"Chunk ID: a\nWall time: 1\nProcess exited with code 1\nOutput:\n{whole}")

    reading = reading_of(log)

    assert reading.kinds() == [("test_run", "assistant", None), ("error", "tool", "failed")]
    result = reading.told[1]
    assert result.payload["output"] == whole
    assert result.payload["native"] == {"exit_code": 1, "status": "failed"}
    assert not result.is_provisional


def test_an_output_longer_than_an_item_that_was_cut_without_a_mark_is_kept_too(reading_of: Any) -> None:
    whole = "first line\n" + "x" * 30_000 + "\nFAIL: TestLast\n"
    log = ended(wrapped().call(call_id(1), cmd="go test ./..."), call_id(1), whole[:10_000], 1)
    log.output(call_id(1), f"Chunk ID: a\nWall time: 1\nProcess exited with code 1\nOutput:\n{whole}")

    results = reading_of(log).told[1:]

    assert [(event.block, event.status) for event in results] == [(1, "failed"), (2, "ok")]
    assert results[1].payload["output"].endswith(whole)


def test_an_item_without_any_output_leaves_that_to_the_output(reading_of: Any) -> None:
    log = ended(wrapped().call(call_id(1), cmd="ls"), call_id(1), "")
    log.output(call_id(1), "Process exited with code 0\nOutput:\na.py\n")

    assert reading_of(log).told[1].payload == {"output": "a.py\n", "native": {"exit_code": 0, "status": "completed"}}


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_command_in_the_background_keeps_its_first_part(reading_of: Any, is_whole: bool) -> None:
    first, rest = "first part\n" * 50, "the end\n"
    log = wrapped().call(call_id(1), cmd="make serve")
    log.output(call_id(1), f"Chunk ID: a\nWall time: 1\nProcess running with session ID 5\nOutput:\n{first}")
    ended(log, call_id(1), first + rest if is_whole else f"{first[:9]}…541 chars truncated…{rest}", 2)

    results = reading_of(log).told[1:]

    assert [event.block for event in results] == ([1] if is_whole else [1, 2])
    assert [event.status for event in results][-1] == "failed"
    assert all(any(part in event.payload["output"] for event in results) for part in (first, rest))


def test_an_item_that_comes_after_a_shorter_output_is_kept_too(reading_of: Any) -> None:
    log = wrapped().call(call_id(1), cmd="make").output(call_id(1), "Output:\nab…90 tokens truncated…yz")
    ended(log, call_id(1), "ab" + "x" * 300 + "yz")

    assert [event.block for event in reading_of(log).told] == [0, 1, 2]


# The request is what the person typed


@pytest.mark.parametrize(
    "context",
    [
        "# Context from my IDE setup:\n\n## Active file: a.py\n\n## Open tabs:\n- a.py\n\n## My request for Codex:\n",
        "# Files mentioned by the user:\n\n## shot.png: /tmp/shot.png\n\n## My request:\n",
        "## Prior conversation with Codex:\n\n- ## My request for Codex: tidy up\n\n## My request for Codex:\n",
        "Input contract:\n- one JSON object\n\n## My request for Codex: ",
        "# Context from my IDE setup:\n\n## Open tabs:\n- a.py\n\n# My request for codex:\n",
    ],
)
def test_a_request_from_an_ide_is_what_the_person_typed(reading_of: Any, context: str) -> None:
    words = f"{context}Fix the login.\n\nAnd its test.\n"
    log = wrapped().event("user_message", message=words).say("user", words)

    (prompt,) = reading_of(log).of("user_msg")

    assert prompt.payload["text"] == "Fix the login.\n\nAnd its test."
    assert prompt.summary == "Fix the login. And its test."
    assert prompt.payload["native"]["context"].startswith(context[:12])


@pytest.mark.parametrize(
    "words", ["Translate:\n## My request:\nbe brief", "# Context from my IDE setup:\n\n## Open tabs:"]
)
def test_words_without_an_ide_s_heading_stay_whole(reading_of: Any, words: str) -> None:
    (prompt,) = reading_of(wrapped().say("user", words)).of("user_msg")

    assert prompt.payload == {"text": words}


# Scripts in logs without items of commands (0.142 to 0.146)


def run_script(log: Log, source: str, *printed: str) -> Log:
    parts = [
        {"type": "input_text", "text": words} for words in ("Script completed\nWall time 0.1\nOutput:\n", *printed)
    ]
    log.item("custom_tool_call", name="exec", input=source, call_id=call_id(1))
    return log.item("custom_tool_call_output", call_id=call_id(1), output=parts)


def test_the_commands_of_a_script_are_calls_of_their_own(reading_of: Any) -> None:
    source = """
        const cmd = 'go test ./...';
        const a = await tools.exec_command({"cmd":"git status --short","workdir":"/x"});
        const b = await tools.exec_command({workdir: "/x", cmd: `npm run "lint"`});
        const c = await tools.exec_command({cmd, yield_time_ms: 1000});
        text(a.output); text(b); text(c);
    """
    failed = '{"chunk_id":"a","wall_time_seconds":0.1,"exit_code":1,"output":"FAIL: TestOne"}'

    reading = reading_of(run_script(wrapped(), source, " M a.py", "fine", failed))

    commands = [event for event in reading.told if event.tool == "exec_command"]
    assert [(event.kind, event.summary, event.status) for event in commands] == [
        ("tool_call", "ran git status --short", None),
        ("tool_call", 'ran npm run "lint"', None),
        ("test_run", "ran go test ./...", None),
        ("tool_result", "M a.py", "ok"),
        ("tool_result", "fine", "ok"),
        ("error", "exit 1: FAIL: TestOne", "failed"),
    ]
    assert [event.call_id for event in commands[:3]] == [event.call_id for event in commands[3:]]
    assert all(event.metadata == {"within_call": call_id(1)} for event in commands[:3])


SCRIPTS = {
    "by the name that prints it": (
        """
        const [a, b] = await Promise.all([
          tools.exec_command({cmd: "git status --short"}),  // don't stop here
          tools.exec_command({cmd: `ls ${dir}`}),
        ]);
        text("== b"); text(b.output); text(a.output);
        """,
        ("== b", "a.py", " M a.py"),
        ["ran git status --short", "ran ls ${dir}"],
        {1: " M a.py", 2: "a.py"},
    ),
    "by the turn of the loop": (
        """
        const files = ["a.py", 'b.py'];
        for (const file of files) {
          const r = await tools.exec_command({cmd: `cat ${file}`});
          text(`# ${file}`);
          text(r.output);
        }
        """,
        ("# a.py", "one", "# b.py", "two"),
        ["ran cat a.py", "ran cat b.py"],
        {1: "one", 2: "two"},
    ),
    "of a list that is printed later": (
        """
        const results = [];
        for (const cmd of ["git log -3", "npm run \\"lint\\""]) { results.push(await tools.exec_command({cmd})); }
        results.forEach((r) => text(r.output));
        """,
        ("abc", "fine"),
        ["ran git log -3", 'ran npm run "lint"'],
        {1: "abc", 2: "fine"},
    ),
    "of none where the parts are others than the script says": (
        """
        const a = await tools.exec_command({cmd: "ls"}); const b = await tools.exec_command({cmd: "pwd"});
        if (a.exit_code) { text("bad"); } text(a.output); text(b.output);
        """,
        ("a.py", "/x"),
        ["ran ls", "ran pwd"],
        {},
    ),
}


@pytest.mark.parametrize(("source", "printed", "ran", "outputs"), SCRIPTS.values(), ids=SCRIPTS)
def test_a_result_in_a_script_is_that_of_the_command(
    reading_of: Any, source: str, printed: tuple[str, ...], ran: list[str], outputs: dict[int, str]
) -> None:
    events = [
        event for event in reading_of(run_script(wrapped(), source, *printed)).told if event.tool == "exec_command"
    ]

    assert [event.summary for event in events if event.role == "assistant"] == ran
    told = {int(event.call_id.rpartition("/")[2]): event.payload["output"] for event in events if event.role == "tool"}
    assert told == outputs


@pytest.mark.parametrize(
    ("source", "command"),
    [
        ("const n = ask(); await tools.exec_command({cmd: `head -n ${n} a.py`});", "head -n ${n} a.py"),
        ("for (let i = 0; i < 3; i++) { await tools.exec_command({cmd: build(i)}); }", "${build(i)}"),
        ("await Promise.all(jobs.map(job => tools.exec_command(job)));", "${job}"),
    ],
)
def test_a_command_that_only_the_run_knew_is_marked_as_a_template(reading_of: Any, source: str, command: str) -> None:
    (call,) = [event for event in reading_of(run_script(wrapped(), source)).told if event.tool == "exec_command"]

    assert call.payload["input"] == {"cmd": command, "is_template": True}


@pytest.mark.parametrize(
    ("written", "command"), [('"echo ${HOME}"', "echo ${HOME}"), ("`echo \\${HOME}`", "echo ${HOME}")]
)
def test_a_variable_of_the_shell_makes_no_template(reading_of: Any, written: str, command: str) -> None:
    source = f"await tools.exec_command({{cmd: {written}}});"

    (call,) = [event for event in reading_of(run_script(wrapped(), source)).told if event.tool == "exec_command"]

    assert call.payload["input"] == {"cmd": command}


def test_the_exit_code_that_a_script_prints_is_the_commands(reading_of: Any) -> None:
    source = 'const r = await tools.exec_command({cmd: "make"}); text(r.output); text(`exit_code=${r.exit_code}`);'

    event = reading_of(run_script(wrapped(), source, "no rule\n", "exit_code=2")).told[-1]

    assert (event.kind, event.payload["native"]) == ("error", {"exit_code": 2})


@pytest.mark.parametrize(
    "piece", ["[", "const a = ", "text(", "const a = `${a}`;", "for (const ", "a", "x.push(", 'tools.exec_command({"']
)
def test_a_script_of_nonsense_is_read_quickly(piece: str) -> None:
    begun = time.process_time()

    read_script("tools." + piece * (20_000 // len(piece)))

    assert time.process_time() - begun < 3


def test_a_thread_in_which_codex_asks_for_a_title_is_no_session_of_a_person(reading_of: Any) -> None:
    words = (
        "You are a helpful assistant. Your job is to provide a short title for a task that was typed: fix the parser"
    )

    reading = reading_of(wrapped().say("user", words))

    assert reading.infos[-1] == SessionInfo(THREAD, session_class="warm-up")


def test_a_request_about_titles_is_a_persons(reading_of: Any) -> None:
    log = wrapped().say("user", "fix the parser").say("user", "Generate a concise UI title for the page")

    assert all(info.session_class != "warm-up" for info in reading_of(log).infos)


def test_the_output_of_a_script_is_that_of_its_only_command(reading_of: Any) -> None:
    source = 'const r = await tools.exec_command({cmd:"pytest -q"}); text(r.output); text("done");'

    reading = reading_of(run_script(wrapped(), source, "1 passed\n", "done"))

    assert reading.told[-1].payload == {"output": "1 passed\n"}


def test_an_item_of_a_command_that_was_read_off_its_script_is_only_its_result(reading_of: Any) -> None:
    log = wrapped().item("custom_tool_call", name="exec", input='tools.exec_command({cmd:"make"})', call_id=call_id(1))
    log.event(
        "exec_command_end", call_id="exec-4a50b6ec", command=["bash", "-lc", "make"], aggregated_output="x", exit_code=2
    )
    log.item("custom_tool_call_output", call_id=call_id(1), output="Script completed")

    assert reading_of(log).kinds() == [
        ("tool_call", "assistant", None),
        ("tool_call", "assistant", None),
        ("error", "tool", "failed"),
        ("tool_result", "tool", "ok"),
    ]


def test_a_search_of_a_script_is_a_call_and_its_result(reading_of: Any) -> None:
    search = {"query": "zstd level", "action": {"type": "search", "query": "zstd level"}}
    log = wrapped().item("custom_tool_call", name="exec", input="await tools.web__run()", call_id=call_id(1))
    log.event("web_search_end", call_id="exec-3f8562af-e674-4c85", **search, results=[{"url": "https://example.com"}])

    call, result = reading_of(log).told[1:]

    assert (call.kind, call.summary, call.metadata) == (
        "tool_call",
        "searched the web: zstd level",
        {"within_call": call_id(1)},
    )
    assert (result.kind, result.call_id, result.native_id) == ("tool_result", call.call_id, call.native_id)


def test_a_request_from_an_ide_and_a_test_run_in_a_script_reach_the_digest(tmp_path: Path) -> None:
    failed = '{"chunk_id":"a","exit_code":1,"output":"--- FAIL: TestOne"}'
    log = wrapped().say("user", "# Context from my IDE setup:\n\n## My request for Codex:\nfix the tests")
    run_script(log, 'text(await tools.exec_command({cmd: "go test ./..."}));', failed)
    path = tmp_path / "home" / "sessions" / f"rollout-2026-11-15T18-00-00-{THREAD}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"".join(line + b"\n" for line in log.lines))

    with swept(tmp_path / "store", f"codex={tmp_path / 'home'}") as memory:
        (session,) = memory.sessions()
        digest = memory.digest(session)

    assert (session.title, digest.requests[0].text) == ("fix the tests", "fix the tests")
    assert [(command.name, command.count, command.failures) for command in digest.commands] == [("go test", 1, 1)]
    assert digest.tests.last == "failed"
