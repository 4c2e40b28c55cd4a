"""Sessions found by what they are called and by what their digests say."""

from pathlib import Path

from recollect.agentkit.protocol import SessionInfo
from recollect.model.schema import ASSISTANT_MSG
from tests.builders import Home, at_ms, event, sweep


def called(name: str, title: str, **facts: str) -> SessionInfo:
    return SessionInfo(name, title=title, title_rank=2, **facts)  # type: ignore[arg-type]


def test_a_session_is_found_by_its_title(tmp_path: Path, home: Home) -> None:
    home.write("titled", called("titled", "Quarterly zebra report"), event("titled", 1, text="make it"))
    home.write("other", event("other", 1, text="the cobra sleeps"))

    with sweep(tmp_path / "store", home) as memory:
        answer = memory.answer("zebra quarterly")

    (hit,) = answer.hits
    assert hit.session_uid == "scripted:titled"
    assert [match.snippet for match in hit.matches] == ["make it"]
    assert answer.suggestion is None


def test_part_of_a_title_without_spaces_finds_it(tmp_path: Path, home: Home) -> None:
    home.write("titled", called("titled", "修复数据库连接池"), event("titled", 1, text="make it"))

    with sweep(tmp_path / "store", home) as memory:
        assert [hit.session_uid for hit in memory.search("连接池")] == ["scripted:titled"]
        assert memory.search("据连") == []


def test_a_title_is_no_event(tmp_path: Path, home: Home) -> None:
    home.write("titled", called("titled", "Quarterly zebra report"), event("titled", 1, text="make it"))

    with sweep(tmp_path / "store", home) as memory:
        for query in ("zebra kind:user_msg", "zebra is:error", "zebra has:edit", "zebra agent:none"):
            assert memory.search(query) == [], query
        assert memory.search("zebra -has:edit")
        assert memory.search("zebra session:titled")
        assert memory.search("zebra exclude", exclude=["titled"]) == []


def test_a_fork_is_found_by_its_own_title_but_not_by_one_it_took_over(tmp_path: Path, home: Home) -> None:
    for number, name in enumerate(("base", "fork", "named")):
        base = {"base_native_id": "base"} if number else {}
        info = called(name, "Experiment", **base) if name == "named" else SessionInfo(name, **base)  # type: ignore[arg-type]
        copied = event(name, 1, text="the walrus", native_id="shared", ts_ms=at_ms(1))
        home.write(name, info, copied, event(name, 2, text=f"go on with {name}", ts_ms=at_ms(10 + number)))

    with sweep(tmp_path / "store", home) as memory:
        by_request = [hit.session_uid for hit in memory.search("walrus")]
        by_title = memory.search("experiment")

    assert by_request == ["scripted:base"]
    assert [hit.session_uid for hit in by_title] == ["scripted:named"]
    assert [match.snippet for match in by_title[0].matches] == ["go on with named"]


def test_what_is_written_as_one_word_is_found_where_its_words_stand_apart(tmp_path: Path, home: Home) -> None:
    home.write("apart", event("apart", 1, ASSISTANT_MSG, "guidelines"), event("apart", 2, text="about taking action"))
    home.write("one", event("one", 1, ASSISTANT_MSG, "guidelines, many guidelines"))

    with sweep(tmp_path / "store", home) as memory:
        assert memory.search("action-taking guidelines")[0].session_uid == "scripted:apart"
        quoted = memory.answer('"action taking"')

    assert [hit.session_uid for hit in quoted.hits] == ["scripted:apart"]
    assert quoted.notes == ["No exact match for `action taking`; showing matches for its words"]


def test_an_exact_thing_is_not_outranked_by_a_title_with_its_words(tmp_path: Path, home: Home) -> None:
    home.write("titled", called("titled", "No verify"), event("titled", 1, text="please do not verify, no verify"))
    home.write("flag", event("flag", 1, ASSISTANT_MSG, f"{'words ' * 60} git commit --no-verify"))

    with sweep(tmp_path / "store", home) as memory:
        assert memory.search("--no-verify")[0].session_uid == "scripted:flag"
