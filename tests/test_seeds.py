"""docs/seeds.md names what does each thing that was asked for, and a test of it; all of them exist."""

import ast
import re
from functools import cache

import click
import pytest

from recollect.cli import main
from recollect.cli.entry import load
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "seeds.md").read_text()
_ROWS = re.findall(r"^\| (?!asked for|---)(.+) \| (.+) \| (.+) \|$", PAGE, re.MULTILINE)
PLANNED = "A team's PostgreSQL"


@cache
def _tests(path: str) -> set[str]:
    """The tests of a file, those in classes included."""
    tree = ast.parse((REPOSITORY / path).read_text())
    functions = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return {function.name for function in functions if function.name.startswith("test_")}


def test_every_row_names_a_test_that_exists() -> None:
    named = [re.fullmatch(r"`(tests/[\w/]+\.py)::(test_\w+)`", test) for asked, _, test in _ROWS if asked != PLANNED]

    assert len(named) > 200
    assert [_ROWS[number] for number, match in enumerate(named) if match is None] == []
    missing = [match[0] for match in named if match and not (REPOSITORY / match[1]).exists()]
    missing += [match[0] for match in named if match and not missing and match[2] not in _tests(match[1])]
    assert missing == []


def test_only_the_store_of_a_team_is_still_planned() -> None:
    assert [asked for asked, call, test in _ROWS if "planned" in (call, test)] == [PLANNED]


def test_all_five_documents_have_a_table() -> None:
    assert re.findall(r"^## (\d{3}) ", PAGE, re.MULTILINE) == ["000", "001", "002", "003", "004"]


_COMMANDS = sorted({words for _, call, _ in _ROWS for words in re.findall(r"`recollect ([^`]+)`", call)})


@pytest.mark.parametrize("words", _COMMANDS)
def test_every_command_of_the_page_exists_with_its_options(words: str) -> None:
    name, *rest = words.split()
    command = load(name)
    while isinstance(command, click.Group) and rest and rest[0] in command.commands:
        command = command.commands[rest.pop(0)]

    known = {spelling for parameter in command.params for spelling in (*parameter.opts, *parameter.secondary_opts)}
    assert name in main.list_commands(click.Context(main))
    assert {word for word in rest if word.startswith("-")} - known == set()
