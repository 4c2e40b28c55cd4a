"""What the Claude Code adapter makes of the logs that Claude Code writes."""

import json
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.agentkit.protocol import (
    FIRST_WINS,
    STATE_LIMIT_BYTES,
    BadLine,
    Checkpoint,
    CostTotal,
    Cursor,
    EventRecord,
    Record,
    SessionInfo,
    Skipped,
    Usage,
)
from recollect.agents.claude import ADAPTER
from recollect.model.schema import QUEUE_ONLY
from tests.builders import without_delivered

DATA = Path(__file__).parent.parent / "data" / "claude"
SESSION = "11111111-2222-4333-8444-555555555555"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
TIME = "2026-11-15T18:32:43.198Z"
REFUSAL = "The user doesn't want to proceed with this tool use."


def record(kind: str, uuid: str, parent: str | None = None, **more: Any) -> dict[str, Any]:
    return {
        "parentUuid": parent,
        "isSidechain": False,
        "type": kind,
        "uuid": uuid,
        "timestamp": TIME,
        "cwd": "/home/kim/shop",
        "sessionId": SESSION,
        "version": "2.1.325",
        "gitBranch": "main",
        "entrypoint": "cli",
        **more,
    }


def prompt(uuid: str, content: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    return record("user", uuid, parent, message={"role": "user", "content": content}, **more)


def answer(uuid: str, *blocks: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    about = {
        "id": more.pop("message_id", f"msg_{uuid}"),
        "model": more.pop("model", "claude-opus-5-5"),
        "usage": more.pop("usage", {"input_tokens": 10, "output_tokens": 5}),
    }
    return record("assistant", uuid, parent, message={**about, "content": list(blocks)}, **more)


def enqueued(words: Any, time: str = TIME, **more: Any) -> dict[str, Any]:
    about = {"type": "queue-operation", "operation": "enqueue", "timestamp": time, "sessionId": SESSION}
    return {**about, "content": words, **more}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def call(call_id: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": tool, "input": arguments}


def result(uuid: str, call_id: str, content: Any, parent: str | None = None, **more: Any) -> dict[str, Any]:
    block = {"type": "tool_result", "tool_use_id": call_id, "content": content}
    if "is_error" in more:
        block["is_error"] = more.pop("is_error")
    return prompt(uuid, [block], parent, **more)


def write(path: Path, lines: Iterable[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    raw = [line if isinstance(line, bytes) else orjson.dumps(line) for line in lines]
    path.write_bytes(b"".join(line + b"\n" for line in raw))
    return path


def read(root: Path, cursor: Cursor | None = None) -> list[Record]:
    return [one for source in ADAPTER.discover(root) for one in ADAPTER.read(source, cursor)]


def read_lines(root: Path, *lines: Any, name: str = f"{SESSION}.jsonl") -> list[Record]:
    write(root / "projects" / "-home-kim-shop" / name, lines)
    return read(root)


def events(records: Iterable[Record]) -> list[EventRecord]:
    return [one for one in records if isinstance(one, EventRecord)]


def only_event(root: Path, *lines: Any) -> EventRecord:
    (event,) = events(read_lines(root, *lines))
    return event


def facts(records: Iterable[Record], session: str = SESSION) -> dict[str, Any]:
    """What all infos of a session say together, by the contract's rule; titles by their rank."""
    told: dict[str, Any] = {}
    for info in records:
        if isinstance(info, SessionInfo) and info.native_session_id == session:
            for name in set(info.__slots__) - {"native_session_id", "title_rank"}:
                value = getattr(info, name)
                if value is not None and not (name in FIRST_WINS and name in told):
                    told[f"title_{info.title_rank}" if name == "title" else name] = value
    return told


def skips(records: Iterable[Record]) -> Counter[str]:
    counted: Counter[str] = Counter()
    for one in records:
        if isinstance(one, Skipped) and not one.native_type.endswith("(no event)"):
            counted[one.native_type] += one.count
    return counted


def bad_lines(records: Iterable[Record]) -> list[BadLine]:
    return [one for one in records if isinstance(one, BadLine)]


def test_a_pull_request_that_was_opened_is_one_event_however_often_it_is_recorded(tmp_path: Path) -> None:
    address = "https://github.com/acme/shop/pull/12"
    link = {"type": "pr-link", "sessionId": SESSION, "prNumber": 12, "prUrl": address, "timestamp": TIME}

    found = events(read_lines(tmp_path, link, link))

    assert {(event.kind, event.native_id, event.summary) for event in found} == {
        ("lifecycle", f"{SESSION}:{address}", f"opened pull request {address}")
    }


class TestWhatPeopleSay:
    def test_a_typed_request_is_a_user_message(self, tmp_path: Path) -> None:
        event = only_event(tmp_path, prompt("u1", "Please fix the test", promptSource="typed", promptId="p1"))

        assert (event.kind, event.role, event.status) == ("user_msg", "user", None)
        assert event.payload["text"] == "Please fix the test"
        assert event.payload["native"] == {"promptId": "p1", "promptSource": "typed"}
        assert (event.native_session_id, event.native_id, event.lane) == (SESSION, "u1", "")
        assert event.ts_ms == 1794767563198

    def test_text_and_pictures_of_one_request_stay_together(self, tmp_path: Path) -> None:
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}

        event = only_event(tmp_path, prompt("u1", [text("Look at"), picture, text("this")]))

        assert event.payload["text"] == "Look at\nthis"
        assert event.payload["media"][0]["mime"] == "image/png"
        assert event.payload["media"][0]["bytes"] == 70
        assert PIXEL not in json.dumps(event.payload)

    @pytest.mark.parametrize("is_one_text", [True, False])
    def test_what_an_editor_adds_is_no_part_of_the_request(self, tmp_path: Path, is_one_text: bool) -> None:
        block = "<ide_opened_file>The user opened a.py</ide_opened_file>"
        content = f"{block}\nrename foo" if is_one_text else [text(block), text("rename foo")]

        event = only_event(tmp_path, prompt("u1", content))

        assert (event.kind, event.summary, event.payload["text"]) == ("user_msg", "rename foo", "rename foo")
        assert event.payload["native"]["context"] == [block]

    def test_what_an_editor_adds_to_nothing_is_no_request(self, tmp_path: Path) -> None:
        assert only_event(tmp_path, prompt("u1", "<ide_selection>a = 1</ide_selection>")).kind == "lifecycle"

    def test_what_an_editor_adds_is_not_the_summary(self, tmp_path: Path) -> None:
        event = only_event(
            tmp_path, prompt("u1", [text("<ide_opened_file>The user opened a.py</ide_opened_file>"), text("fix it")])
        )

        assert (event.kind, event.summary) == ("user_msg", "fix it")

    def test_a_queued_prompt_is_a_user_message_of_its_own(self, tmp_path: Path) -> None:
        queued = {"type": "queued_command", "prompt": "and the tests too", "commandMode": "prompt"}

        event = only_event(tmp_path, record("attachment", "a1", attachment=queued))

        assert (event.kind, event.status, event.payload["text"]) == ("user_msg", "queued", "and the tests too")

    def test_a_question_about_the_state_of_a_task_is_a_request(self, tmp_path: Path) -> None:
        assert only_event(tmp_path, prompt("u1", '{"task_id": 5} is what I get. Why?')).kind == "user_msg"

    def test_a_queued_prompt_that_the_program_delivers_again_and_again_is_one(self, tmp_path: Path) -> None:
        queued = {"type": "queued_command", "prompt": "and the tests too", "commandMode": "prompt"}
        times = [*(f"2026-11-15T18:00:00.{n:03}Z" for n in range(0, 800, 80)), "2026-11-15T18:20:00.000Z"]
        lines = [record("attachment", f"a{n}", attachment=queued, timestamp=time) for n, time in enumerate(times)]

        records = read_lines(tmp_path, enqueued("and the tests too", "2026-11-15T17:59:58.000Z"), *lines)

        assert [event.native_id for event in events(records)] == ["a0", "a10"]
        assert skips(records)["attachment/queued_command (again)"] == 9

    def test_a_prompt_that_only_the_queue_tells_is_kept_where_it_was_typed(self, tmp_path: Path) -> None:
        left = {"type": "queue-operation", "operation": "remove", "sessionId": SESSION}
        records = read_lines(
            tmp_path, prompt("u1", "fix it"), enqueued("merge main first"), left, answer("a1", text("done"))
        )

        waiting = next(event for event in events(records) if event.status == QUEUE_ONLY)

        assert (waiting.kind, waiting.role, waiting.payload["text"]) == ("user_msg", "user", "merge main first")
        assert [event.summary for event in sorted(events(records), key=lambda event: event.position)] == [
            "fix it",
            "merge main first",
            "done",
        ]
        assert skips(records) == {"queue-operation": 1}

    @pytest.mark.parametrize(
        ("words", "delivered"),
        [
            ("and the tests", lambda: prompt("u1", "and the tests")),
            ("and the tests", lambda: prompt("u1", [text("<ide_opened_file>x"), text("and the tests ")])),
            (
                "and the tests",
                lambda: record("attachment", "u1", attachment={"type": "queued_command", "prompt": "and the tests"}),
            ),
            (
                "/compact  keep names",
                lambda: prompt(
                    "u1",
                    "<command-name>/compact</command-name>\n<command-message>compact</command-message>\n"
                    "<command-args>keep names</command-args>",
                ),
            ),
            ("<task-notification>over", lambda: prompt("u1", "<task-notification>over", promptSource="system")),
        ],
    )
    def test_a_queued_prompt_that_a_record_tells_is_one_event(
        self, tmp_path: Path, words: str, delivered: Callable[[], Any]
    ) -> None:
        event = only_event(tmp_path, enqueued(words), {**enqueued(None), "operation": "dequeue"}, delivered())

        assert event.native_id == "u1"

    def test_the_same_words_of_an_hour_ago_do_not_tell_a_queued_prompt(self, tmp_path: Path) -> None:
        earlier = prompt("u1", "go on", timestamp="2026-11-15T17:00:00.000Z")

        told = events(read_lines(tmp_path, earlier, enqueued("go on", "2026-11-15T18:00:00.000Z")))

        assert [event.status for event in told] == [None, QUEUE_ONLY]

    @pytest.mark.parametrize("words", [None, "", "  ", 7, [7], "[Request interrupted by user]"])
    def test_a_queue_record_without_a_prompt_is_counted(self, tmp_path: Path, words: Any) -> None:
        records = read_lines(tmp_path, enqueued(words))

        assert events(records) == []
        assert skips(records)["queue-operation"] == 1

    def test_a_reminder_of_the_tokens_left_is_counted_and_no_event(self, tmp_path: Path) -> None:
        reminder = {"type": "total_tokens_reminder", "text": "<total_tokens>9000 tokens left</total_tokens>"}
        records = read_lines(tmp_path, *(record("attachment", f"a{n}", attachment=reminder) for n in range(3)))

        assert events(records) == []
        assert skips(records)["attachment/total_tokens_reminder"] == 3

    def test_a_slash_command_left_in_the_queue_is_no_request(self, tmp_path: Path) -> None:
        assert only_event(tmp_path, enqueued("/exit")).kind == "lifecycle"

    def test_a_queued_notice_is_no_request(self, tmp_path: Path) -> None:
        queued = {"type": "queued_command", "prompt": "a task ended", "commandMode": "task-notification"}

        assert only_event(tmp_path, record("attachment", "a1", attachment=queued)).kind == "lifecycle"

    @pytest.mark.parametrize(
        "content",
        [
            "<command-name>/compact</command-name>\n<command-args>keep decisions</command-args>",
            "<local-command-stdout>Compacted</local-command-stdout>",
            "<local-command-caveat>not sent to you</local-command-caveat>",
            "Caveat: The messages below were generated by the user while running local commands.",
            "<task-notification><summary>the server stopped</summary></task-notification>",
            "<system-reminder>be brief</system-reminder>",
            "<teammate-message teammate_id='lead'>hi</teammate-message>",
        ],
    )
    def test_what_the_harness_says_in_the_users_name_is_lifecycle(self, tmp_path: Path, content: str) -> None:
        event = only_event(tmp_path, prompt("u1", content))

        assert (event.kind, event.role) == ("lifecycle", "system")

    def test_meta_text_and_notices_by_origin_are_lifecycle(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path,
            prompt("u1", "Base directory for this skill: /x", isMeta=True),
            prompt("u2", "the task ended", origin={"kind": "task-notification"}),
            prompt("u3", "the task ended", promptSource="system"),
        )

        assert [event.kind for event in events(records)] == ["lifecycle"] * 3

    def test_a_slash_command_is_summed_up_as_it_was_typed(self, tmp_path: Path) -> None:
        content = "<command-name>/compact</command-name>\n  <command-args>keep decisions</command-args>"

        assert only_event(tmp_path, prompt("u1", content)).summary == "/compact keep decisions"

    @pytest.mark.parametrize(
        ("arguments", "request_text"),
        [
            ("\n<command-args>#12 and its tests</command-args>", "/review #12 and its tests"),
            ("\n<command-args></command-args>", "/review"),
            ("", "/review"),
        ],
    )
    def test_a_slash_command_for_the_model_is_a_request(
        self, tmp_path: Path, arguments: str, request_text: str
    ) -> None:
        content = "<command-message>review is running…</command-message>\n<command-name>/review</command-name>"

        event = only_event(tmp_path, prompt("u1", content + arguments))

        assert (event.kind, event.role, event.summary) == ("user_msg", "user", request_text)
        assert event.payload["text"] == request_text
        assert event.payload["native"]["command"]["message"] == "review is running…"

    def test_a_skill_that_the_model_uses_is_no_request(self, tmp_path: Path) -> None:
        by_call = "<command-message>The pdf skill is loading</command-message>\n<command-name>/pdf</command-name>"
        records = read_lines(
            tmp_path,
            prompt("u1", "<command-message>The pdf skill is loading</command-message><command-name>pdf</command-name>"),
            prompt("u2", by_call, sourceToolUseID="toolu_1"),
        )

        assert [event.kind for event in events(records)] == ["lifecycle"] * 2

    @pytest.mark.parametrize(
        "words",
        [
            '[{"task_id":"b1"}]',
            '{"type":"task_notification","task_id":"b1"}',
            '{"task_id":"b1","tool_use_id":"toolu_1","description":"run it","task_type":"local_bash"}',
            "Unknown skill: deploy",
            "Unknown slash command: deploy",
            "Args from unknown skill: to staging",
            "Operation stopped by hook: Another session is active",
        ],
    )
    def test_what_the_program_answers_or_queues_itself_is_no_prompt(self, tmp_path: Path, words: str) -> None:
        kinds = {event.kind for event in events(read_lines(tmp_path, prompt("u1", words), enqueued(words)))}

        assert kinds == {"lifecycle"}

    def test_a_prompt_about_an_unknown_skill_is_a_prompt(self, tmp_path: Path) -> None:
        assert only_event(tmp_path, prompt("u1", "Unknown skill: deploy\nWhy do I get this?")).kind == "user_msg"

    def test_the_users_own_shell_is_a_call_with_its_result(self, tmp_path: Path) -> None:
        typed, fine, silent = events(
            read_lines(
                tmp_path,
                prompt("u1", "<bash-input> ls</bash-input>"),
                prompt("u2", "<bash-stdout>a.py</bash-stdout><bash-stderr></bash-stderr>", "u1"),
                prompt("u3", "<bash-stdout></bash-stdout><bash-stderr>no such file</bash-stderr>", "u1"),
            )
        )

        assert (typed.kind, typed.role, typed.tool, typed.summary) == ("tool_call", "user", "shell", "ran ls")
        assert (fine.kind, fine.role, fine.status, fine.call_id) == ("tool_result", "user", "ok", typed.call_id)
        assert (silent.kind, silent.role, silent.is_error) == ("tool_result", "user", False)  # no exit code is told

    def test_an_interruption_is_a_human_intervention(self, tmp_path: Path) -> None:
        event = only_event(tmp_path, prompt("u1", [text("[Request interrupted by user for tool use]")]))

        assert (event.kind, event.role, event.status) == ("human_intervention", "user", "interrupted")

    def test_an_empty_message_is_counted_and_makes_no_event(self, tmp_path: Path) -> None:
        records = read_lines(tmp_path, prompt("u1", "  "), answer("a1", text("\n\n")))

        assert events(records) == []
        assert skips(records)["empty"] == 2


class TestWhatTheAgentDoes:
    def test_each_block_of_an_answer_is_an_event(self, tmp_path: Path) -> None:
        thought = {"type": "thinking", "thinking": "The sign is wrong.", "signature": "c2ln"}

        thinking, said, edited = events(
            read_lines(
                tmp_path,
                answer("a1", thought, text("I fix it."), call("t1", "Edit", file_path="/home/kim/shop/src/auth.py")),
            )
        )

        assert [thinking.kind, said.kind, edited.kind] == ["thinking", "assistant_msg", "edit"]
        assert [thinking.block, said.block, edited.block] == [0, 1, 2]
        assert thinking.payload["native"]["signature"] == "c2ln"
        assert edited.summary == "edited src/auth.py"
        assert (edited.tool, edited.call_id) == ("Edit", "t1")
        assert said.model == "claude-opus-5-5"
        assert thinking.position < said.position < edited.position

    def test_thinking_without_text_is_counted_and_its_children_follow_its_parent(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path,
            prompt("u1", "hello"),
            answer("a1", {"type": "thinking", "thinking": "", "signature": "x"}, parent="u1"),
            answer("a2", {"type": "redacted_thinking", "data": "x"}, parent="a1"),
            answer("a3", text("Hello!"), parent="a2"),
        )

        assert [(event.native_id, event.parent_native_id) for event in events(records)] == [
            ("u1", None),
            ("a3", "u1"),
        ]
        assert skips(records) == {"thinking without text": 1, "redacted_thinking": 1}

    @pytest.mark.parametrize(
        ("tool", "arguments", "kind", "summary"),
        [
            ("Bash", {"command": "git status"}, "tool_call", "ran git status"),
            ("Bash", {"command": "python -m pytest -q"}, "test_run", "ran python -m pytest -q"),
            ("Write", {"file_path": "/tmp/a.py", "content": "x"}, "edit", "wrote /tmp/a.py"),
            ("MultiEdit", {"file_path": "/home/kim/shop/a.py"}, "edit", "edited a.py"),
            ("NotebookEdit", {"notebook_path": "/home/kim/shop/a.ipynb"}, "edit", "edited a.ipynb"),
            ("Read", {"file_path": "/home/kim/shop/calc.py"}, "tool_call", "read calc.py"),
            ("Agent", {"description": "Count files"}, "tool_call", "started a sub-agent: Count files"),
            ("TodoWrite", {"todos": [{}, {}]}, "tool_call", "updated the to-do list: 2 items"),
            ("mcp__memo__recall", {"q": "x"}, "tool_call", "called memo.recall"),
            ("AskUserQuestion", {"questions": [{"question": "Which?"}]}, "tool_call", "asked: Which?"),
        ],
    )
    def test_calls_have_the_kind_of_what_they_do(
        self, tmp_path: Path, tool: str, arguments: dict[str, Any], kind: str, summary: str
    ) -> None:
        event = only_event(tmp_path, answer("a1", call("t1", tool, **arguments)))

        assert (event.kind, event.role, event.status, event.summary) == (kind, "assistant", None, summary)
        assert event.payload["input"] == arguments
        assert event.retry_key

    def test_a_failed_request_tried_again_is_a_retry(self, tmp_path: Path) -> None:
        event = only_event(
            tmp_path,
            record("system", "s1", subtype="api_error", error={"message": "Overloaded"}, retryAttempt=1, maxRetries=10),
        )

        assert (event.kind, event.role, event.status) == ("retry", "system", "retrying")
        assert event.is_retry and event.is_error
        assert event.payload["native"]["retryAttempt"] == 1

    def test_a_request_failed_for_good_is_an_error_of_the_assistant(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path, answer("a1", text("API Error: 400"), model="<synthetic>", isApiErrorMessage=True)
        )

        (event,) = events(records)
        assert (event.kind, event.role, event.status, event.is_error) == ("error", "assistant", "failed", True)
        assert not [one for one in records if isinstance(one, Usage)]

    @pytest.mark.parametrize(("model", "kind"), [("<synthetic>", "lifecycle"), ("claude-opus-5-5", "assistant_msg")])
    def test_what_the_program_says_for_the_model_is_no_answer(self, tmp_path: Path, model: str, kind: str) -> None:
        event = only_event(tmp_path, answer("a1", text("No response requested."), model=model))

        assert event.kind == kind

    def test_an_unknown_block_is_kept_whole(self, tmp_path: Path) -> None:
        event = only_event(tmp_path, answer("a1", {"type": "hologram", "light": 3}))

        assert event.kind == "other"
        assert event.payload["native"]["block"] == {"type": "hologram", "light": 3}


class TestWhatToolsGiveBack:
    def outcome(self, root: Path, content: Any, tool: str = "Bash", **more: Any) -> EventRecord:
        calling, given_back = events(
            read_lines(root, answer("a1", call("t1", tool, command="x")), result("u1", "t1", content, "a1", **more))
        )
        assert calling.call_id == given_back.call_id == "t1"
        assert given_back.tool == tool
        return given_back

    def test_a_result_knows_the_call_it_answers(self, tmp_path: Path) -> None:
        event = self.outcome(tmp_path, "3 passed", is_error=False)

        assert (event.kind, event.role, event.status, event.is_error) == ("tool_result", "tool", "ok", False)
        assert event.payload["output"] == "3 passed"

    def test_a_failed_command_is_an_error_with_its_last_line(self, tmp_path: Path) -> None:
        event = self.outcome(tmp_path, "Exit code 1\nTraceback\nKeyError: 'x'", is_error=True)

        assert (event.kind, event.role, event.status, event.is_error) == ("error", "tool", "failed", True)
        assert event.summary == "exit 1: KeyError: 'x'"

    @pytest.mark.parametrize(
        ("output", "told"),
        [
            ("go: cannot find main module\n\tto create one, run:\n\tgo mod init", "go: cannot find main module"),
            ("lsd: 3: No such file\n" + "├── a.ts\n" * 300 + "└── b.ts", "lsd: 3: No such file"),
            ("checking\nwarn: slow\npartial output", "partial output"),
            ("error: first\nerror: the last one", "error: the last one"),
        ],
    )
    def test_an_error_is_told_by_the_line_that_says_so(self, tmp_path: Path, output: str, told: str) -> None:
        event = self.outcome(tmp_path, f"Exit code 1\n{output}", is_error=True)

        assert event.summary == f"exit 1: {told}"

    def test_a_call_the_tool_would_not_take_is_an_error(self, tmp_path: Path) -> None:
        event = self.outcome(tmp_path, "<tool_use_error>File does not exist.</tool_use_error>", is_error=True)

        assert (event.kind, event.summary) == ("error", "failed: File does not exist.")

    def test_a_background_command_that_failed_is_an_error(self, tmp_path: Path) -> None:
        event = self.outcome(tmp_path, "gone", "BashOutput", toolUseResult={"status": "failed", "exitCode": 2})

        assert (event.kind, event.status) == ("error", "failed")

    def test_a_refusal_keeps_the_users_reason(self, tmp_path: Path) -> None:
        content = f"{REFUSAL} To tell you how to proceed, the user said:\nkeep the operator"

        event = self.outcome(tmp_path, content, "Edit", is_error=True)

        assert (event.kind, event.role, event.status) == ("human_intervention", "user", "denied")
        assert event.summary == "refused: keep the operator"
        assert "keep the operator" in event.payload["output"]

    def test_a_command_cut_off_by_the_user_is_a_human_intervention(self, tmp_path: Path) -> None:
        event = self.outcome(tmp_path, "half", toolUseResult={"stdout": "half", "interrupted": True})

        assert (event.kind, event.status, event.is_error) == ("human_intervention", "denied", True)

    @pytest.mark.parametrize(
        ("mode", "tool", "told"),
        [
            ("bypassPermissions", "Bash", "interrupted the call"),
            ("bypassPermissions", "ExitPlanMode", "refused the call"),
            ("default", "Bash", "refused the call"),
        ],
    )
    def test_a_mode_that_asks_nobody_knows_no_refusals(self, tmp_path: Path, mode: str, tool: str, told: str) -> None:
        *_, event = events(
            read_lines(
                tmp_path,
                prompt("u1", "go", permissionMode=mode),
                answer("a1", call("t1", tool, command="x")),
                result("u2", "t1", REFUSAL, "a1", is_error=True),
            )
        )

        assert (event.kind, event.status, event.summary) == ("human_intervention", "denied", told)

    def test_a_call_refused_by_a_rule_is_an_error_not_a_person(self, tmp_path: Path) -> None:
        event = self.outcome(
            tmp_path,
            "rm needs approval",
            is_error=True,
            toolDenialKind="user-rejected",
            permissionDecision={"decision": "reject", "source": "config"},
        )

        assert (event.kind, event.role) == ("error", "tool")

    def test_an_answer_to_a_question_is_a_decision(self, tmp_path: Path) -> None:
        event = self.outcome(
            tmp_path, "answered", "AskUserQuestion", toolUseResult={"answers": {"Which colour?": "Green"}}
        )

        assert (event.kind, event.role, event.status) == ("decision", "user", "ok")
        assert event.summary == "answered: Which colour? Green"

    def test_an_approved_plan_is_a_decision_and_a_refused_one_is_not(self, tmp_path: Path) -> None:
        approved = self.outcome(tmp_path / "a", "User has approved your plan.", "ExitPlanMode")
        refused = self.outcome(tmp_path / "b", REFUSAL, "ExitPlanMode", is_error=True)

        assert (approved.kind, refused.kind) == ("decision", "human_intervention")

    def test_the_twin_of_a_result_leaves_only_small_facts(self, tmp_path: Path) -> None:
        twin = {"stdout": "x" * 1000, "stderr": "", "interrupted": False, "backgroundTaskId": "b1"}

        event = self.outcome(tmp_path, "x" * 1000, toolUseResult=twin)

        assert event.payload["native"]["toolUseResult"] == {"interrupted": False, "backgroundTaskId": "b1"}

    def test_a_picture_in_a_result_becomes_a_reference(self, tmp_path: Path) -> None:
        picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}

        event = self.outcome(tmp_path, [picture], "Read")

        assert (event.summary, event.payload["media"][0]["bytes"]) == ("an image", 70)
        assert PIXEL not in json.dumps(event.payload)

    def test_parts_that_are_no_text_are_kept(self, tmp_path: Path) -> None:
        reference = {"type": "tool_reference", "tool_name": "WebFetch"}

        event = self.outcome(tmp_path, [text("found"), reference], "ToolSearch")

        assert event.payload["output"] == [text("found"), reference]

    def test_several_results_in_one_record_are_several_events(self, tmp_path: Path) -> None:
        blocks = [{"type": "tool_result", "tool_use_id": f"t{n}", "content": str(n)} for n in range(3)]

        found = events(read_lines(tmp_path, prompt("u1", [*blocks, text("go on")])))

        assert [(event.kind, event.block) for event in found] == [
            ("tool_result", 0),
            ("tool_result", 1),
            ("tool_result", 2),
            ("user_msg", 3),
        ]

    def test_an_output_of_one_empty_text_is_empty(self, tmp_path: Path) -> None:
        lines = answer("u1", call("t1", "mcp__web__open", url="https://example.org")), result("u2", "t1", [text("")])

        event = events(read_lines(tmp_path, *lines))[-1]

        assert (event.payload["output"], event.summary) == ("", "no output")


class TestLifecycle:
    def test_a_compaction_follows_what_it_compacted(self, tmp_path: Path) -> None:
        _, boundary, summary = events(
            read_lines(
                tmp_path,
                prompt("u1", "hello"),
                record("system", "s1", subtype="compact_boundary", content="Compacted", logicalParentUuid="u1"),
                prompt("u2", "This session is being continued", "s1", isCompactSummary=True),
            )
        )

        assert [boundary.kind, summary.kind] == ["lifecycle", "lifecycle"]
        assert (boundary.parent_native_id, summary.parent_native_id) == ("u1", "s1")

    def test_the_end_of_a_turn_and_a_hooks_report_are_lifecycle(self, tmp_path: Path) -> None:
        hook = {"type": "hook_blocking_error", "hookName": "Stop", "blockingError": {"blockingError": "run the tests"}}

        ended, reported = events(
            read_lines(
                tmp_path,
                record("system", "s1", subtype="turn_duration", durationMs=4137),
                record("attachment", "a1", attachment=hook),
            )
        )

        assert (ended.kind, ended.summary) == ("lifecycle", "turn ended after 4.1 s")
        assert (reported.kind, reported.payload["text"]) == ("lifecycle", "run the tests")

    def test_records_outside_the_lane_are_counted_by_name(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path,
            {"type": "api-request", "sessionId": SESSION},
            {"type": "api-request", "sessionId": SESSION},
            {"type": "queue-operation", "sessionId": SESSION},
            record("attachment", "a1", attachment={"type": "prompt_snapshot", "systemPrompt": ["x"]}),
        )

        assert events(records) == []
        assert skips(records) == {"api-request": 2, "queue-operation": 1, "attachment/prompt_snapshot": 1}

    def test_a_record_of_an_unknown_type_is_kept_whole(self, tmp_path: Path) -> None:
        event = only_event(tmp_path, record("hologram", "h1", light=3))

        assert (event.kind, event.native_id) == ("other", "h1")
        assert event.payload["native"]["light"] == 3

    def test_a_record_without_an_id_is_named_by_its_offset(self, tmp_path: Path) -> None:
        first = {**prompt("u1", "hello")}
        second = {**prompt("x", "again")}
        del second["uuid"]

        found = events(read_lines(tmp_path, first, second))

        assert found[1].native_id == f"{SESSION}:{len(orjson.dumps(first)) + 1}"


class TestThreads:
    def test_parents_are_found_through_records_that_make_no_event(self, tmp_path: Path) -> None:
        found = events(
            read_lines(
                tmp_path,
                prompt("u1", "hello"),
                record("attachment", "x1", "u1", attachment={"type": "environment"}),
                record("progress", "x2", "x1"),
                answer("a1", text("Hi"), parent="x2"),
            )
        )

        assert found[1].parent_native_id == "u1"

    def test_a_rewind_is_a_second_request_after_the_same_event(self, tmp_path: Path) -> None:
        found = events(
            read_lines(
                tmp_path,
                prompt("u1", "hello"),
                answer("a1", text("Hi"), parent="u1"),
                prompt("u2", "left behind", "a1"),
                record("attachment", "x1", "a1", attachment={"type": "date"}),
                prompt("u3", "gone on with", "x1"),
            )
        )

        assert [event.parent_native_id for event in found if event.native_id in ("u2", "u3")] == ["a1", "a1"]

    def test_parents_that_go_in_circles_do_no_harm(self, tmp_path: Path) -> None:
        found = events(
            read_lines(
                tmp_path,
                record("progress", "x1", "x2"),
                record("progress", "x2", "x1"),
                prompt("u1", "hello", "x2"),
                prompt("u2", "myself", "u2"),
            )
        )

        assert found[0].parent_native_id in ("x1", "x2")
        assert found[1].parent_native_id is None

    def test_a_record_written_twice_has_one_identity(self, tmp_path: Path) -> None:
        first, second = events(read_lines(tmp_path, prompt("u1", "hello"), prompt("u1", "hello")))

        assert (first.native_id, first.block, first.payload) == (second.native_id, second.block, second.payload)


class TestSessions:
    def test_facts_of_a_session_come_from_its_records(self, tmp_path: Path) -> None:
        told = facts(
            read_lines(
                tmp_path,
                prompt("u1", "hello"),
                answer("a1", text("Hi"), cwd="/home/kim/shop/docs", gitBranch="fix", version="2.1.326"),
                prompt("u2", "detached", gitBranch="HEAD", version="2.1.326"),
            )
        )

        assert (told["cwd"], told["git_branch"], told["agent_version"]) == ("/home/kim/shop", "fix", "2.1.326")
        assert (told["session_class"], told["model"], told["provider"]) == ("human", "claude-opus-5-5", "anthropic")
        assert told["born_ms"] == 1794767563198

    def test_a_session_of_a_script_is_automation(self, tmp_path: Path) -> None:
        assert facts(read_lines(tmp_path, prompt("u1", "hi", entrypoint="sdk-py")))["session_class"] == "automation"

    def test_instruction_files_are_named_with_their_hash(self, tmp_path: Path) -> None:
        files = [{"path": "/home/kim/shop/CLAUDE.md", "type": "Project", "content": "use pytest"}]

        told = facts(
            read_lines(tmp_path, record("attachment", "x1", attachment={"type": "instructions", "files": files}))
        )

        use_pytest = "3d825a0522ab29d85d2434819efb59e834403b9f8674e552d57c94e7d273cd15"
        assert told["instructions"] == ({"name": "/home/kim/shop/CLAUDE.md", "sha256": use_pytest},)

    def test_titles_say_who_gave_them(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path,
            prompt("u1", "hello"),
            {"type": "summary", "summary": "A greeting", "leafUuid": "u1"},
            {"type": "summary", "summary": "Of another session", "leafUuid": "elsewhere"},
            {"type": "ai-title", "aiTitle": "Greeting the user", "sessionId": SESSION},
            {"type": "custom-title", "customTitle": "hello", "sessionId": SESSION},
            {"type": "agent-name", "agentName": "hello", "sessionId": SESSION},
        )

        titles = [(one.title, one.title_rank) for one in records if isinstance(one, SessionInfo) and one.title]
        assert titles == [("A greeting", 1), ("Greeting the user", 2), ("hello", 3)]
        assert skips(records) == {"summary": 1, "agent-name": 1}

    def test_money_is_the_agents_own_running_total(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path,
            prompt("u1", "hello"),
            {"type": "cost-state", "sessionId": SESSION, "totalCostUSD": 0.25, "startTime": 1794767368180},
        )

        (total,) = [one for one in records if isinstance(one, CostTotal)]
        assert (total.usd, total.ledger, total.ts_ms) == (0.25, "1794767368180", 1794767563198)

    def test_what_the_cache_keeps_for_an_hour_is_counted_apart(self, tmp_path: Path) -> None:
        classes = {"ephemeral_5m_input_tokens": 15, "ephemeral_1h_input_tokens": 25}
        usage = {"output_tokens": 1, "cache_creation_input_tokens": 40, "cache_creation": classes}

        (told,) = [one for one in read_lines(tmp_path, answer("a1", usage=usage)) if isinstance(one, Usage)]

        assert (told.cache_write_tokens, told.cache_write_1h_tokens) == (40, 25)

    @pytest.mark.parametrize(("counted", "searches"), [({}, 1), ({"searchCount": 3}, 3)])
    def test_web_searches_are_counted_whatever_piece_of_the_file_is_read(
        self, tmp_path: Path, counted: dict[str, int], searches: int
    ) -> None:
        asked = answer("a1", call("c1", "WebSearch", query="x"))
        path = write(tmp_path / "projects" / "-home-kim-shop" / f"{SESSION}.jsonl", [asked])
        *_, checkpoint = read(tmp_path)
        found = {"query": "x", "results": [{"tool_use_id": "s1", "content": []}], "durationSeconds": 2.5, **counted}
        write(path, [asked, result("u2", "c1", "found", toolUseResult=found)])

        assert isinstance(checkpoint, Checkpoint)
        (told,) = [one for one in read(tmp_path, checkpoint.cursor) if isinstance(one, Usage)]

        assert (told.usage_id, told.model, told.web_searches) == ("search:c1", "claude-opus-5-5", searches)

    def test_tokens_are_told_once_per_answer_and_stand_on_its_first_event(self, tmp_path: Path) -> None:
        usage = {
            "input_tokens": 10,
            "output_tokens": 7,
            "cache_read_input_tokens": 30,
            "cache_creation_input_tokens": 40,
            "output_tokens_details": {"thinking_tokens": 2},
        }

        records = read_lines(
            tmp_path,
            answer("a1", text("One"), message_id="m1", usage={**usage, "output_tokens": 1}),
            answer("a2", text("Two"), message_id="m1", usage=usage),
            answer("a3", text("Three"), message_id="m1", usage=usage),
        )

        told = [one for one in records if isinstance(one, Usage)]
        assert [(one.usage_id, one.output_tokens) for one in told] == [("m1", 1), ("m1", 7)]
        assert (told[1].input_tokens, told[1].cache_read_tokens, told[1].cache_write_tokens) == (10, 30, 40)
        assert told[1].reasoning_tokens == 2
        assert [event.input_tokens for event in events(records)] == [10, None, None]

    def test_a_file_may_hold_several_sessions(self, tmp_path: Path) -> None:
        found = events(read_lines(tmp_path, prompt("u1", "one"), prompt("u2", "two", sessionId="other")))

        assert [event.native_session_id for event in found] == [SESSION, "other"]

    def test_a_branch_names_its_base_and_where_the_copy_ends(self, tmp_path: Path) -> None:
        told = facts(
            read_lines(
                tmp_path,
                prompt("u1", "one", forkedFrom={"sessionId": "base", "messageUuid": "u1"}),
                prompt("u2", "two", "u1", forkedFrom={"sessionId": "base", "messageUuid": "u2"}),
                prompt("u3", "own", "u2"),
            )
        )

        assert (told["base_native_id"], told["base_end"]) == ("base", "u2")

    def test_a_copy_made_by_resuming_keeps_its_ids(self, tmp_path: Path) -> None:
        write(tmp_path / "projects/p/old.jsonl", [prompt("u1", "one", sessionId="old")])
        write(tmp_path / "projects/p/new.jsonl", [prompt("u1", "one", sessionId="new")])

        found = events(read(tmp_path))

        assert {(event.native_session_id, event.native_id) for event in found} == {("old", "u1"), ("new", "u1")}


class TestSubAgents:
    AGENT = "a64a83376598e4796"

    def agent_file(self, root: Path, *lines: Any, folder: str = f"{SESSION}/subagents") -> list[Record]:
        write(root / "projects/p" / folder / f"agent-{self.AGENT}.jsonl", lines)
        return read(root)

    def test_a_sub_agents_file_is_a_session_below_its_parent(self, tmp_path: Path) -> None:
        records = self.agent_file(
            tmp_path, prompt("u1", "<teammate-message>count</teammate-message>", isSidechain=True, agentId=self.AGENT)
        )

        (event,) = events(records)
        told = facts(records, f"{SESSION}/{self.AGENT}")
        assert (event.native_session_id, event.lane) == (f"{SESSION}/{self.AGENT}", self.AGENT)
        assert event.kind == "user_msg"
        assert (told["parent_native_id"], told["root_native_id"]) == (SESSION, SESSION)
        assert told["session_class"] == "sub-agent"

    def test_the_older_flat_place_is_read_too(self, tmp_path: Path) -> None:
        records = self.agent_file(tmp_path, answer("a1", text("3 files"), isSidechain=True), folder="")

        assert events(records)[0].native_session_id == f"{SESSION}/{self.AGENT}"

    def test_a_warm_up_run_is_told_apart(self, tmp_path: Path) -> None:
        records = self.agent_file(
            tmp_path,
            prompt("u1", "Warmup", isSidechain=True, agentId=self.AGENT),
            answer("a1", text("Ready"), parent="u1", isSidechain=True, agentId=self.AGENT, gitBranch="other"),
        )

        assert facts(records, f"{SESSION}/{self.AGENT}")["session_class"] == "warm-up"

    def test_an_answer_without_a_request_is_a_warm_up_until_it_does_something(self, tmp_path: Path) -> None:
        session = f"{SESSION}/{self.AGENT}"
        ready = answer("a1", text("Ready"), isSidechain=True, agentId=self.AGENT)
        working = answer("a2", call("t1", "Bash", command="ls"), isSidechain=True, agentId=self.AGENT)

        warm_up = facts(self.agent_file(tmp_path, ready), session)
        sub_agent = facts(self.agent_file(tmp_path, ready, working), session)

        assert (warm_up["session_class"], sub_agent["session_class"]) == ("warm-up", "sub-agent")

    def test_its_side_file_names_the_call_that_spawned_it(self, tmp_path: Path) -> None:
        meta = {"agentType": "Explore", "description": "Count files", "toolUseId": "t1", "spawnDepth": 1}
        path = tmp_path / "projects/p" / SESSION / "subagents/workflows/wf_1" / f"agent-{self.AGENT}.meta.json"
        write(path, [meta])

        told = facts(read(tmp_path), f"{SESSION}/{self.AGENT}")

        assert (told["spawn_call_id"], told["parent_native_id"]) == ("t1", SESSION)
        assert told["metadata"] == {"description": "Count files", "agent_type": "Explore", "depth": 1}

    def test_the_result_of_the_spawning_call_names_it_too(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path,
            answer("a1", call("t1", "Agent", prompt="count")),
            result("u1", "t1", "3", "a1", toolUseResult={"status": "completed", "agentId": self.AGENT}),
        )

        assert facts(records, f"{SESSION}/{self.AGENT}")["spawn_call_id"] == "t1"

    def test_inline_sidechains_are_sessions_named_by_their_first_record(self, tmp_path: Path) -> None:
        records = read_lines(
            tmp_path,
            answer("a1", call("t1", "Task", prompt="count"), call("t2", "Task", prompt="list")),
            prompt("s1", "count", isSidechain=True),
            prompt("r1", "list", isSidechain=True),
            answer("s2", text("3"), parent="s1", isSidechain=True),
            answer("r2", text("a.py"), parent="r1", isSidechain=True),
            result("u1", "t1", "3", "a1"),
        )

        lanes = {event.native_id: (event.native_session_id, event.lane) for event in events(records)}
        assert lanes["s2"] == (f"{SESSION}/s1", "s1")
        assert lanes["r2"] == (f"{SESSION}/r1", "r1")
        assert lanes["u1"] == (SESSION, "")
        assert facts(records, f"{SESSION}/r1")["spawn_call_id"] == "t2"

    def test_a_compaction_agents_copies_keep_their_ids(self, tmp_path: Path) -> None:
        write(tmp_path / f"projects/p/{SESSION}.jsonl", [prompt("u1", "hello")])
        copy = prompt("u1", "hello", isSidechain=True, agentId="acompact-1f")
        write(tmp_path / f"projects/p/{SESSION}/subagents/agent-acompact-1f.jsonl", [copy])

        found = {event.native_session_id: event for event in events(read(tmp_path))}

        assert set(found) == {SESSION, f"{SESSION}/acompact-1f"}
        assert {event.copy_key or event.native_id for event in found.values()} == {"u1"}


class TestSideFiles:
    def test_prompts_from_the_history_stand_in_a_lane_of_their_own(self, tmp_path: Path) -> None:
        line = {"timestamp": 1794767473403, "project": "/home/kim/shop", "sessionId": SESSION}
        pasted = {"1": {"id": 1, "type": "text", "content": "line one\nline two"}}
        write(
            tmp_path / "history.jsonl",
            [
                {**line, "display": "fix [Pasted text #1 +2 lines]", "pastedContents": pasted},
                {**line, "display": "again", "pastedContents": {}},
                {**line, "display": "/exit", "timestamp": 1794767473500},
                {**line, "display": "! ls", "timestamp": 1794767473600},
                {"display": "from an old version", "timestamp": 1},
            ],
        )

        records = read(tmp_path)

        found = events(records)
        assert [event.native_id for event in found] == [
            "history:1794767473403:0",
            "history:1794767473403:1",
            "history:1794767473500:0",
            "history:1794767473600:0",
        ]
        assert [event.kind for event in found] == ["user_msg", "user_msg", "lifecycle", "tool_call"]
        assert found[0].payload["text"] == "fix line one\nline two"
        assert {event.lane for event in found} == {"history"}
        assert facts(records) == {
            "session_class": "prompts-only",
            "cwd": "/home/kim/shop",
        }
        assert skips(records) == {"history without session": 1}

    def test_a_big_output_is_a_result_of_its_own(self, tmp_path: Path) -> None:
        path = tmp_path / "projects/p" / SESSION / "tool-results/toolu_01.txt"
        path.parent.mkdir(parents=True)
        path.write_bytes(b"x" * (8 * 1024 * 1024 + 5))

        (event,) = events(read(tmp_path))

        assert (event.kind, event.role, event.status, event.call_id) == ("tool_result", "tool", "ok", "toolu_01")
        assert event.native_session_id == SESSION
        assert event.is_provisional
        assert event.metadata == {"file": "toolu_01.txt", "cut_at_bytes": 8 * 1024 * 1024}
        assert len(event.payload["output"]) == 8 * 1024 * 1024

    def test_to_do_lists_and_tasks_are_lifecycle(self, tmp_path: Path) -> None:
        todos = [{"content": "Fix add()", "status": "completed", "activeForm": "Fixing", "id": "1"}]
        write(tmp_path / f"todos/{SESSION}-agent-{SESSION}.json", [todos])
        write(tmp_path / f"todos/{SESSION}-agent-a1b2.json", [todos])
        write(tmp_path / "todos/empty-agent-empty.json", [[]])
        write(tmp_path / f"tasks/{SESSION}/2.json", [{"id": "2", "subject": "Run all", "status": "pending"}])

        records = read(tmp_path)

        found = {event.native_id: event for event in events(records)}
        assert {(event.kind, event.lane) for event in found.values()} == {("lifecycle", "files")}
        assert found[f"todos/{SESSION}-agent-a1b2.json"].native_session_id == f"{SESSION}/a1b2"
        assert found[f"todos/{SESSION}-agent-{SESSION}.json"].native_session_id == SESSION
        assert found["tasks/2.json"].summary == "[pending] Run all"
        assert skips(records) == {"empty": 1}

    def test_a_title_file_names_its_session(self, tmp_path: Path) -> None:
        write(tmp_path / "projects/p" / SESSION / "custom-title.json", [{"customTitle": "calc"}])

        assert facts(read(tmp_path))["title_3"] == "calc"

    def test_a_rewritten_file_that_did_not_change_tells_nothing(self, tmp_path: Path) -> None:
        write(tmp_path / f"tasks/{SESSION}/2.json", [{"id": "2", "subject": "Run all"}])
        (source,) = ADAPTER.discover(tmp_path)
        *_, checkpoint = ADAPTER.read(source, None)
        assert isinstance(checkpoint, Checkpoint)

        assert list(ADAPTER.read(source, checkpoint.cursor)) == []

    @pytest.mark.parametrize(
        "path",
        [
            "todos/a-agent-a.json",
            "tasks/s/1.json",
            "projects/p/s/custom-title.json",
            "projects/p/s/subagents/agent-a.meta.json",
        ],
    )
    def test_a_side_file_that_is_no_json_is_a_bad_line(self, tmp_path: Path, path: str) -> None:
        write(tmp_path / path, [b'{"half'])

        assert len(bad_lines(read(tmp_path))) == 1


class TestDiscovery:
    def found(self, root: Path) -> set[str]:
        return {source.path.relative_to(root).as_posix() for source in ADAPTER.discover(root)}

    def test_only_files_of_a_known_shape_are_ever_opened(self, tmp_path: Path) -> None:
        wanted = {
            "history.jsonl",
            "projects/p/one.jsonl",
            "projects/p/agent-1.jsonl",
            "projects/p/one/subagents/agent-2.jsonl",
            "projects/p/one/subagents/agent-2.meta.json",
            "projects/p/one/subagents/workflows/wf_1/agent-3.jsonl",
            "projects/p/one/tool-results/b1.txt",
            "projects/p/one/custom-title.json",
            "todos/one-agent-one.json",
            "tasks/one/1.json",
        }
        others = {
            ".credentials.json",
            "settings.json",
            "sessions/1.key",
            "backups/a.json",
            "plugins/x/y.jsonl",
            "projects/p/memory/notes.jsonl",
            "projects/p/sessions-index.json",
            "projects/p/one/subagents/workflows/wf_1/journal.jsonl",
            "tasks/one/.lock",
            "file-history/one/abc@v1",
        }
        for path in wanted | others:
            write(tmp_path / path, [{}])

        assert self.found(tmp_path) == wanted

    def test_an_export_may_hold_transcripts_at_any_depth(self, tmp_path: Path) -> None:
        write(tmp_path / "s1/00/abc/full.jsonl", [prompt("u1", "hello")])

        assert self.found(tmp_path) == {"s1/00/abc/full.jsonl"}
        assert events(read(tmp_path))[0].native_session_id == SESSION

    def test_a_home_without_transcripts_is_not_searched(self, tmp_path: Path) -> None:
        write(tmp_path / "settings.json", [{}])
        write(tmp_path / "plugins/x/fixture.jsonl", [prompt("u1", "hello")])

        assert self.found(tmp_path) == set()

    def test_links_are_not_followed(self, tmp_path: Path) -> None:
        elsewhere = write(tmp_path / "elsewhere/secret.jsonl", [prompt("u1", "hello")])
        home = tmp_path / "home"
        (home / "projects/p").mkdir(parents=True)
        (home / "projects/p/link.jsonl").symlink_to(elsewhere)
        (home / "projects/q").symlink_to(elsewhere.parent)
        (home / "todos").symlink_to(elsewhere.parent)

        assert self.found(home) == set()


class TestDamage:
    def test_a_cut_line_is_kept_as_a_bad_line(self, tmp_path: Path) -> None:
        records = read_lines(tmp_path, b'{"type":"user","uuid":"u0","mess', prompt("u1", "hello"))

        (bad,) = bad_lines(records)
        assert (bad.line, bad.offset, bad.raw) == (1, 0, b'{"type":"user","uuid":"u0","mess')
        assert len(events(records)) == 1

    def test_records_glued_to_one_line_are_both_read(self, tmp_path: Path) -> None:
        glued = orjson.dumps(prompt("u1", "one")) + orjson.dumps(prompt("u2", "two", "u1"))

        found = events(read_lines(tmp_path, glued))

        assert [event.native_id for event in found] == ["u1", "u2"]
        assert found[0].position < found[1].position

    def test_a_block_of_nul_bytes_costs_only_itself(self, tmp_path: Path) -> None:
        records = read_lines(tmp_path, b"\x00" * 64 + orjson.dumps(prompt("u1", "one")), b"\x00" * 10)

        assert [event.native_id for event in events(records)] == ["u1"]
        assert [bad.reason for bad in bad_lines(records)] == ["block of NUL bytes"] * 2

    def test_characters_that_are_none_are_replaced_and_said_so(self, tmp_path: Path) -> None:
        raw = orjson.dumps(prompt("u1", "x@y")).replace(b"@", b"\\ud800")

        event = only_event(tmp_path, raw)

        assert "\ufffd" in event.payload["text"]
        assert event.payload["text"].replace("\ufffd", "") == "xy"
        assert event.metadata == {"lossy": True}

    @pytest.mark.parametrize(
        "line",
        [b"[1, 2]", b"3", b'"text"', b"null", b"{}", b'{"type": 7}', b'{"type":' + b"[" * 100_000],
    )
    def test_what_is_no_record_is_a_bad_line(self, tmp_path: Path, line: bytes) -> None:
        records = read_lines(tmp_path, line, prompt("u1", "hello"))

        assert len(bad_lines(records)) == 1
        assert len(events(records)) == 1

    @pytest.mark.parametrize(
        "wrong",
        [
            {"message": "a text"},
            {"message": 5},
            {"message": None},
            {"message": {"content": 5}},
            {"message": {"content": [None, 3, "x", {"type": 4}]}},
            {"message": {"content": [{"type": "text", "text": 3}]}},
            {"message": {"content": [{"type": "tool_use", "id": 3, "name": [], "input": "x"}]}},
            {"message": {"content": [{"type": "tool_result", "tool_use_id": {}, "content": {"a": 1}}]}},
            {"message": {"content": [{"type": "thinking", "thinking": {}}]}},
            {"message": {"content": "x", "usage": [], "id": 3, "model": {}}},
            {"message": {"content": "x", "usage": {"input_tokens": "3", "output_tokens": 1e400}}},
            {"message": {"0": "A", "1": "P", "2": "I"}},
            {"toolUseResult": [1, {"a": 2}]},
            {"toolUseResult": 3.5, "permissionDecision": "yes", "origin": "human"},
            {"uuid": 3, "parentUuid": {}, "sessionId": [], "timestamp": 7, "cwd": 3, "gitBranch": []},
            {"uuid": "u" * 5000, "sessionId": "s" * 5000},
            {"attachment": "text"},
            {"attachment": {"type": "queued_command", "prompt": {"a": 1}}},
            {"attachment": {"type": "instructions", "files": [3, {"path": 4}]}},
            {"attachment": {"type": "hook_success", "content": [1], "stdout": {}}},
            {"forkedFrom": "x", "entrypoint": 3, "version": 2, "agentId": 3, "isSidechain": "yes"},
            {"subtype": ["x"], "content": {"a": 1}, "durationMs": "x", "error": "text"},
            {"totalCostUSD": "x"},
            {"summary": 3, "leafUuid": [], "aiTitle": {}, "customTitle": 3},
        ],
    )
    @pytest.mark.parametrize(
        "kind",
        ["user", "assistant", "system", "attachment", "cost-state", "summary", "ai-title", "custom-title", "new"],
    )
    def test_wrong_types_inside_a_record_are_tolerated(self, tmp_path: Path, kind: str, wrong: dict[str, Any]) -> None:
        line = json.dumps({**record(kind, "u1"), **wrong}).encode()

        records = read_lines(tmp_path, line, prompt("u2", "hello"))

        assert any(event.native_id == "u2" for event in events(records))
        for event in events(records):
            orjson.dumps(event.payload)
            assert len(event.summary) <= 200

    def test_arguments_no_database_takes_are_kept_as_text(self, tmp_path: Path) -> None:
        deep: Any = []
        for _ in range(400):
            deep = [deep]
        raw = json.dumps(answer("a1", call("t1", "Bash", number=10**30), call("t2", "Bash", deep=deep)))

        found = events(read_lines(tmp_path, raw.encode()))

        assert len(found) == 2
        for event in found:
            orjson.dumps(event.payload)

    def test_state_stays_small(self, tmp_path: Path) -> None:
        names = ["\x01" * 100, '"' * 40, "é" * 40, "x" * 40]
        lines: list[Any] = []
        for number in range(1500):
            name = f"{names[number % 4][:36]}{number:04}"
            tool = call(f"t{name}"[:40], f"{name}{name}"[:80], prompt=name)
            lines.append(record("progress", name, f"p{name}"[:40]))
            lines.append(answer(f"s{name}"[:40], tool, isSidechain=True, message_id=f"m{name}", sessionId=name))
        states = [one.cursor.state for one in read_lines(tmp_path, *lines) if isinstance(one, Checkpoint)]

        assert max(len(orjson.dumps(dict(state))) for state in states) <= STATE_LIMIT_BYTES


Told = dict[tuple[str, str, int, bytes], tuple[Any, ...]]


def told_by(records: Iterable[Record]) -> Told:
    """Everything that must not depend on how a file was cut."""
    told: Told = {}
    for event in without_delivered(events(records)):
        # A record written twice keeps its identity; the store keeps the first of each content.
        key = (event.native_session_id, event.native_id, event.block, orjson.dumps(event.payload))
        value = (
            event.kind,
            event.position,
            event.parent_native_id,
            event.lane,
            event.tool,
            event.status,
            event.input_tokens,
        )
        told.setdefault(key, value)
    return told


def sessions_told(records: list[Record]) -> dict[str, dict[str, Any]]:
    names = {one.native_session_id for one in records if isinstance(one, SessionInfo)}
    return {name: facts(records, name) for name in names}


def read_in_pieces(root: Path, content: bytes, cuts: Iterable[int], name: str) -> list[Record]:
    path = root / "projects" / "p" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"")
    records: list[Record] = []
    cursor: Cursor | None = None
    for cut in [*sorted(cuts), len(content)]:
        path.write_bytes(content[:cut])
        (source,) = ADAPTER.discover(root)
        piece = list(ADAPTER.read(source, cursor))
        assert isinstance(piece[-1], Checkpoint)
        last = piece[-1].cursor
        cursor = Cursor(last.offset, last.line, last.head, last.tail, orjson.loads(orjson.dumps(dict(last.state))))
        records += piece
    return records


def a_long_log() -> bytes:
    """A log with everything whose meaning depends on lines before: calls, sidechains, forks, skipped parents."""
    fork = {"sessionId": "base", "messageUuid": "u1"}
    lines: list[Any] = [
        {"type": "mode", "mode": "normal", "sessionId": SESSION},
        prompt("u1", "one", forkedFrom=fork),
        record("attachment", "x1", "u1", attachment={"type": "environment"}),
        record("progress", "x2", "x1"),
        answer("a1", {"type": "thinking", "thinking": ""}, parent="x2", message_id="m1"),
        answer("a2", call("t1", "AskUserQuestion", questions=[]), parent="a1", message_id="m1"),
        answer("a3", call("t2", "Task", prompt="count"), parent="a2", message_id="m1"),
        prompt("s1", "count", isSidechain=True),
        result("u2", "t1", "yes", "a2"),
        answer("s2", text("3"), parent="s1", isSidechain=True),
        b'{"cut',
        orjson.dumps(prompt("g1", "glued", "u2")) + orjson.dumps(prompt("g2", "too", "g1")),
        record("progress", "x3", "g2"),
        result("u3", "t2", "3", "x3", toolUseResult={"agentId": "abc"}),
        {"type": "summary", "summary": "Counting", "leafUuid": "u3"},
        {"type": "cost-state", "totalCostUSD": 1.5, "startTime": 3, "sessionId": SESSION},
        enqueued("four – ünï 🧠 \u2028"),
        enqueued("never sent"),
        prompt("u4", "four – ünï 🧠 \u2028", "u3", gitBranch="other"),
        prompt("u4", "again", "u3"),
    ]
    return b"".join((line if isinstance(line, bytes) else orjson.dumps(line)) + b"\n" for line in lines)


LOGS = {
    f"{SESSION}.jsonl": a_long_log(),
    **{path.name: path.read_bytes() for path in sorted(DATA.glob("*/*.jsonl"))},
}


@pytest.mark.parametrize("name", LOGS)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_cut_of_a_log_tells_the_same(tmp_path: Path, name: str, data: st.DataObject) -> None:
    content = LOGS[name]
    whole = read_in_pieces(tmp_path, content, [], name)
    cuts = data.draw(st.lists(st.integers(0, len(content)), max_size=8))

    pieces = read_in_pieces(tmp_path, content, cuts, name)

    assert told_by(pieces) == told_by(whole)
    assert sessions_told(pieces) == sessions_told(whole)
    assert skips(pieces) == skips(whole)
    assert [(bad.line, bad.offset) for bad in bad_lines(pieces)] == [(bad.line, bad.offset) for bad in bad_lines(whole)]


def test_prompts_of_the_same_millisecond_stay_apart_over_a_cut(tmp_path: Path) -> None:
    line = {"display": "go", "timestamp": 5, "sessionId": SESSION, "project": "/p"}
    path = write(tmp_path / "history.jsonl", [line])
    (source,) = ADAPTER.discover(tmp_path)
    *first, checkpoint = ADAPTER.read(source, None)
    assert isinstance(checkpoint, Checkpoint)
    write(path, [line, line])

    second = list(ADAPTER.read(source, checkpoint.cursor))

    assert [event.native_id for event in events([*first, *second])] == ["history:5:0", "history:5:1"]


class TestGenuineLogs:
    def read_genuine(self, root: Path, path: str) -> list[Record]:
        content = (DATA / path).read_bytes()
        return read_in_pieces(root, content, [], Path(path).name)

    def test_a_sub_agent_of_1_0_112_is_found_in_the_main_file(self, tmp_path: Path) -> None:
        session = "1d4a5aed-4a35-4b62-9b0a-f63364d4b831"
        agent = f"{session}/89965dde-739a-4891-8d4e-c7c7c2f2113c"

        records = self.read_genuine(tmp_path, f"1.0.112/{session}.jsonl")

        assert [event.kind for event in events(records) if event.native_session_id == session] == [
            "user_msg",
            "assistant_msg",
            "tool_call",
            "tool_result",
            "assistant_msg",
        ]
        assert [event.kind for event in events(records) if event.native_session_id == agent] == [
            "user_msg",
            "tool_call",
            "tool_result",
            "assistant_msg",
        ]
        assert facts(records, agent)["spawn_call_id"] == "toolu_01af786f2667804d4e97ff8b"

    def test_a_session_at_the_terminal_of_2_1_325_tells_what_happened(self, tmp_path: Path) -> None:
        session = "dc106e8e-36fb-42cf-92ef-d26140c5fabf"

        records = self.read_genuine(tmp_path, f"2.1.325/{session}.jsonl")

        told = facts(records, session)
        assert told["title_2"] == "Fix the failing calc test"
        assert told["instructions"][0]["name"] == "/home/devbox/proj/interactive2/CLAUDE.md"
        assert Counter(event.kind for event in events(records)) == {
            "user_msg": 1,
            "thinking": 2,
            "assistant_msg": 4,
            "tool_call": 5,
            "test_run": 2,
            "edit": 1,
            "tool_result": 5,
            "error": 1,
            "human_intervention": 3,
            "lifecycle": 1,
        }
        assert bad_lines(records) == []
        refused = [event.summary for event in events(records) if event.status == "denied"]
        assert refused == ["refused: No, please keep the operator, добавь тест", "refused the call"]
        assert len({one.usage_id for one in records if isinstance(one, Usage)}) == 6


class TestOddRoots:
    def test_a_foreign_log_below_a_folder_of_exports_is_left_alone(self, tmp_path: Path) -> None:
        (tmp_path / ".ssh").mkdir()
        (tmp_path / ".ssh" / "credentials.jsonl").write_text('{"parentUuid": "secret"}\n')
        (tmp_path / "rollout-1.jsonl").write_text('{"timestamp": "x", "type": "session_meta", "payload": {}}\n')
        (tmp_path / "export.jsonl").write_bytes(orjson.dumps(prompt("u1", "hello")) + b"\n")

        assert [source.path.name for source in ADAPTER.discover(tmp_path)] == ["export.jsonl"]

    def test_an_inline_sidechain_that_only_warms_up_is_a_warm_up(self, tmp_path: Path) -> None:
        warm = {**prompt("w1", "Warmup"), "isSidechain": True}
        reply = {**answer("w2", text("Ready."), parent="w1"), "isSidechain": True}

        records = read_lines(tmp_path, prompt("u1", "hello"), warm, reply)

        assert facts(records, f"{SESSION}/w1")["session_class"] == "warm-up"


def spread(words: str) -> dict[str, str]:
    return {str(number): char for number, char in enumerate(words)}


def test_an_answer_left_as_a_stream_of_characters_beside_an_empty_content_is_read(tmp_path: Path) -> None:
    stream = "".join(
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n"
        for event in (
            {"type": "message_start", "message": {"id": "msg_9", "model": "glm-4.6", "usage": {"input_tokens": 9}}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "All "}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "done"}},
            {
                "type": "content_block_start",
                "index": 1,
                "content_block": {"type": "tool_use", "id": "t1", "name": "Bash"},
            },
            {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '{"command":'}},
            {"type": "content_block_delta", "index": 1, "delta": {"partial_json": '"ls"}'}},
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
        )
    )

    records = read_lines(tmp_path, record("assistant", "a1", message={**spread(stream), "content": []}))

    said, called = events(records)
    assert (said.payload["text"], called.summary, called.payload["input"]) == ("All done", "ran ls", {"command": "ls"})
    (usage,) = (one for one in records if isinstance(one, Usage))
    assert (usage.model, usage.input_tokens, usage.output_tokens) == ("glm-4.6", 9, 7)


