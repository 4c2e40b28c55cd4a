"""What was decided is known with its alternatives, and holds until something takes its place."""

import json
from pathlib import Path

import pytest
from msgspec import structs

from recollect import analysis
from recollect.api import Memory
from recollect.knowledge import asking
from recollect.knowledge.asking import fact_of
from recollect.model import schema
from recollect.model.errors import NotFound
from recollect.model.schema import to_json
from recollect.recall import Filters
from tests.conftest import REPOSITORY
from tests.knowledge.sessions import Script, remembered
from tests.knowledge.test_fixes import met_and_fixed
from tests.test_api import breaches

QUESTION = "Which store should keep the sessions?"


def chosen(name: str, day: int, answer: str) -> Script:
    return Script(name, day).user("plan the session store").ask(QUESTION, ["Redis", "Postgres"], answer)


def texts(facts: list) -> list[str]:  # type: ignore[type-arg]
    return [fact.object for fact in facts]


def test_an_answer_is_a_decision_with_the_options_not_taken(tmp_path: Path) -> None:
    decision = remembered(tmp_path, chosen("one", 0, "Redis")).knowledge.decisions()[0]

    assert (decision.subject, decision.object, decision.alternatives) == (QUESTION, "Redis", ("Postgres",))
    assert decision.by == "user"
    assert decision.evidence


def test_an_option_taken_in_other_words_was_not_turned_down(tmp_path: Path) -> None:
    answer = "store it explicit, but condense it"
    script = (
        Script("own").user("plan").ask("How is the phase known?", ["Infer from fields", "Store as explicit"], answer)
    )

    assert remembered(tmp_path, script).knowledge.decisions()[0].alternatives == ("Infer from fields",)


def test_a_reversed_decision_gives_both_truths_by_date(tmp_path: Path) -> None:
    memory = remembered(tmp_path, chosen("later", 10, "Postgres"), chosen("first", 0, "Redis"))

    assert texts(memory.knowledge.decisions()) == ["Postgres"]
    assert texts(memory.knowledge.decisions(as_of="2026-10-18")) == ["Redis"]
    assert texts(memory.knowledge.decisions(as_of="2026-10-01")) == []
    old = next(fact for fact in memory.knowledge.decisions(history=True) if fact.object == "Redis")
    new = memory.knowledge.decisions()[0]
    assert (old.invalid_at, old.superseded_by) == (new.valid_at, new.fact_uid)


def test_what_the_user_demands_is_a_preference_with_its_reason(tmp_path: Path) -> None:
    script = Script("demand").user(
        "Use Postgres instead of Redis because serverless functions cannot keep connections."
    )

    fact = remembered(tmp_path, script).knowledge.decisions()[0]

    assert (fact.choice, fact.alternatives) == ("Postgres", ("Redis",))
    assert fact.reason == "serverless functions cannot keep connections"


@pytest.mark.parametrize(
    "words",
    [
        "This causes the counter to always return 0, which is wrong.",
        "Should we use Postgres instead of Redis?",
        "never mind",
        "The function is never called anywhere in the code.",
        "but we only commit to the branch if files change, right?",
        "` has 3 occurrences, you should make it a constant (goconst)",
        "Plan: Fix: the review never triggers when a session is closed",
    ],
)
def test_a_description_or_a_question_is_no_preference(tmp_path: Path, words: str) -> None:
    assert remembered(tmp_path, Script("said").user(words).agent("I see.")).knowledge.decisions() == []


def test_an_option_picked_by_its_number_is_a_decision(tmp_path: Path) -> None:
    script = (
        Script("pick")
        .user("how can we do it?")
        .agent("Options:\n1. Traverse the whole history\n2. Show the author in the detail view only\nWhich one?")
        .user("ok, option 2, detail view only for now")
        .agent("Done.")
    )

    fact = remembered(tmp_path, script).knowledge.decisions()[0]

    assert fact.object == "Show the author in the detail view only"
    assert fact.alternatives == ("Traverse the whole history",)


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ("## Option A: Change the default\n1. one line\n2. no doc\n## Option B: No prompt\nB is cleaner.", "Yes, do B"),
        ("| Option | |\n|---|---|\n| **A. Change the default** | small |\n| **B. No prompt** | clean |", "I think B"),
        ("1. Change the default\n2. No prompt\n\nOption 2 is cleaner. Want me to make that change?", "yes please"),
    ],
)
def test_options_are_found_in_headings_and_tables_and_by_a_yes(tmp_path: Path, answer: str, reply: str) -> None:
    script = Script("pick").user("how can we do it?").agent(answer).user(reply).agent("Done.")

    (fact,) = remembered(tmp_path, script).knowledge.decisions()

    assert fact.method == "pick"
    assert fact.object.startswith("No prompt")
    assert [one.partition(":")[0] for one in fact.alternatives] == ["Change the default"]


