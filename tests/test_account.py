"""What a session's row says: names, classes, tasks, tokens and money."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recollect import Session
from recollect.agentkit.protocol import CostTotal, Record, SessionInfo
from recollect.agents import adapters
from recollect.cli import main
from recollect.model.schema import (
    ASSISTANT_MSG,
    AUTOMATION,
    ERROR,
    FILES_LANE,
    HISTORY_LANE,
    HUMAN,
    LIFECYCLE,
    PROMPTS_ONLY,
    SUB_AGENT,
    TOOL_CALL,
    USER_MSG,
    WARM_UP,
)
from recollect.model.text import begins_with
from recollect.sessions import AccountRules
from recollect.sessions.account import TITLE_CHARS, account_for
from recollect.sessions.relations import mark_copies
from recollect.store import open_store
from tests.builders import AGENT, KNOWN_MODEL, Home, ScriptedAdapter, at_ms, event, sweep, usage
from tests.store.rows import batch_of, put

MILLION = 1_000_000


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home")


def accounts(tmp_path: Path, home: Home) -> dict[str, Session]:
    with sweep(tmp_path / "store", home) as memory:
        return {session.native_session_id: session for session in memory.sessions()}


def account(tmp_path: Path, home: Home, *records: Record) -> Session:
    """The row of one session, called `s`, that tells these records."""
    home.write("s", *records)
    return accounts(tmp_path, home)["s"]


def test_the_users_title_wins_over_the_agents_and_that_over_a_summary(tmp_path: Path, home: Home) -> None:
    ranks = [SessionInfo("s", title=f"rank {rank}", title_rank=rank) for rank in (2, 3, 1)]

    assert account(tmp_path, home, event("s", 1), *ranks).title == "rank 3"


def test_a_title_does_not_begin_with_a_block_of_code(tmp_path: Path, home: Home) -> None:
    asked = event("s", 1, USER_MSG, '``` print("x") ``` why does this fail?')

    assert account(tmp_path, home, asked).title == "why does this fail?"


def test_of_two_titles_of_one_rank_the_later_counts(tmp_path: Path, home: Home) -> None:
    told = [SessionInfo("s", title=title, title_rank=2) for title in ("first", "second")]

    assert account(tmp_path, home, event("s", 1), *told).title == "second"


def test_without_a_title_the_first_request_is_cut_behind_a_word(tmp_path: Path, home: Home) -> None:
    asked = "please " * 20
    found = account(tmp_path, home, event("s", 1, ASSISTANT_MSG, "hello"), event("s", 2, USER_MSG, asked))

    assert found.title is not None
    assert len(found.title) <= TITLE_CHARS
    assert found.title.endswith(" please…")
    assert begins_with(asked, found.title)


def test_a_request_without_spaces_is_cut_where_there_is_no_more_room(tmp_path: Path, home: Home) -> None:
    found = account(tmp_path, home, event("s", 1, USER_MSG, "x" * 100))

    assert found.title == "x" * (TITLE_CHARS - 1) + "…"


def test_a_request_that_fits_is_not_cut(tmp_path: Path, home: Home) -> None:
    assert account(tmp_path, home, event("s", 1, USER_MSG, "x" * TITLE_CHARS)).title == "x" * TITLE_CHARS


@pytest.mark.parametrize(
    "requests",
    [
        ("hi", "fix the login"),
        ("Hello there!", "1", "fix the login"),
        ("yes and yes", "fix the login"),
        ("fix it", "fix the login"),
        ("/systematic-debugging", "fix the login"),
        ("do you have access to linear?", "fix the login"),
        ("好的", "fix the login"),
    ],
)
def test_a_request_without_a_subject_names_no_session(tmp_path: Path, home: Home, requests: tuple[str, ...]) -> None:
    asked = [event("s", number, USER_MSG, text) for number, text in enumerate(requests, 1)]

    assert account(tmp_path, home, *asked).title == "fix the login"


@pytest.mark.parametrize("request_text", ["/review 167", "ok, now fix the login", "test:ci fails"])
def test_a_short_request_with_a_subject_names_its_session(tmp_path: Path, home: Home, request_text: str) -> None:
    asked = [event("s", 1, USER_MSG, request_text), event("s", 2, USER_MSG, "something else")]

    assert account(tmp_path, home, *asked).title == request_text


def test_where_no_request_has_a_subject_the_first_one_names_the_session(tmp_path: Path, home: Home) -> None:
    asked = [event("s", 1, USER_MSG, "/review"), event("s", 2, USER_MSG, "yes")]

    assert account(tmp_path, home, *asked).title == "/review"


def test_a_greeting_names_no_session_however_its_log_was_read(tmp_path: Path, home: Home) -> None:
    home.write("s", event("s", 1, USER_MSG, "hi"))
    before = accounts(tmp_path, home)["s"]
    home.write("s", event("s", 1, USER_MSG, "hi"), event("s", 2, USER_MSG, "fix the login"))

    assert (before.title, accounts(tmp_path, home)["s"].title) == ("hi", "fix the login")


def test_a_fork_is_called_by_the_request_it_copied(tmp_path: Path, home: Home) -> None:
    home.write("base", event("base", 1, text="what it is about", native_id="n"))
    home.write(
        "fork",
        event("fork", 1, text="what it is about", native_id="n"),
        event("fork", 2, text="go on"),
        SessionInfo("fork", base_native_id="base"),
    )

    assert accounts(tmp_path, home)["fork"].title == "what it is about"


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({}, HUMAN),
        ({"session_class": AUTOMATION}, AUTOMATION),
        ({"parent_native_id": "p"}, SUB_AGENT),
        ({"parent_native_id": "p", "session_class": WARM_UP}, WARM_UP),
        ({"parent_native_id": "p", "session_class": WARM_UP, "spawn_call_id": "c"}, SUB_AGENT),
        ({"session_class": PROMPTS_ONLY}, PROMPTS_ONLY),
    ],
)
def test_a_class_is_as_told_but_what_a_call_spawned_is_no_warm_up(
    tmp_path: Path, home: Home, info: dict[str, Any], expected: str
) -> None:
    assert account(tmp_path, home, event("s", 1), SessionInfo("s", **info)).session_class == expected


def test_a_prompt_history_does_not_make_a_session_prompts_only_that_is_held_itself(tmp_path: Path, home: Home) -> None:
    home.write("a-log", event("s", 1), SessionInfo("s", session_class=HUMAN))
    home.write("z-history", event("s", 2, lane=HISTORY_LANE), SessionInfo("s", session_class=PROMPTS_ONLY))

    found = accounts(tmp_path, home)["s"]

    assert (found.session_class, found.event_count) == (HUMAN, 1)


def test_prompts_known_only_from_a_history_make_a_session(tmp_path: Path, home: Home) -> None:
    history = [event("s", n, lane=HISTORY_LANE) for n in (1, 2)]

    found = account(tmp_path, home, *history, SessionInfo("s", session_class=PROMPTS_ONLY))

    assert (found.session_class, found.cost.turns) == (PROMPTS_ONLY, 2)


def test_prompts_are_kept_when_the_log_is_gone_and_only_a_side_file_is_left(tmp_path: Path, home: Home) -> None:
    home.write("history", event("s", 1, text="do it", lane=HISTORY_LANE), SessionInfo("s", session_class=PROMPTS_ONLY))
    home.write("todos", event("s", 2, LIFECYCLE, lane=FILES_LANE))

    found = accounts(tmp_path, home)["s"]

    assert (found.cost.turns, found.title) == (1, "do it")


@pytest.mark.parametrize(
    ("branch", "expected"),
    [
        ("feature/SHOP-12-login", "SHOP-12"),
        ("SHOP-12", "SHOP-12"),
        ("SHOP-12_login", "SHOP-12"),
        ("fix_SHOP-12", "SHOP-12"),
        ("SHOP-12b", None),
        ("AGENTIC-WP-0002-T01", "AGENTIC-WP-0002-T01"),
        ("fix/#123", None),
        ("fix-#123", "#123"),
        ("UTF-8", None),
        ("use-SHA-256", None),
        ("ISO-8859-1", None),
        ("CVE-2024-1234", None),
        ("main", None),
        ("shop-12", "SHOP-12"),
        ("alex/ent-221-better-state-tracking", "ENT-221"),
        ("feature/ent-53_explain", "ENT-53"),
        ("fix/issue-77-crash", "#77"),
        ("issues/123", "#123"),
        ("release-2026-11", None),
        ("soph/phase-2-cleanup", None),
        ("soph/add-3-tests", None),
        ("20260205-strict-settings", None),
        ("upgrade/python-3", None),
        ("v2-1", None),
        ("AVX-512-kernels", None),
        ("upgrade/react-19", None),
        ("pg-16-upgrade", None),
        ("ci/ubuntu-22-runners", None),
        ("win-32-fix", None),
        ("docs/STEP-0-CHECKLIST", None),
        ("SESSION-2026-05-11", None),
    ],
)
def test_a_task_is_found_in_a_branch_where_it_has_the_form_of_one(
    tmp_path: Path, home: Home, branch: str, expected: str | None
) -> None:
    found = account(tmp_path, home, event("s", 1, text="hello"), SessionInfo("s", git_branch=branch))

    assert found.task_ref == expected


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("please fix #123 soon", "#123"),
        ("fix SHOP-7 in UTF-8 files", "SHOP-7"),
        ("read UTF-8 with SHA-256, see SHOP-8", "SHOP-8"),
        ("the entity &#39; is an apostrophe", None),
        ("go to https://x.org/page#12", None),
        ("GPT-5 says hello", None),
        ("[Image #1] why is the button red?", None),
        ("item #2 of the list is odd", None),
        ("use AVX-512 where there is any, else SSE-4", None),
        ("the meeting is at 9 UTC-5", None),
        ("name branches like PROJ-123 or ABC-42", None),
        ("have a look at https://linear.app/acme/issue/ENT-212/explain-improvements", "ENT-212"),
        ("what do you think of https://git.example/o/r/issues/31 ?", "#31"),
        ("ENT-7: explain is slow", "ENT-7"),
        ("the parser of ENT-7 is slow", None),
        ("REPORT-DB-LATENCY-AUDIT-2026-05-04 is new: summarise it", None),
        ("continue SESSION-2026-05-17-notes", None),
        ("review REPORT-DB-LATENCY-AUDIT-2026-05-04.md", None),
        ("see SESSION-2026-05-11.md and go on", None),
        ("@!STEP-0-CHECKLIST.md: do it", None),
        ("see STEP-0-CHECKLIST.md", None),
        ("do SHOP-12-STEP-3", None),
        ("see docs/SHOP-12/plan.md", None),
        ("review docs/SHOP-12", None),
        ("review SHOP-12.md", None),
        ("review SHOP-12.", "SHOP-12"),
        ("implement the plan: SHOP-12: a new page", "SHOP-12"),
        ("for #1, is there still a cycle?", None),
        ("do task T02 of the workplan AGENTIC-WP-0002", "AGENTIC-WP-0002-T02"),
        ("continue AGENTIC-WP-0002, task T02", "AGENTIC-WP-0002-T02"),
        ("continue AGENTIC-WP-0002-T02", "AGENTIC-WP-0002-T02"),
    ],
)
def test_a_task_is_found_in_the_first_request(tmp_path: Path, home: Home, prompt: str, expected: str | None) -> None:
    assert account(tmp_path, home, event("s", 1, text=prompt)).task_ref == expected


def test_a_key_that_a_request_only_mentions_counts_once_another_session_knows_its_project(
    tmp_path: Path, home: Home
) -> None:
    home.write("a", event("a", 1, text="the parser of ENT-7 is slow"))
    home.write("b", event("b", 1, text="hello"), SessionInfo("b", git_branch="alex/ent-221-state"))
    home.write("c", event("c", 1, text="a page of A4-2 paper and MIL-5"))

    rows = accounts(tmp_path, home)

    assert {name: row.task_ref for name, row in rows.items()} == {"a": "ENT-7", "b": "ENT-221", "c": None}


def test_a_branch_tells_the_task_before_a_commit_and_a_commit_before_the_request(tmp_path: Path, home: Home) -> None:
    request = event("s", 1, text="do ASK-1")
    commit = event("s", 2, TOOL_CALL, 'ran git commit -m "COM-2 done"', tool="shell")

    assert account(tmp_path / "1", home, request, commit, SessionInfo("s", git_branch="BR-3")).task_ref == "BR-3"
    assert account(tmp_path / "2", home, request, commit).task_ref == "COM-2"
    assert account(tmp_path / "3", home, request).task_ref == "ASK-1"


def test_of_a_tool_only_the_message_of_a_commit_tells_the_task(tmp_path: Path, home: Home) -> None:
    listed = event("s", 2, TOOL_CALL, '{"id": "ENT-217", "text": "run git commit to see it"}', tool="tracker")

    assert account(tmp_path, home, event("s", 1, text="hello"), listed).task_ref is None


def test_patterns_of_the_settings_replace_the_built_in_ones(tmp_path: Path, home: Home) -> None:
    store = tmp_path / "store"
    store.mkdir(mode=0o700)
    (store / "config.toml").write_text("[tasks]\npatterns = ['T\\d+']\n")
    home.write("s", event("s", 1, text="SHOP-1 is T42"))

    assert accounts(tmp_path, home)["s"].task_ref == "T42"


def test_changed_settings_reach_sessions_that_were_read_before(tmp_path: Path, home: Home) -> None:
    home.write("s", event("s", 1, text="SHOP-1 is T42"), SessionInfo("s", cwd="/home/x/shop"))
    assert accounts(tmp_path, home)["s"].task_ref == "SHOP-1"

    (tmp_path / "store" / "config.toml").write_text("[tasks]\npatterns = ['T\\d+']\n[domains]\nshop = 'sales'\n")
    found = accounts(tmp_path, home)["s"]

    assert (found.task_ref, found.domain) == ("T42", "sales")


def test_times_and_figures_are_those_of_the_sessions_own_events(tmp_path: Path, home: Home) -> None:
    home.write("base", event("base", 1, text="x", native_id="n"))
    home.write(
        "fork",
        event("fork", 1, text="x", native_id="n"),
        event("fork", 5),
        event("fork", 9, ASSISTANT_MSG),
        SessionInfo("fork", base_native_id="base"),
    )

    found = accounts(tmp_path, home)["fork"]

    assert (found.started_at, found.ended_at) == ("2026-11-15T18:00:05.000Z", "2026-11-15T18:00:09.000Z")
    assert (found.cost.wall_clock_s, found.cost.turns, found.message_count, found.event_count) == (4.0, 1, 3, 3)


def test_a_session_of_copies_only_has_their_times_and_no_work_of_its_own(tmp_path: Path, home: Home) -> None:
    home.write("base", event("base", 1, text="x", native_id="n"))
    home.write("fork", event("fork", 1, text="x", native_id="n"), SessionInfo("fork", base_native_id="base"))

    found = accounts(tmp_path, home)["fork"]

    assert (found.started_at, found.cost.turns) == ("2026-11-15T18:00:01.000Z", 0)


def test_the_model_is_that_of_the_last_answer_and_never_a_synthetic_one(tmp_path: Path, home: Home) -> None:
    answers = [event("s", n, ASSISTANT_MSG, model=model) for n, model in enumerate(("old", "new", "<synthetic>", None))]

    assert account(tmp_path, home, *answers, SessionInfo("s", model="of the settings")).model == "new"


def test_without_an_answer_the_model_is_that_of_the_settings(tmp_path: Path, home: Home) -> None:
    assert account(tmp_path, home, event("s", 1), SessionInfo("s", model="m")).model == "m"


def test_the_first_folder_and_the_last_branch_told_count(tmp_path: Path, home: Home) -> None:
    infos = [SessionInfo("s", cwd=f"/{n}", git_branch=f"branch {n}", agent_version=f"{n}.0") for n in (1, 2)]

    found = account(tmp_path, home, event("s", 1), *infos)

    assert (found.cwd, found.git_branch, found.agent_version) == ("/1", "branch 2", "2.0")


def test_infos_without_events_make_no_session(tmp_path: Path, home: Home) -> None:
    home.write("s", SessionInfo("s", title="nothing happened"), usage("s", "u", output_tokens=5))

    assert accounts(tmp_path, home) == {}


def test_the_hash_of_a_session_does_not_depend_on_how_it_was_cut_into_files(tmp_path: Path) -> None:
    events = [event("s", number) for number in range(1, 6)]
    whole, parts = Home(tmp_path / "whole"), Home(tmp_path / "parts")
    whole.write("s", *events)
    parts.write("a", *events[3:])
    parts.write("b", *events[:3])

    hashes = [accounts(tmp_path / str(number), home)["s"].content_hash for number, home in enumerate((whole, parts))]

    assert hashes[0] == hashes[1]


def test_tokens_times_the_price_list_are_an_estimate(tmp_path: Path, home: Home) -> None:
    found = account(tmp_path, home, event("s", 1), usage("s", "u", input_tokens=10_000, output_tokens=2_000))

    assert found.cost.usd == pytest.approx(0.03 + 0.03)
    assert found.cost.usd_is_estimate


def test_an_unknown_model_has_tokens_and_no_money(tmp_path: Path, home: Home) -> None:
    found = account(tmp_path, home, event("s", 1), usage("s", "u", model="nobody-knows-it-1", output_tokens=2_000))

    assert (found.cost.output_tokens, found.cost.usd, found.cost.usd_is_estimate) == (2_000, None, False)


_VIEWS = ["sessions --sort cost", "stats", "show", "doctor"]


def test_a_model_without_a_price_is_marked_wherever_money_is_shown(tmp_path: Path, home: Home) -> None:
    known, unknown = usage("s", "u1", output_tokens=2_000), usage("s", "u2", model="claude-zeta-9", output_tokens=9)
    home.write("s", event("s", 1, role="user"), known, unknown)
    with sweep(tmp_path / "store", home) as memory:
        (session,), total = memory.sessions(), memory.stats().total
        lines = memory.stats("model").lines
    shown = {name: CliRunner().invoke(main, [*name.split()]).output for name in _VIEWS}

    assert (session.cost.usd_is_estimate, session.cost.usd_is_incomplete) == (True, True)
    assert (total.usd_is_estimate, total.usd_is_incomplete) == (True, True)
    assert {line.name: (line.usd is None, line.usd_is_incomplete) for line in lines} == {
        KNOWN_MODEL: (False, False),
        "claude-zeta-9": (True, True),
    }
    assert [name for name, text in shown.items() if "~$0.03+" in text] == _VIEWS[:-1]
    assert "Model without a known price: claude-zeta-9" in shown["doctor"]


def test_money_that_an_agent_states_is_complete_whatever_its_model(tmp_path: Path, home: Home) -> None:
    found = account(tmp_path, home, event("s", 1), usage("s", "u", model="claude-zeta-9", output_tokens=9, usd=0.5))

    assert (found.cost.usd, found.cost.usd_is_incomplete) == (0.5, False)


def test_an_output_that_the_log_does_not_record_is_no_number(tmp_path: Path, home: Home) -> None:
    answer = event("s", 1, ASSISTANT_MSG, text="word " * 1_000, role="assistant")
    home.write("s", event("s", 0, role="user"), answer, usage("s", "u", output_tokens=8))
    with sweep(tmp_path / "store", home):
        shown = CliRunner().invoke(main, ["show"]).output

    assert "output not recorded" in shown
    assert "8 output tokens" not in shown


def test_answers_without_any_count_of_tokens_have_no_number_however_short_they_are(tmp_path: Path, home: Home) -> None:
    home.write("s", event("s", 0, role="user"), event("s", 1, ASSISTANT_MSG, text="done", role="assistant"))
    with sweep(tmp_path / "store", home) as memory:
        (session,) = memory.sessions()
        shown = CliRunner().invoke(main, ["show"]).output

    assert session.metadata["output_tokens"] == "not recorded"
    assert "output not recorded" in shown


def test_a_request_that_the_service_refused_has_no_output(tmp_path: Path, home: Home) -> None:
    refused = event("s", 1, ERROR, text="API Error: 400", role="assistant")
    found = account(tmp_path, home, event("s", 0, role="user"), refused)

    assert found.metadata == {}


def test_the_agents_own_money_is_no_estimate(tmp_path: Path, home: Home) -> None:
    found = account(tmp_path, home, event("s", 1), usage("s", "u", output_tokens=2_000, usd=0.5))

    assert (found.cost.usd, found.cost.usd_is_estimate) == (0.5, False)


def test_money_that_is_partly_estimated_says_so(tmp_path: Path, home: Home) -> None:
    told = [usage("s", "u1", output_tokens=2_000, usd=0.5), usage("s", "u2", output_tokens=2_000)]

    found = account(tmp_path, home, event("s", 1), *told)

    assert found.cost.usd == pytest.approx(0.53)
    assert found.cost.usd_is_estimate


def test_a_response_of_an_unknown_model_makes_the_sum_of_the_others_an_estimate(tmp_path: Path, home: Home) -> None:
    told = [usage("s", "u1", output_tokens=1, usd=0.5), usage("s", "u2", model="nobody-knows-it-1", output_tokens=9)]

    found = account(tmp_path, home, event("s", 1), *told)

    assert (found.cost.usd, found.cost.usd_is_estimate) == (0.5, True)


def _total(session: str, usd: float, at: int, ledger: str = "L") -> CostTotal:
    return CostTotal(session, ledger, at_ms(at), usd)


def test_of_a_running_total_the_highest_counts_and_not_the_sum(tmp_path: Path, home: Home) -> None:
    found = account(tmp_path, home, event("s", 1), _total("s", 0.1, 1), _total("s", 0.4, 2))

    assert (found.cost.usd, found.cost.usd_is_estimate) == (0.4, False)


def test_running_totals_of_two_ledgers_add_up(tmp_path: Path, home: Home) -> None:
    found = account(tmp_path, home, event("s", 1), _total("s", 0.1, 1), _total("s", 0.4, 2, "M"))

    assert found.cost.usd == 0.5


def _fork(home: Home, base: str, fork: str, begun: int) -> list[Record]:
    """A fork with the base's first request in it, and one of its own."""
    copy = event(fork, 1, text="x", native_id="n")
    return [copy, event(fork, begun), SessionInfo(fork, base_native_id=base)]


