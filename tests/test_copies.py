"""What an agent writes down twice, or somewhere else, is one conversation: in its order, and counted once."""

import random
from pathlib import Path
from typing import Any

import pytest

from recollect import Memory, Session, open_memory
from recollect.model.schema import EDIT, TOOL_CALL, TOOL_RESULT, USER_MSG
from tests import logs
from tests.conftest import swept, with_key
from tests.faults.rig import IS_SOAK
from tests.logs import Record, claude_answer, claude_user, record_id, timestamp
from tests.test_lossless import PIECES, _cuts, _differences, _grow, _portrait

FOLDER = "projects/-home-devbox-proj-calc-demo"
RESUMED, OLD, NEW, PARENT, TWICE = (f"5f7c0c7e-5f0b-4a53-9a53-00000000000{number}" for number in range(5))
AGENT = "a1b2c3d4e5f60718"


def _write(home: Path, name: str, records: list[Record]) -> None:
    path = home / FOLDER / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(logs.lines(records))


def _conversation(session: str) -> list[Record]:
    edit = {
        "type": "tool_use",
        "id": f"toolu_01{'A' * 22}",
        "name": "Edit",
        "input": {"file_path": f"{logs.CWD}/a.py", "old_string": "foo", "new_string": "bar"},
    }
    call = claude_answer(session, 2, "")
    call["message"] |= {"content": [edit], "id": f"msg_01{'B' * 22}"}
    result = {"type": "tool_result", "tool_use_id": edit["id"], "content": "The file has been updated"}
    answer = claude_answer(session, 6, "Renamed.")
    answer["message"]["id"] = f"msg_01{'C' * 22}"
    return [
        claude_user(session, 1, "rename foo to bar"),
        call,
        claude_user(session, 3, [result]),
        claude_user(session, 4, "<bash-input>git status</bash-input>"),
        claude_user(session, 5, "<bash-stdout>M a.py</bash-stdout><bash-stderr></bash-stderr>"),
        answer,
    ]


def _under_new_ids(records: list[Record]) -> list[Record]:
    names = {record["uuid"]: record_id("copy", number) for number, record in enumerate(records)}
    return [
        record | {"uuid": names[record["uuid"]], "parentUuid": names.get(record["parentUuid"])} for record in records
    ]


def _resumed(home: Path) -> None:
    """VS Code resumes: the whole conversation again in the same file, under new ids, then what is new."""
    first = _conversation(RESUMED)
    later = [claude_user(RESUMED, 20, "and baz to qux"), claude_answer(RESUMED, 21, "Done.")]
    later[0]["parentUuid"] = record_id("copy", len(first) - 1)
    _write(home, RESUMED, [*first, *_under_new_ids(first), *later])


def _restamped(home: Path, *, with_original: bool = True) -> None:
    """Claude Code 1.0.80 resumes: copies have a new id and time, but the later prompts those they had."""
    told = [
        claude_user(OLD, 1, "fix the header"),
        claude_answer(OLD, 2, "The header is fixed."),
        claude_user(OLD, 3, "now the footer"),
        claude_answer(OLD, 4, "The footer is fixed."),
    ]
    if with_original:
        _write(home, OLD, told)
    new = {"sessionId": NEW, "timestamp": timestamp(60)}
    copies = [told[0] | new, told[1] | new, told[2], told[3] | new]
    _write(home, NEW, [*copies, claude_user(NEW, 70, "thanks"), claude_answer(NEW, 71, "Gladly.")])


def _agent_message(number: int, kind: str, content: Any) -> Record:
    record = claude_answer(TWICE, number, "") if kind == "assistant" else claude_user(TWICE, number, content)
    record["message"]["content"] = content
    if kind == "assistant":
        usage = {"input_tokens": 1_000, "output_tokens": 100}
        record["message"] |= {"model": "claude-opus-4-6", "id": f"msg_02{number:022}", "usage": usage}
    return record


def _work_of_agent() -> list[Record]:
    grep = {
        "type": "tool_use",
        "id": f"toolu_02{'D' * 22}",
        "name": "Bash",
        "input": {"command": "grep -n quokka a.py"},
    }
    found = {"type": "tool_result", "tool_use_id": grep["id"], "content": "12: quokka"}
    return [
        _agent_message(3, "user", [{"type": "text", "text": "Review a.py for errors"}]),
        _agent_message(4, "assistant", [grep]),
        _agent_message(5, "user", [found]),
        _agent_message(6, "assistant", [{"type": "text", "text": "No errors found."}]),
    ]


