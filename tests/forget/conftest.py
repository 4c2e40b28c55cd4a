"""Fixtures of the tests of forgetting."""

import shutil
import tempfile
from collections.abc import Iterator
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


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; `tmp_path` lies below one they may not."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
