"""The digest: what it claims, how it grows, and that its page cannot act."""

import re
from dataclasses import replace
from pathlib import Path

import orjson
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from recollect.analysis.distiller import line_of
from recollect.digest.digest import (
    FIRST_REQUESTS,
    LAST_REQUESTS,
    MOST_FILES,
    MOST_QUOTES,
    NOT_THE_END,
    extend,
)
from recollect.digest.markdown import (
    inert,
    inert_lines,
    parse_digest,
    render_digest,
    searchable,
    write_digest,
)
from recollect.model import schema
from recollect.model.schema import Digest, to_json
from recollect.sessions import TOKENS
from tests import logs
from tests.conftest import swept
from tests.distill.sessions import Script, distilled


def digest(script: Script) -> Digest:
    return distilled(script).digest


def _worked() -> Script:
    script = Script()
    script.user("Fix the failing test")
    script.test("exit 1: 1 failed", has_failed=True)
    script.say("The root cause is the operator in add().")
    script.edit("/proj/calc.py")
    script.edit("/proj/calc.py", has_failed=True)
    script.test("3 passed")
    script.run("git commit -am 'Fix add'", "[main 1234] Fix add")
    script.call("asked: Which name?", None, tool="AskUserQuestion")
    script.answer("Fixed.\n\nNext steps:\n- Release it\n\nShall I push?")
    return script


def test_a_digest_tells_what_was_asked_done_and_left_open() -> None:
    script = _worked()

    found = digest(script)

    assert [quote.text for quote in found.requests] == ["Fix the failing test"]
    assert [(file.name, file.count) for file in found.files] == [("calc.py", 1)]  # the failed edit changed nothing
    assert {tally.name: (tally.count, tally.failures) for tally in found.commands} == {
        "pytest": (2, 1),
        "git commit": (1, 0),
    }
    assert [quote.text for quote in found.commits] == ["Fix add"]
    assert (found.tests.runs, found.tests.failures, found.tests.last) == (2, 1, "passed")
    assert [quote.text for quote in found.open.questions] == ["Which name?", "Shall I push?"]
    assert [quote.text for quote in found.open.next_steps] == ["Release it", "Shall I push?"]
    assert [quote.text for quote in found.snippets] == ["The root cause is the operator in add()."]
    assert found.open.failing_tests is None


def test_what_the_user_said_is_not_crowded_out_by_mere_stops() -> None:
    script = Script()
    script.user("Fix the failing test")
    for _ in range(MOST_QUOTES):
        script.say("I look.")
        script.stop()
        script.user("go on")
    script.say("I delete the test.")
    script.user("no, that's not what I asked for")
    for _ in range(MOST_QUOTES):
        script.say("I look.")
        script.stop()
        script.user("go on")

    assert [quote.text for quote in digest(script).interventions] == ["no, that's not what I asked for"]


def test_everything_quoted_is_from_the_event_it_cites() -> None:
    script = _worked()
    texts = {step.uid: step.summary for step in script.steps}

    found = digest(script)

    for quote in (*found.requests, *found.snippets, *found.errors):
        assert quote.text in texts[quote.event_uid]
    assert found.final_answer is not None
    assert texts[found.final_answer.event_uid].startswith("Fixed.")


def test_a_commit_behind_the_tests_is_told_with_them() -> None:
    script = Script()
    script.run("mise run test && git commit -m 'Fix it'", "3 passed")

    found = digest(script)

    assert [commit.text for commit in found.commits] == ["Fix it"]
    assert (found.tests.runs, found.tests.last) == (1, "passed")


def test_a_commit_that_failed_or_had_nothing_to_commit_is_none() -> None:
    script = Script()
    script.run("git commit -m one", "exit 1: hook failed", has_failed=True)
    script.run("git commit -m two", "nothing to commit, working tree clean")

    assert digest(script).commits == ()


