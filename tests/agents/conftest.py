"""The real Claude Code, Codex and Grok at work: installed once, each played through one script of steps.

They talk to a scripted model on loopback; everything on disk is what the agents themselves write. The
scripts that start them lie beside the checkout, as the genuine sessions do. Test workers share one run
per agent: the first to come plays it, the others wait for it.
"""

import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from recollect.api import Memory, open_memory
from tests.conftest import ON_DISK, SHARED, with_key

SCRIPTS = SHARED / "agents"
PATIENCE_S = 60
INSTALL_S = 600
SLOW_COMMAND = ["sleep", "45"]  # what "run the slow command" makes the agent wait for

FIX = "Please fix the failing test"
CRASH = "Please run the crash script"
DELEGATE = "Please delegate the count"
SLOW = "Please run the slow command"
GREET = "Please say hello"
COMMIT = "Please commit the work"
GREET_AGAIN = "Please say hello once more"


@dataclass(frozen=True)
class RealAgent:
    """How one agent is started. In the arguments `{prompt}`, `{id}` and `{model}` are filled in.

    `version_file` tells the installed version; it is empty where the agent's sessions do not name one.
    """

    name: str
    agent: str
    ask: tuple[str, ...]
    resume: tuple[str, ...]
    fork: tuple[str, ...]
    tells_session: str
    tells_usage: str
    model: str
    delegating_model: str
    version_file: str = ""
    has_scripts_for_tools: bool = False
    forks_by_reference: bool = False
    reports_running_totals: bool = False  # of a thread and what it was forked from
    # Ctrl-C ends the program without a word in its log: it has to be told to cancel.
    is_cancelled_by_protocol: bool = False


_CLAUDE = ("-p", "{prompt}", "--output-format", "json", "--permission-mode", "bypassPermissions")
_GROK = ("-p", "{prompt}", "--output-format", "json", "--always-approve")
_CODEX_OPTIONS = ("--json", "-m", "{model}")

_CODEX = RealAgent(
    name="codex",
    agent="codex",
    ask=("exec", *_CODEX_OPTIONS, "{prompt}"),
    resume=("exec", "resume", *_CODEX_OPTIONS, "{id}", "{prompt}"),
    fork=("exec", "fork", *_CODEX_OPTIONS, "{id}", "{prompt}"),
    tells_session=r'"thread_id":"([^"]+)"',
    tells_usage=r'"turn.completed","usage":(\{[^}]*\})',
    model="gpt-5.5",
    delegating_model="gpt-5.4",  # gpt-5.5 is given no tool to start sub-agents with
    version_file="codex/node_modules/@openai/codex/package.json",
    forks_by_reference=True,
    reports_running_totals=True,
)
REAL_AGENTS = (
    RealAgent(
        name="claude",
        agent="claude",
        ask=(*_CLAUDE, "--session-id", "{id}"),
        resume=(*_CLAUDE, "--resume", "{id}"),
        fork=(*_CLAUDE, "--resume", "{id}", "--fork-session"),
        tells_session=r'"session_id":"([^"]+)"',
        tells_usage=r'"usage":(\{"input_tokens".*?),"output_tokens_details"',
        model="claude-opus-5-5",
        delegating_model="claude-opus-5-5",
        version_file="claude/node_modules/@anthropic-ai/claude-code/package.json",
    ),
    _CODEX,
    # From gpt-5.6 on Codex has one tool, which takes a script: its commands are logged, a patch that fails is not.
    replace(
        _CODEX,
        name="codex-code-mode",
        model="gpt-6.1-sol",
        delegating_model="gpt-6.1-sol",
        has_scripts_for_tools=True,
    ),
    RealAgent(
        name="grok",
        agent="grok",
        ask=(*_GROK, "-s", "{id}"),
        resume=(*_GROK, "-r", "{id}"),
        fork=(*_GROK, "-r", "{id}", "--fork-session"),
        tells_session=r'"sessionId":\s*"([^"]+)"',
        tells_usage=r'"usage":\s*(\{[^}]*\})',
        model="grok-4.6",
        delegating_model="grok-4.6",
        is_cancelled_by_protocol=True,
    ),
)


