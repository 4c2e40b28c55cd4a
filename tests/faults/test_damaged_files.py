"""Damage from outside: write-ahead logs that are lost, cut or another's, and bytes that have turned over."""

import os
import shutil
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from recollect.api import open_memory
from recollect.model.errors import StoreDamaged
from recollect.model.kinds import SessionKey
from recollect.store import open_store
from tests.faults.rig import IS_LONG, IS_SOAK, command, examine, flip_bytes, run, sweep
from tests.faults.work import Writers

FLIPS = 1000 if IS_LONG else 200 if IS_SOAK else 60
DATABASES = ("cache.db", "memory.db")


@pytest.fixture
def writers(tmp_path: Path) -> Writers:
    writers = Writers(tmp_path / "home", seed=12, big_share=0.3)
    writers.write([4] * 6)
    return writers


def _killed_sweep(writers: Writers) -> list[str]:
    return ["env", "RECOLLECT_FAILPOINT=before-cache-checkpoint:kill", *command("sweep", *writers.root_flags)]


@pytest.fixture
def store(tmp_path: Path, writers: Writers) -> Path:
    """A store whose last sweep was killed before it emptied the logs: all that it stored is in them."""
    store = tmp_path / "store"
    sweep(store, *writers.roots)
    writers.write([4] * 6)
    writers.finish()
    run(_killed_sweep(writers), store)
    assert all((store / f"{name}-wal").stat().st_size for name in DATABASES)
    return store


def _delete(path: Path) -> None:
    path.unlink()


def _cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def _fill_with_zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def _fill_with_noise(path: Path) -> None:
    path.write_bytes(os.urandom(path.stat().st_size))


def _turn_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


FAULTS = (_delete, _cut, _fill_with_zeros, _fill_with_noise, _turn_a_byte)
Fault = Callable[[Path], None]


def _name(fault: object) -> str:
    return getattr(fault, "__name__", str(fault)).strip("_")


@pytest.mark.parametrize("fault", FAULTS, ids=_name)
@pytest.mark.parametrize("name", DATABASES)
def test_a_damaged_shared_index_costs_nothing(store: Path, writers: Writers, name: str, fault: Fault) -> None:
    fault(store / f"{name}-shm")

    assert examine(store, writers) == []


@pytest.mark.parametrize("fault", FAULTS, ids=_name)
def test_what_a_damaged_log_of_the_cache_held_is_read_again(store: Path, writers: Writers, fault: Fault) -> None:
    fault(store / "cache.db-wal")

    assert examine(store, writers, sweep(store.with_name("clean"), *writers.roots)) == []


def _is_mended_or_told(store: Path, writers: Writers) -> bool:
    """Whether somebody is told that the store is behind what it held, or the next sweep mends it."""
    try:
        with open_memory(store, writers.roots) as memory:
            if memory.status().alarms:
                return True
    except StoreDamaged:
        return True
    findings = examine(store, writers, sweep(store.with_name("clean"), *writers.roots))
    return not findings or any(finding.startswith(("doctor", "unusable")) for finding in findings)


# SQLite takes such files for whole; what is kept beside the databases says how far each had come.


@pytest.mark.parametrize("fault", FAULTS, ids=_name)
def test_a_damaged_log_of_the_memory_is_mended_or_told(store: Path, writers: Writers, fault: Fault) -> None:
    fault(store / "memory.db-wal")

    assert _is_mended_or_told(store, writers)


@pytest.mark.parametrize("name", DATABASES)
def test_the_log_of_another_store_is_mended_or_told(tmp_path: Path, store: Path, writers: Writers, name: str) -> None:
    other = Writers(tmp_path / "other-home", seed=13)
    other.write([9] * 6)
    run(_killed_sweep(other), tmp_path / "other")
    shutil.copy(tmp_path / "other" / f"{name}-wal", store / f"{name}-wal")

    assert _is_mended_or_told(store, writers)


# Flipped bytes


@pytest.fixture
def closed(tmp_path: Path, writers: Writers) -> Path:
    """A store at rest."""
    writers.finish()
    sweep(tmp_path / "closed", *writers.roots)
    return tmp_path / "closed"


def _read_everything(folder: Path) -> None:
    """Raise StoreDamaged unless every payload is the one that was stored."""
    with open_store(folder) as store:
        for agent, native_id in store.streams.names():
            rows = store.events.rows(SessionKey(agent, native_id), ("payload_start", "payload_bytes", "payload_hash"))
            payloads = store.payloads.iter(SessionKey(agent, native_id), [row[:2] for row in rows])
            if [sha256(payload).digest()[:16] for payload in payloads] != [row[2] for row in rows]:
                raise StoreDamaged("a payload is not what was stored")


def test_flips_are_of_every_kind_of_file_and_can_be_taken_back(closed: Path) -> None:
    before = {path: path.read_bytes() for path in closed.rglob("*") if path.is_file()}
    flips = flip_bytes(closed, seed=1, n=30)

    for flip in flips:
        flip.apply()
        changed = flip.path.read_bytes()
        flip.apply()
        differences = [at for at, (old, new) in enumerate(zip(before[flip.path], changed, strict=True)) if old != new]
        assert differences == [flip.offset]

    kinds = Counter(flip.path.suffix if flip.path.suffix == ".pack" else flip.path.name for flip in flips)
    assert set(kinds) >= {*DATABASES, ".pack"}
    assert {path: path.read_bytes() for path in before} == before


def test_every_flipped_byte_of_a_pack_is_noticed_by_reading(closed: Path) -> None:
    _read_everything(closed)
    flips = [flip for flip in flip_bytes(closed, seed=2, n=3 * FLIPS) if flip.path.suffix == ".pack"]
    unnoticed = []

    for flip in flips:
        flip.apply()
        try:
            _read_everything(closed)
            unnoticed.append(flip)
        except StoreDamaged:
            pass
        flip.apply()

    assert len(flips) >= FLIPS // 2
    assert unnoticed == []
