"""A value that a session names once is hidden in all that is read of its file after that."""

from pathlib import Path

import pytest

from recollect.agents import adapters
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep

NAMED = "Zq3vKp9Lm2Wx8"


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


def test_a_value_named_in_one_batch_is_hidden_in_the_next(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    named, bare = event("s", 1, text=f"DB_PASSWORD={NAMED}"), event("s", 2, text=f"I typed {NAMED} there")
    home.write("s", named, None, bare, None)

    with sweep(tmp_path / "store", home) as memory:
        summaries = [event.summary for event in memory.events(memory.session("s"))]

    assert len(summaries) == 2
    assert NAMED not in " ".join(summaries)
    files = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert not any(NAMED.encode() in content for content in files)


def test_what_one_session_names_stays_in_another_of_the_same_file(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.write("s", event("s", 1, text=f"DB_PASSWORD={NAMED}"), None, event("t", 1, text=f"I typed {NAMED}"), None)

    with sweep(tmp_path / "store", home) as memory:
        (found,) = memory.events(memory.session("t"))

    assert NAMED in found.summary
