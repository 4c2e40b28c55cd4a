"""Each signal: seen where it is, and not seen in what only looks like it."""

import pytest

from recollect.api import Memory
from recollect.digest.outcome import CHURN_ROUNDS, LOOP_ATTEMPTS, REPEATED_TIMES, SPIKE_LEAST_TOKENS
from recollect.digest.trace import IDLE_MS
from recollect.model import schema
from recollect.model.schema import Signal
from recollect.store import Response
from tests.conftest import SHARED, needs_shared, swept
from tests.distill.sessions import MINUTE_MS, Script, abandoned, distilled


def found(script: Script, name: str, session_class: str = schema.HUMAN) -> list[Signal]:
    return [signal for signal in distilled(script, session_class).signals if signal.signal == name]


def test_a_call_that_fails_again_and_again_is_a_loop() -> None:
    script = Script()
    script.run("make build", "exit 2: boom", has_failed=True)
    retries = [
        script.run("make build", "exit 2: boom", has_failed=True, is_retry=True)[0] for _ in range(LOOP_ATTEMPTS - 1)
    ]

    (signal,) = found(script, schema.RETRY_LOOP)

    assert (signal.count, signal.detail) == (LOOP_ATTEMPTS, "ran make build")
    assert signal.evidence == tuple(retry.uid for retry in retries)


def test_one_try_less_is_no_loop() -> None:
    script = Script()
    script.run("make build", "exit 2: boom", has_failed=True)
    for _ in range(LOOP_ATTEMPTS - 2):
        script.run("make build", "exit 2: boom", has_failed=True, is_retry=True)

    assert found(script, schema.RETRY_LOOP) == []


def test_different_calls_tried_again_once_each_are_no_loop() -> None:
    script = Script()
    for name in ("a", "b", "c", "d"):
        script.run(f"make {name}", "exit 2: boom", has_failed=True)
        script.run(f"make {name}", "exit 2: boom", has_failed=True, is_retry=True)

    assert found(script, schema.RETRY_LOOP) == []


def test_a_service_that_keeps_failing_is_no_signal_of_the_session() -> None:
    script = Script()
    for _ in range(LOOP_ATTEMPTS):
        script.add(schema.RETRY, "the model service failed, trying again: 529", role="system", status="retrying")
        script.add(schema.ERROR, "API Error: 529 Overloaded", role="assistant", status="failed")
        script.call("Task", "failed: API Error: 529 Overloaded", has_failed=True)

    assert distilled(script).signals == ()


def test_an_error_is_the_same_whatever_numbers_and_paths_are_in_it() -> None:
    script = Script()
    for number in range(REPEATED_TIMES):
        script.run(f"step {number}", f"exit 1: cannot open /tmp/x/{number}.txt at line {number}", has_failed=True)

    (signal,) = found(script, schema.REPEATED_ERROR)

    assert signal.count == REPEATED_TIMES


@pytest.mark.parametrize("text", ["exit 1", "exit 1:", "failed: Error"])
def test_an_exit_code_alone_is_no_repeated_error(text: str) -> None:
    script = Script()
    for _ in range(REPEATED_TIMES + 1):
        script.run("grep nothing", text, has_failed=True)

    assert found(script, schema.REPEATED_ERROR) == []


def test_different_errors_are_not_repeated() -> None:
    script = Script()
    for name in ("KeyError", "ValueError", "TypeError"):
        script.run("x", f"exit 1: {name}", has_failed=True)

    assert found(script, schema.REPEATED_ERROR) == []


def test_tests_that_fail_and_then_pass_are_a_flip() -> None:
    script = Script()
    script.test("exit 1: 1 failed", has_failed=True)
    script.edit("calc.py")
    script.test("3 passed")

    (signal,) = found(script, schema.TEST_FLIP)

    assert signal.evidence == (script.steps[1].uid, script.steps[-1].uid)


def test_a_runners_task_for_the_tests_is_a_test_run() -> None:
    script = Script()
    script.run("mise run test", "exit 1: FAIL", has_failed=True)
    script.run("mise run test", "ok")

    assert len(found(script, schema.TEST_FLIP)) == 1


