"""Decisions of a talk, and later ones that amend them: what holds now comes first, with what held until then."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect.api import Memory
from recollect.cli.entry import main
from tests.knowledge.sessions import Script, remembered


def settled(name: str = "first", day: int = 1) -> Script:
    return (
        Script(name, day)
        .user("Post-mortem: the client retried every failed call and locked accounts. We need a retry policy.")
        .agent("I'd retry only server-side errors. How many attempts, and what backoff ceiling?")
        .user("Four attempts total, and cap the exponential backoff at 60 seconds.")
        .agent("Settled: `should_retry` allows 5xx and 429 only, at most 4 attempts, backoff capped at 60 seconds.")
    )


def amended() -> Script:
    return (
        Script("second", 9)
        .user("An update to the retry policy we settled: the gateway kills idle connections at 32 seconds.")
        .agent("Amending the policy: retry any 5xx plus 429; at most 4 attempts; backoff now caps at 30 seconds.")
        .user("That's the rule going forward, yes.")
        .agent("Noted.")
    )


def other() -> Script:
    return Script("other", 5).user("How does the cache decide what to drop?").agent("It drops what was used least.")


@pytest.fixture
def memory(tmp_path: Path) -> Memory:
    return remembered(tmp_path, settled(), other(), amended())


def test_an_agents_recap_that_stands_is_a_decision_and_a_talk_about_code_is_none(tmp_path: Path) -> None:
    facts = remembered(tmp_path, settled(), other()).knowledge.decisions()

    assert [(fact.method, fact.session_uid) for fact in facts] == [("recap", "scripted:first")]
    assert facts[0].text.startswith("`should_retry` allows 5xx and 429 only")


def test_a_recap_that_the_user_corrects_is_none(tmp_path: Path) -> None:
    corrected = settled().user("No — only 503 is to be retried, never any other 5xx, whatever the client says.")

    facts = remembered(tmp_path, corrected.agent("I see.")).knowledge.decisions()

    assert [fact.method for fact in facts] == ["correction"]


def test_a_recap_of_work_that_was_done_is_no_decision(tmp_path: Path) -> None:
    script = Script("work").user("fix it").run("make", "ok").agent("Final state: the importer must have both columns.")

    assert remembered(tmp_path, script).knowledge.decisions() == []


def test_what_was_amended_is_no_longer_valid_and_is_named_by_what_took_its_place(memory: Memory) -> None:
    (fact,) = memory.knowledge.decisions()

    assert fact.session_uid == "scripted:second" and "caps at 30 seconds" in fact.text
    assert fact.until_then is not None and "capped at 60 seconds" in fact.until_then


def test_why_answers_with_what_holds_now_even_in_other_words(memory: Memory) -> None:
    assert memory.knowledge.why("should_retry")[0].session_uid == "scripted:second"


def test_search_shows_the_amending_session_before_the_amended_one(memory: Memory) -> None:
    first, second = memory.search("should_retry")

    assert (first.session_uid, second.session_uid) == ("scripted:second", "scripted:first")
    assert first.decided is not None and "until then" in first.decided
    assert second.superseded_by == "scripted:second"


@pytest.mark.parametrize(
    ("query", "options"),
    [
        ("should_retry -session:second", {}),
        ("should_retry", {"exclude": ["scripted:second"]}),
        ("should_retry before:2026-10-20", {}),
    ],
)
def test_a_search_does_not_show_what_its_own_filters_leave_out_though_it_amends_a_hit(
    memory: Memory, query: str, options: dict[str, Any]
) -> None:
    hits = memory.search(query, **options)

    assert [hit.session_uid for hit in hits] == ["scripted:first"]


def test_a_search_on_the_terminal_says_what_holds_now(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(memory.settings.folder))

    shown = CliRunner().invoke(main, ["search", "should_retry"]).output

    assert shown.index("decided, now:") < shown.index("amended in")


def test_a_choice_takes_the_place_of_what_it_turns_down(tmp_path: Path) -> None:
    one = Script("one", 1).user("Use npm instead of yarn in this repo").agent("Fine.")
    two = Script("two", 5).user("From now on use pnpm instead of npm").agent("Fine.")

    (fact,) = remembered(tmp_path, one, two).knowledge.decisions()

    assert fact.session_uid == "scripted:two" and fact.until_then == "Use npm instead of yarn in this repo"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "From now on retry_call makes at most 5 attempts",
            "From now on retry_call makes at most 4 attempts instead",
        ),
        (
            "settled: retry_call makes 5 attempts, with a cap of 60 seconds",
            "Two updates to what we settled for retry_call: at most 4 attempts, superseding the old cap of 60 seconds:"
            " from now on 30 seconds instead",
        ),
        (
            "We decided to go with Postgres because of JSONB",
            "We decided to go with SQLite instead of Postgres because it is local",
        ),
        ("Always answer in German", "Always answer in English instead"),
        ("I want you to always answer in French", "From now on answer in Spanish, please"),
        ("Always indent with tabs in this repo", "From now on indent with spaces in this repo instead"),
        ("Always name branches after the ticket", "Never name branches after the ticket"),
        ("From now on write the changelog in Markdown", "Always write the changelog in AsciiDoc, not in Markdown"),
        ("Always answer in German", "Always answer in English instead, my colleagues read along"),
        ("以后都用中文回答我的问题", "以后改用英文回答我的问题"),
        ("Immer auf Deutsch antworten bitte", "Ab jetzt immer auf Englisch antworten"),
    ],
)
def test_the_same_wish_with_another_value_takes_the_place_of_the_earlier_one(
    tmp_path: Path, before: str, after: str
) -> None:
    scripts = (Script("one", 1).user(before).agent("Fine."), Script("two", 5).user(after).agent("Fine."))

    (fact,) = remembered(tmp_path, *scripts).knowledge.decisions()

    assert (fact.text, fact.until_then) == (after, before)


def test_a_wish_that_corrects_a_proposal_is_found_once(tmp_path: Path) -> None:
    said = "No, avoid Redis here. We run serverless, connections do not survive. Use DynamoDB instead."
    script = Script("shop").user("Set up the session store").agent("I would use Redis for the sessions.").user(said)

    (fact,) = remembered(tmp_path, script.agent("Understood.")).knowledge.decisions(everything=True)

    assert (fact.choice, fact.reason) == ("DynamoDB", "We run serverless, connections do not survive.")


def test_wishes_with_numbers_of_different_things_both_hold(tmp_path: Path) -> None:
    one = Script("one", 1).user("From now on retry_call makes at most 5 attempts").agent("Fine.")
    two = Script("two", 5).user("From now on import_all reads at most 4 files").agent("Fine.")

    assert len(remembered(tmp_path, one, two).knowledge.decisions()) == 2


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("Always run the linter before you commit", "Always run the tests before you commit"),
        ("Never commit directly to main", "Never commit directly to develop"),
        ("Always use snake_case for files", "Always use kebab-case for branches instead"),
        ("Always answer in German", "Always write the docs in English"),
    ],
)
def test_another_wish_in_like_words_leaves_the_earlier_one(tmp_path: Path, before: str, after: str) -> None:
    scripts = (Script("one", 1).user(before).agent("Fine."), Script("two", 5).user(after).agent("Fine."))

    assert [fact.text for fact in remembered(tmp_path, *scripts).knowledge.decisions()] == [after, before]


def test_what_is_too_unsure_to_be_listed_waits_for_a_yes_or_no(tmp_path: Path) -> None:
    memory = remembered(tmp_path, *(Script(f"s{day}", day).user(f"Always use port {day} for now") for day in range(5)))

    waiting = memory.knowledge.candidates()
    memory.knowledge.judge(waiting[0].fact_uid, "promoted")

    assert [fact.text for fact in waiting] == [f"Always use port {day} for now" for day in (4, 3, 2)]
    assert [fact.text for fact in memory.knowledge.decisions()] == ["Always use port 4 for now"]
    assert len(memory.knowledge.candidates()) == 3 and waiting[0] not in memory.knowledge.candidates()
