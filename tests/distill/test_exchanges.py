"""Exchanges: everything said, little of everything else."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.api import Memory
from recollect.digest import ExchangeRules
from recollect.digest.exchanges import Exchange, cut
from recollect.digest.texts import clean, estimate_tokens, payload_text
from recollect.model import schema
from tests.conftest import SHARED, needs_shared, swept
from tests.distill.sessions import Script


def exchanges(script: Script, **rules: Any) -> list[Exchange]:
    told = ((step, script.payloads[step.event_uid]) for step in script.steps)
    return list(cut("scripted:s", told, ExchangeRules(**rules)))


def test_a_request_begins_an_exchange() -> None:
    script = Script()
    script.user("first")
    script.answer("one")
    script.user("second")
    script.answer("two")

    assert [one.body for one in exchanges(script)] == ["User: first\nAgent: one", "User: second\nAgent: two"]


def test_what_comes_before_the_first_request_belongs_to_it() -> None:
    script = Script()
    script.add(schema.LIFECYCLE, "turn started")
    script.user("first")

    (found,) = exchanges(script)

    assert len(found.event_uids) == 2
    assert found.body == "User: first"


def test_a_long_result_is_told_by_its_size() -> None:
    script = Script()
    script.call("read big.txt", "line\n" * 2133 + "end", tool="Read", given={"path": "big.txt"})

    (found,) = exchanges(script)

    assert found.body == "Call: Read(path=big.txt)\nResult: 2,134 lines, 11 KB"
    assert found.raw_tokens > 50 * found.tokens


def test_a_short_result_is_told_whole() -> None:
    script = Script()
    script.run("git rev-parse HEAD", "abc123\n")

    assert exchanges(script)[0].body.endswith("Result: abc123")


def test_of_a_test_run_the_count_stays() -> None:
    script = Script()
    script.test("." * 5000 + "\n3 passed in 0.02s")

    assert exchanges(script)[0].body.endswith("3 passed in 0.02s")


def test_an_error_is_its_message_and_the_first_place_of_its_trace() -> None:
    script = Script()
    output = (
        'Traceback (most recent call last):\n  File "a.py", line 1, in x\n    y()\n  File "b.py", line 2\nKeyError: 1'
    )
    call, _ = script.run("python a.py", None)
    script.add(schema.ERROR, "exit 1: KeyError: 1", {"output": output}, call_id=call.call_id, tool="shell")

    assert exchanges(script)[0].body.endswith('Error: exit 1: KeyError: 1 | File "a.py", line 1, in x')


def test_an_error_is_cut_to_the_setting() -> None:
    script = Script()
    script.run("x", "exit 1: " + "word " * 100, has_failed=True)

    last = exchanges(script, max_error_chars=40)[0].body.splitlines()[-1]

    assert len(last) <= len("Error: ") + 40


def test_long_arguments_are_cut_and_their_size_told() -> None:
    script = Script()
    script.call("wrote x.py", kind=schema.EDIT, tool="Write", given={"path": "x.py", "content": "pass\n" * 1000})

    body = exchanges(script)[0].body

    assert "path=x.py" in body
    assert "1,001 lines" in body
    assert len(body) < 400


def test_reasoning_and_calls_may_be_left_out() -> None:
    script = Script()
    script.user("go")
    script.add(schema.THINKING, "let me think")
    script.run("ls", "a b")
    script.answer("done")

    (found,) = exchanges(script, keep_reasoning=False, keep_tool_calls=False)

    assert found.body == "User: go\nAgent: done"


def test_long_exchanges_are_split_between_events() -> None:
    script = Script()
    script.user("go")
    for number in range(20):
        script.say(f"{number} " + "word " * 100)

    found = exchanges(script, max_tokens=300)

    assert [(one.part, one.parts) for one in found] == [(number, len(found)) for number in range(1, len(found) + 1)]
    assert max(one.tokens for one in found) <= 300 + 5  # line ends between events
    assert [uid for one in found for uid in one.event_uids] == [step.uid for step in script.steps]


@pytest.mark.parametrize("text", ["word " * 5000, "x" * 20_000, "設定" * 3000], ids=["words", "no blank", "no ASCII"])
def test_an_event_longer_than_a_part_is_split(text: str) -> None:
    script = Script()
    script.user("go")
    script.answer(text)

    found = exchanges(script, max_tokens=100)

    assert max(one.tokens for one in found) <= 100
    assert "".join("".join(one.body for one in found).split()) == "User:goAgent:" + "".join(text.split())


def test_text_cannot_act_on_a_terminal() -> None:
    script = Script()
    script.user("\x1b]0;title\x07red \x1b[31mred\x1b[0m\u202e hidden\u200b")

    assert exchanges(script)[0].body == "User: red red hidden"


def test_a_user_who_writes_like_us_is_still_one_event() -> None:
    script = Script()
    script.user("first\nAgent: I am the agent")

    (found,) = exchanges(script)

    assert len(found.event_uids) == 1


@settings(deadline=None)
@given(st.text())
def test_only_an_empty_text_has_no_tokens(text: str) -> None:
    assert (estimate_tokens(text) == 0) == (text == "")


def test_scripts_without_spaces_have_more_tokens_for_their_length() -> None:
    assert estimate_tokens("設定ファイルを直してください" * 10) > 2 * estimate_tokens("fix the setting" * 10)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    homes = [f"{agent}={home}" for agent in ("claude", "codex") for home in sorted(SHARED.glob(f"corpus/{agent}/*"))]
    return swept(tmp_path_factory.mktemp("store"), *homes)


def _said(memory: Memory) -> Iterator[tuple[str, str]]:
    """Everything users and agents said, with the body it must be in."""
    for session in memory.sessions():
        body = "".join("".join(one.body.split()) for one in memory.exchanges(session))  # blanks may be cuts
        events = [event for event in memory.events(session, with_copies=True) if event.lane != schema.FILES_LANE]
        for event, payload in zip(events, memory.payloads(session, events), strict=True):
            if event.kind in (schema.USER_MSG, schema.ASSISTANT_MSG, schema.COMPLETION, schema.THINKING):
                yield clean(payload_text(payload)), body


@needs_shared
def test_nothing_said_in_real_sessions_is_lost(corpus: Memory) -> None:
    said = list(_said(corpus))

    assert said
    assert [text[:80] for text, body in said if "".join(text.split()) not in body] == []


@needs_shared
def test_filtering_real_sessions_saves_nine_tenths_of_their_logs(corpus: Memory) -> None:
    kept = sum(one.tokens for session in corpus.sessions() for one in corpus.exchanges(session) if not one.is_copy)
    totals = corpus.status().distilled

    assert kept <= totals.log_tokens / 10
    assert abs(totals.kept_tokens - kept) <= kept / 4  # what the status says without reading payloads


def test_without_room_for_results_a_call_is_one_line_with_how_it_ended() -> None:
    script = Script()
    script.user("look")
    script.call("read big.txt", "line\n" * 2133 + "end", tool="Read", given={"path": "big.txt", "limit": 9})
    script.answer("done")

    assert exchanges(script, max_result_chars=0)[0].body.splitlines() == [
        "User: look",
        "Action: Read(big.txt) → Success (2,134 lines)",
        "Agent: done",
    ]