def test_requests_nobody_answered_are_open_and_the_last_words_are_not_the_end() -> None:
    script = Script()
    script.user("write the report")
    script.say("I look around.")
    script.run("ls")
    script.user("it is still empty")
    script.user("hello?")

    found = digest(script)

    assert [quote.text for quote in found.open.unanswered] == ["it is still empty", "hello?"]
    assert found.final_answer is not None
    assert found.final_answer.note == NOT_THE_END
    page = render_digest(found)
    assert "The agent's last words" in page
    assert "- Not answered: hello?" in page


def test_thanks_and_answered_requests_are_not_open() -> None:
    script = Script()
    script.user("write the report")
    script.answer("Done.")
    script.user("thanks!")

    assert digest(script).open.unanswered == ()


def test_a_run_of_tests_that_was_not_seen_to_end_is_told_apart() -> None:
    script = Script()
    script.test("3 passed")
    script.test("command timed out", has_failed=True)

    found = digest(script)

    assert (found.tests.runs, found.tests.failures, found.tests.unfinished) == (2, 0, 1)
    assert "- Test runs: 2, 0 failed, 1 without a result; the last one with a result passed" in render_digest(found)


def test_a_log_that_tells_only_when_it_began_has_no_end() -> None:
    script = Script()
    script.user("go")
    script.answer("Done.", ts_ms=None)
    script.add(schema.LIFECYCLE, "a note")

    found = digest(script)

    assert (found.started_at is None, found.ended_at) == (False, None)
    assert "end unknown" in render_digest(found)


@pytest.mark.parametrize(
    ("ended_at", "span"),
    [
        ("2026-11-15T18:22:50Z", "2026-11-15 18:22 UTC ·"),
        ("2026-11-15T18:40:00Z", "2026-11-15 18:22 to 18:40 UTC ·"),
        ("2026-11-16T07:00:00Z", "2026-11-15 18:22 UTC to 2026-11-16 07:00 UTC ·"),
    ],
)
def test_a_date_is_said_once_unless_the_session_ended_on_another_day(ended_at: str, span: str) -> None:
    found = replace(digest(_worked()), started_at="2026-11-15T18:22:10Z", ended_at=ended_at)

    assert f" · {span}" in render_digest(found)


def test_a_file_told_by_two_paths_is_one() -> None:
    script = Script()
    script.edit("calc.py")
    script.edit("/proj/calc.py")

    found = digest(script)

    assert (found.file_count, [(file.name, file.count) for file in found.files]) == (1, [("calc.py", 2)])


def test_a_commit_is_told_by_the_first_line_of_its_message() -> None:
    body = "- one thing that was done\n- another thing that was done"
    script = Script()
    script.run(f"git add . && git commit -m \"$(cat <<'EOF'\nfix: the sum\n\n{body}\nEOF\n)\"")

    found = digest(script)

    assert [quote.text for quote in found.commits] == ["fix: the sum"]
    assert [(tally.name, tally.count) for tally in found.commands] == [("git add", 1), ("git commit", 1)]


@pytest.mark.parametrize(
    ("said", "found_out"),
    [
        ("Let me look. The root cause is the operator in add().", ["The root cause is the operator in add()."]),
        ("Found it! The cache is never emptied.", ["Found it! The cache is never emptied."]),
        ("You're right, the issue is that the parser reads the file twice.", []),
        ("Wait, the problem is not in the parser after all but elsewhere.", []),
        ("The issue is here.", []),
    ],
)
def test_a_snippet_is_what_was_found_out(said: str, found_out: list[str]) -> None:
    script = Script()
    script.user("why?")
    script.say(said)
    script.user("thanks")

    assert [quote.text for quote in digest(script).snippets] == found_out


@pytest.mark.parametrize(
    ("line", "is_step"),
    [
        ("Next.js 15.5.2", False),
        ("Next: release it", True),
        ("Next, run the tests", True),
        ("Next is the parser", True),
        ("Nextcloud is installed", False),
        ("TODO: write the manual", True),
        ("**To do** – the manual", True),
        ("Todo interface with id and text", False),
        ("**Todo interface** with id and text", False),
    ],
)
def test_a_next_step_is_not_whatever_begins_with_its_words(line: str, is_step: bool) -> None:
    script = Script()
    script.user("go")
    script.answer(f"All of it is there.\n\n- {line}")

    assert [quote.text for quote in digest(script).open.next_steps] == [line.removeprefix("**")] * is_step