def picked(answer: str, reply: str) -> Script:
    return Script("pick").user("how can we do it?").agent(answer).user(reply).agent("Done.")


def test_a_picked_option_comes_with_the_question(tmp_path: Path) -> None:
    answer = (
        "**How should the importer find its rows?**\n\n1. From the plan\n2. A combination of them\n\nWhat do you think?"
    )

    (fact,) = remembered(tmp_path, picked(answer, "1")).knowledge.decisions()

    assert fact.text == "From the plan (picked from 2 options, asked: “How should the importer find its rows?”)"


@pytest.mark.parametrize(
    ("answer", "reply", "choice"),
    [
        ("1. By name\n2. By folder\n3. All of the above\nWhich?", "3", "All of the above: By name; By folder"),
        ("1. Browse by keys\n2. Fold the details\nWhich?", "1 and 2", "Browse by keys; Fold the details"),
    ],
)
def test_what_was_picked_is_no_alternative(tmp_path: Path, answer: str, reply: str, choice: str) -> None:
    (fact,) = remembered(tmp_path, picked(answer, reply)).knowledge.decisions()

    assert (fact.object, fact.alternatives) == (choice, ())


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("What typically leads to the duplicates?", "1"),
        ("What would you like to brainstorm today?", "B)"),
        ("Which of the ways do we take?", "the problem with 2. is that it takes long"),
    ],
)
def test_a_diagnosis_an_opening_and_an_objection_pick_nothing(tmp_path: Path, question: str, reply: str) -> None:
    marks = "AB" if reply.startswith("B") else "12"
    answer = f"{question}\n\n{marks[0]}. Nobody knows of the helper\n{marks[1]}. The helper has a poor name"

    assert remembered(tmp_path, picked(answer, reply)).knowledge.decisions() == []


def test_a_refused_plan_is_named(tmp_path: Path) -> None:
    call = {"tool": "ExitPlan", "call_id": "plan-call"}
    script = Script("plan").user("plan it")
    plan = {"input": {"plan": "# Plan: Keep carts in Redis\nUse it."}}
    script._add(schema.TOOL_CALL, "proposed a plan:", plan, role="assistant", **call)
    said = {"output": "never use Redis in this repo"}
    script._add(
        schema.HUMAN_INTERVENTION, "refused: never use Redis in this repo", said, role="user", status="denied", **call
    )

    (fact,) = remembered(tmp_path, script.agent("ok")).knowledge.decisions()

    assert fact.text == "never use Redis in this repo (instead of: the plan “Keep carts in Redis”)"


@pytest.mark.parametrize(
    ("plan", "aim"),
    [
        (
            "The import breaks on empty rows.\n\n**The fix:** Skip the rows without a name.\n",
            "Skip the rows without a name.",
        ),
        (
            "This breaks the import.\n\n## Changes\n\n### 1. Add `has_name` to the reader of rows\n",
            "Add `has_name` to the reader of rows",
        ),
        (
            "It is slow.\n\n### 1. Add a cache of all rows in memory\n\n### 2. Remove the second read of the rows\n",
            "Add a cache of all rows in memory; Remove the second read of the rows",
        ),
        ("This breaks the import of the whole shop.\n", None),
    ],
)
def test_a_plan_says_what_will_be_done_and_the_fault_is_its_reason(tmp_path: Path, plan: str, aim: str | None) -> None:
    script = Script("plan").user(f"Implement the following plan:\n\n# Import all shops\n\n{plan}").agent("Done.")

    (fact,) = remembered(tmp_path, script).knowledge.decisions()

    assert fact.text == "Plan to implement: Import all shops" + (f" ({aim})" if aim else "")


def agreed(reply: str, *, offer: str = "Both names work. Want me to rename it?") -> Script:
    script = Script("agreed").user("What do you think of calling it cleanup?").agent(offer).user(reply)
    return script.edit("cmd/clean.go", "clean", "cleanup").agent("Done.")


