"""What becomes of the sessions that a real OpenCode wrote (1.18.33); expectations read off the prompts and answers."""

from collections import Counter
from collections.abc import Iterator

import pytest

from recollect import Memory, Session, open_memory
from tests.conftest import SHARED

HOME = SHARED / "genuine-more" / "opencode-1.18.33" / ".local" / "share" / "opencode"
FIX, FORK, CRASH = "ses_e0e090d21ffe0OCB1inN1htld3", "ses_e0e08befeffe1o3Shhf2qz0n4F", "ses_e0e08d28fffek6schwDDyh8SRM"
DELEGATE, COUNT = "ses_e0e08dbd7ffeumtDH1yOQhfB6V", "ses_e0e08d7beffeR80Ak0qTmKrLad"
REFUSED, KILLED = "ses_e0e08b63effewFdaPN5LIlLVcF", "ses_e0e08ae83ffeiOELSFbS4mk1hd"
PRINTED, COMPACTED = "ses_e0e0886eaffewDIITyl4eUyEGx", "ses_e0e087bd0ffe1QinKRtso2eXK8"

pytestmark = pytest.mark.skipif(not HOME.is_dir(), reason="the genuine sessions are not in ../shared")


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    with open_memory(tmp_path_factory.mktemp("store"), [f"opencode={HOME}"]) as memory:
        memory.sweep()
        yield memory


def session_of(memory: Memory, native_id: str) -> Session:
    name = f"{DELEGATE}/{COUNT}" if native_id == COUNT else native_id
    return next(session for session in memory.sessions() if session.native_session_id == name)


def told(memory: Memory, native_id: str) -> list[tuple[str, str | None, str | None]]:
    return [(event.kind, event.status, event.tool) for event in memory.events(session_of(memory, native_id))]


def texts(memory: Memory, native_id: str, *kinds: str) -> list[str]:
    return [event.summary for event in memory.events(session_of(memory, native_id)) if event.kind in kinds]


def test_kinds_and_statuses_of_failures_and_what_came_after_them(memory: Memory) -> None:
    assert told(memory, CRASH) == [
        ("user_msg", None, None),
        ("assistant_msg", None, None),
        ("tool_call", None, "bash"),
        ("error", "failed", "bash"),  # exit 1
        ("thinking", None, None),
        ("tool_call", None, "bash"),
        ("error", "failed", "bash"),  # exit 127
        ("assistant_msg", None, None),
        ("tool_call", None, "read"),
        ("error", "failed", "read"),  # no such file
        ("edit", None, "edit"),
        ("error", "failed", "edit"),
        ("tool_call", None, "bash"),
        ("error", "failed", "bash"),  # exit 3
        ("thinking", None, None),
        ("completion", None, None),
        ("user_msg", None, None),
        ("edit", None, "write"),
        ("tool_result", "ok", "write"),
        ("tool_call", None, "bash"),
        ("tool_result", "ok", "bash"),
        ("tool_call", None, "glob"),
        ("error", "failed", "glob"),
        ("completion", None, None),
    ]
    assert texts(memory, CRASH, "error")[:2] == [
        "exit 1: KeyError: 'missing-key'",
        "exit 127: /usr/bin/bash: line 1: definitely-not-a-command: command not found",
    ]


def test_names_in_cyrillic_and_chinese_are_kept_as_they_are(memory: Memory) -> None:
    assert texts(memory, CRASH, "edit")[-1] == "edited /home/devbox/proj/calc-demo/docs/заметки café 日本.md"
    assert texts(memory, CRASH, "completion")[-1] == "Заметки записаны в docs/заметки café 日本.md ✅"


def test_tokens_and_money_are_those_the_program_counted(memory: Memory) -> None:
    held = {}
    for session in memory.sessions():
        cost = session.cost
        figures = (cost.input_tokens, cost.output_tokens, cost.cache_read_tokens, round(cost.usd or 0, 6), cost.turns)
        held[session.native_session_id.rpartition("/")[2]] = figures

    assert held == {
        FIX: (10_637, 926, 53_209, 0.015267, 2),
        DELEGATE: (1_558, 129, 7_792, 0.002203, 1),
        COUNT: (1_359, 124, 6_797, 0.001979, 1),
        CRASH: (8_247, 704, 41_256, 0.011767, 2),
        FORK: (1_001, 58, 5_008, 0.001291, 1),
        REFUSED: (0, 0, 0, 0, 1),
        KILLED: (0, 0, 0, 0, 1),
        PRINTED: (6_441, 189, 32_205, 0.007386, 1),
        COMPACTED: (402_488, 684, 512_451, 0.405908, 2),
    }


def test_titles_are_those_the_agent_made(memory: Memory) -> None:
    titles = Counter(session.title for session in memory.sessions())

    assert titles == {
        "Fix the failing calc test": 6,
        "Fix the failing calc test (fork #1)": 1,
        "Crash hunt": 1,
        "Count python files (@general subagent)": 1,
    }


def test_a_sub_agent_names_its_parent_and_the_call_that_spawned_it(memory: Memory) -> None:
    child = session_of(memory, COUNT)

    [call] = [event for event in memory.events(session_of(memory, DELEGATE)) if event.kind == "tool_call"]

    assert (child.session_class, child.parent_session_uid) == ("sub-agent", f"opencode:{DELEGATE}")
    assert (call.tool, call.call_id) == ("task", child.spawn_call_id)
    assert texts(memory, COUNT, "completion") == ["SUBRESULT: 3 Python files (boom.py, calc.py, test_calc.py)."]


def test_a_fork_has_only_what_was_said_in_it(memory: Memory) -> None:
    assert told(memory, FORK) == [("user_msg", None, None), ("thinking", None, None), ("completion", None, None)]
    copied = memory.events(session_of(memory, FORK), with_copies=True)[:-3]
    assert [event.summary for event in copied] == [e.summary for e in memory.events(session_of(memory, FIX))]


def test_a_compaction_is_no_turn_and_its_summary_no_answer(memory: Memory) -> None:
    assert texts(memory, COMPACTED, "user_msg") == [
        '"Please fill the context"',
        '"Please continue after the compaction"',
    ]
    compaction, summary, notice = texts(memory, COMPACTED, "lifecycle")
    assert compaction == "context compacted"
    assert summary.startswith("summary of the conversation so far: <summary>")
    assert notice.startswith("Continue if you have next steps")


def test_a_program_that_was_killed_leaves_a_call_without_a_result(memory: Memory) -> None:
    assert told(memory, KILLED) == [
        ("user_msg", None, None),
        ("assistant_msg", None, None),
        ("tool_call", None, "bash"),
    ]


def test_a_request_that_the_service_refused_is_an_error(memory: Memory) -> None:
    assert told(memory, REFUSED) == [("user_msg", None, None), ("error", "failed", None)]
    assert texts(memory, REFUSED, "error") == ["failed: messages.1: mock refuses this request"]


def test_an_output_that_was_cut_is_read_from_its_own_file(memory: Memory) -> None:
    session = session_of(memory, PRINTED)
    [printed] = [event for event in memory.events(session) if (event.kind, event.tool) == ("tool_result", "bash")]

    [content] = memory.payloads(session, [printed])

    lines = content["output"].splitlines()
    assert (lines[0], lines[308]) == (f"0 {'x' * 60}", f"308 {'x' * 60}")
    assert lines[-1] == "[cut]"  # whoever collected the file cut it there; the row itself has a third of that
