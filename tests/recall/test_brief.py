"""What a session that begins is told of the last ones: each thing once, what counts for longest first."""

from pathlib import Path

import pytest

from recollect import analysis
from recollect.agents import adapters
from recollect.model import schema
from recollect.model.clock import now_ms
from recollect.recall.prepared import MOST_CHARS, read_brief
from tests.builders import AGENT, BEGIN_MS, ScriptedAdapter
from tests.knowledge.sessions import DAY_MS, Script, remembered

TODAY = (now_ms() - BEGIN_MS) // DAY_MS + 30  # a script's day


@pytest.fixture(autouse=True)
def _scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


def brief_of(folder: Path, *scripts: Script) -> str:
    remembered(folder, *scripts).close()
    brief = read_brief(str(folder / "store"), "/srv/shop")
    assert len(brief) <= MOST_CHARS
    return brief


def test_a_request_without_an_answer_is_told_once(tmp_path: Path) -> None:
    asked = "please move the orders to the new queue"

    brief = brief_of(
        tmp_path,
        Script("earlier").user(f"{asked} today"),
        Script("command", 1).user("/init"),
        Script("last", 2).user(asked),
    )

    assert brief.count("orders to the new queue") == 1 and "left open: 1 unanswered request" in brief
    assert "/init" not in brief


def test_only_standing_wishes_are_told(tmp_path: Path) -> None:
    lasting = Script("lasting").user("Always run the linter before you commit anything.").agent("I will.")
    passing = Script("passing", 1).user("Never mind the linter for now, don't use it this time.").agent("Done.")
    for number in range(5):
        passing.user(f"I want the heading of page {number} to be blue and large").agent("Done.")

    lines = [line for line in brief_of(tmp_path, lasting, passing).splitlines() if line.startswith("> - ")]

    assert lines == ["> - 2026-10-16, you said: Always run the linter before you commit anything."]


def test_what_the_user_had_remembered_comes_first(tmp_path: Path) -> None:
    lasting = Script("lasting").user("Always run the linter before you commit anything.").user("draw the walrus")
    with remembered(tmp_path, lasting) as memory:
        memory.knowledge.remember("Releases are made on Tuesdays", repo="shop")

    brief = read_brief(str(tmp_path / "store"), "/srv/shop")

    assert brief.index("Tuesdays") < brief.index("linter")


def test_after_an_upgrade_of_the_rules_everything_is_prepared_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = remembered(tmp_path, Script("lasting").user("Always run the linter before you commit anything."))
    for path in (tmp_path / "store" / "prepared" / "briefs").iterdir():
        path.write_text('{"folder": "/srv/shop", "records": []}')
    monkeypatch.setattr(analysis, "VERSION", analysis.VERSION + 1)

    memory.sweep()

    assert "linter" in read_brief(str(tmp_path / "store"), "/srv/shop")


def test_after_forgetting_a_session_the_next_sweep_prepares_everything_again(tmp_path: Path) -> None:
    lasting = Script("lasting").user("Always run the linter before you commit anything.")
    memory = remembered(tmp_path, lasting, Script("other", 1).user("feed the walrus"))
    memory.forget(memory.plan_forgetting("scripted:other"))
    assert read_brief(str(tmp_path / "store"), "/srv/shop") == ""

    memory.sweep()

    assert "linter" in read_brief(str(tmp_path / "store"), "/srv/shop")


def test_a_wish_that_points_at_something_unsaid_is_left_out(tmp_path: Path) -> None:
    named = "Never call `flush` in a loop, they must share that."

    brief = brief_of(tmp_path, Script("vague").user("Never do it like that again.").user(named).agent("I will not."))

    assert named in brief and "like that again" not in brief


def test_a_session_that_ended_with_a_plan_left_nothing_open_once_the_plan_is_carried_out(tmp_path: Path) -> None:
    planned = Script("planned").user("redraw the whole walrus page")
    handed = "Implement the following plan:\n\n# Plan: Walrus page\n\n1. Draw it."
    carried = Script("carried", 1)
    carried._add(schema.USER_MSG, "Plan: Walrus page", {"text": handed}, role="user")
    latest = Script("latest", 2).user("feed the seal").agent("Done.")

    without = brief_of(tmp_path / "without", planned, Script("other", 1).user("count the fish").agent("Six."), latest)
    brief = brief_of(tmp_path / "with", planned, carried.agent("Done."), latest)

    assert "Left open by scripted:planned" in without
    assert "redraw the whole walrus" not in brief