def test_a_fork_owes_what_its_total_grew_by_since_it_was_taken_over(tmp_path: Path, home: Home) -> None:
    home.write("base", event("base", 1, text="x", native_id="n"), _total("base", 4.0, 2), _total("base", 9.0, 20))
    home.write("fork", *_fork(home, "base", "fork", 10), _total("fork", 6.0, 12))

    found = accounts(tmp_path, home)

    assert (found["base"].cost.usd, found["fork"].cost.usd) == (9.0, 2.0)


def test_a_fork_with_a_ledger_of_its_own_owes_all_of_it(tmp_path: Path, home: Home) -> None:
    home.write("base", event("base", 1, text="x", native_id="n"), _total("base", 4.0, 2))
    home.write("fork", *_fork(home, "base", "fork", 10), _total("fork", 6.0, 12, "other"))

    assert accounts(tmp_path, home)["fork"].cost.usd == 6.0


def test_a_fork_of_a_fork_takes_off_the_nearest_total_only(tmp_path: Path, home: Home) -> None:
    home.write("a", event("a", 1, text="x", native_id="n"), _total("a", 4.0, 2))
    b_own = event("b", 10, text="y", native_id="m")
    home.write("b", event("b", 1, text="x", native_id="n"), b_own, SessionInfo("b", base_native_id="a"))
    home.append("b", _total("b", 7.0, 12))
    home.write("c", *_fork(home, "b", "c", 20), event("c", 10, text="y", native_id="m"), _total("c", 10.0, 22))

    found = accounts(tmp_path, home)

    assert {name: session.cost.usd for name, session in found.items()} == {"a": 4.0, "b": 3.0, "c": 3.0}


