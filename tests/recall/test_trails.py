"""What happened to a file, and what happened when."""

import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.agentkit.calls import FileChange
from recollect.agentkit.protocol import EventRecord, SessionInfo
from recollect.agents import BUILT_IN
from recollect.api import Filters, Memory
from recollect.cli import main
from recollect.model.errors import NotFound
from recollect.model.schema import ASSISTANT_MSG, EDIT, ERROR, TOOL_CALL, TOOL_RESULT
from recollect.recall.diffs import absolute, changes, is_same, renames
from recollect.store import Payloads
from tests.builders import AGENT, Home, at_ms, event, sweep
from tests.retention.rig import evict_all, opened

CWD = "/home/x/shop"


def call(session: str, number: int, kind: str, told: dict[str, Any], **fields: Any) -> EventRecord:
    record = event(session, number, kind, "a call", role="assistant", call_id=f"{session}-{number}", **fields)
    record.payload = told
    return record


def _edit_input(path: str, style: int, number: int) -> dict[str, Any]:
    """The same edit as different agents tell it."""
    inputs: list[Any] = [
        {"file_path": path, "old_string": "a", "new_string": f"b{number}"},
        {"changes": {path: {"type": "update", "unified_diff": f"+b{number}", "move_path": None}}},
        f"*** Begin Patch\n*** Update File: {path}\n@@\n-a\n+b{number}\n*** End Patch",
        {"input": f"*** Begin Patch\n*** Add File: {path}\n+b{number}\n*** End Patch"},
        {"target_file": path, "content": f"b{number}"},
    ]
    return {"input": inputs[style % len(inputs)]}


def _told_path(path: str, number: int) -> str:
    return f"{CWD}/{path}" if number % 2 else path


def test_blame_names_every_edit_of_a_file_and_of_what_it_was_called_before(tmp_path: Path, home: Home) -> None:
    """Thirty edits in three sessions, two renames on the way, and others that only look alike."""
    expected: list[tuple[str, str]] = []
    clock = 0
    for session, path in (("one", "src/old_name.py"), ("two", "src/middle.py"), ("three", "lib/final.py")):
        records: list[Any] = [SessionInfo(session, cwd=CWD)]
        for number in range(1, 11):
            clock += 10
            ask = event(session, clock, text=f"request {session} {number}", ts_ms=at_ms(clock))
            edit = call(session, clock + 1, EDIT, _edit_input(_told_path(path, number), number, clock),
                        ts_ms=at_ms(clock + 1))  # fmt: skip
            decoy = call(session, clock + 2, EDIT, _edit_input(f"other/{path}x", number, clock), ts_ms=at_ms(clock + 2))
            done = event(session, clock + 3, TOOL_RESULT, "ok", call_id=edit.call_id, role="tool")
            records += [ask, edit, decoy, done]
            expected.append((session, f"request {session} {number}"))
        clock += 10
        if session == "one":
            told = {"input": {"command": "cd . && git mv src/old_name.py src/middle.py && ls"}}
            records.append(call(session, clock, TOOL_CALL, told, ts_ms=at_ms(clock)))
        if session == "two":
            patch = "*** Begin Patch\n*** Update File: src/middle.py\n*** Move to: lib/final.py\n*** End Patch"
            records.append(call(session, clock, EDIT, {"input": patch}, ts_ms=at_ms(clock)))
            expected.append((session, "request two 10"))
        home.write(session, *records)
    later = call("late", clock + 50, EDIT, _edit_input("src/old_name.py", 0, 1), ts_ms=at_ms(clock + 50))
    home.write("late", SessionInfo("late", cwd=CWD), later)

    with sweep(tmp_path / "store", home) as memory:
        found = memory.blame("lib/final.py")
        assert [memory.blame("lib/final.py", limit=limit) for limit in (1, 12, 30)] == [
            found[:limit] for limit in (1, 12, 30)
        ]

    told = [(edit.session_uid.partition(":")[2], edit.request) for edit in found]
    assert told == list(reversed(expected))
    assert [edit.renamed_from for edit in found if edit.renamed_from] == [f"{CWD}/src/middle.py"]


