"""Grok: a session's folder becomes the right events, in any order and in pieces of any size."""

import base64
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.agentkit.protocol import (
    STATE_LIMIT_BYTES,
    BadLine,
    Checkpoint,
    Cursor,
    EventRecord,
    SessionInfo,
    Skipped,
    Source,
    Usage,
)
from recollect.agents.grok import ADAPTER
from recollect.model.schema import HISTORY_LANE

SESSION = "01a1e08d-4e33-7561-812e-3a41f155cffe"
PARENT = "44444444-5555-4666-8777-888888888888"
START_MS = 1_794_768_719_000
DATA = Path(__file__).parent.parent / "data" / "grok"


class Updates:
    """Lines of an updates.jsonl as Grok writes them; the clock goes on 10 ms and the number 2 a line."""

    def __init__(self, session: str = SESSION) -> None:
        self.session = session
        self.lines: list[bytes] = []
        self.number = 0
        self.ms = START_MS

    def add(self, update: dict[str, Any], **meta: Any) -> "Updates":
        self.number += 2
        self.ms += 10
        moment = {"eventId": f"{self.session}-{self.number}", "agentTimestampMs": self.ms}
        method = "session/update" if "promptId" in meta else "_x.ai/session/update"
        params = {"sessionId": self.session, "update": update, "_meta": moment | meta}
        self.lines.append(orjson.dumps({"timestamp": self.ms // 1000, "method": method, "params": params}))
        return self

    def user(self, text: str, index: int = 0, **facts: Any) -> "Updates":
        content = {"type": "text", "text": text}
        facts = {"modelId": "grok-4.6", "promptIndex": index} | facts
        return self.add({"sessionUpdate": "user_message_chunk", "content": content, "_meta": facts})

    def chunk(self, text: str, kind: str = "message", prompt: str = "p1", stream: int = 1, **meta: Any) -> "Updates":
        update = {"sessionUpdate": f"agent_{kind}_chunk", "content": {"type": "text", "text": text}}
        return self.add(update, promptId=prompt, streamStartMs=stream, **meta)

    def call(self, name: str, arguments: Any, call: str = "call_1", kind: str = "other", **facts: Any) -> "Updates":
        tool = {"name": name, "kind": kind, "namespace": "grok_build", "label": name}
        update = {"sessionUpdate": "tool_call", "toolCallId": call, "title": name, "rawInput": arguments}
        return self.add(update | {"_meta": {"x.ai/tool": tool, **facts}}, promptId="p1", streamStartMs=1)

    def result(
        self,
        output: Any = None,
        text: str | None = None,
        call: str = "call_1",
        status: str = "completed",
        moment: int | None = None,
    ) -> "Updates":
        update: dict[str, Any] = {"sessionUpdate": "tool_call_update", "toolCallId": call, "status": status}
        if text is not None:
            update["content"] = [{"type": "content", "content": {"type": "text", "text": text}}]
        if output is not None:
            update["rawOutput"] = output
        meta = {"agentTimestampMs": moment} if moment else {}
        return self.add(update, promptId="p1", streamStartMs=1, **meta)

    def shell(self, command: str, text: str, code: int = 0, call: str = "call_1") -> "Updates":
        self.call("run_terminal_command", {"command": command}, call, "execute")
        return self.result(bash(text, code, command=command), text, call)

    def end(
        self, reason: str = "end_turn", prompt: str = "p1", usage: Any = None, result: Any = None, **meta: Any
    ) -> "Updates":
        update = {"sessionUpdate": "turn_completed", "prompt_id": prompt, "stop_reason": reason}
        update |= {"usage": usage} if usage else {}
        return self.add(update | ({"agent_result": result} if result else {}), **meta)

    def other(self, kind: str, **facts: Any) -> "Updates":
        return self.add({"sessionUpdate": kind, **facts})

    def content(self) -> bytes:
        return b"".join(line + b"\n" for line in self.lines)


def bash(text: str, code: int = 0, **facts: Any) -> dict[str, Any]:
    told = {"type": "Bash", "output": list(text.encode()), "output_for_prompt": f"exit: {code}\n{text}"}
    return told | {"exit_code": code, "truncated": False, "signal": None, "timed_out": False} | facts


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "sessions" / "%2Fhome%2Fme" / SESSION).mkdir(parents=True)
    return tmp_path


def put(home: Path, name: str, content: bytes | Updates | dict[str, Any], session: str = SESSION) -> Path:
    path = home / "sessions" / "%2Fhome%2Fme" / session / name
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, Updates):
        content = content.content()
    path.write_bytes(content if isinstance(content, bytes) else orjson.dumps(content))
    return path


def read(home: Path, kind: str, cursor: Cursor | None = None) -> list[Any]:
    return [
        record for source in ADAPTER.discover(home) if source.kind == kind for record in ADAPTER.read(source, cursor)
    ]


def events(home: Path, updates: Updates | bytes | None = None, kind: str = "updates") -> list[EventRecord]:
    if updates is not None:
        put(home, "updates.jsonl", updates)
    return [record for record in read(home, kind) if isinstance(record, EventRecord)]


def only(home: Path, updates: Updates, kind: str) -> EventRecord:
    (event,) = [event for event in events(home, updates) if event.kind == kind]
    return event


def skipped(records: list[Any]) -> dict[str, int]:
    return {record.native_type: record.count for record in records if isinstance(record, Skipped)}


# Which files


def test_only_session_files_are_found(home: Path) -> None:
    names = (
        "updates.jsonl",
        "events.jsonl",
        "summary.json",
        "chat_history.jsonl",
        "system_prompt.txt",
        "usage.json",
    )
    for name in (
        *names,
        "rewind_points.jsonl",
        "terminal/call_1.log",
        "subagents/c1/meta.json",
        "subagents/c1/output.json",
    ):
        put(home, name, b"{}\n")
    (home / "auth.json").write_text("{}")
    (home / "sessions" / "%2Fhome%2Fme" / "prompt_history.jsonl").write_text("")

    found = {(source.kind, source.path.name, source.is_rewritten) for source in ADAPTER.discover(home)}

    assert found == {
        ("updates", "updates.jsonl", False),
        ("events", "events.jsonl", False),
        ("summary", "summary.json", True),
        ("child", "meta.json", True),
        ("history", "prompt_history.jsonl", False),
    }


def test_sessions_copied_to_another_folder_are_found_at_any_depth(tmp_path: Path) -> None:
    folder = tmp_path / "backup" / "2026" / SESSION
    folder.mkdir(parents=True)
    for name in ("updates.jsonl", "summary.json"):
        (folder / name).write_text("")
    (tmp_path / "backup" / "updates.jsonl").write_text("")

    found = [source.path.relative_to(tmp_path).as_posix() for source in ADAPTER.discover(tmp_path)]

    assert found == [f"backup/2026/{SESSION}/updates.jsonl", f"backup/2026/{SESSION}/summary.json"]


def test_a_linked_session_folder_is_not_followed(home: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (elsewhere / "updates.jsonl").write_text("{}\n")
    (home / "sessions" / "%2Fhome%2Fme" / "linked").symlink_to(elsewhere)

    assert list(ADAPTER.discover(home)) == []


def test_the_chat_history_is_read_only_without_updates(home: Path) -> None:
    put(home, "chat_history.jsonl", b'{"type":"user","content":"hi"}\n')
    assert [source.kind for source in ADAPTER.discover(home)] == ["chat"]

    put(home, "updates.jsonl", b"")
    assert [source.kind for source in ADAPTER.discover(home)] == ["updates"]


# Messages


def test_a_turn_becomes_prompt_thinking_answer_and_end(home: Path) -> None:
    found = events(home, Updates().user("Say hello").chunk("Greet.", "thought").chunk("Hello!").end())

    assert [(event.kind, event.role, event.summary) for event in found] == [
        ("user_msg", "user", "Say hello"),
        ("thinking", "assistant", "Greet."),
        ("assistant_msg", "assistant", "Hello!"),
        ("lifecycle", "system", "turn ended: end_turn"),
    ]
    assert found[2].payload["text"] == "Hello!"
    assert found[2].model == "grok-4.6"
    assert [event.ts_ms for event in found] == [START_MS + 10 * n for n in (1, 2, 3, 4)]


def test_pieces_of_one_response_are_one_event_named_by_the_first(home: Path) -> None:
    found = events(home, Updates().user("x").chunk("Hel").chunk("lo ").chunk("you").end())

    assert [event.kind for event in found] == ["user_msg", "assistant_msg", "lifecycle"]
    assert found[1].payload["text"] == "Hello you"
    assert found[1].native_id == f"{SESSION}-4@{START_MS + 20}"


def test_a_piece_written_twice_is_told_once(home: Path) -> None:
    log = Updates().user("x").chunk("ha")
    log.lines.append(log.lines[-1])
    found = events(home, log.chunk("ha").end())

    assert found[1].payload["text"] == "haha"


def test_the_next_response_of_the_turn_is_another_message(home: Path) -> None:
    found = events(home, Updates().chunk("One", stream=1).chunk("Two", stream=2).end())

    assert [event.summary for event in found[:2]] == ["One", "Two"]


def test_a_prompt_whose_number_is_none_is_no_piece_of_the_one_before(home: Path) -> None:
    found = events(home, Updates().user("before", 1).user("odd", True).user("after", 2))

    assert [event.summary for event in found] == ["before", "odd", "after"]


def test_thinking_between_two_texts_divides_them(home: Path) -> None:
    found = events(home, Updates().chunk("One").chunk("Hm", "thought").chunk("Two").end())

    assert [event.summary for event in found[:3]] == ["One", "Hm", "Two"]


def test_a_piece_that_follows_its_cancelled_turn_still_belongs_to_its_message(home: Path) -> None:
    log = Updates().user("tell").chunk("Once upon")
    log.end("cancelled", cancellationCategory="MidTurnAbort")
    log.number, log.ms = log.number - 1, log.ms - 5
    log.chunk(" a time", eventId=f"{SESSION}-5", agentTimestampMs=START_MS + 25)
    found = events(home, log.user("next", 1))

    assert [(event.kind, event.payload.get("text")) for event in sorted(found, key=lambda event: event.position)] == [
        ("user_msg", "tell"),
        ("assistant_msg", "Once upon a time"),
        ("human_intervention", None),
        ("user_msg", "next"),
    ]
    assert [event.is_provisional for event in found] == [False, False, False, True]


def test_a_message_at_the_end_of_the_file_is_provisional_until_something_ends_it(home: Path) -> None:
    log = Updates().user("x").chunk("Hel")
    assert [event.is_provisional for event in events(home, log)] == [False, True]

    (event, end) = events(home, log.chunk("lo").end())[1:]
    assert (event.is_provisional, event.payload["text"], end.is_provisional) == (False, "Hello", False)


def test_text_and_picture_of_one_prompt_stay_together(home: Path) -> None:
    picture = base64.b64encode(b"png bytes").decode()
    log = Updates().user("Look", 3)
    log.add(
        {
            "sessionUpdate": "user_message_chunk",
            "content": {"type": "image", "mimeType": "image/png", "data": picture},
            "_meta": {"modelId": "grok-4.6", "promptIndex": 3},
        }
    )
    event = only(home, log.end(), "user_msg")

    assert event.payload["text"] == "Look"
    assert [(media["kind"], media["mime"], media["bytes"]) for media in event.payload["media"]] == [
        ("image", "image/png", 9)
    ]
    assert picture not in json.dumps(event.payload)


def test_an_empty_piece_makes_no_event(home: Path) -> None:
    put(home, "updates.jsonl", Updates().chunk("").end())
    records = read(home, "updates")

    assert [record.kind for record in records if isinstance(record, EventRecord)] == ["lifecycle"]
    assert skipped(records) == {"empty": 1}


def test_what_the_harness_says_in_the_users_name_is_no_turn(home: Path) -> None:
    log = Updates().user("<system-reminder>task done</system-reminder>", hideFromScrollback=True)
    (event,) = events(home, log)

    assert (event.kind, event.role) == ("lifecycle", "system")


# Tools


@pytest.mark.parametrize(
    ("name", "tool_kind", "arguments", "kind", "summary"),
    [
        ("run_terminal_command", "execute", {"command": "ls -la"}, "tool_call", "ran ls -la"),
        (
            "run_terminal_command",
            "execute",
            {"command": "python -m pytest -q"},
            "test_run",
            "ran python -m pytest -q",
        ),
        ("search_replace", "edit", {"file_path": "calc.py"}, "edit", "edited calc.py"),
        ("write", "write", {"file_path": "new.py", "content": "x"}, "edit", "edited new.py"),
        ("read_file", "read", {"target_file": "calc.py"}, "tool_call", "read calc.py"),
        ("grep", "search", {"pattern": "def add"}, "tool_call", "searched for def add"),
        ("todo_write", "plan", {"todos": []}, "tool_call", "updated the todo list"),
        ("spawn_subagent", "task", {"description": "Count"}, "tool_call", "started a sub-agent: Count"),
        ("use_tool", "use_tool", {"tool_name": "memo__recall"}, "tool_call", "called memo__recall"),
        ("ask_user_question", "ask_user", {"questions": [{"question": "Red?"}]}, "tool_call", "asked: Red?"),
        ("new_tool", "other", {}, "tool_call", "called new_tool"),
    ],
)
def test_calls_get_their_kind_and_summary(
    home: Path, name: str, tool_kind: str, arguments: Any, kind: str, summary: str
) -> None:
    (event,) = events(home, Updates().call(name, arguments, kind=tool_kind))

    assert (event.kind, event.role, event.tool, event.summary) == (kind, "assistant", name, summary)
    assert (event.call_id, event.status, event.payload["input"]) == ("call_1", None, arguments)
    assert event.retry_key


def test_a_shell_result_is_its_text_and_links_to_its_call(home: Path) -> None:
    call, result = events(home, Updates().shell("ls", "a\nb\n"))

    assert (result.kind, result.role, result.status, result.tool) == (
        "tool_result",
        "tool",
        "ok",
        "run_terminal_command",
    )
    assert (result.call_id, result.payload["output"], result.payload["native"]["exit_code"]) == (
        call.call_id,
        "a\nb\n",
        0,
    )
    assert "output_for_prompt" not in result.payload["native"]


def test_a_non_zero_exit_is_an_error_although_grok_calls_it_completed(home: Path) -> None:
    event = only(home, Updates().shell("python x.py", "Traceback\nKeyError: 'x'\n", 1), "error")

    assert (event.role, event.status, event.is_error, event.summary) == (
        "tool",
        "failed",
        True,
        "exit 1: KeyError: 'x'",
    )


def test_a_search_without_matches_is_no_error(home: Path) -> None:
    log = Updates().call("grep", {"pattern": "x"}, kind="search")
    log.result({"type": "GrepSearch", "stdout": list(b"none"), "stderr": [], "exit_code": 1}, "found 0 matches")

    assert only(home, log, "tool_result").payload["output"] == "none"


@pytest.mark.parametrize(
    ("output", "text", "expected"),
    [
        (
            {"type": "Todo", "TodosUpdated": {"summary_for_prompt": "- [done] 1", "todos": []}},
            None,
            "- [done] 1",
        ),
        ({"type": "ListDir", "Content": {"content": "- docs/"}}, None, "- docs/"),
        ({"type": "TaskOutput", "Result": {"output": "serving", "exit_code": None}}, None, "serving"),
        ({"type": "MCP", "server_name": "memo", "output": {"OkayOutput": "hit"}}, None, "hit"),
        ({"type": "SearchReplace", "EditsApplied": {"tool_output_for_prompt": "updated"}}, None, "updated"),
        ({"type": "ReadFile", "FileContent": {"content": "1→x"}}, "1→x", "1→x"),
        ({"type": "Later", "stdout": [104, 105], "output": [104, 105]}, None, "hi"),
        ("plain text", None, "plain text"),
    ],
)
def test_results_are_told_as_the_text_the_model_saw(home: Path, output: Any, text: str | None, expected: str) -> None:
    event = only(home, Updates().call("t", {}).result(output, text), "tool_result")

    assert event.payload["output"] == expected


def test_a_failed_call_is_an_error(home: Path) -> None:
    log = Updates().call("read_file", {"target_file": "no"}, kind="read")
    event = only(
        home,
        log.result({"type": "ReadFile", "FileNotFound": "gone"}, "Error: gone", status="failed"),
        "error",
    )

    assert (event.status, event.summary) == ("failed", "failed: Error: gone")


def test_the_whole_output_of_a_cut_off_command_is_read_from_its_log(home: Path) -> None:
    log = Updates().call("run_terminal_command", {"command": "seq 9"}, kind="execute")
    put(home, "terminal/call_1.log", b"all of it\n")
    event = only(home, log.result(bash("part", truncated=True), "part"), "tool_result")

    assert event.payload["output"] == "all of it\n"


def test_a_cut_off_commands_log_outside_the_folder_is_never_read(home: Path) -> None:
    (home / "secret.log").write_text("secret")
    log = Updates().call("run_terminal_command", {"command": "x"}, "../../../../secret", "execute")
    log.result(bash("part", truncated=True), "part", "../../../../secret")

    assert only(home, log, "tool_result").payload["output"] == "part"


def test_a_picture_that_was_read_is_kept_as_a_reference(home: Path) -> None:
    log = Updates().call("read_file", {"target_file": "a.png"}, kind="read")
    image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(b"1234").decode()}
    log.add(
        {
            "sessionUpdate": "tool_call_update",
            "toolCallId": "call_1",
            "status": "completed",
            "content": [{"type": "content", "content": image}],
            "rawOutput": {"type": "ReadFile", "ImageContent": {"data": image["data"]}},
        },
        promptId="p1",
    )
    event = only(home, log, "tool_result")

    assert event.payload["media"][0]["bytes"] == 4
    assert image["data"] not in json.dumps(event.payload)


def test_what_a_call_was_called_with_may_come_in_a_later_update(home: Path) -> None:
    log = Updates().add({"sessionUpdate": "tool_call", "toolCallId": "call_1", "title": "read_file"}, promptId="p1")
    log.add(
        {"sessionUpdate": "tool_call_update", "toolCallId": "call_1", "rawInput": {"target_file": "a"}},
        promptId="p1",
    )
    first, second = events(home, log)

    assert (first.native_id, first.is_provisional) == (second.native_id, True)
    assert (second.is_provisional, second.payload["input"], second.summary) == (
        False,
        {"target_file": "a"},
        "read a",
    )


def test_the_users_own_shell_is_the_users_call_and_result(home: Path) -> None:
    log = Updates()
    content = {"type": "text", "text": "ls", "_meta": {"bash_command": "ls"}}
    log.add({"sessionUpdate": "user_message_chunk", "content": content, "_meta": {"modelId": "grok-4.6"}})
    log.call("run_terminal_command", {"command": "ls"}, "bash-mode-1", "execute", bash_mode=True)
    log.result(bash("no", 1), call="bash-mode-1", status="failed")
    call, result = events(home, log)

    assert (call.kind, call.role, call.tool, call.summary) == ("tool_call", "user", "shell", "ran ls")
    assert (result.kind, result.role, result.tool, result.call_id) == (
        "error",
        "user",
        "shell",
        "bash-mode-1",
    )


def test_an_answered_question_is_a_decision(home: Path) -> None:
    log = Updates().call("ask_user_question", {"questions": [{"question": "Colour?"}]}, kind="ask_user")
    event = only(home, log.result({"type": "AskUserQuestion", "UserAnswered": {"message": "Red"}}, "Red"), "decision")

    assert (event.role, event.status, event.is_error) == ("user", "ok", False)


def test_a_declined_question_is_an_intervention(home: Path) -> None:
    log = Updates().call("ask_user_question", {}, kind="ask_user")
    event = only(home, log.result({"type": "AskUserQuestion", "UserCancelled": {}}, "no"), "human_intervention")

    assert (event.status, event.is_error) == ("denied", True)


def test_refusing_a_call_and_so_ending_the_turn_are_two_interventions(home: Path) -> None:
    log = Updates().call("run_terminal_command", {"command": "rm x"}, kind="execute")
    log.result(None, "User cancelled the execution for tool `run_terminal_command`", status="failed")
    found = events(home, log.end("cancelled", cancellationCategory="PermissionCancelled"))

    assert [(event.kind, event.role, event.status, event.is_provisional) for event in found[1:]] == [
        ("human_intervention", "user", "denied", False),
        ("human_intervention", "user", "interrupted", False),
    ]
    assert found[2].payload["native"]["cancellationCategory"] == "PermissionCancelled"


# Turns


def test_an_interrupted_turn_is_an_intervention(home: Path) -> None:
    event = only(home, Updates().end("cancelled", cancelTrigger="ctrl_c"), "human_intervention")

    assert (event.role, event.status, event.is_error) == ("user", "interrupted", False)
    assert event.payload["native"]["cancelTrigger"] == "ctrl_c"


def test_a_failure_of_the_service_is_told_once_by_the_end_of_the_turn(home: Path) -> None:
    log = Updates().user("x").other("retry_state", type="retrying", attempt=1, reason="overloaded")
    log.other("retry_state", type="failed", message="status 402").end("error", result="status 402")
    found = events(home, log)[1:]

    assert [(event.kind, event.role, event.status, event.is_error, event.is_retry) for event in found] == [
        ("retry", "system", "retrying", True, True),
        ("error", "assistant", "failed", True, False),
    ]
    assert found[1].payload["text"] == "status 402"
    assert skipped(read(home, "updates")) == {"retry_state (failed)": 1}


def test_a_turn_that_ends_in_an_error_of_its_own_is_an_error(home: Path) -> None:
    event = only(home, Updates().user("x").end("error", result="boom"), "error")

    assert (event.role, event.payload["text"], event.summary) == ("assistant", "boom", "failed: boom")


def test_a_turns_tokens_are_told_without_the_cache_and_with_its_money(home: Path) -> None:
    usage: dict[str, Any] = {
        "inputTokens": 100,
        "cachedReadTokens": 60,
        "cacheCreationTokens": 10,
        "outputTokens": 7,
        "reasoningTokens": 2,
    }
    usage |= {"costUsdTicks": 25_000_000_000, "modelUsage": {"grok-4.6": {"inputTokens": 100}}}
    put(home, "updates.jsonl", Updates().end(usage=usage, prompt="prompt-1"))
    (told,) = [record for record in read(home, "updates") if isinstance(record, Usage)]

    assert (told.usage_id, told.model, told.provider) == ("prompt-1", "grok-4.6", "xai")
    assert (told.input_tokens, told.cache_read_tokens, told.cache_write_tokens) == (30, 60, 10)
    assert (told.output_tokens, told.reasoning_tokens, told.usd) == (7, 2, 2.5)
    assert told.includes_sub_agents


def test_tokens_of_several_models_are_told_apart(home: Path) -> None:
    models = {"grok-4.6": {"inputTokens": 5}, "other-1": {"inputTokens": 6}}
    put(home, "updates.jsonl", Updates().end(usage={"inputTokens": 11, "modelUsage": models}))
    told = [record for record in read(home, "updates") if isinstance(record, Usage)]

    assert [(usage.usage_id, usage.provider, usage.input_tokens) for usage in told] == [
        ("p1:grok-4.6", "xai", 5),
        ("p1:other-1", None, 6),
    ]


def test_compactions_and_background_tasks_are_lifecycle(home: Path) -> None:
    log = Updates().other("auto_compact_started", reason="full").other("compaction_checkpoint", checkpoint_id="c")
    log.other("task_completed", task_snapshot={"command": "make", "output": "built\n"})
    found = events(home, log)

    assert {(event.kind, event.role) for event in found} == {("lifecycle", "system")}
    assert [event.summary for event in found] == [
        "auto compact started: full",
        "compaction checkpoint",
        "task completed: make",
    ]
    assert found[2].payload["text"] == "built\n"
    assert "output" not in found[2].payload["native"]["task_snapshot"]


def test_reports_of_hooks_leave_no_trace_in_the_order_of_events(home: Path) -> None:
    log = Updates().other("hook_execution", event_name="session_start").user("x")
    log.other("hook_execution", event_name="user_prompt_submit").chunk("Hi").end()
    log.other("hook_execution", event_name="session_end")
    found = events(home, log)

    assert [event.kind for event in found] == ["user_msg", "assistant_msg", "lifecycle"]
    assert [event.parent_native_id for event in found] == [None, found[0].native_id, found[1].native_id]
    assert skipped(read(home, "updates")) == {"hook_execution": 3}


def test_twins_are_skipped_and_counted_by_name(home: Path) -> None:
    log = Updates().call("todo_write", {}).other("plan", entries=[]).other("background_tasks", tasks=[])
    log.add({"sessionUpdate": "tool_call_update", "toolCallId": "call_1", "title": "Plan"})
    put(home, "updates.jsonl", log)

    assert skipped(read(home, "updates")) == {
        "plan": 1,
        "background_tasks": 1,
        "tool_call_update (details)": 1,
    }


def test_an_unknown_update_is_kept_whole(home: Path) -> None:
    event = only(home, Updates().other("from_the_future", x={"y": 1}), "other")

    assert event.payload["native"]["x"] == {"y": 1}


# Lines of descent


def test_each_event_follows_the_one_before(home: Path) -> None:
    found = events(home, Updates().user("x").chunk("Hi").shell("ls", "a").end())

    assert [event.parent_native_id for event in found] == [None, *[event.native_id for event in found[:-1]]]


def test_lines_out_of_order_are_placed_by_moment(home: Path) -> None:
    log = Updates().user("x").call("run_terminal_command", {"command": "ls"}, kind="execute")
    log.other("retry_state", type="retrying", reason="late")
    log.result(bash("a"), "a")
    late = orjson.loads(log.lines.pop())
    late["params"]["_meta"] |= {"eventId": f"{SESSION}-5", "agentTimestampMs": START_MS + 25}
    log.lines.append(orjson.dumps(late))
    found = events(home, log.chunk("Done", stream=2).end())

    assert [event.kind for event in found] == [
        *("user_msg", "tool_call", "tool_result", "retry"),
        *("assistant_msg", "lifecycle"),
    ]
    assert [event.position for event in found] == sorted(event.position for event in found)
    assert [event.parent_native_id for event in found] == [None, *[event.native_id for event in found[:-1]]]


def test_what_may_still_be_overtaken_is_provisional_and_read_again(home: Path) -> None:
    log = Updates().user("x").call("t", {}).other("auto_compact_started", reason="full")
    put(home, "updates.jsonl", log)
    *records, checkpoint = read(home, "updates")

    assert [record.is_provisional for record in records] == [False, False, True]
    assert checkpoint.cursor.line == 2


def test_what_happens_between_turns_waits_for_nothing(home: Path) -> None:
    log = Updates().user("x").chunk("Hi").end().other("auto_compact_started").other("auto_compact_completed")
    found = events(home, log)

    assert not any(event.is_provisional for event in found)
    assert [event.parent_native_id for event in found] == [None, *[event.native_id for event in found[:-1]]]


def test_an_event_that_nothing_overtakes_does_not_wait_for_ever(home: Path) -> None:
    log = Updates().user("x").call("t", {}).other("auto_compact_started")
    for _ in range(300):
        log.other("plan", entries=[])
    found = events(home, log)

    assert not any(event.is_provisional for event in found)


def test_numbers_that_start_again_after_a_resume_do_not_clash(home: Path) -> None:
    log = Updates().user("one").chunk("1").end()
    log.number = 0
    found = events(home, log.user("two", 1).chunk("2", prompt="p2").end(prompt="p2"))

    assert len({event.native_id for event in found}) == len(found) == 6
    assert [event.position for event in found] == sorted(event.position for event in found)


def test_a_rewind_names_what_it_left_behind_and_goes_on_from_what_was_kept(home: Path) -> None:
    log = Updates().user("one", 0).chunk("1").end()
    log.user("two", 1).chunk("2", prompt="p2").end(prompt="p2")
    log.other("rewind_marker", target_prompt_index=1).user("three", 1).end()
    found = events(home, log)
    kept, dead, marker, new = found[2], found[3:6], found[6], found[7]

    assert marker.metadata == {"rewind_to": dead[0].position, "rewind_until": marker.position}
    assert (marker.parent_native_id, new.parent_native_id) == (dead[-1].native_id, kept.native_id)


def test_a_rewind_to_the_first_prompt_starts_a_new_line(home: Path) -> None:
    log = Updates().user("one").end().other("rewind_marker", target_prompt_index=0).user("two")
    first, _, marker, new = events(home, log)

    assert marker.metadata == {"rewind_to": first.position, "rewind_until": marker.position}
    assert new.parent_native_id is None


def test_a_forks_copies_have_the_ids_of_their_originals(home: Path) -> None:
    original = Updates(PARENT).user("one").chunk("1").end()
    copied = original.content().replace(f'"sessionId":"{PARENT}"'.encode(), f'"sessionId":"{SESSION}"'.encode())
    put(home, "updates.jsonl", original, PARENT)
    put(home, "updates.jsonl", copied)
    found = events(home)

    by_session = {
        session: [(event.native_id, event.position) for event in found if event.native_session_id == session]
        for session in (PARENT, SESSION)
    }
    assert by_session[PARENT] == by_session[SESSION]


def test_a_sub_agent_is_told_with_its_parent_and_its_call(home: Path) -> None:
    log = Updates().call("spawn_subagent", {"description": "Count"}, kind="task")
    log.other("subagent_spawned", child_session_id="child-1", parent_session_id=SESSION, description="Count")
    log.other("subagent_finished", child_session_id="child-1", status="completed", output="3")
    log.result({"type": "SubagentCompleted", "subagent_id": "child-1", "output": "3"}, "3")
    put(home, "updates.jsonl", log)
    infos = [record for record in read(home, "updates") if isinstance(record, SessionInfo)]

    assert {info.native_session_id for info in infos} == {"child-1"}
    assert {info.parent_native_id for info in infos} == {SESSION}
    assert {info.session_class for info in infos} == {"sub-agent"}
    assert infos[-1].spawn_call_id == "call_1"


def test_a_fork_does_not_claim_its_parents_sub_agents(home: Path) -> None:
    log = Updates(PARENT).other("subagent_spawned", child_session_id="child-1", description="Count")
    put(
        home,
        "updates.jsonl",
        log.content().replace(f'"sessionId":"{PARENT}"'.encode(), f'"sessionId":"{SESSION}"'.encode()),
    )

    assert not [record for record in read(home, "updates") if isinstance(record, SessionInfo)]


# Facts beside the log

SUMMARY = {
    "info": {"id": SESSION, "cwd": "/home/me/proj"},
    "session_summary": "First words",
    "generated_title": "Fix the test",
    "created_at": "2026-11-15T18:51:59.000000000Z",
    "current_model_id": "grok-4.6",
    "git_root_dir": "/home/me/proj/",
    "git_remotes": ["https://example.com/me/proj.git"],
    "head_branch": "main",
    "session_kind": "headless",
}


def info_of(home: Path, **changes: Any) -> SessionInfo:
    put(home, "updates.jsonl", b"")
    put(home, "summary.json", {**SUMMARY, **changes})
    (info,) = [record for record in read(home, "summary") if isinstance(record, SessionInfo)]
    return info


def test_the_summary_tells_place_model_and_class(home: Path) -> None:
    info = info_of(home)

    assert (info.native_session_id, info.cwd, info.git_branch) == (SESSION, "/home/me/proj", "main")
    assert (info.git_root, info.git_remote) == ("/home/me/proj/", "https://example.com/me/proj.git")
    assert (info.model, info.provider, info.session_class) == ("grok-4.6", "xai", "automation")
    assert (info.title, info.title_rank, info.born_ms) == ("Fix the test", 2, START_MS)


@pytest.mark.parametrize(
    ("changes", "title"),
    [
        ({"title_is_manual": True}, ("Fix the test", 3)),
        ({"generated_title": ""}, ("First words", 1)),
        ({"generated_title": None, "session_summary": 5}, (None, 0)),
    ],
)
def test_the_title_says_who_gave_it(home: Path, changes: dict[str, Any], title: tuple[str | None, int]) -> None:
    info = info_of(home, **changes)

    assert (info.title, info.title_rank) == title


@pytest.mark.parametrize(
    ("kind", "session_class", "parent", "base"),
    [
        (None, "human", None, PARENT),
        ("fork", "human", None, PARENT),
        ("headless", "automation", None, PARENT),
        ("subagent", "sub-agent", PARENT, None),
        ("subagent_fork", "sub-agent", PARENT, PARENT),
    ],
)
def test_the_summary_tells_forks_from_sub_agents(
    home: Path, kind: str | None, session_class: str, parent: str | None, base: str | None
) -> None:
    info = info_of(home, session_kind=kind, parent_session_id=PARENT)

    assert (info.session_class, info.parent_native_id, info.base_native_id) == (session_class, parent, base)


def test_an_unchanged_summary_is_not_told_again(home: Path) -> None:
    info_of(home)
    (checkpoint,) = [record for record in read(home, "summary") if isinstance(record, Checkpoint)]

    assert read(home, "summary", checkpoint.cursor) == []


def test_a_broken_summary_is_a_bad_line(home: Path) -> None:
    put(home, "updates.jsonl", b"")
    put(home, "summary.json", b'{"info": ')

    bad, _ = read(home, "summary")
    assert isinstance(bad, BadLine)


def test_the_parents_folder_names_the_child(home: Path) -> None:
    put(
        home,
        "subagents/child-1/meta.json",
        {"child_session_id": "child-1", "parent_session_id": SESSION, "child_cwd": "/x"},
    )
    info = read(home, "child")[0]

    assert (info.native_session_id, info.parent_native_id, info.cwd, info.session_class) == (
        "child-1",
        SESSION,
        "/x",
        "sub-agent",
    )


def test_of_the_telemetry_only_settings_make_events(home: Path) -> None:
    put(home, "updates.jsonl", b"")
    lines = (
        {"ts": "2026-11-15T18:51:59.000Z", "type": "turn_started", "session_id": SESSION},
        {"ts": "2026-11-15T18:52:00.000Z", "type": "permission_resolved", "decision": "deny"},
        {"ts": "2026-11-15T18:52:01.000Z", "type": "yolo_toggled", "enabled": True},
        {"ts": "2026-11-15T18:52:02.000Z", "type": "from_the_future"},
    )
    put(home, "events.jsonl", b"".join(orjson.dumps(line) + b"\n" for line in lines) + b"[]\n")
    records = read(home, "events")
    found = [record for record in records if isinstance(record, EventRecord)]

    assert [(event.kind, event.native_session_id) for event in found] == [
        ("lifecycle", SESSION),
        ("other", SESSION),
    ]
    assert skipped(records) == {"events.jsonl turn_started": 1, "events.jsonl permission_resolved": 1}
    assert len([record for record in records if isinstance(record, BadLine)]) == 1


def test_typed_prompts_are_a_lane_of_their_own(home: Path) -> None:
    lines = (
        {
            "timestamp": "2026-11-15T18:55:36.113350790Z",
            "session_id": SESSION,
            "prompt": "Fix it",
            "is_bash": False,
        },
        {
            "timestamp": "2026-11-15T18:55:37.113350790Z",
            "session_id": SESSION,
            "prompt": "ls",
            "is_bash": True,
        },
        {"prompt": "whose?"},
    )
    path = home / "sessions" / "%2Fhome%2Fme" / "prompt_history.jsonl"
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))
    records = read(home, "history")
    found = [record for record in records if isinstance(record, EventRecord)]

    assert [(event.lane, event.kind, event.summary) for event in found] == [
        (HISTORY_LANE, "user_msg", "Fix it"),
        (HISTORY_LANE, "tool_call", "ran ls"),
    ]
    assert [type(record) for record in records[2:]] == [BadLine, Checkpoint]


