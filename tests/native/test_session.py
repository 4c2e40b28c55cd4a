"""Writing sessions of Claude Code: the chain, messages both ways, forks, compaction, sub-agents, housekeeping."""

import asyncio
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from recollect.agents.claude.native import InThreads, NativeHome, NativeSession, decode_path, encode_path
from recollect.model.errors import NotFound, RecollectError, UsageError

_CALL = {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}
_OTHER_CALL = {"type": "tool_use", "id": "t2", "name": "Bash", "input": {"command": "pwd"}}
_RESULTS = [{"type": "tool_result", "tool_use_id": name, "content": name} for name in ("t1", "t2")]
CONVERSATION = [
    {"role": "user", "content": "Where are we?"},
    {"role": "assistant", "content": [{"type": "text", "text": "I look."}, _CALL, _OTHER_CALL], "id": "m1"},
    {"role": "user", "content": _RESULTS},
    {"role": "assistant", "content": "In the shop.", "id": "m2", "usage": {"input_tokens": 3, "output_tokens": 4}},
]


@pytest.fixture
def home(tmp_path: Path) -> NativeHome:
    return NativeHome(tmp_path / "claude")


@pytest.fixture
def session(home: NativeHome, tmp_path: Path) -> NativeSession:
    made = home.create(tmp_path)
    for message in CONVERSATION:
        made.append_message(message, cwd=str(tmp_path), version="2.1.325")
    return made


def test_messages_come_back_as_they_were_written(session: NativeSession) -> None:
    read = session.messages()

    assert [message["role"] for message in read] == ["user", "assistant", "user", "assistant"]
    assert read[0]["content"] == [{"type": "text", "text": "Where are we?"}]
    assert read[1]["content"] == CONVERSATION[1]["content"]
    assert read[2]["content"] == _RESULTS
    assert read[3]["content"] == [{"type": "text", "text": "In the shop."}]
    assert session.message_count() == 4


def test_every_entry_follows_the_one_before_and_keeps_what_it_was_given(session: NativeSession) -> None:
    session.append({"type": "system", "subtype": "note", "unheard of": {"a": [1, "\ud800"]}})

    entries = session.entries()

    assert [entry["parentUuid"] for entry in entries] == [None, *(entry["uuid"] for entry in entries[:-1])]
    assert {entry["sessionId"] for entry in entries} == {session.session_id}
    assert entries[-1]["unheard of"] == {"a": [1, "\ud800"]}
    assert entries[-1]["cwd"] == entries[0]["cwd"]


def test_a_torn_last_line_costs_that_line_only(session: NativeSession) -> None:
    with session.path.open("ab") as file:
        file.write(b'{"type":"user","uuid":"to')

    session.append_message({"role": "user", "content": "Once more"})

    assert len(session.entries()) == 8
    assert session.messages()[-1]["content"][-1]["text"] == "Once more"


def test_entries_are_filtered_by_type_time_and_tools(session: NativeSession) -> None:
    session.append({"type": "user", "message": {"role": "user", "content": "old"}, "timestamp": "2020-01-01T00:00:00Z"})

    assert len(session.entries("assistant")) == 4
    assert len(session.entries(before=datetime(2021, 1, 1, tzinfo=UTC))) == 1
    assert len(session.entries(since=datetime(2021, 1, 1, tzinfo=UTC))) == 7
    assert len(session.entries(with_tools=False)) == 4
    assert len(session.entries(before="2021-01-01")) == 1
    assert len(session.entries("user", since="2021")) == 3


def test_a_limit_gives_the_last_entries_and_messages(session: NativeSession) -> None:
    assert session.entries(limit=2) == session.entries()[-2:]
    assert session.messages(limit=1) == session.messages()[-1:]
    assert (session.messages(limit=0), len(session.messages(limit=99))) == ([], 4)


def test_a_system_message_stays_one(session: NativeSession) -> None:
    session.append_message({"role": "system", "content": "You are the shop's clerk"})
    session.append_message({"role": "user", "content": "Hello"})

    written = session.entries("system")
    assert [entry["content"] for entry in written] == ["You are the shop's clerk"]
    assert session.statistics().user_messages == 2
    assert [message["role"] for message in session.messages()][-2:] == ["system", "user"]


def test_a_tilde_is_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))

    session = NativeHome("~/.claude").create("~/shop")

    assert session.path.parent == tmp_path / ".claude" / "projects" / encode_path(str(tmp_path / "shop"))


def test_statistics_count_an_answer_once(session: NativeSession) -> None:
    statistics = session.statistics()

    assert (statistics.user_messages, statistics.assistant_messages) == (1, 2)
    assert (statistics.tool_calls, statistics.tool_results) == (2, 2)
    assert (statistics.input_tokens, statistics.output_tokens) == (3, 4)


