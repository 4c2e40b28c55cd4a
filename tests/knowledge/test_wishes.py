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


def test_a_wish_without_a_question_is_shown_with_the_title_of_its_session(tmp_path: Path) -> None:
    (wish,) = wishes(tmp_path, "Always sign every page", before="It has three parts.")

    assert wish.title == wish.about == "how is the shop built?"


def test_a_wish_that_begins_its_session_needs_no_title(tmp_path: Path) -> None:
    (wish,) = wishes(tmp_path, "Always sign every page of the album")

    assert wish.about is None