# The model's view, where there is nothing else


def test_a_chat_history_of_both_formats_is_read(home: Path) -> None:
    call = {"id": "c1", "name": "run_terminal_command", "arguments": '{"command": "pytest"}'}
    old_call = {
        "id": "c2",
        "type": "function",
        "function": {"name": "write", "arguments": '{"file_path": "a"}'},
    }
    lines = (
        {"type": "system", "content": "You are"},
        {"type": "user", "content": [{"type": "text", "text": "<user_info>\nOS"}]},
        {
            "type": "user",
            "content": [{"type": "text", "text": "<user_query>\nFix it\n</user_query>"}],
            "prompt_index": 0,
        },
        {
            "type": "user",
            "content": [{"type": "text", "text": "note"}],
            "synthetic_reason": "system_reminder",
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]},
        {"type": "reasoning", "summary": [], "encrypted_content": "xxx"},
        {"type": "assistant", "content": "I test.", "tool_calls": [call], "model_id": "grok-4.6"},
        {"type": "tool_result", "tool_call_id": "c1", "content": "exit: 1\nfailed"},
        {"role": "assistant", "content": "", "reasoning_content": "So", "tool_calls": [old_call]},
        {"role": "tool", "tool_call_id": "c2", "content": "written"},
    )
    put(home, "chat_history.jsonl", b"".join(orjson.dumps(line) + b"\n" for line in lines) + b"{broken\n")
    records = read(home, "chat")
    found = [record for record in records if isinstance(record, EventRecord)]

    assert [(event.kind, event.tool, event.summary) for event in found] == [
        ("lifecycle", None, "<user_info> OS"),
        ("user_msg", None, "Fix it"),
        ("lifecycle", None, "note"),
        ("thinking", None, "Hm"),
        ("assistant_msg", None, "I test."),
        ("test_run", "run_terminal_command", "ran pytest"),
        ("error", "run_terminal_command", "exit 1: failed"),
        ("thinking", None, "So"),
        ("edit", "write", "edited a"),
        ("tool_result", "write", "written"),
    ]
    assert all(event.is_provisional for event in found)
    assert [event.position for event in found] == sorted({event.position for event in found})
    assert skipped(records) == {"system": 1, "empty": 1}
    assert len([record for record in records if isinstance(record, BadLine)]) == 1


