"""Everything exports and re-imports to the same hashes; an import adds, and never overwrites."""

import io
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import time
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard

import recollect
from recollect.agentkit.protocol import SessionInfo
from recollect.api import Filters, open_memory, repair, restore
from recollect.care.transfer import ImportReport
from recollect.model.errors import BadBackup, NotFound, UsageError
from recollect.store import EventRow, open_store
from tests.builders import AGENT, Home, event, sweep
from tests.care.rig import flip, hashes, held, lose_home, problems, tree
from tests.conftest import SHARED, needs_shared
from tests.faults.rig import IS_SOAK, command, run, run_json
from tests.forget.traces import left_in
from tests.retention.rig import bytes_of, evict_all, opened, talk, topic, write
from tests.test_api import SCHEMAS, breaches

SAMPLES = Path(recollect.__file__).parent / "samples"
FORMS = ["export", "export.tar.zst"]
KILLS = 30 if IS_SOAK else 3


def _export(store: Path, path: Path, *sessions: str, repo: str | None = None) -> Path:
    with open_memory(store, create=False) as memory:
        memory.export(path, sessions, repo=repo)
    return path


def _import(path: Path, store: Path) -> ImportReport:
    with open_memory(store) as memory:
        return memory.import_sessions(path)


def _lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """A store with the bundled sessions of all agents, one file with a bad line among them."""
    homes = shutil.copytree(SAMPLES, tmp_path / "samples")
    with next(homes.rglob("*.jsonl")).open("ab") as file:
        file.write(b"{torn\n")
    roots = [f"{path.name}={path}" for path in homes.iterdir() if path.is_dir()]
    with open_memory(tmp_path / "sample-store", roots) as memory:
        memory.sweep()
    return tmp_path / "sample-store"


@pytest.mark.parametrize("form", FORMS)
def test_an_export_gives_the_same_sessions_in_another_store(samples: Path, tmp_path: Path, form: str) -> None:
    report = _import(_export(samples, tmp_path / form), tmp_path / "other")

    assert held(tmp_path / "other") == held(samples)
    assert (report.sessions, report.different) == (len(held(samples)), 0)
    assert problems(tmp_path / "other", Home(tmp_path / "none")) == []


@needs_shared
def test_genuine_sessions_come_back_the_same(tmp_path: Path) -> None:
    homes = {agent: sorted(SHARED.glob(f"genuine/{agent}-*/.{agent}")) for agent in ("claude", "codex", "grok")}
    roots = [f"{agent}={path}" for agent, paths in homes.items() for path in paths]
    with open_memory(tmp_path / "store", roots) as memory:
        memory.sweep()

    _import(_export(tmp_path / "store", tmp_path / "export"), tmp_path / "other")

    assert held(tmp_path / "other") == held(tmp_path / "store")


def test_bad_lines_travel_with_their_sources(samples: Path, tmp_path: Path) -> None:
    _import(_export(samples, tmp_path / "export"), tmp_path / "other")

    with open_memory(samples) as before, open_memory(tmp_path / "other") as after:
        assert [(line.path, line.excerpt) for line in after.problems()] == [
            (line.path, line.excerpt) for line in before.problems()
        ]
        assert after.problems()


@pytest.mark.parametrize("form", FORMS)
def test_importing_twice_adds_nothing(store: Path, tmp_path: Path, form: str) -> None:
    path = _export(store, tmp_path / form)
    _import(path, tmp_path / "other")
    before = tree(tmp_path / "other")

    report = _import(path, tmp_path / "other")

    assert (report.events_new, report.sessions_new, report.different) == (0, 0, 0)
    after = tree(tmp_path / "other")
    assert {name: content for name, content in after.items() if name.startswith("packs/")} == {
        name: content for name, content in before.items() if name.startswith("packs/")
    }
    assert held(tmp_path / "other") == held(store)


def test_importing_into_the_store_it_came_from_changes_nothing(store: Path, home: Home, tmp_path: Path) -> None:
    before = held(store)

    report = _import(_export(store, tmp_path / "export"), store)

    assert (report.events_new, held(store)) == (0, before)
    with open_memory(store, [home.flag]) as memory:
        assert memory.sweep().lines_read == 0


