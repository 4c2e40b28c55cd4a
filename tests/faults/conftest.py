"""Fixtures of the fault tests."""

import pytest

from tests.logs import AGENT_LOGS, AgentLog


@pytest.fixture(params=AGENT_LOGS, ids=lambda log: log.agent)
def log(request: pytest.FixtureRequest) -> AgentLog:
    """Each agent's kind of log in turn."""
    found: AgentLog = request.param
    return found
