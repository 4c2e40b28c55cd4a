"""Files of a host that are no files, or not the user's: `import jsonl` opens what a sweep would, and nothing else."""

import json
import os
import subprocess
import sys
from pathlib import Path

from recollect.api import open_memory

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
