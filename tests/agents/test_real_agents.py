"""Sessions of the real agents are in the store whole, whatever happened in them and whenever they were read."""

import json
from dataclasses import replace
from pathlib import Path

from recollect.api import Memory
from recollect.model.schema import (
    ASSISTANT_MSG,
    AUTOMATION,
    COMPLETION,
    EDIT,
    ERROR,
    HUMAN_INTERVENTION,
    OTHER,
    SUB_AGENT,
    TEST_RUN,
    TOOL_CALL,
    USER_MSG,
    Event,
    Session,
    session_uid,
)
from tests.agents.conftest import COMMIT, DELEGATE, FIX, GREET, GREET_AGAIN, SLOW, Run

# The last words of the scripted model.
FIXED = "Fixed. `add()` in calc.py used `-` instead of `+`; after the edit all 3 tests pass. "
FIXED += "Decision: the public signature stays, the tests were right."
HELLO = "Hello! Привет, 世界 👋 — naïve café. I am ready to help with this repository."
COMMITTED = "Committed."
TASK = "SUBTASK-COUNT: count the Python files in this directory and report the number."
COUNTED = "SUBRESULT: 3 Python files (boom.py, calc.py, test_calc.py)."
DELEGATED = "The sub-agent reports: there are 3 Python files."

STEPS_OF_SESSION = {
    "fixed": ("fixed", "resumed", "resumed after the fork"),
    "crashed": ("crashed",),
    "forked": ("forked",),
}
STEP_BEFORE = {"resumed": "fixed", "forked": "resumed", "resumed after the fork": "resumed"}


def _session(memory: Memory, run: Run, step: str) -> Session:
    return memory.session(session_uid(run.real.agent, run.ids[step]))


def _texts(memory: Memory, session: Session, kind: str) -> list[str]:
    return [payload["text"] for payload in memory.payloads(session, memory.events(session, kind, with_copies=True))]


def _result_of(call: Event, events: list[Event]) -> Event:
    (result,) = [event for event in events if event.call_id == call.call_id and event.role != "assistant"]
    return result


def test_a_session_has_its_prompts_and_final_answers_in_order(memory_of_run: Memory, run: Run) -> None:
    session = _session(memory_of_run, run, "fixed")

    prompts = _texts(memory_of_run, session, USER_MSG)
    answers = _texts(memory_of_run, session, COMPLETION)

    assert prompts == [FIX, GREET, GREET_AGAIN]
    assert answers == [FIXED, HELLO, HELLO]


def test_a_failing_test_run_an_edit_and_a_passing_test_run_follow_each_other(memory_of_run: Memory, run: Run) -> None:
    session = _session(memory_of_run, run, "fixed")

    events = memory_of_run.events(session, with_copies=True)

    calls = [event for event in events if event.kind in (TEST_RUN, EDIT)]
    assert [call.kind for call in calls] == [TEST_RUN, EDIT, TEST_RUN]
    assert [_result_of(call, events).status for call in calls] == ["failed", "ok", "ok"]
    assert _result_of(calls[0], events).summary.startswith("exit 1")
    assert not any(event.is_retry for event in events)


def test_failed_commands_are_errors_with_their_exit_codes(memory_of_run: Memory, run: Run) -> None:
    session = _session(memory_of_run, run, "crashed")

    events = memory_of_run.events(session, with_copies=True)

    commands = [_last_call_with(memory_of_run, session, text) for text in ("boom.py", "definitely-not", "sys.exit(3)")]
    results = [_result_of(command, events) for command in commands]
    assert [(result.kind, result.status, result.is_error) for result in results] == [(ERROR, "failed", True)] * 3
    assert [result.summary.partition(":")[0] for result in results] == ["exit 1", "exit 127", "exit 3"]


def test_a_file_that_is_not_there_and_an_edit_that_does_not_apply_are_errors(memory_of_run: Memory, run: Run) -> None:
    session = _session(memory_of_run, run, "crashed")

    read = _last_call_with(memory_of_run, session, "no/such/file.py")
    edit = _last_call_with(memory_of_run, session, "this text is not in the file")

    events = memory_of_run.events(session, with_copies=True)
    assert _result_of(read, events).kind == ERROR
    assert _result_of(edit, events).kind == ERROR
    assert edit.kind == (TOOL_CALL if run.real.has_scripts_for_tools else EDIT)


