"""What is no backup or export, or not a whole one, is told in one clear sentence, and changes nothing."""

import io
import json
import tarfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import zstandard
from click.testing import CliRunner

from recollect.care import restore
from recollect.cli import main
from recollect.errors import BadBackup
from recollect.memory import open_memory
from tests.builders import Home, event
from tests.care.rig import hashes

Files = dict[str, bytes]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    home.write("one", event("one", 1), event("one", 2))
    return home


@pytest.fixture
def backup(store: Path, tmp_path: Path) -> Path:
    with open_memory(store) as memory:
        memory.backup(tmp_path / "backup.tar.zst")
    return tmp_path / "backup.tar.zst"


@pytest.fixture
def export(store: Path, tmp_path: Path) -> Path:
    with open_memory(store) as memory:
        memory.export(tmp_path / "export.tar.zst")
        memory.export(tmp_path / "export")
    return tmp_path / "export.tar.zst"


def _import(path: Path, store: Path) -> None:
    with open_memory(store) as memory:
        memory.import_sessions(path)


ACTIONS: list[Callable[[Path, Path], Any]] = [restore, _import]


def _refused(action: Callable[[Path, Path], Any], path: Path, store: Path) -> BadBackup:
    """What the user is told, which has no words of Python in it."""
    before = hashes(store)
    with pytest.raises(BadBackup) as caught:
        action(path, store)
    assert hashes(store) == before
    assert list(store.glob(".*")) == []
    told = f"{caught.value.message} {caught.value.hint}"
    assert not any(word in told for word in ("Error", "object", "zstd", "None", "\n"))
    assert caught.value.message.endswith(f": {path}")
    return caught.value


def _packed(files: Files, path: Path) -> Path:
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as members:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            members.addfile(member, io.BytesIO(content))
    path.write_bytes(zstandard.ZstdCompressor(write_checksum=True).compress(tar.getvalue()))
    return path


def _changed(path: Path, change: Callable[[Files], Any]) -> Path:
    """A bundle with other content, and hashes that fit it."""
    with path.open("rb") as file:
        content = zstandard.ZstdDecompressor().stream_reader(file).read()
    with tarfile.open(fileobj=io.BytesIO(content)) as tar:
        files = {member.name: _content(tar, member) for member in tar}
    change(files)
    manifest = json.loads(files.pop("manifest.json"))
    for told in manifest["files"]:
        told |= {"bytes": len(files[told["name"]]), "sha256": sha256(files[told["name"]]).hexdigest()}
    return _packed(files | {"manifest.json": json.dumps(manifest).encode()}, path.with_name("changed.tar.zst"))


def _content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    assert file is not None
    return file.read()


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("form", ["recollect-backup", "recollect-export", "other", None, 1, []])
@pytest.mark.parametrize(
    "told",
    [
        {"version": 1, "files": [{"x": 1}]},
        {"version": 1, "files": [1]},
        {"version": 1, "files": [{"name": 1}]},
        {"version": 1, "files": {"name": "x"}},
        {"version": "x", "files": []},
        {"version": 99, "files": []},
        {"version": 1, "files": [{"name": "sessions.jsonl", "bytes": 1, "sha256": None}]},
        {"files": []},
        {},
    ],
)
def test_any_list_of_files_is_told_in_one_sentence(
    store: Path, tmp_path: Path, action: Callable[[Path, Path], Any], form: Any, told: dict[str, Any]
) -> None:
    manifest = json.dumps({"format": form} | told).encode()
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "manifest.json").write_bytes(manifest)

    _refused(action, _packed({"manifest.json": manifest}, tmp_path / "file.tar.zst"), store)
    _refused(action, tmp_path / "folder", store)


@pytest.mark.parametrize("content", [b"[]", b"null", b"1", b"{", b""])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_list_that_is_none_is_told(
    store: Path, tmp_path: Path, action: Callable[[Path, Path], Any], content: bytes
) -> None:
    _refused(action, _packed({"manifest.json": content}, tmp_path / "file.tar.zst"), store)


@pytest.mark.parametrize("name", ["export.tar.zst", "export"])
def test_an_export_given_to_restore_names_the_command_that_takes_it(store: Path, export: Path, name: str) -> None:
    told = _refused(restore, export.with_name(name), store)

    assert "`recollect import` takes it" in (told.hint or "")


def test_a_backup_given_to_import_names_the_command_that_takes_it(store: Path, backup: Path) -> None:
    told = _refused(_import, backup, store)

    assert "`recollect restore` takes it" in (told.hint or "")


@pytest.mark.parametrize("name", ["memory.db", "cache.db"])
def test_a_damaged_database_in_a_backup_is_the_backups_damage(store: Path, backup: Path, name: str) -> None:
    path = _changed(backup, lambda files: files.update({name: b"not a database" * 500}))

    told = _refused(restore, path, store)

    assert "take another one" in (told.hint or "")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_file_without_its_last_bytes_is_told(
    store: Path, backup: Path, export: Path, action: Callable[[Path, Path], Any], cut: int
) -> None:
    path = backup if action is restore else export
    path.write_bytes(path.read_bytes()[:-cut])

    assert _refused(action, path, store).message.startswith("Cut off")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_file_that_goes_on_behind_its_end_is_told(
    store: Path, backup: Path, export: Path, action: Callable[[Path, Path], Any]
) -> None:
    path = backup if action is restore else export
    path.write_bytes(path.read_bytes() * 2)

    _refused(action, path, store)


def _lines(name: str, content: bytes) -> Callable[[Files], Any]:
    return lambda files: files.update({name: content})


def _event(**told: Any) -> Callable[[Files], Any]:
    def change(files: Files) -> None:
        first, *others = files["events.jsonl"].splitlines(keepends=True)
        files["events.jsonl"] = json.dumps(json.loads(first) | told).encode() + b"\n" + b"".join(others)

    return change


def _session(**told: Any) -> Callable[[Files], Any]:
    def change(files: Files) -> None:
        files["sessions.jsonl"] = json.dumps(json.loads(files["sessions.jsonl"]) | told).encode() + b"\n"

    return change


@pytest.mark.parametrize(
    "change",
    [
        _lines("events.jsonl", b'{"x":1}\n'),
        _lines("events.jsonl", b"[]\n"),
        _lines("sessions.jsonl", b"[]\n"),
        _lines("sessions.jsonl", b"nonsense\n"),
        _event(kind=5),
        _event(kind=None),
        _event(ts_ms="soon"),
        _event(position=1 << 70),
        _event(payload_ref=[]),
        _event(event_uid="none"),
        _session(pack="../../x.pack"),
        _session(pack="packs/none.pack"),
        _session(sources=[1]),
        _session(usage=[{}]),
    ],
)
def test_a_line_that_cannot_be_understood_is_told(export: Path, tmp_path: Path, change: Callable[[Files], Any]) -> None:
    path = _changed(export, change)
    open_memory(tmp_path / "empty").close()

    _refused(_import, path, tmp_path / "empty")


@pytest.mark.parametrize("command", ["restore", "import"])
def test_the_commands_say_it_in_two_lines(store: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("no tar")

    answered = ["--yes"] if command == "restore" else []
    result = CliRunner(env={"RECOLLECT_HOME": str(store)}).invoke(main, [command, str(tmp_path / "file"), *answered])

    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["Error", "hint"]