def test_what_has_grown_since_is_not_overwritten(store: Path, home: Home, tmp_path: Path) -> None:
    path = _export(store, tmp_path / "export")
    home.append("small", event("small", 6, text="added later"))
    sweep(store, home).close()
    before = held(store)

    report = _import(path, store)

    assert held(store) == before
    assert report.different == 1


def test_what_was_forgotten_is_told_as_that(store: Path, home: Home, tmp_path: Path) -> None:
    path = _export(store, tmp_path / "export")
    backup = tmp_path / "backup.tar.zst"
    with open_memory(store, [home.flag]) as memory:
        memory.backup(backup)
        count = len(memory.sessions())
        memory.forget(memory.plan_forgetting("small"))
        left = len(memory.sessions())

    report = _import(path, store)
    restored = restore(backup, store)

    assert (report.sessions_new, report.different, report.forgotten) == (0, 0, count - left)
    assert restored.sessions == left < count


def test_two_stores_are_merged_by_importing_one_into_the_other(store: Path, home: Home, tmp_path: Path) -> None:
    """Each holds a session the other lacks, and both have a part of a third."""
    path = _export(store, tmp_path / "export")
    other = Home(tmp_path / "other-home")
    other.write("own", event("own", 1))
    other.write("small", event("small", 5, text="small words 5"), event("small", 6))
    sweep(tmp_path / "other", other).close()

    _import(path, tmp_path / "other")

    told = held(tmp_path / "other")
    assert set(told) == {*held(store), f"{AGENT}:own"}
    assert len(told[f"{AGENT}:small"][1]) == 6


def test_imported_sessions_say_that_their_sources_are_gone(store: Path, tmp_path: Path) -> None:
    _import(_export(store, tmp_path / "export"), tmp_path / "other")

    with open_memory(tmp_path / "other") as memory:
        sources = [source for session in memory.sessions() for source in session.sources]
    assert sources
    assert all(source.source_gone_at for source in sources)


def test_a_file_found_again_after_an_import_is_read_whole_and_adds_only_what_is_new(
    store: Path, home: Home, tmp_path: Path
) -> None:
    path = _export(store, tmp_path / "export", "scripted:small")
    home.append("small", event("small", 6))
    _import(path, tmp_path / "other")

    with open_memory(tmp_path / "other", [home.flag]) as memory:
        report = memory.sweep()

    assert report.failures == []
    sweep(store, home).close()
    assert hashes(tmp_path / "other") == hashes(store)


def test_a_single_session_comes_with_its_sub_agents(samples: Path, tmp_path: Path) -> None:
    with open_memory(samples) as memory:
        root = max(memory.sessions(roots_only=True), key=lambda session: len(memory.sub_agents(session)))
        wanted = {root.session_uid, *(child.session_uid for child in memory.sub_agents(root))}
    assert len(wanted) > 1

    _import(_export(samples, tmp_path / "export", root.session_uid), tmp_path / "other")

    assert set(hashes(tmp_path / "other")) == wanted


def test_a_repository_can_be_exported_alone(samples: Path, tmp_path: Path) -> None:
    with open_memory(samples) as memory:
        repo = next(session.repo for session in memory.sessions() if session.repo)
        wanted = {session.session_uid for session in memory.sessions(Filters(repo=repo))}

    _import(_export(samples, tmp_path / "export", repo=repo), tmp_path / "other")

    assert set(hashes(tmp_path / "other")) == wanted


def test_a_session_without_events_keeps_its_row(store: Path, home: Home, tmp_path: Path) -> None:
    lose_home(home)
    shutil.rmtree(store / "packs")
    repair(store, [home.flag])
    before = held(store)
    assert any(not told[1] for told in before.values())

    _import(_export(store, tmp_path / "export"), tmp_path / "other")

    assert held(tmp_path / "other") == before


def test_every_line_keeps_to_its_schema(samples: Path, tmp_path: Path) -> None:
    path = _export(samples, tmp_path / "export")

    lines = _lines(path / "sessions.jsonl")
    manifest = json.loads((path / "manifest.json").read_text())
    wrong = breaches(SCHEMAS["export-manifest"], manifest)
    wrong += [text for line in lines for text in breaches(SCHEMAS["export-session"], line)]
    wrong += [text for line in lines for text in breaches(SCHEMAS["session"], line["session"])]

    assert lines
    assert wrong == []


