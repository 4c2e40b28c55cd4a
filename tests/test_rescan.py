"""What was stored before a rule existed is redacted later, and no byte of it is left in any file."""

import random
from pathlib import Path

import apsw
import orjson
import pytest
from click.testing import CliRunner

from recollect.agentkit.protocol import BadLine, SessionInfo
from recollect.agents import adapters
from recollect.api import Memory, doctor, open_memory
from recollect.cli import main
from recollect.ingest.builder import Protection
from recollect.lifecycle.rescan import RescanReport
from recollect.model.errors import StoreDamaged
from recollect.model.kinds import SessionKey
from recollect.model.schema import TOOL_RESULT
from recollect.redact import Learned, Redactor
from recollect.sessions import parts
from tests.builders import AGENT, Home, ScriptedAdapter, event, usage
from tests.builders import sweep as sweep_now
from tests.forget.traces import left_in, unpacked
from tests.planted import KINDS, plant

DRAW = random.Random(2026)
SECRETS = {kind: plant(DRAW, kind) for kind in KINDS}
OTHERS = [plant(DRAW, kind).secret for kind in ("github", "gitlab", "npm", "xai", "groq", "pypi", "linear", "shopify")]
TITLE, BRANCH, REMOTE, BAD, META, STEP, FILE, PROVIDER = OTHERS


@pytest.fixture(autouse=True)
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


class _NoRules:
    """As before there were any rules."""

    version = ""

    def text(self, text: str) -> str:
        return text

    functional = text

    def beginning(self, text: str) -> None:
        return None

    def payloads(self, payloads: list[bytes]) -> dict[int, bytes]:
        return {}

    def learned(self, root: SessionKey) -> Learned:
        return Learned()

    def changes(self, payloads: list[bytes], learned: object = None) -> list[object]:
        return []

    def suspects(self, texts: list[str]) -> list[int]:
        return []


