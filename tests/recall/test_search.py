"""What is found, how it is grouped and shown, and what is left out."""

import os
import random
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import orjson
import pytest

from recollect.agentkit.protocol import EventRecord, SessionInfo
from recollect.agents import adapters, session_variables
from recollect.api import Memory, open_memory
from recollect.digest.texts import estimate_tokens
from recollect.model.errors import UsageError
from recollect.model.schema import (
    ASSISTANT_MSG,
    DECISION,
    EDIT,
    ERROR,
    FILES_LANE,
    LIFECYCLE,
    TOOL_CALL,
    TOOL_RESULT,
    USER_MSG,
)
from recollect.recall import Options, search
from recollect.store import open_for_reading
from tests.builders import Home, at_ms, event, sweep
from tests.logs import CLAUDE

MARK = "recollect-0123456789abcdef"


def call(session: str, number: int, kind: str, told: dict[str, Any], **fields: Any) -> EventRecord:
    record = event(session, number, kind, "a call", **fields)
    record.payload = told
    return record


def names(memory: Memory, query: str, **options: Any) -> list[str]:
    """Native ids of the sessions found, best first."""
    return [hit.session_uid.partition(":")[2] for hit in memory.search(query, **options)]


def test_what_a_person_said_ranks_above_what_a_tool_printed(tmp_path: Path, home: Home) -> None:
    for name, kind in (("printed", TOOL_RESULT), ("called", TOOL_CALL), ("said", ASSISTANT_MSG), ("asked", USER_MSG)):
        told = {"output": "walrus"} if kind == TOOL_RESULT else {"text": "walrus"}
        home.write(name, call(name, 1, kind, told), *(event(name, n, ASSISTANT_MSG, "filler") for n in range(2, 9)))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus") == ["asked", "said", "called", "printed"]


def test_who_said_just_this_ranks_above_who_said_it_often_among_other_things(tmp_path: Path, home: Home) -> None:
    for name in ("often", "again", "still", "twice"):
        home.write(name, *(event(name, n, text=f"feed the walrus, part {n}") for n in range(1, 6)))
    home.write("just", event("just", 1, text="Feed the walrus"))
    home.write("else", *(event("else", n, text=f"something else, part {n}") for n in range(1, 60)))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "feed the WALRUS")[0] == "just"


def test_of_two_equal_sessions_the_newer_comes_first(tmp_path: Path, home: Home) -> None:
    for number, name in enumerate(("old", "new")):
        home.write(name, event(name, 1, text="walrus", ts_ms=at_ms(1) + number * 20 * 86_400_000))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus") == ["new", "old"]


def test_a_match_has_its_neighbours_in_reading_order_and_of_its_lane(tmp_path: Path, home: Home) -> None:
    records = [event("s", number, ASSISTANT_MSG, f"step {number}") for number in range(1, 8)]
    records[3] = event("s", 4, ASSISTANT_MSG, "the walrus")
    side = event("s", 5, TOOL_RESULT, "of a side file", lane=FILES_LANE, native_id="side")
    home.write("log", *reversed(records), side)

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search("walrus", context=2)

    (match,) = hit.matches
    assert [item.snippet for item in match.before] == ["step 2", "step 3"]
    assert [item.snippet for item in match.after] == ["step 5", "step 6"]


def test_a_hit_tells_how_its_session_began_and_ended(tmp_path: Path, home: Home) -> None:
    texts = ((USER_MSG, "please begin"), (ASSISTANT_MSG, "the walrus"), (ASSISTANT_MSG, "all done"))
    home.write("log", *(event("s", number, kind, text) for number, (kind, text) in enumerate(texts, start=1)))

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search("walrus")

    assert hit.first_request is not None
    assert hit.ending is not None
    assert (hit.first_request.snippet, hit.ending.snippet) == ("please begin", "all done")


def test_a_sub_agents_match_is_shown_under_its_root(tmp_path: Path, home: Home) -> None:
    home.write("root", SessionInfo("root"), event("root", 1, text="delegate it"))
    home.write("child", SessionInfo("child", parent_native_id="root"), event("child", 1, ASSISTANT_MSG, "a walrus"))

    with sweep(tmp_path / "store", home) as memory:
        (hit,) = memory.search("walrus")

    assert hit.session_uid == "scripted:root"
    assert [match.session_uid for match in hit.matches] == ["scripted:root/child"]


