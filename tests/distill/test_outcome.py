"""How sessions end. The wording of real sessions is judged by hand-made labels elsewhere; here are the rules."""

import pytest

from recollect.model import schema
from recollect.model.schema import ABANDONED, FAIL, SUCCESS, UNKNOWN
from tests.distill.sessions import Script, abandoned, distilled


def outcome(script: Script, session_class: str = schema.HUMAN) -> str:
    judged = distilled(script, session_class).digest.outcome
    assert 0 < judged.confidence < 1
    assert judged.reasons
    return judged.outcome


def test_thanks_at_the_end_mean_success() -> None:
    script = Script()
    script.user("fix it")
    script.test("exit 1: 1 failed", has_failed=True)
    script.answer("I changed the parser.")
    script.user("perfect, thanks!")
    script.answer("You are welcome.")

    assert outcome(script) == SUCCESS


def test_thanks_before_another_request_say_nothing_of_it() -> None:
    script = Script()
    script.user("fix it")
    script.answer("Done.")
    script.user("Thanks! Please update the readme")
    script.stop()

    assert outcome(script) == ABANDONED


def test_a_failing_test_run_at_the_end_means_failure() -> None:
    script = Script()
    script.user("fix the test")
    script.edit("calc.py")
    script.test("exit 1: 1 failed", has_failed=True)
    script.answer("One test remains red.")

    assert outcome(script) == FAIL


def test_a_claim_does_not_outweigh_a_failing_test_run() -> None:
    script = Script()
    script.user("fix the test")
    script.test("exit 1: 1 failed", has_failed=True)
    script.answer("Fixed, all tests pass.")

    assert outcome(script) == FAIL


def test_a_failure_that_passed_later_is_forgotten() -> None:
    script = Script()
    script.user("fix the test")
    script.test("exit 1: 1 failed", has_failed=True)
    script.edit("calc.py")
    script.test("3 passed")
    script.answer("Fixed.")

    assert outcome(script) == SUCCESS


@pytest.mark.parametrize(
    "text",
    [
        "I was not able to delete the file.",
        "I could not reach the server.",
        "I’m afraid I can’t do that.",
        "Не удалось собрать проект.",
    ],
)
def test_an_answer_that_says_it_could_not_be_done_means_failure(text: str) -> None:
    script = Script()
    script.user("do it")
    script.run("ls")
    script.answer(text)

    assert outcome(script) == FAIL


def test_an_answer_that_only_mentions_a_failure_does_not() -> None:
    script = Script()
    script.user("do it")
    script.edit("calc.py")
    script.answer("Fixed. The call failed before because the client could not connect; it now waits.")

    assert outcome(script) == SUCCESS


@pytest.mark.parametrize(
    ("error", "stopped_by"),
    [
        ("You've hit your limit · resets 4am (UTC)", "usage limit"),
        ("Claude AI usage limit reached|1757000000", "usage limit"),
        ("Credit balance is too low", "usage limit"),
        ("Prompt is too long", "prompt is too long"),
        ("API Error: 400 input length and `max_tokens` exceed context limit", "prompt is too long"),
        ("API Error: 429 rate_limit_error", "rate limit"),
        ("Invalid API key · Please run /login", "no access"),
        ("API Error: 400", "service error"),
        ("stream disconnected before completion", "service error"),
    ],
)
def test_a_service_that_ends_the_work_is_no_failure_of_it(error: str, stopped_by: str) -> None:
    script = Script()
    script.user("build the parser")
    script.edit("parser.py")
    script.add(schema.ERROR, error, role="assistant", status="failed")

    found = distilled(script).digest

    assert (found.outcome.outcome, found.outcome.stopped_by) == (ABANDONED, stopped_by)
    assert [quote.note for quote in found.open.unanswered] == [f"stopped: {stopped_by}"]


def test_an_answer_about_limits_is_not_stopped_by_one() -> None:
    script = Script()
    script.user("what happens at the limit?")
    script.answer("When you have used up your quota, the API says `usage limit reached`; wait for the reset.")

    assert distilled(script).digest.outcome.stopped_by is None


