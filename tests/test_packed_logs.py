"""Logs that Codex has compressed, having left them alone for days: the same sessions, whichever form they are in."""

import time
from pathlib import Path

import pytest
import zstandard

from recollect.api import Memory, open_memory
from tests import logs
from tests.conftest import swept, with_key
from tests.logs import CODEX, codex_user, session_id

SESSION = session_id()
KEY = "sk-proj-" + "aB3dE5fG7h" * 5
CONTENT = CODEX.content(2500, SESSION, "look at the parser") + logs.line(codex_user(SESSION, 2501, f"use {KEY}"))


def pack(content: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(content)


def plain_path(home: Path) -> Path:
    return CODEX.path(home, SESSION)


def packed_path(home: Path) -> Path:
    return plain_path(home).with_name(plain_path(home).name + ".zst")


def write_packed(home: Path, packed: bytes) -> str:
    packed_path(home).parent.mkdir(parents=True, exist_ok=True)
    packed_path(home).write_bytes(packed)
    return CODEX.root_flag(home)


def portrait(memory: Memory) -> list[tuple[str, str | None, int]]:
    return [(one.session_uid, one.content_hash, one.event_count) for one in memory.sessions()]


@pytest.fixture
def plain(tmp_path: Path) -> list[tuple[str, str | None, int]]:
    CODEX.write(tmp_path / "plain home", CONTENT, SESSION)
    with swept(tmp_path / "plain store", CODEX.root_flag(tmp_path / "plain home")) as memory:
        return portrait(memory)


@pytest.mark.parametrize("frames", [1, 3])
def test_a_compressed_log_tells_what_the_plain_one_tells(
    tmp_path: Path, plain: list[tuple[str, str | None, int]], frames: int
) -> None:
    size = len(CONTENT) // frames + 1
    packed = b"".join(pack(CONTENT[start : start + size]) for start in range(0, len(CONTENT), size))

    with swept(tmp_path / "store", write_packed(tmp_path / "home", packed)) as memory:
        assert portrait(memory) == plain
        again = memory.sweep()
        verified = memory.sweep(verify=True)

    assert (again.lines_read, verified.lines_read, verified.events_new) == (0, 0, 0)
    assert all(KEY.encode() not in path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())


def test_compressing_a_log_and_going_on_with_it_leaves_one_session(
    tmp_path: Path, plain: list[tuple[str, str | None, int]]
) -> None:
    home, store = tmp_path / "home", with_key(tmp_path / "store")
    CODEX.write(home, CONTENT, SESSION)
    swept(store, CODEX.root_flag(home)).close()

    write_packed(home, pack(CONTENT))
    plain_path(home).unlink()
    with open_memory(store, [CODEX.root_flag(home)]) as memory:
        packed = memory.sweep()
        (session,) = memory.sessions()
        places = {Path(source.path).suffix: source.source_gone_at is None for source in session.sources}

        assert (packed.events_new, packed.failures, portrait(memory)) == (0, [], plain)
        assert places == {".jsonl": False, ".zst": True}

        CODEX.write(home, CONTENT + logs.line(codex_user(SESSION, 2502, "go on")), SESSION)
        resumed = memory.sweep()  # both are there for a moment
        packed_path(home).unlink()
        after = memory.sweep()

    assert (resumed.events_new, after.events_new, after.sources) == (1, 0, 1)


@pytest.mark.parametrize("keep", [0.5, 0])
def test_what_is_left_of_a_log_that_is_cut_off_is_held_and_the_cut_is_told(tmp_path: Path, keep: float) -> None:
    packed = pack(CONTENT)
    flag = write_packed(tmp_path / "home", packed[: int(len(packed) * keep)])

    with open_memory(with_key(tmp_path / "store"), [flag]) as memory:
        report = memory.sweep()
        again = memory.sweep()
        held = sum(session.event_count for session in memory.sessions())

    ((path, told),) = report.failures
    assert path.endswith(".zst")
    assert told == f"is cut off: {report.lines_read:,} lines could be read"
    assert held == max(0, report.lines_read - 1)
    assert (again.lines_read, again.failures) == (0, [])


def test_a_damaged_log_is_told_and_read_again_when_it_is_replaced(
    tmp_path: Path, plain: list[tuple[str, str | None, int]]
) -> None:
    flag = write_packed(tmp_path / "home", b"no zstd" + pack(CONTENT))

    with open_memory(with_key(tmp_path / "store"), [flag]) as memory:
        report = memory.sweep()
        assert [reason for _, reason in report.failures] == ["is damaged: 0 lines could be read"]

        write_packed(tmp_path / "home", pack(CONTENT))
        assert memory.sweep().failures == []
        assert portrait(memory) == plain


@pytest.mark.parametrize("left", [0, 700, None])
def test_of_a_log_and_its_packed_twin_either_may_be_broken(
    tmp_path: Path, plain: list[tuple[str, str | None, int]], left: int | None
) -> None:
    home = tmp_path / "home"
    flag = write_packed(home, pack(CONTENT) if left is not None else pack(CONTENT)[:100])
    CODEX.write(home, CONTENT[:left], SESSION)

    with open_memory(with_key(tmp_path / "store"), [flag]) as memory:
        memory.sweep()
        assert portrait(memory) == plain


MEGABYTE = 1024 * 1024
BOMBS = {  # a piece, and how often it is there
    "zeros": (bytes(MEGABYTE), 900),
    "empty lines": (b"\n" * MEGABYTE, 900),
    "bad lines": (b"{}\n" * (MEGABYTE // 3), 40),
    "one message": (b"a" * MEGABYTE, 400),
}


def pack_bomb(piece: bytes, times: int) -> bytes:
    """A session that goes on with the same bytes for ever, packed without ever being held whole."""
    packer = zstandard.ZstdCompressor().compressobj()
    opening = CODEX.content(1, SESSION)[:-9]  # without the end of its message
    packed = [packer.compress(opening), *(packer.compress(piece) for _ in range(times)), packer.flush()]
    return b"".join(packed)


@pytest.mark.parametrize("kind", BOMBS)
def test_a_small_file_that_unpacks_to_much_costs_little(tmp_path: Path, kind: str) -> None:
    resource = pytest.importorskip("resource")
    flag = write_packed(tmp_path / "home", pack_bomb(*BOMBS[kind]))
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()

    with open_memory(with_key(tmp_path / "store"), [flag]) as memory:
        report = memory.sweep()

    ((_, reason),) = report.failures
    assert reason.startswith("unpacks to more than 200 times its size: ")
    assert report.bad_lines <= 1000
    assert time.process_time() - begun < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 150 * 1024
    assert sum(path.stat().st_size for path in (tmp_path / "store").rglob("*")) < 10_000_000
