"""A digest as a page to read. What is quoted is data: it can neither link nor load nor format the page."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo

from recollect.distill.texts import clean, one_line
from recollect.schema import Asked, Digest, OpenEnds, Quote, RanTests, Tally

_ACTIVE = re.compile(r"[\\\[\]<`|]")
_ADDRESS = re.compile(r"(?<=:)//|(?<=www)\.|@(?=\w)")
_LEADING = re.compile(r"^(\s*\d*)([#>+=~.)-])")
_UID_CHARS = 12  # of its end: all events of a session begin alike


def render(digest: Digest, zone: tzinfo | None = UTC) -> str:
    """The digest as Markdown, with times in a zone that it names; None is the user's own."""
    return "\n".join(_lines(digest, zone)).rstrip() + "\n"


def _lines(digest: Digest, zone: tzinfo | None) -> Iterator[str]:
    yield f"# {inert(digest.title or digest.session_uid)}\n"
    yield f"`{one_line(digest.session_uid).replace('`', '')}` · {' · '.join(_facts(digest, zone))}\n"
    yield from _section("Outcome", [_outcome(digest)])
    yield from _section(_cut("Asked", digest.requests, digest.request_count), _requests(digest.requests))
    yield from _section("Done", _done(digest))
    is_end = digest.final_answer is None or digest.final_answer.note is None
    yield from _section("How it ended" if is_end else "The agent's last words", _block(digest.final_answer))
    yield from _section("Open", _open(digest.open))
    yield from _section("Stopped or set right by the user", map(_quoted, digest.interventions))
    yield from _section("Decided", map(_quoted, digest.decisions))
    yield from _section("Found out", map(_quoted, digest.snippets))
    count = f" ({digest.error_count})" if digest.error_count > len(digest.errors) else ""
    yield from _section(f"Errors{count}", map(_quoted, digest.errors))
    yield from _section("Sub-agents", (f"- {inert(line)}" for line in digest.sub_agents))
    yield from _section("Signals", _signals(digest))


def inert(text: str) -> str:
    """Text on one line in which nothing is Markdown: no link, no picture, no address that becomes a link, no tag."""
    escaped = _ACTIVE.sub(lambda match: "\\" + match[0], one_line(text))
    return _ADDRESS.sub(lambda match: "\\" + match[0], escaped)


def _section(title: str, lines: Iterable[str]) -> Iterator[str]:
    found = list(lines)
    if found:
        yield f"## {title}\n"
        yield from found
        yield ""


def _requests(requests: Iterable[Asked]) -> Iterator[str]:
    for request in requests:
        yield f"- {inert(request.text)} `{request.event_uid[-_UID_CHARS:]}`"
        if request.answer is not None:
            yield f"  → {inert(request.answer.text)} `{request.answer.event_uid[-_UID_CHARS:]}`"


def _cut(title: str, shown: Sequence[Asked], count: int) -> str:
    return f"{title} ({len(shown)} of {count})" if count > len(shown) else title


def _facts(digest: Digest, zone: tzinfo | None) -> Iterator[str]:
    end = f" to {_minute(digest.ended_at, zone)}" if digest.ended_at else ", its end is not told"
    yield f"{_minute(digest.started_at, zone)}{end}"
    if digest.active_s:
        yield f"{digest.active_s // 60} min of work" if digest.active_s >= 60 else f"{digest.active_s} s of work"
    if digest.models:
        yield inert(", ".join(digest.models))
    used = sum(digest.tokens.get(name, 0) for name in ("input_tokens", "output_tokens", "cache_write_tokens"))
    if used:
        yield f"{used:,} tokens and {digest.tokens.get('cache_read_tokens', 0):,} from cache"
    if digest.usd is not None:
        yield f"{'~' if digest.usd_is_estimate else ''}${digest.usd:,.2f}"
    count = digest.covers.event_count
    yield f"covers {count:,} event{'' if count == 1 else 's'}"


def _minute(moment: str | None, zone: tzinfo | None) -> str:
    """A moment to the minute. The page may be sent around, so it says by which clock."""
    return "–" if moment is None else f"{datetime.fromisoformat(moment).astimezone(zone):%Y-%m-%d %H:%M %Z}"


def _outcome(digest: Digest) -> str:
    outcome = digest.outcome
    return f"**{outcome.outcome}** ({outcome.confidence:.0%}): {inert('; '.join(outcome.reasons))}"


def _quoted(quote: Quote) -> str:
    note = f" ({inert(quote.note)})" if quote.note else ""
    return f"- {inert(quote.text)}{note} `{quote.event_uid[-_UID_CHARS:]}`"


def _block(quote: Quote | None) -> Iterator[str]:
    """A longer quote, line by line, as a block."""
    if quote is None:
        return
    for line in clean(quote.text).splitlines():
        escaped = _LEADING.sub(r"\1\\\2", _ADDRESS.sub(lambda m: "\\" + m[0], _ACTIVE.sub(lambda m: "\\" + m[0], line)))
        yield f"> {escaped.strip()}".rstrip()
    note = f" ({inert(quote.note)})" if quote.note else ""
    yield f"\n`{quote.event_uid[-_UID_CHARS:]}`{note}"


def _done(digest: Digest) -> Iterator[str]:
    if digest.files:
        more = f" and {digest.file_count - len(digest.files)} more" if digest.file_count > len(digest.files) else ""
        yield f"- Files edited: {', '.join(_times(file) for file in digest.files)}{more}"
    if digest.deleted:
        yield f"- Files deleted: {', '.join(map(inert, digest.deleted))}"
    if digest.commands:
        yield f"- Commands: {', '.join(_times(command) for command in digest.commands)}"
    if digest.tests.runs:
        yield _tests(digest.tests)
    for commit in digest.commits:
        yield f"- Commit: {_quoted(commit)[2:]}"
    if digest.commit_count > len(digest.commits):
        yield f"- and {digest.commit_count - len(digest.commits)} commits before these"
    for request in digest.pull_requests:
        yield f"- Pull request: {_quoted(request)[2:]}"
    if digest.tools:
        yield f"- Tools: {', '.join(_times(tool) for tool in digest.tools)}"


def _tests(tests: RanTests) -> str:
    unfinished = f", {tests.unfinished} without a result" if tests.unfinished else ""
    which = "the last one with a result" if tests.unfinished else "the last one"
    last = f"; {which} {tests.last}" if tests.last else ""
    return f"- Test runs: {tests.runs}, {tests.failures} failed{unfinished}{last}"


def _times(tally: Tally) -> str:
    failed = f", {tally.failures} failed" if tally.failures else ""
    return f"{inert(tally.name)} ({tally.count}×{failed})"


def _open(ends: OpenEnds) -> Iterator[str]:
    sorts = (
        ("To do", ends.todos),
        ("Question", ends.questions),
        ("Next", ends.next_steps),
    )
    for quote in ends.unanswered:
        yield f"- {(quote.note or 'not answered').capitalize()}: {_quoted(replace(quote, note=None))[2:]}"
    for name, quotes in sorts:
        yield from (f"- {name}: {_quoted(quote)[2:]}" for quote in quotes)
    if ends.failing_tests:
        yield f"- Failing tests: {_quoted(ends.failing_tests)[2:]}"
    if ends.interruption:
        yield f"- Interrupted: {_quoted(ends.interruption)[2:]}"


def _signals(digest: Digest) -> Iterator[str]:
    if digest.signals:
        yield "- " + ", ".join(f"{name} {count}" for name, count in digest.signals.items())
