"""`--match` looks wherever a text can stand in the store: what it does not find would stay there."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.agentkit.protocol import BadLine, SessionInfo
from recollect.api import Memory, open_memory
from recollect.cli import main
from recollect.model.errors import NotFound
from recollect.model.schema import TOOL_CALL
from tests.builders import Home, event, sweep, usage
from tests.forget.traces import left_in, native_ids
from tests.logs import CLAUDE, CODEX, AgentLog, line, session_id

WORD = "Outspoken walrus"


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def forget_text(memory: Memory, text: str = WORD.upper()) -> set[str]:
    planned = memory.forget(memory.plan_forgetting(match=text))
    return {one.native_session_id for one in planned.sessions}


@pytest.mark.parametrize(
    "records",
    [
        [BadLine(1, 900, "not JSON", b'{"said": "' + WORD.encode())],
        [BadLine(1, 900, "not JSON", b"\xff\xfe " + WORD.encode())],
        [event("told", 2, TOOL_CALL, call_id=WORD)],
        [event("told", 2, TOOL_CALL, tool=WORD)],
        [event("told", 2, native_id=WORD)],
        [event("told", 2, model=WORD)],
        [usage("told", WORD)],
        [SessionInfo("told", git_branch=WORD)],
        [SessionInfo("told", metadata={"kind": WORD})],
    ],
    ids=["bad line", "bad bytes", "call", "tool", "record", "model", "response", "branch", "metadata"],
)
def test_a_session_is_found_by_whatever_is_held_of_it(store: Path, home: Home, records: list[object]) -> None:
    home.write("log", event("told", 1), *records)  # type: ignore[arg-type]
    home.write("other", event("other", 1))
    with sweep(store, home) as memory:
        assert left_in(store, [f"xxxx{WORD}"])

        assert forget_text(memory) == {"told"}
        memory.sweep(verify=True)

        assert native_ids(memory) == {"other"}
    assert left_in(store, [f"xxxx{WORD}"]) == set()


def test_a_session_is_found_by_the_path_of_its_log(store: Path, home: Home) -> None:
    home.write(f"{WORD}/log", event("told", 1))
    home.write("other", event("other", 1))
    with sweep(store, home) as memory:
        assert forget_text(memory) == {"told"}

    assert left_in(store, [f"xxxx{WORD}"]) == set()


def test_a_short_text_that_stands_in_an_id_by_chance_is_no_match(store: Path, home: Home) -> None:
    home.write("log", event("told", 1, TOOL_CALL, call_id="toolu_abcd1234", text="words"))
    with sweep(store, home) as memory:
        assert memory.plan_forgetting(match="abcd").sessions == ()
        assert len(memory.plan_forgetting(match="abcd1234").sessions) == 1


def test_a_bad_line_of_a_sub_agents_file_is_the_sub_agents(store: Path, home: Home) -> None:
    home.write("top", event("top", 1))
    told = SessionInfo("top/sub", parent_native_id="top", root_native_id="top")
    home.write("sub", told, event("top/sub", 1), BadLine(1, 900, "not JSON", WORD.encode()))
    with sweep(store, home) as memory:
        assert forget_text(memory) == {"top/sub"}
        assert native_ids(memory) == {"top"}


# Lines that are no session's


def _prompt(log: AgentLog, session: str) -> dict[str, object]:
    if log is CLAUDE:
        return {"display": "a prompt", "timestamp": 1_794_765_600_000, "project": "/p", "sessionId": session}
    return {"session_id": session, "ts": 1_794_765_600, "text": "a prompt"}


def _history(log: AgentLog, home: Path, *more: bytes) -> Path:
    """A history with prompts of two sessions, and lines that cannot be read."""
    log.write(home, log.content(1, session_id(1)), session_id(1))
    records = [_prompt(log, session_id(number)) for number in (1, 2)]
    path = home / "history.jsonl"
    path.write_bytes(b"".join([*map(line, records), *more]))
    return path


@pytest.mark.parametrize("log", [CLAUDE, CODEX], ids=lambda log: log.agent)
def test_a_bad_line_of_a_history_goes_alone_and_stays_away(tmp_path: Path, store: Path, log: AgentLog) -> None:
    home = tmp_path / "agent"
    torn = b'{"display": "' + WORD.encode() + b"\n"
    path = _history(log, home, torn, b'{"display": "quite another\n')
    with open_memory(store, [log.root_flag(home)]) as memory:
        memory.sweep()
        planned = memory.plan_forgetting(match=WORD)
        assert planned.sessions == ()
        assert [(gone.path, gone.line) for gone in planned.lines] == [(str(path), 3)]

        memory.forget(planned)

        assert native_ids(memory) == {session_id(1), session_id(2)}
        assert [problem.excerpt for problem in memory.problems()] == ["", '{"display": "quite another']
        path.write_bytes(torn + path.read_bytes())  # at another place, and its file read from the start
        memory.sweep(verify=True)
    assert left_in(store, [f"xxxx{WORD}"]) == set()

    for lost in store.glob("cache.db*"):
        lost.unlink()
    shutil.rmtree(store / "packs", ignore_errors=True)
    with open_memory(store, [log.root_flag(home)]) as memory:
        memory.sweep()
        assert native_ids(memory) == {session_id(1), session_id(2)}
    assert left_in(store, [f"xxxx{WORD}"]) == set()


def test_the_command_says_what_lines_go(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "agent"
    _history(CLAUDE, home, b'{"display": "' + WORD.encode() + b"\n")
    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep()
    monkeypatch.setenv("RECOLLECT_HOME", str(store))

    done = CliRunner().invoke(main, ["forget", "--match", WORD, "--yes"])

    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "Deleted 1 line for good")
    assert "1 unreadable line" in done.output
    assert CliRunner().invoke(main, ["forget", "--match", WORD, "--yes"]).exit_code == NotFound.exit_code


def test_other_conditions_leave_lines_of_nobody_alone(tmp_path: Path, store: Path) -> None:
    home = tmp_path / "agent"
    _history(CLAUDE, home, b'{"display": "' + WORD.encode() + b"\n")
    with open_memory(store, [CLAUDE.root_flag(home)]) as memory:
        memory.sweep()

        assert memory.plan_forgetting(match=WORD, before="1d").keys == set()
