"""Real agents that are made to go on with sessions which Recollect wrote: one project, one home, one scripted model."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.agents.conftest import PATIENCE_S, REAL_AGENTS, SCRIPTS, RealAgent, _environment, mock_model


@dataclass(frozen=True)
class Desk:
    """Where agents work, and what they sent to the model."""

    folder: Path
    environment: dict[str, str]

    @property
    def project(self) -> Path:
        return self.folder / "project"

    @property
    def home(self) -> Path:
        return self.folder / "home"

    def real(self, agent: str) -> RealAgent:
        return next(real for real in REAL_AGENTS if real.name == agent)

    def root(self, agent: str) -> str:
        return f"{agent}={self.home / f'.{agent}'}"

    def run(
        self, agent: str, arguments: tuple[str, ...], prompt: str, native_id: str = "", cwd: Path | None = None
    ) -> str:
        """Run an agent to its end and return what it printed."""
        filling = {"prompt": prompt, "id": native_id, "model": self.real(agent).model}
        words = [argument.format(**filling) for argument in arguments]
        command = [str(SCRIPTS / f"run-{agent}.sh"), str(cwd or self.project), *words]
        done = subprocess.run(
            command,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, f"{agent}: {done.stdout[-2000:]} {done.stderr[-2000:]}"
        return done.stdout

    def last_request(self, containing: str) -> Any:
        """The last request to the model that has this text."""
        for path in sorted((self.folder / "requests").glob("*.json"), reverse=True):
            if containing in (text := json.dumps(json.loads(path.read_text()), ensure_ascii=False)):
                return text
        raise AssertionError(f"no request with: {containing}")


@contextmanager
def opened_desk(folder: Path, agents_folder: Path, scripts: Path = SCRIPTS / "mock") -> Iterator[Desk]:
    """A fresh home and a fresh project in a folder, with a model that plays these scripts."""
    home = folder / "home"
    home.mkdir()
    with mock_model(folder, scripts) as port:
        environment = _environment(
            agents_folder, MOCK_PORT=str(port), AGENT_HOME=str(home), HOME=str(home), T=str(PATIENCE_S)
        )
        desk = Desk(folder, environment)
        subprocess.run([SCRIPTS / "mkproj.sh", desk.project], env=environment, check=True, capture_output=True)
        yield desk