def _sub_agent(name: str, root: str) -> list[Record]:
    return [event(name, 2), SessionInfo(name, parent_native_id=root, root_native_id=root)]


def test_a_sub_agents_share_of_its_roots_figure_is_its_own(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), _total("root", 1.0, 5))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000))

    found = accounts(tmp_path, home)

    assert (found["root"].cost.usd, found["sub"].cost.usd) == (pytest.approx(0.97), pytest.approx(0.03))


def test_the_sub_agents_of_sub_agents_are_part_of_the_roots_figure(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), _total("root", 1.0, 5))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000))
    home.write("deep", event("deep", 3), SessionInfo("deep", parent_native_id="sub", root_native_id="root"))
    home.append("deep", usage("deep", "v", output_tokens=4_000))

    found = accounts(tmp_path, home)

    assert {name: session.cost.usd for name, session in found.items()} == {
        "root": pytest.approx(0.91),
        "sub": pytest.approx(0.03),
        "deep": pytest.approx(0.06),
    }


def test_a_roots_money_goes_down_when_its_sub_agent_is_read_later(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), _total("root", 1.0, 5))
    assert accounts(tmp_path, home)["root"].cost.usd == pytest.approx(1.0)

    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000))

    assert accounts(tmp_path, home)["root"].cost.usd == pytest.approx(0.97)