@pytest.mark.parametrize(
    ("command", "output", "runs", "failures"),
    [
        ("mise run fmt && mise run lint && mise run test", "exit 1: [lint] ERROR task failed", 1, 0),
        ("mise run fmt && mise run lint && mise run test", "exit 1: [test] ERROR task failed", 1, 1),
        ("mise run test", "exit 1: the server did not come up", 1, 1),
        ("test -f Makefile && make", "exit 1: no rule", 0, 0),
    ],
)
def test_what_fails_before_the_tests_says_nothing_of_them(command: str, output: str, runs: int, failures: int) -> None:
    script = Script()
    script.run(command, output, has_failed=True)

    tests = distilled(script).digest.tests

    assert (tests.runs, tests.failures) == (runs, failures)


@pytest.mark.parametrize(
    ("command", "output", "failures"),
    [
        ("npm run lint\nnpm test", "exit 1: src/a.ts is not formatted", 0),
        ("npm run lint\nnpm test", "exit 1: \u2716 3 problems (3 errors, 0 warnings)", 0),
        ("npm run lint && npm test", "exit 1: Found 2 errors in 1 file (checked 9 source files)", 0),
        ("npm run lint\nnpm test", "exit 1: Tests: 1 failed, 2 passed", 1),
        ("npm test\nnpm run lint", "exit 1: it broke", 0),
        ("npx jest", "exit 1: it broke", 1),
    ],
)
def test_a_check_on_a_line_before_the_tests_fails_for_itself(command: str, output: str, failures: int) -> None:
    script = Script()
    script.test(output, command=command, has_failed=True)

    tests = distilled(script).digest.tests

    assert (tests.runs, tests.failures) == (1, failures)


@pytest.mark.parametrize(
    ("command", "output", "has_failed"),
    [
        ("pytest -q | tail -3", "no tests ran in 0.01s", False),
        ("pytest -k walrus", "exit 5: collected 0 items", True),
        ("pytest; true", "platform linux\ncollected 0 items\n\n", False),
        ("python -m unittest", "Ran 0 tests in 0.000s\n\nOK", False),
        ("jest --passWithNoTests", "No tests found, exiting with code 0", False),
        ("go test ./...", "?   \texample.com/shop\t[no test files]", False),
        ("cargo test", "running 0 tests\n\ntest result: ok. 0 passed; 0 failed; 0 ignored", False),
    ],
)
def test_a_run_without_a_test_has_neither_passed_nor_failed(command: str, output: str, has_failed: bool) -> None:
    script = Script()
    script.test(output, command=command, has_failed=has_failed)

    tests = distilled(script).digest.tests

    assert (tests.runs, tests.failures, tests.unfinished, tests.last) == (1, 0, 1, None)


@pytest.mark.parametrize(
    ("output", "last"),
    [
        ("ok  \texample.com/shop\t0.1s\n?   \texample.com/cmd\t[no test files]", "passed"),
        ("test result: ok. 3 passed; 0 failed\n\nDoc-tests shop\nrunning 0 tests", "passed"),
        ("--- FAIL: TestCart\n?   \texample.com/cmd\t[no test files]", "failed"),
        ("collected 0 items / 1 error", "failed"),
    ],
)
def test_a_package_without_tests_says_nothing_of_the_others(output: str, last: str) -> None:
    script = Script()
    script.test(output, has_failed=last == "failed")

    assert distilled(script).digest.tests.last == last


def test_a_failed_chain_is_laid_to_the_program_that_failed() -> None:
    script = Script()
    script.run("gofmt -w . && golangci-lint run", "exit 1: 3 issues", has_failed=True)  # either may have
    script.run("cd web && golangci-lint run", "exit 1: 3 issues", has_failed=True)
    script.run("git add -A && git status", "exit 128: fatal: adding files failed", has_failed=True)
    script.run("mkdir -p /srv/x && ls /srv/x", "exit 1: mkdir: cannot create directory", has_failed=True)
    script.run("mkdir -p /srv/x && ls /srv/x")

    told = {tally.name: (tally.count, tally.failures) for tally in distilled(script).digest.commands}

    assert told == {"gofmt": (1, 0), "golangci-lint": (2, 1), "git add": (1, 1), "mkdir": (2, 1), "ls": (1, 0)}


