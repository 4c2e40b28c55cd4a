"""Running a group's agent: prompts go in, its session becomes the group's, follow-ups reach it in order, each once."""

import fcntl
import os
import queue
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import orjson

from recollect.agentkit.optional import Dialogue, Ended, HomeSettings, Message, Reply, Said, Started, Task
from recollect.agents import runner_of
from recollect.groups.group import Group, GroupSessions
from recollect.model.errors import Busy, NotFound, RecollectError, UsageError
from recollect.model.shared_folder import CLOSE_NAME, INPUT, SharedFolder, open_shared

CLOSED, ENDED = "closed", "ended"
_SENT = ".sent"  # ends the name of a follow-up that the agent was sent, until its turn is over
_REFUSED = ".refused"
_POLL_SECONDS = 0.05
_CLOSE_SECONDS, _KILL_SECONDS = 1.1, 0.3  # so that an agent is gone within two seconds, whatever it does
_ORPHAN_SECONDS = 5.0
_INPUT_BYTES = 1024 * 1024

WasReceived = Callable[[str, int], bool]  # whether an agent's log has a prompt, from a time (in ms) on


@dataclass(slots=True)
class RunReport:
    """What a run did. `ended` is `closed` if somebody asked for it; `waiting` counts follow-ups left for the next."""

    group: str
    agent: str
    session_uid: str | None = None
    is_new: bool = False
    turns: int = 0
    answer: str = ""
    last_uuid: str | None = None
    ended: str = ENDED
    waiting: int = 0
    refused: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Run:
    """What to run: the group, the agent with its environment, and how long to wait for follow-ups."""

    group: Group
    agent: str
    home: Path
    prompt: str
    environment: Mapping[str, str]
    task: Task
    wait_seconds: float = 0.0
    settings: HomeSettings = field(default_factory=HomeSettings)


def run_agent(run: Run, sessions: GroupSessions, was_received: WasReceived, say: Callable[[str], None]) -> RunReport:
    """Run the agent until it has answered the prompt and all follow-ups, or until somebody has it closed.

    Raises Busy if the group's agent is running, and RecollectError if it cannot be started or reports a failure.
    """
    runner = runner_of(run.agent)
    prepare_home(run.group, run.agent, run.home, run.settings)
    ipc = Path(run.group.ipc)
    with _alone(ipc) as lock, open_shared(ipc) as folder, folder.below(INPUT) as inputs:
        _settle_sent(inputs, was_received)
        for place in (inputs, folder):
            place.remove(CLOSE_NAME)
        dialogue: Dialogue = runner.Dialogue(run.task)
        with _started(run, dialogue) as process:
            os.pwrite(lock, f"{process.pid:>20}".encode(), 0)
            return _Running(run, dialogue, process, sessions, folder, inputs, say).to_its_end()


def prepare_home(group: Group, agent: str, home: Path, settings: HomeSettings) -> None:
    """Make the agent's home if there is none, and give it the group's skills as they are now."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not any(home.iterdir()):
        runner_of(agent).prepare(home, settings)
    skills = Path(group.path) / "skills"
    if skills.is_dir() and not skills.is_symlink():
        shutil.copytree(skills, home / "skills", dirs_exist_ok=True, symlinks=True)


@contextmanager
def _alone(ipc: Path) -> Iterator[int]:
    """Hold the group's lock: of two runners neither would know which prompts the other sent.

    The file has the number of the last agent's process, which may outlive a runner that was killed.
    """
    path = ipc.parent / "run.lock"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _wait_for_end(int(os.pread(fd, 20, 0) or 0))
        yield fd
    except BlockingIOError:
        raise Busy(
            f"The agent of this group is running: {ipc.parent.name}", "put the prompt into its `input` folder"
        ) from None
    finally:
        os.close(fd)


def _wait_for_end(pid: int) -> None:
    """Wait for an agent whose runner was killed: its input has ended, and so does it, after its turn."""
    deadline = time.monotonic() + _ORPHAN_SECONDS
    while pid and _is_running(pid):
        if time.monotonic() > deadline:
            raise Busy(f"The agent of this group is still finishing its last turn: process {pid}", "wait, or end it")
        time.sleep(_POLL_SECONDS)


def _is_running(pid: int) -> bool:
    """Whether an agent of this number lives. Each leads a session of its own: a later process hardly does."""
    try:
        leads = os.getsid(pid) == pid
    except OSError:
        return False
    with suppress(OSError):  # nobody may have taken notice of its end
        return leads and Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] != "Z"
    return leads


def _settle_sent(inputs: SharedFolder, was_received: WasReceived) -> None:
    """Put follow-ups that a runner had marked when it ended back, unless the agent's log has them."""
    for name in inputs.names(_SENT):
        text = parse_input(inputs.read(name, _INPUT_BYTES))
        if was_received(text, inputs.changed_ms(name)):
            inputs.remove(name)
        else:
            inputs.rename(name, name.removesuffix(_SENT))