def test_responses_since_the_last_total_are_added_by_their_price(tmp_path: Path, home: Home) -> None:
    late = usage("s", "u2", ts_ms=at_ms(9), output_tokens=2_000)
    cost = account(tmp_path, home, event("s", 1), usage("s", "u1", output_tokens=500), _total("s", 1.0, 5), late).cost

    assert (cost.usd, cost.usd_is_estimate) == (pytest.approx(1.03), True)


def test_a_total_that_begins_at_0_in_an_old_session_never_loses_what_came_before(tmp_path: Path, home: Home) -> None:
    old = usage("s", "u1", ts_ms=at_ms(2), output_tokens=2_000)
    resumed = [usage("s", "u2", ts_ms=at_ms(11), output_tokens=1), _total("s", 0.5, 12, str(at_ms(10)))]

    cost = account(tmp_path, home, event("s", 1), old, *resumed).cost

    assert (cost.usd, cost.usd_is_estimate) == (pytest.approx(0.53), True)


def test_sub_agents_from_before_a_total_began_are_not_taken_off_it(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), _total("root", 0.5, 12, str(at_ms(10))))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", ts_ms=at_ms(3), output_tokens=2_000))

    found = accounts(tmp_path, home)

    assert (found["root"].cost.usd, found["sub"].cost.usd) == (0.5, pytest.approx(0.03))