@dataclass
class Run:
    """What one agent was made to do, and the stores that watched it.

    `ids` are native session ids by step; `usage` is what the agent printed about tokens after a step.
    """

    name: str
    folder: str
    ids: dict[str, str] = field(default_factory=dict)
    usage: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[list[str]] = field(default_factory=list)

    @property
    def real(self) -> RealAgent:
        return next(real for real in REAL_AGENTS if real.name == self.name)

    @property
    def project(self) -> Path:
        return Path(self.folder) / "project"

    @property
    def root(self) -> str:
        return f"{self.real.agent}={Path(self.folder) / 'home' / f'.{self.real.agent}'}"

    def open(self, store: str) -> Memory:
        return open_memory(with_key(Path(self.folder) / store), [self.root])


@contextmanager
def _only_one(path: Path) -> Iterator[None]:
    """Hold a lock between processes; whoever comes later waits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _reason_to_skip() -> str | None:
    if not SCRIPTS.is_dir():
        return "needs the scripts that run real agents beside the checkout (../shared/agents)"
    missing = [program for program in ("npm", "node", "git", "bash", "timeout") if shutil.which(program) is None]
    if missing:
        return f"needs {', '.join(missing)} to install and run the real agents"
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        return "the scripts that run real agents are for Linux on x86_64"
    return None


def _install(folder: Path) -> str | None:
    """Install the agents into `folder` unless they are there; return what went wrong."""
    pinned = hashlib.sha256((SCRIPTS / "install.sh").read_bytes()).hexdigest()
    marker = folder / "installed"
    if marker.exists() and marker.read_text() == pinned:
        return None
    command = [str(SCRIPTS / "install.sh"), *sorted({real.agent for real in REAL_AGENTS})]
    try:
        done = subprocess.run(command, env=_environment(folder), capture_output=True, text=True, timeout=INSTALL_S)
    except subprocess.TimeoutExpired:
        return f"the real agents could not be installed within {INSTALL_S} s"
    if done.returncode != 0:
        return f"the real agents could not be installed (no network?): {done.stderr.strip()[-300:]}"
    marker.write_text(pinned)
    return None


def _environment(folder: Path, **more: str) -> dict[str, str]:
    return {**os.environ, "AGENTS_DIR": str(folder), "PYTHONDONTWRITEBYTECODE": "1", **more}


@pytest.fixture(scope="session")
def agents_folder() -> Path:
    """Where the agents are installed: kept between test runs, for it takes minutes to make."""
    if reason := _reason_to_skip():
        pytest.skip(reason)
    folder = ON_DISK / "recollect-agents"
    folder.mkdir(mode=0o700, exist_ok=True)
    if folder.stat().st_uid != os.geteuid():
        pytest.skip(f"programs in a folder of another user are not run: {folder}")
    with _only_one(folder / "install.lock"):
        problem = _install(folder)
    if problem:
        pytest.skip(problem)
    return folder


@pytest.fixture(scope="module", params=[real.name for real in REAL_AGENTS])
def run(request: pytest.FixtureRequest, agents_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One agent's finished run. Workers of one test run share the folder above their own."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / "real-agents" / request.param
    told = folder / "run.json"
    with _only_one(folder / "run.lock"):
        if not told.exists():
            told.write_text(json.dumps(asdict(_play(Run(request.param, str(folder)), agents_folder))))
    return Run(**json.loads(told.read_text()))


@pytest.fixture(scope="module")
def memory_of_run(run: Run) -> Iterator[Memory]:
    """The store that saw the agent's files once, after the last step."""
    with run.open("swept-once") as memory:
        yield memory


