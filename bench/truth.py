"""Read raw logs with a reader of its own and compare every block, token, turn, price, day and tool with Recollect.

    python bench/truth.py SHARED [AGENT=HOME …]

`raw_logs.py` reads the logs; of Recollect, only `open_memory` and `stats --json` are used. Redaction is off in the
stores made for it, so that texts can be compared as they are. Prints a line for each comparison and for each
difference; exit code 1 if there is one.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from genai_prices.data_snapshot import get_snapshot

from raw_logs import Block, Home, Request, hashed, moment, read_claude, read_codex, read_grok
from recollect import open_memory

ZONES = ("UTC", "Asia/Shanghai", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Adelaide")
READERS = {"claude": read_claude, "codex": read_codex, "grok": read_grok}
SORTS = (("call", "input"), ("result", "output"))
KINDS = ("input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens")
MESSAGES = ("user_msg", "assistant_msg", "completion", "thinking")


def price(request: Request) -> float:
    """By the list's figures: the tier is that of the whole input, of a sum of several calls that of an average one."""
    if request.usd is not None:
        return request.usd
    context = (request.input + request.cache_read + request.cache_write) / request.calls
    model = "claude-sonnet-4-5" if request.model.startswith("claude-sonnet-4-2025") and context > 2e5 else request.model
    try:
        _, info = get_snapshot().find_provider_model(model, None, None, None)
    except LookupError:
        return 0.0
    listed = info.get_prices(moment(request.at))

    def rate(*names: str) -> float:
        value = next((found for name in names if (found := getattr(listed, name, None)) is not None), 0)
        tiers = [tier.price for tier in getattr(value, "tiers", ()) if context > tier.start]
        return float(tiers[-1] if tiers else getattr(value, "base", value)) / 1e6

    usd = request.input * rate("input_mtok") + request.output * rate("output_mtok")
    usd += request.cache_read * rate("cache_read_mtok", "input_mtok")
    usd += (request.cache_write - request.cache_write_1h) * rate("cache_write_mtok", "input_mtok")
    return usd + request.cache_write_1h * rate("cache_write_1h_mtok", "cache_write_mtok", "input_mtok")


def root(truth: Home, session: str) -> str:
    while session in truth.parents and truth.parents[session] != session:
        session = truth.parents[session]
    return session


def spent(truth: Home, session: str, is_grok: bool) -> float:
    """What a session spent; one that its agent totals, with its sub-agents, at that and list prices for the rest."""
    totals = truth.totals.get(session)
    is_whole = is_grok or totals
    requests = [
        one for one in truth.requests.values() if (root(truth, one.session) if is_whole else one.session) == session
    ]
    if not totals:
        return sum(map(price, requests), 0.0)
    began = datetime.fromtimestamp(totals[0]["startTime"] / 1000, UTC)
    copied = sum(price(one) for key in truth.copied[session] if moment((one := truth.requests[key]).at) >= began)
    return totals[-1]["totalCostUSD"] + sum(price(one) for one in requests if moment(one.at) < began) - copied


def show(home: str, what: str, ours: dict[Any, Any], theirs: dict[Any, Any]) -> int:
    """Print how many of the log's figures differ from Recollect's, and each that does; return their number."""
    both = {key: (ours.get(key) or 0, theirs.get(key) or 0) for key in sorted({*ours, *theirs}, key=str)}
    pairs = {key: (+one or 0, +other or 0) for key, (one, other) in both.items()}  # a Counter of zeros is 0 as well
    different = {key: pair for key, pair in pairs.items() if not is_equal(*pair)}
    print(f"{home:28} {what:26} {len(pairs):>7} compared {len(different):>5} differ", flush=True)
    for key, (one, other) in different.items():
        print(f"    {key}: log {one}, Recollect {other}")
    return len(different)


def is_equal(one: Any, other: Any) -> bool:
    return abs(one - other) < 0.005 if isinstance(one, float) and isinstance(other, float) else bool(one == other)