def test_a_run_that_was_killed_between_two_totals_counts(tmp_path: Path, home: Home) -> None:
    killed, resumed = (usage("s", name, ts_ms=at_ms(at), output_tokens=2_000) for name, at in (("u1", 7), ("u2", 12)))
    ledger = str(at_ms(0))

    totals = _total("s", 0.5, 5, ledger), _total("s", 0.53, 13, ledger)
    cost = account(tmp_path, home, event("s", 1), totals[0], killed, resumed, totals[1]).cost

    assert (cost.usd, cost.usd_is_estimate) == (pytest.approx(0.56), True)


def test_a_sub_agent_of_a_root_without_a_figure_has_its_own(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), usage("root", "u0", output_tokens=1_000))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000))

    found = accounts(tmp_path, home)

    assert found["sub"].cost.usd == pytest.approx(0.03)
    assert found["root"].cost.usd == pytest.approx(0.015)


def test_tokens_that_include_sub_agents_are_counted_without_them(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), usage("root", "u0", output_tokens=5_000, includes_sub_agents=True))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000))

    found = accounts(tmp_path, home)

    assert (found["root"].cost.output_tokens, found["sub"].cost.output_tokens) == (3_000, 2_000)


def test_money_of_tokens_that_include_sub_agents_is_not_counted_twice(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), usage("root", "u0", output_tokens=5_000, includes_sub_agents=True))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000))

    found = accounts(tmp_path, home)

    assert sum(session.cost.usd or 0 for session in found.values()) == pytest.approx(5_000 * 15 / MILLION)


