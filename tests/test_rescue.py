"""What an agent drops from its log between the copy and the sweep is stored all the same, for every agent."""

import shutil
from pathlib import Path

import pytest

from recollect.agents import BUILT_IN, find_plugin_host, get_adapter
from recollect.api import open_memory, rescue
from tests.adapters.test_contract import SAMPLES, lane_source
from tests.conftest import with_key


def _stored(store: Path) -> dict[str, tuple[str, str, bool]]:
    """Every event by its id: kind, summary, whether it failed."""
    with open_memory(store, read_only=True) as memory:
        return {
            event.event_uid: (event.kind, event.summary, event.is_error)
            for session in memory.sessions()
            for event in memory.events(session, with_copies=True)
        }


@pytest.mark.parametrize("swept", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("agent", [agent for agent in BUILT_IN if find_plugin_host(agent)])  # a hook makes the copy
def test_a_log_emptied_after_the_copy_gives_all_its_events(tmp_path: Path, agent: str, swept: float) -> None:
    home = shutil.copytree(SAMPLES / agent, tmp_path / "home")
    log = lane_source(get_adapter(agent), home).path
    lines = log.read_bytes().splitlines(keepends=True)
    roots = [f"{agent}={home}"]
    with open_memory(with_key(tmp_path / "whole"), roots) as memory:
        memory.sweep()

    with open_memory(with_key(tmp_path / "store"), roots) as memory:
        log.write_bytes(b"".join(lines[: int(len(lines) * swept)]))
        memory.sweep()
        log.write_bytes(b"".join(lines))
        rescue(log, tmp_path / "store", roots)
        log.write_bytes(b"")
        memory.sweep()

    assert _stored(tmp_path / "store") == _stored(tmp_path / "whole")
    assert not (tmp_path / "store" / "rescued").exists()


def test_a_copy_waits_while_the_log_holds_what_no_sweep_has_read(tmp_path: Path) -> None:
    home = shutil.copytree(SAMPLES / "claude", tmp_path / "home")
    log = lane_source(get_adapter("claude"), home).path
    roots = [f"claude={home}"]
    with open_memory(with_key(tmp_path / "store"), roots) as memory:
        rescue(log, tmp_path / "store", roots)

        memory.sweep(only=[])

        assert list((tmp_path / "store" / "rescued").iterdir())


def test_a_damaged_or_unknown_copy_is_removed_and_stops_no_sweep(tmp_path: Path) -> None:
    home = shutil.copytree(SAMPLES / "claude", tmp_path / "home")
    with open_memory(with_key(tmp_path / "store"), [f"claude={home}"]) as memory:
        for name, content in (("1.copy", b"nonsense"), ("2.copy", b"{}"), ("3.copy", b'{"row": [1], "end": 7}')):
            (tmp_path / "store" / "rescued" / name).mkdir(parents=True)
            (tmp_path / "store" / "rescued" / name / "copy.json").write_bytes(content)

        assert memory.sweep().failures == []

    assert not (tmp_path / "store" / "rescued").exists()
