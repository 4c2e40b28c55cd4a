"""What the tools answer: within their scope, without the session that asks, in pages that make up the whole."""

import json
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from recollect.mcp.door import CORE, GROUP_TOOLS, INSTRUCTIONS, MOST_BYTES, TOOLS, WRITE_TOOLS, Door, Scope, Tool
from recollect.recall import AGENT_PROMPTS
from tests.mcp.conftest import Agent

HERE = {f"walrus-{number}" for number in range(6)}


def named(text: str) -> list[str]:
    return re.findall(r"session scripted:([\w-]+)", text)


def pages(agent: Agent, tool: str, **arguments: object) -> list[str]:
    """All pages of an answer, each below the limit."""
    found = [agent.call(tool, **arguments)]
    while more := re.search(r'cursor "(\d+)"', found[-1].rpartition("ends]")[2]):
        found.append(agent.call(tool, cursor=more[1], **arguments))
        assert len(found) < 50
    assert all(len(page.encode()) <= MOST_BYTES for page in found)
    return found


def test_a_search_finds_this_repository_and_others_only_when_asked(agent: Agent) -> None:
    assert set(named("".join(pages(agent, "session_search", query="walrus", limit=2)))) == HERE
    assert "elsewhere" in named(agent.call("session_search", query="walrus", everywhere=True, limit=10))
    assert named(agent.call("session_search"))[0] == "walrus-5"  # an empty query: the most recent


def test_pages_of_a_list_make_up_the_whole(agent: Agent) -> None:
    listed = named("".join(pages(agent, "list_sessions", limit=4)))

    assert (sorted(listed), listed[0]) == (sorted(HERE), "walrus-5")


def test_a_session_is_told_by_its_digest_and_its_events_in_full(agent: Agent) -> None:
    assert "feed the walrus, round 3" in agent.call("get_session", session="walrus-3")
    window = agent.call("get_session", session="walrus-3", at="#2", context=1)
    assert "KeyError: 'herring-3'" in window and "origin: tool" in window and "origin: user" in window
    assert "of round 3 is fed" in agent.call("get_session", session="walrus-3", at="end")
    whole = "".join(pages(agent, "get_session", session="walrus-3", at="#4", context=0))
    assert whole.count("fish ") >= 7995  # but for words at the edges of pages


def test_an_edit_is_read_as_what_it_changed(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(place / "store"))
    door = Door(Scope(place / "checkout"))  # in this process, which knows the agent's edits

    edit, _ = door.call("get_session", {"session": "walrus-3", "at": "#3", "context": 0}, {})

    assert "\n> -a\n> +b\n" in edit


def test_a_file_is_told_by_the_sessions_that_edited_it(agent: Agent) -> None:
    assert set(named("".join(pages(agent, "recall_file", path="src/walrus.py", limit=3)))) == HERE


