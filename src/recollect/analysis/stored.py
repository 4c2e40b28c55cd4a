"""What was distilled from a session, read back without the rules that distil: its digest, its exchanges, and the packet
of what a compaction's summary tends to lose."""

import re
from collections import Counter
from collections.abc import Iterator

from recollect import sessions
from recollect.digest import Exchange, ExchangeRules, cut, parse_digest
from recollect.knowledge import DECIDED, FIXED_BY, LEAST_CONFIDENCE, PREFERS, fact_of, with_ends
from recollect.model.errors import NotFound
from recollect.model.kinds import TEST_RUN, SessionKey
from recollect.model.schema import FILES_LANE, Digest, Session
from recollect.model.text import cut_short, payload_text
from recollect.recall import AGENT, USER, Recalled
from recollect.store import SessionFilter, Store


def find_digest(store: Store, session: Session) -> Digest:
    """The stored digest of a session; raises NotFound with what to do instead if it has none."""
    raw = store.digests.find(SessionKey(session.agent, session.native_session_id))
    if raw is not None:
        return parse_digest(raw)
    if session.analyzed_at is None:
        is_held = session.evicted_at is None
        advice = "`recollect sweep` makes it" if is_held else "`recollect retention rehydrate` reads it again"
        raise NotFound(f"No digest yet: {session.session_uid}", advice)
    raise NotFound(
        f"Too small for a digest of its own: {session.session_uid}",
        f"it is a line in the digest of {session.root_session_uid}",
    )


def find_exchanges(store: Store, session: Session, rules: ExchangeRules) -> list[Exchange]:
    """The exchanges of a session whose events are held; those that were dropped before them count."""
    key = SessionKey(session.agent, session.native_session_id)
    steps = [step for step in store.steps.of(key) if step.lane != FILES_LANE]
    payloads = store.steps.payloads(key, steps)
    pairs = ((step, payloads[step.event_uid]) for step in steps)
    return list(cut(session.session_uid, pairs, rules, store.digests.dropped_requests(*key)))


_COMMANDS, _FIXES, _STEPS, _RULES = 6, 3, 8, 8  # at most
_LINE_CHARS = 120
_BY_USER = ("demand", "answer", "pick", "plan")  # rules whose facts a user stands for
_LEAST_USES = 2  # of a command that is no check
_CHECK = re.compile(
    r"(?:^|\s)(?:\w+[:-])?(?:py)?(?:test|lint|build|check|vet|tsc|mypy|ruff|eslint|clippy|typecheck|validate)(?:[:-]\w+)*(?:\s|$)"
)
# Around the command itself: the folder first, what is kept of its output last.
_AROUND = re.compile(r"^(?:cd \S+ && )+|(?:\s*2>&1)?(?:\s*\|\s*(?:head|tail)(?: -n?\s?\d+)?)?\s*$")
# A pipe hides that a command failed, its output does not.
_FAILED = re.compile(
    r"(?m)^\s*(?:--- )?FAIL(?:ED)?\b|\bERROR task failed|^make: \*\*\*|^(?:error|fatal)\b|[1-9]\d* failed\b"
)
_LOOKS = re.compile(
    r"(?:ls|cat|head|tail|e?grep|rg|find|sed|awk|wc|echo|pwd|which|cd|sleep|rm|mkdir|cp|mv|touch|chmod|git|gh)\b|.*[|;]"
)


def make_packet(store: Store, session: Session) -> list[Recalled]:
    """The records of a session's packet, what is to be done first; none if there is nothing worth it."""
    try:
        digest = find_digest(store, session)
    except NotFound:
        return []
    failing = digest.open.failing_tests
    steps = [f"{todo.text} ({todo.note})" if todo.note else todo.text for todo in digest.open.todos[:_STEPS]]
    steps += [f"failed when it ran last: {failing.text.removeprefix('ran ')}"] if failing else []
    parts = (
        (USER, "what the user chose or wants throughout, the latest last:", list(_rules(store, session))[-_RULES:]),
        (AGENT, "open steps:", steps),
        (AGENT, "commands that worked here:", _commands(store, session)),
        (AGENT, "errors that were fixed, with their causes:", list(_fixes(store, session))[-_FIXES:]),
    )
    return [
        Recalled(origin, heading, "\n".join(f"- {cut_short(' '.join(line.split()), _LINE_CHARS)}" for line in lines))
        for origin, heading, lines in parts
        if lines
    ]


def _rules(store: Store, session: Session) -> Iterator[str]:
    """Wishes that are to last, chosen answers and approved plans."""
    for fact in with_ends(
        map(fact_of, store.facts.select((DECIDED, PREFERS), SessionFilter(uids=frozenset({session.session_uid}))))
    ):
        is_users = fact.method in _BY_USER and fact.by == "user"
        if is_users and fact.invalid_at is None and fact.confidence >= LEAST_CONFIDENCE:
            yield fact.text


def _commands(store: Store, session: Session) -> list[str]:
    """Checks that passed when they ran last, and what worked more than once; the latest last."""
    uses, failures, calls = Counter[str](), Counter[str](), dict[str, str]()
    checks, last = set[str](), dict[str, int]()
    for place, item in enumerate(sessions.iter_transcript(store, session, None)):
        given = item.payload.get("input")
        call = item.event.call_id
        if item.depth or not call:
            continue
        if isinstance(given, dict) and isinstance(given.get("command"), str):
            command = _AROUND.sub("", given["command"].strip())
            if "\n" not in command and len(command) <= _LINE_CHARS and not _LOOKS.match(command):
                calls[call] = command
                checks |= {command} if item.event.kind == TEST_RUN or _CHECK.search(command) else set()
        elif command := calls.pop(call, ""):
            failed = item.event.is_error or item.event.status in ("denied", "interrupted")
            failed = failed or _FAILED.search(payload_text(item.event.kind, item.payload)) is not None
            uses[command] += 1
            failures[command] += failed
            last.pop(command, None)
            last |= {} if failed else {command: place}
    worked = [command for command in last if command in checks or uses[command] - failures[command] >= _LEAST_USES]
    return sorted(worked, key=lambda command: last[command])[-_COMMANDS:]


def _fixes(store: Store, session: Session) -> Iterator[str]:
    """Errors whose cause was found; of those with one cause the first."""
    causes: dict[str, str] = {}
    for fact in store.facts.select((FIXED_BY,), SessionFilter(uids=frozenset({session.session_uid}))):
        if (why := fact.details.get("why")) and fact.confidence >= LEAST_CONFIDENCE:
            causes.setdefault(why, fact.details["headline"])
    for why, headline in causes.items():
        yield f"{cut_short(headline, 60)}: {why}"
