"""Commands as processes of their own, forked from one that has imported everything and compiled the redaction rules.

Both take a second of processor time, and the tests start a thousand commands. Each test process has a server of its
own, which ends with it. What must be seen from its first instruction (by strace, or to time a cold start) is started
as usual; what strace only has to see from the command's first word on is forked too, and waits until it is attached.
"""

import ctypes
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext, suppress
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages
from typing import Any

_REQUEST_BYTES = 1 << 20
_PR_SET_PTRACER = 0x59616D61


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
        self,
        arguments: Sequence[str],
        environment: Mapping[str, str],
        timeout: float,
        *,
        user: int | None = None,
        tracer: Sequence[str] = (),
    ) -> subprocess.CompletedProcess[str]:
        """What `subprocess.run` would return for the command in `/`. `tracer` is a strace that is attached to it."""
        request = {"arguments": arguments[2:], "environment": dict(environment), "user": user}
        waiting, release = os.pipe()
        with tempfile.TemporaryFile() as stdout, tempfile.TemporaryFile() as stderr, open(release, "wb") as gate:
            message = json.dumps(request).encode()
            socket.send_fds(self._channel, [message], [stdout.fileno(), stderr.fileno(), waiting])
            os.close(waiting)
            pid = int(self._answers.readline())
            tracing = _attach(tracer, pid) if tracer else nullcontext()
            gate.close()
            self._channel.settimeout(timeout)
            try:
                status = int(self._answers.readline())
            except TimeoutError:
                os.kill(pid, 9)
                raise
            with tracing:  # until all is in its log
                printed = [_read(file) for file in (stdout, stderr)]
        return subprocess.CompletedProcess(arguments, status, *printed)


def _attach(tracer: Sequence[str], pid: int) -> subprocess.Popen[bytes]:
    tracing = subprocess.Popen([*tracer, "-p", str(pid)])
    while "TracerPid:\t0\n" in Path(f"/proc/{pid}/status").read_text():
        assert tracing.poll() is None, "strace could not be attached"
        time.sleep(0.001)
    return tracing


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
        message, files, _, _ = socket.recv_fds(channel, _REQUEST_BYTES, 3)
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
    *printing, waiting = files
    for number, file in enumerate(printing, start=1):
        os.dup2(file, number)
        os.close(file)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(-1))  # whoever started the tests may trace this
    os.read(waiting, 1)  # nothing, once the gate is closed
    os.close(waiting)
    if (user := request["user"]) is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
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