def _play(run: Run, agents_folder: Path) -> Run:
    """Make the agent do every step, sweeping one store after each step and another all the time."""
    with mock_model(Path(run.folder)) as port:
        stage = Stage(run, agents_folder, port)
        with _sweeping_all_the_time(run), run.open("swept-often") as memory:
            for step in stage.steps():
                step()
                _sweep(run, memory)
    for store in ("swept-often", "swept-all-the-time", "swept-once"):
        with run.open(store) as memory:
            _sweep(run, memory)
    return run


def _sweep(run: Run, memory: Memory) -> None:
    run.failures.extend([path, reason] for path, reason in memory.sweep().failures)


@contextmanager
def _sweeping_all_the_time(run: Run) -> Iterator[None]:
    """Sweep a store without a pause, so that files are read while the agent is in the middle of a line."""
    stop = threading.Event()

    def sweep_until_stopped() -> None:
        with run.open("swept-all-the-time") as memory:
            while not stop.wait(0.02):
                _sweep(run, memory)

    thread = threading.Thread(target=sweep_until_stopped)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def mock_model(folder: Path, scripts: Path = SCRIPTS / "mock") -> Iterator[int]:
    """A scripted model server on a free port of loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    environment = {**os.environ, "MOCK_LOG": str(folder / "requests"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, str(scripts / "server.py"), str(port)]
    with (folder / "mock.log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_for(partial(_answers, port), "the model server's first answer")
        yield port
    finally:
        server.terminate()
        server.wait()


def _answers(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"waited {PATIENCE_S} s in vain for {what}")


class Stage:
    """A fresh home and a fresh project, and the agent at work in them."""

    def __init__(self, run: Run, agents_folder: Path, port: int) -> None:
        self.run = run
        self.real = run.real
        home = Path(run.folder) / "home"
        home.mkdir()
        # Codex runs commands in a login shell, which would not find the Python that has pytest.
        (home / ".profile").write_text(f"export PATH={agents_folder}/venv/bin:$PATH\n")
        self.environment = _environment(
            agents_folder, MOCK_PORT=str(port), AGENT_HOME=str(home), HOME=str(home), T=str(PATIENCE_S)
        )
        subprocess.run([SCRIPTS / "mkproj.sh", run.project], env=self.environment, check=True, capture_output=True)

    def steps(self) -> list[Callable[[], None]]:
        return [
            partial(self.ask, "fixed", FIX),
            partial(self.ask, "crashed", CRASH),
            partial(self.ask, "delegated", DELEGATE, self.real.delegating_model),
            partial(self.go_on, "resumed", self.real.resume, GREET),
            partial(self.go_on, "forked", self.real.fork, COMMIT),
            partial(self.go_on, "resumed after the fork", self.real.resume, GREET_AGAIN),
            self.cancel if self.real.is_cancelled_by_protocol else partial(self.cut_off, "interrupted", signal.SIGINT),
            partial(self.cut_off, "killed", signal.SIGKILL),
        ]

    def ask(self, step: str, prompt: str, model: str = "") -> None:
        """A new session with one prompt, to its end."""
        self._finish(step, self._start(self.real.ask, prompt, str(uuid.uuid4()), model))

    def go_on(self, step: str, arguments: tuple[str, ...], prompt: str) -> None:
        """Another prompt for the first session, or for a fork of it."""
        self._finish(step, self._start(arguments, prompt, self.run.ids["fixed"]))

    def cut_off(self, step: str, how: signal.Signals) -> None:
        """End the agent by a signal while it waits for a slow command."""
        native_id, since = str(uuid.uuid4()), time.time()
        process = self._start(self.real.ask, SLOW, native_id)
        slow = wait_for(partial(_slow_command, self.run.project), "the slow command")
        # Claude Code writes a moment after it acts: killed too soon, it would have nothing to tell.
        wait_for(partial(self._has_logged, since), "the agent's log of the slow command")
        os.kill(_only_child(process.pid), how)
        output, _ = process.communicate(timeout=PATIENCE_S)
        _end(slow)
        self.run.ids[step] = self._session(output) or native_id

    def cancel(self) -> None:
        """Cancel a turn as an editor does it, by the agent client protocol."""
        process = self._launch(("agent", "--always-approve", "stdio"), stdin=subprocess.PIPE)
        editor = Editor(process)
        editor.call("initialize", protocolVersion=1, clientCapabilities={})
        session = editor.call("session/new", cwd=str(self.run.project), mcpServers=[])["sessionId"]
        prompt = editor.send("session/prompt", sessionId=session, prompt=[{"type": "text", "text": SLOW}])
        slow = wait_for(partial(_slow_command, self.run.project), "the slow command")
        editor.notify("session/cancel", sessionId=session)
        editor.answer(prompt)
        process.communicate(timeout=PATIENCE_S)
        _end(slow)
        self.run.ids["interrupted"] = session

    def _start(self, arguments: tuple[str, ...], prompt: str, native_id: str, model: str = "") -> subprocess.Popen[str]:
        filling = {"prompt": prompt, "id": native_id, "model": model or self.real.model}
        return self._launch(tuple(argument.format(**filling) for argument in arguments), stdin=subprocess.DEVNULL)

    def _launch(self, arguments: tuple[str, ...], stdin: int) -> subprocess.Popen[str]:
        command = [str(SCRIPTS / f"run-{self.real.agent}.sh"), str(self.run.project), *arguments]
        with (Path(self.run.folder) / "agent.log").open("a") as log:
            return subprocess.Popen(
                command, env=self.environment, stdin=stdin, stdout=subprocess.PIPE, stderr=log, text=True
            )

    def _finish(self, step: str, process: subprocess.Popen[str]) -> None:
        output, _ = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, f"{self.real.name} failed at step `{step}`: {output[-2000:]}"
        self.run.ids[step] = self._session(output) or ""
        if usage := re.search(self.real.tells_usage, output, re.DOTALL):
            told = usage[1] if usage[1].endswith("}") else usage[1] + "}"
            self.run.usage[step] = json.loads(told)

    def _has_logged(self, since: float) -> bool:
        """Whether a log the agent wrote to after `since` has the call of the slow command."""
        logs = (path for path in Path(self.run.folder, "home").rglob("*.jsonl") if path.stat().st_mtime >= since)
        return any(" ".join(SLOW_COMMAND).encode() in log.read_bytes() for log in logs)

    def _session(self, output: str) -> str | None:
        told = re.search(self.real.tells_session, output)
        return told[1] if told else None


class Editor:
    """Just enough of an editor to lead an agent over its standard input and output."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        assert process.stdin and process.stdout
        self._to, self._from = process.stdin, process.stdout
        self._sent = 0

    def send(self, method: str, **params: Any) -> int:
        self._sent += 1
        self._write({"id": self._sent, "method": method, "params": params})
        return self._sent

    def notify(self, method: str, **params: Any) -> None:
        self._write({"method": method, "params": params})

    def call(self, method: str, **params: Any) -> Any:
        return self.answer(self.send(method, **params))

    def answer(self, sent: int) -> Any:
        """What the agent answers to a call; its notices in between are dropped."""
        for line in self._from:
            message = json.loads(line)
            if message.get("id") == sent and "method" not in message:
                return message["result"]
        raise EOFError("the agent went away")

    def _write(self, message: dict[str, Any]) -> None:
        self._to.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self._to.flush()


def _slow_command(project: Path) -> int | None:
    """The process of the slow command running in this project."""
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            command = (process / "cmdline").read_text().split("\0")[:-1]
            if command == SLOW_COMMAND and (process / "cwd").readlink() == project:
                return int(process.name)
    return None


def _only_child(pid: int) -> int:
    """The agent itself: the script hands over to `timeout`, which a kill would not pass on."""
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return int(child)


def _end(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
