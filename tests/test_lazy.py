import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src"
MODULES = {
    ".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(SOURCE.rglob("*.py"))
}
DOORS = [name for name, path in MODULES.items() if "= lazy_names(__name__" in path.read_text()]


def _listed(package: str) -> Iterator[tuple[str, str]]:
    """Each name that a door offers to type checkers, and the module it is imported from."""
    (checked,) = [node for node in ast.parse(MODULES[package].read_text()).body if isinstance(node, ast.If)]
    for node in checked.body:
        if isinstance(node, ast.ImportFrom):
            yield from ((alias.name, node.module or "") for alias in node.names)


@pytest.mark.parametrize("package", DOORS)
def test_each_name_that_type_checkers_see_loads_from_its_module(package: str) -> None:
    if package == "recollect.knowledge.graphiti":
        pytest.importorskip("graphiti_core")
    names = list(_listed(package))

    assert names
    for name, module in names:
        assert getattr(import_module(package), name) is getattr(import_module(module), name)


@pytest.mark.parametrize("package", DOORS)
def test_no_name_is_that_of_a_module_which_would_take_its_place_once_loaded(package: str) -> None:
    names = [name for name, module in _listed(package) if module != package]

    assert [name for name in names if f"{package}.{name}" in MODULES] == []


@pytest.mark.parametrize("package", DOORS)
def test_a_name_that_is_not_listed_is_an_ordinary_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = import_module(package).no_such_name


def test_nothing_reaches_past_a_door() -> None:
    offered = {*DOORS, *(f"{door}.{name}" for door in DOORS for name, module in _listed(door) if module == door)}

    reaching = [
        f"{importer} imports {module}"
        for importer, path in MODULES.items()
        for module in set(_imported(path)) - offered
        for door in DOORS[1:]  # all of `recollect` is this package's own
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