# Damage


def test_damaged_lines_are_reported_and_the_rest_is_read(home: Path) -> None:
    first, second, third = Updates().user("one").chunk("two").end().lines
    content = b"\n".join([first, second[:40], b"\x00\x00", b"[1]", b'"x"', b"", second + third, b""])
    put(home, "updates.jsonl", content)
    records = read(home, "updates")
    found = [record for record in records if isinstance(record, EventRecord)]

    assert [event.kind for event in found] == ["user_msg", "assistant_msg", "lifecycle"]
    assert [(record.line, record.reason) for record in records if isinstance(record, BadLine)] == [
        (2, "not JSON"),
        (3, "block of NUL bytes"),
        (4, "not an object"),
        (5, "not an object"),
    ]


def test_a_record_glued_to_a_torn_one_is_saved(home: Path) -> None:
    first, second = Updates().user("one").chunk("two").lines
    found = events(home, first[:50] + second + b"\n")

    assert [event.summary for event in found] == ["two"]


def test_glued_records_give_the_same_in_pieces(home: Path) -> None:
    log = Updates().user("one").chunk("two").end().user("three", 1).chunk("four", prompt="p2").end(prompt="p2")
    content = b"\n".join([log.lines[0] + log.lines[1], log.lines[2], log.lines[3] + log.lines[4], log.lines[5], b""])
    put(home, "updates.jsonl", content)
    (source,) = ADAPTER.discover(home)
    whole = list(ADAPTER.read(source, None))

    ends = [index + 1 for index, byte in enumerate(content) if byte == 10]
    pieces = read_in_pieces(source, content, ends)

    assert settled(pieces) == settled(whole)
    assert len(settled(whole)) == 6


