"""Sessions of which only the digest is left, found as well as that allows."""

from pathlib import Path

import pytest

from recollect.api import Memory
from recollect.model.errors import NotFound
from recollect.model.schema import ASSISTANT_MSG
from tests.builders import Home, event
from tests.retention.rig import evict_all, opened


def evicted(store: Path, home: Home, **requests: str) -> Memory:
    """A store of sessions with these first requests, the raw detail of which is gone."""
    for name, text in requests.items():
        home.write(name, event(name, 1, text=text))
    memory = opened(store, home)
    memory.sweep()
    evict_all(memory)
    return memory


def test_most_of_the_words_find_an_evicted_session_and_it_says_so(tmp_path: Path, home: Home) -> None:
    with evicted(tmp_path / "store", home, gone="feed the walrus herring", other="paint the shed") as memory:
        answer = memory.answer("why does the walrus refuse herring")

    hit, *_ = answer.hits
    assert (hit.session_uid, hit.evicted) == ("scripted:gone", True)
    assert hit.why == "its digest has all the words"
    assert "No match for `refuse`" in answer.notes


def test_a_session_with_all_the_words_comes_before_one_with_some(tmp_path: Path, home: Home) -> None:
    requests = {"some": "walrus walrus walrus", "every": "paint the shed and then the walrus house"}
    with evicted(tmp_path / "store", home, **requests) as memory:
        hits = memory.search("walrus house")

    assert [(hit.session_uid, hit.why) for hit in hits] == [
        ("scripted:every", "its digest has all the words"),
        ("scripted:some", "its digest has some of the words"),
    ]


def test_a_quoted_phrase_and_an_excluded_word_hold_for_digests_too(tmp_path: Path, home: Home) -> None:
    with evicted(tmp_path / "store", home, gone="the walrus eats herring") as memory:
        home.write("held", event("held", 1, text="a walrus herring eats too"))
        memory.sweep()

        assert [hit.session_uid for hit in memory.search('"walrus herring"')] == ["scripted:held"]
        assert memory.search("walrus herring tonight -eats") == []


def test_a_word_that_only_a_digest_has_is_not_corrected(tmp_path: Path, home: Home) -> None:
    with evicted(tmp_path / "store", home, gone="ask walruz about it") as memory:
        home.write("held", event("held", 1, text="the walrus sleeps"))
        memory.sweep()
        answer = memory.answer("walruz")

    assert answer.suggestion is None
    assert [hit.session_uid for hit in answer.hits] == ["scripted:gone"]


def test_a_mistyped_word_that_only_a_digest_has_is_put_right(tmp_path: Path, home: Home) -> None:
    with evicted(tmp_path / "store", home, gone="ask the walrus about it") as memory:
        answer = memory.answer("walris")

    assert (answer.suggestion, answer.notes) == ("walrus", ["No match for `walris`; showing `walrus`"])
    assert [hit.session_uid for hit in answer.hits] == ["scripted:gone"]


def test_an_evicted_session_is_still_related_to_others(tmp_path: Path, home: Home) -> None:
    with evicted(tmp_path / "store", home, gone="feed the walrus herring", other="paint the shed") as memory:
        home.write("held", event("held", 1, text="count the walrus herring"))
        memory.sweep()
        found = memory.related(memory.session("held"))

    assert [(other.session_uid, other.why) for other in found] == [("scripted:gone", "shares herring, walrus, the")]


def test_a_recent_session_of_which_only_the_digest_is_left_tells_its_last_request_and_its_end(
    tmp_path: Path, home: Home
) -> None:
    home.write(
        "gone",
        event("gone", 1, text="feed the walrus"),
        event("gone", 2, text="and now the seal"),
        event("gone", 3, ASSISTANT_MSG, "Both are fed", role="assistant"),
    )
    with opened(tmp_path / "store", home) as memory:
        memory.sweep()
        before = memory.search("")
        evict_all(memory)
        (hit,) = memory.search("")

    assert hit.evicted
    assert [match.snippet for match in hit.matches] == [match.snippet for match in before[0].matches]
    assert [end.snippet for end in (hit.first_request, hit.ending) if end] == ["feed the walrus", "Both are fed"]


def test_a_session_that_went_on_after_its_eviction_began_where_it_began(tmp_path: Path, home: Home) -> None:
    with evicted(tmp_path / "store", home, gone="feed the walrus herring") as memory:
        home.append("gone", event("gone", 5, text="and now flibbertigibbets"))
        memory.sweep()
        found, recent = memory.search("flibbertigibbets"), memory.search("")

    for hit in (*found, *recent):
        assert not hit.evicted
        assert hit.first_request
        assert hit.first_request.snippet == "feed the walrus herring"
        assert [match.snippet for match in hit.matches] == ["and now flibbertigibbets"]


def test_an_event_that_was_dropped_is_said_to_be(tmp_path: Path, home: Home) -> None:
    with evicted(tmp_path / "store", home, gone="feed the walrus herring") as memory:
        session = memory.session("gone")
        cited = memory.digest(session).requests[0].event_uid
        for at in ("1", cited[-12:]):
            with pytest.raises(NotFound, match="was evicted"):
                memory.window(session, at, 1)