def test_what_a_fork_copied_is_found_once_where_it_was_first(tmp_path: Path, home: Home) -> None:
    for number, name in enumerate(("base", "fork")):
        copied = event(name, 1, text="the walrus", native_id="shared", ts_ms=at_ms(1))
        own = event(name, 2, ASSISTANT_MSG, f"own words of {name}", ts_ms=at_ms(10 + number))
        info = SessionInfo(name, base_native_id="base" if name == "fork" else None, born_ms=at_ms(number))
        home.write(name, info, copied, own)

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus") == ["base"]
        assert names(memory, "own words fork")[0] == "fork"
        assert names(memory, "walrus session:fork") == ["fork"]


@pytest.mark.parametrize("kind", [TOOL_RESULT, ASSISTANT_MSG, LIFECYCLE])
def test_our_own_echo_is_no_evidence(tmp_path: Path, home: Home, kind: str) -> None:
    told = f"before\n<<{MARK}\nthe walrus was decided\n{MARK}>>\nafterwards"
    home.write("original", event("original", 1, text="the walrus was decided"))
    home.write("echo", call("echo", 1, kind, {"output" if kind == TOOL_RESULT else "text": told}))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus") == ["original"]
        assert names(memory, "afterwards") == ["echo"]
        assert names(memory, "walrus", mode="substring") == ["original"]


def test_an_echo_that_was_cut_off_is_no_evidence_either(tmp_path: Path, home: Home) -> None:
    home.write("echo", call("echo", 1, TOOL_RESULT, {"output": f"before\n{MARK}\nthe walrus and no end"}))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus") == []


@pytest.mark.parametrize("variable", session_variables())
def test_the_session_it_is_run_from_is_left_out(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for name in ("here-and-now", "another-one"):
        home.write(name, event(name, 1, text="walrus"))
    home.write("child", SessionInfo("child", parent_native_id="here-and-now"), event("child", 1, text="walrus"))
    monkeypatch.setenv(variable, "here-and-now")

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus") == ["another-one"]
        assert names(memory, "") == ["another-one"]
        assert names(memory, "walrus", exclude=["another-one"]) == ["here-and-now"]


def test_the_variables_are_those_of_the_profiles() -> None:
    told = {adapter.profile.session_variable for adapter in adapters().values()} - {None}

    assert told == set(session_variables())


def test_a_word_one_letter_wrong_is_put_right(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, text="the walrus sleeps"), event("s", 2, text="something else"))

    with sweep(tmp_path / "store", home) as memory:
        for wrong in ("walrs", "wallrus", "wakrus", "wlarus"):
            answer = memory.answer(f"{wrong} sleeps")
            assert answer.suggestion == "walrus sleeps"
            assert len(answer.hits) == 1


