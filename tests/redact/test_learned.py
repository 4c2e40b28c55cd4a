"""A value that a session names once is hidden in all of that session, whatever was read or stored first."""

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from recollect.agentkit.protocol import EventRecord
from recollect.agents import adapters
from recollect.api import open_memory
from recollect.ingest.pool import pack_batch, unpack_batch
from recollect.model.errors import RecollectError
from recollect.model.kinds import SessionKey
from recollect.redact import AHO_CORASICK, NamedValue, RedactionRules, Redactor
from recollect.store import Batch, Rewrites, SourceRow, StreamBatch
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep
from tests.forget.traces import left_in

NAMED = "Zq3vKp9Lm2Wx8"
WITH_SIGNS = "Zq3v#Kp9L/m2W+x8"
NOISE = os.urandom(300_000).hex()  # more than a frame that lies in the database may have


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "store"


def naming(session: str, number: int, value: str = NAMED) -> EventRecord:
    return event(session, number, text=f"DB_PASSWORD={value}")


def bare(session: str, number: int, value: str = NAMED) -> EventRecord:
    return event(session, number, text=f"I typed\n{value}, and it worked")


def summaries(folder: Path, home: Home, session: str = "s") -> list[str]:
    """Those of a session once everything is swept; the value may be in no file of the store."""
    with sweep(folder, home) as memory:
        found = [event.summary for event in memory.events(memory.session(session))]
    assert left_in(folder, [NAMED, NAMED.lower(), WITH_SIGNS]) == set()
    return found


def test_a_value_named_in_one_batch_is_hidden_in_the_next(folder: Path, home: Home) -> None:
    home.write("s", naming("s", 1), None, bare("s", 2), None)

    assert len(summaries(folder, home)) == 2


@pytest.mark.parametrize("value", [NAMED, WITH_SIGNS])
def test_a_value_is_hidden_in_what_came_before_its_name(folder: Path, home: Home, value: str) -> None:
    home.write("s", bare("s", 1, value), None, event("s", 2, text=NOISE), None, naming("s", 3, value), None)

    first, _, last = summaries(folder, home)

    assert first == f"I typed\n{last.removeprefix('DB_PASSWORD=')}, and it worked"


@pytest.mark.parametrize("value", [NAMED, WITH_SIGNS])
def test_a_value_is_hidden_in_what_an_earlier_sweep_stored(folder: Path, home: Home, value: str) -> None:
    home.write("s", bare("s", 1, value), event("s", 2, text=NOISE))
    sweep(folder, home).close()
    assert left_in(folder, [value]) == {value}

    home.append("s", naming("s", 3, value))

    assert len(summaries(folder, home)) == 3


@pytest.mark.parametrize("value", [NAMED, WITH_SIGNS])
def test_a_value_is_hidden_in_what_a_later_sweep_reads(folder: Path, home: Home, value: str) -> None:
    home.write("s", naming("s", 1, value))
    sweep(folder, home).close()

    home.append("s", bare("s", 2, value))

    assert len(summaries(folder, home)) == 2


@pytest.mark.parametrize("other", ["s", "s/helper"], ids=["another file", "a sub-agent"])
@pytest.mark.parametrize("first", [naming, bare])
def test_a_value_is_hidden_in_all_files_of_its_session(
    folder: Path, home: Home, first: Callable[[str, int], EventRecord], other: str
) -> None:
    second = bare if first is naming else naming
    home.write("a", first("s", 1))
    home.write("b", second(other, 2))

    assert len(summaries(folder, home, other)) == (2 if other == "s" else 1)


@pytest.mark.parametrize("other", ["s", "s/helper"], ids=["another file", "a sub-agent"])
@pytest.mark.parametrize("first", [naming, bare])
def test_a_value_is_hidden_in_a_file_that_a_later_sweep_finds(
    folder: Path, home: Home, first: Callable[[str, int], EventRecord], other: str
) -> None:
    second = bare if first is naming else naming
    home.write("a", first("s", 1))
    sweep(folder, home).close()

    home.write("b", second(other, 2))

    assert len(summaries(folder, home, other)) == (2 if other == "s" else 1)


def test_a_summary_that_ends_within_the_value_is_cut_before_it(folder: Path, home: Home) -> None:
    long = event("s", 1, text="x" * 100 + " " + "y" * 90 + f" {NAMED}")
    long.summary = long.summary[:199] + "…"
    home.write("s", long, None, naming("s", 2), None)

    assert summaries(folder, home)[0].endswith("y …")


def test_what_one_session_names_stays_in_another_of_the_same_file(folder: Path, home: Home) -> None:
    home.write("s", bare("t", 1), None, naming("s", 1), None, bare("t", 2), None)

    with sweep(folder, home) as memory:
        found = memory.events(memory.session("t"))

    assert [NAMED in event.summary for event in found] == [True, True]


@pytest.mark.parametrize("place", ["before-cache-commit", "after-cache-commit", "before-memory-commit"])
def test_whatever_stops_a_sweep_the_next_one_hides_the_value(
    folder: Path, home: Home, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops = 0
    for nth in range(1, 60):
        store = folder / str(nth)
        home.write("s", bare("s", 1), event("s", 2, text=NOISE))
        sweep(store, home).close()
        home.append("s", naming("s", 3))

        monkeypatch.setenv("RECOLLECT_FAILPOINT", f"{place}:eio:{nth}")
        with open_memory(store, [home.flag]) as memory, suppress(RecollectError, OSError):
            stops += 1
            memory.sweep()
            stops -= 1
        monkeypatch.delenv("RECOLLECT_FAILPOINT")

        assert len(summaries(store, home)) == 3
        if stops < nth:
            break
    assert stops > 2


def test_a_value_that_is_named_again_writes_nothing_again(
    folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("s", bare("s", 1), None, naming("s", 2), None)
    sweep(folder, home).close()
    rewritten: list[object] = []
    monkeypatch.setattr(Rewrites, "replace", lambda self, *given: rewritten.append(given))

    home.append("s", naming("s", 3), None, bare("s", 4))
    sweep(folder, home).close()

    assert rewritten == []


def test_what_is_read_again_is_not_stored_again(folder: Path, home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.write("s", bare("s", 1), None, naming("s", 2), None)
    sweep(folder, home).close()

    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter(version=2))

    assert len(summaries(folder, home)) == 2


def test_named_values_cross_from_reader_to_writer() -> None:
    named = [NamedValue(NAMED.encode(), "assignment", "01234567")]
    source = SourceRow("h", AGENT, "/log", "log", 0, 0, 0, 0, 1, 0, 0, "", "", "{}")

    batch = unpack_batch(pack_batch(Batch(source, [StreamBatch("s", named=named)])))

    assert batch.streams[0].named == named


def test_a_value_is_recognised_by_the_digits_of_its_mark_only_as_a_whole() -> None:
    redactor = Redactor(RedactionRules(), b"k" * 32, AHO_CORASICK)
    redactor.changes([f'{{"text":"DB_PASSWORD={NAMED}"}}'.encode()], learned := redactor.learned(SessionKey("a", "s")))
    marks = {value.digits: value.rule for value in learned.take_new()}
    texts = [f"\\n{NAMED}\\t", f"\\\\n{NAMED}\\\\n", f"({NAMED})", f"key={NAMED};", f"x{NAMED}", f"{NAMED}1", NAMED[1:]]

    changed = redactor.known_values(marks, []).payloads([f'{{"text":"{text}"}}'.encode() for text in texts])

    assert set(changed) == {0, 1, 2, 3}