def test_tests_that_pass_and_then_fail_are_no_flip() -> None:
    script = Script()
    script.test("3 passed")
    script.test("exit 1: 1 failed", has_failed=True)

    assert found(script, schema.TEST_FLIP) == []


def test_another_suite_that_passes_is_no_flip() -> None:
    script = Script()
    script.test("exit 1: 1 failed", has_failed=True)
    script.test("ok", command="npm test")

    assert found(script, schema.TEST_FLIP) == []


def test_a_pipe_hides_the_exit_code_but_not_the_failure() -> None:
    script = Script()
    script.test("1 failed, 2 passed in 0.1s", command="pytest -q | tail -3")
    script.test("3 passed in 0.1s", command="pytest -q | tail -3")

    assert len(found(script, schema.TEST_FLIP)) == 1


def test_a_run_that_timed_out_says_nothing_of_the_tests() -> None:
    script = Script()
    script.test("command timed out", has_failed=True)
    script.test("3 passed")

    assert found(script, schema.TEST_FLIP) == []


def test_a_file_edited_after_each_failure_is_churn() -> None:
    script = Script()
    script.edit("calc.py")
    for _ in range(CHURN_ROUNDS):
        script.test("exit 1: 1 failed", has_failed=True)
        script.edit("calc.py")

    (signal,) = found(script, schema.EDIT_CHURN)

    assert (signal.detail, signal.count) == ("calc.py", CHURN_ROUNDS)


def test_many_edits_without_a_failure_are_no_churn() -> None:
    script = Script()
    for _ in range(CHURN_ROUNDS * 5):
        script.edit("calc.py")
        script.test("3 passed")

    assert found(script, schema.EDIT_CHURN) == []


def test_a_file_edited_after_each_complaint_is_churn() -> None:
    script = Script()
    script.user("Make the page blue")
    script.edit("page.css")
    for _ in range(CHURN_ROUNDS):
        script.answer("It is blue.")
        script.user("it doesn't work")
        script.edit("page.css")

    assert [signal.detail for signal in found(script, schema.EDIT_CHURN)] == ["page.css"]


def test_a_file_edited_for_new_requests_is_no_churn_whatever_failed_before() -> None:
    script = Script()
    for number in range(CHURN_ROUNDS * 2):
        script.user(f"Please write chapter {number}")
        script.edit("book.md")
        script.run("python boom.py", "exit 1: KeyError", has_failed=True)
        script.answer("Chapter written; the script fails.")

    assert found(script, schema.EDIT_CHURN) == []


def test_a_file_edited_once_for_each_new_request_is_no_churn_though_its_test_fails_first() -> None:
    script = Script()
    for number in range(CHURN_ROUNDS + 2):
        script.user(f"Please fix the failing test (round {number})")
        script.test("exit 1: 1 failed", has_failed=True)
        script.edit("calc.py")
        script.test("3 passed")

    assert found(script, schema.EDIT_CHURN) == []


def test_an_edit_that_did_not_fit_at_first_is_no_churn() -> None:
    script = Script()
    for _ in range(CHURN_ROUNDS * 2):
        script.edit("calc.py", has_failed=True)
        script.edit("calc.py")

    assert found(script, schema.EDIT_CHURN) == []


def test_failures_before_edits_of_other_files_are_no_churn() -> None:
    script = Script()
    for number in range(CHURN_ROUNDS * 2):
        script.edit(f"file{number}.py")
        script.test("exit 1: 1 failed", has_failed=True)

    assert found(script, schema.EDIT_CHURN) == []