def test_lone_surrogates_are_replaced_and_marked(home: Path) -> None:
    line = Updates().user("bad HERE").lines[0].replace(b"HERE", b"\\ud800")
    (event,) = events(home, line + b"\n")

    assert event.payload["text"].startswith("bad \ufffd")
    assert event.metadata == {"lossy": True}


def test_bytes_that_are_no_text_are_replaced_and_marked(home: Path) -> None:
    line = Updates().user("bad HERE").lines[0].replace(b"HERE", b"\xe8")
    (event,) = events(home, line + b"\n")

    assert event.payload["text"] == "bad \ufffd"
    assert event.metadata == {"lossy": True}


def test_lines_without_ids_or_moments_are_named_by_their_place(home: Path) -> None:
    update = {
        "sessionUpdate": "tool_call",
        "toolCallId": "c",
        "title": "read_file",
        "rawInput": {"target_file": "a"},
    }
    old = orjson.dumps({"sessionId": SESSION, "update": update}) + b"\n"
    found = events(home, old + old)

    assert [event.native_id for event in found] == [f"{SESSION}:0", f"{SESSION}:{len(old)}"]
    assert found[0].position < found[1].position
    assert found[0].tool == "read_file"


SCALARS = st.sampled_from([None, True, 0, -1, 2**70, 1.5, "x", "", [], {}, [1], {"a": 1}, "\u2028"])


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(data=st.data())
def test_values_of_the_wrong_type_break_nothing(home: Path, data: st.DataObject) -> None:
    log = sample()
    lines = []
    for line in log.lines:
        record = orjson.loads(line)
        for _ in range(data.draw(st.integers(0, 2))):
            spoil(record, data)
        lines.append(json.dumps(record).encode())
    put(home, "updates.jsonl", b"\n".join([*lines, b""]))

    for record in read(home, "updates"):
        if isinstance(record, EventRecord):
            json.dumps(record.payload)
        if isinstance(record, Checkpoint):
            assert len(orjson.dumps(record.cursor.state)) <= STATE_LIMIT_BYTES