def test_an_edit_with_which_the_log_breaks_off_is_not_told_as_made() -> None:
    script = Script()
    script.user("fix it")
    script.edit("made.py")
    script.call("edited waiting.py", None, schema.EDIT, tool="Edit")

    assert [file.name for file in distilled(script).digest.files] == ["made.py"]


def test_an_edit_is_made_where_a_log_tells_no_results_at_all() -> None:
    script = Script()
    script.user("fix it")
    script.call("edited made.py", None, schema.EDIT, tool="Edit")

    assert [file.name for file in distilled(script).digest.files] == ["made.py"]


def test_an_edit_without_a_result_is_made_if_the_session_went_on() -> None:
    script = Script()
    script.user("fix it")
    script.call("edited made.py", None, schema.EDIT, tool="Edit")
    script.answer("Fixed.")

    assert [file.name for file in distilled(script).digest.files] == ["made.py"]


def test_the_words_of_a_next_line_are_no_deleted_files() -> None:
    script = Script()
    script.user("clean up")
    script.run("rm old.txt\nnpm run build\nls dist")
    script.run("rm a.txt && git commit -m '" + "a long message " * 20 + "'", "[main 1a2b3c4] a long message")

    assert digest(script).deleted == ("a.txt",)


def test_a_commit_that_its_command_may_hide_is_told_by_git_itself() -> None:
    script = Script()
    script.user("commit it")
    script.run("git commit -m 'one' || true", "husky - pre-commit hook exited with code 1")
    script.run("git commit -m 'two' 2>&1 | tail -5", "a hook's line\n" * 40 + "[main 1a2b3c4] two")

    found = digest(script)

    assert [quote.text for quote in found.commits] == ["two"]
    assert found.commit_count == 1


def test_an_address_far_down_in_the_output_is_the_pull_requests() -> None:
    script = Script()
    script.user("open a pull request")
    output = "see https://git.example/o/r/pull/3\n" + "Warning: a change is not committed\n" * 20
    script.run("gh pr create --fill", output + "https://git.example/o/r/pull/9")

    assert [quote.text for quote in digest(script).pull_requests] == ["https://git.example/o/r/pull/9"]


def test_tests_that_were_only_listed_did_not_pass() -> None:
    script = Script()
    script.user("which tests are there?")
    script.test("12 tests collected", command="pytest --collect-only -q")

    found = digest(script).tests

    assert (found.runs, found.last) == (0, None)


def test_pull_requests_and_deleted_files_are_told() -> None:
    script = Script()
    script.user("clean up and open a pull request")
    script.run("rm /proj/old.py")
    script.run("rm gone.py", "exit 1: No such file", has_failed=True)
    script.run('gh pr create --title "Clean up"', "https://git.example/o/r/pull/17")

    found = digest(script)

    assert found.deleted == ("old.py",)
    assert [(quote.text, quote.note) for quote in found.pull_requests] == [
        ("https://git.example/o/r/pull/17", "Clean up")
    ]
    assert "- Files deleted: old.py" in render_digest(found)
    assert "- Pull request: https:" in render_digest(found)


def test_the_line_of_a_sub_agent_names_what_it_edited() -> None:
    script = Script()
    script.user("write the parts")
    for name in ("a", "b", "c", "d", "e"):
        script.edit(f"/proj/src/{name}.py")
    script.answer("Written.")

    line = line_of(distilled(script, schema.SUB_AGENT).digest)

    assert line == "[success] write the parts (edited a.py, b.py, c.py and 2 more) → Written."


def test_failing_tests_at_the_end_are_open() -> None:
    script = Script()
    script.test("exit 1: 2 failed", has_failed=True)

    found = digest(script).open.failing_tests

    assert found is not None
    assert found.text == "ran pytest -q"


