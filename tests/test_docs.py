"""What the docs say is what the program does, and the rules of the layout hold."""

import ast
import io
import re
import tempfile
import tokenize
import tomllib
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import cache
from importlib import import_module
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import apsw
import click
import pytest
from cogapp import Cog  # type: ignore[import-untyped]

import recollect
from recollect import agents as adapters_package
from recollect.agents import adapters
from recollect.api import open_memory
from recollect.cli import main
from recollect.cli.entry import load
from recollect.config import load_settings
from recollect.knowledge.records import PREDICATES
from recollect.model.errors import RecollectError
from recollect.model.schema import Digest
from tests.conftest import REPOSITORY

DOCS = REPOSITORY / "docs"
PACKAGE = Path(recollect.__file__).parent
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "samples" not in path.parts)

COMMANDS = main.list_commands(click.Context(main))


def page(name: str) -> str:
    return (DOCS / name).read_text()


def _words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize("name", ["commands.md", "library.md", "privacy.md", "schema.md"])
def test_generated_parts_of_the_docs_are_up_to_date(name: str) -> None:
    said = io.StringIO()
    with redirect_stdout(said):
        status = Cog().main(["cog", "--check", "-I", str(DOCS), str(DOCS / name)])

    assert status == 0, "`make fix` prints them anew"


def _commands() -> Iterator[tuple[str, click.Parameter]]:
    for name in COMMANDS:
        for parameter in load(name).params:
            yield name, parameter


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_a_section(name: str) -> None:
    assert f"## recollect {name}\n" in page("commands.md")


def test_every_option_is_in_its_commands_section_with_its_help() -> None:
    for name, parameter in _commands():
        section = page("commands.md").partition(f"## recollect {name}\n")[2].partition("\n## ")[0]

        for spelling in parameter.opts:
            assert (spelling if spelling.startswith("-") else spelling.upper()) in section, name
        if isinstance(parameter, click.Option):
            assert _words(parameter.help or "") in _words(section), name


@pytest.mark.parametrize("predicate", PREDICATES)
def test_every_predicate_is_documented(predicate: str) -> None:
    assert f"| `{predicate}` |" in page("knowledge.md")


@pytest.mark.parametrize("name", ["memory.db", "cache.db"])
def test_every_table_and_column_is_documented(tmp_path: Path, name: str) -> None:
    open_memory(tmp_path).close()
    connection = apsw.Connection(str(tmp_path / name))
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]

    for table in tables:
        line = re.search(rf"^- \*\*{table}\*\*: (.*)$", page("schema.md"), re.MULTILINE)
        assert line is not None, table
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        assert [column for column in columns if column not in line[1].replace(",", " ").split()] == []


def test_the_example_of_the_settings_page_is_a_valid_settings_file(tmp_path: Path) -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", page("configuration.md"), re.DOTALL)
    (tmp_path / "config.toml").write_text(example)

    settings = load_settings(environment={"RECOLLECT_HOME": str(tmp_path)})

    assert settings.domains
    assert len(settings.roots[next(iter(adapters()))]) == 2


def test_every_section_of_the_settings_is_on_their_page() -> None:
    (example,) = re.findall(r"```toml\n(.*?)```", page("configuration.md"), re.DOTALL)
    with pytest.raises(RecollectError) as error:
        _load_section("nonsense")
    known = {name.strip() for name in (error.value.hint or "").partition(":")[2].split(",")}

    assert known == set(tomllib.loads(example))


def _load_section(name: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "config.toml").write_text(f"[{name}]\n")
        load_settings(environment={"RECOLLECT_HOME": folder})


def test_every_variable_that_is_read_is_on_the_settings_page() -> None:
    source = (PACKAGE / "config.py").read_text() + (PACKAGE / "model" / "home.py").read_text()
    read = set(re.findall(r'environment(?:\.get\(|\[)"(\w+)"', source))
    read |= {adapter.home_variable.partition("/")[0] for adapter in adapters().values()}  # some add a folder

    assert {name for name in read if f"`{name}`" not in page("configuration.md")} == set()


