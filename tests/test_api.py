"""The library as a program sees it: typed records, and JSON that follows docs/schemas."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields, is_dataclass
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import recollect
from recollect import Memory, RecollectError, open_memory, to_json
from recollect.api import Filters, doctor
from recollect.cli import main
from recollect.model.errors import NotFound, UsageError
from recollect.model.schema import KIND_FAMILY, KINDS
from recollect.recall.query import FILTERS
from recollect.store import SessionFilter
from tests.conftest import REPOSITORY
from tests.logs import CLAUDE

SAMPLES = Path(recollect.__file__).parent / "samples"
SCHEMAS = {path.stem: json.loads(path.read_text()) for path in (REPOSITORY / "docs" / "schemas").glob("*.json")}

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "null": (type(None),),
}
_UNDERSTOOD = {
    "$schema", "title", "description", "type", "properties", "required", "additionalProperties", "items", "enum",
    "const", "pattern", "minimum", "maxLength", "minItems", "maxItems",
}  # fmt: skip


def _is_a(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def breaches(schema: dict[str, Any], value: Any, place: str = "$") -> list[str]:
    """Where a value breaks its schema; understands the part of JSON Schema that docs/schemas use."""
    assert set(schema) <= _UNDERSTOOD, place
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    if names and not any(_is_a(value, name) for name in names):
        return [f"{place}: {value!r} is no {names}"]
    found = [f"{place}: {value!r} breaks {rule}" for rule in _scalar_rules(schema, value)]
    if isinstance(value, list):
        found += [text for item in value for text in breaches(schema.get("items", {}), item, f"{place}[]")]
    if isinstance(value, dict):
        found += _of_object(schema, value, place)
    return found


def _scalar_rules(schema: dict[str, Any], value: Any) -> list[str]:
    holds: dict[str, Callable[[Any], bool]] = {
        "enum": lambda allowed: value in allowed,
        "const": lambda allowed: value == allowed,
        "pattern": lambda pattern: not isinstance(value, str) or re.search(pattern, value) is not None,
        "minimum": lambda least: not _is_a(value, "number") or value >= least,
        "maxLength": lambda most: not isinstance(value, str) or len(value) <= most,
        "minItems": lambda least: not isinstance(value, list) or len(value) >= least,
        "maxItems": lambda most: not isinstance(value, list) or len(value) <= most,
    }
    return [rule for rule, holds_for in holds.items() if rule in schema and not holds_for(schema[rule])]


def _of_object(schema: dict[str, Any], value: dict[str, Any], place: str) -> list[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    found = [f"{place}: {name} is missing" for name in schema.get("required", []) if name not in value]
    for name, item in value.items():
        if name in known:
            found += breaches(known[name], item, f"{place}.{name}")
        elif others is False:
            found.append(f"{place}: {name} is not in the schema")
        elif isinstance(others, dict):
            found += breaches(others, item, f"{place}.{name}")
    return found


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The sample sessions, and one file with a line that cannot be read."""
    homes = shutil.copytree(SAMPLES, tmp_path_factory.mktemp("homes") / "samples")
    CLAUDE.write(homes / "claude", CLAUDE.content(2) + b"{torn\n" + CLAUDE.content(1, "other"))
    return [f"{path.name}={path}" for path in homes.iterdir() if path.is_dir()]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory, roots: list[str]) -> Iterator[Memory]:
    with open_memory(tmp_path_factory.mktemp("api") / "store", roots) as opened:
        opened.sweep()
        yield opened


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value))


def test_every_session_follows_its_schema(memory: Memory) -> None:
    found = [to_json(session) for session in memory.sessions()]

    assert len(found) > 4
    assert [text for session in found for text in breaches(SCHEMAS["session"], _json(session))] == []


def test_every_event_follows_its_schema(memory: Memory) -> None:
    events = [to_json(event) for session in memory.sessions() for event in memory.events(session, with_copies=True)]

    assert len({event["kind"] for event in events}) > 6
    assert [text for event in events for text in breaches(SCHEMAS["event"], _json(event))] == []


def test_every_problem_follows_its_schema(memory: Memory) -> None:
    found = [to_json(problem) for problem in memory.problems()]

    assert found
    assert [text for problem in found for text in breaches(SCHEMAS["problem"], _json(problem))] == []