def _progress(session: str, message: Record) -> Record:
    kept = ("type", "message", "uuid", "timestamp", "requestId")
    return {
        "parentUuid": record_id(session, 2),
        "isSidechain": False,
        "cwd": logs.CWD,
        "sessionId": session,
        "version": "2.1.30",
        "gitBranch": "main",
        "type": "progress",
        "data": {
            "type": "agent_progress",
            "agentId": AGENT,
            "message": {name: message[name] for name in kept if name in message},
        },
        "parentToolUseID": f"toolu_03{'E' * 22}",
        "uuid": record_id(f"{session} progress", int(message["timestamp"][17:19])),
        "timestamp": message["timestamp"],
    }


def _delegating(session: str) -> list[Record]:
    task = {
        "type": "tool_use",
        "id": f"toolu_03{'E' * 22}",
        "name": "Task",
        "input": {"prompt": "Review a.py for errors"},
    }
    call = claude_answer(session, 2, "")
    call["message"] |= {"content": [task], "id": f"msg_03{session[-1] * 22}"}
    trailer = f"agentId: {AGENT} (for resuming to continue this agent's work if needed)\n<usage>tool_uses: 1</usage>"
    said = [{"type": "text", "text": text} for text in ("No errors found.", trailer)]
    result = {"type": "tool_result", "tool_use_id": task["id"], "content": said}
    answer = claude_answer(session, 8, "Nothing found.")
    answer["message"]["id"] = f"msg_04{session[-1] * 22}"
    return [
        claude_user(session, 1, "review it"),
        call,
        *(_progress(session, message) for message in _work_of_agent()[:-1]),  # its last words are the result
        claude_user(session, 7, [result]) | {"toolUseResult": {"status": "completed", "agentId": AGENT}},
        answer,
    ]


def _own_log(home: Path, session: str) -> None:
    """A sub-agent's own log, whose messages have other ids than those in the parent's where they had several blocks."""
    messages = [message | {"sessionId": session, "agentId": AGENT, "isSidechain": True} for message in _work_of_agent()]
    messages[1]["uuid"] = record_id("other", 1)
    messages[2]["parentUuid"] = messages[1]["uuid"]
    _write(home, f"{session}/subagents/agent-{AGENT}", messages)


def _summaries(memory: Memory, session: Session, kind: str | None = None) -> list[str]:
    return [event.summary for event in memory.events(session, kind, with_copies=True)]


def _of_class(memory: Memory, name: str) -> list[Session]:
    return [session for session in memory.sessions() if session.session_class == name]


def test_a_conversation_that_is_copied_into_its_own_log_counts_once(tmp_path: Path) -> None:
    _resumed(tmp_path / "home")

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        (session,) = memory.sessions()
        digest = memory.digest(session)
        requests, edits = (_summaries(memory, session, kind) for kind in (USER_MSG, EDIT))

    assert requests == ["rename foo to bar", "and baz to qux"]
    assert edits == ["edited a.py"]
    assert (session.cost.turns, session.message_count) == (2, 4)
    assert [request.text for request in digest.requests] == ["rename foo to bar", "and baz to qux"]
    assert [(file.name, file.count) for file in digest.files] == [("a.py", 1)]


def test_the_users_own_command_in_a_copied_conversation_is_kept_once(tmp_path: Path) -> None:
    _resumed(tmp_path / "home")

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        (session,) = memory.sessions()
        events = [event for event in memory.events(session) if event.tool == "shell"]

    assert [(event.kind, event.summary) for event in events] == [(TOOL_CALL, "ran git status"), (TOOL_RESULT, "M a.py")]


def test_the_same_words_at_another_time_are_no_copy(tmp_path: Path) -> None:
    session = logs.session_id()
    again = [claude_user(session, number, "continue") for number in (5, 3)]
    _write(tmp_path / "home", session, [claude_user(session, 1, "begin"), claude_answer(session, 9, "Yes."), *again])

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        assert _summaries(memory, memory.sessions()[0], USER_MSG) == ["begin", "continue", "continue"]


def test_a_prompt_keeps_its_place_beside_a_file_that_has_it_behind_its_answer(tmp_path: Path) -> None:
    session = logs.session_id()
    told = [
        claude_user(session, 1, "fix the header"),
        claude_answer(session, 2, "The header is fixed."),
        claude_user(session, 3, "now the footer"),
        claude_answer(session, 4, "The footer is fixed."),
    ]
    _write(tmp_path / "home", session, told)
    _write(tmp_path / "home", "exported", [told[0], claude_user(session, 50, "later"), told[2]])

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        summaries = _summaries(memory, memory.sessions()[0])

    assert summaries == ["fix the header", "The header is fixed.", "now the footer", "The footer is fixed.", "later"]


