"""The scripted agent, known to every test of the rules."""

import pytest


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    from recollect.agents import adapters
    from tests.builders import ScriptedAdapter

    monkeypatch.setitem(adapters(), "scripted", ScriptedAdapter())