def test_commands_print_what_the_schemas_describe(roots: list[str]) -> None:
    flags = [part for root in roots for part in ("--root", root)]

    def printed(*arguments: str) -> Any:
        return json.loads(CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False).stdout)

    assert breaches(SCHEMAS["sweep"], printed("sweep", *flags)) == []
    sessions = printed("sessions")
    shown = printed("show", sessions[0]["session_uid"])
    assert [text for session in sessions for text in breaches(SCHEMAS["session"], session)] == []
    assert [text for event in shown["events"] for text in breaches(SCHEMAS["event"], event)] == []
    assert [text for problem in printed("status", "--problems") for text in breaches(SCHEMAS["problem"], problem)] == []


@pytest.mark.parametrize("name", ["session", "event", "problem", "sweep", "forget", "ledger", "search"])
def test_a_schema_names_its_draft_allows_nothing_else_and_describes_every_field(name: str) -> None:
    schema = SCHEMAS[name]

    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False
    assert [field for field, rule in schema["properties"].items() if not rule.get("description")] == []


def test_a_schema_rejects_what_is_not_in_it(memory: Memory) -> None:
    session = _json(to_json(memory.sessions()[0]))

    assert breaches(SCHEMAS["session"], session | {"surprise": 1})
    assert breaches(SCHEMAS["session"], session | {"started_at": "yesterday"})
    assert breaches(SCHEMAS["session"], session | {"event_count": True})
    assert breaches(SCHEMAS["session"], {name: session[name] for name in session if name != "cost"})


@pytest.mark.parametrize("as_type", [str, Path])
def test_a_folder_may_be_a_string_or_a_path(tmp_path: Path, as_type: Callable[[Path], str | Path]) -> None:
    folder = as_type(tmp_path / "store")

    with open_memory(folder, []) as memory:
        assert memory.status().folder == str(tmp_path / "store")
    assert str(tmp_path / "store") in " ".join(finding.message for finding in doctor(folder))


def test_an_overview_says_what_the_status_says(memory: Memory) -> None:
    overview, status = memory.overview(), memory.status()

    assert overview.sessions == status.sessions > 0
    assert overview.events == status.events > 0
    assert overview.swept == status.swept is not None
    assert overview.sources == status.sources
    assert (overview.log_tokens, overview.kept_tokens) == (status.distilled.log_tokens, status.distilled.kept_tokens)
    assert (overview.losses, overview.alarms) == (status.retention.losses, status.alarms)


def test_status_is_made_of_records_and_the_command_prints_them(memory: Memory) -> None:
    status = memory.status()

    assert sum(agent.sessions for agent in status.agents) == status.sessions == len(memory.sessions())
    assert status.sources.bad_lines == len(memory.problems())
    parts = {
        "folder",
        "swept_at",
        "watch",
        "agents",
        "sessions",
        "events",
        "sources",
        "size_bytes",
        "alarms",
        "distilled",
        "retention",
    }
    assert set(asdict(status)) == parts


def test_an_unknown_filter_is_rejected(memory: Memory) -> None:
    with pytest.raises(TypeError, match="nonsense"):
        memory.sessions(nonsense=1)  # type: ignore[call-arg]


def test_every_filter_of_the_store_that_users_need_can_be_given() -> None:
    given = set(signature(Memory.sessions).parameters) - {"self"}

    of_filters = {"chosen", "excluded", "uids", "excluded_uids", "since_ms", "before_ms", "root", "is_evicted"}
    assert set(SessionFilter._fields) - given == of_filters
    named = {"session_class": "class", "in_session": "session", "is_starred": "is"}
    assert {named.get(name, name) for name in Filters._fields if name not in ("since", "before")} <= {*FILTERS}


def test_every_public_name_exists_and_is_listed() -> None:
    assert [name for name in recollect.__all__ if not hasattr(recollect, name)] == []
    assert "open_memory" in dir(recollect)


def _public_records() -> list[type]:
    named = (getattr(recollect, name) for name in recollect.__all__)
    return [value for value in named if isinstance(value, type) and (is_dataclass(value) or hasattr(value, "_fields"))]


def _names(record: type) -> list[str]:
    return list(getattr(record, "_fields", None) or [item.name for item in fields(record)])