@pytest.mark.parametrize(
    ("answer", "stopped_by"),
    [("I need your approval to run the tests.", "permission refused"), ("The tests are in tests/; run them.", None)],
)
def test_work_that_was_refused_is_no_failure_of_it(answer: str, stopped_by: str | None) -> None:
    script = Script()
    script.user("Please run the tests")
    script.test("This command requires approval", has_failed=True)
    script.answer(answer)

    found = distilled(script).digest

    assert found.outcome.outcome != FAIL
    assert (found.outcome.stopped_by, found.tests.last, found.open.failing_tests) == (stopped_by, None, None)


def test_an_edit_that_was_not_allowed_is_told_even_if_the_agent_claims_it() -> None:
    script = Script()
    script.user("/init")
    refusal = "failed: Claude requested permissions to write, but you haven't granted it yet."
    script.call("wrote CLAUDE.md", refusal, schema.EDIT, tool="Write", has_failed=True)
    script.answer("I've created a CLAUDE.md file.")

    assert distilled(script).digest.outcome.stopped_by == "permission refused"


def test_a_long_answer_may_say_what_cannot_be_found() -> None:
    script = Script()
    script.user("search the web for their newest model")
    script.answer("I couldn't find any announcement of it. " + "The newest that are known are these two. " * 5)

    found = distilled(script).digest

    assert found.outcome.outcome != FAIL
    assert found.open.unanswered == ()


def test_an_interruption_nobody_went_on_from_means_abandoned() -> None:
    script = Script()
    script.user("do it")
    script.say("I begin.")
    script.stop()

    assert outcome(script) == ABANDONED


def test_an_interruption_somebody_went_on_from_does_not() -> None:
    script = Script()
    script.user("do it")
    script.stop()
    script.user("do it shorter")
    script.answer("Done.")

    assert outcome(script) == SUCCESS


@pytest.mark.parametrize("has_begun", [True, False])
def test_a_request_without_an_answer_means_abandoned(has_begun: bool) -> None:
    script = Script()
    script.user("do it")
    if has_begun:
        script.run("ls")

    assert outcome(script) == ABANDONED


def test_a_rewound_end_does_not_count() -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user("and that")
    script.stop()
    script.steps[2:] = [abandoned(step) for step in script.steps[2:]]

    assert outcome(script) == SUCCESS


@pytest.mark.parametrize("session_class", [schema.WARM_UP, schema.PROMPTS_ONLY])
def test_what_is_no_conversation_is_not_judged(session_class: str) -> None:
    script = Script()
    script.user("Warmup")
    script.answer("Ready.")

    assert outcome(script, session_class) == UNKNOWN


def test_nothing_asked_is_not_judged() -> None:
    script = Script()
    script.add(schema.LIFECYCLE, "turn started")

    assert outcome(script) == UNKNOWN


def test_a_question_back_leaves_it_open() -> None:
    script = Script()
    script.user("make it better")
    script.answer("Which part do you mean?")

    assert outcome(script) == UNKNOWN


@pytest.mark.parametrize(
    "answer", ["I need more information. Please provide the address of the server.", "I'll need your API key first."]
)
def test_an_answer_that_asks_for_what_the_work_needs_is_no_success(answer: str) -> None:
    script = Script()
    script.user("connect to the server")
    script.answer(answer)

    assert outcome(script) == UNKNOWN


def test_a_question_back_amid_an_unfinished_list_means_abandoned() -> None:
    script = Script()
    script.user("add it in all three places")
    script.todos(("one", "pending"), ("two", "pending"))
    script.answer("There is a configured default. Shall I go on with it?")

    assert outcome(script) == ABANDONED


def test_where_every_attempt_failed_a_claim_does_not_help() -> None:
    script = Script()
    script.user("fix the script")
    script.run("python boom.py", "exit 1: KeyError", has_failed=True)
    script.edit("boom.py", has_failed=True)
    script.answer("Created the fix. Shall I go on?")

    assert outcome(script) == FAIL


