"""Forgotten means no byte left, and nothing that comes back: a search over every file of the store is the judge."""

import shutil
from pathlib import Path
from typing import Any

import orjson
import pytest

from recollect.agentkit.protocol import BadLine, SessionInfo
from recollect.api import Memory, doctor, open_memory, restore
from recollect.store import Ledger
from tests.builders import Home, event, sweep
from tests.faults.rig import scratch
from tests.forget.traces import Planted, forget, left_in, native_ids, rare_words
from tests.logs import AGENT_LOGS, CLAUDE, CODEX, AgentLog, line, lines, session_id
from tests.retention.rig import evict_all


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(tmp_path_factory.mktemp("planted"), rare_words(1))


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory, planted: Planted) -> Path:
    """A store with all sessions."""
    store = tmp_path_factory.mktemp("swept") / "store"
    with open_memory(store, planted.roots) as memory:
        memory.sweep()
        assert native_ids(memory) == {*planted.forgotten, *planted.kept}
    return store


@pytest.fixture(scope="module")
def forgotten(tmp_path_factory: pytest.TempPathFactory, swept: Path, planted: Planted) -> Path:
    """The same after the sessions were forgotten."""
    store = shutil.copytree(swept, tmp_path_factory.mktemp("forgotten") / "store")
    with open_memory(store, planted.roots) as memory:
        memory.forget(memory.plan_forgetting(*planted.forgotten))
        assert native_ids(memory) == set(planted.kept)
    return store


@pytest.fixture
def store(tmp_path: Path, forgotten: Path) -> Path:
    return shutil.copytree(forgotten, tmp_path / "store")


def _sweep_again(store: Path, planted: Planted, *, verify: bool = False) -> None:
    with open_memory(store, planted.roots) as memory:
        report = memory.sweep(verify=verify)
        assert report.failures == []
        assert native_ids(memory) == set(planted.kept)


def test_no_file_of_the_store_holds_a_forgotten_word(swept: Path, forgotten: Path, planted: Planted) -> None:
    assert left_in(swept, planted.words) == set(planted.words)  # the search can find them

    assert left_in(forgotten, planted.words) == set()
    assert left_in(forgotten, ["xxxxstays"])  # and what is kept is still there
    assert [finding for finding in doctor(forgotten, planted.roots) if finding.level == "problem"] == []


@pytest.mark.parametrize("verify", [False, True])
def test_no_sweep_brings_them_back(store: Path, planted: Planted, verify: bool) -> None:
    _sweep_again(store, planted, verify=verify)

    assert left_in(store, planted.words) == set()


def test_unchanged_files_of_forgotten_sessions_are_not_opened_again(store: Path, planted: Planted) -> None:
    with open_memory(store, planted.roots) as memory:
        report = memory.sweep()

    assert (report.lines_read, report.sources_changed, report.sources_gone) == (0, 0, 0)


def test_a_cache_made_anew_does_not_have_them(store: Path, planted: Planted) -> None:
    _drop_database(store, "cache.db")
    shutil.rmtree(store / "packs")

    _sweep_again(store, planted)
    _sweep_again(store, planted)

    assert left_in(store, planted.words) == set()
    with open_memory(store, planted.roots) as memory:
        assert memory.sweep().lines_read == 0


def _drop_database(store: Path, name: str) -> None:
    for path in store.glob(f"{name}*"):
        path.unlink()


@pytest.mark.parametrize("lost", [("memory.db",), ("memory.db", "cache.db")])
def test_the_ledger_alone_keeps_them_out(store: Path, planted: Planted, lost: tuple[str, ...]) -> None:
    for name in lost:
        _drop_database(store, name)

    with open_memory(store, planted.roots) as memory:
        memory.sweep(verify=True)
        assert not native_ids(memory) & set(planted.forgotten)

    assert left_in(store, planted.words) == set()


def test_the_table_alone_keeps_them_out(store: Path, planted: Planted) -> None:
    (store / "ledger.jsonl").unlink()

    _sweep_again(store, planted, verify=True)

    assert left_in(store, planted.words) == set()