@pytest.mark.parametrize("record", _public_records(), ids=lambda record: record.__name__)
def test_every_time_of_a_record_is_a_datetime_too(record: type) -> None:
    times = [name for name in _names(record) if name.endswith("_at") or name == "ts"]

    missing = [name for name in times if ("at" if name == "ts" else name.removesuffix("_at")) not in vars(record)]

    assert missing == []


def test_a_datetime_is_the_same_moment_as_the_text_and_is_not_in_the_json(memory: Memory) -> None:
    session = next(session for session in memory.sessions() if session.evicted_at is None)
    event = memory.events(session)[0]

    assert session.started and session.started.isoformat(timespec="milliseconds") == (
        f"{(session.started_at or '').removesuffix('Z')}+00:00"
    )
    assert session.evicted is None
    assert event.at and session.ended and event.at <= session.ended
    assert "started" not in to_json(session)


def test_a_search_takes_dates_as_people_type_them_and_datetimes(memory: Memory) -> None:
    (newest, *_) = memory.sessions(limit=1)

    assert memory.search("", Filters(since=newest.ended))
    assert memory.search("", Filters(since="2099-01-01")) == []
    assert memory.plan_forgetting(before="2001").sessions == ()


@pytest.mark.parametrize("method", [name for name in dir(Memory) if not name.startswith("_")])
def test_every_option_of_the_library_has_a_name(method: str) -> None:
    function = getattr(Memory, method)

    given = list(signature(function).parameters.values()) if callable(function) else []

    unnamed = [option for option in given if option.kind is Parameter.VAR_KEYWORD]
    assert [option for option in unnamed if not str(option.annotation).startswith("Unpack[")] == []


