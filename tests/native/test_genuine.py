"""Genuine files of Claude Code through the native library: nothing is lost, and the tree is what people read in it."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.agents.claude.native import Entry, NativeHome, NativeSession, encode_path, iter_entries
from tests.conftest import SHARED, needs_shared

pytestmark = needs_shared

HOMES = sorted((SHARED / "genuine").glob("claude-*/.claude"))
FILES = [path for home in HOMES for path in sorted(home.rglob("*.jsonl")) if "projects" in path.parts]
NEWEST = SHARED / "genuine" / "claude-2.1.325" / ".claude"
WITH_PARALLEL_CALLS = "33333333-4444-4555-8666-777777777777"
COMPACTED = "11111111-2222-4333-8444-555555555555"


def test_there_are_files_of_every_generation() -> None:
    assert len(HOMES) == 3
    assert len(FILES) > 60


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem[:20])
def test_what_is_read_and_written_again_has_the_same_entries(path: Path, tmp_path: Path) -> None:
    copy = NativeSession(tmp_path / path.name)

    copy.rewrite(list(iter_entries(path)))

    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    assert copy.entries() == list(iter_entries(path))
    assert len(copy.entries()) == len(lines)


def _projects() -> Iterator[tuple[str, str]]:
    for home in HOMES:
        for project in NativeHome(home).projects:
            if folder := NativeHome(home).working_folder(project):
                yield folder, project.name


def test_the_program_named_its_folders_as_the_library_does() -> None:
    projects = list(_projects())

    # The hash of a long path is left out: homes were renamed after the program had hashed them.
    named = [(encode_path(folder)[:200], name[:200]) for folder, name in projects]
    assert [(ours, theirs) for ours, theirs in named if ours != theirs] == []
    assert any(len(name) > 200 for _, name in projects)
    assert any("🧠" in folder for folder, _ in projects)


def _short(entries: list[Entry]) -> list[str]:
    return [entry["uuid"][:8] for entry in entries if entry["type"] in ("user", "assistant")]


def test_the_live_branch_has_calls_that_were_made_at_once_and_all_their_results() -> None:
    session = NativeHome(NEWEST).session(WITH_PARALLEL_CALLS)

    branch = _short(session.live_branch())

    # Read by hand: two calls (950a6f0c, b9f9e590), the second's result first, the next entry follows the first's.
    assert branch[:8] == [
        *("f32271b0", "8112f196", "21c14a0b", "950a6f0c"),
        *("b9f9e590", "fdf9dc4a", "cf43806e", "a1be083e"),
    ]
    # Two more calls (6a905565, ea6ac6c5); the next entry follows the second's result.
    assert branch[13:18] == ["34003839", "6a905565", "ea6ac6c5", "dbde36d3", "b7042cf8"]
    assert len(branch) == 27


def test_the_ancestry_of_an_entry_is_the_plain_walk_to_the_root() -> None:
    session = NativeHome(NEWEST).session(WITH_PARALLEL_CALLS)
    uuids = {entry["uuid"][:8]: entry["uuid"] for entry in session.live_branch()}

    ancestry = _short(session.ancestry(uuids["a1be083e"]))

    assert ancestry == ["f32271b0", "8112f196", "21c14a0b", "950a6f0c", "cf43806e", "a1be083e"]
    assert session.get(uuids["a1be083e"])["message"]["content"][0]["text"] == "Let me write down a short plan."


def test_the_live_branch_of_a_compacted_session_begins_with_its_summary() -> None:
    session = NativeHome(NEWEST).session(COMPACTED)

    branch = session.live_branch()

    assert branch[0]["subtype"] == "compact_boundary"
    assert _short(branch) == [
        *("a7369deb", "5d3bd9f5", "d270c9c7", "5b258a8d"),  # the summary, and the command that asked for it
        *("e0b0628e", "69f28b8b", "1a9646f0", "20f7e0f4"),  # a prompt, a call, its result, the answer
    ]
    assert session.statistics().compactions == 1


def test_tokens_count_once_for_each_answer() -> None:
    statistics = NativeHome(NEWEST).session(WITH_PARALLEL_CALLS).statistics()

    # 8 answers in 18 entries; summed by hand from the last entry of each message id.
    assert (statistics.assistant_messages, statistics.tool_calls, statistics.tool_results) == (8, 9, 9)
    assert (statistics.input_tokens, statistics.output_tokens) == (5035, 668)


def test_tasks_and_copies_of_files_are_found() -> None:
    home = NativeHome(NEWEST)

    tasks = home.todos("22222222-3333-4444-8555-666666666666")
    copies = home.file_history("715c8542-2a9c-42c0-917e-3b5ed4cbb48f")

    assert [task["id"] for task in tasks] == ["1", "2", "3"]
    assert tasks[2]["subject"] == "Run the whole suite"
    assert [(copy.version, Path(copy.path or "").name) for copy in copies] == [(1, "calc.py"), (2, "calc.py")]
