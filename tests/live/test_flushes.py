"""How often an append waits for the disk: once, whatever else it brings up to date."""

import subprocess
import sys
from pathlib import Path

from tests.faults.rig import needs_strace

pytestmark = needs_strace

PROGRAM = """
import os, sys
from recollect.api import open_memory
from recollect.live import Live, appender
appender.SHOWN_MS = 0  # every append brings the lasting row up to date
with open_memory(sys.argv[1]) as memory:
    live = Live(memory)
    live.append_message("chat:1", "user", "the first makes the session, its title and its row")
    os.access("from-here", os.F_OK)
    for number in range(5):
        live.append_message("chat:1", "assistant", f"message {number}")
    os.access("to-here", os.F_OK)
"""


def test_an_append_that_brings_the_lasting_row_up_to_date_flushes_once(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-o", trace, "-e", "trace=access,fsync,fdatasync,msync,sync_file_range"]

    subprocess.run([*command, sys.executable, "-c", PROGRAM, tmp_path / "store"], check=True)

    calls = trace.read_text().partition("from-here")[2].partition("to-here")[0].splitlines()
    flushes = [line for line in calls if "sync" in line]
    assert len(flushes) == 5
    assert all("fdatasync" in line for line in flushes)
