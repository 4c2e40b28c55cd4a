"""The Claude Agent SDK for tests: the one that is installed, or a copy in a folder that is kept between test runs."""

import importlib
import importlib.util
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

from tests.conftest import ON_DISK

VERSION = "0.2.182"
_PACKAGES = (f"claude-agent-sdk=={VERSION}", "sniffio")
_INSTALL_S = 300


def load_sdk() -> ModuleType:
    """The SDK; the test is skipped where it neither is installed nor can be downloaded."""
    if importlib.util.find_spec("claude_agent_sdk") is None:
        folder = ON_DISK / f"recollect-claude-sdk-{VERSION}"
        if not (folder / "claude_agent_sdk").is_dir() and (problem := _download(folder)):
            pytest.skip(problem)
        sys.path.append(str(folder))
        importlib.invalidate_caches()
    return importlib.import_module("claude_agent_sdk")


def _download(folder: Path) -> str | None:
    """Unpack the SDK without the agent that comes with it; returns what went wrong."""
    with tempfile.TemporaryDirectory() as downloads:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", downloads, *_PACKAGES]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S)
        except subprocess.TimeoutExpired:
            return f"the Claude Agent SDK could not be downloaded within {_INSTALL_S} s"
        if done.returncode != 0:
            return f"needs the Claude Agent SDK (pip install 'recollect[claude-sdk]'): {done.stderr.strip()[-200:]}"
        folder.mkdir(mode=0o700, exist_ok=True)
        for wheel in sorted(Path(downloads).glob("*.whl"), reverse=True):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder, [name for name in archive.namelist() if "_bundled/" not in name])
    return None
