"""What a group's agent is about to compact is archived in the group's conversations, by the plugin and by files."""

import json
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from recollect.api import open_memory
from recollect.hooks import drain_spool
from tests import logs
from tests.groups.conftest import INSIDE, MAIN, WORDS, Planted, plant


def _compact(planted: Planted, number: int, folder: Path, **variables: str) -> None:
    """Call the hook as an agent does that is about to compact a session."""
    (path,) = (planted.folder.parent / f"home-{WORDS[number]}").rglob("*.jsonl")
    event = {"hook_event_name": "PreCompact", "session_id": logs.session_id(number), "transcript_path": str(path)}
    line = [sys.executable, "-c", "from recollect.hooks.command import run; run()"]
    done = subprocess.run(
        line, input=json.dumps(event), text=True, env={**os.environ, **variables}, cwd=folder, capture_output=True
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _archives(planted: Planted) -> list[str]:
    return [path.read_text() for path in planted.folder.parent.rglob("conversations/*.md")]


def test_the_plugin_archives_a_group_s_conversation_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted = plant(tmp_path)
    (planted.folder / "config.toml").write_text(f"[agents.claude]\nroots = ['{tmp_path / f'home-{WORDS[MAIN]}'}']\n")
    monkeypatch.setenv("RECOLLECT_HOME", str(planted.folder))
    ipc = str(planted.folder / "groups" / "inside" / "ipc")

    _compact(planted, INSIDE, tmp_path, RECOLLECT_GROUP="inside", RECOLLECT_IPC=ipc)
    _compact(planted, MAIN, tmp_path)
    drain_spool()

    deadline = time.monotonic() + 20  # the sweep that the hook starts may be the one
    while not _archives(planted) and time.monotonic() < deadline:
        time.sleep(0.1)
    (document,) = _archives(planted)
    assert WORDS[INSIDE] in document


def test_a_sandbox_has_the_host_archive_its_conversation(tmp_path: Path) -> None:
    planted = plant(tmp_path)
    with planted.open() as memory:
        ipc = Path(memory.groups.get("inside").ipc)
        memory.groups.write_snapshots("inside")
    is_over = threading.Event()

    def serve() -> None:
        with open_memory(planted.folder, [planted.root]) as memory:
            while not is_over.wait(0.05):
                memory.groups.serve("inside")

    host = threading.Thread(target=serve)
    host.start()
    _compact(planted, INSIDE, tmp_path, RECOLLECT_HOME=str(tmp_path / "no-store"), RECOLLECT_IPC=str(ipc))
    is_over.set()
    host.join()

    (document,) = _archives(planted)
    assert WORDS[INSIDE] in document
    assert list((ipc / "answers").iterdir()) == []


def test_mounts_gives_a_home_what_a_run_does(tmp_path: Path) -> None:
    skill = tmp_path / "work" / "skills" / "recall" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text("---\nname: recall\n---\n")
    words = ["--agent-teams", "--add-dir", "/data", "--no-auto-memory"]
    environment = {**os.environ, "RECOLLECT_HOME": str(tmp_path / "store")}
    command = [sys.executable, "-m", "recollect", "group"]
    subprocess.run([*command, "add", "work", "--path", tmp_path / "work"], env=environment, check=True)

    subprocess.run([*command, "mounts", "work", *words], env=environment, check=True)

    home = tmp_path / "store" / "groups" / "work" / ".claude"
    settings = json.loads((home / "settings.json").read_text())
    assert settings["permissions"] == {"additionalDirectories": ["/data"]}
    assert settings["autoMemoryEnabled"] is False and settings["env"]
    assert (home / "skills" / "recall" / "SKILL.md").exists()
