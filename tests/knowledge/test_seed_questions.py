"""A conversation about tokens and Redis, and the questions people ask about it days later."""

import pytest

from recollect.api import Memory
from tests.knowledge.sessions import Script, remembered, stored_facts


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    from recollect.agents import adapters
    from tests.builders import ScriptedAdapter

    adapters()["scripted"] = ScriptedAdapter()
    login = (
        Script("login", 0)
        .user("Fix the login bug: users are logged out at once")
        .look("Read", "read src/auth.py")
        .look("Grep", "searched for login")
        .agent("Found the issue - JWT expiry is set to 0. Let me fix it.")
        .edit("/srv/shop/src/auth.py", "expiry = 0", "expiry = 3600")
        .agent("Fixed! JWT expiry now set to 3600 seconds.")
        .user("Great, also make sure it works with Redis session store")
        .agent("Ah, Redis session store requires different config. Let me adjust it.")
        .edit("/srv/shop/src/store.py", "config = JWT", "config = REDIS")
        .agent("Done.")
    )
    timeout = (
        Script("timeout", 1)
        .user("the report fails")
        .run("python report.py", "TimeoutError: database timeout after 5000 ms", 1)
        .agent("The database pool is too small, so requests wait until they time out.")
        .edit("/srv/shop/src/db.py", "pool_size = 5", "pool_size = 20")
        .run("python report.py", "report written")
        .agent("Increased the pool size to 20.")
    )
    rollback = (
        Script("rollback", 2)
        .user("Let's roll back the Redis changes because the serverless deployment cannot hold connections.")
        .edit("/srv/shop/src/store.py", "config = REDIS", "config = JWT")
        .agent("Rolled back.")
    )
    latest = Script("latest", 3).user("Implement authentication with JWT refresh tokens").agent("Working on it.")
    opened = remembered(tmp_path_factory.mktemp("seed"), login, timeout, rollback, latest)
    del adapters()["scripted"]
    return opened


def test_the_conversation_gives_its_four_facts_with_evidence(memory: Memory) -> None:
    facts = stored_facts(memory, "caused_by", "requires", "conflicts_with")
    by_predicate = {fact.predicate: fact for fact in facts}

    assert by_predicate["caused_by"].object == "JWT expiry = 0"
    assert by_predicate["requires"].object == "JWT expiry = 3600 seconds"
    conflict = by_predicate["conflicts_with"]
    assert (conflict.subject, conflict.object) == ("Redis session store", "default config")
    assert all(fact.evidence != "[]" for fact in facts)
    assert memory.knowledge.how("fix the login bug")[0].steps == ("edited /srv/shop/src/auth.py",)


def test_what_were_we_working_on_in_the_last_session(memory: Memory) -> None:
    digest = memory.digest(memory.session("last"))

    assert digest.requests[0].text == "Implement authentication with JWT refresh tokens"


def test_why_did_we_roll_back_the_redis_changes(memory: Memory) -> None:
    answer = memory.knowledge.why("Why did we rollback the Redis changes?")[0]

    assert answer.reason == "the serverless deployment cannot hold connections"


def test_how_did_we_fix_the_database_timeout_issue(memory: Memory) -> None:
    fix = memory.knowledge.fixes("How did we fix the database timeout issue?")[0]

    assert "`pool_size = 5` became `pool_size = 20`" in fix.text
    assert fix.why == "The database pool is too small, so requests wait until they time out."
