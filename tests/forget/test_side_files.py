"""Files that tell no event of a session are its files all the same: they go with it, and stay out with it."""

import shutil
from pathlib import Path

import pytest

import recollect
from recollect.agentkit.protocol import FOLDER
from recollect.agents import adapters
from recollect.api import open_memory
from recollect.model.schema import HISTORY_LANE
from tests.forget.traces import forget, left_in
from tests.logs import AGENT_LOGS, CWD, GROK, AgentLog, line, session_id, tell_places

SAMPLES = Path(recollect.__file__).parent / "samples"
TORN = b'{"ts": 1, "text": "outspoken\n'


def _grok_with_telemetry(home: Path) -> Path:
    """A session whose telemetry makes no event and has a line that cannot be read."""
    path = GROK.write(home, GROK.content(3))
    tell_places(home)
    telemetry = path.with_name("events.jsonl")
    telemetry.write_bytes(line({"ts": 1, "type": "turn_started", "session_id": session_id()}) + TORN)
    return telemetry


def test_a_log_of_telemetry_goes_with_its_session(tmp_path: Path) -> None:
    home, store = tmp_path / "agent", tmp_path / "store"
    telemetry = _grok_with_telemetry(home)
    with open_memory(store, [GROK.root_flag(home)]) as memory:
        memory.sweep()
        assert left_in(store, ["xxxxoutspoken", "xxxxevents.jsonl"]) == {"xxxxoutspoken", "xxxxevents.jsonl"}
        assert str(telemetry) in memory.plan_forgetting(session_id()).files

        forget(memory, session_id())
        memory.sweep(verify=True)

        assert [problem.excerpt for problem in memory.problems() if problem.excerpt] == []
    assert left_in(store, ["xxxxoutspoken", "xxxxevents.jsonl"]) == set()


def test_nothing_of_a_log_of_telemetry_is_stored_from_an_excluded_folder(tmp_path: Path) -> None:
    home, store = tmp_path / "agent", tmp_path / "store"
    _grok_with_telemetry(home)
    store.mkdir(mode=0o700)
    (store / "config.toml").write_text(f"[capture]\nexclude = ['{CWD}']\n")

    with open_memory(store, [GROK.root_flag(home)]) as memory:
        memory.sweep()
        memory.sweep(verify=True)

    assert left_in(store, ["xxxxoutspoken"]) == set()


@pytest.mark.parametrize("log", AGENT_LOGS, ids=lambda log: log.agent)
def test_a_log_without_a_line_that_can_be_read_goes_with_the_session_it_is_named_after(
    tmp_path: Path, log: AgentLog
) -> None:
    home, store = tmp_path / "agent", tmp_path / "store"
    path = log.write(home, TORN)
    with open_memory(store, [log.root_flag(home)]) as memory:
        memory.sweep()
        assert left_in(store, ["xxxxoutspoken"])
    path.write_bytes(TORN + log.content(2))

    with open_memory(store, [log.root_flag(home)]) as memory:
        memory.sweep()
        forget(memory, session_id())

    assert left_in(store, ["xxxxoutspoken", f"xxxx{path.name}"]) == set()


@pytest.mark.parametrize("agent", sorted(adapters()))
def test_every_file_but_a_history_says_whose_it_is_or_tells_it(tmp_path: Path, agent: str) -> None:
    home = shutil.copytree(SAMPLES / agent, tmp_path / "home")
    adapter = adapters()[agent]
    found = [source for source in adapter.discover(home) if source.kind not in (HISTORY_LANE, FOLDER)]
    sources = [unit for source in found for unit in (adapter.units(source) if source.holds_units else [source])]

    nobodys = [source.path.name for source in sources if source.session is None]

    assert sources
    assert [name for name in nobodys if name != "session_index.jsonl"] == []  # the titles of all sessions
