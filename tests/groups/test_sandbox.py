"""An agent that sees nothing but its group's mounts can list, clear and resume."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from tests import logs
from tests.groups.conftest import INSIDE, plant

# A root of the sandbox's own: the system's programs, and what `group mounts` prints.
ENTER = """
set -e
mount -t tmpfs none "$ROOT"
for part in bin sbin lib lib64 usr; do
  [ -e "/$part" ] && mkdir -p "$ROOT/$part" && mount --rbind "/$part" "$ROOT/$part"
done
while read -r host sandbox mode; do
  if [ -d "$host" ]; then mkdir -p "$ROOT$sandbox"; else mkdir -p "$ROOT$(dirname "$sandbox")"; : > "$ROOT$sandbox"; fi
  mount --bind "$host" "$ROOT$sandbox"
  [ "$mode" = ro ] && mount -o remount,bind,ro "$ROOT$sandbox"
done < "$MOUNTS"
exec chroot "$ROOT" /bin/sh -c "$AGENT"
"""
AGENT = r"""
ask() {
  printf '%s' "$2" > /workspace/ipc/tasks/.$1.tmp
  mv /workspace/ipc/tasks/.$1.tmp /workspace/ipc/tasks/$1.json
  n=0
  while [ ! -e /workspace/ipc/answers/$1.json ] && [ $n -lt 200 ]; do n=$((n+1)); sleep 0.05; done
}
ask a '{"action": "list"}'
ask b '{"action": "clear", "name": "for later"}'
ls /workspace/group/conversations > /workspace/group/seen
ask c '{"action": "resume", "target": "for later"}'
echo x > /workspace/global.md || echo refused >> /workspace/group/seen
ls / /workspace >> /workspace/group/seen
"""


def _needs_namespaces() -> None:
    if shutil.which("unshare") is None or subprocess.run(["unshare", "-Urm", "true"], check=False).returncode:
        pytest.skip("needs `unshare` to make a mount namespace")


def test_a_group_that_sees_only_its_mounts_lists_clears_and_resumes(tmp_path: Path) -> None:
    _needs_namespaces()
    planted = plant(tmp_path)
    (tmp_path / "root").mkdir()
    with planted.open() as memory:
        group = memory.groups.get("inside")
        (planted.folder / "groups" / "global.md").write_text("for all\n")
        mounts = "".join(f"{mount.host} {mount.sandbox} {mount.mode}\n" for mount in memory.groups.mounts("inside"))
        (tmp_path / "mounts").write_text(mounts)
        environment = {
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "ROOT": str(tmp_path / "root"),
            "MOUNTS": str(tmp_path / "mounts"),
            "AGENT": AGENT,
        }
        command = ["unshare", "-Urm", "--propagation", "private", "sh", "-c", ENTER]
        agent = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while agent.poll() is None and time.monotonic() < deadline:
            memory.groups.serve("inside")
            time.sleep(0.05)
        _, errors = agent.communicate(timeout=5)
        active = memory.groups.sessions("inside").get()

    answers = [json.loads((Path(group.ipc) / "answers" / f"{name}.json").read_text()) for name in "abc"]
    seen = (Path(group.path) / "seen").read_text().split()
    assert [answer["ok"] for answer in answers] == [True] * 3, errors
    assert answers[0]["active"] == answers[2]["session_uid"] == active == f"claude:{logs.session_id(INSIDE)}"
    assert any(name.endswith(".md") for name in seen) and "refused" in seen
    assert "store" not in seen and (planted.folder / "groups" / "global.md").read_text() == "for all\n"