def test_a_file_is_told_with_the_edits_of_each_session_and_their_requests(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_HOME", str(place / "store"))
    door = Door(Scope(place / "checkout"))  # in this process, which knows the agent's edits

    answer, _ = door.call("recall_file", {"path": "src/walrus.py", "limit": 1}, {})

    assert "session scripted:walrus-5 · 1 edit\n" in answer
    assert "> edit #3 +1 -1 src/walrus.py: feed the walrus, round 5\n" in answer


def test_a_search_shows_matching_events_whole_and_each_once(agent: Agent) -> None:
    answer = agent.call("session_search", query="fed", limit=1) + agent.call("session_search", query="fish", limit=1)

    assert re.search(r"(?m)^> #\d+ completion \(agent\): The walrus of round \d is fed\.$", answer)
    assert answer.count("is fed.") == 1
    (long,) = re.findall(r"(?m)^> #\d+ tool_result .*: (.*)$", answer)
    assert 1_400 < len(long) <= 1_502  # what does not fit is cut around the words


def test_an_answer_has_room_for_whole_events_of_several_sessions(agent: Agent) -> None:
    answer = agent.call("session_search", query="walrus fish", limit=6)

    assert len(answer) < 8_500 and answer.count("tool_result") >= 3


def test_recent_sessions_and_matches_have_their_outcome(agent: Agent) -> None:
    recent = agent.call("session_search", limit=1)

    assert recent.startswith("6 earlier sessions, newest first.")
    for answer in (recent, agent.call("session_search", query="walrus", limit=1)):
        assert re.search(r"session scripted:walrus-\d · (success|fail|abandoned|unknown)\n", answer)


def test_what_is_old_is_told_with_its_date(agent: Agent) -> None:
    assert re.search(r"origin: user · 20\d\d-\d\d-\d\d, \d+ \w+ ago", agent.call("list_sessions"))


def test_the_brief_names_the_last_session_and_what_it_was_asked(agent: Agent) -> None:
    brief = agent.call("session_brief")

    assert "scripted:walrus-5" in brief and "> feed the walrus, round 5" in brief


def test_a_server_says_the_brief_to_an_agent_whose_hook_does_not(place: Path) -> None:
    (place / "store" / "answering").mkdir()
    (place / "store" / "answering" / "claude").touch()
    told = []
    for name in ("claude-code", "grok-shell", "grok-shell"):
        with Agent(place) as agent:
            client = {"name": name, "version": "1"}
            told.append("walrus-5" in agent.ask("initialize", clientInfo=client)["result"]["instructions"])

    assert told == [False, True, False]  # the second server of one agent has nothing to add


def test_a_store_that_takes_no_claims_costs_no_more_than_the_brief(tmp_path: Path, place: Path) -> None:
    shutil.copytree(place / "store", tmp_path / "store")
    shutil.rmtree(tmp_path / "store" / "claims", ignore_errors=True)
    (tmp_path / "store" / "claims").touch()

    with Agent(place, RECOLLECT_HOME=str(tmp_path / "store")) as agent:
        assert agent.ask("initialize", clientInfo={"name": "grok-shell"})["result"]["instructions"]


def test_the_session_that_asks_is_left_out(place: Path) -> None:
    with Agent(place, CLAUDE_CODE_SESSION_ID="walrus-5") as agent:
        assert set(named(agent.call("session_search", query="walrus", limit=10))) == HERE - {"walrus-5"}
        asked = agent.ask(
            "tools/call",
            name="session_search",
            arguments={"query": "walrus", "limit": 10},
            _meta={"threadId": "walrus-4"},
        )
        found = named(asked["result"]["content"][0]["text"])
        assert set(found) == HERE - {"walrus-4", "walrus-5"}


def test_behind_a_wall_nothing_of_elsewhere_is_found(place: Path) -> None:
    with Agent(place, "--repo", str(place / "checkout")) as agent:
        assert set(named(agent.call("session_search", query="walrus", limit=10))) == HERE
        assert "limited to one repository" in agent.call("session_search", query="walrus", everywhere=True)
        assert "No session here has this id" in agent.call("get_session", session="scripted:elsewhere")
        assert "No session here has this id" in agent.call("get_session", session="elsewhere", at="end")


def test_a_group_finds_its_own_sessions_and_no_others(place: Path) -> None:
    with Agent(place, "--group", "attic") as agent:
        assert named(agent.call("session_search", query="walrus", limit=10)) == ["elsewhere"]
        assert named(agent.call("list_sessions")) == ["elsewhere"]
        assert named(agent.call("recall_file", path="src/walrus.py")) == ["elsewhere"]
        assert "limited to one" in agent.call("session_search", everywhere=True)
        for answer in (agent.call("get_session", session="walrus-3"), agent.call("session_brief")):
            assert "feed the walrus" not in answer
        assert agent.call("session_brief").startswith("A group has no brief")
        assert "walrus" not in agent.ask("initialize")["result"]["instructions"]
        assert [item["name"] for item in agent.ask("resources/list")["result"]["resources"]] == ["scripted:elsewhere"]


def test_descriptions_begin_with_words_to_search_for() -> None:
    words = r"(Search|Read|History|List|Catch up|Error|Decisions|How a task|Clear|Resume|Record|Remember|Forget)\b"
    for tool in (*TOOLS, *GROUP_TOOLS, *WRITE_TOOLS):
        assert re.match(words, tool.description), tool.name
    assert {tool.name for tool in TOOLS if "_meta" in tool.schema()} == {"session_search", "recall_error"}


def test_the_definitions_of_all_tools_leave_the_context_to_the_task() -> None:
    def tokens(tools: Iterable[Tool]) -> float:
        return sum(len(json.dumps(tool.schema())) for tool in tools) / 4

    assert tokens(TOOLS) <= 1_200
    assert tokens(tool for tool in TOOLS if tool.name in CORE) <= 600


ASKED = (
    ("What did we discuss about rate limits last week?", "session_search"),
    ("Search earlier conversations for the websocket reconnect", "session_search"),
    ("Did we try Redis before?", "session_search"),
    ("Find the previous work on the date parser before I edit it", "session_search"),
    ("Read the session 3f2a91, how did it end?", "get_session"),
    ("Show me the transcript around event #12", "get_session"),
    ("Who edited src/pool.py, and for which requests?", "recall_file"),
    ("Show the history of this file before I change it", "recall_file"),
    ("List the sessions of this repository, newest first", "list_sessions"),
    ("How do I resume yesterday's session?", "list_sessions"),
    ("Have we seen this error before?", "recall_error"),
    ("The build fails with this stack trace, how was it fixed?", "recall_error"),
    ("This test failed again, what was changed to fix it?", "recall_error"),
    ("Why is the session store in Postgres, what are the reasons?", "recall_decisions"),
    ("Which conventions and preferences does this project have?", "recall_decisions"),
    ("What was ruled out for the queue?", "recall_decisions"),
    ("How was a release done here before?", "recall_workflows"),
    ("Which steps does a deploy need?", "recall_workflows"),
    ("Continue where we left off", "session_brief"),
    ("Catch me up: what is open?", "session_brief"),
)


@pytest.mark.parametrize(("prompt", "tool"), ASKED)
def test_the_right_tool_for_a_prompt_is_among_the_first_two_by_its_words(prompt: str, tool: str) -> None:
    """As agents that defer tools look for them: by rare words of names and descriptions."""
    words = {each.name: _stems(f"{each.name} {each.description}") for each in TOOLS}

    def score(name: str) -> float:
        shared = _stems(prompt) & words[name]
        return sum(1 / sum(word in others for others in words.values()) for word in shared) / len(words[name]) ** 0.3

    assert tool in sorted(words, key=score, reverse=True)[:2]


_SAYS_NOTHING = {
    "what",
    "did",
    "the",
    "for",
    "how",
    "was",
    "this",
    "that",
    "and",
    "who",
    "which",
    "why",
    "have",
    "last",
}


def _stems(text: str) -> set[str]:
    words = set(re.findall(r"[a-z]{3,}", text.lower())) - _SAYS_NOTHING
    return {re.sub(r"(?:es|s|ed|d|ing)$", "", re.sub(r"ie[ds]$", "y", word)) for word in words}


def test_the_core_profile_offers_three_tools_and_refuses_the_others(place: Path) -> None:
    with Agent(place, "--tools", "core") as agent:
        assert {tool["name"] for tool in agent.ask("tools/list")["result"]["tools"]} == set(CORE)
        assert (
            "No such tool" in agent.ask("tools/call", name="recall_file", arguments={"path": "x"})["error"]["message"]
        )


def test_an_agent_learns_to_look_things_up_before_its_first_edit(agent: Agent) -> None:
    skill = AGENT_PROMPTS["recall"].skill()

    for text in (INSTRUCTIONS, agent.ask("initialize")["result"]["instructions"], skill, TOOLS[0].description):
        assert "before the first edit of a task" in text.lower().replace("\n", " ")
    assert all(f"`{tool.name}`" in skill for tool in TOOLS)  # what their descriptions leave out


@pytest.mark.parametrize("store", ["missing", "damaged"])
def test_without_a_usable_store_a_tool_says_so(tmp_path: Path, place: Path, store: str) -> None:
    folder = tmp_path / "unusable"
    folder.mkdir()
    if store == "damaged":
        (folder / "memory.db").write_bytes(b"nonsense" * 1000)
        (folder / "cache.db").write_bytes(b"nonsense" * 1000)
    with Agent(place, RECOLLECT_HOME=str(folder)) as agent:
        for tool in TOOLS:
            answer = agent.ask("tools/call", name=tool.name, arguments=dict.fromkeys(tool.required, "walrus-1"))
            assert answer["result"]["isError"] or "Nothing is" in str(answer)
        assert agent.ask("resources/list")["result"] == {"resources": []}


WRONG_CALLS = (
    ("get_session", {"session": "no-such-session"}, "No session here has this id"),
    ("get_session", {"session": "walrus-1", "at": "#9999"}, "This session has no such event"),
    ("get_session", {"session": "walrus-1", "at": "banana"}, "This session has no such event"),
    ("session_search", {"query": "walrus", "cursor": "next"}, "`cursor` must be the number"),
    ("session_search", {"query": "walrus", "since": "someday"}, "`since` must be a date"),
    ("list_sessions", {"before": "someday"}, "`before` must be a date"),
    ("recall_error", {"error": 5}, "`error` must be of type string"),
)


@pytest.mark.parametrize(("tool", "arguments", "said"), WRONG_CALLS)
def test_a_wrong_call_is_answered_with_one_sentence(
    agent: Agent, tool: str, arguments: dict[str, Any], said: str
) -> None:
    answer = agent.ask("tools/call", name=tool, arguments=arguments)["result"]

    text = answer["content"][0]["text"]
    assert answer["isError"] and text.startswith(said) and "\n" not in text and "--" not in text


def test_a_cursor_past_the_end_finds_nothing_more(agent: Agent) -> None:
    given = {"session_search": {"query": "walrus"}, "recall_file": {"path": "src/walrus.py"}, "list_sessions": {}}

    for tool, arguments in given.items():
        assert agent.call(tool, cursor="5000", **arguments) == "Nothing follows this cursor"