def test_a_pack_can_be_read_with_nothing_but_zstd_and_msgpack(store: Path, tmp_path: Path) -> None:
    """As docs/backup.md describes it."""
    path = _export(store, tmp_path / "export")

    texts = set()
    for line in _lines(path / "sessions.jsonl"):
        pack = (path / line["pack"]).read_bytes()
        while pack:
            magic, size, head_bytes, payload_bytes, checksum = struct.unpack("<4sIIII", pack[:20])
            assert (magic, checksum) == (b"RcF1", zlib.crc32(pack[20 : 20 + size], zlib.crc32(pack[4:16])))
            content, pack = zstandard.decompress(pack[20 : 20 + size]), pack[20 + size :]
            assert len(content) == head_bytes + payload_bytes
            (agent, native_id, *_), rows, _ = msgspec.msgpack.decode(content[:head_bytes])
            assert line["session"]["session_uid"] == f"{agent}:{native_id}"
            payloads = io.BytesIO(content[head_bytes:])
            texts |= {json.loads(payloads.read(row[EventRow._fields.index("payload_bytes")]))["text"] for row in rows}

    assert texts == {payload["text"] for told in held(store).values() for payload in told[2]}


def test_the_key_of_the_marks_does_not_travel(store: Path, tmp_path: Path) -> None:
    (store / "redaction.key").write_bytes(b"very secret key of the marks....")

    _export(store, tmp_path / "export")

    assert not any(b"very secret key" in content for content in tree(tmp_path / "export").values())
    assert all("key" not in name for name in tree(tmp_path / "export"))