def test_a_yes_to_what_the_agent_offered_is_a_decision(tmp_path: Path) -> None:
    (fact,) = remembered(tmp_path, agreed("yes, do it")).knowledge.decisions()

    assert (fact.method, fact.by) == ("agreement", "user")
    assert "calling it cleanup" in fact.subject
    assert fact.object == "Both names work. Want me to rename it?"


def test_an_agreement_says_what_was_offered(tmp_path: Path) -> None:
    offer = "The prefix is wrong on Windows. Drop it. It is dead. Want me to make this change?"

    (fact,) = remembered(tmp_path, agreed("yes, do it", offer=offer)).knowledge.decisions()

    assert fact.object == offer


def test_a_standing_demand_may_be_about_a_step(tmp_path: Path) -> None:
    script = Script("said").user("Always run the linter before you commit").agent("I will.")

    (fact,) = remembered(tmp_path, script).knowledge.decisions()

    assert (fact.object, fact.confidence) == ("Always run the linter before you commit", 0.8)


def test_what_would_happen_otherwise_is_a_reason_with_that_word(tmp_path: Path) -> None:
    script = Script("said").user("Never push by force, otherwise the reviews are lost").agent("I see.")

    assert remembered(tmp_path, script).knowledge.decisions()[0].reason == "otherwise the reviews are lost"


@pytest.mark.parametrize(
    "script",
    [
        agreed("yes", offer="All tests pass. Should I commit this?"),
        agreed("why?"),
        Script("said").user("rename it?").agent("Want me to rename it?").user("yes").agent("I would call it cleanup."),
    ],
)
def test_a_yes_to_a_step_or_without_a_change_decides_nothing(tmp_path: Path, script: Script) -> None:
    assert remembered(tmp_path, script).knowledge.decisions() == []


def test_a_plan_written_to_a_file_has_its_title(tmp_path: Path) -> None:
    script = Script("plan").user("plan it").edit("/home/ann/plans/calm-tree.md", "", "# Plan: Keep sessions in Redis\n")
    call = {"tool": "ExitPlan", "call_id": "plan-call"}
    script._add(schema.TOOL_CALL, "proposed a plan:", {"input": {}}, role="assistant", **call)
    script._add(schema.DECISION, "approved the plan", {"output": "approved"}, role="user", status="ok", **call)

    assert texts(remembered(tmp_path, script).knowledge.decisions()) == ["Keep sessions in Redis"]


def test_what_is_remembered_holds_until_the_same_topic_is_remembered_anew(memory: Memory) -> None:
    memory.knowledge.remember("We use npm", topic="package manager")
    memory.knowledge.remember("We use pnpm", topic="package manager")
    memory.knowledge.remember("We use pnpm", topic="package manager")

    assert texts(memory.knowledge.decisions()) == ["We use pnpm"]
    assert texts(memory.knowledge.decisions(history=True)) == ["We use pnpm", "We use npm"]


