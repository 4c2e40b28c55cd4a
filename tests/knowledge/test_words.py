"""What users' words mean: a plan handed over, an idea dropped, a refusal with a reason, an offer agreed to."""

from pathlib import Path

import pytest

from recollect.api import Memory
from recollect.knowledge.records import Fact, Fix
from recollect.model import schema
from tests.knowledge.sessions import Script, remembered


def decided(memory: Memory) -> list[Fact]:
    return memory.knowledge.decisions(everything=True)


def refused(reason: str) -> Script:
    script = Script("refusal").user("name the section")
    script._add(schema.TOOL_CALL, "ran make log", {"input": {}}, role="assistant", tool="Bash", call_id="call")
    fields = {"tool": "Bash", "call_id": "call", "status": "denied"}
    script._add(schema.HUMAN_INTERVENTION, f"refused: {reason}", {"output": reason}, role="user", **fields)
    return script.agent("ok")


def test_a_plan_handed_to_a_session_is_a_decision(tmp_path: Path) -> None:
    plan = (
        "Implement the following plan:\n\n# Plan: Use Redis for sessions\n\nPostgres is too slow for this many reads."
    )
    script = Script("plan")
    script._add(schema.USER_MSG, "Plan: Use Redis for sessions", {"text": plan}, role="user")
    script.agent("On it.")

    (fact,) = decided(remembered(tmp_path, script))

    assert (fact.method, fact.object) == ("plan", "Use Redis for sessions")
    assert fact.reason == "Postgres is too slow for this many reads."


def test_what_a_plan_says_is_no_wish_of_the_user(tmp_path: Path) -> None:
    plan = "Implement the following plan:\n\n# Plan: Use Redis\n\nAlways use a pool instead of single connections."
    script = Script("plan")
    script._add(schema.USER_MSG, "Plan: Use Redis", {"text": plan}, role="user")
    script.agent("On it.")

    assert [fact.method for fact in decided(remembered(tmp_path, script))] == ["plan"]


@pytest.mark.parametrize(
    ("proposal", "reply"),
    [
        ("rather than sqlite, could we use duckdb here?", "ok, leave it as it is then"),
        ("rather than sqlite, could we use duckdb here?", "thanks"),
        ("Let's use duckdb instead of sqlite.", "hm, never mind"),
        ("We should always use duckdb.", "fine, let's not"),
    ],
)
def test_a_proposal_that_was_dropped_is_no_wish(tmp_path: Path, proposal: str, reply: str) -> None:
    script = Script("idea").user(proposal).agent("That is risky: it locks the file.").user(reply).agent("Fine.")

    assert decided(remembered(tmp_path, script)) == []


@pytest.mark.parametrize(
    "words",
    [
        "I'm considering if we want to use GraphQL in the readme examples...",
        "the next problem is that instead of the full log we only commit the new lines, can you take a look?",
        "I think we should somehow prevent this from happening.",
        "Let's make some more changes to explain.",
    ],
)
def test_thinking_aloud_and_tasks_are_no_wishes(tmp_path: Path, words: str) -> None:
    assert decided(remembered(tmp_path, Script("said").user(words).agent("Hm."))) == []


def test_as_it_is_gives_no_reason(tmp_path: Path) -> None:
    script = Script("said").user("Always delete the home from the path as it is absolute, before storing.")

    assert decided(remembered(tmp_path, script))[0].reason is None


@pytest.mark.parametrize(
    "reason", ["use the pool, not a single connection", "in this repo always run make fmt before the tests"]
)
def test_a_refusal_that_states_a_rule_or_a_choice_is_a_decision(tmp_path: Path, reason: str) -> None:
    (fact,) = remembered(tmp_path, refused(reason)).knowledge.decisions()

    assert (fact.method, fact.object) == ("refusal", reason)


@pytest.mark.parametrize(
    "reason",
    [
        "please write down all the steps that we follow",
        "don't worry about the linter for now, just continue.",
        "break out into a separate type, this is now divergent",
        "what does lint say now?",
        "I've done it - keep going",
        "do we know what the prompt looks like?",
    ],
)
def test_a_step_a_question_or_a_pause_in_a_refusal_decides_nothing(tmp_path: Path, reason: str) -> None:
    assert decided(remembered(tmp_path, refused(reason))) == []


def agreed(answer: str) -> Script:
    script = Script("agreed").user("what about the two names?").agent(answer).user("yes")
    return script.edit("/srv/shop/a.go", "old", "new").agent("Done.")