def test_lists_are_cut_and_counts_are_not() -> None:
    script = Script()
    for number in range(50):
        script.user(f"request {number}")
        script.edit(f"file{number}.py")

    found = digest(script)

    assert (len(found.requests), found.request_count) == (FIRST_REQUESTS + LAST_REQUESTS, 50)
    assert found.requests[0].text == "request 0"
    assert found.requests[-1].text == "request 49"
    assert (len(found.files), found.file_count) == (MOST_FILES, 50)


def test_a_huge_session_has_a_small_digest() -> None:
    script = Script()
    for number in range(300):
        script.user("request " + "long words " * 200)
        script.run(f"tool{number} " + "x" * 500, "exit 1: " + f"error {chr(97 + number % 26)} " * 50, has_failed=True)
        script.edit("/proj/" + "deep/" * 30 + f"{number}.py")
        script.answer("answer " + "many words " * 500)

    assert len(write_digest(digest(script))) <= 16 * 1024


def test_the_same_events_give_the_same_bytes() -> None:
    assert write_digest(digest(_worked())) == write_digest(digest(_worked()))


def test_a_digest_is_read_back_as_it_was_written() -> None:
    found = digest(_worked())
    unused = {name: found.tokens.get(name, 0) for name in TOKENS}

    assert parse_digest(write_digest(found)) == replace(found, tokens=unused)


def test_a_digest_with_all_its_fields_is_read_as_well() -> None:
    found = digest(_worked())

    assert parse_digest(orjson.dumps(found)) == parse_digest(write_digest(found))


def test_what_is_empty_takes_no_room_and_is_there_again_when_read() -> None:
    script = Script()
    script.user("say hello")
    found = digest(script)

    told = orjson.loads(write_digest(found))

    assert not {"files", "tests", "commit_count", "snippets", "signals"} & set(told)
    assert "note" not in told["requests"][0]
    assert parse_digest(write_digest(found)).files == ()
    assert to_json(parse_digest(write_digest(found))).keys() == to_json(found).keys()


def test_an_empty_session_has_a_digest() -> None:
    script = Script()
    script.add(schema.LIFECYCLE, "turn started")

    assert digest(script).request_count == 0


_EVENTS = st.lists(
    st.sampled_from(["user", "answer", "ok", "fail", "edit", "test", "stop", "todo", "commit", "note"]), max_size=30
)


def _script(names: list[str], name: str = "s") -> Script:
    script = Script(name)
    for event in names:
        match event:
            case "user":
                script.user("please do it")
            case "answer":
                script.answer("Done. What next?")
            case "ok":
                script.run("ls")
            case "fail":
                script.run("make", "exit 2: boom", has_failed=True)
            case "edit":
                script.edit("calc.py")
            case "test":
                script.test("exit 1: 1 failed", has_failed=True)
            case "stop":
                script.stop()
            case "todo":
                script.todos(("one", "pending"))
            case "commit":
                script.run("git commit -m x", "[main] x")
            case "note":
                script.add(schema.LIFECYCLE, "turn ended")
    return script


@settings(deadline=None)
@given(_EVENTS, _EVENTS)
def test_a_digest_that_grows_covers_all_and_counts_all(first: list[str], second: list[str]) -> None:
    kept = [name for name in first if name != "note"]
    # What is taken back in the later part was counted with the earlier one.
    assume(
        not (
            kept and [name for name in kept if name != "stop"][-1:] == ["user"] and {"stop", "user"} <= {*kept, *second}
        )
    )
    whole = _script([*first, *second])
    cut = len(_script(first).steps)
    old = distilled(whole, steps=whole.steps[:cut]).digest
    new = distilled(whole, steps=whole.steps[cut:]).digest
    both = distilled(whole).digest

    grown = extend(old, new)

    assert grown.covers.event_count == both.covers.event_count
    assert grown.covers.last_event_uid == both.covers.last_event_uid
    for name in ("request_count", "commit_count", "error_count", "intervention_count"):
        assert getattr(grown, name) == getattr(both, name), name
    assert (grown.tests.runs, grown.tests.last) == (both.tests.runs, both.tests.last)
    assert {tally.name: tally.count for tally in grown.tools} == {tally.name: tally.count for tally in both.tools}
    assert {tally.name: tally.count for tally in grown.files} == {tally.name: tally.count for tally in both.files}
    assert [request.text for request in grown.requests] == [request.text for request in both.requests]
    assert grown.final_answer == both.final_answer
    assert (grown.started_at, grown.ended_at) == (both.started_at, both.ended_at)


