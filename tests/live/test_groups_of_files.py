"""How much a sweep writes at once: less while a host appends, without asking for that after each small file."""

from pathlib import Path

import pytest

from recollect.ingest import pool
from recollect.store import Batch
from recollect.store.batch import SourceRow


class Tiny(Batch):
    """The batch of a file with one line."""

    events = 1


def groups(count: int, folder: Path) -> list[int]:
    source = SourceRow("host", "agent", "/log", "log", 1, 1, 1, 1, 1, 0, 0, "", "", "{}")
    return [len(group) for group in pool.grouped([Tiny(source, bytes=100)] * count, folder)]


@pytest.mark.parametrize(("is_live", "expected"), [(False, [1, 4000, 999]), (True, [1, *[50] * 99, 49])])
def test_a_sweep_looks_for_hosts_once_for_each_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_live: bool, expected: list[int]
) -> None:
    looks: list[Path] = []
    monkeypatch.setattr(pool, "has_live", lambda folder: (looks.append(folder), is_live)[1])

    assert groups(5000, tmp_path) == expected

    assert len(looks) <= len(expected) + 1
