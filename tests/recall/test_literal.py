"""Pieces of text and regular expressions: where they are found, what narrows them down, what ends them."""

import sys
from pathlib import Path

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.api import Memory
from recollect.model.errors import RecollectError
from recollect.model.schema import TOOL_RESULT
from recollect.recall import literal
from recollect.store import search as fulltext_search
from tests.builders import Home, event, sweep


@pytest.fixture
def memory(tmp_path: Path, home: Home) -> Memory:
    home.write("shop", SessionInfo("shop", cwd="/x/shop"), event("shop", 1, TOOL_RESULT, "an underlying cause"))
    home.write("web", SessionInfo("web", cwd="/x/web"), event("web", 1, TOOL_RESULT, "an underlying kind:error"))
    return sweep(tmp_path / "store", home)


def names(memory: Memory, text: str, mode: str) -> set[str]:
    return {hit.session_uid.partition(":")[2] for hit in memory.search(text, mode=mode)}


@pytest.mark.parametrize("mode", ["substring", "regex"])
def test_filters_narrow_it_down(memory: Memory, mode: str) -> None:
    with memory:
        assert names(memory, "erlying", mode) == {"shop", "web"}
        assert names(memory, "erlying repo:shop", mode) == {"shop"}
        assert names(memory, '-repo:"shop" erlying', mode) == {"web"}


def test_what_looks_like_a_filter_and_stands_alone_is_the_text(memory: Memory) -> None:
    with memory:
        assert names(memory, "kind:error", "substring") == {"web"}


def test_an_expression_that_never_ends_is_stopped_and_said_so(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(literal, "_SECONDS_AT_ONCE", 0.5)
    home.write("log", event("s", 1, TOOL_RESULT, "a" * 5000 + "!"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer("(a|aa)+$", mode="regex")

    assert answer.hits == []
    assert any("took too long" in note for note in answer.notes)


def test_without_a_process_to_match_it_is_one_clear_error(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/no/such/python")

    with memory, pytest.raises(RecollectError, match="No such file"):
        memory.answer("under.ying", mode="regex")


def test_what_was_found_before_an_expression_was_stopped_is_shown(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(literal, "_SECONDS_AT_ONCE", 2)  # a busy machine may take half a second to start a process
    monkeypatch.setattr(literal, "_EVENTS_AT_ONCE", 1)
    home.write("log", event("s", 1, TOOL_RESULT, "a" * 5000 + "!"), event("s", 2, TOOL_RESULT, "aaaa"))

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.answer("(a|aa)+$", mode="regex").hits

    assert [match.seq for match in hit.matches] == [2]


def test_a_piece_that_ends_a_word_does_not_bring_longer_words(tmp_path: Path, home: Home) -> None:
    longer = [event("s", number, TOOL_RESULT, f"entire entry {number}") for number in range(2, 30)]
    home.write("log", event("s", 1, TOOL_RESULT, "closes ENT-53"), *longer)
    totals: set[int] = set()

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.answer(r"ENT-\d", mode="regex", progress=lambda stage, done, total: totals.add(total)).hits

    assert [match.seq for match in hit.matches] == [1]
    assert max(totals) <= 2  # the one event, by the word and by words that end with it


def test_a_search_that_ran_out_of_time_does_not_blame_the_expression(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("log", event("s", 1, TOOL_RESULT, "a" * 5000 + "!"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer("(a|aa)+$", mode="regex", scan_seconds=0.5)

    assert [note for note in answer.notes if "took too long" in note] == [
        "The search took too long and was stopped: filters such as `since:` narrow it down"
    ]


def test_a_vocabulary_that_takes_too_long_is_not_needed(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(literal, "_SECONDS_FOR_WORDS", -1.0)
    monkeypatch.setattr(fulltext_search, "_STEPS_BETWEEN_LOOKS", 1)

    with memory:
        answer = memory.answer("erlying", mode="substring")

    assert len(answer.hits) == 2
    assert any("cannot narrow this down" in note for note in answer.notes)


def test_the_snippet_shows_the_place(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, TOOL_RESULT, "filler " * 500 + "then a KeyError came " + "filler " * 500))

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search("Key[E]rror", mode="regex")

    assert "KeyError" in hit.matches[0].snippet
    assert hit.matches[0].words == ("keyerror",)


def test_a_very_long_text_is_cut(memory: Memory) -> None:
    with memory:
        answer = memory.answer("underlying " * 9000, mode="substring")

    assert answer.hits == []
    assert any("characters" in note for note in answer.notes)