def test_an_agents_own_money_that_includes_sub_agents_is_not_counted_twice(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), usage("root", "u0", output_tokens=5_000, usd=1.0, includes_sub_agents=True))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000, usd=0.4))

    found = accounts(tmp_path, home)

    assert sum(session.cost.usd or 0 for session in found.values()) == pytest.approx(1.0)


def test_a_sub_agent_larger_than_its_roots_figure_makes_no_negative_tokens(tmp_path: Path, home: Home) -> None:
    home.write("root", event("root", 1), usage("root", "u0", output_tokens=10, includes_sub_agents=True))
    home.write("sub", *_sub_agent("sub", "root"), usage("sub", "u", output_tokens=2_000))

    assert accounts(tmp_path, home)["root"].cost.output_tokens == 0


def test_a_sub_agent_is_shown_below_its_root_as_soon_as_that_is_known(tmp_path: Path, home: Home) -> None:
    home.write("sub", event("sub", 2))
    assert accounts(tmp_path, home)["sub"].session_uid == f"{AGENT}:sub"

    home.append("sub", SessionInfo("sub", parent_native_id="mid"))
    home.write("mid", *_sub_agent("mid", "root"))
    home.write("root", event("root", 1))

    found = accounts(tmp_path, home)
    assert found["sub"].session_uid == f"{AGENT}:root/sub"
    assert found["sub"].parent_session_uid == found["mid"].session_uid == f"{AGENT}:root/mid"
    assert found["sub"].root_session_uid == f"{AGENT}:root"


