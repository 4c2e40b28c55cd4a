import ast
from importlib import import_module
from pathlib import Path

import pytest

DOORS = (
    "recollect",
    "recollect.live",
    "recollect.recall",
    "recollect.redact",
    "recollect.retention",
    "recollect.store",
)


@pytest.mark.parametrize("package", DOORS)
def test_each_name_that_type_checkers_see_loads_from_its_module(package: str) -> None:
    door = import_module(package)
    tree = ast.parse(Path(door.__file__ or "").read_text())
    (checked,) = [node for node in tree.body if isinstance(node, ast.If)]
    imports = [node for node in checked.body if isinstance(node, ast.ImportFrom)]

    assert imports
    for node in imports:
        for alias in node.names:
            assert getattr(door, alias.name) is getattr(import_module(node.module or ""), alias.name)


@pytest.mark.parametrize("package", DOORS)
def test_a_name_that_is_not_listed_is_an_ordinary_error(package: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'no_such_name'"):
        _ = import_module(package).no_such_name
