"""A prompt brings an earlier session to mind only where the user asked for it, and only when it clearly fits."""

import random
import shutil

import pytest
from click.testing import CliRunner

from recollect.api import open_memory
from recollect.cli import main
from tests.hooks.conftest import Desk
from tests.hooks.test_fixes import ERROR, _prepare
from tests.mcp.test_red_team import POISON, require_harmless

EARLIER = "5f0c2f6e-0000-4000-8000-000000000009"
REQUEST = "Please move the walrus pool behind the penguin house before winter and paint its wooden fence green"


def _set(desk: Desk, monkeypatch: pytest.MonkeyPatch, key: str, value: str) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))
    done = CliRunner().invoke(main, ["config", key, value])
    assert done.exit_code == 0, done.output


@pytest.fixture
def asked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """A desk where this was asked before, and prompts are looked up."""
    desk.write(EARLIER, REQUEST)
    desk.sweep()
    _set(desk, monkeypatch, "hooks.prompts", "true")
    return desk


def test_prompts_are_not_looked_up_unless_asked_for(desk: Desk) -> None:
    desk.write(EARLIER, REQUEST)
    desk.sweep()

    assert desk.hook("UserPromptSubmit", prompt=REQUEST) == ""


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_same_request_brings_the_earlier_session_once(asked: Desk, agent: str) -> None:
    told = asked.added("UserPromptSubmit", agent=agent, prompt=f"{REQUEST}, thanks")

    assert EARLIER in told and f"> {REQUEST}" in told
    assert asked.hook("UserPromptSubmit", agent=agent, prompt=REQUEST) == ""


def test_a_prompt_is_looked_up_without_opening_the_store(asked: Desk) -> None:
    for path in asked.store.glob("*.db*"):
        path.unlink()

    assert EARLIER in asked.added("UserPromptSubmit", prompt=REQUEST)


def test_a_request_of_a_group_is_not_brought(asked: Desk) -> None:
    with open_memory(asked.store) as memory:
        memory.groups.add("family", asked.project)
    shutil.rmtree(asked.store / "prepared")
    asked.write(EARLIER, REQUEST, "and paint it")
    asked.sweep()

    assert asked.hook("UserPromptSubmit", prompt=REQUEST) == ""
    assert not list(asked.store.glob("prepared/requests/*"))


def test_an_error_in_a_prompt_brings_its_fix(asked: Desk) -> None:
    _prepare(asked)

    assert "edited walrus.py" in asked.added("UserPromptSubmit", prompt=f"I am getting this again:\n{ERROR}")


def test_an_agent_that_throws_the_answer_away_gets_none(asked: Desk) -> None:
    assert asked.hook("UserPromptSubmit", agent="grok", prompt=REQUEST) == ""


def test_two_hundred_other_prompts_bring_nothing(asked: Desk) -> None:
    from recollect.hooks.answers import HookEvent, hooks_of_agent
    from recollect.hooks.fixes import find_reminder

    chance = random.Random(3)
    words = [*REQUEST.lower().split(), "seal", "ticket", "gate", "fish", "keeper", "clock", "paint", "roof", "count"]
    hooks = hooks_of_agent("claude")
    assert hooks is not None
    for number in range(200):
        prompt = " ".join(chance.sample(words, chance.randrange(1, 9))) + f" number {number}"
        payload = {"hook_event_name": "UserPromptSubmit", "session_id": "x", "cwd": str(asked.project)}
        event = HookEvent(hooks, payload | {"prompt": prompt})
        assert find_reminder(str(asked.store), event) == ("", "", ""), prompt


def test_a_poisoned_request_stays_in_its_fence(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [
        f"{REQUEST} {number} {poison.format(*['CANARY'] * poison.count('{}'))}" for number, poison in enumerate(POISON)
    ]
    for number, text in enumerate(texts):
        desk.write(f"5f0c2f6e-0000-4000-8000-0000000001{number:02d}", text)
    desk.sweep()
    _set(desk, monkeypatch, "hooks.prompts", "true")

    answers = [desk.added("UserPromptSubmit", prompt=text, session=f"s{n}") for n, text in enumerate(texts)]

    assert sum(map(bool, answers)) >= len(texts) // 2
    for answer in filter(None, answers):
        require_harmless(answer)


def test_each_kind_can_be_limited_to_projects(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.write(EARLIER, REQUEST)
    desk.sweep()
    inside, outside = desk.project / "deep", desk.folder / "elsewhere"
    for folder in (inside, outside):
        folder.mkdir()
    _set(desk, monkeypatch, "hooks.fixes", f'["{desk.project}"]')
    _set(desk, monkeypatch, "hooks.brief", "false")
    _prepare(desk)

    assert desk.hook("SessionStart", source="clear") == ""
    assert desk.added("PostToolUseFailure", error=ERROR, cwd=str(inside))
    assert desk.hook("PostToolUseFailure", error=ERROR, cwd=str(outside), session="other") == ""


def test_a_sweep_takes_over_what_was_written_into_the_settings_by_hand(desk: Desk) -> None:
    desk.store.mkdir(mode=0o700)
    (desk.store / "config.toml").write_text("[hooks]\nbrief = false\n")
    desk.write(EARLIER, REQUEST)
    desk.sweep()

    assert desk.hook("SessionStart", source="clear") == ""


@pytest.mark.parametrize("value", ["7", '"yes"', "[1]"])
def test_a_value_of_the_wrong_type_is_refused(desk: Desk, monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    desk.write(EARLIER, REQUEST)
    desk.sweep()
    monkeypatch.setenv("RECOLLECT_HOME", str(desk.store))

    done = CliRunner().invoke(main, ["config", "hooks.prompts", value])

    assert done.exit_code != 0 and "hooks.prompts" in done.output


def test_a_short_request_may_mean_something_else_each_time(asked: Desk) -> None:
    short = "can you review the changes of the walrus branch"
    asked.write(EARLIER, short)
    asked.sweep()

    assert asked.hook("UserPromptSubmit", prompt=short) == ""