def spoil(record: Any, data: st.DataObject) -> None:
    """Replace one value somewhere in the record."""
    path = data.draw(st.sampled_from(sorted(paths(record), key=str)))
    for step in path[:-1]:
        record = record[step]
    record[path[-1]] = copy.deepcopy(data.draw(SCALARS))


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, inner in items:
        yield (*before, name)
        yield from paths(inner, (*before, name))


# Pieces of any size


def sample() -> Updates:
    """A session with everything that is remembered from line to line."""
    log = Updates().user("Fix it").chunk("Look", "thought").chunk(" closer", "thought").chunk("I ").chunk("will")
    log.shell("pytest", "failed\n", 1).other("plan", entries=[]).chunk("Now", stream=2).chunk(" edit", stream=2)
    log.call("search_replace", {"file_path": "a"}, "call_2", "edit")
    log.result({"type": "SearchReplace", "EditsApplied": {"tool_output_for_prompt": "ok"}}, call="call_2")
    log.end(usage={"inputTokens": 5}).user("Go on", 1).chunk("Once", prompt="p2", stream=3)
    log.end("cancelled", "p2").chunk(" upon", prompt="p2", stream=3, agentTimestampMs=log.ms - 15)
    log.other("background_tasks", tasks=[]).other("rewind_marker", target_prompt_index=1)
    log.number = 0
    log.user("Again", 1).call("run_terminal_command", {"command": "ls"}, "call_3", "execute")
    log.other("retry_state", type="retrying", reason="busy").other("plan", entries=[]).other("model_changed", model="m")
    log.result(bash("x"), "x", "call_3", moment=log.ms - 35)
    log.other("auto_compact_started").result(bash("x"), "x", "call_3").other("auto_compact_completed")
    log.other("retry_state", type="failed", message="no").end("error", "p3", result="no")
    return log.user("Last", 2).chunk("An ", prompt="p4", stream=4).chunk("end", prompt="p4", stream=4)


