"""Repair rebuilds what sources, packs and ledger still tell, names what is lost, and deletes nothing."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.api import open_memory, repair
from recollect.care import repair as repairs
from recollect.care.repair import RepairReport
from recollect.model.errors import NeedsAnswer, StoreTooNew
from recollect.store import Ledger, open_store
from tests.builders import Home, event, sweep
from tests.care.rig import (
    distilled,
    evicted_and_held,
    flip,
    hashes,
    held,
    leave_only_its_row,
    lose_home,
    pack_of,
    problems,
    tree,
)
from tests.faults.rig import as_nobody, command, needs_nobody, own, run, run_json, scratch
from tests.logs import CLAUDE
from tests.retention.rig import evict_all, opened, topic, write
from tests.store.rows import noise

DATABASES = ("cache.db", "memory.db")


def _repaired(store: Path, home: Home) -> RepairReport:
    return repair(store, [home.flag])


def _damage_pages(path: Path, *pages: int) -> None:
    for page in pages:
        flip(path, page * 4096 + 2000)


def _pages(path: Path) -> int:
    return path.stat().st_size // 4096


def test_a_sound_store_is_left_alone(store: Path, home: Home) -> None:
    before = tree(store)

    report = _repaired(store, home)

    assert report == RepairReport()
    assert tree(store) == before


@pytest.mark.parametrize("name", DATABASES)
@pytest.mark.parametrize("page", [0, 1, 4, -1])
def test_a_damaged_database_is_rebuilt_from_the_sources(store: Path, home: Home, name: str, page: int) -> None:
    before = held(store)
    _damage_pages(store / name, page % _pages(store / name))

    report = _repaired(store, home)

    assert report.lost == []
    assert held(store) == before
    assert problems(store, home) == []


@pytest.mark.parametrize("name", DATABASES)
@pytest.mark.parametrize("content", [b"", b"this is a shopping list\n" * 500])
def test_a_database_that_is_none_is_rebuilt_from_the_sources(
    store: Path, home: Home, name: str, content: bytes
) -> None:
    before = held(store)
    (store / name).write_bytes(content)

    report = _repaired(store, home)

    assert held(store) == before
    assert report.lost == []
    assert problems(store, home) == []


@pytest.mark.parametrize("name", DATABASES)
def test_a_missing_database_is_rebuilt_from_the_sources(store: Path, home: Home, name: str) -> None:
    before = held(store)
    for path in store.glob(f"{name}*"):
        path.unlink()

    report = _repaired(store, home)

    assert (report.lost, held(store)) == ([], before)
    assert problems(store, home) == []


def test_a_damaged_file_is_kept_byte_by_byte(store: Path, home: Home) -> None:
    _damage_pages(store / "cache.db", 3)
    before = tree(store)

    report = _repaired(store, home)

    kept = tree(Path(report.set_aside or ""))
    assert kept["cache.db"] == before["cache.db"]


def test_what_was_set_aside_is_remembered_as_a_copy(store: Path, home: Home) -> None:
    _damage_pages(store / "cache.db", 3)

    report = _repaired(store, home)

    with open_store(store) as opened:
        assert (report.set_aside, "set aside") in {(copy.path, copy.kind) for copy in opened.copies.noted()}


def _copies(store: Path) -> set[tuple[str, str]]:
    """What whoever forgets a session is told to be out of reach."""
    with open_store(store) as opened:
        return {(copy.kind, copy.path) for copy in opened.copies.all()}


def test_what_is_set_aside_is_noted_before_it_is_moved(
    store: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _damage_pages(store / "cache.db", 3)
    monkeypatch.setattr(repairs, "sweep", _die)

    with pytest.raises(KeyboardInterrupt):
        _repaired(store, home)

    (aside,) = store.glob("damaged-*")
    assert str(aside) in {record.data["path"] for record in Ledger(store).records("copy")}
    assert _copies(store) == {("set aside", str(aside))}


def _die(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["damaged-20260101T000000.000000Z", "before-restore-20260101T000000.000000Z"])
def test_a_folder_of_old_files_in_the_store_is_out_of_reach_though_nobody_noted_it(store: Path, name: str) -> None:
    (store / name).mkdir()

    assert _copies(store) == {("set aside", str(store / name))}


@needs_nobody
@pytest.mark.parametrize("mode", [0, 0o600], ids=oct)
def test_sources_that_cannot_be_read_do_not_make_a_sound_store_a_damaged_one(mode: int) -> None:
    with scratch() as folder:
        store, home = folder / "store", folder / "home"
        flag = CLAUDE.root_flag(home)
        CLAUDE.write(home, CLAUDE.content(2))
        own(folder)
        run(as_nobody(command("sweep", "--root", flag)), store)
        (home / "projects").chmod(mode)

        looked = run_json(as_nobody(command("doctor", "--deep", "--json", "--root", flag)), store)
        repaired = run(as_nobody(command("doctor", "--repair", "--yes", "--root", flag)), store)

        deep = [finding for finding in looked if finding["subject"] == "deep"]
        assert {finding["level"] for finding in deep} == {"note", "ok"}
        assert str(home / "projects") in deep[0]["message"]
        assert not any("lack of time" in finding["message"] for finding in deep)
        assert (repaired.returncode, repaired.stderr) == (0, "")
        assert "Nothing to repair" in repaired.stdout
        assert list(store.glob("damaged-*")) == []


def test_events_that_come_back_after_they_were_given_up_are_held_like_all_others(
    store: Path, home: Home, tmp_path: Path
) -> None:
    before = held(store)
    _damage_pages(store / "cache.db", *range(1, _pages(store / "cache.db")))
    shutil.rmtree(store / "packs")
    (tmp_path / "elsewhere").mkdir()

    report = repair(store, [f"scripted={tmp_path / 'elsewhere'}"])
    sweep(store, home).close()

    assert len(report.lost) == 3
    assert all("no source has them" not in line for line in report.lost)
    assert all(str(home.folder) in line for line in report.lost)
    assert held(store) == before


def _remove(path: Path) -> None:
    path.unlink()


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _cut(path: Path) -> None:
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


@pytest.mark.parametrize("lose", [_remove, _empty, _cut])
def test_a_ledger_that_has_lost_records_is_written_again_from_memory(
    store: Path, home: Home, lose: Callable[[Path], None]
) -> None:
    with open_memory(store) as memory:
        memory.backup(store.parent / "one.tar.zst")
        memory.forget(memory.plan_forgetting("scripted:small"))
    before = [(record.kind, record.data) for record in Ledger(store).records()]
    lose(store / "ledger.jsonl")

    noticed = [finding.message for finding in problems(store, home)]
    _repaired(store, home)

    assert any("The ledger has lost" in message for message in noticed)
    after = [(record.kind, record.data) for record in Ledger(store).records()]
    assert sorted(after, key=str) == sorted(before, key=str)
    assert problems(store, home) == []


def test_evictions_that_the_ledger_has_lost_are_written_again_as_they_were(tmp_path: Path) -> None:
    home, store = Home(tmp_path / "home"), tmp_path / "store"
    write(home, "one")
    with opened(store, home) as memory:
        memory.sweep()
        evict_all(memory)
    before = [(record.kind, record.data) for record in Ledger(store).records()]
    (store / "ledger.jsonl").unlink()

    _repaired(store, home)

    assert before
    assert [(record.kind, record.data) for record in Ledger(store).records()] == before


@pytest.mark.parametrize("lose", [_remove, _empty])
def test_a_lost_key_of_redaction_is_noticed_and_a_look_makes_no_new_one(
    store: Path, home: Home, lose: Callable[[Path], None]
) -> None:
    lose(store / "redaction.key")

    noticed = [finding.message for finding in problems(store, home)]
    size = (store / "redaction.key").stat().st_size if (store / "redaction.key").exists() else None
    _repaired(store, home)

    assert any("redaction.key" in message for message in noticed)
    assert size != 32
    assert problems(store, home) == []


def test_a_missing_pack_is_read_again_from_its_source(store: Path, home: Home) -> None:
    before = held(store)
    pack_of(store, "largest").unlink()

    report = _repaired(store, home)

    assert report.lost == []
    assert report.events_read_again > 0
    assert held(store) == before
    assert problems(store, home) == []


@pytest.mark.parametrize("which", ["largest", "smallest"])
def test_a_flipped_byte_in_a_pack_is_read_again_from_its_source(store: Path, home: Home, which: str) -> None:
    before = held(store)
    flip(pack_of(store, which), pack_of(store, which).stat().st_size // 2)
    damaged = pack_of(store, which).read_bytes()

    report = _repaired(store, home)

    assert held(store) == before
    assert damaged in tree(Path(report.set_aside or "")).values()
    assert problems(store, home) == []


def test_without_its_source_the_sound_part_of_a_pack_is_kept_and_the_lost_events_are_named(
    store: Path, home: Home
) -> None:
    before = held(store)
    lose_home(home)
    flip(pack_of(store, "largest"), pack_of(store, "largest").stat().st_size - 100)

    report = _repaired(store, home)

    texts_before = [payload["text"] for payload in before["scripted:large"][2]]
    texts_after = [payload["text"] for payload in held(store)["scripted:large"][2]]
    assert 0 < len(texts_after) < len(texts_before)
    assert texts_after == [text for text in texts_before if text in texts_after]
    for text in set(texts_before) - set(texts_after):
        assert any(text[:100] in line for line in report.lost)
    assert problems(store, home) == []


def test_without_pack_and_source_a_session_keeps_its_row(store: Path, home: Home) -> None:
    lose_home(home)
    home.write("other", event("other", 1))
    pack_of(store, "largest").unlink()

    report = _repaired(store, home)

    with open_memory(store) as memory:
        session = memory.session("scripted:large")
        assert session.evicted_at is not None
        assert session.event_count == 11
        assert memory.events(session) == []
    assert any("scripted:large" in line for line in report.lost)
    assert problems(store, home) == []


def test_a_source_that_has_less_than_was_stored_takes_nothing_away(store: Path, home: Home) -> None:
    """The log was begun anew since: what is sound in the store stays, and what the log still has comes back."""
    home.write("large", event("large", 1, text=noise(100_000, 1)))
    flip(pack_of(store, "largest"), pack_of(store, "largest").stat().st_size - 100)

    report = _repaired(store, home)

    with open_memory(store) as memory:
        assert len(memory.events(memory.session("scripted:large"))) > 5
    assert report.lost


def test_memory_is_made_again_from_cache_and_ledger_when_all_sources_are_gone(store: Path, home: Home) -> None:
    before = held(store)
    with open_store(store) as opened:
        opened.copies.note_copy("backup", Path("/backups/one"))
        copies = opened.copies.noted()
    lose_home(home)
    for path in store.glob("memory.db*"):
        path.unlink()

    report = _repaired(store, home)

    with open_store(store) as opened:
        assert opened.copies.noted() == copies
    assert report.records_restored == {"copy": 1}
    assert held(store) == before


def test_digests_are_made_again_from_cache_and_ledger_when_all_sources_are_gone(tmp_path: Path) -> None:
    home, store = evicted_and_held(tmp_path)
    before = distilled(store)
    for path in store.glob("memory.db*"):
        path.unlink()

    report = _repaired(store, home)

    assert distilled(store) == before
    with open_memory(store) as memory:
        assert [hit.session_uid for hit in memory.search(topic("evicted"))] == ["scripted:evicted"]
    assert report.lost == []


def test_a_sweep_before_the_repair_loses_nothing_of_the_ledger(store: Path, home: Home) -> None:
    with open_store(store) as opened:
        opened.copies.note_copy("backup", Path("/backups/one"))
        copies = opened.copies.noted()
    for path in store.glob("memory.db*"):
        path.unlink()

    sweep(store, home).close()

    with open_store(store) as opened:
        assert opened.copies.noted() == copies


def test_rows_that_only_memory_has_are_saved_from_a_damaged_one(store: Path, home: Home) -> None:
    """A session whose events were dropped has its row and nothing else."""
    with open_store(store) as opened:
        leave_only_its_row(opened)
        root = opened.databases[1].value("SELECT rootpage FROM sqlite_schema WHERE name = 'sessions_by_time'")
        opened.checkpoint()
    lose_home(home)
    before = hashes(store)
    _damage_pages(store / "memory.db", root - 1)

    report = _repaired(store, home)

    assert report.set_aside
    assert hashes(store) == before


def test_damaged_lines_of_the_ledger_are_kept_aside_and_the_others_stay(store: Path, home: Home) -> None:
    with open_store(store) as opened:
        for number in range(5):
            opened.copies.note_copy("backup", Path(f"/backups/{number}"))
    flip(store / "ledger.jsonl", (store / "ledger.jsonl").read_bytes().index(b"/backups/2"))
    damaged = (store / "ledger.jsonl").read_bytes()

    report = _repaired(store, home)

    with open_store(store) as opened:
        paths = [record.data["path"] for record in opened.ledger.records()]
    assert paths[:4] == [f"/backups/{number}" for number in (0, 1, 3, 4)]
    assert tree(Path(report.set_aside or ""))["ledger.jsonl"] == damaged
    assert problems(store, home) == []


def test_an_old_memory_put_back_is_brought_up_to_date(store: Path, home: Home) -> None:
    old = (store / "memory.db").read_bytes()
    home.write("new", event("new", 1))
    sweep(store, home).close()
    before = held(store)
    (store / "memory.db").write_bytes(old)

    report = _repaired(store, home)

    assert (report.lost, held(store)) == ([], before)
    assert problems(store, home) == []


def test_a_row_that_does_not_fit_its_events_is_made_again(store: Path, home: Home) -> None:
    before = held(store)
    with open_store(store) as opened, opened.databases[1].transaction() as connection:
        connection.execute("UPDATE sessions SET content_hash = 'x', title = 'y' WHERE native_session_id = 'small'")

    _repaired(store, home)

    assert held(store) == before


def test_a_repair_that_is_not_confirmed_changes_nothing(store: Path, home: Home) -> None:
    pack_of(store, "largest").unlink()
    before = tree(store)

    def refuse(steps: list[str]) -> None:
        assert steps
        raise NeedsAnswer("no")

    with pytest.raises(NeedsAnswer):
        repair(store, [home.flag], confirm=refuse)

    assert {name: content for name, content in tree(store).items() if not name.endswith("-shm")} == before


def test_the_command_asks_and_without_anybody_to_ask_does_nothing(store: Path) -> None:
    os.truncate(pack_of(store, "largest"), 10)

    done = run(command("doctor", "--repair", "--root", "claude=/nowhere"), store)

    assert done.returncode == 1
    assert "--yes" in done.stderr
    assert not list(store.glob("damaged-*"))


def test_the_command_tells_what_it_did_as_json(store: Path, home: Home) -> None:
    shutil.rmtree(store / "packs")

    told = run_json(command("doctor", "--repair", "--yes", "--json", "--root", "claude=/nowhere"), store)

    assert told["lost"]
    assert told["steps"]


@pytest.mark.parametrize("name", DATABASES)
def test_the_store_of_a_newer_version_is_not_touched(store: Path, home: Home, name: str) -> None:
    with open_store(store) as opened:
        for database in opened.databases:
            if database.path.name == name:
                database.connection.pragma("user_version", 99)
    before = tree(store)

    with pytest.raises(StoreTooNew):
        _repaired(store, home)

    after = {path: content for path, content in tree(store).items() if not path.endswith(("-shm", "-wal"))}
    assert after == before
    assert any("newer version" in finding.message for finding in problems(store, home))


def test_a_second_repair_finds_nothing_to_do(store: Path, home: Home) -> None:
    lose_home(home)
    shutil.rmtree(store / "packs")
    _repaired(store, home)

    assert _repaired(store, home) == RepairReport()
