"""All code in the docs runs as it is printed: each block alone, in a folder that has what its page speaks of."""

import re
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

from recollect.api import open_memory
from tests.agents.sdk import load_sdk
from tests.conftest import REPOSITORY, with_key

SAMPLES = REPOSITORY / "src" / "recollect" / "samples"
PAGES = (REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").rglob("*.md")))
_GENERATED = re.compile(r"<!-- \[\[\[cog.*?\[\[\[end\]\]\]", re.DOTALL)  # signatures
_BLOCKS = [
    pytest.param(page, code, id=f"{page.stem}-{number}")
    for page in PAGES
    for number, code in enumerate(
        re.findall(r"^```python\n(.*?)^```", _GENERATED.sub("", page.read_text()), re.M | re.S)
    )
]


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with the bundled sessions in its store, a photo, and an agent that answers a group."""
    programs, home = tmp_path / "bin", tmp_path / "home"
    for folder in (programs, home / "uploads", home / "family"):
        folder.mkdir(parents=True)
    (home / "uploads" / "ticket.png").write_bytes(b"a ticket")
    stand_in = REPOSITORY / "tests" / "groups" / "stand_in.py"
    (programs / "claude").write_text(f'#!/bin/sh\nexec {sys.executable} -S {stand_in} "$@"\n')
    (programs / "claude").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    roots = [f"{path.name}={path}" for path in SAMPLES.iterdir() if path.is_dir()]
    with open_memory(with_key(tmp_path / "store"), roots) as memory:  # which RECOLLECT_HOME is in tests
        memory.sweep()
    return home


def test_there_is_code_on_every_page_for_programs() -> None:
    pages = {param.id.rpartition("-")[0] for param in _BLOCKS}

    assert pages >= {
        "README",
        "library",
        "agent-hosts",
        "native",
        "archives",
        "forgetting",
        "handover",
        "search",
        "groups",
    }


@pytest.mark.parametrize(("page", "code"), _BLOCKS)
def test_code_of_the_docs_runs_as_printed(prepared: Path, page: Path, code: str) -> None:
    if "claude_agent_sdk" in code:
        load_sdk()

    with redirect_stdout(StringIO()):
        exec(compile(code, str(page), "exec"), {"__name__": "docs"})
