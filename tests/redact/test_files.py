"""The key and the compiled rules on disk: private, whole, and trusted only if they are our own."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.model.errors import StoreDamaged
from recollect.redact import HYPERSCAN, KEY_FILE, RedactionRules, Redactor, load_key

KEY = bytes(range(32))
TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0iL3oR6"


def _redactor(folder: Path, key: bytes = KEY) -> Redactor:
    return Redactor(RedactionRules(), key, HYPERSCAN, folder=folder)


def _cache(folder: Path) -> Path:
    (path,) = folder.glob("redaction-*")
    return path


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    key = load_key(tmp_path)

    assert load_key(tmp_path) == key
    assert stat.S_IMODE((tmp_path / KEY_FILE).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == [KEY_FILE]


def test_processes_that_make_the_key_at_the_same_time_get_the_same(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from recollect.redact import load_key; sys.stdin.read(); "
    program += "print(load_key(Path(sys.argv[1])).hex())"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(8)
    ]

    keys = {process.communicate("")[0].strip() for process in started}

    assert keys == {load_key(tmp_path).hex()}


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_damaged_key_is_named_and_not_used(tmp_path: Path, content: bytes) -> None:
    (tmp_path / KEY_FILE).write_bytes(content)

    with pytest.raises(StoreDamaged, match=KEY_FILE):
        load_key(tmp_path)


def test_compiled_rules_are_kept_privately_and_used_again(tmp_path: Path) -> None:
    _redactor(tmp_path)
    path = _cache(tmp_path)
    before = path.stat()

    assert TOKEN not in _redactor(tmp_path).text(TOKEN)
    assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert stat.S_IMODE(before.st_mode) == 0o600


def test_a_damaged_file_is_made_anew(tmp_path: Path) -> None:
    _redactor(tmp_path)
    path = _cache(tmp_path)
    whole = path.read_bytes()
    for damage in (b"", whole[:100], whole[:-1], whole[:5000] + bytes([whole[5000] ^ 1]) + whole[5001:]):
        path.write_bytes(damage)

        assert TOKEN not in _redactor(tmp_path).text(TOKEN)
        assert path.read_bytes() == whole


def test_a_file_that_another_key_sealed_is_not_trusted(tmp_path: Path) -> None:
    _redactor(tmp_path, bytes(32))
    foreign = _cache(tmp_path).read_bytes()

    _redactor(tmp_path)

    assert _cache(tmp_path).read_bytes() != foreign


def test_a_link_in_its_place_is_not_followed(tmp_path: Path) -> None:
    _redactor(tmp_path)
    path = _cache(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)

    assert TOKEN not in _redactor(tmp_path).text(TOKEN)
    assert not path.is_symlink()


def test_files_of_other_rules_are_cleared_away(tmp_path: Path) -> None:
    (tmp_path / "redaction-0123456789abcdef01234567.hs").write_bytes(b"old")

    _redactor(tmp_path)

    assert len(list(tmp_path.glob("redaction-*"))) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_costs_only_time(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)

    assert TOKEN not in _redactor(tmp_path).text(TOKEN)


def test_a_folder_that_is_not_there_costs_only_time(tmp_path: Path) -> None:
    assert TOKEN not in _redactor(tmp_path / "gone").text(TOKEN)


def test_rules_are_compiled_once_there_is_much_to_search(tmp_path: Path) -> None:
    redactor = Redactor(RedactionRules(), KEY, folder=tmp_path)

    assert TOKEN not in redactor.text(TOKEN)
    assert not list(tmp_path.glob("redaction-*"))

    assert TOKEN not in redactor.text(TOKEN + " and" * 300_000)
    assert len(list(tmp_path.glob("redaction-*"))) == 1
