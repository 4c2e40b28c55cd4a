"""Fixtures of the fault tests."""

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.logs import AGENT_LOGS, AgentLog


@pytest.fixture(params=AGENT_LOGS, ids=lambda log: log.agent)
def log(request: pytest.FixtureRequest) -> AgentLog:
    """Each agent's kind of log in turn."""
    found: AgentLog = request.param
    return found


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; `tmp_path` lies below one they may not."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