@contextmanager
def _started(run: Run, dialogue: Dialogue) -> Iterator["_Process"]:
    program, *arguments = dialogue.command()
    path = shutil.which(program, path=run.environment.get("PATH"))
    if path is None:
        raise NotFound(f"Not on your PATH: {program}", "install the agent, or choose another with `--agent`")
    with TemporaryFile() as errors:
        process = _Process([path, *arguments], run, errors)
        try:
            yield process
        finally:
            process.end()


class _Process:
    """The agent, its lines read by a thread."""

    def __init__(self, command: list[str], run: Run, errors: IO[bytes]) -> None:
        self._errors = errors
        self._process = subprocess.Popen(
            command,
            cwd=run.task.cwd,
            env=dict(run.environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            start_new_session=True,  # a Ctrl-C is ours: the agent is closed in order
        )
        self.pid = self._process.pid
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self._process.stdout or ():
            self._lines.put(line)
        self._lines.put(None)

    def send(self, message: Message) -> None:
        if self._process.stdin is None:
            return
        with suppress(BrokenPipeError):
            self._process.stdin.write(orjson.dumps(dict(message)) + b"\n")
            self._process.stdin.flush()

    def next_message(self) -> Message | None:
        """What the agent says within a moment; raises EOFError when it is gone."""
        try:
            line = self._lines.get(timeout=_POLL_SECONDS)
        except queue.Empty:
            return None
        if line is None:
            raise EOFError
        try:
            message = orjson.loads(line)
        except orjson.JSONDecodeError:
            return None
        return message if isinstance(message, dict) else None

    def last_words(self) -> str:
        """The end of what it wrote to standard error."""
        self._errors.seek(0)
        lines = self._errors.read()[-4_000:].decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else f"exit code {self._process.poll()}"

    def end(self) -> None:
        """Close its input and wait, then less and less politely, also with what it started."""
        self._end()
        self._reader.join(_KILL_SECONDS)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def _end(self) -> None:
        if self._process.stdin is not None:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSE_SECONDS)
            return
        self._signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_KILL_SECONDS)
        self._signal(signal.SIGKILL)
        self._process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """Reach all of its processes: the agent may have been started by a script."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)


class _Running:
    """An agent at work."""

    def __init__(
        self,
        run: Run,
        dialogue: Dialogue,
        process: _Process,
        sessions: GroupSessions,
        folder: SharedFolder,
        inputs: SharedFolder,
        say: Callable[[str], None],
    ) -> None:
        self._dialogue, self._process, self._sessions = dialogue, process, sessions
        self._folder, self._inputs, self._say = folder, inputs, say
        self._was = f"{run.agent}:{run.task.session}" if run.task.session else None
        self._at = sessions.get()
        self._wait_seconds = run.wait_seconds
        self._prompts = [run.prompt] if run.prompt else []
        self._sent: str | None = None  # the follow-up whose turn it is
        self._is_busy = False
        self._failure: str | None = None
        self._texts: list[str] = []
        self._idle_since = time.monotonic()
        self.report = RunReport(run.group.name, run.agent)

    def to_its_end(self) -> RunReport:
        for message in self._dialogue.opening():
            self._process.send(message)
        while not self._is_over():
            try:
                heard = self._process.next_message()
            except EOFError:
                if self._is_busy or not self.report.session_uid:
                    self._failure = self._failure or self._process.last_words()
                break
            for step in self._dialogue.receive(heard) if heard is not None else ():
                self._take(step)
            self._prompt_next()
        self.report.waiting = len(self._inputs.names())
        if self._failure is not None and self.report.ended != CLOSED:
            raise RecollectError(f"The agent failed: {self._failure}", "nothing was lost; the prompt can be sent again")
        return self.report

    def _is_over(self) -> bool:
        for folder in (self._inputs, self._folder):  # hosts also write it beside the folders
            if folder.has(CLOSE_NAME):
                folder.remove(CLOSE_NAME)
                self.report.ended = CLOSED
                return True
        if self._failure is not None:
            return True
        is_idle = self.report.turns > 0 and not self._is_busy and not self._prompts and not self._inputs.names()
        return is_idle and time.monotonic() - self._idle_since >= self._wait_seconds

    def _take(self, step: Any) -> None:
        if isinstance(step, Started):
            self._point(f"{self.report.agent}:{step.session}")
        elif isinstance(step, Said):
            self.report.last_uuid = step.uuid or self.report.last_uuid
            if step.text:
                self._texts.append(step.text)
                self._say(step.text)
        elif isinstance(step, Reply):
            self._process.send(step.message)
        elif isinstance(step, Ended):
            self._end_turn(step.error)

    def _point(self, session_uid: str) -> None:
        """Make the agent's session the group's, unless somebody moved on meanwhile."""
        self.report.session_uid, self.report.is_new = session_uid, session_uid != self._was
        if self._sessions.move(self._at, session_uid, self.report.last_uuid):
            self._at = session_uid

    def _end_turn(self, error: str | None) -> None:
        self._failure = error
        self.report.answer, self._texts = "\n".join(self._texts), []
        self._is_busy, self._idle_since = False, time.monotonic()
        if error is not None:
            return
        self.report.turns += 1
        if self._sent is not None:
            self._inputs.remove(self._sent)
            self._sent = None
        if self._at is not None:
            self._sessions.move(self._at, self._at, self.report.last_uuid)

    def _prompt_next(self) -> None:
        if self._is_busy or not self._dialogue.is_ready or self._failure is not None:
            return
        if not self._prompts:
            self._take_input()
        if self._prompts:
            self._process.send(self._dialogue.prompt(self._prompts.pop(0)))
            self._is_busy = True

    def _take_input(self) -> None:
        """The next follow-up. It is marked before it is sent: should all end now, the next run asks the agent's log."""
        for name in self._inputs.names()[:1]:
            try:
                text = parse_input(self._inputs.read(name, _INPUT_BYTES))
            except UsageError as error:
                self._inputs.rename(name, f"{name}{_REFUSED}")
                self.report.refused.append(f"{name}: {error.message}")
                return
            self._sent = f"{name}{_SENT}"
            self._inputs.rename(name, self._sent)
            self._prompts.append(text)


def parse_input(content: bytes) -> str:
    """The text of a follow-up: `{"text": "…"}`."""
    try:
        message = orjson.loads(content)
    except orjson.JSONDecodeError:
        raise UsageError("Not JSON", 'write {"text": "…"}') from None
    text = message.get("text") if isinstance(message, dict) else None
    if not isinstance(text, str) or not text.strip():
        raise UsageError("No text", 'write {"text": "…"}')
    return text