@settings(deadline=None)
@given(_EVENTS)
def test_a_digest_extended_by_nothing_is_the_same_but_for_order(names: list[str]) -> None:
    script = _script(["user", *names])
    old = digest(script)

    grown = extend(old, distilled(script, steps=[]).digest)

    assert grown.covers.event_count == old.covers.event_count
    assert (grown.outcome, grown.open, grown.requests, grown.files) == (old.outcome, old.open, old.requests, old.files)


def test_growth_of_growth_is_growth_of_the_whole() -> None:
    script = _script(["user", "edit", "test", "answer"] * 6)
    parts = [distilled(script, steps=script.steps[start : start + 10]).digest for start in (0, 10, 20)]

    left = extend(extend(parts[0], parts[1]), parts[2])
    right = extend(parts[0], extend(parts[1], parts[2]))

    assert left == right


@pytest.mark.parametrize(
    "text",
    [
        "[click](https://evil.example)",
        "![x](https://evil.example/pixel.png)",
        "<img src=x onerror=alert(1)>",
        "see https://evil.example/?q=secret",
        "www.evil.example",
        "mail me@evil.example",
        "`code`",
        "\x1b[31mred\x1b[0m",
        "a | b",
        "line\n# heading",
        "[ref]: https://evil.example",
    ],
)
def test_quoted_text_is_inert_on_the_page_and_can_be_copied(text: str) -> None:
    script = Script()
    script.user(text)
    script.answer(text)
    page = render_digest(digest(script))

    outside_code = re.sub(r"(`+)[^`].*?\1", "", page)
    assert re.search(r"\]\(|<\w|\n\[ref\]:", outside_code) is None
    assert "\x1b" not in page
    assert "\n# heading" not in page
    assert "\\" not in page
    assert inert(text).count("\n") == 0


def test_a_final_answer_keeps_its_indentation_and_code_fences_and_stays_a_quote() -> None:
    script = Script()
    script.answer("# Big\n- item\n  - deeper\n```py\nif x < y:\n    a[0](<b>)\n```\n> deep ![x](y)")

    block = [line for line in render_digest(digest(script)).splitlines() if line.startswith(">")]

    fence = ["> ```py", "> if x < y:", ">     a[0](<b>)", "> ```"]
    assert block == ["> # Big", "> - item", ">   - deeper", *fence, "> > deep ````![x](y)````"]


@pytest.mark.parametrize(
    "greeting", ["How can I help you today?", "What would you like to do next?", "有什么可以帮你的吗？"]
)
def test_a_greeting_is_no_open_question(greeting: str) -> None:
    script = Script()
    script.user("hello")
    script.answer(f"Hi! {greeting}")

    assert digest(script).open.questions == ()


def test_what_is_in_a_digest_can_be_searched() -> None:
    text = searchable(digest(_worked()))

    for word in ("failing test", "calc.py", "Fix add", "root cause", "Release it", "Shall I push?"):
        assert word in text


def test_a_file_named_from_two_folders_is_one_file() -> None:
    script = Script()
    script.edit("/proj/src/app/main.py")
    script.call("edited main.py", "done", schema.EDIT, tool="Edit", given={"file_path": "/proj/src/app/main.py"})
    script.call("edited README.md", "done", schema.EDIT, tool="Edit", given={"file_path": "/proj/README.md"})
    script.edit("/proj/docs/README.md")

    files = {file.name: file.count for file in digest(script).files}

    assert files == {"src/app/main.py": 2, "README.md": 1, "docs/README.md": 1}