def test_the_example_of_an_adapter_reads_a_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", page("adding-an-agent.md"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(example, names)
    monkeypatch.setitem(adapters(), "pi", names["ADAPTER"])
    (tmp_path / "home" / "sessions").mkdir(parents=True)
    line = '{"session": "s1", "cwd": "/home/x/shop", "id": "m1", "at": "2026-11-15T18:00:00Z", "text": "hello"}\n'
    (tmp_path / "home" / "sessions" / "log.jsonl").write_text(line)

    with open_memory(tmp_path / "store", [f"pi={tmp_path / 'home'}"]) as memory:
        memory.sweep()
        (session,) = memory.sessions()

    assert (session.session_uid, session.repo, session.title) == ("pi:s1", "shop", "hello")


_EXAMPLES = [
    (path.name, number, code)
    for path in (REPOSITORY / "README.md", DOCS / "library.md")
    for number, code in enumerate(re.findall(r"```python\n(from recollect .*?)```", path.read_text(), re.DOTALL))
]


@pytest.fixture
def sample_store(tmp_path: Path) -> Path:
    roots = [f"{path.name}={path}" for path in (PACKAGE / "samples").iterdir() if path.is_dir()]
    with open_memory(tmp_path / "store", roots) as memory:
        memory.sweep()
    return tmp_path / "store"  # which RECOLLECT_HOME is in tests


def test_what_a_digest_is_made_of_is_on_the_page_of_the_library() -> None:
    names = {name for kind in get_type_hints(Digest).values() for name in re.findall(r"schema\.(\w+)", repr(kind))}

    page = (DOCS / "library.md").read_text()
    assert "Quote" in names
    assert [name for name in sorted(names) if f"### {name}\n" not in page] == []


def test_the_library_has_three_worked_examples_beside_the_first() -> None:
    assert sum(name == "library.md" for name, _, _ in _EXAMPLES) == 4


@pytest.mark.parametrize(("name", "number", "code"), _EXAMPLES, ids=lambda value: str(value)[:12])
def test_every_example_of_the_library_prints_something(sample_store: Path, name: str, number: int, code: str) -> None:
    printed = io.StringIO()

    with redirect_stdout(printed):
        exec(code, {})

    assert printed.getvalue().strip(), f"{name} {number}"


def _errors(error: type[RecollectError] = RecollectError) -> Iterator[type[RecollectError]]:
    yield error
    for below in error.__subclasses__():
        yield from _errors(below)


@pytest.mark.parametrize("error", [error for error in _errors() if error.__module__ == "recollect.model.errors"])
def test_every_error_is_in_the_table_of_exit_codes(error: type[RecollectError]) -> None:
    if error is RecollectError:
        return  # the base is never raised itself

    assert re.search(rf"^\| {error.exit_code} \| [^|]+ \| `{error.code}` \|$", page("commands.md"), re.MULTILINE)


def test_exit_codes_that_are_no_errors_are_in_the_table_too() -> None:
    for code in (0, 2, 3):
        assert re.search(rf"^\| {code} \|", page("commands.md"), re.MULTILINE)


@pytest.mark.parametrize("agent", list(adapters()))
def test_every_adapter_has_a_page_about_its_format(agent: str) -> None:
    assert (DOCS / "formats" / f"{agent}.md").is_file()


def _modules_of(agent: str) -> list[Path]:
    return sorted((Path(adapters_package.__file__ or "").parent / agent).glob("*.py"))


def _skip_names(agent: str) -> Iterator[str]:
    """Every name an adapter can skip by: its lists, and what it writes out where it skips."""
    for path in _modules_of(agent):
        module: ModuleType = __import__(f"recollect.agents.{agent}.{path.stem}", fromlist=["x"])
        for name, value in vars(module).items():
            if name.startswith("SKIPPED") and not isinstance(value, str):
                prefix = "attachment/" if "ATTACHMENT" in name else ""
                yield from (f"{prefix}{item}" for item in value if isinstance(item, str))
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and _is_skip(node.func) and node.args:
                told = node.args[0]
                if isinstance(told, ast.Constant) and isinstance(told.value, str):
                    yield told.value