def settled(records: list[Any]) -> dict[tuple[Any, ...], Any]:
    """What a store would hold of the records: the last word on each event."""
    told = {}
    for record in records:
        if isinstance(record, EventRecord):
            told[record.native_session_id, record.native_id, record.block] = (
                orjson.dumps(record.payload, option=orjson.OPT_SORT_KEYS),
                *(
                    record.kind,
                    record.position,
                    record.parent_native_id,
                    record.summary,
                    record.tool,
                    record.model,
                ),
                *(
                    record.is_provisional,
                    record.status,
                    record.retry_key,
                    record.ts_ms,
                    repr(record.metadata),
                ),
            )
    return told


def read_in_pieces(source: Source, content: bytes, cuts: list[int]) -> list[Any]:
    records: list[Any] = []
    cursor = None
    for cut in [*sorted(cuts), len(content)]:
        source.path.write_bytes(content[:cut])
        new: list[Any] = list(ADAPTER.read(source, cursor))
        cursor = Cursor(*orjson.loads(orjson.dumps(list(astuple(new[-1].cursor)))))
        records += new
    return records


def astuple(cursor: Cursor) -> tuple[Any, ...]:
    return (cursor.offset, cursor.line, cursor.head, cursor.tail, cursor.state)


def counts(records: list[Any]) -> dict[str, int]:
    told: dict[str, int] = {}
    for record in records:
        if isinstance(record, Skipped):
            told[record.native_type] = told.get(record.native_type, 0) + record.count
    return told