def test_a_sweep_that_died_before_repositories_were_named_is_made_good_by_the_next(tmp_path: Path, home: Home) -> None:
    home.write("before", SessionInfo("before", cwd="/home/x/shop"), event("before", 1))
    assert accounts(tmp_path, home)["before"].repo == "shop"
    with open_store(tmp_path / "store") as store:
        remote = SessionInfo("s", cwd="/home/x/shop", git_remote="git@github.com:acme/shop.git")
        put(store, batch_of([event("s", 1), remote]))
        mark_copies(store)
        account_for(store, AccountRules(), lambda done, total: None)

    found = accounts(tmp_path, home)

    assert {name: session.repo for name, session in found.items()} == dict.fromkeys(
        ("before", "s"), "github.com/acme/shop"
    )


def test_a_session_found_to_be_a_sub_agent_works_where_its_root_does(tmp_path: Path, home: Home) -> None:
    home.write("root", SessionInfo("root", cwd="/home/x/shop"), event("root", 1))
    home.write("sub", SessionInfo("sub", cwd="/tmp/scratch"), event("sub", 2))
    assert accounts(tmp_path, home)["sub"].repo == "scratch"

    home.append("sub", SessionInfo("sub", parent_native_id="root"))

    assert accounts(tmp_path, home)["sub"].repo == "shop"


def test_a_side_file_may_be_called_what_it_likes(tmp_path: Path, home: Home) -> None:
    names = ("rewind_to.txt", "other.txt")
    files = [event("s", n, LIFECYCLE, lane=FILES_LANE, metadata={"file": name}) for n, name in enumerate(names)]

    assert account(tmp_path, home, *files).event_count == 2
