"""The example host stores both sides of both of its channels, and recalls one in the other."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from recollect.api import open_memory
from recollect.live import Live
from tests.conftest import REPOSITORY


def test_both_channels_of_the_example_host_are_stored_and_recalled_across(tmp_path: Path) -> None:
    store, path = tmp_path / "store", Path(os.path.relpath(tmp_path / "c.sock"))
    command = [sys.executable, str(REPOSITORY / "examples" / "chat_agent" / "host.py"), "--socket", str(path)]
    environment = {**os.environ, "RECOLLECT_HOME": str(store)}
    process = subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin and process.stdout

    def type_in(text: str) -> str:
        assert process.stdin and process.stdout
        process.stdin.write(f"{text}\n")
        process.stdin.flush()
        return process.stdout.readline().strip()

    try:
        assert "nc -U" in process.stdout.readline()
        assert type_in("the mango order") == "(1) the mango order"
        with socket.socket(socket.AF_UNIX) as channel, channel.makefile("rw") as answers:
            channel.connect(str(path))

            def say(text: str) -> str:
                answers.write(f"{text}\n")
                answers.flush()
                return answers.readline().strip()

            assert say("the papaya order") == "(1) the papaya order"
            assert "cli:terminal: the mango order" in say("/history mango")
        assert type_in("/search mango") == "This host searches the web here"
        assert type_in("/new").startswith("Started a new session")
        assert type_in("anew") == "(1) anew"
        process.stdin.close()
        assert process.wait(timeout=30) == 0
    finally:
        process.kill()
        process.stdin.close()
        process.stdout.close()
        process.wait()
    with open_memory(store) as memory:
        live = Live(memory)
        said = {session.key.partition("#")[0]: [] for session in live.list_sessions(with_archived=True)}
        for session in live.list_sessions(with_archived=True):
            said[session.key.partition("#")[0]] += [
                (message.role, message.content) for message in live.get_history(session.key)
            ]
    assert said["socket:local"] == [("user", "the papaya order"), ("assistant", "(1) the papaya order")]
    assert sorted(said["cli:terminal"]) == [
        ("assistant", "(1) anew"),
        ("assistant", "(1) the mango order"),
        ("user", "anew"),
        ("user", "the mango order"),
    ]
