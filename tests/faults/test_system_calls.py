"""What the kernel is asked for: agents' homes are only read, by the allow-list, and nothing leaves the machine."""

import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import apsw
import pytest

import recollect
from tests.faults.rig import command, needs_strace, run, sweep
from tests.faults.work import Writers
from tests.logs import session_id

pytestmark = needs_strace

SAMPLES = Path(recollect.__file__).parent / "samples"
SESSION = session_id(1)

# Commands that must only read. One that takes `--root` is told the homes by it.
COMMANDS = (
    *(["sweep"], ["sessions"], ["status"], ["status", "--problems"], ["stats"]),
    ["search", "message padded"],
    *(["show", SESSION], ["digest", SESSION], ["show", "--exchanges", SESSION], ["sessions", "--related", SESSION]),
    ["forget", SESSION, "--dry-run"],
    ["retention", "--dry-run"],
    *(["decisions"], ["knowledge", "workflows"], ["knowledge", "rehearse"]),
    ["live", "status"],
)
MANY = [1500, 1500, 10, 1500, 10, 10]  # enough that it is worth starting reader processes
FEW = [5] * 6

# Below each home: what may be opened, written down by hand, and what must not be.
ALLOWED = {
    "claude": r"projects/.+\.jsonl|projects/.+/tool-results/.+|history\.jsonl|(todos|tasks)/.+\.json",
    "codex": r"(archived_)?sessions/.*rollout-[^/]+\.jsonl?|session_index\.jsonl|history\.jsonl",
    "opencode": r"opencode\.db(-wal)?|tool-output/.+",
    "grok": r"sessions/.*/(updates|chat_history|events|prompt_history)\.jsonl|sessions/.*/(summary|meta)\.json",
}
SECRETS = {
    "claude": [
        ".credentials.json",
        "settings.json",
        "projects/.env",
        "projects/x/id_rsa",
        "ide/1.lock",
        "tasks/a.lock",
    ],
    "codex": ["auth.json", "config.toml", ".env", "sessions/2026/auth.json", "log/codex.log", "state_5.sqlite"],
    "opencode": ["auth.json", "mcp-auth.json", "log/opencode.log", "storage/session/x.json", "snapshot/x/.env"],
    "grok": ["auth.json", "user-settings.json", "sessions/x/credentials.json", "sessions/x/y/.env"],
}

_LOOKING = {
    *("access", "faccessat", "faccessat2", "stat", "lstat", "fstat", "newfstatat", "statx", "statfs", "fstatfs"),
    *("readlink", "readlinkat", "getcwd", "execve", "getxattr", "lgetxattr", "close"),
}
_OPENING = ("open", "openat", "openat2")
_CHANGING_FLAGS = re.compile(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND|TMPFILE)")
_TRACED = "%file,%network,write,pwrite64,writev,ftruncate,fallocate,fchmod,fchown,futimesat,flock,fsync,fsetxattr"
_CALL = re.compile(r"(\w+)\((.*)$")
_RESULT = re.compile(r"= \d+<([^>]*)>$")


def _calls(words: list[str], store: Path, *, from_start: bool = True) -> list[tuple[str, str]]:
    """(name, the rest) of every call that a command makes, its readers included; else once it has imported all."""
    log = store.with_name("calls")
    tracing = ["strace", "-f", "-qq", "-y", "-s", "4096", "-e", f"trace={_TRACED}", "-o", str(log)]
    done = run([*tracing, *words], store, timeout=300) if from_start else run(words, store, tracer=tracing)
    assert done.returncode == 0, done.stderr
    found = [_CALL.match(text) for text in _whole_lines(log.read_text(errors="replace"))]
    calls = [(match[1], match[2]) for match in found if match]
    assert calls
    return calls


def _whole_lines(log: str) -> Iterator[str]:
    """Each call on one line, though another process was heard before it ended."""
    begun: dict[str, str] = {}
    for text in log.splitlines():
        process, _, call = text.partition(" ")
        call = call.strip()
        if call.endswith("<unfinished ...>"):
            begun[process] = call.removesuffix("<unfinished ...>")
        elif call.startswith("<... "):
            yield begun.pop(process, "") + call.partition("resumed>")[2]
        else:
            yield call


def _violations(calls: list[tuple[str, str]], home: Path) -> Iterator[str]:
    """What a command did that it must not do, to the folder of all homes and to the network."""
    below = re.compile(rf'["<]{re.escape(str(home))}[/>"]')
    for name, rest in calls:
        if name == "connect" or (name == "socket" and not rest.startswith("AF_UNIX")):
            yield f"network: {name}({rest}"
        elif below.search(rest) and name in _OPENING:
            opened = _RESULT.search(rest)
            if _CHANGING_FLAGS.search(rest):
                yield f"opened to write: {rest}"
            elif opened and Path(opened[1]).is_file() and not _is_allowed(Path(opened[1]).relative_to(home)):
                yield f"opened: {opened[1]}"
        elif below.search(rest.partition(",")[0] if "write" in name else rest) and name not in _LOOKING:
            yield f"changed: {name}({rest}"