def test_slashes_and_drives_make_no_second_file() -> None:
    script = Script()
    script.edit("C:\\proj\\src\\a.py")
    script.edit("c:/proj/src/a.py")

    files = distilled(script, cwd="c:\\proj").digest.files

    assert [(file.name, file.count) for file in files] == [("src/a.py", 2)]


def test_each_request_has_the_line_its_answer_begins_with() -> None:
    script = Script()
    script.user("fix the parser")
    script.say("Let me look.")
    answer = script.answer("Perfect! All tests pass. The parser now reads an empty line as the end.")
    script.user("and the docs")
    script.answer("Done.")

    first, last = digest(script).requests

    assert first.answer is not None
    assert (first.answer.text, first.answer.event_uid) == ("The parser now reads an empty line as the end.", answer.uid)
    assert last.answer is None  # that is how it ended


def test_a_last_request_left_amid_the_work_is_open() -> None:
    script = Script()
    script.user("write the docs")
    script.answer("Done.")
    script.user("now simplify it")
    script.run("make lint", "ok")

    assert [(quote.text, quote.note) for quote in digest(script).open.unanswered] == [
        ("now simplify it", "not finished")
    ]


def test_a_last_request_that_failed_is_open() -> None:
    script = Script()
    script.user("fix the build")
    script.test("exit 1: 1 failed", has_failed=True)
    script.answer("I could not fix it: one test still fails.")

    assert [quote.note for quote in digest(script).open.unanswered] == ["failed"]


@pytest.mark.parametrize("words", ["Hello! How can I help you today?", "All done. Anything else you need?"])
def test_an_offer_of_help_is_no_open_question(words: str) -> None:
    script = Script()
    script.user("hello")
    script.answer(words)

    assert digest(script).open.questions == ()


@pytest.mark.parametrize(
    ("answer", "line"),
    [
        ("Good point. The current READMEs name details that may change.", None),
        ("Yes, there are compilation errors in the package of the store.", None),
        ('"Yes" is now the default option, and tests and lint pass with it.', None),
        ("This is wrong in two places. The first is the name of the branch.", None),
        ("Done! The parser now reads an empty line as the end.", "The parser now reads an empty line as the end."),
        ("Great. **Commit:** the parser reads an empty line.", "**Commit:** the parser reads an empty line."),
    ],
)
def test_the_line_of_an_answer_begins_with_a_whole_sentence(answer: str, line: str | None) -> None:
    script = Script()
    script.user("look at it")
    script.answer(answer)
    script.user("and the docs")
    script.answer("Done.")

    quote = digest(script).requests[0].answer

    assert quote is not None and quote.text == (line or answer)


@pytest.mark.parametrize(
    "words",
    [
        "Now let me revert the lenient check in the e2e test since the bug is fixed.",
        "Let me check whether the issue is the order of the calls in this file.",
        "I'll investigate it step by step, starting with the Root Cause Investigation of the hooks.",
        "All existing tests pass too, so the fix is backward-compatible with older stores.",
    ],
)
def test_what_is_planned_or_done_is_no_finding(words: str) -> None:
    script = Script()
    script.user("why is it slow?")
    script.say(words)
    script.answer("Done.")

    assert digest(script).snippets == ()


def test_a_finding_behind_a_plan_is_quoted_without_it() -> None:
    script = Script()
    script.user("why is it slow?")
    script.say("Let me explain: the issue is the index, which is read for every call.")
    script.run("pytest", "1 passed")
    script.answer("Done.")

    assert [quote.text for quote in digest(script).snippets] == [
        "the issue is the index, which is read for every call."
    ]


