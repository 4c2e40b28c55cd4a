"""Who a Codex session is: its origin, its relations to others, its model, instructions and tokens."""

from typing import Any

import msgspec

from recollect.agentkit.protocol import Usage
from recollect.agentkit.values import as_mapping, as_text, parse_time_ms, positive_int
from recollect.agents.codex.rollout import BLOCKS, Rollout, bounded, native, segment_start
from recollect.agents.codex.text import Instructions, name_instructions
from recollect.kinds import AUTOMATION, HUMAN, LIFECYCLE, SUB_AGENT


class Meta(msgspec.Struct, gc=False):
    """Who a session is. The vendor's instructions (20 KB in every file) are not even decoded."""

    id: Any = None
    session_id: Any = None
    timestamp: Any = None
    cwd: Any = None
    originator: Any = None
    cli_version: Any = None
    source: Any = None
    model_provider: Any = None
    git: Any = None
    instructions: Any = None
    parent_thread_id: Any = None
    agent_nickname: Any = None
    agent_role: Any = None
    agent_path: Any = None
    forked_from_id: Any = None
    forked_from_ordinal_exclusive: Any = None
    history_base: Any = None


class Context(msgspec.Struct, gc=False):
    model: Any = None
    cwd: Any = None


class WorldState(msgspec.Struct, gc=False):
    state: Any = None


def add_first_line(rollout: Rollout, meta: Meta) -> None:
    """The first line of a bare log has its only time, which the first event takes."""
    rollout.state.start_ms = parse_time_ms(meta.timestamp)
    add_meta(rollout, meta)


def add_meta(rollout: Rollout, meta: Meta) -> None:
    state = rollout.state
    own = bounded(meta.id) or bounded(meta.session_id)
    if own is None:
        return
    if not state.lineage and (own == state.thread or not state.has_name or rollout.offset == 0):
        # The first `session_meta` is the file's identity: whatever follows may be a copy of another session's.
        # A rewind's file is named <thread>_<segment>; elsewhere the id in the name is the thread's.
        state.unit = state.unit if state.unit != state.thread else own
        state.thread = state.lineage = own
    elif own != state.thread:
        if state.has_events:
            rollout.skip("session_meta (of a copied session)")
        else:  # the file begins with a copy of that session
            state.lineage = own
            rollout.add_info(base_native_id=own)
        return
    _add_facts(rollout, meta)


def _add_facts(rollout: Rollout, meta: Meta) -> None:
    state = rollout.state
    state.provider = bounded(meta.model_provider) or state.provider
    git = as_mapping(meta.git)
    rollout.add_info(
        born_ms=rollout.ts_ms or parse_time_ms(meta.timestamp),
        cwd=as_text(meta.cwd),
        git_remote=as_text(git.get("repository_url")),
        git_branch=as_text(git.get("branch")),
        agent_version=as_text(meta.cli_version),
        provider=state.provider,
        **_relations(rollout, meta),
    )
    state.has_cwd = state.has_cwd or as_text(meta.cwd) is not None
    if isinstance(meta.instructions, str) and meta.instructions.strip():
        add_instructions(rollout, name_instructions(None, meta.instructions))


def _relations(rollout: Rollout, meta: Meta) -> dict[str, Any]:
    """What the session is to others: a sub-agent, a fork, a rewind, or none of these."""
    thread = rollout.state.thread
    base = as_mapping(meta.history_base)
    forked_from = bounded(meta.forked_from_id)
    facts: dict[str, Any] = {"session_class": _session_class(meta), **_sub_agent(meta, thread)}
    if forked_from and forked_from != thread:
        end = meta.forked_from_ordinal_exclusive
        end = base.get("end_ordinal_exclusive") if end is None else end
        facts |= {"base_native_id": forked_from, "base_end": str(end) if type(end) is int else None}
    # A fork's base is history too, but not its own; a fork that was rewound has both.
    if (not forked_from or rollout.state.unit != thread) and type(base.get("end_ordinal_exclusive")) is int:
        _add_rewind(rollout, meta, base)
    return facts


def _session_class(meta: Meta) -> str:
    if isinstance(meta.source, dict) and "subagent" in meta.source:
        return SUB_AGENT
    return AUTOMATION if meta.originator == "codex_exec" or meta.source == "exec" else HUMAN