def test_a_file_of_decisions_is_imported_once(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "DECISIONS.md"
    file.write_text(
        "# Storage\n- 2026-01-05 **Sessions**: kept in Postgres\n- no Redis, the functions are serverless\n"
    )

    added = memory.knowledge.import_decisions(file), memory.knowledge.import_decisions(file)

    assert added == (2, 0)
    assert texts(memory.knowledge.decisions(as_of="2026-01-06")) == ["kept in Postgres"]
    assert texts(memory.knowledge.why("why no redis")) == ["no Redis, the functions are serverless"]


def test_all_items_below_a_heading_are_decisions_that_hold(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "DECISIONS.md"
    file.write_text("# Decisions\n\n- 2026-10-01: We use PostgreSQL.\n- 2026-10-02: We use pnpm.\n")

    memory.knowledge.import_decisions(file)

    assert texts(memory.knowledge.decisions()) == ["We use pnpm.", "We use PostgreSQL."]


def test_rejected_stays_rejected_when_facts_are_derived_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = remembered(tmp_path, chosen("one", 0, "Redis"))
    fact = memory.knowledge.decisions()[0]

    memory.knowledge.judge(fact.fact_uid[:8], "rejected")
    monkeypatch.setattr(analysis, "VERSION", analysis.VERSION + 1)
    memory.sweep()

    assert memory.knowledge.decisions() == []
    assert memory.knowledge.audit().rejected == 1
    with pytest.raises(NotFound):
        memory.knowledge.judge("ffffffff", "pinned")


def test_facts_and_fixes_follow_their_schemas(tmp_path: Path) -> None:
    schemas = {
        name: json.loads((REPOSITORY / "docs" / "schemas" / f"{name}.json").read_text()) for name in ("fact", "fix")
    }
    memory = remembered(tmp_path, chosen("one", 0, "Redis"), met_and_fixed())
    memory.knowledge.remember("We use pnpm")

    facts = [to_json(fact) for fact in [*memory.knowledge.decisions(), *memory.knowledge.why("pool connection")]]
    fixes = [to_json(fix) for fix in memory.knowledge.fixes("pool.Timeout: no connection within 1 ms")]

    assert facts and fixes
    found = [("fact", one) for one in facts] + [("fix", one) for one in fixes]
    assert [text for name, one in found for text in breaches(schemas[name], json.loads(json.dumps(one)))] == []


def test_decisions_of_one_repository_only(tmp_path: Path) -> None:
    other = (
        Script("other", 1, repo="github.com/acme/blog", cwd="/srv/blog").user("plan").ask(QUESTION, ["A", "B"], "A one")
    )
    memory = remembered(tmp_path, chosen("one", 0, "Redis"), other)

    assert texts(memory.knowledge.decisions(Filters(repo="blog"))) == ["A one"]


def test_decisions_of_a_period_know_what_took_their_place_later(tmp_path: Path) -> None:
    memory = remembered(tmp_path, chosen("later", 10, "Postgres"), chosen("first", 0, "Redis"))

    def decided(**options: str) -> list[str]:
        return texts(memory.knowledge.decisions(Filters(**options), history=True))

    assert decided(before="2026-10-20") == ["Redis"]
    assert decided(since="2026-10-20") == ["Postgres"]
    assert texts(memory.knowledge.decisions(Filters(before="2026-10-20"))) == []


def test_commits_are_listed_only_if_everything_is_asked_for(tmp_path: Path) -> None:
    commit = "git commit -m 'Keep sessions in Redis'"
    script = chosen("one", 0, "Redis").run(commit, "[main 1a2b3c4] Keep sessions in Redis\n 1 file changed")
    memory = remembered(tmp_path, script)

    assert texts(memory.knowledge.decisions()) == ["Redis"]
    assert texts(memory.knowledge.decisions(everything=True)) == ["Keep sessions in Redis", "Redis"]


def test_a_decision_without_a_time_holds_since_its_session_began_and_not_before(tmp_path: Path) -> None:
    script = chosen("one", 0, "Redis")
    script.records = [structs.replace(one, ts_ms=None) if hasattr(one, "ts_ms") else one for one in script.records]
    memory = remembered(tmp_path, script)

    assert texts(memory.knowledge.decisions(as_of="2026-10-01")) == []
    assert texts(memory.knowledge.decisions()) == ["Redis"]


def test_what_says_the_same_again_at_once_is_one_decision(tmp_path: Path) -> None:
    script = (
        chosen("one", 0, "Redis").ask(QUESTION, ["Redis", "Postgres"], "Redis").ask(QUESTION, ["Redis"], "Postgres")
    )
    memory = remembered(tmp_path, script.ask(QUESTION, ["Redis"], "Redis"))

    assert texts(memory.knowledge.decisions(history=True)) == ["Redis", "Postgres", "Redis"]


def test_the_newest_decisions_are_found_without_reading_older_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = ["Redis", "Postgres", "Redis", "Postgres"]
    about = [Script(f"other-{day}", day).user("go on").ask(f"Which port {day}?", ["1", "2"], "1") for day in range(20)]
    memory = remembered(tmp_path, *about, *(chosen(f"s{n}", 30 + n, answer) for n, answer in enumerate(answers)))
    made: list[str] = []
    monkeypatch.setattr(asking, "fact_of", lambda stored: (made.append(stored.fact_uid), fact_of(stored))[1])

    for options in ({}, {"history": True}, {"as_of": "2026-10-20"}):
        whole = memory.knowledge.decisions(**options)
        assert [memory.knowledge.decisions(**options, limit=limit) for limit in (1, 3, 99)] == [
            whole[:1],
            whole[:3],
            whole,
        ]
    made.clear()
    memory.knowledge.decisions(limit=1)
    assert len(made) <= 8


def test_own_words_in_answer_to_what_comes_next_are_a_decision(tmp_path: Path) -> None:
    question = "Plan ready. What would you like to do next?"
    script = (
        Script("own").user("plan").ask(question, ["Start", "Review"], "property called telemetry instead of enabled")
    )

    assert texts(remembered(tmp_path, script).knowledge.decisions())[0].startswith("property called telemetry")
