"""A conversation about tokens and Redis that real agents led, and the questions people ask about it days later."""

import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.api import Memory, open_memory
from tests.agents.conftest import SCRIPTS
from tests.agents.desk import Desk, opened_desk
from tests.conftest import with_key

AGENTS = ("claude", "codex", "grok")
LOGIN = "Fix the login bug: users are logged out at once"
REDIS = "Great, also make sure it works with Redis session store"
REPORT = "the nightly report fails"
ROLL_BACK = "Let's roll back the Redis changes because the serverless deployment cannot hold connections."
LATEST = "Implement authentication with JWT refresh tokens"

FILES = {
    "src/auth.py": "expiry = 0\n",
    "src/store.py": "config = 'jwt'\n",
    "src/db.py": "pool_size = 5\n",
    "report.py": (
        "from src.db import pool_size\n\n"
        "if pool_size < 10:\n"
        "    raise TimeoutError('database timeout after 5000 ms')\n"
        "print('report written')\n"
    ),
}
SCENARIOS = r"""

def _edit(path, old, new, text=None):
    return do(("edit", {"path": path, "old": old, "new": new}), text=text)


S["login"] = ("fix the login bug", [
    do(("read", {"path": "src/auth.py"})),
    do(("grep", {"pattern": "expiry", "path": "src"})),
    _edit("src/auth.py", "expiry = 0", "expiry = 3600", "Found the issue - JWT expiry is set to 0. Let me fix it."),
    say("Fixed! JWT expiry now set to 3600 seconds."),
])
S["redis"] = ("works with Redis session store", [
    do(("read", {"path": "src/store.py"}), text="Ah, Redis session store requires different config. Let me adjust it."),
    _edit("src/store.py", "config = 'jwt'", "config = 'redis'"),
    say("Done."),
])
S["report"] = ("the nightly report fails", [
    do(sh("python3 report.py")),
    do(("read", {"path": "src/db.py"}), text="The database pool is too small, so requests wait until they time out."),
    _edit("src/db.py", "pool_size = 5", "pool_size = 20"),
    do(sh("python3 report.py")),
    say("Increased the connection pool size to 20."),
])
S["rollback"] = ("roll back the Redis changes", [
    do(("read", {"path": "src/store.py"})),
    _edit("src/store.py", "config = 'redis'", "config = 'jwt'"),
    say("Rolled back."),
])
S["refresh"] = ("JWT refresh tokens", [say("Working on it.")])
_compiled = [(n, re.compile(rx, re.I)) for n, (rx, _) in S.items()]
"""


@pytest.fixture(scope="module")
def memory(agents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    """What a store has learned from the sessions, each of one day's work by one agent."""
    folder = tmp_path_factory.mktemp("seed")
    scripts = folder / "mock"
    shutil.copytree(SCRIPTS / "mock", scripts)
    with (scripts / "scenarios.py").open("a") as file:
        file.write(SCENARIOS)
    with opened_desk(folder, agents_folder, scripts) as desk:
        _converse(desk)
    with open_memory(with_key(folder / "store"), [desk.root(agent) for agent in AGENTS]) as opened:
        assert opened.sweep().failures == []
        yield opened


def _converse(desk: Desk) -> None:
    (desk.project / "src").mkdir()
    for name, text in FILES.items():
        (desk.project / name).write_text(text)
    login = str(uuid.uuid4())
    desk.run("claude", desk.real("claude").ask, LOGIN, login)
    desk.run("claude", desk.real("claude").resume, REDIS, login)
    desk.run("codex", desk.real("codex").ask, REPORT)
    desk.run("grok", desk.real("grok").ask, ROLL_BACK, str(uuid.uuid4()))
    desk.run("claude", desk.real("claude").ask, LATEST, str(uuid.uuid4()))


def test_the_conversation_gives_its_four_facts_with_evidence(memory: Memory) -> None:
    facts = {
        fact.predicate: fact
        for name in ("JWT expiry = 3600 seconds", "default config", "Redis session store")
        for fact in memory.knowledge.facts(name)
    }
    cause = next(fact for fact in memory.knowledge.why("login bug") if fact.predicate == "caused_by")

    assert cause.object == "JWT expiry = 0"
    assert facts["requires"].object == "JWT expiry = 3600 seconds"
    conflict = facts["conflicts_with"]
    assert (conflict.subject, conflict.object) == ("Redis session store", "default config")
    said = {event.event_uid for session in memory.sessions() for event in memory.events(session)}
    assert all({one.event_uid for one in fact.evidence} <= said for fact in (cause, facts["requires"], conflict))
    (edited,) = memory.knowledge.how("fix the login bug")[0].steps
    assert edited.startswith("edited ")


def test_what_were_we_working_on_in_the_last_session(memory: Memory) -> None:
    digest = memory.digest(memory.session("last"))

    assert digest.requests[0].text == LATEST


def test_why_did_we_roll_back_the_redis_changes(memory: Memory) -> None:
    answer = memory.knowledge.why("Why did we rollback the Redis changes?")[0]

    assert (answer.agent, answer.reason) == ("grok", "the serverless deployment cannot hold connections")


def test_how_did_we_fix_the_database_timeout_issue(memory: Memory) -> None:
    fix = memory.knowledge.fixes("How did we fix the database timeout issue?")[0]

    assert fix.agent == "codex"
    assert "`pool_size = 5` became `pool_size = 20`" in fix.text
    assert fix.why == "The database pool is too small, so requests wait until they time out."
