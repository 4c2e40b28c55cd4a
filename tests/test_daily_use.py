"""Every command of docs/daily-use.md does what the page shows, on small sessions and on large ones."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from recollect.api import open_memory
from tests.conftest import REPOSITORY, SHARED, needs_shared
from tests.logs import CLAUDE, claude_answer, claude_user, lines

PAGE = REPOSITORY / "docs" / "daily-use.md"
SAMPLES = REPOSITORY / "src" / "recollect" / "samples"
_BLOCKS = re.findall(r"^## (.+?)\n.*?^```console\n\$ (.+?)\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
_TASKS = [pytest.param(command, shown, id=title) for title, command, shown in _BLOCKS]
_SHOP = "5a0b1c2d-0000-4000-8000-000000000001"
_SAID = (
    (claude_user, "Fix the CORS error of the orders page"),
    (claude_answer, "Fixed the CORS error: src/gateway/cors.ts sends the header now."),
    (claude_user, "See PR #412 and https://api.example.com/v1/orders. What about the database?"),
    (claude_answer, "I decided to keep SQLite instead of Postgres: one file, no server to run."),
    (claude_user, "请修复登录页面的超时错误"),
    (claude_answer, "登录页面的超时错误已修复。"),
    (claude_user, "ログイン画面のタイムアウトを直してください"),
    (claude_answer, "タイムアウトを直しました。"),
    (claude_user, "로그인 시간 초과 오류를 고쳐 주세요"),
    (claude_answer, "오류를 고쳤습니다."),
    (claude_user, "Hãy sửa lỗi đăng nhập quá thời gian chờ"),
    (claude_answer, "Đã sửa lỗi đăng nhập."),
    (claude_user, r"Read C:\Users\dev\shop\app.config, and never commit with --no-verify"),
    (claude_answer, "Read it. Hooks stay on. Shall I remove ORDER_1234 from the fixtures?"),
)


# What differs from day to day, or with another list of prices.
_OF_TODAY = re.compile(r" so far: | by this day, | at the pace of ")
# Numbers of events are in the order of arrival, which follows the times of the files. The samples have homes of their
# own, which a command names.
_UNSTEADY = re.compile(
    r"\b[A-Z]+_HOME=\S+ |#\d+ |\$[\d.]+|(?<=as of )\d{4}-\d\d-\d\d \d\d:\d\d|[\d.]+ [KM]?B\b|(?<=\s)\s+"
)


def _steady(line: str) -> str:
    return _UNSTEADY.sub("", line.rstrip())


def _write_shop(home: Path) -> None:
    """A session in another repository, with what the page searches for."""
    said = [speaker(_SHOP, number, text) for number, (speaker, text) in enumerate(_SAID, start=1)]
    CLAUDE.write(home, lines(record | {"cwd": "/home/devbox/proj/shop-api"} for record in said), _SHOP)


def _swept(folder: Path, *more: str) -> Path:
    _write_shop(folder / "home")
    samples = [f"{path.name}={path}" for path in SAMPLES.iterdir() if path.is_dir()]
    data = [f"{path.parent.name}={path}" for path in (REPOSITORY / "tests" / "data").glob("[cg]*/*") if path.is_dir()]
    with open_memory(folder / "store", [CLAUDE.root_flag(folder / "home"), *samples, *data, *more]) as memory:
        assert memory.sweep().failures == []
    return folder / "store"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return _swept(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    corpus = [path for path in (SHARED / "corpus").glob("c*/*") if path.is_dir()]
    return _swept(tmp_path_factory.mktemp("large"), *(f"{path.parent.name}={path}" for path in corpus))


def _run(command: str, store: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Runs a command line of the page in a shell, on a copy of the store: some delete."""
    copied = shutil.copytree(store, folder / "copy")
    variables = {"RECOLLECT_HOME": str(copied), "TZ": "UTC", "HOME": str(folder), "PAGER": ""}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    environment |= variables | {"PATH": path}
    return subprocess.run(["sh", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_page_has_all_tasks_of_a_week() -> None:
    assert len({title for title, _, _ in _BLOCKS}) >= 22


@pytest.mark.parametrize(("command", "shown"), _TASKS)
def test_a_command_prints_what_the_page_shows(command: str, shown: str, small: Path, tmp_path: Path) -> None:
    done = _run(command, small, tmp_path)

    printed = list(map(_steady, done.stdout.replace(str(tmp_path), "/home/you").splitlines()))
    expected = [_steady(line) for line in shown.splitlines() if line not in ("", "…") and not _OF_TODAY.search(line)]
    assert done.returncode == 0, done.stderr
    assert expected, "the page shows nothing"
    assert [line for line in expected if line not in printed] == [], done.stdout


def test_this_month_is_compared_with_the_last(small: Path, tmp_path: Path) -> None:
    done = _run("recollect stats --by month", small, tmp_path)

    assert re.search(r"^\w+ so far: ~?\$.*\n\w+: ~?\$.* by this day, ~?\$.* in total$", done.stdout, re.MULTILINE)


@needs_shared
@pytest.mark.parametrize(("command", "shown"), _TASKS)
def test_a_command_finds_its_answer_among_many_sessions(command: str, shown: str, large: Path, tmp_path: Path) -> None:
    done = _run(command, large, tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
    assert not re.search(r"^(No matches|No sessions match|Nothing left open)", done.stdout, re.MULTILINE)
