import ast
import compileall
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from tools.doors import SOURCE, doors, listed_names, typed_names

import recollect

MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
LAZY = doors()
# What a newcomer does first, and what starts a process, or reads a file of the package: a pattern, a page, samples.
STORY = """
import sys
from pathlib import Path
import recollect
from recollect.archive import html
from recollect.cli.sweep import _sample_memory

if __name__ == "__main__":
    assert recollect.__file__.startswith(sys.argv[1]), recollect.__file__
    with _sample_memory() as memory:
        memory.sweep()
        answer = memory.answer("AssertionError")
        pattern = memory.answer("Assert[a-z]+Error", mode="regex")
        session = memory.sessions()[0]
        page = html.render_session_html(session, memory.transcript(session))
        print(len(answer.hits) > 0, len(pattern.hits) > 0, "<style" in page)
"""


@pytest.mark.parametrize("package", LAZY)
def test_each_name_that_type_checkers_see_loads_from_its_module(package: str) -> None:
    if package == "recollect.knowledge.graphiti":
        pytest.importorskip("graphiti_core")
    names = typed_names(LAZY[package])

    assert names
    for name, module in names.items():
        assert getattr(import_module(package), name) is getattr(import_module(module), name)


@pytest.mark.parametrize("package", LAZY)
def test_what_loads_at_run_time_is_what_type_checkers_see(package: str) -> None:
    assert listed_names(LAZY[package]) == typed_names(LAZY[package]), "run `python tools/doors.py`"


@pytest.mark.parametrize("package", LAZY)
def test_no_name_is_that_of_a_module_which_would_take_its_place_once_loaded(package: str) -> None:
    names = [name for name, module in typed_names(LAZY[package]).items() if module != package]

    assert [name for name in names if f"{package}.{name}" in MODULES] == []


@pytest.mark.parametrize("package", LAZY)
def test_a_name_that_is_not_listed_is_an_ordinary_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = import_module(package).no_such_name


def test_nothing_reaches_past_a_door() -> None:
    listed = [f"{door}.{name}" for door, path in LAZY.items() for name, module in typed_names(path).items()]
    offered = {*LAZY, *listed}

    reaching = [
        f"{importer} imports {module}"
        for importer, path in MODULES.items()
        for module in set(_imported(path)) - offered
        for door in LAZY
        if door != "recollect"  # all of it is this package's own
        if module.startswith(f"{door}.") and not f"{importer}.".startswith(f"{door}.")
    ]

    assert reaching == []


def _imported(path: Path) -> Iterator[str]:
    """The modules that a file imports, whether it names them or takes them from their package."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            named = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from [name for name in named if name in MODULES] or [node.module or ""]
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


@pytest.mark.parametrize("form", ["zip", "bytecode"])
def test_the_package_works_from_a_zip_and_without_its_sources(form: str, tmp_path: Path) -> None:
    place = _zipped(tmp_path) if form == "zip" else _compiled(tmp_path)
    story = tmp_path / "story.py"
    story.write_text(STORY)
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "PYTHONPATH": str(place)}

    done = subprocess.run(
        [sys.executable, story, place], env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=300
    )

    assert (done.stdout, done.stderr, done.returncode) == ("True True True\n", "", 0)


def _files() -> Iterator[tuple[Path, Path]]:
    """Each file of the package, and its path below the place it is copied to."""
    folder = Path(recollect.__file__).parent
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            yield path, path.relative_to(folder.parent)


def _zipped(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "recollect.zip", "w") as packed:
        for path, name in _files():
            packed.write(path, name)
    return folder / "recollect.zip"


def _compiled(folder: Path) -> Path:
    for path, name in _files():
        copy = folder / "bytecode" / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(path.read_bytes())
    assert compileall.compile_dir(folder / "bytecode", quiet=1, legacy=True)
    for path in (folder / "bytecode").rglob("*.py"):
        path.unlink()
    return folder / "bytecode"