def test_a_fork_ends_where_it_was_asked_to_and_both_go_on_alone(session: NativeSession) -> None:
    first = session.entries()[0]["uuid"]

    fork = session.fork(first, title="Other way")
    fork.append_message({"role": "assistant", "content": "Elsewhere."})

    assert [message["role"] for message in fork.messages()] == ["user", "assistant"]
    assert fork.entries()[0]["forkedFrom"] == {"sessionId": session.session_id, "messageUuid": first}
    assert session.message_count() == 4
    with pytest.raises(NotFound, match="no such message"):
        session.fork("no such message")


def test_after_compaction_the_branch_is_the_summary_and_what_follows(session: NativeSession) -> None:
    last = session.entries()[-1]["uuid"]

    session.compact("We are in the shop.")
    session.append_message({"role": "user", "content": "Go on"})

    branch = session.live_branch()
    assert (branch[0]["subtype"], branch[0]["logicalParentUuid"]) == ("compact_boundary", last)
    assert branch[1]["isCompactSummary"] is True
    assert len(session.messages()) == 1
    assert len(session.entries()) == 10


@pytest.mark.parametrize("flat", [False, True])
def test_sub_agents_have_files_of_their_own_in_either_layout(session: NativeSession, flat: bool) -> None:
    session.sub_agent("a1b2", flat=flat).append_message({"role": "user", "content": "Count them"})

    (found,) = session.sub_agents()

    entry = found.entries()[0]
    assert (entry["isSidechain"], entry["agentId"], entry["sessionId"]) == (True, "a1b2", session.session_id)
    assert found.path.parent == (
        session.path.parent if flat else session.path.parent / session.session_id / "subagents"
    )
    assert [message["role"] for message in found.messages()] == ["user"]


TODO = {"content": "Do it", "status": "pending", "activeForm": "Doing it"}


def test_todos_are_written_as_each_version_reads_them(home: NativeHome, session: NativeSession) -> None:
    name = session.session_id

    home.write_todos(name, [{"subject": "Do it", "activeForm": "Doing it"}], as_tasks=False)
    assert home.todos(name) == [TODO]

    home.write_todos(name, [TODO | {"priority": "high"}, {"subject": "Then that", "blockedBy": ["1"], "owner": "me"}])

    task = {"id": "1", "subject": "Do it", "description": "Do it", "status": "pending", "blocks": [], "blockedBy": []}
    assert home.todos(name) == [
        task | {"activeForm": "Doing it", "priority": "high"},
        task | {"id": "2", "subject": "Then that", "description": "Then that", "blockedBy": ["1"], "owner": "me"},
    ]


def test_a_shorter_list_of_todos_leaves_nothing_of_the_longer_one(home: NativeHome, session: NativeSession) -> None:
    name = session.session_id
    home.write_todos(name, [{"subject": "First"}, {"subject": "Second"}, {"subject": "Third"}])

    home.write_todos(name, [{"subject": "Only", "status": "completed"}])

    folder = home.path / "tasks" / name
    assert [todo["subject"] for todo in home.todos(name)] == ["Only"]
    assert sorted(path.name for path in folder.iterdir()) == [".highwatermark", "1.json"]
    assert (folder / ".highwatermark").read_text() == "3"  # the next task gets a new number
    with pytest.raises(UsageError, match="same id"):
        home.write_todos(name, [{"id": "2"}, {"subject": "Second"}])


def test_a_sub_agent_has_todos_of_its_own(home: NativeHome, session: NativeSession) -> None:
    home.write_todos(session.session_id, [{"subject": "Delegate"}])

    home.write_todos(session.session_id, [{"content": "Count", "status": "in_progress"}], agent_id="a753668")

    (todo,) = home.todos(session.session_id, agent_id="a753668")
    assert (todo["content"], todo["status"]) == ("Count", "in_progress")
    assert [todo["subject"] for todo in home.todos(session.session_id)] == ["Delegate"]


def test_empty_files_and_orphans_are_listed_and_removed_and_nothing_outside(
    home: NativeHome, session: NativeSession, tmp_path: Path
) -> None:
    empty = home.create(tmp_path)
    empty.append({"type": "mode", "mode": "default"})
    home.write_todos(empty.session_id, [], as_tasks=False)
    gone = "00000000-0000-4000-8000-000000000000"
    home.write_todos(gone, [{"subject": "Lost"}])

    assert home.empty_sessions() == [empty.path]
    assert [path.name for path in home.orphaned_todos()] == [gone]

    home.remove([*home.empty_sessions(), *home.orphaned_todos()])

    assert [path.name.partition("-agent-")[0] for path in home.orphaned_todos()] == [empty.session_id]
    assert session.path.exists()
    for outside in (tmp_path / "x", home.path / ".." / "x", Path("/etc/passwd")):
        with pytest.raises(UsageError, match="Not below"):
            home.remove([outside])