def _last_call_with(memory: Memory, session: Session, text: str) -> Event:
    """The innermost call that has the text in its input: a script's commands come after the script."""
    calls = memory.events(session, TOOL_CALL)
    inputs = memory.payloads(session, calls)
    return [call for call, payload in zip(calls, inputs, strict=True) if text in json.dumps(payload["input"])][-1]


def test_a_sub_agent_is_a_session_of_its_own_under_its_root(memory_of_run: Memory, run: Run) -> None:
    root = _session(memory_of_run, run, "delegated")

    (child,) = memory_of_run.sub_agents(root)

    assert child.session_class == SUB_AGENT
    assert child.root_session_uid == child.parent_session_uid == root.session_uid
    assert child.session_uid.startswith(f"{root.session_uid}/")
    assert _texts(memory_of_run, child, COMPLETION) == [COUNTED]
    assert _texts(memory_of_run, root, COMPLETION) == [DELEGATED]
    assert _texts(memory_of_run, root, USER_MSG) == [DELEGATE]


def test_a_sub_agent_is_told_where_it_was_spawned(memory_of_run: Memory, run: Run) -> None:
    root = _session(memory_of_run, run, "delegated")
    (child,) = memory_of_run.sub_agents(root)

    told = list(memory_of_run.transcript(root))

    (spawn,) = [item for item in told if item.event.call_id == child.spawn_call_id and item.event.role == "assistant"]
    inside = [position for position, item in enumerate(told) if item.depth == 1]
    (answer,) = [position for position, item in enumerate(told) if item.payload.get("text") == DELEGATED]
    assert TASK in json.dumps(spawn.payload["input"])
    assert inside == list(range(inside[0], inside[0] + child.event_count))
    assert told.index(spawn) < inside[0] < inside[-1] < answer


def test_an_interruption_is_a_human_intervention(memory_of_run: Memory, run: Run) -> None:
    session = _session(memory_of_run, run, "interrupted")

    events = memory_of_run.events(session, with_copies=True)

    interventions = [event for event in events if event.kind == HUMAN_INTERVENTION]
    assert [event.status for event in interventions].count("interrupted") == 1
    assert {event.role for event in interventions} == {"user"}
    assert interventions[0].position > _slow_call(events).position
    assert _texts(memory_of_run, session, USER_MSG) == [SLOW]
    assert not memory_of_run.events(session, COMPLETION)
    assert not memory_of_run.events(session, ERROR)


def _slow_call(events: list[Event]) -> Event:
    return next(event for event in events if event.kind == TOOL_CALL and "sleep 45" in event.summary)


def test_a_session_whose_agent_was_killed_is_there_up_to_its_end(memory_of_run: Memory, run: Run) -> None:
    session = _session(memory_of_run, run, "killed")

    events = memory_of_run.events(session, with_copies=True)

    assert _slow_call(events)
    assert _texts(memory_of_run, session, USER_MSG) == [SLOW]
    assert _texts(memory_of_run, session, ASSISTANT_MSG) == ["This takes a while."]
    assert not [event for event in events if event.kind == HUMAN_INTERVENTION or event.is_error]


def test_a_resumed_turn_is_in_the_same_session(memory_of_run: Memory, run: Run) -> None:
    session = _session(memory_of_run, run, "fixed")

    assert run.ids["resumed"] == run.ids["resumed after the fork"] == run.ids["fixed"]
    assert session.cost.turns == 3
    assert not [event for event in memory_of_run.events(session, with_copies=True) if event.copy_of]


def test_a_fork_is_whole_and_what_it_took_over_is_no_second_original(memory_of_run: Memory, run: Run) -> None:
    base = _session(memory_of_run, run, "fixed")

    fork = _session(memory_of_run, run, "forked")

    events = memory_of_run.events(fork, with_copies=True)
    own = [event for event in events if not event.copy_of]
    originals = {event.event_uid: event.summary for event in memory_of_run.events(base, with_copies=True)}
    taken = [(event.copy_of, event.summary) for event in events if event.copy_of]
    assert fork.session_uid != base.session_uid
    assert fork.cost.turns == 1
    assert [event.summary for event in own if event.kind in (USER_MSG, COMPLETION)] == [COMMIT, COMMITTED]
    assert [originals[uid] for uid, _ in taken if uid] == [summary for _, summary in taken]
    if run.real.forks_by_reference:
        assert (fork.base_session_uid, bool(fork.base_end), taken) == (base.session_uid, True, [])
    else:
        assert _texts(memory_of_run, fork, USER_MSG) == [FIX, GREET, COMMIT]