def test_an_older_store_beside_a_newer_ledger_is_cleaned_by_the_next_sweep(
    tmp_path: Path, swept: Path, forgotten: Path, planted: Planted
) -> None:
    older = shutil.copytree(swept, tmp_path / "older")
    shutil.copy(forgotten / "ledger.jsonl", older / "ledger.jsonl")

    _sweep_again(older, planted)

    assert left_in(older, planted.words) == set()


@pytest.mark.parametrize("how", ["move", "copy"])
def test_a_moved_or_copied_file_brings_nothing_back(tmp_path: Path, how: str) -> None:
    planted, store = Planted(tmp_path / "home", rare_words(1)), tmp_path / "store"
    with open_memory(store, planted.roots) as memory:
        memory.sweep()
        memory.forget(memory.plan_forgetting(*planted.forgotten))
    for folder in {path.parent for path in planted.home.rglob("*.jsonl")}:
        place = folder.with_name(f"{folder.name}-elsewhere")
        if how == "move":
            folder.rename(place)
        else:
            shutil.copytree(folder, place)

    _sweep_again(store, planted)

    assert left_in(store, planted.words) == set()


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
def test_a_forgotten_session_that_grows_stays_forgotten(tmp_path: Path, log: AgentLog) -> None:
    home, store = tmp_path / "agent", tmp_path / "store"
    path = log.write(home, log.content(3, words="before"))
    with open_memory(store, [log.root_flag(home)]) as memory:
        memory.sweep()
        forget(memory, session_id())
    for number in range(4, 8):
        with path.open("ab") as file:
            file.write(line(log.message(session_id(), number, f"afterwards {number}")))
        with open_memory(store, [log.root_flag(home)]) as memory:
            report = memory.sweep()
            assert report.skipped["forgotten"] >= number
            assert memory.sessions() == []

    assert left_in(store, ["xxxxafterwards", "xxxxbefore"]) == set()


def test_a_file_of_another_session_that_carries_its_records_does_not_bring_them(tmp_path: Path) -> None:
    home, store = tmp_path / "agent", tmp_path / "store"
    old, new = session_id(1), session_id(2)
    CLAUDE.write(home, CLAUDE.content(3, old, "forgettable"), old)
    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep()
        forget(memory, old)
    carried = [CLAUDE.message(old, number, f"forgettable {number}") for number in (1, 2, 3)]
    CLAUDE.write(home, lines([*carried, CLAUDE.message(new, 4, "goes on")]), new)

    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep()
        (session,) = memory.sessions()
        assert (session.native_session_id, session.event_count) == (new, 1)

    assert left_in(store, ["xxxxforgettable"]) == set()


def test_records_copied_into_a_new_session_do_not_come_back(tmp_path: Path) -> None:
    home, store = tmp_path / "agent", tmp_path / "store"
    old, new = session_id(1), session_id(2)
    CLAUDE.write(home, CLAUDE.content(3, old, "forgettable"), old)
    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep()
        forget(memory, old)
    copied = [CLAUDE.message(old, number, f"forgettable {number}") | {"sessionId": new} for number in (1, 2, 3)]
    CLAUDE.write(home, lines([*copied, CLAUDE.message(new, 4, "goes on"), CLAUDE.message(new, 5, "and on")]), new)

    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep()
        (session,) = memory.sessions()
        events = memory.events(session, with_copies=True)
        texts = [payload["text"] for payload in memory.payloads(session, events)]
        assert (texts, [found.seq for found in events]) == (["goes on", "and on"], [1, 2])

    assert left_in(store, ["xxxxforgettable"]) == set()