def test_output_pasted_without_a_word_is_no_correction_on_the_page() -> None:
    script = Script()
    script.user("do it")
    script.answer("Done.")
    script.user("--- FAIL: TestShadow (3.40s) hooks.go:209: wrong state")
    script.answer("Done.")
    script.user("lint fail again")
    script.answer("Done.")
    script.user("no, not like this")

    assert [quote.note for quote in digest(script).interventions] == ["output pasted", "correction", "correction"]


def test_a_request_that_was_interrupted_is_open_once() -> None:
    script = Script()
    script.user("write the docs")
    script.run("make lint", "ok")
    script.stop()

    page = render_digest(digest(script))

    assert "- Interrupted: write the docs" in page and page.count("- Interrupted:") == 1


def test_a_request_the_agent_went_to_work_on_later_is_no_longer_without_an_answer() -> None:
    asked, worked = Script(), Script()
    asked.user("write the docs")
    worked.run("make lint", "ok")

    open_ends = extend(digest(asked), digest(worked)).open

    assert [(quote.text, quote.note) for quote in open_ends.unanswered] == [("write the docs", "not finished")]


def test_signals_are_in_plain_words_on_the_page() -> None:
    script = Script()
    script.user("do it")
    script.test("exit 1: 1 failed", has_failed=True)
    script.test("1 passed")
    script.answer("Done.")
    script.user("no, not like this")

    assert "- test flip (1×), human correction (1×)" in render_digest(digest(script))


def _cut_answer(before: int, code: int, after: int) -> list[str]:
    """The page's quote of an answer with a code block in the middle."""
    script = Script()
    code_lines = ["steps:", *(f"  - uses: step{number}" for number in range(code))]
    script.answer("\n".join(["Prose."] * before + ["```yaml", *code_lines, "```"] + ["After it."] * after))
    return [line for line in render_digest(digest(script)).splitlines() if line.startswith(">")]


@pytest.mark.parametrize(("before", "code", "after"), [(2, 90, 2), (80, 60, 3), (2, 60, 80), (40, 12, 40), (95, 1, 95)])
def test_a_cut_answer_keeps_code_and_prose_apart(before: int, code: int, after: int) -> None:
    is_code = False
    for line in _cut_answer(before, code, after):
        if line.startswith("> ```"):
            is_code = not is_code
        elif "uses" in line:
            assert is_code and line.startswith(">   - uses")
        else:
            assert is_code == (line == "> steps:")

    assert not is_code


def test_a_cut_answer_keeps_the_indentation_of_its_end() -> None:
    script = Script()
    script.answer("\n".join(["A list:", *(f"   - item {number} of the list" for number in range(90))]))

    block = [line for line in render_digest(digest(script)).splitlines() if line.startswith(">")]

    assert block[block.index("> …") + 1].startswith(">    - item")


def test_only_the_link_of_a_line_is_in_a_code_span() -> None:
    assert inert("posted to [ENT-53](https://x.example/53), see `a[0](b)`") == (
        "posted to ``[ENT-53](https://x.example/53)``, see `a[0](b)`"
    )
    assert inert("by Jo <jo@x.example> today") == "by Jo `<jo@x.example>` today"


def test_code_that_is_cut_off_is_closed() -> None:
    assert inert("clobbered by `git fetch…") == "clobbered by `git fetch…`"


_CODE = ("`", "``", "```", "~~~", "\\", "\n", " ", "…", "x", "**", "'", ":", "- ", "1. ", "# ", "> ")
_LINKS = ("[", "]", "(", ")", "](", "][", "!", "[a](b)", "![p](q)", "[a]: b", "<", ">", "<a>", "<b", "<https://e.x>")
_PIECES = st.sampled_from(_CODE + _LINKS)


@given(st.lists(_PIECES, max_size=14).map("".join))
@example("- ~~~")
@example("> ~~~")
def test_no_quoted_text_makes_a_link_a_picture_or_a_tag(text: str) -> None:
    block = "\n".join(f"> {line}" for line in inert_lines(text))
    tokens = MarkdownIt("commonmark").parse(f"- {inert(text)} `mark`\n- [a] `mark`\n\n{block}\n\n[a] `mark`\n")

    inline = [child for token in tokens for child in token.children or ()]
    assert {token.type for token in (*tokens, *inline)}.isdisjoint({"link_open", "image", "html_inline", "html_block"})
    assert [token.content for token in inline if token.type == "code_inline"].count("mark") == 3