def test_an_edit_that_failed_wrote_nothing(tmp_path: Path, home: Home) -> None:
    good = call("s", 1, EDIT, _edit_input("a.py", 0, 1))
    bad = call("s", 3, EDIT, _edit_input("a.py", 0, 2))
    result = event("s", 4, ERROR, "not found", call_id=bad.call_id, role="tool", is_error=True)
    home.write("s", SessionInfo("s", cwd=CWD), good, bad, result)

    with sweep(tmp_path / "store", home) as memory:
        assert [edit.seq for edit in memory.blame("a.py")] == [1]


def test_files_of_the_same_name_elsewhere_are_not_meant(tmp_path: Path, home: Home) -> None:
    home.write(
        "s",
        SessionInfo("s", cwd=CWD),
        call("s", 1, EDIT, _edit_input("src/a.py", 0, 1)),
        call("s", 2, EDIT, _edit_input("/elsewhere/src/a.py", 0, 2)),
        call("s", 3, EDIT, _edit_input("src/aa.py", 0, 3)),
    )

    with sweep(tmp_path / "store", home) as memory:
        assert [edit.seq for edit in memory.blame(f"{CWD}/src/a.py")] == [1]
        assert [edit.seq for edit in memory.blame("src/a.py")] == [2, 1]


def test_files_counts_how_sessions_met_a_path(tmp_path: Path, home: Home) -> None:
    home.write("talk", event("talk", 1, ASSISTANT_MSG, "see src/a.py", ts_ms=at_ms(5)))
    home.write(
        "work",
        call("work", 1, TOOL_CALL, {"input": {"path": "src/a.py"}}, ts_ms=at_ms(6)),
        call("work", 2, EDIT, _edit_input("src/a.py", 0, 1), ts_ms=at_ms(7)),
    )

    with sweep(tmp_path / "store", home) as memory:
        visits = memory.files("src/a.py")

    assert [(visit.session_uid, visit.edits, visit.calls, visit.mentions) for visit in visits] == [
        ("scripted:work", 1, 1, 0),
        ("scripted:talk", 0, 0, 1),
    ]


def _moment(second: int) -> datetime:
    return datetime.fromtimestamp(at_ms(second) / 1000, UTC)


def test_only_the_sessions_that_are_listed_are_read(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(9):
        edit = call(f"s{number}", 1, EDIT, _edit_input("src/a.py", 0, number), ts_ms=at_ms(number))
        home.write(f"s{number}", SessionInfo(f"s{number}", cwd=CWD), edit)
    read: list[str] = []
    unpack = Payloads.iter

    with sweep(tmp_path / "store", home) as memory:
        monkeypatch.setattr(
            Payloads, "iter", lambda self, *place: (read.append(place[0].native_id), unpack(self, *place))[1]
        )
        visits = memory.files("src/a.py", limit=2)
        edits = memory.blame("src/a.py", limit=2)

    newest = [f"{AGENT}:s8", f"{AGENT}:s7"]
    assert [visit.session_uid for visit in visits] == [edit.session_uid for edit in edits] == newest
    assert set(read) == {"s8", "s7"}


def test_files_and_blame_take_filters(tmp_path: Path, home: Home) -> None:
    for number, repo in enumerate(("shop", "bank"), start=1):
        edits = [call(repo, n, EDIT, _edit_input("src/a.py", 0, n), ts_ms=at_ms(number * 10 + n)) for n in (1, 2, 3)]
        home.write(repo, SessionInfo(repo, cwd=f"/home/x/{repo}", git_root=f"/home/x/{repo}"), *edits)

    with sweep(tmp_path / "store", home) as memory:
        assert [visit.repo for visit in memory.files("a.py")] == ["/home/x/bank", "/home/x/shop"]
        assert [visit.repo for visit in memory.files("a.py", Filters(repo="SHOP"))] == ["/home/x/shop"]
        assert [visit.repo for visit in memory.files("a.py", Filters(repo="op"))] == ["/home/x/shop"]
        assert [edit.seq for edit in memory.blame("a.py", Filters(repo="shop"))] == [3, 2, 1]
        assert [edit.session_uid for edit in memory.blame("a.py")[:4]] == ["scripted:bank"] * 3 + ["scripted:shop"]


@pytest.mark.parametrize("columns", [80, 200])
@pytest.mark.parametrize(
    "command",
    [("blame", "--all", "a.py"), ("sessions", "--timeline", "--since", "2000-01-01"), ("sessions", "--related", "one")],
)
def test_lists_of_sessions_keep_to_the_terminal(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], columns: int
) -> None:
    for name in ("one", "two"):
        words = "penguins walruses narwhals ostriches kingfishers in src/a.py, again and again and again"
        home.write(name, SessionInfo(name, cwd="/home/x/a-repository-of-a-very-long-name"), event(name, 1, text=words))
    with sweep(tmp_path / "store", home):
        pass
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))

    shown = CliRunner().invoke(main, command)

    assert shown.exit_code == 0
    assert "penguins" in shown.stdout
    assert max(map(len, shown.stdout.splitlines())) <= columns