def test_a_yes_to_an_explanation_decides_nothing(tmp_path: Path) -> None:
    answer = "The two identifiers exist because: `Name()` is short and url-safe. `Type()` is stored in persistent data."

    assert decided(remembered(tmp_path, agreed(answer))) == []


def test_an_agreement_is_to_the_offer_not_to_what_explains_it(tmp_path: Path) -> None:
    answer = "The transcript is supplementary, losing it is bad. Want me to add error logging to these three spots?"

    (fact,) = decided(remembered(tmp_path, agreed(answer)))

    assert fact.object == "Want me to add error logging to these three spots?"


def test_a_picked_heading_comes_with_what_it_says(tmp_path: Path) -> None:
    answer = "### Option 1: Remove\nNo prompt at all.\n### Option 2: Compromise\n\nAsk once and keep the answer.\n"
    script = Script("pick").user("how?").agent(answer).user("option 2").agent("Done.")

    (fact,) = decided(remembered(tmp_path, script))

    assert fact.object == "Compromise: Ask once and keep the answer."


def prefers(name: str, day: int, words: str) -> Script:
    return Script(name, day).user(words).agent("ok")


def test_the_reverse_of_a_wish_in_other_words_ends_it(tmp_path: Path) -> None:
    memory = remembered(
        tmp_path,
        prefers("one", 0, "Use npm instead of pnpm."),
        prefers("two", 3, "From now on use pnpm, not npm."),
        prefers("three", 6, "We decided against pnpm: use npm rather than pnpm from now on."),
    )

    assert [fact.session_uid for fact in memory.knowledge.decisions()] == ["scripted:three"]
    assert len(memory.knowledge.decisions(history=True)) == 3


def test_the_same_options_under_another_question_are_one_matter(tmp_path: Path) -> None:
    def asked(name: str, day: int, question: str, answer: str) -> Script:
        return Script(name, day).user("set up caching").ask(question, ["Redis", "Memcached"], answer)

    memory = remembered(
        tmp_path,
        asked("one", 0, "Which cache should we use?", "Memcached"),
        asked("two", 3, "Which cache do we want to use?", "Redis"),
        asked("other", 6, "Which broker should we use?", "Memcached"),
    )

    assert sorted(fact.object for fact in memory.knowledge.decisions()) == ["Memcached", "Redis"]
    assert {fact.session_uid for fact in memory.knowledge.decisions()} == {"scripted:two", "scripted:other"}


def explained(said: str, reply: str | None = None) -> Script:
    script = Script("why").user("make it build").run("make site", "Error: no page to write", 1).agent(said)
    script = script.user(reply) if reply else script
    return script.edit("/srv/shop/page.go", "n = 1", "n = 2").run("make site", "done")


def fix_of(folder: Path, script: Script) -> Fix:
    return remembered(folder, script).knowledge.fixes("Error: no page to write")[0]


@pytest.mark.parametrize(
    "said",
    [
        "I need to check the existing test files, one is missing.",
        "Found it. Let me read the missing file.",
        "I can see the issue.",
        "The test confirms the problem:",
    ],
)
def test_what_an_agent_is_about_to_do_is_no_explanation(tmp_path: Path, said: str) -> None:
    assert fix_of(tmp_path, explained(said)).why is None


@pytest.mark.parametrize(
    "reply", ["done, continue", "yes", "/github-pr-review", "--- FAIL: TestPool (3.72s)\nx", "why?"]
)
def test_a_word_to_go_on_is_no_request_for_the_fix(tmp_path: Path, reply: str) -> None:
    assert fix_of(tmp_path, explained("Hm.", reply)).quote is None


def test_a_request_for_the_fix_is_quoted(tmp_path: Path) -> None:
    assert fix_of(tmp_path, explained("Hm.", "write the second page, too")).quote == "write the second page, too"


@pytest.mark.parametrize(
    "message",
    [
        "I am getting an error when I change `, or the exact field ` of it",
        "it prints an error\n✓ Claude Code hooks installed\nwhy?",
    ],
)
def test_a_fragment_or_a_success_is_no_error(tmp_path: Path, message: str) -> None:
    script = Script("report").user(message).agent("I see.").edit("/srv/shop/a.go", "n = 1", "n = 2").agent("Done.")
    memory = remembered(tmp_path, script)

    assert memory.knowledge.fixes(", or the exact field") == memory.knowledge.fixes("✓ Claude Code hooks installed")
    assert memory.knowledge.facts("a.go")[0].predicate == "touches"
