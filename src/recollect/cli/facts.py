"""Facts, fixes and exchanges in lines to read, each with its date, its origin and the command that opens it."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import click

from recollect import knowledge
from recollect.cli.terminal import (
    fitted,
    grey,
    line_columns,
    local_time,
    one_line,
    plural,
    repo_name,
    short_ids,
    wrapped,
)

if TYPE_CHECKING:
    from recollect.knowledge import Fact, Fix
    from recollect.recall import Discussion, LineOrigin, Uncommitted

_UID_CHARS = 10  # of an event's or a commit's
_FACT_CHARS = 8  # of a fact's id, which is enough to name it
_SHOWN_TRIED = 2
_ABOUT_COLUMNS = 100


def fix_lines(fixes: "Sequence[Fix]") -> Iterator[str]:
    names = short_ids({session for fix in fixes for session in fix.sessions})
    for index, fix in enumerate(fixes):
        if index:
            yield ""
        yield from bold(fix.text)
        if not fix.is_same_error:
            yield "  (a similar error, not the same)"
        if fix.why:
            yield from detail(f"why: {fix.why}")
        if fix.quote:
            yield from detail(f"you asked for it: “{fix.quote}”")
        if met := _met(fix, names):
            yield from detail(met)
        for tried in fix.tried[:_SHOWN_TRIED]:
            yield from detail(f"did not help before: {tried}")
        if fix.changed_files:
            edited = len({step.name for step in fix.steps if step.kind == "edit"})
            changed = f"{len(fix.changed_files)} of the {plural(edited, 'file')}"
            yield from detail(f"{changed} changed since: {', '.join(fix.changed_files[:4])}")
        opened = show_command(names[fix.session_uid], fix.evidence[0].event_uid)
        yield source(fix.fixed_at, fix.repo, opened, fix.fact_uid[:_FACT_CHARS], _doubt(fix.confidence))


def _met(fix: "Fix", names: dict[str, str]) -> str:
    """How often the fix helped, where else the error was seen, and whether it came back."""
    others = [names[session] for session in fix.sessions if session != fix.session_uid]
    return "; ".join(
        text
        for text, is_shown in (
            (f"helped {plural(fix.fixed_count, 'time')}", fix.fixed_count > 1),
            (f"also seen in {plural(len(others), 'session')} ({', '.join(others[:4])})", others),
            (f"came back {plural(fix.returns, 'time')} afterwards", fix.returns),
        )
        if is_shown
    )


def bold(text: str) -> Iterator[str]:
    return (click.style(line, bold=True) for line in wrapped(one_line(text)))


def detail(text: str) -> Iterator[str]:
    return wrapped(one_line(text), "  ", after="    ")


def source(at: str | None, repo: str | None, *parts: str) -> str:
    """When and where something was learned, in one line."""
    shown = [local_time(at)[:10], repo_name(repo), *parts]
    return grey(fitted(f"  {' · '.join(one_line(part) for part in shown if part)}", line_columns()))


def show_command(session: str, event: str | int) -> str:
    """The command that opens an event: by its number, or by its uid."""
    return f"recollect show {session} --at {event[-_UID_CHARS:] if isinstance(event, str) else event}"


def digest_command(session: str) -> str:
    """The command that opens what is left of an evicted session."""
    return f"recollect digest {session}"


def _doubt(confidence: float) -> str:
    return "" if confidence >= knowledge.LEAST_CONFIDENCE else f"uncertain ({confidence:.2f})"


def discussion_lines(exchanges: "Sequence[Discussion]") -> Iterator[str]:
    """Exchanges with what was said in them, and the command that opens each."""
    names = short_ids({exchange.session_uid for exchange in exchanges})
    for exchange in exchanges:
        yield from bold(f"“{exchange.request}”" if exchange.request else exchange.title or "(no title)")
        if exchange.answer:
            yield from detail(f"agent: {exchange.answer}")
        if exchange.next_steps:
            yield from detail(f"next: {'; '.join(exchange.next_steps)}")
        if exchange.reply:
            yield from detail(f"then you: {exchange.reply}")
        name = names[exchange.session_uid]
        opens = f"evicted, {digest_command(name)}" if exchange.evicted else show_command(name, exchange.seq)
        yield source(exchange.at, exchange.repo, opens)


def without_session(origin: "LineOrigin") -> str:
    commit = (
        f"it came with {origin.commit[:_UID_CHARS]}, {origin.commit_subject}" if origin.commit else "not committed yet"
    )
    evicted = f"; {plural(origin.evicted_edits, 'evicted session')} edited the file" if origin.evicted_edits else ""
    return one_line(f"{commit}{evicted}")


def origin_lines(origin: "LineOrigin") -> Iterator[str]:
    edit = origin.edit
    assert edit is not None
    yield from bold(origin.text)
    asked = f"“{edit.request or edit.title}”" if edit.request or edit.title else "no user request"
    yield from detail(f"written for: {asked}")
    if origin.cause:
        yield from detail(f"it fixed: {origin.cause}")
    if origin.is_elsewhere:
        yield from detail(f"found in another repository: {edit.repo or edit.path}")
    commit = f"{origin.commit[:_UID_CHARS]} {origin.commit_subject}" if origin.commit else "not committed yet"
    yield from detail(f"commit: {commit}")
    opened = show_command(short_ids({edit.session_uid})[edit.session_uid], edit.event_uid)
    yield source(edit.ts, None, edit.agent, opened, f"confidence {origin.confidence:.2f}")


def change_lines(change: "Uncommitted") -> Iterator[str]:
    """The sessions behind an uncommitted change, each with its requests and files."""
    names = short_ids({origin.session_uid for origin in change.sessions})
    for origin in change.sessions:
        latest = max(origin.edits, key=lambda edit: edit.ts or "")
        yield from bold(latest.title or latest.request or origin.session_uid)
        for request in dict.fromkeys(edit.request for edit in origin.edits if edit.request):
            yield from detail(f"for: “{request}”")
        files = dict.fromkeys(edit.path.removeprefix(f"{change.root}/") for edit in origin.edits)
        yield from detail(f"{plural(origin.lines, 'line')} in {', '.join(files)}")
        yield source(latest.ts, None, latest.agent, show_command(names[origin.session_uid], latest.event_uid))
    known = sum(origin.lines for origin in change.sessions)
    if known < change.lines:
        yield grey(f"{plural(change.lines - known, 'changed line')} of {change.lines} are in no session's edits")


_DECIDERS = {"user": "you", "agent": "the agent", "commit": "a commit", "file": "a file"}


def fact_lines(facts: "Sequence[Fact]") -> Iterator[str]:
    """Facts in sentences, each with when, by whom and where it was learned, and whether it still holds."""
    names = short_ids({fact.session_uid for fact in facts if fact.session_uid})
    for fact in facts:
        yield from bold(fact.text)
        if fact.invalid_at:
            yield f"  until {local_time(fact.invalid_at)[:10]}, replaced by {(fact.superseded_by or '')[:_FACT_CHARS]}"
        if fact.until_then:
            yield from detail(f"until then: {fact.until_then}")
        if fact.about:
            yield fitted(f"  in: {one_line(fact.about)}", min(line_columns(), _ABOUT_COLUMNS))
        if fact.reason and fact.reason not in fact.text:
            yield from detail(f"because: {fact.reason}")
        if others := [option for option in fact.alternatives if option not in fact.text]:
            yield from detail(f"not: {', '.join(others)}")
        opened = "remembered"
        if fact.session_uid:
            opened = show_command(names[fact.session_uid], fact.evidence[0].event_uid if fact.evidence else 1)
        uid = fact.fact_uid[:_FACT_CHARS]
        yield source(fact.valid_at, fact.repo, _DECIDERS[fact.by], opened, uid, _doubt(fact.confidence))