def sweep(folder: Path, home: Home) -> Memory:
    """A store made before there were any rules."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Protection, "redactor", lambda self: _NoRules())
        return sweep_now(folder, home)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    home = Home(tmp_path / "home")
    noise = DRAW.randbytes(400_000).hex()  # more than a frame that lies in the database may have
    events = [event("s1", n, text=planted.line) for n, planted in enumerate(SECRETS.values(), 1)]
    home.write(
        "s1",
        SessionInfo("s1", cwd="/home/x/shop", git_branch=f"try-{BRANCH}", title=f"use {TITLE}"),
        SessionInfo("s1", git_remote=f"https://u:{REMOTE}@git.test/o/shop.git"),
        *events,
        event("s1", 900, TOOL_RESULT, noise, tool="Bash", call_id="c1", metadata={"note": f"with {META}"}),
        usage("s1", "u1", provider=PROVIDER),
        BadLine(9, 9000, "not JSON", f'{{"cut": "{BAD}'.encode()),
    )
    told = SessionInfo("s2", cwd="/home/x/shop", title="harmless"), event("s2", 1, text="nothing to see")
    home.write(f"s2-{FILE}", *told)
    growing = [event("s3", 1, text=f"grows {STEP}", is_provisional=True), None, event("s3", 1, text="grown")]
    home.write("s3", SessionInfo("s3", cwd="/home/x/shop"), *growing)
    return home


def _secrets() -> list[str]:
    lines = [line for planted in SECRETS.values() for line in planted.secret.replace("\\n", "\n").split("\n")]
    return [line for line in lines if len(line) >= 8 and not line.startswith("-----")] + OTHERS


def _found(memory: Memory) -> dict[str, list[str]]:
    """The files of a store in which a secret stands, packs and frames unpacked."""
    folder = memory.settings.folder
    texts = {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.suffix != ".db"}
    for session in memory.sessions():
        payloads = memory.payloads(session, memory.events(session, with_copies=True))
        texts[session.session_uid] = b"\n".join(map(orjson.dumps, payloads))
    for path in folder.glob("packs/*/*.pack"):
        texts[f"{path} unpacked"] = b"\n".join(unpacked(path.read_bytes()))
    return {
        name: [secret for secret in _secrets() if secret.encode() in text or secret[4:].encode() in text]
        for name, text in texts.items()
        if any(secret.encode() in text for secret in _secrets())
    }


def _bytes_of_databases(folder: Path) -> dict[str, list[str]]:
    """Once they are closed: opening them meanwhile would take their locks away."""
    texts = {path.name: path.read_bytes() for path in folder.glob("*.db*")}
    return {name: found for name, text in texts.items() if (found := [s for s in _secrets() if s.encode() in text])}


class Stopped(BaseException):
    """The process ends here."""


def _rescan(memory: Memory) -> RescanReport:
    return memory.rescan()


def test_nothing_of_a_secret_is_left_in_any_file(tmp_path: Path, home: Home) -> None:
    folder = tmp_path / "store"
    with sweep(folder, home) as memory:
        assert _found(memory)
        assert len(list(folder.glob("packs/??/*.pack"))) == 1

        report = _rescan(memory)

        assert _found(memory) == {}
        assert {path.name.split(".")[1] for path in folder.glob("packs/??/*.pack")} == {"2"}
    assert _bytes_of_databases(folder) == {}
    assert (report.sessions, report.sessions_changed) == (3, 2)
    assert sum(report.replaced.values()) >= len(SECRETS)


def test_sessions_can_be_read_and_found_afterwards(tmp_path: Path, home: Home) -> None:
    with sweep(tmp_path / "store", home) as memory:
        before = memory.session("s1")
        _rescan(memory)

        session = memory.session("s1")
        texts = [item.payload["text"] for item in memory.transcript(session)]

        assert len(texts) == len(SECRETS) + 1
        assert all("[REDACTED:" in text for text in texts[:-1])
        assert session.title and "[REDACTED:" in session.title
        assert session.git_branch and session.git_branch.startswith("try-[REDACTED:gitlab-token:")
        assert session.content_hash != before.content_hash
    assert [found for found in doctor(tmp_path / "store", [home.flag], deep=True) if found.level == "problem"] == []


def test_the_same_rules_are_not_applied_twice(tmp_path: Path, home: Home) -> None:
    with sweep(tmp_path / "store", home) as memory:
        _rescan(memory)

        assert _rescan(memory) == RescanReport()


def test_newer_rules_of_the_user_are_applied(tmp_path: Path, home: Home) -> None:
    with sweep(tmp_path / "store", home) as memory:
        _rescan(memory)
    (tmp_path / "store" / "config.toml").write_text("[redact.rules]\nsee = 'nothing to (see)'\n")

    with open_memory(tmp_path / "store", [home.flag]) as memory:
        report = _rescan(memory)

        assert set(report.replaced) == {"see"}
        assert report.events_changed == 1


def test_a_secret_that_a_newer_rule_finds_too_keeps_its_mark_and_its_file_counts_as_unchanged(
    tmp_path: Path, home: Home
) -> None:
    home.write("s4", SessionInfo("s4", cwd="/home/x/shop"), event("s4", 1, text="password = 'badge-8f3kQz91xW7pLm'"))
    with sweep_now(tmp_path / "store", home):
        pass
    (tmp_path / "store" / "config.toml").write_text("[redact.rules]\nbadge = 'badge-[A-Za-z0-9]+'\n")
    with open_memory(tmp_path / "store", [home.flag]) as memory:
        _rescan(memory)

    deep = doctor(tmp_path / "store", [home.flag], deep=True)

    assert [finding.message for finding in deep if "changed since" in finding.message] == []


def test_a_dry_run_changes_nothing(tmp_path: Path, home: Home) -> None:
    with sweep(tmp_path / "store", home) as memory:
        before = _found(memory)

        report = memory.rescan(dry_run=True)

        assert report.sessions_changed == 2
        assert _found(memory) == before
        assert _rescan(memory).replaced == report.replaced


def test_a_sweep_afterwards_reads_nothing_again_and_keeps_the_marks(tmp_path: Path, home: Home) -> None:
    with sweep(tmp_path / "store", home) as memory:
        _rescan(memory)

        report = memory.sweep()

        assert report.events_new == report.events_replaced == report.sources_changed == report.sources_gone == 0
        assert "[REDACTED:" in (memory.session("s1").title or "")
        assert _found(memory) == {}


def _redactor(memory: Memory) -> Redactor:
    return Protection(memory.settings.folder, memory.settings.redaction).redactor()


def test_one_that_was_stopped_before_the_sessions_is_still_due(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    with sweep(tmp_path / "store", home) as memory:
        with monkeypatch.context() as patched, pytest.raises(Stopped):
            patched.setattr("recollect.lifecycle.rescan.changed_payloads", _stop)
            memory.rescan()

        assert memory.rescan().sessions == 3
        assert _found(memory) == {}


def test_a_missing_pack_is_named_and_nothing_is_lost(tmp_path: Path, home: Home) -> None:
    with sweep(tmp_path / "store", home) as memory:
        (pack,) = (tmp_path / "store").glob("packs/??/*.pack")
        content = pack.read_bytes()
        pack.unlink()

        with pytest.raises(StoreDamaged, match="missing"):
            memory.rescan()
        pack.write_bytes(content)

        assert memory.rescan().sessions_changed >= 1  # the other was done before
        assert _found(memory) == {}


def test_the_command_rescans(tmp_path: Path, home: Home) -> None:
    with sweep(tmp_path / "store", home):
        pass
    runner = CliRunner()

    dry = runner.invoke(main, ["redact", "--rescan", "--dry-run"])
    done = runner.invoke(main, ["redact", "--rescan", "--json"])
    again = runner.invoke(main, ["redact", "--rescan"])

    assert "Would change" in dry.output
    assert orjson.loads(done.stdout)["sessions_changed"] == 2
    assert "No secrets found" in again.output


@pytest.mark.parametrize("has_store", [True, False])
def test_the_command_shows_what_would_be_replaced(tmp_path: Path, home: Home, has_store: bool) -> None:
    if has_store:
        sweep(tmp_path / "store", home).close()
    token = SECRETS["github"].secret

    shown = CliRunner().invoke(main, ["redact", "--check", f"use {token}"])
    read = CliRunner().invoke(main, ["redact", "--check", "-", "--json"], input=f"use {token}")

    assert shown.stdout.startswith("use [REDACTED:github-token:")
    assert orjson.loads(read.stdout)["replaced"] == {"github-token": 1}
    assert token not in shown.output + read.output


@pytest.mark.parametrize("arguments", [[], ["--rescan", "--check", "x"], ["--dry-run"], ["--check", "x", "--dry-run"]])
def test_a_call_that_says_nothing_or_too_much_is_refused(arguments: list[str]) -> None:
    result = CliRunner().invoke(main, ["redact", *arguments, "--json"])

    assert result.exit_code == 2
    assert orjson.loads(result.stdout)["error"]["code"] == "usage"


def test_no_word_of_a_path_is_left_when_it_was_stopped_before_the_scrub(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    word = "zqxjkvbpwyfgm"
    home.write(f"{word}-log", SessionInfo("s4"), event("s4", 1, text="hello"))
    store = tmp_path / "store"
    sweep_now(store, home).close()
    (store / "config.toml").write_text(f"[redact.rules]\nown = '{word}'")
    with monkeypatch.context() as patched, open_memory(store, [home.flag]) as memory:
        patched.setattr("recollect.lifecycle.rescan.drop_prepared", _stop)
        with pytest.raises(Stopped):
            memory.rescan()
    assert left_in(store, [word]) == {word}

    with open_memory(store, [home.flag]) as memory:
        memory.sweep()

    (store / "config.toml").unlink()
    assert left_in(store, [word]) == set()


def _stop(*_: object, **__: object) -> None:
    raise Stopped


@pytest.mark.parametrize(
    "step", ["lifecycle.rescan.account_for", "store.tables.fulltext.Fulltext.index_pending", "analysis.distil_pending"]
)
def test_no_word_is_left_when_it_was_stopped_after_the_texts_were_replaced(
    tmp_path: Path, home: Home, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    word = "zqxjkvbpwyfgm"
    home.write("s4", SessionInfo("s4"), *(event("s4", number, text=f"use {word} {number}") for number in range(1, 6)))
    store = tmp_path / "store"
    sweep_now(store, home).close()
    (store / "config.toml").write_text(f"[redact.rules]\nown = '{word}'")
    with monkeypatch.context() as patched, open_memory(store, [home.flag]) as memory:
        patched.setattr(f"recollect.{step}", _stop)
        with pytest.raises(Stopped):
            memory.rescan()

    with open_memory(store, [home.flag]) as memory:
        memory.sweep()
        memory.rescan()

    (store / "config.toml").unlink()
    assert left_in(store, [word]) == set()


def test_a_long_session_is_read_as_a_whole_after_it_was_redacted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PART_EVENTS", 5)
    home = Home(tmp_path / "home")
    home.write("s", *(event("s", number, text=f"{number} {TITLE if number == 3 else ''}") for number in range(1, 40)))
    with sweep(tmp_path / "store", home) as memory:
        cache = apsw.Connection(str(tmp_path / "store" / "cache.db"))
        assert cache.execute("SELECT 1 FROM kept").fetchall()

        assert memory.rescan().sessions_changed == 1

        assert cache.execute("SELECT 1 FROM kept").fetchall() == []
        cache.close()