def test_who_worked_where_with_what_is_known(memory_of_run: Memory, run: Run, agents_folder: Path) -> None:
    sessions = {step: _session(memory_of_run, run, step) for step in ("fixed", "crashed", "forked", "killed")}

    told = {
        (session.cwd, session.git_branch, session.model, session.agent_version, session.session_class)
        for session in sessions.values()
    }

    version_file = run.real.version_file
    version = json.loads((agents_folder / version_file).read_text())["version"] if version_file else None
    assert told == {(str(run.project), "main", run.real.model, version, AUTOMATION)}
    assert all(session.title and session.started_at and session.ended_at for session in sessions.values())


def test_tokens_are_what_the_agent_itself_reports(memory_of_run: Memory, run: Run) -> None:
    sessions = {name: _session(memory_of_run, run, name) for name in STEPS_OF_SESSION}

    told = {
        name: (session.cost.input_tokens, session.cost.cache_read_tokens, session.cost.output_tokens)
        for name, session in sessions.items()
    }

    expected = {
        name: tuple(map(sum, zip(*(_reported(run, step) for step in steps), strict=True)))
        for name, steps in STEPS_OF_SESSION.items()
    }
    assert told == expected


def _reported(run: Run, step: str) -> tuple[int, int, int]:
    """Input that was not cached, cached input and output of one step alone."""
    usage = run.usage[step]
    if not run.real.reports_running_totals:
        return usage["input_tokens"], usage["cache_read_input_tokens"], usage["output_tokens"]
    before = run.usage.get(STEP_BEFORE.get(step, ""), {})
    grown = {name: count - before.get(name, 0) for name, count in usage.items()}
    cached = grown["cached_input_tokens"]
    return grown["input_tokens"] - cached, cached, grown["output_tokens"]


def test_no_file_and_no_record_of_the_agent_is_unknown(memory_of_run: Memory, run: Run) -> None:
    events = [
        event for session in memory_of_run.sessions() for event in memory_of_run.events(session, with_copies=True)
    ]

    assert [event.summary for event in events if event.kind == OTHER] == []
    assert memory_of_run.problems() == []
    assert run.failures == []


def test_there_is_no_session_that_nobody_asked_for(memory_of_run: Memory, run: Run) -> None:
    found = {session.native_session_id for session in memory_of_run.sessions(roots_only=True)}

    assert found == set(run.ids.values())


def test_sweeping_between_steps_or_while_the_agent_writes_gives_what_one_sweep_gives(
    memory_of_run: Memory, run: Run
) -> None:
    with run.open("swept-often") as often, run.open("swept-all-the-time") as always:
        told = [_content(memory) for memory in (often, always)]

    expected = _content(memory_of_run)
    assert told[0] == expected
    assert told[1] == expected


def _content(memory: Memory) -> dict[str, tuple[Session, list[Event], list[str]]]:
    """Everything told of each session but for what says when, how far and in which order it was read."""
    return {
        session.session_uid: (
            replace(session, discovered_at=None, ingested_at=None, analyzed_at=None, sources=()),
            [replace(event, seq=0, payload_ref=None) for event in memory.events(session, with_copies=True)],
            [json.dumps(payload) for payload in memory.payloads(session, memory.events(session, with_copies=True))],
        )
        for session in memory.sessions()
    }


def test_no_file_of_a_home_in_use_is_taken_for_gone(run: Run) -> None:
    with run.open("swept-all-the-time") as memory:
        sources = [source for session in memory.sessions() for source in session.sources]

    assert sources
    assert [source.path for source in sources if source.source_gone_at] == []


def test_a_second_sweep_of_the_agents_home_reads_nothing(run: Run, tmp_path: Path) -> None:
    with run.open(str(tmp_path / "store")) as memory:
        memory.sweep()
        again = memory.sweep()

    assert (again.lines_read, again.events_new, again.events_replaced, again.sources_changed) == (0, 0, 0, 0)