def test_prompts_that_a_resume_left_under_the_old_id_stay_with_their_answers(tmp_path: Path) -> None:
    _restamped(tmp_path / "home", with_original=False)

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        (session,) = memory.sessions()
        summaries = _summaries(memory, session)

    assert (session.native_session_id, session.outcome) == (NEW, "success")
    assert summaries[:4] == ["fix the header", "The header is fixed.", "now the footer", "The footer is fixed."]


def test_prompts_that_a_resume_left_under_the_old_id_are_copies_where_the_old_log_is_held(tmp_path: Path) -> None:
    _restamped(tmp_path / "home")

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        sessions = {one.native_session_id: one for one in memory.sessions()}
        old = _summaries(memory, sessions[OLD])

    assert old == ["fix the header", "The header is fixed.", "now the footer", "The footer is fixed."]
    assert (sessions[OLD].cost.turns, sessions[NEW].cost.turns) == (2, 1)


def test_a_sub_agent_known_only_from_its_parents_log_is_a_session_with_its_tokens(tmp_path: Path) -> None:
    _write(tmp_path / "home", PARENT, _delegating(PARENT))

    with swept(tmp_path / "store", f"claude={tmp_path / 'home'}") as memory:
        (agent,) = _of_class(memory, "sub-agent")
        (parent,) = _of_class(memory, "human")
        summaries = _summaries(memory, agent)
        hits = memory.search("quokka")

    assert agent.session_uid == f"claude:{PARENT}/{AGENT}"
    assert (agent.parent_session_uid, agent.root_session_uid) == (parent.session_uid, parent.session_uid)
    assert summaries == ["Review a.py for errors", "ran grep -n quokka a.py", "12: quokka", "No errors found."]
    assert (agent.cost.input_tokens, agent.cost.output_tokens, parent.cost.input_tokens) == (1_000, 100, 14)
    assert (agent.outcome, (agent.cost.usd or 0) > 0) == ("success", True)
    assert hits


@pytest.mark.parametrize("comes", ["before", "after"])
def test_a_sub_agents_own_log_takes_the_place_of_what_its_parents_log_holds(tmp_path: Path, comes: str) -> None:
    home = tmp_path / "home"
    with swept(tmp_path / "alone", f"claude={_with_own_log(tmp_path / 'both')}") as memory:
        (expected,) = _of_class(memory, "sub-agent")

    if comes == "before":
        _own_log(home, TWICE)
    else:
        _write(home, TWICE, _delegating(TWICE))
    with swept(tmp_path / "store", f"claude={home}") as memory:
        _with_own_log(home)
        memory.sweep()
        (agent,) = _of_class(memory, "sub-agent")
        lanes = {event.lane for event in memory.events(agent)}

    assert lanes == {AGENT}
    assert (agent.event_count, agent.content_hash, agent.cost) == (4, expected.content_hash, expected.cost)


def _with_own_log(home: Path) -> Path:
    _write(home, TWICE, _delegating(TWICE))
    _own_log(home, TWICE)
    return home


@pytest.mark.parametrize("seed", range(40 if IS_SOAK else 4))
def test_such_logs_read_in_pieces_and_in_any_order_make_the_same_store(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    whole = _with_own_log(tmp_path / "home")
    _resumed(whole)
    _restamped(whole)
    _write(whole, PARENT, _delegating(PARENT))
    contents = {path: path.read_bytes() for path in sorted(whole.rglob("*.jsonl"))}
    with swept(tmp_path / "a", f"claude={whole}") as memory:
        expected = _portrait(memory, whole)

    cuts = {path: _cuts(content, chance) for path, content in contents.items()}
    for path in contents:
        path.unlink()
    late = chance.sample(list(contents), 3)  # files that appear only in the end
    with open_memory(with_key(tmp_path / "b"), [f"claude={whole}"]) as memory:
        for step in range(PIECES):
            for path, content in contents.items():
                if path not in late or step == PIECES - 1:
                    _grow(path, content[: cuts[path][step]], is_first=not path.exists())
            assert memory.sweep().failures == []
        found = _portrait(memory, whole)

    assert _differences(expected, found) == ""
