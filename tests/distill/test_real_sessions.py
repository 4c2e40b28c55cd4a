"""Every session of real agents that is at hand: distilled without a crash, within the limits, with true quotes."""

import re
import statistics
from pathlib import Path

import pytest

from recollect import Memory, Session
from recollect.analysis import VERSION
from recollect.digest.markdown import render_digest, write_digest
from recollect.model.errors import NotFound
from recollect.model.schema import OUTCOMES, Digest
from recollect.store import open_store
from tests.conftest import SHARED, needs_shared, swept

pytestmark = needs_shared


def _homes() -> list[str]:
    genuine = [folder for folder in sorted((SHARED / "genuine").glob("*-*")) if folder.is_dir()]
    known = [(folder.name.split("-")[0], folder) for folder in genuine]
    homes = [f"{agent}={folder / f'.{agent}'}" for agent, folder in known if agent in ("claude", "codex", "grok")]
    corpus = [(agent, home) for agent in ("claude", "codex") for home in sorted(SHARED.glob(f"corpus/{agent}/*"))]
    return homes + [f"{agent}={home}" for agent, home in corpus]


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Memory:
    return swept(tmp_path_factory.mktemp("store"), *_homes())


def _digests(memory: Memory) -> list[tuple[Session, Digest]]:
    found = []
    for session in memory.sessions():
        try:
            found.append((session, memory.digest(session)))
        except NotFound:
            assert session.parent_session_uid is not None  # only a sub-agent may be a line of its root's
    return found


def test_every_session_is_distilled(memory: Memory) -> None:
    digests = _digests(memory)

    assert len(digests) > 100
    for session, digest in digests:
        assert digest.covers.event_count == session.event_count
        assert session.outcome in OUTCOMES
        assert session.outcome == digest.outcome.outcome
        assert render_digest(digest)


def test_digests_are_small(memory: Memory) -> None:
    sizes = [len(write_digest(digest)) for _, digest in _digests(memory)]

    assert statistics.median(sizes) <= 8 * 1024
    assert max(sizes) <= 16 * 1024


def test_every_event_a_digest_cites_exists_and_says_so(memory: Memory) -> None:
    for session, digest in _digests(memory):
        events = {event.event_uid: event for event in memory.events(session, with_copies=True)}
        for quote in (*digest.requests[1:], *digest.errors, *digest.decisions, *digest.snippets):
            summary = " ".join(events[quote.event_uid].summary.split())
            assert quote.text.rstrip("…")[:40] in summary


def test_the_mark_behind_a_quote_on_the_page_is_that_of_one_event(memory: Memory) -> None:
    for session, digest in _digests(memory):
        uids = [event.event_uid for event in memory.events(session, with_copies=True)]
        for mark in re.findall(r" `([0-9a-f]{12})`$", render_digest(digest), re.MULTILINE):
            assert len([uid for uid in uids if uid.endswith(mark)]) == 1


def test_counts_are_those_of_the_events(memory: Memory) -> None:
    for session, digest in _digests(memory):
        events = memory.events(session, with_copies=True)
        own = [event for event in events if event.copy_of is None and event.lane != "files"] or [
            event for event in events if event.lane != "files"
        ]
        asked = [event for event in own if event.kind == "user_msg" and not event.is_abandoned]
        errors = [event for event in own if event.kind == "error" and event.role != "user"]
        assert digest.request_count <= len(asked) or digest.requests[0].text.startswith("/")
        assert digest.error_count <= len(errors)


def test_the_same_sessions_give_the_same_digests(memory: Memory, tmp_path: Path) -> None:
    again = swept(tmp_path / "store", *reversed(_homes()))

    assert {s.session_uid: d for s, d in _digests(again)} == {s.session_uid: d for s, d in _digests(memory)}


def test_nothing_is_left_to_do_after_a_sweep(memory: Memory) -> None:
    with open_store(memory.settings.folder) as store:
        assert store.digest_rows.pending(VERSION) == []
        assert not store.digest_rows.has_outdated(VERSION)
