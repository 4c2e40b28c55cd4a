"""The order of sessions: what a query's words count for, and what an answer says about them."""

from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.api import Memory
from recollect.model.schema import ASSISTANT_MSG, TOOL_CALL, TOOL_RESULT
from tests.builders import Home, event, sweep
from tests.retention.rig import evict_all, opened


def names(memory: Memory, query: str, **options: Any) -> list[str]:
    return [hit.session_uid.partition(":")[2] for hit in memory.search(query, **options)]


def filler(name: str, count: int = 40) -> list[Any]:
    return [event(name, number, ASSISTANT_MSG, f"something else, part {number}") for number in range(100, 100 + count)]


@pytest.fixture
def cors(tmp_path: Path, home: Home) -> Memory:
    """One session about CORS, whose words are apart, among many that fix errors."""
    for number in range(12):
        home.write(f"other{number}", event(f"other{number}", 1, text=f"fix the error fix error {number}"))
    home.write("cors", event("cors", 1, text="the browser says CORS"), event("cors", 2, text="please fix it"),
               event("cors", 3, TOOL_RESULT, "error " + "word " * 200), *filler("cors"))  # fmt: skip
    return sweep(tmp_path / "store", home)


def test_the_only_session_with_all_words_of_a_short_query_comes_first(cors: Memory) -> None:
    with cors:
        first, *others = cors.search("fix CORS error")

    assert first.session_uid == "scripted:cors"
    assert first.missing == ()
    assert {hit.missing for hit in others} == {("CORS",)}


def test_a_session_that_is_about_three_words_comes_before_long_ones_that_have_them_somewhere(
    tmp_path: Path, home: Home
) -> None:
    for number in range(12):
        texts = ("the file", "an open door", "that source", "a walrus")
        scattered = [event(f"long{number}", place, ASSISTANT_MSG, text) for place, text in enumerate(texts, start=1)]
        home.write(f"long{number}", *scattered, *filler(f"long{number}"))
    home.write("walrus", event("walrus", 1, text="add a walrus file, with the source of the walrus"))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "open source walrus file", limit=20)[0] == "walrus"


def test_a_session_whose_title_has_the_words_comes_first(tmp_path: Path, home: Home) -> None:
    for name, title in (("a", "sort the tools"), ("b", "sort the penguin list")):
        info = SessionInfo(name, title=title, title_rank=2)
        home.write(name, info, event(name, 1, text="the penguin list needs its tools sorted"))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "needs penguin sorted list") == ["b", "a"]


def test_the_order_does_not_depend_on_the_limit(cors: Memory) -> None:
    with cors:
        for query in ("fix CORS error", "fix", "how did we fix the CORS error on that one page of the browser"):
            whole = names(cors, query, limit=20)
            assert all(names(cors, query, limit=limit) == whole[:limit] for limit in (1, 3, 5, 10)), query


def test_question_words_do_not_rank_and_are_named(cors: Memory) -> None:
    with cors:
        for query in ("how did we fix the CORS error", "wie haben wir den CORS error fixed", "我们怎么 fix CORS"):
            answer = cors.answer(query)
            assert answer.hits[0].session_uid == "scripted:cors", query
            assert any(note.startswith("Ignored: ") for note in answer.notes), query
        assert cors.answer("the").notes == []


def test_a_word_that_nothing_has_is_named(cors: Memory) -> None:
    with cors:
        answer = cors.answer("fix CROS xylophone")

    assert answer.suggestion == "fix CORS xylophone" or "No match for `CROS`" in " ".join(answer.notes)
    assert any("`xylophone`" in note for note in answer.notes)


def test_words_of_another_language_are_not_corrected(tmp_path: Path, home: Home) -> None:
    home.write("said", event("said", 1, text="the walrus were clear"), *filler("said"))

    with sweep(tmp_path / "store", home) as memory:
        misspelt, foreign = memory.answer("walrsu"), memory.answer("beide Wege zum walrus kürzer und cleat")

    assert misspelt.suggestion == "walrus"
    assert foreign.suggestion is None
    assert len(foreign.hits) == 1


def test_a_run_of_letters_without_spaces_is_found_by_its_pairs(tmp_path: Path, home: Home) -> None:
    home.write("pool", event("pool", 1, text="数据库的连接池已满"), *filler("pool"))
    home.write("other", event("other", 1, text="页面的颜色"), *filler("other"))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "修复数据库连接池")[0] == "pool"
        assert names(memory, "连接池")[0] == "pool"