def test_a_digest_names_every_file_of_a_patch(tmp_path: Path) -> None:
    names = [f"src/components/checkout/payment-methods/CardNumberInputField{number}.tsx" for number in range(7)]
    patch = "".join(f"*** Add File: {name}\n+export {{}}\n" for name in names)
    thread = "01a1e089-5b26-7b22-9365-07c5967e0ad7"
    meta = {"id": thread, "cwd": "/x/shop", "timestamp": "2026-11-15T18:00:00.000Z"}
    item = {"type": "custom_tool_call", "name": "apply_patch", "call_id": "call_0123456789abcdef"}
    records = [
        {"type": "session_meta", "payload": meta},
        {
            "type": "response_item",
            "payload": item | {"input": f"*** Begin Patch\n{patch}*** End Patch"},
        },
        {
            "type": "response_item",
            "payload": {"type": "custom_tool_call_output", "call_id": item["call_id"], "output": "Success."},
        },
    ]
    path = tmp_path / "home" / "sessions" / f"rollout-2026-11-15T18-00-00-{thread}.jsonl"
    path.parent.mkdir(parents=True)
    path.write_bytes(logs.lines({"timestamp": "2026-11-15T18:00:00.000Z", **record} for record in records))

    with swept(tmp_path / "store", f"codex={tmp_path / 'home'}") as memory:
        digest = memory.digest(memory.sessions()[0])

    assert sorted(file.name for file in digest.files) == names


def test_a_finding_that_nothing_bears_out_is_not_quoted() -> None:
    script = Script()
    script.user("why is it slow?")
    script.say("Found it! The cache is never emptied.")
    script.run("cat cache.py", "x = 1")
    script.user("no, that's wrong")

    assert digest(script).snippets == ()


def test_requests_that_say_nothing_are_left_out_if_others_say_more() -> None:
    script = Script()
    for text in (
        "load notes.md",
        "add a cache to the parser",
        "1",
        "continue",
        "<ide_opened_file>a.py</ide_opened_file>",
    ):
        script.user(text)
        script.answer("Done.")

    assert [asked.text for asked in digest(script).requests] == ["add a cache to the parser"]


def test_of_many_requests_those_that_led_to_work_are_quoted() -> None:
    script = Script()
    for number in range(20):
        script.user(f"what does part {number} do")
        script.answer("It parses.")
        if number % 5 == 0:
            script.user(f"change part {number} of it")
            script.edit(f"part{number}.py")
            script.answer("Done.")

    assert [asked.text for asked in digest(script).requests] == [
        *(f"change part {number} of it" for number in (0, 5, 10, 15)),
        "what does part 19 do",
    ]


def test_an_approved_plan_is_quoted_with_its_title() -> None:
    script = Script()
    script.user("plan it")
    call = script.add(
        schema.TOOL_CALL,
        "proposed a plan: # Quokkafish parser 1. Write it",
        {"input": {"plan": "# Quokkafish parser\n\n1. Write it"}},
        role="assistant",
        call_id="plan",
    )
    script.add(schema.DECISION, "approved the plan", {"output": "yes"}, role="user", call_id=call.call_id)
    script.answer("I start.")

    assert [quote.text for quote in digest(script).decisions] == ["approved the plan: Quokkafish parser"]


@pytest.mark.parametrize(("command", "errors"), [("npm run build 2>&1 | tail -5", 1), ("grep -rn Error . | head", 0)])
def test_an_error_that_a_pipe_hides_counts_unless_it_was_looked_for(command: str, errors: int) -> None:
    script = Script()
    script.user("build it")
    script.run(command, "error: cannot find name Foo")
    script.answer("Hm.")

    assert digest(script).error_count == errors