def test_a_word_that_nothing_resembles_suggests_nothing(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, text="the walrus sleeps"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer("xylophone")

    assert (answer.hits, answer.suggestion) == ([], None)


def test_words_spread_over_a_session_find_it(tmp_path: Path, home: Home) -> None:
    home.write("both", event("both", 1, text="walrus"), event("both", 2, text="penguin"))
    home.write("one", event("one", 1, text="walrus"), event("one", 2, text="nothing"))

    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus penguin") == ["both", "one"]


def test_the_one_with_the_rarest_word_comes_first_however_long_it_is(tmp_path: Path, home: Home) -> None:
    for number in range(20):
        home.write(
            f"most{number}", event(f"most{number}", 1, text=f"repair the fault other{number} on the page of entry")
        )
    home.write("all", event("all", 1, text=f"{'words ' * 90} repair the fault kdlwooi on the page of entry"))
    home.write("rest", *(event("rest", number, ASSISTANT_MSG, "nothing of it") for number in range(1, 300)))

    with sweep(tmp_path / "store", home) as memory:
        first, *others = memory.search("repair fault kdlwooi page")
        longer = {hit.session_uid: hit.missing for hit in memory.search("repair fault kdlwooi page entry", limit=30)}

    assert first.session_uid == "scripted:all"
    assert {hit.missing for hit in others} == {("kdlwooi",)}
    assert [uid for uid, missing in longer.items() if missing != ("kdlwooi",)] == ["scripted:all"]


def test_what_is_there_letter_by_letter_comes_first(tmp_path: Path, home: Home) -> None:
    for number in range(5):
        home.write(f"words{number}", event(f"words{number}", 1, text="no verify, no verify, no verify"))
    home.write("flag", event("flag", 1, TOOL_RESULT, "git commit " + "x " * 200 + "--no-verify"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer("--no-verify")

    assert answer.hits[0].session_uid == "scripted:flag"
    assert [match.is_exact for hit in answer.hits for match in hit.matches] == [True] + [False] * 5


def test_filters_choose_events_and_sessions(tmp_path: Path, home: Home) -> None:
    home.write(
        "a",
        SessionInfo("a", cwd="/x/shop", git_remote="https://github.com/acme/shop.git", git_branch="main", model="m-1"),
        event("a", 1, text="walrus"),
        call("a", 2, TOOL_CALL, {"input": {"command": "walrus"}}, tool="Bash", call_id="1", role="assistant"),
        call("a", 3, ERROR, {"output": "walrus"}, tool="Bash", call_id="1", role="tool", is_error=True),
        call("a", 4, EDIT, {"input": {"file_path": "/x/shop/src/walrus.py"}}, tool="Write", role="assistant"),
    )
    home.write("b", SessionInfo("b", cwd="/x/web"), event("b", 1, DECISION, "walrus", ts_ms=at_ms(0) - 9 * 86_400_000))

    with sweep(tmp_path / "store", home) as memory:

        def kinds(query: str) -> set[str]:
            return {match.kind for hit in memory.search(query) for match in hit.matches}

        for query in ("repo:shop", "repo:acme/shop", "branch:main", "model:m-1", "file:src/walrus.py", "has:edit"):
            assert names(memory, f"walrus {query}") == ["a"], query
            assert names(memory, f"walrus -{query}") == ["b"], query
        assert names(memory, "walrus agent:scripted -session:a") == ["b"]
        assert names(memory, "walrus agent:nobody") == []
        assert kinds("walrus is:error") == {ERROR}
        assert kinds("walrus is:decision") == {DECISION}
        assert kinds("walrus tool:bash role:tool") == {ERROR}
        assert kinds("walrus kind:tool_call") == {TOOL_CALL, EDIT}
        assert names(memory, "walrus before:2026-11-10") == ["b"]
        assert names(memory, "walrus since:2026-11-10") == ["a"]
        assert kinds("is:error") == {ERROR}


def test_a_session_nobody_knows_is_said(tmp_path: Path, home: Home) -> None:
    home.write("a", event("a", 1, text="walrus"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer("walrus session:nobody-knows")

    assert answer.hits == []
    assert "nobody-knows" in " ".join(answer.notes)


def test_an_empty_query_shows_recent_sessions_with_their_last_request(tmp_path: Path, home: Home) -> None:
    for number, name in enumerate(("older", "newer")):
        texts = enumerate(("first", "last request"), start=1)
        home.write(name, *(event(name, n, text=text, ts_ms=at_ms(100 * number + n)) for n, text in texts))

    with sweep(tmp_path / "store", home) as memory:
        hits = memory.search("")

    assert [hit.session_uid for hit in hits] == ["scripted:newer", "scripted:older"]
    assert [match.snippet for hit in hits for match in hit.matches] == ["last request"] * 2


def test_pieces_of_words_and_patterns_are_found(tmp_path: Path, home: Home) -> None:
    home.write("a", event("a", 1, TOOL_RESULT, "the underlying cause => unknown(42)"))
    home.write("b", event("b", 1, text="nothing"))

    with sweep(tmp_path / "store", home) as memory:
        for piece in ("erlyin", "underlying cau", "g cause =", "=>", "known(4", "UNDERLY"):
            assert names(memory, piece, mode="substring") == ["a"], piece
        for pattern in (r"under\w+ing", r"\(\d+\)", r"[ck]ause =>", "^the"):
            assert names(memory, pattern, mode="regex") == ["a"], pattern
        assert names(memory, "Under", mode="regex") == []


def test_a_broken_pattern_is_an_error_even_where_the_text_itself_is_found(tmp_path: Path, home: Home) -> None:
    home.write("a", event("a", 1, text="call(me"))

    with sweep(tmp_path / "store", home) as memory, pytest.raises(UsageError, match="regular expression"):
        memory.answer("call(", mode="regex")


def test_a_budget_cuts_between_matches_and_keeps_the_best(tmp_path: Path, home: Home) -> None:
    for number in range(8):
        home.write(f"s{number}", event(f"s{number}", 1, text="walrus " + "word " * 60))

    with sweep(tmp_path / "store", home) as memory:
        whole = memory.search("walrus")
        some = memory.answer("walrus", budget_tokens=700)
        none = memory.answer("walrus", budget_tokens=1)

    assert 0 < len(some.hits) < len(whole)
    assert some.hits == whole[: len(some.hits)]
    assert any("700" in note for note in some.notes)
    assert none.hits == []


@pytest.mark.parametrize("query", ["strasse", "Straße", "STRASSE", "lange-strasse", '"strasse 5"', "strass*"])
def test_a_sharp_s_is_two(tmp_path: Path, home: Home, query: str) -> None:
    home.write("one", event("one", 1, text="in der Lange-Straße 5"))
    home.write("two", event("two", 1, text="in der lange-strasse 5"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer(query)

    assert {hit.session_uid for hit in answer.hits} == {"scripted:one", "scripted:two"}
    assert all(match.is_exact and match.words for hit in answer.hits for match in hit.matches)
    assert answer.suggestion is None


def test_a_budget_is_used(tmp_path: Path, home: Home) -> None:
    for number in range(30):
        home.write(f"s{number}", event(f"s{number}", 1, text=f"walrus {number} слово 单词"))

    with sweep(tmp_path / "store", home) as memory:
        for tokens in (200, 500, 1500):
            answer = memory.answer("walrus", budget_tokens=tokens, limit=30)
            printed = estimate_tokens(orjson.dumps(answer.to_json()).decode())
            assert tokens * 0.5 < printed < tokens * 1.1, tokens


def test_what_stands_around_goes_before_a_match_does(tmp_path: Path, home: Home) -> None:
    texts = [f"word{number} " * 30 for number in range(7)]
    texts[3] = "the walrus"
    home.write("s", *(event("s", number, text=text) for number, text in enumerate(texts, start=1)))

    with sweep(tmp_path / "store", home) as memory:
        (whole,) = memory.answer("walrus", budget_tokens=2000).hits
        (bare,) = memory.answer("walrus", budget_tokens=200).hits

    assert len(whole.matches[0].before) == 2
    assert [match.snippet for match in bare.matches] == ["the walrus"]
    assert bare.matches[0].before == []


def test_rewound_words_count_less(tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, metadata in (("kept", {}), ("rewound", {"rewind_to": 0})):
        asked = event(name, 1, text="walrus", ts_ms=at_ms(1))
        home.write(name, asked, event(name, 2, LIFECYCLE, ts_ms=at_ms(2), metadata=metadata))
    with sweep(tmp_path / "store", home) as memory:
        assert names(memory, "walrus") == ["kept", "rewound"]


def test_words_too_common_to_rank_all_their_events_are_left_out_with_a_note(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recollect.recall.ranking.RANKED_EVENTS", 10)
    home.write("log", *(event("s", number, ASSISTANT_MSG, f"walrus {number}") for number in range(1, 40)))
    home.write("other", event("t", 1, text="a walrus and a penguin"))

    with sweep(tmp_path / "store", home) as memory:
        both = memory.answer("walrus penguin")
        one = memory.answer("walrus")

    assert [hit.session_uid for hit in both.hits][:1] == ["scripted:t"]
    assert "Too common for ranking events: `walrus`" in both.notes
    assert [hit.session_uid for hit in one.hits][:1] == ["scripted:t"]
    assert any("only requests were ranked" in note for note in one.notes)


def test_months_of_different_size_are_compared_fairly(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(tmp_path / "store", [home.flag]) as memory:
        monkeypatch.setattr("recollect.store.tables.fulltext._month", lambda: "202609")
        home.write("old", *(event("old", n, ASSISTANT_MSG, f"walrus and {'filler ' * 9}") for n in range(1, 4)),
                   *(event("old", n, ASSISTANT_MSG, f"other {n}") for n in range(4, 200)))  # fmt: skip
        memory.sweep()
        monkeypatch.setattr("recollect.store.tables.fulltext._month", lambda: "202610")
        home.write("new", event("new", 1, text="walrus"))
        memory.sweep()

        assert names(memory, "walrus") == ["new", "old"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_store_is_searched(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, text="walrus"))
    sweep(tmp_path / "store", home).close()
    for path in (tmp_path / "store").rglob("*"):
        path.chmod(0o500 if path.is_dir() else 0o400)
    (tmp_path / "store").chmod(0o500)

    with open_for_reading(tmp_path / "store") as store:
        assert len(search(store, "walrus").hits) == 1


def test_a_store_opened_for_reading_is_searched_and_cannot_be_written(tmp_path: Path, home: Home) -> None:
    home.write("log", event("s", 1, text="walrus"))
    sweep(tmp_path / "store", home).close()

    with open_for_reading(tmp_path / "store") as store:
        assert len(search(store, "walrsu").hits) == 1
        assert store.read_only


def test_it_searches_while_a_sweep_writes(tmp_path: Path, home: Home) -> None:
    home.write("first", event("first", 1, text="walrus"))
    with sweep(tmp_path / "store", home) as memory:
        for number in range(30):
            records = [event(f"s{number}", place, text=f"walrus {place} " + "words " * 40) for place in range(1, 60)]
            home.write(f"log{number}", *records)
        counts: list[int] = []
        done = threading.Event()

        def ask() -> None:
            with open_for_reading(tmp_path / "store") as store:
                while not done.is_set() or not counts:
                    counts.append(len(search(store, "walrus", Options(limit=100)).hits))

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            memory.sweep()
        finally:
            done.set()
            asking.join()
        after = len(memory.search("walrus", limit=100))

    assert min(counts) >= 1
    assert counts == sorted(counts)
    assert after == 31


@pytest.mark.parametrize(
    "variable",
    ["RECOLLECT_HOME", pytest.param("XDG_DATA_HOME", marks=pytest.mark.skipif(sys.platform != "linux", reason="XDG"))],
)
def test_a_search_loads_nothing_it_does_not_need(tmp_path: Path, variable: str) -> None:
    enough_for_a_pack = random.Random(1).randbytes(50_000).hex()
    CLAUDE.write(tmp_path / "claude", CLAUDE.content(1, words=f"walrus {enough_for_a_pack}"))
    with open_memory(tmp_path / "recollect", [CLAUDE.root_flag(tmp_path / "claude")]) as memory:
        memory.sweep()
    code = (
        "import sys; sys.argv = ['recollect', 'search', 'walrus', '--json']\n"
        "from recollect.__main__ import run\n"
        "try: run()\n"
        "except SystemExit: pass\n"
        "print(*sorted(sys.modules), file=sys.stderr)"
    )

    told = tmp_path / "recollect" if variable == "RECOLLECT_HOME" else tmp_path
    environment = {name: value for name, value in os.environ.items() if name != "RECOLLECT_HOME"} | {
        variable: str(told)
    }
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    loaded = set(run.stderr.split())
    found = run.stdout.count('"session_uid"')
    heavy = {
        "hashlib",
        "msgspec",
        "platformdirs",
        "tomllib",
        "importlib.metadata",
        "multiprocessing",
        "concurrent.futures",
        "socket",
        "secrets",
        "shutil",
        "subprocess",
        "tempfile",
    }

    assert found == 1
    assert loaded & heavy == set()
    assert {name for name in loaded if name.startswith("recollect.")} & {
        "recollect.sweep", "recollect.model.schema", "recollect.sessions.account",
        "recollect.care.doctor",
        "recollect.cli.sessions", "recollect.cli.care", "recollect.redact.rules", "recollect.analysis.distiller",
        "recollect.recall.literal", "recollect.recall.file_history", "recollect.store.intake", "recollect.store.batch",
    } == set()  # fmt: skip
