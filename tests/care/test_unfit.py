"""What is no backup or export, or an incomplete one, is refused in one clear sentence and changes nothing."""

import io
import json
import struct
import tarfile
import zlib
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zstandard
from click.testing import CliRunner

from recollect.api import open_memory, restore
from recollect.cli import main
from recollect.model.errors import BadBackup
from recollect.store import EventRow, hash_payload, unpack_entry
from tests.builders import Home, event
from tests.care.rig import hashes, held
from tests.retention.rig import evict_all, opened, write

Files = dict[str, bytes]
Change = Callable[[Files], Any]


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


def _changed(path: Path, change: Change) -> Path:
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


_MANIFESTS: list[dict[str, Any]] = [
    {"files": [{"x": 1}]},
    {"files": [1]},
    {"files": [{"name": 1}]},
    {"files": {"name": "x"}},
    {"version": "x", "files": []},
    {"version": 99, "files": []},
    {"files": [{"name": "sessions.jsonl", "bytes": 1, "sha256": None}]},
    {"version": None, "files": []},
    {},
]


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("form", ["recollect-backup", "recollect-export", "other", None, 1, []])
def test_any_manifest_is_refused_in_one_sentence(
    store: Path, tmp_path: Path, action: Callable[[Path, Path], Any], form: Any
) -> None:
    version = {"version": 2 if form == "recollect-export" else 1}
    (tmp_path / "folder").mkdir()

    for fields in _MANIFESTS:
        manifest = json.dumps({"format": form} | version | fields).encode()
        (tmp_path / "folder" / "manifest.json").write_bytes(manifest)
        _refused(action, _packed({"manifest.json": manifest}, tmp_path / "file.tar.zst"), store)
        _refused(action, tmp_path / "folder", store)


@pytest.mark.parametrize("content", [b"[]", b"null", b"1", b"{", b""])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_manifest_that_is_no_object_is_refused(
    store: Path, tmp_path: Path, action: Callable[[Path, Path], Any], content: bytes
) -> None:
    _refused(action, _packed({"manifest.json": content}, tmp_path / "file.tar.zst"), store)


@pytest.mark.parametrize("name", ["export.tar.zst", "export"])
def test_an_export_given_to_restore_names_the_command_that_takes_it(store: Path, export: Path, name: str) -> None:
    told = _refused(restore, export.with_name(name), store)

    assert "use `recollect import`" in (told.hint or "")


def test_a_backup_given_to_import_names_the_command_that_takes_it(store: Path, backup: Path) -> None:
    told = _refused(_import, backup, store)

    assert "use `recollect restore`" in (told.hint or "")


@pytest.mark.parametrize("name", ["memory.db", "cache.db"])
def test_a_damaged_database_in_a_backup_is_the_backups_damage(store: Path, backup: Path, name: str) -> None:
    path = _changed(backup, lambda files: files.update({name: b"not a database" * 500}))

    told = _refused(restore, path, store)

    assert "use another" in (told.hint or "")


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("cut", [1, 2, 3, 4, 5])
def test_a_file_without_its_last_bytes_is_refused(
    store: Path, backup: Path, export: Path, action: Callable[[Path, Path], Any], cut: int
) -> None:
    path = backup if action is restore else export
    path.write_bytes(path.read_bytes()[:-cut])

    assert _refused(action, path, store).message.startswith("Truncated")


@pytest.mark.parametrize("action", ACTIONS)
def test_a_file_with_bytes_after_its_end_is_refused(
    store: Path, backup: Path, export: Path, action: Callable[[Path, Path], Any]
) -> None:
    path = backup if action is restore else export
    path.write_bytes(path.read_bytes() * 2)

    _refused(action, path, store)


def _sessions(content: bytes) -> Change:
    return lambda files: files.update({"sessions.jsonl": content})


def _session(**values: Any) -> Change:
    def change(files: Files) -> None:
        files["sessions.jsonl"] = json.dumps(json.loads(files["sessions.jsonl"]) | values).encode() + b"\n"

    return change


def _agent(name: str) -> Change:
    def change(files: Files) -> None:
        session = json.loads(files["sessions.jsonl"])["session"]
        _session(session=session | {"agent": name}, pack=None)(files)

    return change