def test_files_counts_what_was_done_to_that_file_and_no_other(tmp_path: Path, home: Home) -> None:
    refused = call("work", 4, EDIT, _edit_input("src/a.py", 0, 1))
    other = _edit_input("src/push_a.py", 0, 1)
    names_it = {"input": {"file_path": "src/b.py", "new_string": "import src/a.py"}}
    home.write(
        "work",
        SessionInfo("work", cwd=CWD),
        call("work", 1, EDIT, _edit_input("src/a.py", 2, 1)),
        call("work", 2, EDIT, other),
        call("work", 3, EDIT, names_it),
        refused,
        event("work", 5, ERROR, "no", call_id=refused.call_id, role="tool", is_error=True),
    )
    home.write("other", SessionInfo("other", cwd=CWD), event("other", 0), call("other", 1, EDIT, other))

    with sweep(tmp_path / "store", home) as memory:
        for path in ("a.py", "src/a.py", f"{CWD}/src/a.py", "shop/src/a.py", "./src/a.py"):
            (visit,) = memory.files(path)
            assert (visit.session_uid, visit.edits) == ("scripted:work", 1), path
            assert [hit.session_uid for hit in memory.search(f"file:{path}")] == ["scripted:work"], path
        (visit,) = memory.files("src/a.py")
        assert (visit.calls, visit.mentions) == (2, 0)
        assert memory.files("rc/a.py") == []
        assert [hit.session_uid for hit in memory.search("-file:a.py")] == ["scripted:other"]


@pytest.mark.parametrize(
    ("text", "is_there"),
    [
        ("see a.py.", True),
        ("x/a.py:12", True),
        ("x\\a.py", True),
        ("修改a.py文件", True),
        ("a.py-12- grep", True),
        ("'a.py'", True),
        ("ba.py", False),
        ("b_a.py", False),
        ("b-a.py", False),
        (".a.py", False),
        ("a.pyc", False),
        ("a.py.bak", False),
        ("a.py-old", False),
    ],
)
def test_a_name_is_not_a_part_of_a_longer_one(tmp_path: Path, home: Home, text: str, is_there: bool) -> None:
    home.write("s", event("s", 1, text=text))

    with sweep(tmp_path / "store", home) as memory:
        assert bool(memory.files("a.py")) == is_there