def compare_blocks(truth: Home, memory: Any, name: str) -> int:
    """Each block of the logs is there once, and nothing is there that the logs do not say."""
    expected: dict[str, list[Block]] = defaultdict(list)
    for block in truth.blocks.values():
        expected[block.session].append(block)
    missing: dict[Any, int] = {}
    extra: dict[Any, int] = {}
    for session in memory.sessions():
        events = memory.events(session, with_copies=True)
        held: Counter[tuple[str, str, str | None]] = Counter()
        strict: dict[tuple[str, str, str | None], str] = {}
        for event, content in zip(events, memory.payloads(session, events), strict=True):
            if event.lane in ("files", "history"):
                continue
            sort = next((sort for sort, field in SORTS if field in content), "text")
            value = content.get("input", content.get("output", content.get("text")))
            is_own = event.role == "user" and event.tool == "shell"  # the user's own command: its result has no id
            place = (sort, hashed(value), event.call_id if sort == "result" and not is_own else None)
            held[place] += 1
            if hashed(value) and (event.call_id or event.kind in MESSAGES):
                strict[place] = f"{event.kind} {event.native_id} {str(value)[:60]!r}"
        blocks = expected.pop(session.native_session_id, [])
        for block in sorted(blocks, key=lambda one: (not one.is_required, len(one.hashes))):
            sorts = {"user": ("text", "call", "result"), "thinking": ("text",)}.get(block.sort, (block.sort,))
            hashes = sorted(one for one in block.hashes if one or block.sort == "result")[::-1]
            places = [(sort, one, label) for sort in sorts for one in hashes for label in (block.label, None)]
            match = next((place for place in places if held[place] > 0), None)
            if match:
                held[match] -= 1
            elif block.is_required and any(block.hashes):
                missing[session.session_uid, str(block)] = 1
        extra |= {(session.session_uid, strict[place]): held[place] for place in strict if held[place] > 0}
    for name_of, blocks in expected.items():
        if any(block.is_required and any(block.hashes) for block in blocks):
            missing[name_of, "whole session"] = len(blocks)
    required = dict.fromkeys((key for key, block in truth.blocks.items() if block.is_required), 0)
    return show(name, "blocks", required, missing) + show(name, "blocks not in the log", {}, extra)


def main() -> None:
    shared = Path(sys.argv[1])
    homes = [(path.parent.name, path.name[1:], path) for path in sorted((shared / "genuine").glob("*/.*"))]
    homes += [(path.name, path.parent.name, path) for path in sorted((shared / "corpus").glob("*/*"))]
    homes += [(home, home.partition("=")[0], Path(home.partition("=")[2])) for home in sys.argv[2:]]
    differences = 0
    for name, agent, home in homes:
        if agent in READERS and home.is_dir():
            with tempfile.TemporaryDirectory() as folder:
                Path(folder, "config.toml").write_text("[redact]\nallow = ['/[\\s\\S]*/']\n")
                with open_memory(folder, [f"{one}={home if one == agent else folder}" for one in READERS]) as memory:
                    memory.sweep()
                    differences += compare(READERS[agent](home), memory, name, folder)
    sys.exit(differences > 0)


def compare(truth: Home, memory: Any, name: str, folder: str) -> int:
    sessions = {session.native_session_id: session for session in memory.sessions()}
    is_grok = any(session.agent == "grok" for session in sessions.values())  # a turn's figures include sub-agents
    used, held, turns, usd = defaultdict[str, Any](Counter), defaultdict[str, Any](Counter), {}, Counter[str]()
    for request in truth.requests.values():
        used[request.session].update(figures_of(request))
    for own, session in sessions.items():
        top = session.root_session_uid.partition(":")[2]
        turns[own] = session.cost.turns
        usd[top if is_grok or top in truth.totals else own] += session.cost.usd or 0.0
        held[top if is_grok else own].update({kind: getattr(session.cost, kind) for kind in KINDS})
    differences = compare_blocks(truth, memory, name) + show(name, "tokens", used, held)
    differences += show(name, "turns", Counter(session for session, _ in truth.turns.values()), turns)
    differences += show(name, "money", {one: spent(truth, one, is_grok) for one in usd}, dict(usd))
    moments = [(request.at, figures_of(request)) for request in truth.requests.values()]
    for own, at in truth.turns.values():
        if own in sessions and sessions[own].session_class not in ("sub-agent", "warm-up"):
            moments.append((at, {"turns": 1}))
    for zone in ZONES:
        days = defaultdict[str, Any](Counter)
        for at, figures in moments:
            days[str(moment(at).astimezone(ZoneInfo(zone)).date()) if at else "None"].update(figures)
        lines = {
            str(line["name"]): Counter({key: line[key] for key in (*KINDS, "turns")})
            for line in stats(folder, "day", zone)
        }
        differences += show(name, f"days {zone}", days, lines)
    uses = {str(line["name"]): line["uses"] for line in stats(folder, "tool", "UTC")}
    return differences + show(name, "tools", Counter(filter(None, truth.calls.values())), uses)


def figures_of(request: Request) -> dict[str, int]:
    return dict(zip(KINDS, request[3:7], strict=True))


def stats(folder: str, by: str, zone: str) -> list[dict[str, Any]]:
    command = [Path(sys.executable).with_name("recollect"), "stats", "--by", by, "--json"]
    environment = os.environ | {"TZ": zone, "RECOLLECT_HOME": folder}
    answer = subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    lines: list[dict[str, Any]] = json.loads(answer)["lines"]
    return lines


if __name__ == "__main__":
    main()