def test_one_edit_that_went_through_is_work() -> None:
    script = Script()
    script.user("fix the script")
    script.edit("boom.py", has_failed=True)
    script.edit("boom.py")
    script.answer("Fixed. Shall I go on?")

    assert outcome(script) == SUCCESS


def test_looking_is_no_work() -> None:
    script = Script()
    script.user("fix the script")
    script.run("git log --oneline | head -3")
    script.answer("Which script do you mean?")

    assert outcome(script) == UNKNOWN


def test_where_all_commands_failed_a_question_is_no_open_end_but_a_failure() -> None:
    script = Script()
    script.user("run the script")
    script.run("python boom.py", "exit 1: KeyError", has_failed=True)
    script.run("python helper.py", "exit 2: no such file", has_failed=True)
    script.answer("Both fail. Should I add a default?")

    assert outcome(script) == FAIL


def test_one_failed_command_before_a_question_decides_nothing() -> None:
    script = Script()
    script.user("run the script")
    script.run("python boom.py", "exit 1: KeyError", has_failed=True)
    script.answer("It raises KeyError. Should I add a default?")

    assert outcome(script) == UNKNOWN


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ("Two files are missing. Let me check what happened and recreate them:", ABANDONED),
        ("Good. Now let me run the tests.", ABANDONED),
        ("I'll start with the parser.", ABANDONED),
        ("Added the file. Let me know what you think.", SUCCESS),
        ("Added the file. It lets me know when a build ends.", SUCCESS),
        ("Added the file: it holds the two rules.", SUCCESS),
        ("Done. Let me walk you through: the first rule names the folder.", SUCCESS),
        ("The file is added. Here is the summary:", SUCCESS),
        ("Done. Now let me run the tests:", ABANDONED),
        ("Let me walk you through the file:", ABANDONED),
    ],
)
def test_words_that_announce_work_are_no_end(last: str, expected: str) -> None:
    script = Script()
    script.user("add the file")
    script.edit("rules.md")
    script.answer(last)

    assert outcome(script) == expected


def test_a_rewound_test_run_proves_nothing() -> None:
    script = Script()
    script.user("say hello")
    script.answer("Hello.")
    script.user("fix it")
    script.test("3 passed")
    script.steps[2:] = [abandoned(step) for step in script.steps[2:]]

    found = distilled(script)

    assert found.digest.outcome.reasons == ("the last request was answered",)
    assert (found.digest.tests.runs, found.digest.tests.last) == (1, None)


def test_a_test_run_before_the_rewind_still_counts() -> None:
    script = Script()
    script.user("fix it")
    script.test("exit 1: 1 failed", has_failed=True)
    script.answer("It is red.")
    script.user("again")
    script.test("3 passed")
    script.steps[4:] = [abandoned(step) for step in script.steps[4:]]

    found = distilled(script)

    assert found.digest.outcome.outcome == FAIL
    assert (found.digest.tests.runs, found.digest.tests.last) == (2, "failed")


def test_an_offer_after_the_work_does_not_undo_it() -> None:
    script = Script()
    script.user("add it")
    script.edit("calc.py")
    script.answer("Added. Shall I also write a test?")

    assert outcome(script) == SUCCESS


def test_an_answer_that_asks_to_try_again_leaves_it_open() -> None:
    script = Script()
    script.user("it still fails with the same error")
    script.edit("run.sh")
    script.answer("Try again: this should fix it.")

    assert outcome(script) == UNKNOWN


def test_a_slash_command_that_was_worked_on_is_a_request() -> None:
    script = Script()
    script.add(schema.LIFECYCLE, "/init")
    script.call("wrote NOTES.md", kind=schema.EDIT)
    script.say("I've created the file.")

    found = distilled(script)

    assert found.digest.outcome.outcome == SUCCESS
    assert [quote.text for quote in found.digest.requests] == ["/init"]