def test_files_of_evicted_sessions_are_told_by_their_digests(tmp_path: Path, home: Home) -> None:
    edits = [call("gone", number, EDIT, _edit_input("src/a.py", 0, number)) for number in (2, 3)]
    for edit in edits:
        edit.summary = "edited src/a.py"
    home.write("gone", SessionInfo("gone", cwd=CWD), event("gone", 1, text="mend src/a.py"), *edits)

    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        evict_all(memory)
        (visit,) = memory.files("shop/src/a.py")
        (mentioned,) = memory.files("src/a.py")
        assert memory.files("b.py") == []

    assert (visit.session_uid, visit.edits, visit.evicted) == ("scripted:gone", 2, True)
    assert mentioned.mentions > 0


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("mv a.py b.py", [("b.py", "a.py")]),
        ("git mv -f 'a b.py' c.py", [("c.py", "a b.py")]),
        ("mv src/a.py lib/", [("lib/a.py", "src/a.py")]),
        ("make && mv a b; mv c d", [("b", "a"), ("d", "c")]),
        ("cd sub && mv b.py c.py", [("sub/c.py", "sub/b.py")]),
        ("cd /x; cd y\nmv b.py ../c.py", [("/x/y/../c.py", "/x/y/b.py")]),
        ("cd - && mv a b", [("b", "a")]),
        ("mv a b c", []),
        ("mv 'a", []),
        ("echo remove it", []),
    ],
)
def test_renames_by_command(command: str, expected: list[tuple[str, str]]) -> None:
    assert renames({"input": {"command": command}}) == [FileChange(*pair) for pair in expected]
    assert renames({"input": {"command": ["bash", "-lc", command]}}) == [FileChange(*pair) for pair in expected]


@pytest.mark.parametrize(
    ("command", "path", "earlier"),
    [
        ("git mv src/old src/new", "src/new/deep/helper.py", "src/old/deep/helper.py"),
        ("git mv src/old src/new", f"{CWD}/src/new/helper.py", "src/old/helper.py"),
        ("mv old packages", "packages/old/helper.py", "old/helper.py"),
        ("mv a.py lib", "lib/a.py", "a.py"),
        ("cd sub && mv b.py c.py", "sub/c.py", "sub/b.py"),
        ("mv src/old src/new", "src/newer/helper.py", None),
        ("mv src/old src/new", "src/old/helper.py", None),
    ],
)
def test_blame_follows_moves_of_folders_and_into_folders(
    tmp_path: Path, home: Home, command: str, path: str, earlier: str | None
) -> None:
    home.write(
        "s",
        SessionInfo("s", cwd=CWD),
        call("s", 1, EDIT, _edit_input(earlier or "unrelated/helper.py", 0, 1)),
        call("s", 2, TOOL_CALL, {"input": {"command": command}}),
        call("s", 3, EDIT, _edit_input(path, 0, 2)),
    )

    with sweep(tmp_path / "store", home) as memory:
        assert [edit.seq for edit in memory.blame(path)] == ([3, 1] if earlier else [3])


def test_a_path_of_windows_is_found_with_either_slash(tmp_path: Path, home: Home) -> None:
    told = {"input": {"file_path": "C:\\Users\\me\\src\\winfile.py", "new_string": "x"}}
    home.write("s", SessionInfo("s", cwd="C:\\Users\\me"), call("s", 1, EDIT, told))

    with sweep(tmp_path / "store", home) as memory:
        for path in ("winfile.py", "src/winfile.py", "src\\winfile.py", "C:\\Users\\me\\src\\winfile.py"):
            assert [edit.seq for edit in memory.blame(path)] == [1], path
            assert [visit.edits for visit in memory.files(path)] == [1], path


def test_shapes_nobody_foresaw_change_nothing() -> None:
    for told in (None, 7, [], {}, {"changes": []}, {"path": 3}, {"changes": {"a.py": None}}, "no patch"):
        for agent in BUILT_IN:
            assert changes(agent, {"input": told}, {"native": told}) in ([], [FileChange("a.py")])
        assert renames({"input": told}) == []


def test_paths_are_made_whole() -> None:
    assert absolute("./src/../a.py", "/x/y") == "/x/y/a.py"
    assert absolute("file:///x/a.py", None) == "/x/a.py"
    assert is_same("/x/y/a.py", "y/a.py")
    assert not is_same("/x/yy/a.py", "y/a.py")


