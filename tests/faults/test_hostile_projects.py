"""What one project or one log claims can harm its own capture only, and every sweep ends soon."""

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from recollect.agentkit.protocol import SessionInfo
from recollect.agents import adapters
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep

_PROJECTS = {
    "brackets": (".recollect.toml", "[capture]\nexclude = " + "[" * 5000 + "]" * 5000),
    "tables": (".recollect.toml", "x = " + "{a=" * 3000 + "1" + "}" * 3000),
    "dotted names": (".recollect.toml", "a." * 8000 + "b = 1"),
    "an odd number": (".recollect.toml", "x = 1" + "0" * 15_000),
    "stars": (".recollectignore", "*a" * 30_000 + "b\n"),
    "stars over folders": (".recollectignore", "**/a" * 10_000 + "/b\n"),
    "choices": (".recollectignore", "{a,*a}" * 10_000 + "b\n"),
    "sets": (".recollectignore", "[a-" * 20_000 + "]\n"),
    "many lines": (".recollectignore", "*a*a*a*b\n" * 7000),
    "a long file": (".recollectignore", "*a*a*a*b\n" * 100_000),
}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())
    return Home(tmp_path / "home")


def _session(name: str, cwd: str) -> list[Any]:
    return [SessionInfo(name, cwd=cwd), event(name, 1, text=f"{name} says so")]


@pytest.mark.parametrize("project", _PROJECTS)
def test_a_poisoned_project_harms_no_other_and_takes_little_time(tmp_path: Path, home: Home, project: str) -> None:
    name, content = _PROJECTS[project]
    poisoned, sound = tmp_path / "poisoned", tmp_path / "sound"
    for folder in (poisoned, sound):
        (folder / ".git").mkdir(parents=True)
    (poisoned / name).write_text(content)
    below = poisoned / "/".join(["a" * 200] * 4)
    home.write("log", *_session("poisoned", str(below)), *_session("sound", str(sound)))
    begun = time.process_time()

    with sweep(tmp_path / "store", home) as memory:
        assert "sound" in {session.native_session_id for session in memory.sessions()}
    assert time.process_time() - begun < 5


@pytest.mark.parametrize("cwd", ["/a" * 500_000, "/" + "a" * 1_000_000, "/" * 1_000_000, "/x/" + "../" * 300_000])
def test_a_folder_with_an_absurd_path_takes_little_time(tmp_path: Path, home: Home, cwd: str) -> None:
    home.write("log", *_session("absurd", cwd), *_session("sound", "/srv/open"))
    begun = time.process_time()

    with sweep(tmp_path / "store", home) as memory:
        assert {session.native_session_id for session in memory.sessions()} == {"absurd", "sound"}
    assert time.process_time() - begun < 5


def test_a_folder_behind_a_thousand_links_is_judged(tmp_path: Path, home: Home) -> None:
    (tmp_path / "link0").mkdir()
    for number in range(1500):
        (tmp_path / f"link{number + 1}").symlink_to(f"link{number}")
    home.write("log", *_session("judged", str(tmp_path / "link1500")))

    with sweep(tmp_path / "store", home) as memory:
        assert len(memory.sessions()) == 1


@pytest.fixture
def nested(home: Home) -> Iterator[None]:
    """Folders nested so deep that only the system's own tools can remove them."""
    subprocess.run(
        ["sh", "-c", "for _ in $(seq 1500); do mkdir d && cd d || exit 1; done"], cwd=home.folder, check=True
    )
    yield
    subprocess.run(["rm", "-rf", home.folder / "d"], check=True)


@pytest.mark.usefixtures("nested")
def test_a_thousand_nested_folders_stop_no_sweep(tmp_path: Path, home: Home) -> None:
    home.write("log", *_session("sound", "/srv/open"))

    with sweep(tmp_path / "store", home) as memory:
        assert len(memory.sessions()) == 1
