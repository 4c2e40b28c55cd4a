"""Whatever happens to a store's files, it is noticed, nothing sound is lost, and no command ends in a traceback."""

import random
import shutil
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import pytest

from recollect.agents import adapters
from recollect.store import PAGE_BYTES
from tests.builders import AGENT, ScriptedAdapter
from tests.care import damage
from tests.care.damage import Subject
from tests.care.rig import problems
from tests.faults.rig import IS_SOAK

HARMS = 400 if IS_SOAK else 6


@pytest.fixture(scope="module")
def subjects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Subject]]:
    """Two stores: one with its sources and a log that was not emptied, one without."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(adapters(), AGENT, ScriptedAdapter())
        yield [
            damage.build(tmp_path_factory.mktemp("subject"), has_sources=is_whole, has_log=is_whole)
            for is_whole in (True, False)
        ]


@pytest.fixture
def lone(subjects: list[Subject]) -> Subject:
    """The store whose sources are gone."""
    return subjects[1]


def test_harm_of_all_kinds_is_noticed_and_repaired(subjects: list[Subject], tmp_path: Path) -> None:
    found = {}
    for _ in range(HARMS):
        seed = random.randrange(1 << 32)
        chance = random.Random(seed)
        subject, other = chance.sample(subjects, 2)
        harm = damage.random_harm(chance, subject, other)
        found[seed, subject.has_sources, harm.name] = list(damage.examine(subject, harm, tmp_path / "harmed"))
        shutil.rmtree(tmp_path / "harmed")
    assert {name: told for name, told in found.items() if told} == {}


@pytest.mark.skipif(not IS_SOAK, reason="takes ten minutes")
def test_whatever_files_are_lost_the_others_tell_what_they_can(subjects: list[Subject], tmp_path: Path) -> None:
    found = {}
    for subject in subjects:
        names = damage.parts(subject.folder)
        for lost in [(name,) for name in names] + list(combinations(names, 2)):
            told = list(damage.examine(subject, damage.lose(*lost), tmp_path / "harmed"))
            found[subject.has_sources, lost] = told
            shutil.rmtree(tmp_path / "harmed")
    assert {name: told for name, told in found.items() if told} == {}


def test_a_key_that_is_lost_with_the_index_is_made_anew(lone: Subject, tmp_path: Path) -> None:
    assert list(damage.examine(lone, damage.lose("redaction.key", "cache.db"), tmp_path / "harmed")) == []


# After two, a session is stored and its repository has no name yet.
@pytest.mark.parametrize("commits", range(5) if IS_SOAK else [2])
def test_a_log_that_ends_within_a_commit_costs_nothing(subjects: list[Subject], tmp_path: Path, commits: int) -> None:
    harm = damage.end_log("memory.db-wal", commits)

    assert list(damage.examine(subjects[0], harm, tmp_path / "harmed")) == []


def _pages_of(subject: Subject, name: str, table: str, kind: str) -> list[int]:
    found = damage.places(subject.folder / name)
    return [page for page, told in found.items() if told[:2] == (table, kind)]


@pytest.mark.parametrize(
    ("name", "one", "other"),
    [
        ("cache.db", "events", "frames"),
        ("cache.db", "events", "events_by_uid"),
        ("memory.db", "sessions", "digests"),
        ("memory.db", "evictions", "activity"),
    ],
)
def test_pages_of_two_tables_that_changed_places_cost_nothing(
    lone: Subject, tmp_path: Path, name: str, one: str, other: str
) -> None:
    harm = damage.swap(name, *(_pages_of(lone, name, table, "leaf")[-1] for table in (one, other)))

    assert list(damage.examine(lone, harm, tmp_path / "harmed")) == []
    assert damage.told(tmp_path / "harmed", lone.home)["sessions"] == lone.told["sessions"]


def test_a_page_of_rows_in_the_place_of_an_index_without_any_is_noticed_and_repaired(
    lone: Subject, tmp_path: Path
) -> None:
    index, rows = (_pages_of(lone, "cache.db", name, "leaf")[-1] for name in ("infos_by_root_native_id", "events"))
    content = (lone.folder / "cache.db").read_bytes()[(rows - 1) * PAGE_BYTES : rows * PAGE_BYTES]
    harm = damage.put_page("cache.db", index, content)

    assert list(damage.examine(lone, harm, tmp_path / "harmed")) == []


@pytest.mark.parametrize("table", ["evictions", "digests"])
def test_a_blanked_page_that_a_row_goes_on_at_is_noticed_and_the_ledger_has_it(
    lone: Subject, tmp_path: Path, table: str
) -> None:
    pages = _pages_of(lone, "memory.db", table, "overflow")
    for page in pages[:3]:
        harm = damage.put_page("memory.db", page, bytes(PAGE_BYTES))
        shutil.copytree(lone.folder, tmp_path / "looked")
        harm.act(tmp_path / "looked")

        assert problems(tmp_path / "looked", lone.home) != []
        assert list(damage.examine(lone, harm, tmp_path / "harmed")) == []
        for name in ("looked", "harmed"):
            shutil.rmtree(tmp_path / name)
    assert pages


@pytest.mark.parametrize("told_bytes", [512, 8192])
@pytest.mark.parametrize("name", damage.DATABASES)
def test_a_header_that_tells_another_size_of_pages_costs_nothing(
    lone: Subject, tmp_path: Path, name: str, told_bytes: int
) -> None:
    first = bytearray((lone.folder / name).read_bytes()[:PAGE_BYTES])
    first[16:18] = told_bytes.to_bytes(2)

    assert list(damage.examine(lone, damage.put_page(name, 1, bytes(first)), tmp_path / "harmed")) == []
    assert damage.told(tmp_path / "harmed", lone.home)["sessions"] == lone.told["sessions"]


def test_what_evicted_sessions_used_is_taken_over_from_a_damaged_cache(lone: Subject, tmp_path: Path) -> None:
    (root,) = _pages_of(lone, "cache.db", "history", "leaf")
    harm = damage.put_page("cache.db", root, random.randbytes(PAGE_BYTES))

    assert list(damage.examine(lone, harm, tmp_path / "harmed")) == []
    assert damage.told(tmp_path / "harmed", lone.home)["usage"] == lone.told["usage"]


def test_what_was_counted_of_evicted_sessions_outlives_a_lost_memory(lone: Subject, tmp_path: Path) -> None:
    assert list(damage.examine(lone, damage.lose("memory.db"), tmp_path / "harmed")) == []
    after = damage.told(tmp_path / "harmed", lone.home)
    assert lone.told["activity"]
    assert {name: after[name] for name in ("signals", "activity", "tool_use", "command_use")} == {
        name: lone.told[name] for name in ("signals", "activity", "tool_use", "command_use")
    }