def test_the_timeline_is_in_the_order_sessions_began(tmp_path: Path, home: Home) -> None:
    for name, begin in (("second", 2000), ("first", 1000), ("third", 3000)):
        home.write(name, SessionInfo(name, cwd=f"/x/{name}"), event(name, 1, ts_ms=at_ms(begin)))

    with sweep(tmp_path / "store", home) as memory:
        order = [entry.session_uid for entry in memory.timeline()]
        some = [entry.session_uid for entry in memory.timeline(Filters(since=_moment(1500), before=_moment(2500)))]
        of_repo = [entry.session_uid for entry in memory.timeline(Filters(repo="third"))]

    assert order == ["scripted:first", "scripted:second", "scripted:third"]
    assert some == ["scripted:second"]
    assert of_repo == ["scripted:third"]


@pytest.fixture
def crowd(tmp_path: Path, home: Home) -> Memory:
    chance = random.Random(1)
    for number in range(20):
        words = " ".join(chance.choices([f"word{n}" for n in range(30)], k=8))
        subject = "the penguin migration" if number in (3, 11) else "nothing much"
        home.write(f"session-{number}", event(f"session-{number}", 1, text=f"{subject} {words}"))
    home.write("the-fork", SessionInfo("the-fork", base_native_id="session-3"), event("the-fork", 1, text="go on"))
    return sweep(tmp_path / "store", home)


def test_related_sessions_are_kin_first_then_about_the_same(crowd: Memory) -> None:
    found = crowd.related(crowd.session("session-3"), limit=5)

    assert found[0].session_uid == "scripted:the-fork"
    assert found[1].session_uid == "scripted:session-11"
    assert "scripted:session-3" not in {other.session_uid for other in found}
    crowd.close()


def test_a_related_sub_agent_is_named_by_its_root(tmp_path: Path, home: Home) -> None:
    long = "the penguin migration " + "and so on " * 500  # enough for a digest of its own
    for name in ("one", "two"):
        home.write(name, event(name, 1, text=f"ask somebody, {name}"))
        sub = f"sub-{name}"
        home.write(sub, SessionInfo(sub, parent_native_id=name), event(sub, 1, text=long))

    with sweep(tmp_path / "store", home) as memory:
        found = memory.related(memory.session("scripted:one/sub-one"))

    assert [other.session_uid for other in found] == ["scripted:one", "scripted:two"]
    assert [other.why.partition(" ")[0] for other in found] == ["spawned", "shares"]


def test_a_window_is_opened_by_number_or_name(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), event("root", 2), event("root", 3), event("root", 4))
    home.write("child", SessionInfo("child", parent_native_id="root"), event("child", 1), event("child", 2))

    with sweep(tmp_path / "store", home) as memory:
        root = memory.session("scripted:root")
        numbered = memory.window(root, "3", 1)
        (uid,) = [found.event_uid for found in memory.events(memory.session("scripted:root/child")) if found.seq == 2]
        named = memory.window(root, uid[-12:], 1)
        with pytest.raises(NotFound):
            memory.window(root, "99", 1)

    assert [item.event.seq for item in numbered] == [2, 3, 4]
    assert [(item.session.session_uid, item.event.seq) for item in named] == [
        ("scripted:root/child", 1),
        ("scripted:root/child", 2),
    ]


def test_outputs_that_have_the_words_of_a_path_count_unread_once_one_names_it(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = "x " * 300
    outputs = [event("s", number, TOOL_RESULT, f"{long} src/a.py") for number in range(2, 30)]
    home.write("s", event("s", 1, ASSISTANT_MSG, "see src/a.py"), *outputs)
    read: list[int] = []
    unpack = Payloads.iter

    with sweep(tmp_path / "store", home) as memory:
        monkeypatch.setattr(Payloads, "iter", lambda self, *place: (read.append(1), unpack(self, *place))[1])
        (visit,) = memory.files("src/a.py")

    assert (visit.mentions, read) == (29, [])