def test_a_pasted_command_is_found_as_it_is(tmp_path: Path, home: Home) -> None:
    command = "find . -name '*.go' -exec grep -l walrus {} +"
    home.write("pasted", event("pasted", 1, TOOL_CALL, f"{'word ' * 100} {command}"), *filler("pasted"))
    home.write("words", event("words", 1, text="walrus name go exec grep find"), *filler("words"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer(command)
        without = names(memory, "walrus -name")

    assert answer.hits[0].session_uid == "scripted:pasted"
    assert any("Treated as a command" in note for note in answer.notes)
    assert without == []


def test_a_sentence_that_stands_somewhere_comes_first(tmp_path: Path, home: Home) -> None:
    sentence = "the walrus did not answer in time"
    home.write("said", event("said", 1, TOOL_RESULT, f"{'word ' * 200} {sentence}"), *filler("said"))
    home.write("words", event("words", 1, text="time: answer, walrus! walrus answer time"), *filler("words"))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, sentence)[0] == "said"


def test_the_name_of_a_repository_prefers_its_sessions(tmp_path: Path, home: Home) -> None:
    for name, cwd in (("here", "/x/vibelife"), ("there", "/x/shop")):
        home.write(name, SessionInfo(name, cwd=cwd), event(name, 1, text="a CORS header"), *filler(name))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "CORS in vibelife") == ["here", "there"]
        assert names(memory, "CORS shop") == ["there", "here"]


def test_a_quoted_phrase_has_to_be_there(tmp_path: Path, home: Home) -> None:
    home.write("phrase", event("phrase", 1, text="connection refused"), event("phrase", 2, text="timeout"))
    home.write("words", event("words", 1, text="refused connection timeout timeout"))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, '"connection refused" timeout') == ["phrase"]


@pytest.mark.parametrize("mode", ["words", "substring", "regex"])
def test_half_a_character_in_a_query_does_no_harm(cors: Memory, mode: str) -> None:
    with cors:
        assert isinstance(cors.answer("CORS \ud83d", mode=mode).hits, list)


def test_an_evicted_session_is_ranked_among_those_that_are_held(tmp_path: Path, home: Home) -> None:
    home.write("gone", event("gone", 1, text="feed the walrus herring in the morning"))
    home.write("else", event("else", 1, text="something else"))
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        evict_all(memory)
        home.write("held", event("held", 1, ASSISTANT_MSG, "a walrus, by the way"), *filler("held"))
        memory.sweep()

        assert names(memory, "walrus herring morning") == ["gone", "held"]


@pytest.fixture
def scattered(tmp_path: Path, home: Home) -> Memory:
    """A session that has all words, each pair of the common ones in many events, the rare one deep in a long text."""
    common = [event("all", number, text=f"fix the error, please: number {number}") for number in range(1, 9)]
    rare = event("all", 20, TOOL_RESULT, f"{'fix this error ' * 300} access denied by CORS {'word ' * 3000}")
    home.write("all", *common, rare, event("all", 21, ASSISTANT_MSG, "a wombat, by the way"), *filler("all"))
    for number in range(6):
        home.write(f"other{number}", event(f"other{number}", 1, text=f"fix the error {number}"))
    return sweep(tmp_path / "store", home)


def test_the_shown_events_have_the_rarest_word_first(scattered: Memory) -> None:
    with scattered:
        for matches in (1, 2, 3):
            first = scattered.search("fix CORS error", matches=matches)[0]
            assert "CORS" in first.matches[0].snippet
            assert len(first.matches) == matches


def test_the_shown_events_have_all_words_of_the_query_together(scattered: Memory) -> None:
    with scattered:
        first = scattered.search("fix CORS error wombat")[0]
        of_a_long_query = scattered.search("please fix the error number with CORS for that wombat of ours")[0]

    for hit in (first, of_a_long_query):
        shown = " ".join(match.snippet for match in hit.matches)
        assert all(word in shown for word in ("fix", "CORS", "error", "wombat"))


def test_what_was_typed_exactly_stays_the_first_event(tmp_path: Path, home: Home) -> None:
    home.write("said", event("said", 1, TOOL_CALL, "cat src/walrus/pool.py"),
               event("said", 2, TOOL_RESULT, "src.walrus.pool.py herring"), *filler("said"))  # fmt: skip

    with sweep(tmp_path / "store", home) as memory:
        first = memory.search("src/walrus/pool.py herring")[0]

    assert [match.seq for match in first.matches[:2]] == [1, 2]
