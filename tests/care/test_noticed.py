"""Small damage and loose permissions: noticed by whatever command comes next, in one sentence."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from recollect.api import doctor, open_memory, repair
from recollect.cli import main
from recollect.store import PAGE_BYTES
from tests.builders import Home
from tests.care import damage
from tests.care.rig import held


def _run(store: Path, *words: str) -> Result:
    return CliRunner().invoke(main, words, env={"RECOLLECT_HOME": str(store)})


def _cut(path: Path, count: int) -> None:
    os.truncate(path, path.stat().st_size - count)


@pytest.mark.parametrize("name", damage.DATABASES)
@pytest.mark.parametrize("count", [1, 2, 7, 8, 9])
def test_a_database_without_its_last_bytes_is_damaged_and_repaired(
    store: Path, home: Home, name: str, count: int
) -> None:
    before = held(store)
    _cut(store / name, count)

    status = _run(store, "status")

    assert (status.exit_code, status.stderr.splitlines()[0]) == (7, f"Error: Database is damaged: {store / name}")
    assert any(name in finding.message for finding in doctor(store, [home.flag], deep=True))
    repair(store, [home.flag], confirm=lambda steps: None)
    assert held(store) == before


@pytest.mark.parametrize("name", damage.DATABASES)
@pytest.mark.parametrize("table", ["marks", "history", "retention_clock", "sources", "sessions"])
def test_status_of_a_damaged_page_is_one_sentence(store: Path, name: str, table: str) -> None:
    pages = [page for page, told in damage.places(store / name).items() if told[0] == table]
    with (store / name).open("r+b") as file:
        for page in pages:
            file.seek((page - 1) * PAGE_BYTES + 200)
            file.write(bytes(range(256)) * 8)

    status = _run(store, "status")

    assert status.exit_code in (0, 7)
    assert status.exception is None or isinstance(status.exception, SystemExit)


@pytest.mark.parametrize("mode", [0o777, 0o722, 0o770])
def test_a_store_that_others_can_write_to_is_refused(store: Path, home: Home, mode: int) -> None:
    store.chmod(mode)

    for words in (("status",), ("search", "words"), ("sweep", "--root", home.flag)):
        done = _run(store, *words)
        assert (done.exit_code, f"(mode {mode:o})" in done.stderr, f"chmod 700 {store}" in done.stderr) == (
            7,
            True,
            True,
        )

    store.chmod(0o700)
    with open_memory(store) as memory:
        assert memory.sessions()
