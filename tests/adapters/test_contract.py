"""What every adapter promises, checked on each one's sample files."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import asdict

import recollect
from recollect.agentkit.protocol import (
    STATE_LIMIT_BYTES,
    Adapter,
    BadLine,
    Checkpoint,
    Cursor,
    EventRecord,
    Record,
    Source,
)
from recollect.agents import adapters
from recollect.model.schema import KINDS
from tests.builders import without_delivered

SAMPLES = Path(recollect.__file__).parent / "samples"
AGENTS = sorted(adapters())
LOGGING_AGENTS = [agent for agent in AGENTS if any((SAMPLES / agent).rglob("*.jsonl"))]
SECRETS = ("auth.json", ".credentials.json", "config.toml", ".env", "id_rsa", "key.pem")


@pytest.fixture
def home(tmp_path: Path, agent: str) -> Path:
    return shutil.copytree(SAMPLES / agent, tmp_path / "home")


def read(adapter: Adapter, source: Source, cursor: Cursor | None = None) -> list[Record]:
    return list(adapter.read(source, cursor))


def sources_of(adapter: Adapter, root: Path) -> Iterator[Source]:
    """What is read: files, and the units of those that hold several sessions."""
    for source in adapter.discover(root):
        yield from adapter.units(source) if source.holds_units else [source]


def lane_source(adapter: Adapter, root: Path) -> Source:
    """The largest append-only file: the one that holds a conversation."""
    sources = [source for source in adapter.discover(root) if not source.is_rewritten]
    return max(sources, key=lambda source: source.path.stat().st_size)


def last_cursor(records: list[Record]) -> Cursor:
    return [record.cursor for record in records if isinstance(record, Checkpoint)][-1]


def told(records: list[Record]) -> dict[tuple[str, str, int], dict[str, Any]]:
    """Events by their identity, as they are after the last reading."""
    events = without_delivered([record for record in records if isinstance(record, EventRecord)])
    return {
        (event.native_session_id, event.native_id, event.block): asdict(event) | {"is_provisional": None}
        for event in events
    }


@pytest.mark.parametrize("agent", AGENTS)
def test_the_profile_says_what_front_ends_need(agent: str) -> None:
    adapter = adapters()[agent]

    assert adapter.agent == agent
    assert adapter.profile.display_name
    assert adapter.home.startswith("~/")
    assert adapter.home_variable.partition("/")[0].isupper()
    assert adapter.version >= 1


@pytest.mark.parametrize("agent", AGENTS)
def test_a_file_without_a_conversation_is_never_discovered(agent: str, home: Path) -> None:
    for folder in [home, *(path for path in home.rglob("*") if path.is_dir())]:
        for name in SECRETS:
            (folder / name).write_text("secret")

    found = {source.path.name for source in adapters()[agent].discover(home)}

    assert found
    assert not found & set(SECRETS)


@pytest.mark.parametrize("agent", AGENTS)
def test_links_are_not_followed(agent: str, home: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copytree(home, tmp_path / "elsewhere")
    shutil.rmtree(home)
    home.mkdir()
    for path in elsewhere.iterdir():
        (home / path.name).symlink_to(path)

    assert list(adapters()[agent].discover(home)) == []


@pytest.mark.parametrize("agent", AGENTS)
def test_reading_ends_with_a_checkpoint_at_the_end_of_the_file(agent: str, home: Path) -> None:
    adapter = adapters()[agent]

    for source in sources_of(adapter, home):
        records = read(adapter, source)

        assert isinstance(records[-1], Checkpoint)
        assert source.unit or records[-1].cursor.offset == source.path.stat().st_size


@pytest.mark.parametrize("agent", AGENTS)
def test_events_have_known_kinds_unique_ids_and_short_summaries(agent: str, home: Path) -> None:
    adapter = adapters()[agent]

    for source in sources_of(adapter, home):
        events = [record for record in read(adapter, source) if isinstance(record, EventRecord)]

        ids = Counter((event.native_session_id, event.native_id, event.block) for event in events)
        assert [name for name, count in ids.items() if count > 1] == []
        for event in events:
            assert event.kind in KINDS
            assert 0 < len(event.summary) <= 200
            assert "\n" not in event.summary
            orjson.dumps(event.payload)


@pytest.mark.parametrize("agent", AGENTS)
def test_an_unchanged_file_tells_nothing_new(agent: str, home: Path) -> None:
    adapter = adapters()[agent]

    for source in sources_of(adapter, home):
        cursor = last_cursor(read(adapter, source))

        again = [record for record in read(adapter, source, cursor) if isinstance(record, EventRecord)]

        assert [event.native_id for event in again if not event.is_provisional] == []


@pytest.mark.parametrize("agent", LOGGING_AGENTS)
@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_pieces_of_any_size_tell_what_the_whole_file_tells(agent: str, home: Path, data: st.DataObject) -> None:
    adapter = adapters()[agent]
    source = lane_source(adapter, home)
    content = (SAMPLES / agent / source.path.relative_to(home)).read_bytes()
    source.path.write_bytes(content)
    whole = told(read(adapter, source))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=6)))

    records: list[Record] = []
    cursor = None
    for end in [*cuts, len(content)]:
        source.path.write_bytes(content[:end])
        piece = read(adapter, source, cursor)
        cursor = last_cursor(piece)
        cursor = Cursor(cursor.offset, cursor.line, cursor.head, cursor.tail, orjson.loads(orjson.dumps(cursor.state)))
        assert len(orjson.dumps(cursor.state)) <= STATE_LIMIT_BYTES
        records += piece

    assert told(records) == whole


@pytest.mark.parametrize("agent", LOGGING_AGENTS)
def test_another_file_in_its_place_is_read_from_its_start(agent: str, home: Path) -> None:
    adapter = adapters()[agent]
    source = lane_source(adapter, home)
    cursor = last_cursor(read(adapter, source))
    content = source.path.read_bytes()
    source.path.write_bytes(content.replace(b"timestamp", b"timestamp ", 1) + content)

    records = read(adapter, source, cursor)

    lines = sum(record.lines for record in records if isinstance(record, Checkpoint))
    assert lines == 2 * content.count(b"\n")


@pytest.mark.parametrize("agent", LOGGING_AGENTS)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_line_costs_that_line_only(agent: str, home: Path, data: st.DataObject) -> None:
    adapter = adapters()[agent]
    source = lane_source(adapter, home)
    lines = (SAMPLES / agent / source.path.relative_to(home)).read_bytes().split(b"\n")[:-1]
    source.path.write_bytes(b"\n".join([*lines, b""]))
    chosen = data.draw(st.integers(0, len(lines)))
    garbage = data.draw(st.binary(min_size=1, max_size=40)).replace(b"\n", b"")
    untouched = {key for key, event in told(read(adapter, source)).items() if event["kind"] == "user_msg"}

    source.path.write_bytes(b"\n".join([*lines[:chosen], b"\xff{" + garbage, *lines[chosen:], b""]))
    records = read(adapter, source)

    assert [record for record in records if isinstance(record, BadLine)]
    prompts = {key for key, event in told(records).items() if event["kind"] == "user_msg"}
    # Ids made of an offset move with the bytes before them; no prompt may be missing.
    assert len(prompts) == len(untouched)