def test_an_unknown_option_of_a_search_is_rejected(memory: Memory) -> None:
    with pytest.raises(TypeError, match="nonsense"):
        memory.search("words", nonsense=1)  # type: ignore[call-arg]


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = recollect.nonsense


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, recollect; print(*(name for name in sys.modules if name.split('.')[0] in sys.argv[1:]))"

    heavy = ["apsw", "click", "rich", "zstandard", "genai_prices", "msgspec", "orjson"]
    done = subprocess.run([sys.executable, "-c", program, *heavy], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == ""


def test_reading_the_store_does_not_load_the_price_list() -> None:
    program = "import sys, recollect.cli, recollect.api; print('genai_prices' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout == "False\n"


def _run_and_list_modules(store: Path, *words: str) -> tuple[str, set[str]]:
    """What a command prints, and the modules that it loads."""
    program = """if True:
        import sys
        from recollect.__main__ import run
        sys.argv = ["recollect", *sys.argv[1:]]
        try: run()
        except SystemExit: pass
        print(*sorted(sys.modules), file=sys.stderr)
    """
    environment = os.environ | {"RECOLLECT_HOME": str(store)}
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return done.stdout, set(done.stderr.split())


def test_a_sweep_without_news_loads_nothing_it_does_not_need(tmp_path: Path) -> None:
    CLAUDE.write(tmp_path / "home", CLAUDE.content(2))
    words = ["sweep", "--root", CLAUDE.root_flag(tmp_path / "home")]
    _run_and_list_modules(tmp_path / "store", *words)

    printed, loaded = _run_and_list_modules(tmp_path / "store", *words)

    assert "Nothing new" in printed
    assert {name.partition(".")[0] for name in loaded} & {
        "msgspec", "tomllib", "socket", "subprocess", "tempfile", "shutil", "hyperscan", "genai_prices",
    } == set()  # fmt: skip
    assert loaded & {
        "recollect.model.schema", "recollect.agentkit.protocol", "recollect.agents.claude.log",
        "recollect.ingest.builder", "recollect.redact.redactor", "recollect.sessions.account",
        "recollect.analysis.distiller",
    } == set()  # fmt: skip


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["fix", "ConnectionRefusedError: [Errno 111]"], "recollect.knowledge.asking"),
        (["digest", "last"], "recollect.analysis.stored"),
        (["show", "last"], "recollect.sessions.transcript"),
        (["resume", "last"], "recollect.api.handover"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_reading_what_was_distilled_loads_no_rule_that_distils(tmp_path: Path, words: list[str], needed: str) -> None:
    CLAUDE.write(tmp_path / "home", CLAUDE.content(2))
    with open_memory(tmp_path / "store", [CLAUDE.root_flag(tmp_path / "home")]) as memory:
        memory.sweep()

    _, loaded = _run_and_list_modules(tmp_path / "store", *words)

    assert needed in loaded
    assert loaded & {"recollect.digest.words", "recollect.digest.digest", "recollect.analysis.distiller"} == set()


@pytest.mark.parametrize("kind", KINDS)
def test_asking_for_a_kind_finds_its_family_and_nothing_else(memory: Memory, kind: str) -> None:
    for session in memory.sessions():
        wanted = [
            event for event in memory.events(session, with_copies=True) if event.kind in KIND_FAMILY.get(kind, (kind,))
        ]

        assert memory.events(session, kind) == wanted


def test_an_unknown_kind_is_wrong_usage(memory: Memory) -> None:
    with pytest.raises(UsageError, match="nonsense"):
        memory.events(memory.sessions()[0], "nonsense")


def test_payloads_come_in_the_order_asked_for(memory: Memory) -> None:
    session = max(memory.sessions(), key=lambda found: found.event_count)
    events = memory.events(session, with_copies=True)

    backwards = list(memory.payloads(session, events[::-1]))

    assert backwards[::-1] == list(memory.payloads(session, events))


def test_a_transcript_holds_every_event_of_the_session_and_its_sub_agents_once(memory: Memory) -> None:
    session = max(memory.sessions(roots_only=True), key=lambda found: len(memory.sub_agents(found)))
    family = [session, *memory.sub_agents(session)]

    shown = [item.event.event_uid for item in memory.transcript(session)]

    assert len(family) > 1
    assert sorted(shown) == sorted(
        event.event_uid for found in family for event in memory.events(found, with_copies=True)
    )


@pytest.mark.parametrize("kind", [None, "tool_call", "user_msg"])
def test_the_end_of_a_transcript_is_how_the_whole_ends(memory: Memory, kind: str | None) -> None:
    for session in memory.sessions():
        whole = list(memory.transcript(session, kind))

        assert list(memory.transcript(session, kind, last=3)) == whole[-3:]


def test_every_error_raised_on_purpose_is_one_sentence_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(RecollectError) as error:
        open_memory(tmp_path / "nowhere", create=False)

    assert isinstance(error.value, NotFound)
    assert "\n" not in error.value.message
    assert not error.value.message.endswith(".")
    assert error.value.hint


def test_records_cannot_be_changed(memory: Memory) -> None:
    session = memory.sessions()[0]

    with pytest.raises(AttributeError):
        session.title = "another"  # type: ignore[misc]


def test_everything_a_memory_returns_has_json(memory: Memory) -> None:
    session = max(memory.sessions(), key=lambda session: session.event_count)
    returned = [
        *(memory.sweep(), memory.status(), memory.outlook(), memory.stats(), memory.recent(), memory.answer("fix")),
        *(memory.sessions(), memory.problems(), memory.signals(), memory.exchanges(session), memory.digest(session)),
        *(list(memory.transcript(session)), memory.timeline(), memory.related(session), memory.files("calc.py")),
        *(memory.blame("calc.py"), memory.plan_forgetting(session.session_uid), doctor(memory.settings.folder)),
        *(hits := memory.search("fix"), hits[0].matches[0], hits[0].first_request),
    ]

    for value in returned:
        assert json.loads(json.dumps(to_json(value)))


def test_a_memory_opened_to_read_has_everything_and_changes_no_file(memory: Memory) -> None:
    folder = memory.settings.folder
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if not path.name.endswith("-shm")}

    with open_memory(folder, read_only=True) as reader:
        assert reader.sessions() == memory.sessions()
        assert reader.answer("fix").hits

    assert {path: path.stat().st_mtime_ns for path in before} == before


def test_opening_to_read_creates_no_store(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        open_memory(tmp_path / "nowhere", read_only=True)

    assert not (tmp_path / "nowhere").exists()


def test_a_memory_opened_to_read_has_the_settings_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RECOLLECT_HOME")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "recollect").mkdir(parents=True)
    (tmp_path / "config" / "recollect" / "config.toml").write_text("[exchanges]\nmax_tokens = 5\n")
    open_memory().close()

    with open_memory(read_only=True) as reader:
        assert reader.settings.exchanges.max_tokens == 5
