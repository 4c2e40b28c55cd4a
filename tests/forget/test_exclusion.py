"""Places that are kept out of the store: by setting, by a file in the repository, for every agent's kind of log."""

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.agentkit.protocol import BadLine, SessionInfo
from recollect.api import Memory, doctor, open_memory
from recollect.cli import main
from recollect.model.errors import BadConfig
from tests.builders import Home, event
from tests.forget.traces import forget, left_in, native_ids
from tests.logs import AGENT_LOGS, CODEX, CWD, GROK, AgentLog, line, lines, session_id, tell_places


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir(mode=0o700)
    return tmp_path / "store"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A checkout with a remote, and a folder in it."""
    folder = tmp_path / "work" / "secret"
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text(
        '[core]\n\tbare = false\n[remote "origin"]\n\turl = git@github.com:acme/vault.git\n'
    )
    return folder


def exclude(store: Path, *patterns: str) -> None:
    (store / "config.toml").write_text(f"[capture]\nexclude = {list(patterns)!r}\n")


def sweep(store: Path, home: Home, *, verify: bool = False) -> Memory:
    memory = open_memory(store, [home.flag])
    assert memory.sweep(verify=verify).failures == []
    return memory


def session(name: str, cwd: str | Path | None, **facts: Any) -> list[Any]:
    return [SessionInfo(name, cwd=None if cwd is None else str(cwd), **facts), event(name, 1, text=f"{name} says so")]


# Patterns


@pytest.mark.parametrize(
    ("pattern", "cwd", "is_out"),
    [
        ("/srv/secret", "/srv/secret", True),
        ("/srv/secret/**", "/srv/secret", True),
        ("/srv/secret/**", "/srv/secret/a/b", True),
        ("/srv/secret", "/srv/secret/a/b", True),
        ("/srv/secret/", "/srv/secret", True),
        ("/srv/secret", "/srv/secrets", False),
        ("/srv/secret", "/else/srv/secret", False),
        ("/srv/*/private", "/srv/x/private/y", True),
        ("/srv/*/private", "/srv/x/y/private", False),
        ("/srv/**/private", "/srv/x/y/private", True),
        ("/srv/**/private", "/srv/private", True),
        ("/srv/secret?", "/srv/secrets", True),
        ("/srv/[x]", "/srv/x", True),
        ("/srv/[a-f]x", "/srv/bx", True),
        ("/srv/[!a-f]x", "/srv/bx", False),
        ("/srv/[!a]x", "/srv//x", False),
        ("/srv/[z-a]", "/srv/[z-a]", True),
        ("/srv/{secret,private}/**", "/srv/private/x", True),
        ("/srv/{secret,pri*}", "/srv/prior", True),
        ("/srv/{secret,private}", "/srv/open", False),
        ("srv/secret", "/srv/secret/x", True),
        ("srv/secret", "/home/me/srv/secret", True),
        ("srv/secret", "/srv/open/secret", False),
        ("secret/", "/srv/secret/x", True),
        (" /srv/secret ", "/srv/secret", True),
        ("/srv/[x]", "/srv/[x]/y", True),
        ("/srv/a.b", "/srv/aXb", False),
        ("~/secret", "~/secret/x", True),
        ("/srv/secret", "not a path", False),
        (r"C:\Users\kim\secret", r"c:\users\kim\Secret\x", True),
        ("c:/users/*/secret", r"C:\Users\kim\secret", True),
        (r"C:\Users\kim\secret", r"C:\Users\kim\secrets", False),
        (r"\\srv\share\secret", r"\\SRV\share\secret\x", True),
        ("/srv/secret", "/srv/\0", False),
    ],
)
def test_a_folder_is_left_out_with_all_below_it(store: Path, home: Home, pattern: str, cwd: str, is_out: bool) -> None:
    exclude(store, pattern)
    home.write("log", *session("judged", str(Path(cwd).expanduser()) if cwd.startswith("~") else cwd))

    with sweep(store, home) as memory:
        assert native_ids(memory) == (set() if is_out else {"judged"})


@pytest.mark.parametrize(
    ("pattern", "remote", "is_out"),
    [
        ("github.com/acme/*", "https://user:pw@github.com/acme/shop.git", True),
        ("github.com/acme/*", "git@github.com:acme/shop.git", True),
        ("acme/shop", "git@github.com:acme/shop.git", True),
        ("shop", "git@github.com:acme/shop.git", True),
        ("ACME/Shop", "git@github.com:acme/shop.git", True),
        ("acme/*", "git@github.com:notacme/shop.git", False),
        ("acme", "git@github.com:acme/shop.git", False),
        ("acme/**", "git@gitlab.com:acme/deep/er.git", True),
        ("here", None, True),
    ],
)
def test_a_repository_is_left_out_by_any_ending_of_its_name(
    store: Path, home: Home, pattern: str, remote: str | None, is_out: bool
) -> None:
    exclude(store, pattern)
    home.write("log", *session("judged", "/nowhere/here", git_remote=remote))

    with sweep(store, home) as memory:
        assert native_ids(memory) == (set() if is_out else {"judged"})


def test_a_repository_is_known_by_its_own_remote_where_the_log_has_none(store: Path, home: Home, repo: Path) -> None:
    exclude(store, "github.com/acme/vault")
    home.write("log", *session("judged", repo / "deep"), *session("other", repo.parent))

    with sweep(store, home) as memory:
        assert native_ids(memory) == {"other"}


def test_a_folder_reached_by_a_link_is_the_folder(tmp_path: Path, store: Path, home: Home, repo: Path) -> None:
    (tmp_path / "link").symlink_to(repo)
    exclude(store, str(repo))
    home.write("log", *session("judged", tmp_path / "link" / "deep"))

    with sweep(store, home) as memory:
        assert native_ids(memory) == set()


@pytest.mark.parametrize("value", ["[3]", "'x'", "['**']", "['/']", "['']", "['./x']", "['../x']", "['.']", "['!x']"])
def test_a_setting_that_makes_no_sense_is_refused(store: Path, value: str) -> None:
    (store / "config.toml").write_text(f"[capture]\nexclude = {value}\n")

    with pytest.raises(BadConfig, match=r"capture\.exclude"):
        open_memory(store)


# Files in the repository


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        (".recollectignore", "", {"above"}),
        (".recollectignore", "# nothing but a comment\n", {"above"}),
        (".recollectignore", "deep\n", {"above", "top"}),
        (".recollectignore", "deep/**\n", {"above", "top"}),
        (".recollectignore", "*/er\n", {"above", "top", "middle"}),
        (".recollectignore", "elsewhere\n", {"above", "top", "middle", "bottom"}),
        (".recollectignore", "deep # of the client\n", {"above", "top"}),
        (".recollectignore", "\ufeffdeep\r\n", {"above", "top"}),
        (".recollectignore", ".\n", {"above"}),
        (".recollectignore", "/\n", {"above"}),
        (".recollectignore", "./deep/\n", {"above", "top"}),
        (".recollectignore", "er\n", {"above", "top", "middle"}),
        (".recollectignore", "/er\n", {"above", "top", "middle", "bottom"}),
        (".recollectignore", "{deep,x}/[a-f]r\n", {"above", "top", "middle"}),
        (".recollectignore", "!deep\n", {"above"}),
        (".recollectignore", "er\n!er\n", {"above", "top", "middle"}),
        (".recollect.toml", "[capture]\nexclude = ['deep']\n", {"above", "top"}),
        (".recollect.toml", "[capture]\nexclude = ['**']\n", {"above"}),
        (".recollect.toml", "[capture]\nexclude = 'deep'\n", {"above", "top"}),
        (".recollect.toml", "[other]\nx = 1\n", {"above", "top", "middle", "bottom"}),
        (".recollect.toml", "not toml", {"above"}),
    ],
)
def test_a_file_in_the_repository_keeps_it_out_or_parts_of_it(
    store: Path, home: Home, repo: Path, name: str, text: str, kept: set[str]
) -> None:
    (repo / name).write_text(text)
    places = {"above": repo.parent, "top": repo, "middle": repo / "deep", "bottom": repo / "deep" / "er"}
    home.write("log", *(record for who, place in places.items() for record in session(who, place)))

    with sweep(store, home) as memory:
        assert native_ids(memory) == kept
        assert left_in(store, [f"xxxx{who} says" for who in places]) == {f"xxxx{who} says" for who in kept}


def test_a_folder_inside_of_the_repository_that_is_reached_by_a_link_obeys_its_file(
    tmp_path: Path, store: Path, home: Home, repo: Path
) -> None:
    (repo / ".recollectignore").write_text("deep\n")
    (tmp_path / "link").symlink_to(repo / "deep")
    home.write("log", *session("judged", tmp_path / "link" / "er"))

    with sweep(store, home) as memory:
        assert native_ids(memory) == set()


def test_a_line_that_means_nothing_is_told_by_the_sweep_and_by_doctor(
    store: Path, home: Home, repo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo / ".recollectignore").write_text("deep\n!deep/er\n")
    home.write("log", *session("judged", repo))
    monkeypatch.setenv("RECOLLECT_HOME", str(store))

    swept = CliRunner().invoke(main, ["sweep", "--root", home.flag])

    assert "1 line without effect" in swept.output
    (finding,) = [finding for finding in doctor(store, [home.flag]) if "without effect" in finding.message]
    assert finding.message.endswith(".recollectignore: !deep/er")


# Repositories that only another session can name


def _tellers(order: str) -> tuple[str, str]:
    """The names of two logs, the first for the session that tells a remote."""
    return ("a", "b") if order == "first" else ("b", "a")


@pytest.mark.parametrize("order", ["first", "last"])
@pytest.mark.parametrize("below", ["", "/deep/er"])
def test_a_folder_is_the_repository_that_another_session_says_it_is(
    store: Path, home: Home, order: str, below: str
) -> None:
    exclude(store, "acme/vault")
    teller, other = _tellers(order)
    home.write(teller, *session("teller", "/gone/here", git_remote="git@github.com:acme/vault.git"))
    home.write(other, *session("silent", f"/gone/here{below}"), *session("neighbour", "/gone/herenot"))

    with sweep(store, home) as memory:
        assert native_ids(memory) == {"neighbour"}
        assert memory.sweep(verify=True).failures == []
        assert native_ids(memory) == {"neighbour"}
    assert left_in(store, ["xxxxsilent says", "xxxxteller says", "xxxx/gone/here"]) <= {"xxxx/gone/here"}


def test_what_a_left_out_session_told_of_a_folder_is_known_later(store: Path, home: Home) -> None:
    exclude(store, "acme/vault")
    path = home.write("teller", *session("teller", "/gone/here", git_remote="git@github.com:acme/vault.git"))
    sweep(store, home).close()
    path.unlink()
    home.write(
        "other", *session("silent", "/gone/here"), *session("own", "/gone/here", git_remote="git@x.com:me/o.git")
    )

    with sweep(store, home, verify=True) as memory:
        assert native_ids(memory) == {"own"}
    exclude(store, "acme/other")
    with sweep(store, home, verify=True) as memory:
        assert native_ids(memory) == {"own", "silent"}


def test_what_was_stored_before_another_session_told_the_repository_is_named_and_does_not_grow(
    store: Path, home: Home
) -> None:
    exclude(store, "acme/vault")
    home.write("silent", *session("silent", "/gone/here"))
    sweep(store, home).close()
    home.write("teller", *session("teller", "/gone/here", git_remote="git@github.com:acme/vault.git"))
    home.append("silent", event("silent", 2, text="silent goes on"))

    with sweep(store, home) as memory:
        assert [(found.native_session_id, found.event_count) for found in memory.sessions()] == [("silent", 1)]
    assert [finding for finding in doctor(store, [home.flag]) if "stored before" in finding.message]


def test_forgetting_what_is_excluded_leaves_a_namesake_alone(
    store: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("log", *session("secret", "/srv/secret/app"), *session("precious", "/home/me/app"))
    sweep(store, home).close()
    exclude(store, "/srv/secret")
    monkeypatch.setenv("RECOLLECT_HOME", str(store))

    done = CliRunner().invoke(main, ["forget", "--excluded", "--yes"])

    assert done.exit_code == 0
    with open_memory(store, [home.flag]) as memory:
        assert native_ids(memory) == {"precious"}
        assert memory.plan_forgetting(excluded=True).keys == set()


@pytest.mark.parametrize("make", [lambda path: path.mkdir(), os.mkfifo, lambda path: path.write_bytes(b"\xff" * 9)])
def test_a_file_that_cannot_be_read_keeps_everything_out(
    store: Path, home: Home, repo: Path, make: Callable[[Path], None]
) -> None:
    make(repo / ".recollectignore")
    home.write("log", *session("judged", repo))

    with sweep(store, home) as memory:
        assert native_ids(memory) == set()


def test_a_file_above_the_git_root_does_not_count(store: Path, home: Home, repo: Path) -> None:
    (repo.parent / ".recollectignore").write_text("")
    home.write("log", *session("inside", repo / "deep"), *session("outside", repo.parent))

    with sweep(store, home) as memory:
        assert native_ids(memory) == {"inside"}


def test_a_worktree_obeys_the_file_of_its_main_checkout(tmp_path: Path, store: Path, home: Home) -> None:
    main, tree = tmp_path / "main", tmp_path / "tree"
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", "-C", str(main)]
    main.mkdir()
    for arguments in (
        ["init", "-q"],
        ["commit", "-q", "--allow-empty", "-m", "x"],
        ["worktree", "add", "-q", str(tree)],
    ):
        subprocess.run([*git, *arguments], check=True, capture_output=True)
    (main / ".recollectignore").write_text("")
    home.write("log", *session("judged", tree))

    with sweep(store, home) as memory:
        assert native_ids(memory) == set()


# Nothing is stored first


def test_events_wait_for_a_place_that_is_told_later(store: Path, home: Home) -> None:
    exclude(store, "/srv/secret")
    home.write("a-log", event("out", 1, text="outspoken"), None, event("out", 2, text="outspoken"))
    home.write("b-facts", SessionInfo("out", cwd="/srv/secret"), SessionInfo("in", cwd="/srv/open"))
    home.write("c-log", event("in", 1, text="inside"), None, event("nowhere", 1, text="inside"))
    steps: list[set[str]] = []

    def look(stage: str, done: int, total: int) -> None:
        steps.append(left_in(store, ["xxxxoutspoken"]))

    with open_memory(store, [home.flag]) as memory:
        report = memory.sweep(look)
        assert native_ids(memory) == {"in", "nowhere"}
        assert report.skipped["excluded"] == 2
        assert steps
        assert set().union(*steps) == set()
        assert memory.sweep(look).lines_read == 0


@pytest.mark.parametrize("cwd", [CWD, "/srv/open"])
def test_a_log_whose_place_stands_beside_it_does_not_wait(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch, cwd: str
) -> None:
    monkeypatch.setattr("recollect.ingest.gate.WAITING_BYTES", 0)  # what waits would be read twice
    exclude(store, cwd)
    home = tmp_path / "agent"
    GROK.write(home, GROK.content(3))
    tell_places(home)

    with open_memory(store, [GROK.root_flag(home)]) as memory:
        assert memory.sweep().lines_read == 4
        assert len(memory.sessions()) == (cwd != CWD)


@pytest.mark.parametrize("room", [0, 150, 10**9])
def test_what_is_too_big_to_wait_is_read_again(
    store: Path, home: Home, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    monkeypatch.setattr("recollect.ingest.gate.WAITING_BYTES", room)
    exclude(store, "/srv/secret")
    for name in ("out", "in"):
        records = [record for number in range(1, 9) for record in (event(name, number, text=f"{name} word"), None)]
        home.write(f"a-{name}", *records)
        home.write(f"b-{name}", SessionInfo(name, cwd="/srv/secret" if name == "out" else "/srv/open"))

    with sweep(store, home) as memory:
        assert [(found.native_session_id, found.event_count) for found in memory.sessions()] == [("in", 8)]
        assert memory.sweep().lines_read == 0
    assert left_in(store, ["xxxxout word"]) == set()


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
def test_every_agents_sessions_are_left_out(tmp_path: Path, store: Path, log: AgentLog) -> None:
    exclude(store, CWD)
    home = tmp_path / "agent"
    path = log.write(home, log.content(3, words="outspoken") + b'{"torn": "outspoken\n')
    tell_places(home)

    for number in range(4, 6):
        with open_memory(store, [log.root_flag(home)]) as memory:
            report = memory.sweep()
            assert report.failures == []
            assert report.skipped["excluded"] >= 3
            assert memory.sessions() == []
            assert memory.sweep().lines_read == 0
        with path.open("ab") as file:
            file.write(line(log.message(session_id(), number, "outspoken")) + b'{"torn": "outspoken\n')

    assert left_in(store, ["xxxxoutspoken", "xxxxa summary"]) == set()


def test_prompts_of_an_excluded_session_are_left_out_of_a_history_without_places(tmp_path: Path, store: Path) -> None:
    exclude(store, CWD)
    home, other = tmp_path / "agent", session_id(2)
    CODEX.write(home, CODEX.content(1, words="outspoken"))
    prompts = [
        {"session_id": name, "ts": 1_794_765_600, "text": text}
        for name, text in ((session_id(), "outspoken"), (other, "in"))
    ]
    (home / "history.jsonl").write_bytes(lines(prompts))

    with open_memory(store, [CODEX.root_flag(home)]) as memory:
        memory.sweep()
        assert native_ids(memory) == {other}
    assert left_in(store, ["xxxxoutspoken"]) == set()


def test_sub_agents_of_an_excluded_session_are_left_out(store: Path, home: Home) -> None:
    exclude(store, "/srv/secret")
    home.write("a-top", *session("top", "/srv/secret"))
    home.write("b-sub", SessionInfo("sub", parent_native_id="top", cwd="/srv/open"), event("sub", 1))
    home.write("c-sub", event("top/inline", 1))

    with sweep(store, home) as memory:
        assert native_ids(memory) == set()


def test_a_session_that_moves_elsewhere_stays_left_out(store: Path, home: Home) -> None:
    exclude(store, "/srv/secret")
    home.write("log", *session("judged", "/srv/secret"))
    sweep(store, home).close()
    home.append("log", SessionInfo("judged", cwd="/srv/open"), event("judged", 2, text="outspoken"))

    with sweep(store, home) as memory:
        assert native_ids(memory) == set()
    assert left_in(store, ["xxxxoutspoken"]) == set()


# Before and after


def test_what_was_stored_before_stays_is_named_and_does_not_grow(store: Path, home: Home) -> None:
    home.write("log", *session("early", "/srv/secret", git_remote="git@github.com:acme/vault.git"))
    sweep(store, home).close()
    exclude(store, "/srv/secret")
    home.append("log", event("early", 2))

    with sweep(store, home) as memory:
        assert memory.session("early").event_count == 1
    (finding,) = [found for found in doctor(store, [home.flag]) if found.subject == "capture"]
    assert "github.com/acme/vault" in finding.message
    assert "`recollect forget --excluded`" in str(finding.advice)


def test_what_is_no_longer_excluded_comes_back_with_verify(store: Path, home: Home) -> None:
    exclude(store, "/srv/secret")
    home.write("log", *session("judged", "/srv/secret"), *session("other", "/srv/open"), BadLine(9, 9, "bad", b"raw"))
    sweep(store, home).close()
    exclude(store, "/srv/else")

    sweep(store, home).close()
    with sweep(store, home, verify=True) as memory:
        assert native_ids(memory) == {"judged", "other"}


def test_a_repository_that_was_deleted_with_its_file_stays_left_out(store: Path, home: Home, repo: Path) -> None:
    (repo / ".recollectignore").write_text("")
    home.write("log", *session("judged", repo))
    sweep(store, home).close()
    shutil.rmtree(repo)
    for path in store.glob("cache.db*"):
        path.unlink()

    with sweep(store, home, verify=True) as memory:
        assert native_ids(memory) == set()


def test_a_forgotten_session_of_an_excluded_place_leaves_no_trace(store: Path, home: Home) -> None:
    home.write("wordofpath/log", *session("early", "/srv/secret"))
    sweep(store, home).close()
    exclude(store, "/srv/secret")
    home.append("wordofpath/log", event("early", 2))
    with sweep(store, home) as memory:
        memory.forget(memory.plan_forgetting("early"))
    home.append("wordofpath/log", event("early", 3))
    sweep(store, home).close()

    assert left_in(store, ["xxxxearly says", "xxxxwordofpath"]) == set()


def test_a_sweep_says_how_many_sessions_it_left_out(store: Path, home: Home) -> None:
    home.write("kept", *session("kept", "/srv/open"))
    home.write("forgotten", *session("forgotten", "/srv/open"))
    with sweep(store, home) as memory:
        forget(memory, "forgotten")
    exclude(store, "/srv/secret")
    home.write("first", *session("first", "/srv/secret"), None, event("first", 2))
    home.write("second", *session("second", "/srv/secret/x"))
    sweeping = ["sweep", "--verify", "--root", home.flag]
    environment = {"RECOLLECT_HOME": str(store)}

    shown = CliRunner().invoke(main, sweeping, env=environment).stdout
    told = json.loads(CliRunner().invoke(main, [*sweeping, "--json"], env=environment).stdout)

    assert "Left out 2 excluded sessions\nLeft out 1 forgotten session\n" in shown
    assert told["left_out"] == {"excluded": 2, "forgotten": 1}


@pytest.mark.parametrize(("child", "parent"), [("a", "b"), ("b", "a")])
def test_the_place_of_the_root_decides_in_whatever_order_logs_are_read(
    store: Path, home: Home, child: str, parent: str
) -> None:
    exclude(store, "/srv/secret")
    home.write(child, *session("sub", "/tmp/elsewhere", parent_native_id="root"))
    home.write(parent, *session("root", "/srv/secret"))

    with sweep(store, home) as memory:
        assert memory.sessions() == []
    assert left_in(store, ["sub says so", "root says so"]) == set()


def test_a_sub_agent_whose_root_nobody_has_is_judged_by_its_own_place(store: Path, home: Home) -> None:
    exclude(store, "/srv/secret")
    home.write("kept", *session("kept", "/tmp/elsewhere", parent_native_id="gone"))
    home.write("out", *session("out", "/srv/secret/deep", parent_native_id="gone"))

    with sweep(store, home) as memory:
        assert [one.native_session_id for one in memory.sessions()] == ["kept"]
