"""Where no decision or fix is on record, the exchanges that discussed the matter answer."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect import to_json
from recollect.api import Memory
from recollect.cli import main
from recollect.knowledge import Fact
from recollect.recall import Discussion
from tests.builders import Home
from tests.conftest import REPOSITORY
from tests.knowledge.sessions import Script, remembered
from tests.knowledge.test_decisions import chosen
from tests.retention.rig import evict_all, opened
from tests.test_api import breaches

SCHEMA = REPOSITORY / "docs" / "schemas" / "discussion.json"
OFFER = "Stale locks block the review. They could expire after ten minutes. Should I do that?"


def discussed() -> Script:
    return (
        Script("talk")
        .user("why does the review never start?")
        .agent(f"The lock file is old.\n\n{OFFER}")
        .user("go with ten, but only for notifications")
        .agent("Done.")
        .user("what does the changelog say?")
        .agent("It lists the releases.")
    )


def test_a_topic_without_a_decision_is_answered_with_what_was_said(tmp_path: Path) -> None:
    (answer,) = remembered(tmp_path, discussed()).knowledge.why("stale locks")

    assert isinstance(answer, Discussion)
    assert answer.request == "why does the review never start?"
    assert answer.answer is not None and answer.answer.startswith("Stale locks block the review.")
    assert answer.reply == "go with ten, but only for notifications"


def test_a_decision_comes_before_what_was_said(tmp_path: Path) -> None:
    memory = remembered(tmp_path, chosen("one", 0, "Redis"), discussed())

    answers = memory.knowledge.why("session store")

    assert isinstance(answers[0], Fact) and answers[0].object == "Redis"


def test_a_fact_with_one_of_two_words_is_no_answer(tmp_path: Path) -> None:
    answers = remembered(tmp_path, chosen("one", 0, "Redis")).knowledge.why("store backups")

    assert not any(isinstance(answer, Fact) for answer in answers)


def test_where_no_fact_has_most_of_the_words_one_with_half_of_them_is_named(tmp_path: Path) -> None:
    memory = remembered(tmp_path, chosen("one", 0, "Redis"), discussed())

    answers = memory.knowledge.why("Redis store nightly backups")

    assert [isinstance(answer, Fact) for answer in answers].count(True) == 1


def test_each_exchange_is_named_once(tmp_path: Path) -> None:
    script = Script("twice").user("is the lock stale?").agent("The lock is stale.").agent("A stale lock blocks it.")

    assert len(remembered(tmp_path, script).knowledge.discussions("stale lock")) == 1


def test_the_running_session_is_no_answer(tmp_path: Path) -> None:
    assert remembered(tmp_path, discussed()).knowledge.discussions("stale locks", exclude=["talk"]) == []


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Memory:
    failing = (
        Script("failing")
        .user("make the lint pass")
        .run("make lint", "lint.go:7: directive needs an explanation (nolintlint)", 1)
        .agent("The linter wants a reason after each directive, so the rule has to go.")
    )
    made = remembered(tmp_path, discussed(), failing)
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))
    return made


def shown(*arguments: str) -> str:
    answer = CliRunner().invoke(main, list(arguments))
    assert answer.exit_code == 0, answer.output
    return answer.output


def test_the_command_names_the_exchange_and_how_to_open_it(memory: Memory) -> None:
    answer = shown("why", "stale", "locks")

    assert answer.startswith("No decision on record about stale locks. It was discussed in:")
    assert "then you: go with ten, but only for notifications" in answer
    assert "recollect show talk --at 2" in answer
    (exchange,) = json.loads(shown("why", "stale", "locks", "--json"))
    assert exchange["seq"] == 2
    assert breaches(json.loads(SCHEMA.read_text("utf-8")), exchange) == []


def test_an_error_without_a_fix_is_answered_with_what_the_agent_said_next(memory: Memory) -> None:
    answer = shown("fix", "lint.go:9: directive needs an explanation (nolintlint)")

    assert answer.startswith("No fix of this error is on record.")
    assert "agent: The linter wants a reason after each directive" in answer


def test_of_a_whole_output_the_line_that_says_what_is_wrong_counts(memory: Memory) -> None:
    output = "> make lint\nreading 14 files of the shop\nlint.go:9: directive needs an explanation (nolintlint)\nfailed"

    assert [exchange.request for exchange in memory.knowledge.discussions(output, is_error=True)] == [
        "make the lint pass"
    ]


def test_a_goal_nobody_reached_is_answered_with_where_it_came_up(memory: Memory) -> None:
    assert "“why does the review never start?”" in shown("how", "expire", "locks")


def test_an_exchange_with_few_of_the_words_is_no_answer(memory: Memory) -> None:
    assert memory.knowledge.discussions("redis lock timeouts of workers") == []
    assert memory.knowledge.discussions("???") == []
    assert memory.knowledge.discussions("ENOENT: no such directive: redis", is_error=True) == []


def test_the_calls_that_followed_an_error_are_named(tmp_path: Path) -> None:
    script = (
        Script("pull")
        .user("get the news")
        .run("git pull", "fatal: need to say how to reconcile the branches", 1)
        .run("git fetch", "ok")
        .agent("Fetched.")
    )

    (exchange, *_) = remembered(tmp_path, script).knowledge.discussions("need to say how to reconcile", is_error=True)

    assert exchange.next_steps == ("ran git fetch",)


def test_calls_that_followed_are_named_without_the_folder_that_they_went_to(tmp_path: Path) -> None:
    folder = "/srv/" + "a/very/long/folder/" * 12
    script = (
        Script("build")
        .user("build it")
        .run(f"cd {folder} && npm run build -- --mode=production", "Error: Cannot find module 'quokkafish'", 1)
        .run(f"cd {folder} && npm run build -- --mode=development", "built")
        .agent("It builds.")
    )

    (exchange, *_) = remembered(tmp_path, script).knowledge.discussions("Cannot find module quokkafish", is_error=True)

    assert exchange.next_steps == ("ran npm run build -- --mode=development",)


def test_an_evicted_session_answers_from_its_digest_and_says_that_its_detail_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "home")
    script = Script("gone").user("why does the importer drop umlauts?").run("make import", "ok")
    home.write("gone", *script.agent("It decoded latin-1, and decodes utf-8 now.").user("Good.").records)
    memory = opened(tmp_path / "store", home)
    memory.sweep()
    evict_all(memory)
    monkeypatch.setenv("RECOLLECT_HOME", str(memory.settings.folder))

    (answer,) = memory.knowledge.why("importer umlauts", exclude=())
    shown = CliRunner().invoke(main, ["why", "importer umlauts"]).output
    way = CliRunner().invoke(main, ["how", "importer umlauts"]).output

    assert isinstance(answer, Discussion) and answer.evicted
    assert answer.answer == "It decoded latin-1, and decodes utf-8 now."
    assert breaches(json.loads(SCHEMA.read_text("utf-8")), json.loads(json.dumps(to_json(answer)))) == []
    assert "evicted, recollect digest gone" in shown and "evicted, recollect digest gone" in way
    assert "make" in way
