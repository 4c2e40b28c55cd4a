"""Which files a sweep opens, and what it says of those that are gone, moved or unreadable."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from recollect.agentkit.protocol import Cursor, EventRecord, Record, SessionInfo, Source, Usage
from recollect.agents import adapters
from recollect.api import Memory, open_memory
from recollect.sweep_report import SweepReport
from tests.builders import AGENT, Home, ScriptedAdapter, event, usage


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.write("one", event("s1", 1), event("s1", 2))
    home.write("two", event("s2", 1))
    return home


@pytest.fixture
def memory(tmp_path: Path, home: Home) -> Iterator[Memory]:
    with open_memory(tmp_path / "store", [home.flag]) as opened:
        opened.sweep()
        yield opened


def gone(memory: Memory) -> list[str]:
    """Names of the files that are said to be gone."""
    sources = [source for session in memory.sessions() for source in session.sources]
    return sorted(Path(source.path).name for source in sources if source.source_gone_at)


def counted(report: SweepReport) -> tuple[int, int, int]:
    return report.sources_changed, report.lines_read, report.events_new


def test_a_second_sweep_reads_nothing(memory: Memory) -> None:
    assert counted(memory.sweep()) == (0, 0, 0)


def test_verify_opens_every_file_and_finds_nothing_new(memory: Memory) -> None:
    assert counted(memory.sweep(verify=True)) == (2, 0, 0)


def test_only_the_new_lines_of_a_file_that_grew_are_read(memory: Memory, home: Home) -> None:
    home.append("one", event("s1", 3))

    assert counted(memory.sweep()) == (1, 1, 1)


def test_a_file_rewritten_with_the_same_size_and_time_is_still_noticed(memory: Memory, home: Home) -> None:
    path = home.folder / "two.jsonl"
    before = path.stat()
    home.write("two", event("s2", 7))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size

    assert memory.sweep().events_new == 1


def test_a_higher_version_of_an_adapter_reads_everything_again(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter(version=2))

    report = memory.sweep()

    assert (report.lines_read, report.events_new, report.events_replaced) == (3, 3, 0)


def test_a_file_that_disappears_is_marked_and_nothing_of_it_is_lost(memory: Memory, home: Home) -> None:
    (home.folder / "one.jsonl").unlink()

    report = memory.sweep()

    assert (report.sources_gone, gone(memory)) == (1, ["one.jsonl"])
    assert len(memory.events(memory.session(f"{AGENT}:s1"))) == 2


def test_a_file_that_comes_back_is_marked_no_more(memory: Memory, home: Home) -> None:
    content = (home.folder / "one.jsonl").read_bytes()
    (home.folder / "one.jsonl").unlink()
    memory.sweep()

    (home.folder / "one.jsonl").write_bytes(content)
    memory.sweep()

    assert gone(memory) == []


def test_a_home_that_is_suddenly_empty_marks_nothing(memory: Memory, home: Home) -> None:
    for path in home.folder.iterdir():
        path.unlink()

    memory.sweep()

    assert gone(memory) == []


def test_a_home_that_is_not_there_marks_nothing(memory: Memory, home: Home) -> None:
    home.folder.rename(home.folder.with_name("away"))

    memory.sweep()

    assert gone(memory) == []


def test_sweeping_another_home_marks_nothing_of_the_first(tmp_path: Path, memory: Memory) -> None:
    other = Home(tmp_path / "other")
    other.write("three", event("s3", 1))

    with open_memory(tmp_path / "store", [other.flag]) as second:
        second.sweep()

        assert gone(second) == []


def test_a_moved_file_is_the_same_source_at_another_place(memory: Memory, home: Home) -> None:
    (home.folder / "archive").mkdir()
    (home.folder / "one.jsonl").rename(home.folder / "archive" / "one.jsonl")

    report = memory.sweep()

    (source,) = memory.session(f"{AGENT}:s1").sources
    assert source.path.endswith("/archive/one.jsonl")
    assert (source.source_gone_at, report.lines_read, report.sources_gone) == (None, 0, 0)


def test_a_renamed_host_has_the_same_sources_as_before(memory: Memory) -> None:
    memory.settings = memory.settings._replace(host="renamed")

    report = memory.sweep()

    assert (report.lines_read, report.sources_gone) == (0, 0)
    assert [source.host for session in memory.sessions() for source in session.sources] == ["renamed", "renamed"]


def test_another_file_at_the_same_place_on_another_host_is_a_source_of_its_own(memory: Memory, home: Home) -> None:
    memory.settings = memory.settings._replace(host="other")
    home.write("two", event("s2", 1), event("s2", 2))

    memory.sweep()

    assert len(memory.session(f"{AGENT}:s2").sources) == 2


def test_two_homes_that_overlap_are_read_once(tmp_path: Path, home: Home) -> None:
    home.write("sub/three", event("s3", 1))

    with open_memory(tmp_path / "store", [home.flag, f"{AGENT}={home.folder}/sub"]) as memory:
        assert memory.sweep().events_new == 4


def test_a_file_that_cannot_be_read_is_a_problem_and_the_others_are_read(tmp_path: Path, home: Home) -> None:
    home.write("bad", event("s9", 1), "the disk says no")

    with open_memory(tmp_path / "store", [home.flag]) as memory:
        report = memory.sweep()

        assert (report.sources_failed, report.sources_changed) == (1, 2)
        (problem,) = memory.problems()
        assert (Path(problem.path).name, problem.reason) == ("bad.jsonl", "the disk says no")


def test_a_file_that_could_not_be_read_is_tried_again_once_it_changes(tmp_path: Path, home: Home) -> None:
    home.write("bad", "the disk says no")
    with open_memory(tmp_path / "store", [home.flag]) as memory:
        memory.sweep()
        home.write("bad", event("s9", 1))

        report = memory.sweep()

        assert (report.events_new, report.sources_failed, memory.problems()) == (1, 0, [])


class _Flaky(ScriptedAdapter):
    """Fails as a reader does that was killed or ran out of memory: not the file's fault."""

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        raise MemoryError