def _sub_agent(meta: Meta, thread: str) -> dict[str, Any]:
    spawn = as_mapping(as_mapping(as_mapping(meta.source).get("subagent")).get("thread_spawn"))
    parent = bounded(meta.parent_thread_id) or bounded(spawn.get("parent_thread_id"))
    if parent is None:
        return {}
    root = bounded(meta.session_id)
    names = {
        "nickname": as_text(meta.agent_nickname or spawn.get("agent_nickname")),
        "role": as_text(meta.agent_role or spawn.get("agent_role")),
        "path": as_text(meta.agent_path or spawn.get("agent_path")),
    }
    return {
        "parent_native_id": parent,
        "root_native_id": root if root and root != thread else parent,
        # A task given by path is encrypted: the last part of the path is all that says what it is.
        "title": names["path"].rpartition("/")[2] if names["path"] else None,
        "title_rank": 1,
        "metadata": {name: value for name, value in names.items() if value} or None,
    }


def _add_rewind(rollout: Rollout, meta: Meta, base: Any) -> None:
    """A segment of the same thread: the base's events from there on are left behind."""
    end = base["end_ordinal_exclusive"]
    if not 0 <= end < 2**40 or rollout.state.has_events:
        return
    # The base is a segment of this thread, or the thread's first file. An id older than the thread names what the
    # thread was forked from: then all of its own file is left behind.
    unit = bounded(base.get("thread_id")) or ""
    start = segment_start(unit) if unit > rollout.state.thread else 0
    rollout.add(
        LIFECYCLE,
        {"text": "rewound", "native": native(history_base=base)},
        "rewound",
        role="system",
        ts_ms=parse_time_ms(meta.timestamp),
        metadata={"rewind_to": start + end * BLOCKS},
    )


def add_context(rollout: Rollout, context: Context) -> None:
    state = rollout.state
    model = bounded(context.model)
    if model and model != state.model:
        state.model = model
        rollout.add_info(model=model, provider=state.provider)
    add_cwd(rollout, as_text(context.cwd))


def add_cwd(rollout: Rollout, cwd: str | None) -> None:
    if cwd and not rollout.state.has_cwd:
        rollout.state.has_cwd = True
        rollout.add_info(cwd=cwd)


def add_world_state(rollout: Rollout, world: WorldState) -> None:
    file = as_mapping(as_mapping(world.state).get("agents_md"))
    if isinstance(file.get("text"), str) and file["text"].strip():
        add_instructions(rollout, name_instructions(as_text(file.get("directory")), file["text"]))


def add_instructions(rollout: Rollout, instructions: Instructions | None) -> None:
    if instructions and rollout.state.instructions != instructions["sha256"]:
        rollout.state.instructions = instructions["sha256"]
        rollout.add_info(instructions=(instructions,))


_FIGURES = (
    "input_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
    "output_tokens",
    "reasoning_output_tokens",
)


class UsageRecord(msgspec.Struct, gc=False):
    response_id: Any = None
    usage: Any = None


class TokenCount(msgspec.Struct, gc=False):
    info: Any = None


def add_record(rollout: Rollout, record: UsageRecord) -> None:
    _add(rollout, _figures(record.usage), bounded(record.response_id) or rollout.here)


def _figures(usage: Any) -> list[int]:
    get = as_mapping(usage).get
    return [positive_int(get(name)) for name in _FIGURES]


def _add(rollout: Rollout, figures: list[int], usage_id: str) -> None:
    """Tokens of one response; the log counts cached input as input, the schema does not."""
    if not any(figures):
        return
    state = rollout.state
    sent, cached, written, output, reasoning = figures
    sent = max(0, sent - cached - written)
    model, provider = state.model, state.provider
    rollout.out.append(
        Usage(state.thread, usage_id, rollout.ts_ms, model, provider, sent, output, cached, written, reasoning)
    )


def add_totals(rollout: Rollout, record: TokenCount) -> None:
    """Tokens since the last total. The first total, and one that is smaller than the last, starts a new count."""
    state, info = rollout.state, as_mapping(record.info)
    totals = as_mapping(info.get("total_token_usage"))
    if not totals:
        return
    now = _figures(totals)
    last, state.totals = state.totals, now
    if last == now:
        return
    if last and all(new >= old for new, old in zip(now, last, strict=True)):
        spent = [new - old for new, old in zip(now, last, strict=True)]
    elif response := as_mapping(info.get("last_token_usage")):
        spent = _figures(response)
    else:
        spent = now
    _add(rollout, spent, f"{state.origin}:total:{now[0]}/{now[3]}")
