"""What is chosen to be forgotten, what is shown, and what is asked."""

import json
import os
import re
import stat
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner, Result

from recollect.agentkit.protocol import SessionInfo
from recollect.api import Memory, open_memory
from recollect.cli import main
from recollect.model.clock import rfc3339
from recollect.model.errors import Busy, NeedsAnswer, NotFound, UsageError
from recollect.store import sweep_lock
from tests.builders import Home, at_ms, event, sweep
from tests.faults.rig import command
from tests.forget.traces import left_in, native_ids
from tests.test_api import SCHEMAS, breaches

DAY_S = 86_400
OLD = {"ts_ms": at_ms(-40 * DAY_S)}


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Path:
    """Sessions of two repositories, one long ago, one with a sub-agent; RECOLLECT_HOME names it."""
    shop, docs = "git@github.com:acme/shop-api.git", "git@github.com:acme/docs.git"
    home.write("new", SessionInfo("new-shop", cwd="/w/shop", git_remote=shop), event("new-shop", 1, text="Pay"))
    home.write("old", SessionInfo("old-shop", cwd="/w/shop", git_remote=shop), event("old-shop", 1, text="Pray", **OLD))
    home.write("docs", SessionInfo("old-docs", cwd="/w/docs", git_remote=docs), event("old-docs", 1, **OLD))
    home.write("sub", SessionInfo("sub-shop", parent_native_id="new-shop"), event("sub-shop", 2, text='Say "ÜBER"\n'))
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"


@pytest.fixture
def memory(store: Path, home: Home) -> Memory:
    return open_memory(store, [home.flag])


def chosen(memory: Memory, *names: str, **conditions: object) -> set[str]:
    planned = memory.plan_forgetting(*names, **conditions)  # type: ignore[arg-type]
    return {session.native_session_id for session in planned.sessions}


def test_conditions_choose_sessions_that_meet_all_of_them(memory: Memory) -> None:
    with memory:
        assert chosen(memory, repo="shop-api") == {"new-shop", "old-shop", "sub-shop"}
        assert chosen(memory, before=rfc3339(at_ms(-DAY_S))) == {"old-shop", "old-docs"}
        assert chosen(memory, repo="acme/shop-api", before=rfc3339(at_ms(-DAY_S))) == {"old-shop"}
        assert chosen(memory, repo="nowhere") == set()


@pytest.mark.parametrize("condition", [{"match": ""}, {"match": " \n"}, {"repo": ""}])
def test_an_empty_text_does_not_choose_everything(memory: Memory, condition: dict[str, str]) -> None:
    with memory, pytest.raises(UsageError, match="Empty"):
        chosen(memory, **condition)


def test_a_text_that_was_replaced_since_is_found_in_what_is_stored(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, text="the old walrus", native_id="todo", is_provisional=True))
    with sweep(tmp_path / "replaced", home) as memory:
        home.write("log", event("s", 1, text="something else", native_id="todo"))
        memory.sweep()
        assert memory.search("walrus") == []

        assert chosen(memory, match="old WALRUS") == {"s"}


def test_a_fork_that_was_never_gone_on_with_goes_with_its_base(memory: Memory, store: Path, home: Home) -> None:
    fork = SessionInfo("empty-fork", title="Pay the walrus", title_rank=2, base_native_id="new-shop", cwd="/w/shop")
    home.write("fork", fork)
    with memory:
        memory.sweep()
        memory.forget(memory.plan_forgetting("new-shop"))

    assert left_in(store, ["Pay the walrus"]) == set()


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("pray", {"old-shop"}),
        ('say "über"\n', {"sub-shop"}),
        ("ay", {"new-shop", "old-shop", "sub-shop"}),
        ("no such words", set()),
    ],
)
def test_a_text_is_found_in_what_sessions_hold_whatever_its_case(memory: Memory, text: str, found: set[str]) -> None:
    with memory:
        assert chosen(memory, match=text) == found


def test_a_text_deep_in_a_long_payload_is_found(tmp_path: Path, home: Home, store: Path) -> None:
    home.write("long", event("long", 1, text="x" * 700_000 + " needle"), event("long", 2))
    with sweep(store, home) as memory:
        assert chosen(memory, match="NEEDLE") == {"long"}


