"""Print how many modules and functions the main walks through the code pass, beside what they should.

python tools/walk.py            exit 1 if a walk passes more
python tools/walk.py --modules  name the modules as well

A module is passed when one of its functions runs, be it while another module is loaded. Each walk is a process of its
own, as for a user.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import recollect

SOURCE = str(Path(recollect.__file__).parent) + os.sep
AGENTS = ("claude", "codex", "grok")


class Walk(NamedTuple):
    """A command, and the most modules and functions that it should pass; `{session}` is filled in."""

    name: str
    words: list[str]
    modules: int
    functions: int | None = None


WALKS = (
    Walk("one new line", ["sweep"], 90, 900),
    Walk("no-change sweep", ["sweep"], 45 + len(AGENTS)),  # each agent finds its own files
    Walk("search", ["search", "count python files"], 35),
    Walk("forget", ["forget", "{session}", "--yes"], 60),
)

_PROFILED = """
import json, sys, threading
codes = set()
def note(frame, event, argument):
    code = frame.f_code
    if event == "call" and code.co_filename.startswith(sys.argv[1]) and not code.co_name.startswith("<"):
        codes.add(code)
threading.setprofile(note)
sys.setprofile(note)
from recollect.cli import main
try:
    main(sys.argv[2:], standalone_mode=False)
finally:
    sys.setprofile(None)
    print(json.dumps([[code.co_filename, code.co_qualname] for code in codes]))
"""


def passed(words: Sequence[str]) -> list[tuple[str, str]]:
    """The module and the name of each function of the package that a command calls."""
    done = subprocess.run([sys.executable, "-c", _PROFILED, SOURCE, *words], capture_output=True, text=True, check=True)
    codes = json.loads(done.stdout.splitlines()[-1])
    return [(path.removeprefix(SOURCE).removesuffix(".py").replace(os.sep, "."), name) for path, name in codes]


@contextmanager
def store_of_samples() -> Iterator[Path]:
    """A store that has read the bundled sessions, each agent's in its home; yields the folder of the homes."""
    with tempfile.TemporaryDirectory() as folder:
        homes, store = Path(folder) / "homes", Path(folder) / "store"
        shutil.copytree(Path(SOURCE) / "samples", homes)
        os.environ["RECOLLECT_HOME"] = str(store)
        store.mkdir(mode=0o700)
        roots = "".join(f"[agents.{agent}]\nroots = ['{homes / agent}']\n" for agent in AGENTS)
        (store / "config.toml").write_text(roots)
        passed(["sweep"])
        yield homes


def add_prompt(homes: Path) -> str:
    """Add a line to a session; returns its id."""
    log = min((homes / "claude" / "projects").glob("*/*.jsonl"))
    lines = log.read_bytes().splitlines()
    prompt = next(line for line in lines if b'"type":"user"' in line and b'"content":"' in line)
    log.write_bytes(b"\n".join([*lines, prompt.replace(b'"uuid":"', b'"uuid":"f'), b""]))
    return log.stem


def main(words: list[str]) -> int:
    is_missed = False
    print("| walk | modules | at most | functions | at most |\n|---|---:|---:|---:|---:|")
    with store_of_samples() as homes:
        session = add_prompt(homes)
        for walk in WALKS:
            functions = passed([word.format(session=session) for word in walk.words])
            modules = sorted({module for module, _ in functions})
            most = "" if walk.functions is None else f"{walk.functions:,}"
            print(f"| {walk.name} | {len(modules)} | {walk.modules} | {len(functions):,} | {most} |")
            is_missed |= len(modules) > walk.modules or len(functions) > (walk.functions or len(functions))
            if "--modules" in words:
                print("", *modules, sep="\n    ")
    return int(is_missed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
