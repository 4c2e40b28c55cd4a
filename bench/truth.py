"""Read raw logs with a reader of its own and compare every block, token, turn, price, day and tool with Recollect.

    python bench/truth.py --shared DIR [--home AGENT=PATH …] [--only NAME] [--stores DIR]

`raw_logs.py` reads the logs; of Recollect, only `open_memory` and `stats --json` are used. Redaction is off in the
stores made for it, so that texts can be compared as they are. Prints a line for each comparison and for each
difference; exit code 1 if a difference is not among those explained below.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Sequence
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
# (comparison, part of the home and the key): why both are right
EXPLAINED: dict[tuple[str, str], str] = {}


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


def spent(truth: Home, session: str) -> float:
    """A root session with its sub-agents: the agent's own total, and list prices for what that leaves out."""
    requests = [request for request in truth.requests.values() if root(truth, request.session) == session]
    if not (totals := truth.totals.get(session)):
        return sum(map(price, requests))
    began = datetime.fromtimestamp(totals[0]["startTime"] / 1000, UTC)
    copies = [truth.requests[key] for key in truth.copied[session]]
    copied = sum(price(one) for one in copies if moment(one.at) >= began)
    return totals[-1]["totalCostUSD"] + sum(price(one) for one in requests if moment(one.at) < began) - copied


class Comparison:
    def __init__(self) -> None:
        self.is_wrong = False

    def show(self, home: str, what: str, ours: dict[Any, Any], theirs: dict[Any, Any]) -> None:
        """Print how many of the log's figures differ from Recollect's, and each that does."""
        different = [key for key in sorted({*ours, *theirs}, key=str) if not is_equal(ours.get(key), theirs.get(key))]
        print(f"{home:28} {what:26} {len({*ours, *theirs}):>7} compared {len(different):>5} differ", flush=True)
        for key in different:
            why = next((why for (a, b), why in EXPLAINED.items() if a == what and b in f"{home} {key}"), None)
            self.is_wrong |= why is None
            print(f"    {key}: log {ours.get(key)}, Recollect {theirs.get(key)}  {why or 'NOT EXPLAINED'}")


def is_equal(one: Any, other: Any) -> bool:
    if isinstance(one, float) or isinstance(other, float):
        return abs((one or 0) - (other or 0)) < 0.005
    return (one or 0) == (other or 0)


def compare_blocks(truth: Home, memory: Any, name: str, comparison: Comparison) -> None:
    """Each block of the logs is there once, and nothing is there that the logs do not say."""
    expected: dict[str, list[Block]] = defaultdict(list)
    for block in truth.blocks.values():
        expected[block.session].append(block)
    missing, extra = {}, {}
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
    print(f"{name:28} {'blocks':26} {sum(block.is_required for block in truth.blocks.values()):>7} compared")
    comparison.show(name, "blocks missing", missing, {})
    comparison.show(name, "blocks not in the log", {}, extra)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--home", action="append", default=[], metavar="AGENT=PATH", help="another home to compare")
    parser.add_argument("--only", default="", help="homes with this in their name")
    parser.add_argument("--stores", type=Path, help="keep the stores here, and use those that are there")
    options = parser.parse_args()
    comparison = Comparison()
    homes = [(path.parent.name, path.name[1:], path) for path in sorted((options.shared / "genuine").glob("*/.*"))]
    homes += [(path.name, path.parent.name, path) for path in sorted((options.shared / "corpus").glob("*/*"))]
    homes += [(home, home.partition("=")[0], Path(home.partition("=")[2])) for home in options.home]
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "none").mkdir()
        for name, agent, home in homes:
            if agent not in READERS or not home.is_dir() or options.only not in name:
                continue
            truth = READERS[agent](home)
            folder = (options.stores or Path(work)) / f"{agent}-{Path(name).name}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "config.toml").write_text("[redact]\nallow = ['/[\\s\\S]*/']\n")
            roots = [f"{one}={home if one == agent else Path(work) / 'none'}" for one in READERS]
            with open_memory(folder, roots) as memory:
                memory.sweep()
                compare(truth, memory, name, folder, comparison)
    sys.exit(comparison.is_wrong)


def compare(truth: Home, memory: Any, name: str, folder: Path, comparison: Comparison) -> None:
    compare_blocks(truth, memory, name, comparison)
    sessions = {session.native_session_id: session for session in memory.sessions()}
    is_grok = any(session.agent == "grok" for session in sessions.values())  # a turn's figures include sub-agents
    used: dict[str, list[int]] = defaultdict(lambda: [0] * len(KINDS))
    held: dict[str, list[int]] = defaultdict(lambda: [0] * len(KINDS))
    usd: dict[str, float] = defaultdict(float)
    for request in truth.requests.values():
        used[request.session] = add(used[request.session], request[3:7])
    for own, session in sessions.items():
        top = session.root_session_uid.partition(":")[2]
        usd[top] += session.cost.usd or 0.0
        of = top if is_grok else own
        held[of] = add(held[of], [getattr(session.cost, kind) for kind in KINDS])
    comparison.show(name, "tokens", filled(used), filled(held))
    turns = {own: session.cost.turns for own, session in sessions.items()}
    comparison.show(name, "turns", Counter(session for session, _ in truth.turns.values()), turns)
    comparison.show(name, "money with sub-agents", {top: spent(truth, top) for top in usd}, usd)
    listed: dict[str, float] = defaultdict(float)
    for request in truth.requests.values():
        listed[request.session] += price(request)
    alone = {own for own in sessions if not is_grok and root(truth, own) not in truth.totals}
    of_each = {own: sessions[own].cost.usd or 0.0 for own in alone}
    comparison.show(name, "money of each session", {own: listed[own] for own in alone}, of_each)
    moments = [(request.at, [*request[3:7], 0]) for request in truth.requests.values()]
    moments += [
        (at, [0, 0, 0, 0, 1])
        for session, at in truth.turns.values()
        if session in sessions and sessions[session].session_class not in ("sub-agent", "warm-up")
    ]
    for zone in ZONES:
        days: dict[str, list[int]] = defaultdict(lambda: [0] * (len(KINDS) + 1))
        for at, figures in moments:
            day = str(moment(at).astimezone(ZoneInfo(zone)).date()) if at else "None"
            days[day] = add(days[day], figures)
        lines = {str(line["name"]): [line[key] for key in (*KINDS, "turns")] for line in stats(folder, "day", zone)}
        comparison.show(name, f"days {zone}", filled(days), filled(lines))
    uses = {str(line["name"]): line["uses"] for line in stats(folder, "tool", "UTC")}
    comparison.show(name, "tools", Counter(filter(None, truth.calls.values())), uses)


def add(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [first + second for first, second in zip(one, other, strict=True)]


def filled(figures: dict[str, list[int]]) -> dict[str, list[int]]:
    return {key: values for key, values in figures.items() if any(values)}


def stats(folder: Path, by: str, zone: str) -> list[dict[str, Any]]:
    command = [Path(sys.executable).with_name("recollect"), "stats", "--by", by, "--json"]
    environment = os.environ | {"TZ": zone, "RECOLLECT_HOME": str(folder)}
    answer: dict[str, Any] = json.loads(
        subprocess.run(command, env=environment, capture_output=True, check=True).stdout
    )
    lines: list[dict[str, Any]] = answer["lines"]
    return lines


if __name__ == "__main__":
    main()