def test_a_text_that_is_only_in_a_title_is_found(home: Home, store: Path) -> None:
    home.append("docs", SessionInfo("old-docs", title="A telling name", title_rank=3))
    with sweep(store, home) as memory:
        assert chosen(memory, match="telling NAME") == {"old-docs"}


def test_the_search_says_how_far_it_is(memory: Memory) -> None:
    told: list[tuple[str, int, int]] = []
    with memory:
        memory.plan_forgetting(match="pray", progress=lambda *step: told.append(step))

    assert told[-1] == ("searching", 4, 4)


@pytest.mark.parametrize("call", [{}, {"names": ("new-shop",), "repo": "shop-api"}])
def test_sessions_or_conditions_but_not_both_nor_none(memory: Memory, call: dict[str, object]) -> None:
    names = call.pop("names", ())
    with memory, pytest.raises(UsageError):
        memory.plan_forgetting(*names, **call)  # type: ignore[misc, arg-type]


def test_a_name_that_is_nobodys_is_not_found(memory: Memory) -> None:
    with memory, pytest.raises(NotFound):
        memory.plan_forgetting("nobody-has-this")


def test_a_plan_says_how_much_goes_and_from_which_files(memory: Memory, home: Home) -> None:
    with memory:
        planned = memory.plan_forgetting("new-shop")

        assert (len(planned.sessions), planned.events) == (2, 2)
        assert planned.payload_bytes > 0
        assert planned.files == tuple(sorted(str(home.folder / name) for name in ("new.jsonl", "sub.jsonl")))
        assert planned.copies == ()


def test_backups_and_exports_are_named(store: Path, home: Home) -> None:
    path = home.folder.parent / "b.tar.zst"
    with open_memory(store, [home.flag]) as memory:
        memory.backup(path)

    done = call("new-shop", "--dry-run")

    assert re.search(rf"backup {path} \(20\d\d-\d\d-\d\d \d\d:\d\d\)", done.output), "in the user's time zone"


# The command


def call(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["forget", *arguments])


def content(folder: Path) -> dict[str, tuple[int, bytes]]:
    """Every file with its mode and bytes, but for the index that SQLite's readers share."""
    found = (path for path in sorted(folder.rglob("*")) if path.is_file() and not path.name.endswith("-shm"))
    return {str(path): (stat.S_IMODE(path.stat().st_mode), path.read_bytes()) for path in found if path.stat().st_size}


def test_a_dry_run_shows_what_would_go_and_changes_no_byte(store: Path) -> None:
    before = content(store)

    done = call("new-shop", "--dry-run")

    assert done.exit_code == 0
    assert "2 sessions, including 1 sub-agent" in done.output
    assert "Nothing was changed" in done.output
    assert content(store) == before


def test_yes_forgets_without_a_question(store: Path, home: Home) -> None:
    done = call("--repo", "shop-api", "--yes")

    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "Deleted 3 sessions for good")
    with open_memory(store, [home.flag]) as memory:
        assert native_ids(memory) == {"old-docs"}


def test_before_takes_the_times_that_other_commands_take(store: Path) -> None:
    assert "1 session:" in call("--before", "2026-10-20", "--match", "pray", "--dry-run").output
    assert call("--before", "soonish").exit_code == 2


def test_json_has_the_whole_plan_and_says_if_it_was_done(store: Path) -> None:
    planned = json.loads(call("new-shop", "--dry-run", "--json").output)
    done = json.loads(call("new-shop", "--yes", "--json").output)

    assert planned == done | {"is_done": False}
    assert breaches(SCHEMAS["forget"], done) == []
    assert done["is_done"] is True
    assert {session["native_session_id"] for session in done["sessions"]} == {"new-shop", "sub-shop"}


@pytest.mark.parametrize("arguments", [(), ("--json",)])
def test_nobody_to_ask_means_nothing_goes(store: Path, home: Home, arguments: tuple[str, ...]) -> None:
    done = call("new-shop", *arguments)

    assert done.exit_code == NeedsAnswer.exit_code
    assert "--yes" in done.output
    with open_memory(store, [home.flag]) as memory:
        assert "new-shop" in native_ids(memory)


def test_forks_need_an_answer_even_with_yes(store: Path, home: Home) -> None:
    for name in ("one", "two"):
        home.write(name, event(name, 1, text="shared", native_id="shared"))
    sweep(store, home).close()

    assert call("scripted:one", "--yes").exit_code == NeedsAnswer.exit_code
    assert call("scripted:one", "--yes", "--with-forks", "--keep-forks").exit_code == 2
    done = call("scripted:one", "--yes", "--keep-forks")

    assert done.exit_code == 0
    assert "These share text" in done.output
    with open_memory(store, [home.flag]) as memory:
        assert {"one", "two"} & native_ids(memory) == {"two"}


