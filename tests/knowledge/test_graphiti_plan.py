"""Which exchanges become episodes; needs no extra."""

from datetime import timedelta
from pathlib import Path

from recollect.clock import as_datetime
from recollect.knowledge.graphiti.plan import iter_episodes, make_forecast
from tests.knowledge.sessions import Script, remembered


def test_the_last_exchange_waits_until_the_session_is_quiet(tmp_path: Path) -> None:
    script = Script("one").user("first request").agent("first answer").user("second request").agent("second answer")
    memory = remembered(tmp_path, script)
    (session,) = memory.sessions()
    ended = as_datetime(session.ended_at)
    assert ended is not None

    soon, later = (
        [episode.name for episode in iter_episodes(session, memory.exchanges(session), ended + timedelta(minutes=wait))]
        for wait in (30, 90)
    )

    assert soon == ["session-one-1"]
    assert later == ["session-one-1", "session-one-2"]


def test_a_long_exchange_is_one_episode_of_its_beginning_and_end(tmp_path: Path) -> None:
    script = Script("one").user("the request")
    for number in range(300):
        script.agent(f"step {number} of many, with a few more words to make it long")
    memory = remembered(tmp_path, script.agent("the conclusion"))
    (session,) = memory.sessions()
    ended = as_datetime(session.ended_at)
    assert ended is not None

    (episode,) = iter_episodes(session, memory.exchanges(session), ended + timedelta(days=1))

    assert episode.body.startswith("User: the request")
    assert episode.body.endswith("the conclusion")
    assert len(episode.body) <= 6_000
    assert make_forecast([episode], []).by_session == {session.session_uid: episode.forecast_tokens}
