"""Tools that change something: where they are offered, and what they reach."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.api import open_memory
from recollect.care.install import Installer
from recollect.cli import main
from recollect.mcp.door import GROUP_TOOLS, WRITE_TOOLS
from tests.mcp.conftest import Agent

ACTIVE = "scripted:elsewhere"


@pytest.fixture
def group(place: Path) -> Iterator[Agent]:
    """A server for the group `attic`, which is at its one session; `zoo` has put one aside."""
    with open_memory(place / "store") as memory:
        if "zoo" not in [known.name for known in memory.groups.all()]:
            memory.groups.add("zoo", place / "checkout")
        memory.groups.sessions("attic").set(ACTIVE)
        memory.groups.sessions("zoo").set("scripted:walrus-1")
        memory.groups.sessions("zoo").put_aside("zoo's secret")
    with Agent(place, "--group", "attic") as started:
        yield started


def offered(agent: Agent) -> dict[str, bool]:
    """The tools by name, and whether each is marked as only reading."""
    tools = agent.ask("tools/list")["result"]["tools"]
    return {tool["name"]: tool["annotations"]["readOnlyHint"] for tool in tools}


def test_clear_and_resume_are_offered_inside_a_group_only(group: Agent, agent: Agent) -> None:
    names = {tool.name for tool in GROUP_TOOLS}

    assert {name for name, only_reads in offered(group).items() if not only_reads} == names
    assert all(offered(agent).values())
    assert agent.ask("tools/call", name="clear_session", arguments={"name": "x"})["error"]["code"] == -32602


def test_a_conversation_is_put_aside_listed_and_resumed(group: Agent, place: Path) -> None:
    cleared = group.call("clear_session", name="attic plans")
    listed = group.call("list_sessions")
    group.call("resume_session", history_id="ATTIC plans")

    assert ACTIVE in cleared and "> attic plans" in cleared
    assert "active: none" in listed and "> attic plans" in listed and "session scripted:elsewhere" in listed
    assert "active: scripted:elsewhere" in group.call("list_sessions")
    assert "secret" not in listed
    with open_memory(place / "store") as memory:
        assert memory.groups.sessions("attic").get() == ACTIVE


def test_pages_of_a_group_have_every_bookmark_and_session_once(group: Agent) -> None:
    group.call("clear_session", name="first")
    pages = [group.call("list_sessions", limit=1, cursor=str(number)) for number in range(4)]

    assert ["active:" in page for page in pages] == [True, False, False, False]
    assert "> first" in pages[1] and "session scripted:elsewhere" in pages[2]
    assert 'cursor "2"' in pages[1] and "cursor" not in pages[2]
    group.call("resume_session", history_id="first")


def test_a_bookmark_of_another_group_cannot_be_resumed(group: Agent) -> None:
    with_number = [group.call("resume_session", history_id=name) for name in ("zoo's secret", "1", "zoo")]

    assert all("not_found" in answer and "did you mean" not in answer for answer in with_number)
    assert "active: scripted:elsewhere" in group.call("list_sessions")


@pytest.fixture
def writer(place: Path) -> Iterator[Agent]:
    with Agent(place, "--write-tools") as started:
        yield started


def test_tools_that_record_are_off_unless_switched_on_and_marked(agent: Agent, writer: Agent) -> None:
    names = {tool.name for tool in WRITE_TOOLS}

    assert not names & offered(agent).keys()
    assert {name for name, only_reads in offered(writer).items() if not only_reads} == names


def test_what_an_agent_records_is_its_word_with_a_reason_and_no_secret(writer: Agent, place: Path) -> None:
    with open_memory(place / "store") as memory:
        memory.knowledge.remember("Feed herring", topic="food", repo="zoo")
    key = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6"

    answer = writer.call("record_decision", decision="Feed squid", why=f"it is cheaper, {key}", topic="food")
    writer.call("remember", text="The walrus sleeps at noon")

    recalled = writer.call("recall_decisions")
    assert "> Feed squid" in answer and key not in recalled
    assert "by agent" in recalled and "because: it is cheaper" in recalled and "The walrus sleeps at noon" in recalled
    assert "> Feed herring" in recalled  # what the user said is still valid
    with open_memory(place / "store") as memory:
        recorded = next(fact for fact in memory.knowledge.decisions() if fact.object == "Feed squid")
        assert (recorded.by, recorded.method, recorded.confidence) == ("agent", "agent", 0.7)
        assert memory.knowledge.judge(recorded.fact_uid, "promoted").verdict == "promoted"


def test_a_request_to_forget_deletes_nothing_until_the_user_confirms(
    writer: Agent, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(place / "store"))
    asked = writer.call("forget_memory", session="walrus-0", reason="it names a customer")

    shown = CliRunner().invoke(main, ["forget", "--pending", "--dry-run"])
    refused = CliRunner().invoke(main, ["forget", "--pending"], input="n\n")

    assert "Nothing is deleted yet" in asked
    assert "scripted:walrus-0, it names a customer" in shown.output and "1 session" in shown.output
    assert refused.exit_code != 0
    assert "round 0" in writer.call("get_session", session="walrus-0")
    assert "Dismissed 1 request" in CliRunner().invoke(main, ["forget", "--pending", "--dismiss"]).output
    assert "No agent has asked" in CliRunner().invoke(main, ["forget", "--pending"]).output
    writer.call("forget_memory", session="walrus-0", reason="it names a customer")
    assert "Deleted 1 session" in CliRunner().invoke(main, ["forget", "--pending", "--yes"]).output
    assert "No session here has this id" in writer.call("get_session", session="walrus-0")
    assert "No agent has asked" in CliRunner().invoke(main, ["forget", "--pending"]).output


def test_a_session_behind_the_wall_cannot_be_named_for_forgetting(place: Path) -> None:
    with Agent(place, "--write-tools", "--repo", str(place / "checkout")) as walled:
        assert "No session here has this id" in walled.call("forget_memory", session="elsewhere", reason="x")
    with Agent(place, "--write-tools", "--group", "attic") as group:
        assert "No session here has this id" in group.call("forget_memory", session="walrus-1", reason="x")
        assert "Not available inside group" in group.call("forget_memory", session="elsewhere", reason="x")


@pytest.mark.parametrize("can_write", [False, True])
def test_the_installed_server_offers_them_only_if_the_user_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can_write: bool
) -> None:
    program = tmp_path / "bin" / "claude"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    installer = Installer(tmp_path, {"claude": [tmp_path]}, "1", with_plugin=False, can_write=can_write)

    (added,) = [step["target"] for step in installer.plan(["claude"]).steps if step["action"] == "run"]

    assert added.endswith("-m recollect mcp --write-tools" if can_write else "-m recollect mcp")