def test_spread_characters_that_are_no_stream_are_the_answer(tmp_path: Path) -> None:
    event = only_event(tmp_path, record("assistant", "a1", message={**spread("API Error"), "content": ""}))

    assert event.payload["text"] == "API Error"


@pytest.mark.parametrize("message", ["words", ["words"], {"content": {"parts": "words"}}])
def test_a_message_of_an_unknown_shape_is_kept_whole(tmp_path: Path, message: Any) -> None:
    event = only_event(tmp_path, record("user", "u1", message=message))

    assert event.kind == "other"
    assert "words" in json.dumps(event.payload)


@pytest.mark.parametrize(
    ("plan", "summary"),
    [
        ("# Fix the parser\n\n## Context\nIt breaks.", "Plan: Fix the parser"),
        ("# Plan: Fix the parser\nIt breaks.", "Plan: Fix the parser"),
        ("## Implementation Plan: Fix the parser", "Plan: Fix the parser"),
        ("fix the parser", "Implement the following plan: fix the parser"),
    ],
)
def test_a_plan_carried_into_a_new_conversation_is_summed_up_by_its_heading(
    tmp_path: Path, plan: str, summary: str
) -> None:
    event = only_event(tmp_path, prompt("u1", f"Implement the following plan:\n\n{plan}"))

    assert (event.kind, event.summary) == ("user_msg", summary)
    assert event.payload["text"].endswith(plan)
