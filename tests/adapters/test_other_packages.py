"""Adapters of other packages: known by an entry point, and looked for only where a package has one."""

import subprocess
import sys
from pathlib import Path

MODULE = """
from recollect.agentkit.adapter import FolderAdapter

ADAPTER = FolderAdapter("elsewhere", agent="elsewhere", home="~/.elsewhere", home_variable="ELSEWHERE_HOME", version=1)
"""
PROGRAM = """
import sys
from recollect.agents import adapters
print(*adapters(), "importlib.metadata" in sys.modules)
"""


def _agents(*paths: Path) -> list[str]:
    command = [sys.executable, "-c", f"import sys; sys.path[:0] = {list(map(str, paths))}\n{PROGRAM}"]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_the_adapter_of_an_installed_package_is_known(tmp_path: Path) -> None:
    (tmp_path / "elsewhere.py").write_text(MODULE)
    info = tmp_path / "elsewhere-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: elsewhere\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[recollect.adapters]\nelsewhere = elsewhere:ADAPTER\n")

    assert _agents(tmp_path)[-2:] == ["elsewhere", "True"]


def test_without_one_nothing_slow_is_loaded(tmp_path: Path) -> None:
    assert _agents(tmp_path)[-1] == "False"