def _is_allowed(path: Path) -> bool:
    agent, *rest = path.parts
    return re.fullmatch(ALLOWED[agent], "/".join(rest)) is not None


def _homes(folder: Path, counts: list[int]) -> Writers:
    """Homes of every agent with sessions, and with files that nobody may open."""
    writers = Writers(folder / "home", seed=21, padding=4000)
    writers.write(counts)
    writers.finish()
    for agent, names in SECRETS.items():
        for name in names:
            path = writers.home / agent / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text('{"token": "secret"}\n')
    shutil.copytree(SAMPLES / "opencode", writers.home / "opencode", dirs_exist_ok=True)
    with closing(apsw.Connection(str(writers.home / "opencode" / "opencode.db"))) as database:
        database.pragma("journal_mode", "wal")
        database.execute("UPDATE session SET title = 'in the log'")
        log = (writers.home / "opencode" / "opencode.db-wal").read_bytes()
    (writers.home / "opencode" / "opencode.db-wal").write_bytes(log)  # as a program leaves it that was killed
    return writers


def _words(words: list[str], writers: Writers) -> list[str]:
    roots = [*writers.root_flags, "--root", f"opencode={writers.home / 'opencode'}"]
    return command(*words, *(roots if words[0] == "sweep" else []))


@pytest.mark.parametrize("counts", [FEW, MANY], ids=["alone", "with readers"])
def test_a_first_sweep_only_reads_what_is_on_the_list_and_calls_nobody(tmp_path: Path, counts: list[int]) -> None:
    writers = _homes(tmp_path, counts)

    calls = _calls(_words(["sweep"], writers), tmp_path / "store")

    read = {opened[1] for name, rest in calls if name in _OPENING and (opened := _RESULT.search(rest))}
    logs = {*writers.home.rglob("*.jsonl"), *writers.home.rglob("*.db*")}
    assert set(map(str, logs)) <= read  # it is really looked at
    assert list(_violations(calls, writers.home)) == []


@pytest.mark.parametrize("words", COMMANDS, ids=lambda words: words[0])
def test_no_command_changes_a_home_opens_a_secret_or_calls_anybody(tmp_path: Path, words: list[str]) -> None:
    writers = _homes(tmp_path, FEW)
    sweep(tmp_path / "store", *writers.roots, f"opencode={writers.home / 'opencode'}")
    writers.write(FEW)

    calls = _calls(_words(words, writers), tmp_path / "store", from_start=False)

    assert list(_violations(calls, writers.home)) == []


def test_no_module_does_any_of_that_when_it_is_imported(tmp_path: Path) -> None:
    writers = _homes(tmp_path, FEW)
    program = (
        "import contextlib, importlib, pkgutil, recollect\n"
        "for module in pkgutil.walk_packages(recollect.__path__, 'recollect.', onerror=lambda name: None):\n"
        "    with contextlib.suppress(ImportError):\n"  # an extra that is not installed
        "        module.name.endswith('__main__') or importlib.import_module(module.name)\n"
    )

    calls = _calls([sys.executable, "-P", "-c", program], tmp_path / "store")

    assert list(_violations(calls, writers.home)) == []


@pytest.mark.parametrize(
    ("crime", "told"),
    [
        ("open(home + '/codex/auth.json').read()", "opened: "),
        ("open(home + '/codex/history.jsonl', 'a')", "opened to write: "),
        ("os.open(home + '/codex/auth.json', os.O_RDWR)", "opened to write: "),
        ("os.utime(home + '/grok/auth.json')", "changed: "),
        ("os.rename(home + '/grok/auth.json', home + '/grok/x')", "changed: "),
        ("os.chdir(home + '/grok'); os.mkdir('x')", "changed: "),
        ("os.fchmod(os.open(home + '/codex/config.toml', os.O_RDONLY), 0o600)", "changed: "),
        ("socket.socket().connect_ex(('127.0.0.1', 9))", "network: "),
    ],
)
def test_the_trace_would_show_it(tmp_path: Path, crime: str, told: str) -> None:
    writers = _homes(tmp_path, FEW)
    program = [sys.executable, "-c", f"import os, socket; home = {str(writers.home)!r}; {crime}"]

    found = list(_violations(_calls(program, tmp_path / "store"), writers.home))

    assert [violation for violation in found if violation.startswith(told)]