@pytest.mark.parametrize("log", [CLAUDE, CODEX], ids=lambda log: log.agent)
def test_prompts_in_a_history_make_no_session_of_it_again(tmp_path: Path, log: AgentLog) -> None:
    home, store = tmp_path / "agent", tmp_path / "store"
    old, other = session_id(1), session_id(2)
    log.write(home, log.content(1, old, "forgettable"), old)
    history = home / "history.jsonl"
    history.write_bytes(lines([_prompt(log, old, 1, "forgettable prompt"), _prompt(log, other, 2, "another prompt")]))
    with open_memory(store, [log.root_flag(home)]) as memory:
        memory.sweep()
        forget(memory, old)
    with history.open("ab") as file:
        file.write(lines([_prompt(log, old, 3, "forgettable again"), _prompt(log, other, 4, "one more")]))
    log.path(home, old).unlink()

    with open_memory(store, [log.root_flag(home)]) as memory:
        memory.sweep()
        (session,) = memory.sessions()
        assert (session.native_session_id, session.event_count) == (other, 2)

    assert left_in(store, ["xxxxforgettable"]) == set()


def _prompt(log: AgentLog, session: str, number: int, text: str) -> dict[str, Any]:
    if log is CLAUDE:
        moment = 1_794_765_600_000 + number
        return {"display": text, "pastedContents": {}, "timestamp": moment, "project": "/x", "sessionId": session}
    return {"session_id": session, "ts": 1_794_765_600 + number, "text": text}


def test_facts_bad_lines_states_and_paths_go_too(tmp_path: Path, home: Home) -> None:
    words = rare_words(2, 8)
    home.write(
        f"{words[0]}/log",
        event("gone", 1, text=words[1], metadata={"note": words[2]}),
        SessionInfo("gone", cwd=f"/home/{words[3]}", git_branch=words[4], title=words[5], title_rank=3),
        BadLine(1, 5, "not JSON", words[6].encode()),
    )
    home.write("shared", event("gone", 2, text="more"), event("stays", 1), BadLine(1, 7, "bad", words[7].encode()))
    store = tmp_path / "store"
    with sweep(store, home) as memory:
        assert len(left_in(store, words)) == len(words)
        forget(memory, "gone")
        assert [problem.excerpt for problem in memory.problems()] == [""]
    assert left_in(store, words) == set()

    for _ in range(2):
        _drop_database(store, "cache.db")
        with sweep(store, home) as memory:
            assert native_ids(memory) == {"stays"}
        assert left_in(store, words) == set()


def test_a_forgotten_file_that_can_no_longer_be_read_keeps_its_path_to_itself(tmp_path: Path, home: Home) -> None:
    home.write("wordofpath/log", event("gone", 1), event("stays", 1))
    home.write("wordofpath/only", event("gone", 2))
    store = tmp_path / "store"
    with sweep(store, home) as memory:
        forget(memory, "gone")
    home.write("wordofpath/log", event("stays", 1))
    (home.folder / "wordofpath" / "log.jsonl").rename(home.folder / "log.jsonl")
    home.write("wordofpath/only", "a reason")

    with open_memory(store, [home.flag]) as memory:
        assert [reason for _, reason in memory.sweep().failures] == ["a reason"]
        (problem,) = memory.problems()

    assert "only" not in problem.path


def test_sub_agents_go_too_and_later_ones_stay_out(tmp_path: Path, home: Home) -> None:
    spawned = [SessionInfo("child", parent_native_id="top"), event("child", 1, text="childish")]
    below = [SessionInfo("grandchild", parent_native_id="child"), event("grandchild", 1, text="childish")]
    home.write("log", event("top", 1), *spawned, *below, event("top/inline", 1, text="childish"), event("stays", 1))
    store = tmp_path / "store"
    with sweep(store, home) as memory:
        planned = memory.plan_forgetting("top")
        assert {one.native_session_id for one in planned.sessions} == {"top", "child", "grandchild", "top/inline"}
        memory.forget(planned)

    home.write("late", event("late", 1, text="childish"), None, SessionInfo("late", root_native_id="top"))
    home.write("later", event("top/later", 1, text="childish"))
    home.write("latest", SessionInfo("latest", parent_native_id="late"), event("latest", 1, text="childish"))
    with sweep(store, home) as memory:
        memory.sweep()
        assert native_ids(memory) == {"stays"}

    assert left_in(store, ["xxxxchildish"]) == set()


