"""A wish says what later readers want to know: of what it is, whole, and no task for once."""

from pathlib import Path

import pytest

from recollect.knowledge.records import Fact
from tests.knowledge.sessions import Script, remembered


def wishes(folder: Path, message: str, *, before: str = "", asked: str = "how is the shop built?") -> list[Fact]:
    """What is listed without `--all` of a message, after an answer of the agent."""
    script = Script("said").user(asked).agent(before) if before else Script("said")
    return remembered(folder, script.user(message).agent("Done.")).knowledge.decisions()


@pytest.mark.parametrize(
    "message",
    [
        "can you look at these tests? don't change anything, just let me know",
        "Then let's add some sort of log to the worker.",
        "Write the outline to a temporary file, don't show it",
        "can you write a script that would:\n- start a session, do not stash but show the branch\n- restore the files",
        "Which one is better?\n1. Asking only once and use the answer ever after.\n2. something else?",
        "(just a draft) and then let's put a longer version into `doc/shop.md`",
        "debug: the importer isn't writing rows - we think the last release should have added that",
        "make sure the ticket is in Project: Walrus",
        "=== Step 3 ===\nERROR: two carts\nThe first cart should NOT be counted.",
        "yes, let's go with B",
    ],
)
def test_an_order_for_once_is_not_listed(tmp_path: Path, message: str) -> None:
    assert wishes(tmp_path, message) == []


@pytest.mark.parametrize(
    "message",
    [
        "I want them all",
        "no, it should be the worktree and the new rows",
        "yeah let's add the type safety",
        "1. that is fine with me\n2. yes this is confusing, let's stop doing it if possible",
    ],
)
def test_a_wish_is_not_listed_if_nobody_can_tell_of_what_it_is(tmp_path: Path, message: str) -> None:
    assert wishes(tmp_path, message, before="The carts are kept in memory.") == []


@pytest.mark.parametrize(
    ("message", "whole"),
    [
        (
            "The new page lacks the totals. I'd like to bring that part back.",
            "The new page lacks the totals. I'd like to bring that part back.",
        ),
        (
            "I'd prefer that\n- each shop names its colours\n- the registry lists them",
            "I'd prefer that each shop names its colours; the registry lists them",
        ),
        (
            "ok, what I want is:\n\n- keep the grouping by day\n- drop the vertical line",
            "ok, what I want is: keep the grouping by day; drop the vertical line",
        ),
        (
            "We show the mail as it is. Instead, I'd like it to be masked. Looks fine else.",
            "We show the mail as it is. Instead, I'd like it to be masked.",
        ),
        (
            "can we rewrite the page about carts? Like for new readers. Also it needs no date",
            "can we rewrite the page about carts? Like for new readers. Also it needs no date",
        ),
    ],
)
def test_a_wish_is_whole(tmp_path: Path, message: str, whole: str) -> None:
    assert [fact.text for fact in wishes(tmp_path, message)] == [whole]


@pytest.mark.parametrize(
    ("before", "question"),
    [
        (
            "Both work. Want me to keep one log file per session or per worktree?",
            "Want me to keep one log file per session or per worktree?",
        ),
        (
            "Two ways.\n\n**Question:** Should the cart hold after a reset:\n1. Only the new rows\n2. All of them",
            "Question: Should the cart hold after a reset: Only the new rows All of them",
        ),
    ],
)
def test_an_answer_comes_with_the_question(tmp_path: Path, before: str, question: str) -> None:
    (fact,) = wishes(tmp_path, "no, it should be one per worktree", before=before)

    assert fact.text == f"no, it should be one per worktree (on “{question}”)"


def test_what_was_asked_before_is_no_topic_of_a_wish_that_answers_nothing(tmp_path: Path) -> None:
    (fact,) = wishes(
        tmp_path,
        "let's rename `cartRows` to `rows` in the whole importer",
        before="It is in cart.py:20.",
        asked="(with the line? :D)",
    )

    assert "on “" not in fact.text


def test_standing_wishes_and_contrasts_are_surer_than_plain_ones(tmp_path: Path) -> None:
    plain, contrast, standing = (
        wishes(tmp_path / str(number), words)[0].confidence
        for number, words in enumerate(
            [
                "I want to have telemetry in the shop",
                "Use Postgres instead of Redis for the carts",
                "Always mask the mail of a customer",
            ]
        )
    )

    assert plain < min(contrast, standing)


def test_a_wish_without_a_question_is_shown_with_the_title_of_its_session(tmp_path: Path) -> None:
    (wish,) = wishes(tmp_path, "Always sign every page", before="It has three parts.")

    assert wish.title == wish.about == "how is the shop built?"


def test_a_wish_that_begins_its_session_needs_no_title(tmp_path: Path) -> None:
    (wish,) = wishes(tmp_path, "Always sign every page of the album")

    assert wish.about is None