def test_an_export_never_overwrites(store: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()

    with pytest.raises(UsageError):
        _export(store, tmp_path / "mine")


def test_exports_are_remembered(store: Path, tmp_path: Path) -> None:
    path = _export(store, tmp_path / "export")

    with open_store(store) as opened:
        assert [(copy.kind, copy.path) for copy in opened.copies.noted()] == [("export", str(path))]


@pytest.mark.parametrize("name", ["sessions.jsonl", "pack"])
def test_an_export_with_a_flipped_byte_changes_nothing(store: Path, tmp_path: Path, name: str) -> None:
    path = _export(store, tmp_path / "export")
    file = next(path.rglob("*.pack")) if name == "pack" else path / name
    flip(file, file.stat().st_size // 2)
    sweep(tmp_path / "other", Home(tmp_path / "none")).close()
    before = tree(tmp_path / "other")

    with pytest.raises(BadBackup):
        _import(path, tmp_path / "other")

    assert tree(tmp_path / "other") == before


def test_a_mistyped_path_is_not_found_rather_than_damaged(store: Path, tmp_path: Path) -> None:
    for action in (_import, restore):
        with pytest.raises(NotFound, match="No such file"):
            action(tmp_path / "mistyped", store)


@pytest.mark.parametrize("name", ["sessions.jsonl", "manifest.json", "pack"])
def test_an_export_with_a_missing_file_changes_nothing(store: Path, tmp_path: Path, name: str) -> None:
    path = _export(store, tmp_path / "export")
    (next(path.rglob("*.pack")) if name == "pack" else path / name).unlink()

    with pytest.raises(BadBackup):
        _import(path, tmp_path / "other")

    assert hashes(tmp_path / "other") == {}


def test_an_export_file_that_is_cut_off_changes_nothing(store: Path, tmp_path: Path) -> None:
    path = _export(store, tmp_path / "export.tar.zst")
    os.truncate(path, path.stat().st_size // 2)

    with pytest.raises(BadBackup):
        _import(path, tmp_path / "other")

    assert hashes(tmp_path / "other") == {}


def test_a_killed_import_has_whole_sessions_and_can_be_done_again(store: Path, home: Home, tmp_path: Path) -> None:
    chance, wanted = random.Random(), hashes(store)
    path = _export(store, tmp_path / "export")
    for number in range(KILLS):
        other = tmp_path / f"other-{number}"
        environment = os.environ | {"RECOLLECT_HOME": str(other)}
        process = subprocess.Popen(command("import", str(path)), env=environment, stdout=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.1, 0.7))
        process.send_signal(signal.SIGKILL)
        process.wait()

        sweep(other, Home(tmp_path / "none")).close()
        assert hashes(other).items() <= wanted.items()
        _import(path, other)
        assert hashes(other) == wanted
        assert problems(other, home) == []


def test_damaged_events_are_left_out_and_counted(store: Path, tmp_path: Path) -> None:
    pack = max((store / "packs").rglob("*.pack"), key=lambda path: path.stat().st_size)
    flip(pack, pack.stat().st_size - 100)

    with open_memory(store) as memory:
        report = memory.export(tmp_path / "export")

    assert report.damaged > 0
    assert _import(tmp_path / "export", tmp_path / "other").events == report.events


def test_the_commands_speak_json(store: Path, tmp_path: Path) -> None:
    made = run_json(command("export", "--json", str(tmp_path / "export")), store)
    done = run_json(command("import", "--json", str(tmp_path / "export")), tmp_path / "other")

    assert made["events"] == done["events_new"] > 0


def test_a_session_that_has_only_its_digest_comes_with_it(tmp_path: Path, home: Home) -> None:
    write(home, "evicted")
    with opened(tmp_path / "one", home) as memory:
        memory.sweep()
        evict_all(memory)
        digest = memory.digest(memory.session("evicted"))
        memory.export(tmp_path / "export")
        kept = memory.session("evicted"), memory.signals(), memory.stats()

    with open_memory(tmp_path / "other") as memory:
        memory.import_sessions(tmp_path / "export")

        assert memory.digest(memory.session("evicted")) == digest
        assert [hit.session_uid for hit in memory.search(topic("evicted"))] == ["scripted:evicted"]
        assert (memory.session("evicted"), memory.signals(), memory.stats()) == kept
    lines = _lines(tmp_path / "export" / "sessions.jsonl")
    (line,) = (line for line in lines if line["session"]["native_session_id"] == "evicted")
    assert line["pack"] is None
    assert breaches(SCHEMAS["export-session"], line) == []


@pytest.mark.parametrize("is_evicted", [False, True])
def test_what_another_store_allowed_is_redacted_here(tmp_path: Path, home: Home, is_evicted: bool) -> None:
    token = "ghp_aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL3oR6"
    told = SessionInfo("talkative", title=f"try {token}", title_rank=3), *talk("talkative", 2)
    home.write("talkative", *told, event("talkative", 90, text=f"use {token}"))
    with_rules = tmp_path / "one"
    with_rules.mkdir()
    (with_rules / "config.toml").write_text(f'[redact]\nallow = ["{token}"]')
    with opened(with_rules, home) as memory:
        memory.sweep()
        if is_evicted:
            evict_all(memory)
        memory.export(tmp_path / "export")
    assert token.encode() in bytes_of(tmp_path / "export")

    with open_memory(tmp_path / "other") as memory:
        memory.import_sessions(tmp_path / "export")

        assert "[REDACTED:github-token:" in (memory.session("talkative").title or "")
    assert left_in(tmp_path / "other", [f"0000{token}"]) == set()  # it looks for a word less four letters


def test_what_the_user_keeps_out_is_left_out_and_counted(tmp_path: Path, home: Home) -> None:
    home.write("private", SessionInfo("private", cwd="/srv/private/x"), event("private", 1))
    home.write("named", SessionInfo("named", git_remote="https://git.test/acme/shop"), event("named", 1))
    home.write("below", SessionInfo("below", parent_native_id="private", cwd="/tmp"), event("below", 1))
    home.write("empty", SessionInfo("empty", cwd="/srv/private"), *talk("empty", 2))
    with opened(tmp_path / "one", home) as memory:
        memory.sweep()
        evict_all(memory)
        home.append("private", event("private", 2))
        memory.sweep()
        memory.export(tmp_path / "export")
        everything = len(memory.sessions())
    other = tmp_path / "other"
    other.mkdir()
    (other / "config.toml").write_text('[capture]\nexclude = ["/srv/private/**", "acme/shop"]')

    report = _import(tmp_path / "export", other)

    assert (report.excluded, report.sessions_new) == (4, everything - 4)
    assert {"private", "named", "below", "empty"}.isdisjoint(name.rpartition(":")[2] for name in hashes(other))
    told = run(command("import", str(tmp_path / "export")), other)
    assert "Left out 4 excluded sessions" in told.stdout