def test_a_sub_agent_can_be_forgotten_without_its_parent(tmp_path: Path, home: Home) -> None:
    home.write("log", event("top", 1), SessionInfo("top/sub", parent_native_id="top"), event("top/sub", 1))
    with sweep(tmp_path / "store", home) as memory:
        forget(memory, "top/sub")
        (session,) = memory.sessions()

        assert session.native_session_id == "top"
        assert memory.sub_agents(session) == []


@pytest.mark.parametrize("is_root_evicted", [False, True])
def test_a_restore_does_not_bring_back_a_sub_agent_that_was_forgotten_by_itself(
    tmp_path: Path, home: Home, is_root_evicted: bool
) -> None:
    word, store = "xxxxquokkafish", tmp_path / "store"
    child = [SessionInfo("top/sub", parent_native_id="top"), event("top/sub", 1, text=f"look for {word}")]
    home.write("log", event("top", 1), *child)
    with sweep(store, home) as memory:
        if is_root_evicted:
            evict_all(memory)
        memory.backup(tmp_path / "backup.tar.zst")
        forget(memory, "top/sub")
        assert left_in(store, [word]) == set()

    restore(tmp_path / "backup.tar.zst", store)
    shutil.rmtree(next(store.glob("before-restore-*")))

    assert left_in(store, [word]) == set()


def test_ledger_lines_spool_files_and_logs_about_a_session_go_too(tmp_path: Path, home: Home) -> None:
    home.write("log", event("gone-session", 1), event("stays", 1))
    store = tmp_path / "store"
    with sweep(store, home) as memory:
        ledger = Ledger(store)
        ledger.append("note", {"session_uid": "scripted:gone-session", "text": "noteworthy"})
        ledger.append("bookmark", {"of": [{"native_session_id": "gone-session"}], "name": "noteworthy"})
        ledger.append("note", {"session_uid": "scripted:stays", "text": "unharmed"})
        for folder in ("spool", "logs"):
            (store / folder).mkdir()
            (store / folder / "1.json").write_bytes(orjson.dumps({"session": "gone-session", "path": "noteworthy"}))
            (store / folder / "2.json").write_bytes(orjson.dumps({"session": "stays", "path": "unharmed"}))

        forget(memory, "gone-session")

        assert [record.data.get("text") for record in ledger.records("note")] == ["unharmed"]
        assert [path.name for path in store.rglob("?.json")] == ["2.json", "2.json"]
    assert left_in(store, ["xxxxnoteworthy"]) == set()


def test_a_tombstone_has_no_word_of_what_it_stands_for(forgotten: Path) -> None:
    for text in (forgotten / "ledger.jsonl").read_text().splitlines():
        told = orjson.loads(text)
        assert set(told) == {"kind", "at", "data", "sum"}
        assert set(told["data"]) == {"agent", "native_session_id", "event_keys", "kept_forks"}


def test_totals_and_repositories_are_right_afterwards(tmp_path: Path) -> None:
    def told(folder: Path, *, has_both: bool) -> Home:
        home = Home(folder)
        home.write("stays", SessionInfo("stays", cwd="/home/x/shop"), event("stays", 1), event("stays", 2))
        if has_both:
            remote = "git@github.com:acme/shop-api.git"
            home.write("gone", SessionInfo("gone", cwd="/home/x/shop", git_remote=remote), event("gone", 1))
        return home

    with scratch() as folder:
        expected = _account(sweep(folder / "store", told(folder / "home", has_both=False)))
    with sweep(tmp_path / "store", told(tmp_path / "both", has_both=True)) as memory:
        assert memory.session("stays").repo == "github.com/acme/shop-api"
        forget(memory, "gone")

        assert _account(memory) == expected


def _account(memory: Memory) -> tuple[Any, ...]:
    with memory:
        status = memory.status()
        return status.agents, status.sessions, status.events, [session.repo for session in memory.sessions()]