def _is_skip(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in ("skip", "_skip", "Skipped")


def _is_named(name: str, text: str) -> bool:
    """Whether a page has the name in code marks, whole, by its last part, or by a pattern with `*` or `…`."""
    for word in re.findall(r"`([^`\n]+)`", text):
        pattern = re.escape(word).replace(r"\*", ".*").replace("…", ".*")
        if re.fullmatch(pattern, name) or re.fullmatch(pattern, name.rpartition("/")[2]):
            return True
    return False


@pytest.mark.parametrize("agent", list(adapters()))
def test_every_name_an_adapter_skips_by_is_on_its_page(agent: str) -> None:
    text = page(f"formats/{agent}.md")

    assert {name for name in _skip_names(agent) if not _is_named(name, text)} == set()


def _links() -> Iterator[tuple[str, str]]:
    pages = [*DOCS.rglob("*.md"), *REPOSITORY.glob("*.md")]
    for path in pages:
        for target in re.findall(r"\]\(([^)#]+)\)", path.read_text()):
            if "://" not in target:
                yield str(path.relative_to(REPOSITORY)), str((path.parent / target).resolve())


def test_every_link_between_pages_leads_somewhere() -> None:
    assert [(where, target) for where, target in _links() if not Path(target).exists()] == []


def test_every_command_of_the_readme_exists() -> None:
    text = (REPOSITORY / "README.md").read_text()
    named = set(
        re.findall(r"recollect ([a-z]+)", "\n".join(re.findall(r"`[^`]*`|^\$.*$|^```.*?^```", text, re.M | re.S)))
    )

    assert named
    assert named - set(COMMANDS) - {"import"} == set()


def test_every_make_target_of_the_readme_exists() -> None:
    targets = re.findall(r"^(\w+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE)

    assert set(re.findall(r"(?:^|`)make (\w+)", (REPOSITORY / "README.md").read_text(), re.MULTILINE)) <= set(targets)


@cache
def _code(path: Path) -> str:
    """A module without comments and docstrings, but with every other text."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node):
            node.body[0] = ast.Pass()
    return ast.unparse(tree)


def _with(pattern: str, paths: list[Path]) -> list[Path]:
    return [path for path in paths if re.search(pattern, _code(path))]


def _outside(*places: str) -> list[Path]:
    """Modules of the package that lie in none of the places."""
    return [path for path in MODULES if not str(path.relative_to(PACKAGE)).startswith(places)]


def test_no_agent_is_named_outside_the_adapters() -> None:
    for path in _outside("agents/"):
        with path.open("rb") as file:
            words = {token.string.lower() for token in tokenize.tokenize(file.readline)}

        assert [agent for agent in adapters() if any(agent in word for word in words)] == [], path


def test_nothing_is_printed_outside_the_command_line() -> None:
    assert _with(r"\bprint\(|sys\.std(out|err)\.write|click\.echo", _outside("cli/")) == []


def test_the_environment_is_read_in_the_settings_only() -> None:
    assert _with(r"os\.(environ|getenv)|import getenv|expandvars", _outside("config.py", "model/home.py")) == []


def test_sql_is_written_in_the_store_only() -> None:
    sql = r"\b(SELECT .* FROM|INSERT (OR \w+ )?INTO|DELETE FROM|UPDATE \w+ SET|CREATE TABLE|PRAGMA)\b"

    assert _with(sql, _outside("store/", "agents/")) == []  # an agent's own database is only read


def test_the_sweep_stays_one_page() -> None:
    assert len((PACKAGE / "sweep.py").read_text().splitlines()) <= 150


LOCK = (REPOSITORY / "requirements.lock").read_text()


def test_the_lock_has_every_requirement_with_hashes_and_no_address() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    development = [name for name in extras["dev"] if name != "recollect[web]"] + extras["web"]
    required = [*project["dependencies"], *development, "hatchling", "editables"]
    names = {re.split(r"[>=; ]", text)[0].replace("_", "-").lower() for text in required}
    entries = re.findall(r"^([a-z0-9-]+)==\S+.*?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)$", LOCK, re.MULTILINE)

    assert names <= {name for name, _ in entries}
    assert len(entries) == len(re.findall(r"^[^#\s]", LOCK, re.MULTILINE))
    assert "//" not in LOCK


def test_every_locked_package_has_its_licence_in_the_docs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(REPOSITORY / "tools"))
    licences: Any = import_module("licences")
    listed = dict(re.findall(r"^\| ([a-z0-9-]+) \| (.+) \|$", page("licences.md"), re.MULTILINE))
    installed = {name: licences.licence(found) for name in licences.locked() if (found := _find_package(name))}

    assert listed.keys() - {"package"} == set(licences.locked())
    assert {name: listed[name] for name in installed} == installed


def _find_package(name: str) -> Distribution | None:
    try:
        return distribution(name)
    except PackageNotFoundError:
        return None  # of another platform