def test_a_reset_takes_flat_sub_agents_and_their_todos_with_it(
    home: NativeHome, session: NativeSession, tmp_path: Path
) -> None:
    for flat in (True, False):
        session.sub_agent("a4fb8ae", flat=flat).append_message({"role": "user", "content": "Count them"})
    home.write_todos(session.session_id, [TODO], as_tasks=False)
    home.write_todos(session.session_id, [TODO], agent_id="a4fb8ae")
    home.write_todos(session.session_id, [TODO])
    (home.path / "session-env" / session.session_id).mkdir(parents=True)
    elsewhere = home.create(tmp_path / "elsewhere")
    elsewhere.append_message({"role": "user", "content": "Stay"})

    home.reset(tmp_path, lambda paths: True)

    assert [path for path in home.path.rglob("*") if path.is_file()] == [elsewhere.path]
    assert not (home.path / "session-env" / session.session_id).exists()


def test_a_reset_asks_and_a_dry_run_only_lists(home: NativeHome, session: NativeSession, tmp_path: Path) -> None:
    home.write_todos(session.session_id, [{"subject": "First"}])
    (session.path.parent / "memory").mkdir()
    asked: list[list[Path]] = []

    planned = home.reset(tmp_path, lambda paths: False, dry_run=True)
    refused = home.reset(tmp_path, lambda paths: asked.append(paths) is not None)
    done = home.reset(tmp_path, lambda paths: True)

    assert planned == [session.path, home.path / "tasks" / session.session_id] == done == asked[0]
    assert refused == []
    assert [path.name for path in session.path.parent.iterdir()] == ["memory"]


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/home/devbox/proj/my_proj.v2", "-home-devbox-proj-my-proj-v2"),
        ("/x/emoji🧠dir", "-x-emoji--dir"),
        ("/", "-"),
        ("/" + "a" * 199, "-" + "a" * 199),
    ],
)
def test_paths_become_names(path: str, name: str) -> None:
    assert encode_path(path) == name


def test_a_name_leads_back_to_every_folder_that_has_it(tmp_path: Path) -> None:
    base = tmp_path.resolve()
    for folder in ("a-b", "a_b", "a/b", "ab", "other"):
        (base / folder).mkdir(parents=True)

    found = set(decode_path(encode_path(str(base / "a-b")), base))

    assert found == {base / "a-b", base / "a_b", base / "a" / "b"}


def test_a_long_name_leads_back_too(tmp_path: Path) -> None:
    deep = tmp_path.resolve().joinpath(*["abcdefghij"] * 20)
    deep.mkdir(parents=True)

    assert list(decode_path(encode_path(str(deep)), tmp_path.resolve())) == [deep]


def test_names_from_outside_never_leave_the_home(home: NativeHome, session: NativeSession) -> None:
    for name in ("../x", "", "a/b"):
        with pytest.raises(UsageError, match="Not a UUID"):
            home.write_todos(name, [])
        with pytest.raises(NotFound, match="No session with this id"):
            home.session(name)
    with pytest.raises(UsageError, match="Not the id of a sub-agent"):
        home.write_todos(session.session_id, [], agent_id="../x")
    with pytest.raises(UsageError, match="Not the id of a sub-agent"):
        session.sub_agent("../x")


def test_what_there_is_not_and_what_is_no_message_are_errors_with_a_hint(
    home: NativeHome, session: NativeSession
) -> None:
    mistakes = [
        lambda: session.append_message({"role": "user"}),
        lambda: session.append_message({"role": "robot", "content": "x"}),
        lambda: home.session("nope"),
        lambda: session.fork("nope"),
        lambda: session.get("nope"),
        lambda: session.ancestry("nope"),
        lambda: home.create("/x", "nope"),
        lambda: session.entries(since="the day before"),
    ]

    for mistake in mistakes:
        with pytest.raises(RecollectError) as error:
            mistake()
        assert error.value.hint
    assert len(session.entries()) == 7


def test_the_twin_does_the_same_without_waiting(home: NativeHome, tmp_path: Path) -> None:
    async def converse() -> list[str]:
        twin = InThreads(home)
        session = await twin.create(tmp_path)
        await session.append_message({"role": "user", "content": "Hello"})
        fork = await session.fork()
        return [json.dumps(message["content"]) for message in await fork.messages()]

    assert asyncio.run(converse()) == ['[{"type": "text", "text": "Hello"}]']