def test_nothing_to_forget_is_not_found(store: Path) -> None:
    assert call("--match", "no such words", "--yes").exit_code == NotFound.exit_code


@pytest.mark.parametrize(("answers", "is_gone"), [("y\n", True), ("n\n", False), ("", False)])
def test_a_person_is_asked(
    store: Path, home: Home, monkeypatch: pytest.MonkeyPatch, answers: str, is_gone: bool
) -> None:
    shown = _in_terminal(["forget", "new-shop"], answers, store)

    assert "Delete 2 sessions for good?" in shown
    with open_memory(store, [home.flag]) as memory:
        assert ("new-shop" not in native_ids(memory)) is is_gone


def _in_terminal(arguments: list[str], typed: str, store: Path) -> str:
    """Run a command in a terminal of its own and type something, or hang up."""
    import pty
    import subprocess

    ours, theirs = pty.openpty()
    environment = os.environ | {"RECOLLECT_HOME": str(store)}
    process = subprocess.Popen(command(*arguments), stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    while b"?" not in shown:
        shown += os.read(ours, 4096)
    os.write(ours, typed.encode() or b"\x04")
    try:
        while piece := os.read(ours, 4096):
            shown += piece
    except OSError:
        pass  # the other end is closed
    process.wait(30)
    os.close(ours)
    return shown.decode()


def test_a_running_sweep_is_not_disturbed(store: Path, memory: Memory) -> None:
    with memory, sweep_lock(store), pytest.raises(Busy, match="sweep is running"):
        memory.forget(memory.plan_forgetting("new-shop"))

    with sweep_lock(store):
        done = call("new-shop", "--yes")
    assert done.exit_code == Busy.exit_code


@pytest.mark.parametrize("wanted", [("--match", "no such words"), ("nobody-has-this",)])
def test_what_a_running_sweep_may_be_about_to_store_is_not_said_to_be_nowhere(
    store: Path, wanted: tuple[str, ...]
) -> None:
    with sweep_lock(store):
        assert call(*wanted, "--yes").exit_code == Busy.exit_code
        assert call(*wanted, "--dry-run").exit_code == NotFound.exit_code  # what there is now

    assert call(*wanted, "--yes").exit_code == NotFound.exit_code


@pytest.mark.parametrize("also_new", [False, True])
def test_what_was_stored_since_the_plan_does_not_escape(
    store: Path, home: Home, memory: Memory, also_new: bool
) -> None:
    with memory:
        planned = memory.plan_forgetting(match="pray")
        home.write("late", event("late", 1, text="Pray again"))
        memory.sweep()

        if also_new:
            done = memory.forget(planned, also_new=True)
            assert {one.native_session_id for one in done.sessions} == {"old-shop", "late"}
        else:
            with pytest.raises(Busy, match="1 more matches"):
                memory.forget(planned)
            assert {"old-shop", "late"} <= native_ids(memory)


def test_a_reader_that_holds_old_pages_delays_the_end_only(
    store: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = apsw.Connection(str(store / "cache.db"))
    reader.execute("BEGIN").fetchall()
    assert reader.execute("SELECT count(*) FROM events").get
    with open_memory(store, [home.flag]) as memory:
        memory._store._cache.connection.set_busy_timeout(50)
        with pytest.raises(Busy, match="is reading the store"):
            memory.forget(memory.plan_forgetting(match="pray"))
        assert "old-shop" not in native_ids(memory)
        reader.close()
        memory.sweep()

    assert left_in(store, ["xxxxPray"]) == set()


def test_too_little_room_is_said_and_the_next_sweep_finishes(
    store: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(store, [home.flag]) as memory:
        with monkeypatch.context() as full:
            full.setattr("recollect.store.sqlite.snapshot._ROOM", 1e12)
            with pytest.raises(Exception, match="Not enough space"):
                memory.forget(memory.plan_forgetting(match="pray"))
            memory.sweep()  # goes on without it
            assert "old-shop" not in native_ids(memory)
        memory.sweep()

    assert left_in(store, ["xxxxPray"]) == set()