def test_a_failure_that_was_not_the_files_is_tried_again_by_the_next_sweep(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_memory(tmp_path / "store", [home.flag]) as memory:
        monkeypatch.setitem(adapters(), AGENT, _Flaky())
        assert memory.sweep().sources_failed == 2
        monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())

        assert memory.sweep().events_new == 3


class _Better(ScriptedAdapter):
    """A later version that reads the same log with other eyes."""

    def __init__(self) -> None:
        super().__init__(version=2)

    def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
        for record in super().read(source, cursor):
            if isinstance(record, EventRecord):
                record.native_id = f"better-{record.native_id}"
            elif isinstance(record, Usage):
                record.output_tokens //= 2
            elif isinstance(record, SessionInfo):
                record.cwd = "/better"
            yield record


@pytest.fixture
def reread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    """A store that an older version of the adapter filled and a better one has read again."""
    home = Home(tmp_path / "reread-home")
    home.write("s", event("s", 1), usage("s", "u", output_tokens=1000), SessionInfo("s", cwd="/worse"))
    with open_memory(tmp_path / "reread-store", [home.flag]) as memory:
        memory.sweep()
        monkeypatch.setitem(adapters(), AGENT, _Better())
        memory.sweep()
        yield memory


def test_a_better_adapter_replaces_facts_an_older_one_told(reread: Memory) -> None:
    assert reread.session(f"{AGENT}:s").cwd == "/better"


def test_a_better_adapter_replaces_tokens_an_older_one_told(reread: Memory) -> None:
    assert reread.session(f"{AGENT}:s").cost.output_tokens == 500


def test_a_better_adapter_leaves_no_events_that_only_an_older_one_told(reread: Memory) -> None:
    assert [found.native_id for found in reread.events(reread.session(f"{AGENT}:s"))] == ["better-s-1"]


def test_a_session_that_only_an_older_adapter_told_of_is_dropped(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Renaming(_Better):
        def read(self, source: Source, cursor: Cursor | None) -> Iterator[Record]:
            for record in super().read(source, cursor):
                if isinstance(record, EventRecord):
                    record.native_session_id = f"better-{record.native_session_id}"
                yield record

    monkeypatch.setitem(adapters(), AGENT, Renaming())
    memory.sweep()

    assert sorted(session.native_session_id for session in memory.sessions()) == ["better-s1", "better-s2"]


def test_a_better_adapter_keeps_a_session_whose_other_file_is_gone(
    memory: Memory, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("more", event("s1", 3))
    memory.sweep()
    (home.folder / "one.jsonl").unlink()
    monkeypatch.setitem(adapters(), AGENT, _Better())

    memory.sweep()

    found = [event.native_id for event in memory.events(memory.session(f"{AGENT}:s1"))]
    assert set(found) >= {"s1-1", "s1-2", "better-s1-3"}


def test_a_better_adapter_keeps_what_a_file_no_longer_holds(
    memory: Memory, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("one", event("s1", 2))
    monkeypatch.setitem(adapters(), AGENT, _Better())

    memory.sweep()

    assert "s1-1" in [event.native_id for event in memory.events(memory.session(f"{AGENT}:s1"))]


def test_copies_point_at_no_event_that_a_better_adapter_no_longer_tells(
    memory: Memory, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.write("base", event("base", 1, text="x", native_id="n"), usage("base", "u", output_tokens=10))
    home.write("gone", event("fork", 5))
    fork = [event("fork", 1, text="x", native_id="n"), usage("fork", "u", output_tokens=10)]
    home.write("fork", *fork, SessionInfo("fork", base_native_id="base"))
    memory.sweep()
    for name in ("gone", "fork"):
        (home.folder / f"{name}.jsonl").unlink()
    monkeypatch.setitem(adapters(), AGENT, _Better())

    memory.sweep()

    held = {event.event_uid for session in memory.sessions() for event in memory.events(session, with_copies=True)}
    copies = {event.copy_of for session in memory.sessions() for event in memory.events(session, with_copies=True)} - {
        None
    }
    assert copies <= held


def test_a_sweep_of_one_file_reads_that_file_alone(memory: Memory, home: Home) -> None:
    home.append("one", event("s1", 3))
    home.append("two", event("s2", 2))

    report = memory.sweep(only=[home.folder / "one.jsonl", home.folder / "no-log.txt"])

    assert counted(report) == (1, 1, 1)
    assert counted(memory.sweep()) == (1, 1, 1)


def test_a_sweep_of_one_file_takes_nothing_else_for_gone(memory: Memory, home: Home) -> None:
    (home.folder / "two.jsonl").unlink()

    memory.sweep(only=[home.write("three", event("s3", 1))])

    assert gone(memory) == []
    assert {session.native_session_id for session in memory.sessions()} == {"s1", "s2", "s3"}


def test_a_sweep_of_a_file_that_is_no_agents_reads_nothing(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "foreign.jsonl").write_text("{}\n")

    assert memory.sweep(only=[tmp_path / "foreign.jsonl"]).sources == 0