def _frame(head: bytes, payloads: bytes) -> bytes:
    """A frame as docs/backup.md describes it, with checksums that fit."""
    compressed = zstandard.compress(head + payloads)
    fields = struct.pack("<III", len(compressed), len(head), len(payloads))
    return b"RcF1" + fields + zlib.crc32(compressed, zlib.crc32(fields)).to_bytes(4, "little") + compressed


def _pack(change: Callable[[bytes], bytes]) -> Change:
    """Another pack; its hash in the manifest fits."""

    def change_pack(files: Files) -> None:
        (name,) = (name for name in files if name.endswith(".pack"))
        files[name] = change(files[name])

    return change_pack


def _forged(change: Callable[[Any, list[Any], Any], Any]) -> Change:
    """Other content in the first frame, with checksums that fit: `change` gets origin, rows and facts to alter."""

    def forge(pack: bytes) -> bytes:
        entry = pack[: 20 + int.from_bytes(pack[4:8], "little")]
        content = unpack_entry(entry)
        assert content is not None
        origin, rows, facts = msgspec.msgpack.decode(content.head)
        change(origin, rows, facts)
        head = msgspec.msgpack.encode((origin, rows, facts))
        return _frame(head, bytes(content.payloads)) + pack[len(entry) :]

    return _pack(forge)


def _event(name: str, value: Any) -> Change:
    return _forged(lambda origin, rows, facts: rows[0].__setitem__(EventRow._fields.index(name), value))


def _facts(index: int, value: Any) -> Change:
    return _forged(lambda origin, rows, facts: facts.__setitem__(index, value))


def _payload(payload: bytes) -> Change:
    """A session of one frame whose only event has this payload, and a row that fits it."""

    def forge(pack: bytes) -> bytes:
        content = unpack_entry(pack[: 20 + int.from_bytes(pack[4:8], "little")])
        assert content is not None
        origin, rows, facts = msgspec.msgpack.decode(content.head)
        row = EventRow._make(rows[0])._replace(payload_bytes=len(payload), payload_hash=hash_payload(payload))
        return _frame(msgspec.msgpack.encode((origin, [row], facts)), payload)

    return _pack(forge)


def _claiming(claimed_bytes: int, head_bytes: int, payload_bytes: int) -> Change:
    """A frame of a few bytes that claims to unpack to many."""
    compressed = b"\x28\xb5\x2f\xfd\xe0" + claimed_bytes.to_bytes(8, "little") + b"\x01\x00\x00"
    fields = struct.pack("<III", len(compressed), head_bytes, payload_bytes)
    checksum = zlib.crc32(compressed, zlib.crc32(fields)).to_bytes(4, "little")
    return _pack(lambda pack: b"RcF1" + fields + checksum + compressed)


