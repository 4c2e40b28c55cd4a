"""Fixtures of the tests of forgetting."""

from pathlib import Path

import pytest

from recollect.agents import adapters
from tests.builders import AGENT, Home, ScriptedAdapter


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")
