"""A home of the scripted agent, whose sessions are as large as a test wants."""

from pathlib import Path

import pytest

from recollect.agents import adapters
from tests.builders import AGENT, Home, ScriptedAdapter


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    return Home(tmp_path / "home")
