"""Fixtures. Folders with real agents' logs are looked for beside the checkout, or where RECOLLECT_SHARED says."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from recollect.api import Memory, open_memory
from recollect.redact import KEY_BYTES, KEY_FILE

REPOSITORY = Path(__file__).parent.parent
SHARED = Path(os.environ.get("RECOLLECT_SHARED", REPOSITORY.parent / "shared"))

# A store waits for the disk a dozen times in a sweep, in memory never. Tests need room there, and some run programs.
ON_DISK = Path(tempfile.gettempdir())  # for programs that are kept between runs
_MEMORY = Path("/dev/shm")
_CAN_RUN = _MEMORY.is_dir() and not os.statvfs(_MEMORY).f_flag & os.ST_NOEXEC
if "TMPDIR" not in os.environ and _CAN_RUN and shutil.disk_usage(_MEMORY).free > 4 << 30:
    tempfile.tempdir = str(_MEMORY)

# CI says the same of the same code each time; everywhere else each run looks at new cases.
settings.register_profile("ci", derandomize=True)
if os.environ.get("CI"):
    settings.load_profile("ci")

needs_shared = pytest.mark.skipif(
    not (SHARED / "genuine").is_dir(), reason="needs the folder of genuine sessions beside the checkout (../shared)"
)


@pytest.fixture(autouse=True)
def no_real_homes(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """No test may read or write the homes of whoever runs it."""
    has_folder = "tmp_path" in request.fixturenames  # thousands of tests need none
    tmp_path = request.getfixturevalue("tmp_path") if has_folder else tmp_path_factory.getbasetemp() / "no-folder"
    for variable in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "GROK_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(variable, str(tmp_path / "no-such-home"))
    monkeypatch.setenv("RECOLLECT_HOME", str(tmp_path / "store"))
    yield
    if not has_folder and tmp_path.exists():  # a store that the next test must not find
        shutil.rmtree(tmp_path)


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with open_memory(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; `tmp_path` lies below one they may not."""
    folder = Path(tempfile.mkdtemp(prefix="recollect-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[str], Path]]:
    """Makes a file system in memory of the size asked for."""
    point = tmp_path / "disk"

    def mount(size: str) -> Path:
        point.mkdir()
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(point)]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"cannot mount: {done.stderr.strip()}")
        return point

    yield mount
    if point.is_mount():
        subprocess.run(["umount", "-l", str(point)], check=True)


def with_key(folder: Path) -> Path:
    """The folder of a store to be, with a key that is always the same: stores of the same files are then equal."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / KEY_FILE).write_bytes(bytes(KEY_BYTES))
    return folder


def swept(folder: Path, *roots: str) -> Memory:
    """A store in `folder` with everything below the roots (AGENT=PATH) in it."""
    opened = open_memory(with_key(folder), roots)
    report = opened.sweep()
    assert report.failures == []
    return opened