@pytest.mark.parametrize(
    "text",
    [
        "no, that's not what I asked for",
        "That is wrong, the timeout is in seconds",
        "still getting the same error",
        "it doesn't work",
        "why did you delete the test?",
        "revert that",
        "нет, верни как было",
        "не работает",
        "違います、戻してください",
        "不对，应该用另一个接口",
        "geht immer noch nicht",
        "das stimmt nicht",
        "du hast die Tests gelöscht",
        "tu t'es trompé",
        "te equivocaste",
        "hai sbagliato",
        "to jest źle",
        "ты ошибся",
        "你理解错了",
        "それは間違いです",
        "bu yanlış",
        "nej, det är fel",
        "linting is failing now",
        "something broke streaming",
        "nothing was written to the file",
        "Traceback (most recent call last): File run.py, line 3",
    ],
)
def test_words_that_set_the_agent_right_are_a_correction(text: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    corrected = script.user(text)

    (signal,) = found(script, schema.HUMAN_CORRECTION)

    assert signal.evidence == (corrected.uid,)


@pytest.mark.parametrize(
    "text",
    [
        "now add a note to the readme",
        "no problem, go on",
        "thanks, that works",
        "I know it takes long, continue",
        "notice how the tests do not cover this: add some",
        "why does the parser need two passes?",
        "wonderful, and the other one?",
        "теперь добавь тест",
        "нет проблем, продолжай",
        "nein danke, weiter",
        "wait for the build, then merge",
        "stop words should be removed from the index",
        "停车场页面加一个按钮",
        "别的都好",
        "make sure that nothing is written before the check",
        "look into the job that is failing since May",
        "print the traceback (most recent call last) in red",
        "Subagent tests can panic on agent errors\n\nLow Severity\n\nThe result is still wrong when it is nil",
    ],
)
def test_words_that_only_go_on_are_no_correction(text: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user(text)

    assert found(script, schema.HUMAN_CORRECTION) == []


@pytest.mark.parametrize(
    ("text", "is_correction"),
    [
        ("use a shorter sleep", True),
        ("go back to the old parser", True),
        ("sort the list first", True),
        ("continue, but leave the tests alone", True),
        ("go on", False),
        ("continue", False),
        ("ok, continue.", False),
        ("yes", False),
        ("sorry. push up and make a pr", False),
        ("продолжай", False),
        ("继续", False),
    ],
)
def test_words_after_a_stop_set_the_agent_right_unless_they_only_go_on(text: str, is_correction: bool) -> None:
    script = Script()
    script.user("Fix the failing test")
    script.say("I look.")
    script.stop()
    script.user(text)

    assert bool(found(script, schema.HUMAN_CORRECTION)) is is_correction


@pytest.mark.parametrize(
    "words",
    [
        "You're absolutely right! Let me move it.",
        "Good catch - the test would not notice.",
        "Du hast recht, das gehört dorthin.",
        "Вы правы, исправляю.",
        "ご指摘の通りです。",
        "你说得对，我来改。",
    ],
)
def test_a_reply_that_the_agent_gives_in_to_is_a_correction(words: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    corrected = script.user("other agents need this too")
    script.answer(words)

    (signal,) = found(script, schema.HUMAN_CORRECTION)

    assert signal.evidence == (corrected.uid,)


@pytest.mark.parametrize(
    "text",
    [
        "are we using the cache where we could?",
        "also add one for the other agents",
        "The error returned from fetch() is checked but not included in the message. Unlike checkout(), which wraps"
        " both the output and the error, this hides what git printed.",
        "这样的话还有必要保留吗",
    ],
)
def test_a_question_a_request_or_a_pasted_review_is_no_correction_though_the_agent_gives_in(text: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user(text)
    script.answer("Good catch! Let me look.")

    assert not found(script, schema.HUMAN_CORRECTION)


@pytest.mark.parametrize(
    "text",
    [
        "为什么还会有这样的情况",
        "完全没任何反应",
        "不应该有程序硬编码",
        "按了保存键一点反应都没有",
        "描述风格似乎不一致",
        "没有必要接受这个参数",
        "it's still using the old name, can you double check all usages?",
        "hmm, I just tested it and nothing was printed",
    ],
)
def test_a_complaint_is_a_correction(text: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    corrected = script.user(text)

    (signal,) = found(script, schema.HUMAN_CORRECTION)

    assert signal.evidence == (corrected.uid,)


@pytest.mark.parametrize("text", ["好的，可以", "没有问题", "不用了谢谢", "还有一个需求：增加导出", "还是用A方案吧"])
def test_an_agreement_or_a_new_wish_is_no_correction(text: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user(text)

    assert not found(script, schema.HUMAN_CORRECTION)


@pytest.mark.parametrize("words", ["Great question! It does.", "You're right to ask. It is in the store.", "Sure."])
def test_an_answer_to_a_question_gives_in_to_nothing(words: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user("where is it kept?")
    script.answer(words)

    assert found(script, schema.HUMAN_CORRECTION) == []


@pytest.mark.parametrize(
    "text", ["das ist falsch", "c'est faux", "está mal, usa el otro", "nie działa", "安 돼 여전히"]
)
def test_a_correction_may_be_in_another_language(text: str) -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user(text)

    assert found(script, schema.HUMAN_CORRECTION)


def test_a_request_taken_back_before_the_agent_began_is_asked_once_and_corrects_nothing() -> None:
    script = Script()
    script.user("review the branch")
    script.answer("Reviewed.")
    script.user("go through all issues, and add tests")
    script.stop()
    script.user("go through all issues, and do not forget an end-to-end test")
    script.answer("Done.")

    assert found(script, schema.HUMAN_CORRECTION) == []
    assert distilled(script).digest.request_count == 2


def test_the_first_request_corrects_nothing() -> None:
    script = Script()
    script.user("no, it doesn't work")
    script.answer("Done.")

    assert found(script, schema.HUMAN_CORRECTION) == []


def test_what_another_agent_says_to_a_sub_agent_is_no_humans_correction() -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user("no, that's wrong")

    assert found(script, schema.HUMAN_CORRECTION, schema.SUB_AGENT) == []


def test_the_reason_of_a_refusal_is_a_correction() -> None:
    script = Script()
    script.user("do it")
    call, _ = script.run("rm -rf build", None)
    script.stop("refused: keep the build folder", "denied", call)

    (signal,) = found(script, schema.HUMAN_CORRECTION)

    assert signal.detail == "keep the build folder"


def test_a_refused_call_is_a_denial() -> None:
    script = Script()
    call, _ = script.run("rm -rf build", None)
    script.stop("refused the call", "denied", call)

    (signal,) = found(script, schema.PERMISSION_DENIED)

    assert signal.detail == "ran rm -rf build"


def test_a_call_refused_by_a_rule_is_a_denial_too() -> None:
    script = Script()
    script.run("rm x", "failed: this command requires approval", has_failed=True)

    assert len(found(script, schema.PERMISSION_DENIED)) == 1


def test_a_call_cut_off_while_running_was_allowed() -> None:
    script = Script()
    call, _ = script.run("sleep 60", None)
    script.stop("aborted by user after 7.6s", "denied", call)

    assert found(script, schema.PERMISSION_DENIED) == []


def test_the_stop_that_is_told_of_a_call_and_of_its_turn_is_one_act() -> None:
    script = Script()
    script.user("push it")
    call, _ = script.run("git push", None)
    script.stop("refused the call", "denied", call)
    script.add(schema.LIFECYCLE, "hook ran")
    script.stop("interrupted the agent")
    script.user("Pull first")

    digest = distilled(script).digest

    assert digest.intervention_count == 1
    assert [(quote.text, quote.note) for quote in digest.interventions] == [
        ("ran git push", "refused"),
        ("Pull first", "correction"),
    ]


def test_a_plan_turned_down_is_no_denial() -> None:
    script = Script()
    call, _ = script.call("proposed a plan: rewrite it", None, tool="ExitPlanMode")
    script.stop("refused the call", "denied", call)

    assert found(script, schema.PERMISSION_DENIED) == []


def test_a_file_without_permission_is_no_denial_by_anybody() -> None:
    script = Script()
    script.run("cat /etc/shadow", "exit 1: cat: /etc/shadow: Permission denied", has_failed=True)

    assert found(script, schema.PERMISSION_DENIED) == []


def test_the_notice_and_the_summary_of_a_compaction_are_one() -> None:
    script = Script()
    script.user("go")
    script.add(schema.LIFECYCLE, "Conversation compacted")
    script.add(schema.LIFECYCLE, "summary of the conversation so far: …")
    script.answer("Done.")
    script.add(schema.LIFECYCLE, "context compacted")

    assert len(found(script, schema.CONTEXT_COMPACTED)) == 2


def test_two_compactions_with_nothing_between_are_two() -> None:
    script = Script()
    for _ in range(2):
        script.add(schema.LIFECYCLE, "auto compact started")
        script.add(schema.LIFECYCLE, "auto compact completed")
    script.add(schema.LIFECYCLE, "context compacted: what was said")
    script.add(schema.LIFECYCLE, "context compacted")

    assert len(found(script, schema.CONTEXT_COMPACTED)) == 2


@pytest.mark.parametrize(
    "note", ["/compact", "auto compact failed: it'll retry", "compaction checkpoint", "compact mode on"]
)
def test_talk_of_a_compaction_is_none(note: str) -> None:
    script = Script()
    script.add(schema.LIFECYCLE, note)
    script.user("please keep the code compact")

    assert found(script, schema.CONTEXT_COMPACTED) == []


def _spending(*tokens: int) -> Script:
    script = Script()
    for count in tokens:
        script.user("go on")
        script.answer("Done.")
        script.spend(count)
    return script


def test_an_exchange_far_dearer_than_the_others_is_a_spike() -> None:
    script = _spending(1000, 1000, SPIKE_LEAST_TOKENS, 1000, 1000)

    (signal,) = found(script, schema.COST_SPIKE)

    assert signal.evidence == (script.steps[4].uid,)


def test_a_small_exchange_is_no_spike_however_small_the_others_are() -> None:
    assert found(_spending(10, 10, SPIKE_LEAST_TOKENS - 1, 10, 10), schema.COST_SPIKE) == []


def test_a_session_that_is_dear_throughout_has_no_spike() -> None:
    assert found(_spending(*[SPIKE_LEAST_TOKENS] * 6), schema.COST_SPIKE) == []


def test_answers_that_were_stamped_anew_when_a_session_was_resumed_make_no_spike() -> None:
    script = Script()
    stamped_ms = script.now_ms + 5 * 60 * MINUTE_MS
    for _ in range(6):
        script.user("go on")
        script.answer("Done.", ts_ms=stamped_ms)
        script.spent.append(Response(stamped_ms, "some-model", SPIKE_LEAST_TOKENS, 0, 0, 0, 0, None))

    assert found(script, schema.COST_SPIKE) == []


def test_a_long_silence_is_told_with_both_its_ends() -> None:
    script = Script()
    before = script.user("go")
    script.wait(IDLE_MS // MINUTE_MS)
    after = script.answer("Done.")

    (signal,) = found(script, schema.LONG_IDLE)

    assert signal.evidence == (before.uid, after.uid)


def test_a_shorter_silence_is_not() -> None:
    script = Script()
    script.user("go")
    script.wait(IDLE_MS // MINUTE_MS - 1)
    script.answer("Done.")

    assert found(script, schema.LONG_IDLE) == []


def test_a_clock_that_went_back_is_no_silence() -> None:
    script = Script()
    script.user("go")
    script.wait(-600)
    script.answer("Done.")
    script.wait(600)
    script.user("next")

    assert found(script, schema.LONG_IDLE) == []


def test_entries_left_open_are_an_abandoned_list() -> None:
    script = Script()
    script.todos(("one", "completed"), ("two", "in_progress"), ("three", "pending"))

    (signal,) = found(script, schema.ABANDONED_TODO)

    assert (signal.count, signal.detail) == (2, "2 of 3 left: two; three")


def test_a_list_finished_later_is_not_abandoned() -> None:
    script = Script()
    script.todos(("one", "pending"), ("two", "pending"))
    script.todos(("one", "completed"), ("two", "cancelled"))

    assert found(script, schema.ABANDONED_TODO) == []


def test_a_list_that_is_changed_entry_by_entry_is_followed() -> None:
    script = Script()
    for name in ("one", "two"):
        script.call(f"added the task: {name}", tool="TaskCreate", given={"subject": name})
    script.call("task 1: completed", tool="TaskUpdate", given={"taskId": "1", "status": "completed"})

    (signal,) = found(script, schema.ABANDONED_TODO)

    assert signal.detail == "1 of 2 left: two"


def test_a_merged_list_keeps_the_entries_it_does_not_name() -> None:
    script = Script()
    listed = [{"id": "1", "content": "one", "status": "pending"}, {"id": "2", "content": "two", "status": "pending"}]
    script.call("updated the todo list", tool="todo_write", given={"merge": False, "todos": listed})
    done = [{"id": "1", "status": "completed"}]
    script.call("updated the todo list", tool="todo_write", given={"merge": True, "todos": done})

    (signal,) = found(script, schema.ABANDONED_TODO)

    assert signal.detail == "1 of 2 left: two"


def test_rewound_events_are_no_signals_of_the_conversation() -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.steps.append(abandoned(script.user("no, that's wrong")))
    del script.steps[-2]

    assert found(script, schema.HUMAN_CORRECTION) == []


def test_copies_are_signals_of_the_session_they_are_from() -> None:
    script = Script()
    script.test("exit 1: 1 failed", has_failed=True)
    script.test("3 passed")
    script.steps = [step._replace(copy_of=step.event_uid) for step in script.steps]
    script.user("go on from here")

    assert found(script, schema.TEST_FLIP) == []


# Read in the sessions: where each signal really is.
GENUINE = [
    (schema.CONTEXT_COMPACTED, "genuine/claude-2.1.325/.claude", "11111111-2222-4333-8444-555555555555"),
    (schema.TEST_FLIP, "genuine/claude-2.1.325/.claude", "fae14a8d-8499-4b4d-a7ba-b98ff5abf4f2"),
    (schema.PERMISSION_DENIED, "genuine/claude-2.1.325/.claude", "dc106e8e-36fb-42cf-92ef-d26140c5fabf"),
    (schema.HUMAN_CORRECTION, "genuine/claude-2.1.325/.claude", "dc106e8e-36fb-42cf-92ef-d26140c5fabf"),
    (schema.REPEATED_ERROR, "genuine/claude-2.1.325/.claude", "77777777-8888-4999-8aaa-bbbbbbbbbbbb"),
    (schema.LONG_IDLE, "corpus/claude/entireio+cli", "130d7b7e-5801-4345-9bd6-f32fd9b8429b"),
    (schema.ABANDONED_TODO, "corpus/claude/entireio+cli", "130d7b7e-5801-4345-9bd6-f32fd9b8429b"),
    (schema.COST_SPIKE, "corpus/claude/obra+episodic-memory", "9a9eadc8-c1f1-493e-a0f1-884aa996b05b"),
    (schema.CONTEXT_COMPACTED, "genuine/codex-0.166.0/.codex", "01a1e087-446f-7dd1-bcbf-21c198ddeaed"),
    (schema.CONTEXT_COMPACTED, "genuine/grok-1.0.41/.grok", "66666666-7777-4888-8999-aaaaaaaaaaaa"),
    (schema.TEST_FLIP, "genuine/codex-0.166.0/.codex", "01a1e082-3a59-7af3-b330-7c4a0e0303b9"),
    (schema.TEST_FLIP, "genuine/grok-1.0.41/.grok", "01a1e08c-ed39-75b2-92be-f59b7ff66343"),
    (schema.PERMISSION_DENIED, "genuine/grok-1.0.41/.grok", "01a1e090-043c-7073-bbaf-29ec88470b80"),
    (schema.HUMAN_CORRECTION, "genuine/codex-0.166.0/.codex", "01a1e089-5b26-7b22-9365-07c5967e0ad7"),
]


@pytest.fixture(scope="module")
def memories(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Memory]:
    homes = sorted({home for _, home, _ in GENUINE if (SHARED / home).is_dir()})
    return {home: swept(tmp_path_factory.mktemp("store"), f"{_agent(home)}={SHARED / home}") for home in homes}


def _agent(home: str) -> str:
    return home.split("/")[1].split("-")[0]


@needs_shared
@pytest.mark.parametrize(("name", "home", "session"), GENUINE)
def test_genuine_sessions_have_the_signal(name: str, home: str, session: str, memories: dict[str, Memory]) -> None:
    if home not in memories:
        pytest.skip(f"needs ../shared/{home}")
    memory = memories[home]
    chosen = memory.session(session)

    signals = memory.signals(chosen, signal=name)

    assert signals
    uids = {event.event_uid for event in memory.events(chosen)}
    assert {uid for signal in signals for uid in signal.evidence} <= uids


@pytest.mark.parametrize(
    "text",
    [
        "exit 1: FAIL",
        "exit 1: [lint] ERROR task failed",
        "failed: Sibling tool call errored",
        "exit 2: make: *** [x] Error 1",
    ],
)
def test_a_line_that_ends_any_failure_is_no_repeated_error(text: str) -> None:
    script = Script()
    for _ in range(REPEATED_TIMES + 1):
        script.run("make lint", text, has_failed=True)

    assert found(script, schema.REPEATED_ERROR) == []


def test_an_error_that_names_nothing_is_the_same_only_of_the_same_call() -> None:
    script = Script()
    for name in ("a", "b", "c"):
        script.call(f"read {name}.py", "failed: File does not exist.", tool="Read", has_failed=True)
    for _ in range(REPEATED_TIMES):
        script.call("edited d.py", "failed: File has not been read yet.", tool="Edit", has_failed=True)

    assert [signal.detail for signal in found(script, schema.REPEATED_ERROR)] == ["failed: File has not been read yet."]


@pytest.mark.parametrize(
    ("failed", "passed", "flips"),
    [
        ("go test ./a -run TestOne", "go test ./a -run TestOne -v", 1),
        ("go test ./a -run TestOne_Empty", "go test ./a -run TestOne", 1),
        ("go test ./a -run TestOne", "go test ./...", 1),
        ("go test ./a -run TestOne", "go test ./a -run TestTwo", 0),
        ("go test ./...", "go test ./a -run TestOne", 0),
    ],
)
def test_only_the_tests_that_failed_can_flip(failed: str, passed: str, flips: int) -> None:
    script = Script()
    script.test("--- FAIL: TestOne (0.1s)\nFAIL\nexit 1: FAIL", has_failed=True, command=failed)
    script.test("ok  \tx/a\t0.1s", command=passed)

    assert len(found(script, schema.TEST_FLIP)) == flips


def test_calls_refused_in_one_act_are_one_refusal() -> None:
    script = Script()
    script.user("do it")
    first, _ = script.run("git push", None)
    second, _ = script.run("git tag v1", None)
    script.stop("refused the call", "denied", first)
    script.stop("refused the call", "denied", second)
    script.stop()

    (signal,) = found(script, schema.PERMISSION_DENIED)

    assert signal.detail == "ran git push"


def test_errors_of_other_files_are_no_churn() -> None:
    script = Script()
    script.edit("main.py")
    for _ in range(CHURN_ROUNDS + 1):
        script.run("ruff check", "exit 1: other.py:3: unused import", has_failed=True)
        script.edit("main.py")

    assert found(script, schema.EDIT_CHURN) == []


def test_a_pasted_review_is_no_correction_though_the_agent_agrees_with_it() -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user("Any suggestions for: Short files lose detection Medium Severity two matching lines are required")
    script.answer("Good catch - the test would not notice.")

    assert found(script, schema.HUMAN_CORRECTION) == []


@needs_shared
def test_a_service_that_cannot_be_reached_is_no_retry_loop(memories: dict[str, Memory]) -> None:
    memory = memories["genuine/claude-2.1.325/.claude"]

    assert memory.signals(memory.session("e002902d-c4ca-42cb-a7e7-daa03ebdb2c7"), signal=schema.RETRY_LOOP) == []
