"""Commands as processes of their own, forked from one that has imported everything and compiled the redaction rules.

Both take a second of processor time, and the tests start a thousand commands. Each test process has a server of its
own, which ends with it. What must be seen from its first instruction (by strace, or to time a cold start) is started
as usual.
"""

import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

_REQUEST_BYTES = 1 << 20


class ForkServer:
    """Runs commands of this project's Python: `-P -m recollect WORDS…`, `-P -c CODE WORDS…` or `-P SCRIPT WORDS…`."""

    def __init__(self) -> None:
        self._channel, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", __file__, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                cwd="/",
                stdin=subprocess.DEVNULL,
                env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"},
            )
        self._answers = self._channel.makefile("r")

    def run(
        self, arguments: Sequence[str], environment: Mapping[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """What `subprocess.run` would return for the command in `/`."""
        request = {"arguments": arguments[2:], "environment": dict(environment)}
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr:
            message = json.dumps(request).encode()
            socket.send_fds(self._channel, [message], [stdout.fileno(), stderr.fileno()])
            pid = int(self._answers.readline())
            self._channel.settimeout(timeout)
            try:
                status = int(self._answers.readline())
            except TimeoutError:
                os.kill(pid, 9)
                raise
            printed = [_read(file) for file in (stdout, stderr)]
        return subprocess.CompletedProcess(arguments, status, *printed)


def is_forkable(arguments: Sequence[str]) -> bool:
    return list(arguments[:2]) == [sys.executable, "-P"]


@cache
def fork_server() -> ForkServer:
    return ForkServer()


def _read(file: Any) -> str:
    file.seek(0)
    return str(file.read().decode().replace("\r\n", "\n"))


# In the server


def _warm_up() -> None:
    import recollect
    from recollect.redact import KEY_BYTES, RedactionRules, Redactor

    for module in walk_packages(recollect.__path__, "recollect.", onerror=lambda name: None):
        if not module.name.endswith("__main__"):
            with suppress(ImportError):  # an extra that is not installed
                import_module(module.name)
    Redactor(RedactionRules(), bytes(KEY_BYTES))


def _serve(channel: socket.socket) -> tuple[dict[str, Any], list[int]] | None:
    """Fork for each request and report how it ended; returns in the forked process, with what it is to run."""
    while True:
        message, files, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 2)
        if not message:
            return None
        pid = os.fork()
        if pid == 0:
            channel.close()
            return json.loads(message), files
        for file in files:
            os.close(file)
        channel.sendall(b"%d\n" % pid)
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        channel.sendall(b"%d\n" % status)


def _become(request: dict[str, Any], files: Sequence[int]) -> None:
    for number, file in enumerate(files, start=1):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()
    program, *words = request["arguments"]
    if program == "-m":
        sys.argv = words
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
    elif program == "-c":
        sys.argv = [program, *words[1:]]
        exec(words[0], {"__name__": "__main__"})
    else:
        sys.argv = [program, *words]
        runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))
    _warm_up()
    if job := _serve(socket.socket(fileno=int(sys.argv[1]))):
        _become(*job)
