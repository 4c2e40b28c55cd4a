"""What an agent states: values, what something needs, what does not go together."""

from pathlib import Path

import pytest

from recollect.api import Memory
from tests.knowledge.sessions import Script, remembered, stored_facts

Stated = list[tuple[str, str, str]]


def stated(memory: Memory) -> Stated:
    names = ("caused_by", "has_value", "requires", "conflicts_with")
    facts = [fact for name in names for fact in stored_facts(memory, name)]
    return [(fact.subject, fact.predicate, fact.object) for fact in facts]


def after_an_edit(said: str) -> Script:
    return Script("stated").user("look after the settings").edit("/srv/shop/a.py", "a = 1", "a = 2").agent(said)


@pytest.mark.parametrize(
    ("said", "facts"),
    [
        ("JWT expiry now set to 3600 seconds.", [("JWT expiry", "has_value", "3600 seconds")]),
        ("Raised the pool size from 5 to 20.", [("pool size", "has_value", "20")]),
        (
            "Rolled it back, because Redis is incompatible with the serverless deployment.",
            [("Redis", "conflicts_with", "serverless deployment")],
        ),
        ("The worker is not compatible with Python 3.9.", [("worker", "conflicts_with", "Python 3.9")]),
        ("The worker is compatible with Python 3.9.", []),
        ("It does not work with Redis.", []),
        ("This requires a restart.", []),
        ("Found the issue - JWT expiry is set to 0.", []),
        ("The deployment requires a restart because the pool is cached.", [("deployment", "requires", "restart")]),
    ],
)
def test_a_statement_names_its_things_and_nothing_else(tmp_path: Path, said: str, facts: Stated) -> None:
    assert stated(remembered(tmp_path, after_an_edit(said))) == facts


def test_a_value_that_was_found_before_the_change_is_a_cause_and_not_required(tmp_path: Path) -> None:
    script = (
        Script("cause")
        .user("Fix the authentication bug")
        .agent("Found the issue - JWT expiry is set to 0. Let me fix it.")
        .edit("/srv/shop/auth.py", "expiry = 0", "expiry = 3600")
        .agent("Fixed! JWT expiry now set to 3600 seconds.")
    )

    problem = "Fix the authentication bug"
    assert stated(remembered(tmp_path, script)) == [
        (problem, "caused_by", "JWT expiry = 0"),
        (problem, "requires", "JWT expiry = 3600 seconds"),
    ]


def test_a_conflict_that_names_both_sides_stands_for_the_vague_one(tmp_path: Path) -> None:
    script = (
        Script("redis")
        .user("make it work with the Redis session store")
        .agent("Ah, Redis session store requires different config. Let me adjust...")
        .edit("/srv/shop/auth.py", "jwt()", "jwt(store)")
        .agent("Adjusted: the Redis session store conflicts with the default JWT config, so I pass the store.")
    )

    assert stated(remembered(tmp_path, script)) == [("Redis session store", "conflicts_with", "default JWT config")]