@settings(max_examples=120, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(cuts=st.lists(st.integers(0, 8000), max_size=12))
def test_pieces_of_any_size_give_the_same_as_the_whole(home: Path, cuts: list[int]) -> None:
    content = sample().content()
    put(home, "updates.jsonl", content)
    (source,) = ADAPTER.discover(home)
    whole = list(ADAPTER.read(source, None))

    pieces = read_in_pieces(source, content, [cut for cut in cuts if cut < len(content)])

    assert settled(pieces) == settled(whole)
    assert counts(pieces) == counts(whole)


def test_every_line_read_on_its_own_gives_the_same_as_the_whole(home: Path) -> None:
    content = sample().content()
    put(home, "updates.jsonl", content)
    (source,) = ADAPTER.discover(home)
    whole = list(ADAPTER.read(source, None))

    ends = [index + 1 for index, byte in enumerate(content) if byte == 10]
    pieces = read_in_pieces(source, content, ends)

    assert settled(pieces) == settled(whole)
    assert counts(pieces) == counts(whole)


def test_settled_events_never_change(home: Path) -> None:
    content = sample().content()
    put(home, "updates.jsonl", content)
    (source,) = ADAPTER.discover(home)
    ends = [index + 1 for index, byte in enumerate(content) if byte == 10]

    final: dict[tuple[str, int], bytes] = {}
    for record in read_in_pieces(source, content, ends):
        if isinstance(record, EventRecord):
            key, payload = (record.native_id, record.block), orjson.dumps(record.payload)
            assert final.setdefault(key, payload) == payload or record.is_provisional
            if record.is_provisional:
                del final[key]


def test_a_session_without_end_keeps_a_small_state(home: Path) -> None:
    log = Updates()
    for index in range(1500):
        log.user("x", index).call("t" * 80, {}, f"{index:080}", "k" * 80)
    put(home, "updates.jsonl", log)
    checkpoints = [record for record in read(home, "updates") if isinstance(record, Checkpoint)]

    assert len(checkpoints) > 2
    assert max(len(orjson.dumps(checkpoint.cursor.state)) for checkpoint in checkpoints) <= STATE_LIMIT_BYTES


# Written by the real program


def genuine(session: str, kind: str) -> list[Any]:
    sources = [
        source for source in ADAPTER.discover(DATA / "1.0.41") if session in str(source.path) and source.kind == kind
    ]
    return [record for source in sources for record in ADAPTER.read(source, None)]


def test_a_genuine_overloaded_session_is_told_in_the_order_it_happened() -> None:
    found = [record for record in genuine("01a1e08d-8906", "updates") if isinstance(record, EventRecord)]

    assert [(event.kind, event.tool, event.summary) for event in sorted(found, key=lambda event: event.position)] == [
        ("user_msg", None, "Please survive an overload"),
        ("tool_call", "run_terminal_command", "ran echo before the overload"),
        ("tool_result", "run_terminal_command", "before the overload"),
        (
            "retry",
            None,
            "retrying: API error (status 529 <unknown status code>): overloaded_error: Overloaded",
        ),
        ("assistant_msg", None, "The server was overloaded once, then it worked."),
        ("lifecycle", None, "turn ended: end_turn"),
    ]


def test_a_genuine_sub_agent_is_known_from_log_and_folder_alike() -> None:
    child = "01a1e08d-502b-7e90-b545-1c8bba74c92d"
    told = [*genuine("01a1e08d-4e33", "updates"), *genuine("01a1e08d-4e33", "child")]
    infos = [record for record in told if isinstance(record, SessionInfo)]

    assert {(info.native_session_id, info.parent_native_id) for info in infos} == {(child, SESSION)}
    assert {info.spawn_call_id for info in infos} == {None, "call_06fbb096111046f58f05880e"}


def test_a_genuine_summary_tells_its_session() -> None:
    (info,) = [record for record in genuine("01a1e08d-4e33", "summary") if isinstance(record, SessionInfo)]

    assert (info.native_session_id, info.session_class, info.cwd) == (
        SESSION,
        "automation",
        "/home/devbox/proj/calc-demo",
    )
    assert (info.git_remote, info.model) == ("https://github.com/example/calc-demo.git", "grok-4.6")