@pytest.mark.parametrize(
    "change",
    [
        _sessions(b'{"x":1}\n'),
        _sessions(b"[]\n"),
        _sessions(b"nonsense\n"),
        _session(pack="../../x.pack"),
        _session(pack="packs/none.pack"),
        _session(pack=5),
        _session(sources=[1]),
        _session(sources=[{"host": "h", "path": 5, "kind": "log", "bytes": 1, "bad_lines": []}]),
        _session(sources=[{"host": "h", "path": "p", "kind": "log", "bytes": 1, "bad_lines": [{"line": "x"}]}]),
        _session(lasting=[1]),
        _session(lasting=[["sessions", []]]),
        _session(session={}),
        _agent("a\x1b[31m"),
        _agent(["a"]),  # type: ignore[arg-type]
        _pack(lambda pack: pack[:-1]),
        _pack(lambda pack: pack + b"x"),
        _pack(lambda pack: b"x" + pack),
        _pack(lambda pack: bytes(len(pack))),
        _pack(lambda pack: pack[:30] + bytes([pack[30] ^ 1]) + pack[31:]),
        _pack(lambda pack: pack[: len(pack) // 2]),
        _claiming(1 << 42, 1, 1),
        _claiming((1 << 33) - 2, (1 << 32) - 1, (1 << 32) - 1),
        _forged(lambda origin, rows, facts: origin.__setitem__(1, "another")),
        _forged(lambda origin, rows, facts: rows.pop()),
        _forged(lambda origin, rows, facts: rows.reverse()),
        _event("kind", 5),
        _event("kind", None),
        _event("ts_ms", "soon"),
        _event("position", (1 << 64) - 1),
        _event("payload_bytes", -1),
        _event("payload_bytes", 1 << 40),
        _event("payload_hash", bytes(16)),
        _event("event_uid", b"none"),
        _event("parent_uid", b"none"),
        _event("metadata", "{"),
        _facts(0, "[]"),
        _facts(0, '{"first": {"cwd": 5}, "last": {}}'),
        _facts(0, '{"first": {}, "last": {"title_3": []}}'),
        _facts(1, [[]]),
        _facts(2, [["ledger", "much", None]]),
        _payload(b"not JSON"),
        _payload(b"[]"),
    ],
)
def test_content_that_no_export_has_is_refused(export: Path, tmp_path: Path, change: Change) -> None:
    path = _changed(export, change)
    open_memory(tmp_path / "empty").close()

    _refused(_import, path, tmp_path / "empty")


def _bomb(path: Path) -> Path:
    """A bundle of some kilobytes whose first file is a gigabyte of zeros."""
    member, zeros = tarfile.TarInfo("sessions.jsonl"), bytes(1 << 20)
    member.size = 1 << 30
    with path.open("wb") as file, zstandard.ZstdCompressor(write_checksum=True).stream_writer(file) as stream:
        stream.write(member.tobuf())
        for _ in range(1 << 10):
            stream.write(zeros)
    return path


@pytest.mark.parametrize("action", ACTIONS)
def test_a_small_file_that_unpacks_to_a_gigabyte_is_refused_before_it_does(
    store: Path, tmp_path: Path, action: Callable[[Path, Path], Any]
) -> None:
    told = _refused(action, _bomb(tmp_path / "bomb.tar.zst"), store)

    assert "absurd size" in told.message


def test_a_damaged_frame_refuses_sessions_before_it_too(store: Path, home: Home, tmp_path: Path) -> None:
    home.write("two", event("two", 1))
    with open_memory(store, [home.flag]) as memory:
        memory.sweep()
        memory.export(tmp_path / "both.tar.zst")
    packs: list[str] = []

    def cut_last(files: Files) -> None:
        packs.extend(json.loads(line)["pack"] for line in files["sessions.jsonl"].splitlines())
        files[packs[-1]] = files[packs[-1]][:-1]

    path = _changed(tmp_path / "both.tar.zst", cut_last)
    open_memory(tmp_path / "empty").close()

    _refused(_import, path, tmp_path / "empty")
    assert len(packs) == 2


def test_an_import_never_replaces_an_event_though_it_claims_a_newer_reader(store: Path, export: Path) -> None:
    before = held(store)

    def change(origin: Any, rows: list[Any], facts: Any) -> None:
        rows[0] = list(EventRow._make(rows[0])._replace(reader=1 << 20, summary="forged"))

    _import(_changed(export, _forged(change)), store)

    assert held(store) == before


@pytest.mark.parametrize(
    ("table", "values"),
    [
        ("sessions", {"title": 5}),
        ("sessions", {"title": ["x"]}),
        ("sessions", {"event_count": "many"}),
        ("sessions", {"session_uid": None}),
        ("sessions", {"metadata": "{"}),
        ("sessions", {"usd": "much"}),
        ("digests", {"digest": "{}"}),
        ("digests", {"digest": "no JSON"}),
        ("digests", {"line": None}),
        ("digest_text", {"text": 1}),
    ],
)
def test_lasting_rows_that_no_store_wrote_are_refused(
    home: Home, tmp_path: Path, table: str, values: dict[str, Any]
) -> None:
    write(home, "evicted")
    with opened(tmp_path / "source", home) as memory:
        memory.sweep()
        evict_all(memory)
        memory.export(tmp_path / "evicted.tar.zst", ["evicted"])

    def change(files: Files) -> None:
        rows = json.loads(files["sessions.jsonl"])["lasting"]
        assert table in {name for name, _ in rows}
        _session(lasting=[[name, row | (values if name == table else {})] for name, row in rows])(files)

    path = _changed(tmp_path / "evicted.tar.zst", change)
    open_memory(tmp_path / "empty").close()

    _refused(_import, path, tmp_path / "empty")


@pytest.mark.parametrize("command", ["restore", "import"])
def test_the_commands_say_it_in_two_lines(store: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("no tar")

    answered = ["--yes"] if command == "restore" else []
    result = CliRunner(env={"RECOLLECT_HOME": str(store)}).invoke(main, [command, str(tmp_path / "file"), *answered])

    assert result.exit_code == 1
    assert [line.partition(":")[0] for line in result.stderr.splitlines()] == ["Error", "hint"]
