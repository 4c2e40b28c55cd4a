"""Files of a host that are no files, or not the user's: `import jsonl` opens what a sweep would, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.api import open_memory
from recollect.errors import UsageError
from recollect.live import Live, SessionManager

LINE = b'{"type":"message","role":"user","content":"outside quokkafish"}\n'


def test_links_pipes_and_devices_are_refused_and_the_rest_is_read(tmp_path: Path) -> None:
    folder, outside = tmp_path / "in", tmp_path / "outside"
    (folder / "below").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.jsonl").write_bytes(LINE)
    (folder / "link.jsonl").symlink_to(outside / "secret.jsonl")
    (folder / "endless.jsonl").symlink_to("/dev/zero")
    (folder / "folder.jsonl").mkdir()
    (folder / "elsewhere").symlink_to(outside)
    os.mkfifo(folder / "pipe.jsonl")
    (folder / "below" / "own.jsonl").write_bytes(LINE.replace(b"outside", b"own"))
    command = [sys.executable, "-m", "recollect", "import", "jsonl", str(folder), "--json"]

    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    report = json.loads(done.stdout)
    assert done.returncode == 3
    assert (report["files"], report["messages_new"]) == (1, 1)
    names = [Path(failure[0] if isinstance(failure, list) else failure["path"]).name for failure in report["failures"]]
    assert sorted(names) == ["endless.jsonl", "folder.jsonl", "link.jsonl", "pipe.jsonl"]
    with open_memory(read_only=True) as memory:
        assert memory.search("outside") == []


def test_a_key_too_long_for_a_file_name_is_refused_with_a_reason(tmp_path: Path) -> None:
    with open_memory(tmp_path / "store") as memory, pytest.raises(UsageError, match="Key too long for a file name"):
        manager = SessionManager(Live(memory), tmp_path / "files")
        manager.save(manager.get_or_create("k" * 300))
