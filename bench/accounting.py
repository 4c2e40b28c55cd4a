"""Tokens and money per session: Recollect beside ccusage and beside a count that shares no code with it.

    python bench/accounting.py --shared DIR --ccusage PATH [--large HOME] [--all]

ccusage is an npm package (`npm install ccusage`; PATH is its program) and runs offline. Sessions that share responses
(forks, resumed copies) are compared together, sub-agents with their root. Each difference is printed with its cause;
docs/money.md explains the causes.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from genai_prices import Usage, calc_price

from recollect.api import open_memory

WITHIN = 0.005
SORTS = ("input", "output", "cache_read", "cache_write")
LONG_SONNET_4 = "claude-sonnet-4-5"  # has the long-context price that the list lacks for Sonnet 4
NAMES = {"claude": "CLAUDE_CONFIG_DIR", "codex": "CODEX_HOME", "grok": "GROK_HOME"}


class Request(NamedTuple):
    """One response as its log has it. `input` excludes what the cache read or wrote."""

    session: str
    key: str
    model: str
    at: str
    input: int
    output: int
    cache_read: int
    cache_write: int
    cache_write_1h: int = 0
    searches: int = 0
    calls: int = 1
    usd: float | None = None

    def price(self, *, at: str | None = None, hour_as_minutes: bool = False) -> float | None:
        """By the price list's own arithmetic; each call of a sum of several is taken for an average one."""
        context = self.input + self.cache_read + self.cache_write
        is_long = self.model.startswith("claude-sonnet-4-2025") and context > 200_000
        usage = Usage(
            input_tokens=context // self.calls,
            output_tokens=self.output // self.calls,
            cache_read_tokens=self.cache_read // self.calls,
            cache_write_tokens=self.cache_write // self.calls,
            cache_write_1h_tokens=0 if hour_as_minutes else self.cache_write_1h // self.calls,
        )
        when = datetime.fromisoformat(at or self.at)
        try:
            cost = calc_price(usage, LONG_SONNET_4 if is_long else self.model, genai_request_timestamp=when)
        except LookupError:
            return None
        return float(cost.total_price) * self.calls + self.searches * 0.01


class Sums(NamedTuple):
    tokens: tuple[int, ...]
    usd: float


def lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n"):  # other line breaks may stand inside a text
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def count_claude(home: Path) -> list[Request]:
    """The largest figures of each message; a search is a result that took a number of seconds."""
    best: dict[tuple[str, str], Request] = {}
    for path in sorted(home.rglob("*.jsonl")):
        model = ""
        for value in lines(path):
            message, session = value.get("message"), value.get("sessionId")
            if not isinstance(message, dict) or not isinstance(session, str):
                continue
            result = value.get("toolUseResult")
            if isinstance(result, dict) and "durationSeconds" in result and model:
                searched = Request(session, f"search {value.get('uuid')}", model, value["timestamp"], 0, 0, 0, 0)
                best[session, searched.key] = searched._replace(searches=result.get("searchCount", 1))
            usage = message.get("usage")
            if value.get("type") != "assistant" or not usage or message.get("model") == "<synthetic>":
                continue
            model = message["model"]
            new = Request(
                session,
                message.get("id") or value["uuid"],
                model,
                value["timestamp"],
                usage.get("input_tokens") or 0,
                usage.get("output_tokens") or 0,
                usage.get("cache_read_input_tokens") or 0,
                usage.get("cache_creation_input_tokens") or 0,
                (usage.get("cache_creation") or {}).get("ephemeral_1h_input_tokens") or 0,
            )
            old = best.get((session, new.key), new)
            figures = (max(pair) for pair in zip(old[4:9], new[4:9], strict=True))
            best[session, new.key] = Request(*old[:4], *figures)
    return list(best.values())


def count_codex(home: Path) -> list[Request]:
    """What each response used, by the growth of the running total."""
    requests = []
    for path in sorted(home.rglob("rollout-*.jsonl")):
        session, origin, model, last = "", "", "", [0] * 4
        for value in lines(path):
            payload = value.get("payload") or {}
            if value.get("type") == "session_meta":
                origin = payload.get("id", "")  # of a fork that copies, its base comes second
                session = session or origin
            model = payload.get("model") or model if value.get("type") == "turn_context" else model
            total = ((payload.get("info") or {}).get("total_token_usage")) if isinstance(payload, dict) else None
            if payload.get("type") != "token_count" or not total:
                continue
            names = ("input_tokens", "output_tokens", "cached_input_tokens", "cache_write_input_tokens")
            now = [total.get(name) or 0 for name in names]
            grown = [new - old for new, old in zip(now, last, strict=True)]
            if min(grown) < 0 or not any(last):
                spent = (payload["info"].get("last_token_usage")) or total
                grown = [spent.get(name) or 0 for name in names]
            if now != last:
                figures = (grown[0] - grown[2] - grown[3], *grown[1:])
                requests.append(Request(session, f"{origin} {now}", model, value["timestamp"], *figures))
            last = now
    return requests


def count_grok(home: Path) -> list[Request]:
    """What each turn used, sub-agents included: those are left out themselves."""
    children = {path.parent.name for path in home.rglob("subagents/*/meta.json")}
    requests = []
    for path in sorted(home.rglob("updates.jsonl")):
        for value in lines(path):
            params = value.get("params") or {}
            update = params.get("update") or {}
            usage = update.get("usage")
            if update.get("sessionUpdate") != "turn_completed" or not usage or path.parent.name in children:
                continue
            read, written = usage.get("cachedReadTokens", 0), usage.get("cacheCreationTokens", 0)
            at = datetime.fromtimestamp(value["timestamp"]).astimezone().isoformat()
            model, ticks = next(iter(usage.get("modelUsage") or {}), ""), usage.get("costUsdTicks")
            figures = (usage["inputTokens"] - read - written, usage["outputTokens"], read, written)
            request = Request(path.parent.name, update.get("prompt_id"), model, at, *figures)
            requests.append(request._replace(calls=usage.get("modelCalls", 1), usd=ticks / 1e10 if ticks else None))
    return requests


COUNTS = {"claude": count_claude, "codex": count_codex, "grok": count_grok}


def links(agent: str, home: Path) -> Iterator[set[str]]:
    """Names that belong together: a file and the sessions in it, a sub-agent and its parent."""
    if agent == "grok":
        yield from ({path.parent.name, path.parents[2].name} for path in home.rglob("subagents/*/meta.json"))
        return
    for path in home.rglob("*.jsonl"):
        values = list(lines(path))
        if agent == "claude" and path.stem != "history":
            yield {path.stem} | {value["sessionId"] for value in values if isinstance(value.get("sessionId"), str)}
        for value in values if agent == "codex" else ():
            about = value["payload"] if value.get("type") == "session_meta" else {}
            if about.get("id"):
                yield {about["id"], path.stem[-36:]}
            if parent := about.get("parent_thread_id") or about.get("forked_from_id"):
                yield {about["id"], parent}


def count_ours(agent: str, home: Path) -> tuple[dict[str, Sums], list[set[str]]]:
    """Recollect's figures by root session, and which sessions it knows to be related."""
    found: dict[str, list[Any]] = defaultdict(lambda: [Counter(), 0.0])
    groups = []
    with tempfile.TemporaryDirectory() as store:
        roots = [f"{name}={home if name == agent else '/nonexistent'}" for name in NAMES]
        with open_memory(Path(store) / "store", roots) as memory:
            memory.sweep()
            for session in memory.sessions():
                name = session.root_session_uid.partition(":")[2]
                found[name][0].update({sort: getattr(session.cost, f"{sort}_tokens") for sort in SORTS})
                found[name][1] += session.cost.usd or 0.0
                if session.base_session_uid:
                    groups.append({name, session.base_session_uid.partition(":")[2]})
    return {name: Sums(tuple(c[sort] for sort in SORTS), usd) for name, (c, usd) in found.items()}, groups


def count_ccusage(program: str, agent: str, home: Path) -> tuple[dict[str, Sums], set[str]]:
    """ccusage's figures by session, and the models it has no price for."""
    command = [program, agent, "session", "--json", "--offline"]
    command += ["--mode", "calculate"] if agent == "claude" else []
    out = subprocess.run(command, env=os.environ | {NAMES[agent]: str(home)}, capture_output=True, check=True).stdout
    answer = json.loads(out)
    names = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheCreationTokens")
    found: dict[str, list[Any]] = defaultdict(lambda: [Counter(), 0.0])
    unpriced = set(answer["totals"].get("unpricedModels") or ())
    for session in answer["sessions"]:
        name = session["sessionId"]
        name = name[-36:] if agent == "codex" else name
        found[name][0].update({sort: session[key] for sort, key in zip(SORTS, names, strict=True)})
        found[name][1] += session.get("totalCost", session.get("costUSD", 0.0))
        models = session.get("models")
        unpriced |= {model for model in models if models[model].get("missingPricing")} if models else set()
    return {name: Sums(tuple(c[sort] for sort in SORTS), usd) for name, (c, usd) in found.items()}, unpriced


def families(requests: Iterable[Request], groups: list[set[str]], names: Iterable[str]) -> list[frozenset[str]]:
    """Sessions that share responses or are known to be related, together."""
    holders: dict[str, set[str]] = defaultdict(set)
    for request in requests:
        holders[request.key].add(request.session)
    family = {name: {name} for name in [*names, *(request.session for request in requests)]}
    for group in [*holders.values(), *groups]:
        merged = set().union(*(family.get(name, {name}) for name in group))
        family |= dict.fromkeys(merged, merged)
    return sorted({frozenset(group) for group in family.values()}, key=sorted)


def added(sums: dict[str, Sums], names: Iterable[str]) -> Sums:
    chosen = [sums[name] for name in names if name in sums]
    tokens = zip(*(one.tokens for one in chosen), strict=True)
    return Sums(tuple(map(sum, tokens)) or (0, 0, 0, 0), sum(one.usd for one in chosen))


def summed(requests: list[Request]) -> Sums:
    once = {request.key: request for request in sorted(requests, key=lambda one: one.at, reverse=True)}.values()
    tokens = tuple(sum(getattr(request, sort) for request in once) for sort in SORTS)
    usd = sum(request.usd if request.usd is not None else request.price() or 0.0 for request in once)
    return Sums(tokens, usd)


def is_near(one: float, other: float) -> bool:
    return abs(one - other) <= max(WITHIN * max(one, other), 1e-6)


def cause(requests: list[Request], ours: Sums, theirs: Sums, unpriced: set[str], stated: float) -> str:
    """Why ccusage's figure is another."""
    models = {request.model for request in requests}
    if theirs.tokens != ours.tokens:
        is_more = sum(theirs.tokens) > sum(ours.tokens)
        if any(request.calls > 1 for request in requests):
            return "ccusage counts sub-agents twice"
        return "ccusage counts copied responses twice" if is_more else "ccusage leaves out sub-agents"
    if models & unpriced or any(request.price() is None for request in requests):
        return "ccusage has no price for the model"
    if stated:
        return "the agent's own total"
    flat = sum(request.price(hour_as_minutes=True) or 0.0 for request in requests)
    if is_near(flat, theirs.usd):
        return "ccusage prices 1-hour cache writes as 5-minute ones"
    if any(request.searches for request in requests):
        return "web searches"
    today = sum(request.price(at="2026-11-17T00:00:00+00:00") or 0.0 for request in requests)
    if is_near(today, theirs.usd):
        return "ccusage prices by today's list"
    if any(request.input + request.cache_read + request.cache_write > 200_000 for request in requests):
        return "long context"
    return "another price"


def homes(shared: Path, large: Path | None, work: Path) -> Iterator[tuple[str, str, Path]]:
    """(name, agent, home) of all sessions; those of other layouts are copied into that of the agent."""
    for folder in sorted((shared / "genuine").iterdir()):
        agent = folder.name.partition("-")[0]
        if agent in NAMES:
            yield folder.name, agent, folder / f".{agent}"
    for agent in ("claude", "codex"):
        for folder in sorted((shared / "corpus" / agent).iterdir()):
            target = work / folder.name / ("projects/all" if agent == "claude" else "sessions")
            target.mkdir(parents=True)
            for number, path in enumerate(sorted(folder.rglob("*.jsonl"))):
                session = next((value["sessionId"] for value in lines(path) if value.get("sessionId")), f"{number}")
                is_named = agent == "codex" or path.stem.startswith("agent-")
                shutil.copyfile(path, target / (path.name if is_named else f"{session}.jsonl"))
            yield folder.name, agent, work / folder.name
    if large:
        yield "corpus-large", "claude", large


def stated_total(home: Path, names: Iterable[str]) -> float:
    """What Claude Code says these sessions cost, if it does."""
    paths = [path for name in names for path in home.rglob(f"{name}.jsonl")]
    return sum(value.get("totalCostUSD", 0.0) for path in paths for value in lines(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shared", type=Path, required=True)
    parser.add_argument("--large", type=Path, help="the home of an unpacked corpus-large")
    parser.add_argument("--ccusage", required=True, metavar="PATH")
    parser.add_argument("--all", action="store_true", help="print equal sessions too")
    options = parser.parse_args()
    causes: dict[str, list[tuple[float, float]]] = defaultdict(list)
    wrong = 0
    with tempfile.TemporaryDirectory() as work:
        for name, agent, home in homes(options.shared, options.large, Path(work)):
            requests = COUNTS[agent](home)
            ours, groups = count_ours(agent, home)
            theirs, unpriced = count_ccusage(options.ccusage, agent, home)
            groups += links(agent, home)
            for family in families(requests, groups, [*ours, *theirs]):
                of_family = [request for request in requests if request.session in family]
                mine, other, count = added(ours, family), added(theirs, family), summed(of_family)
                stated = stated_total(home, family) if agent == "claude" else 0.0
                why = "equal"
                if mine.tokens != other.tokens or not is_near(mine.usd, other.usd):
                    why = cause(list({one.key: one for one in of_family}.values()), mine, other, unpriced, stated)
                if mine.tokens != count.tokens or not (stated or is_near(mine.usd, count.usd)):
                    why, wrong = f"NOT THE COUNT {count}; {why}", wrong + 1
                causes[why.partition(";")[0]].append((mine.usd, other.usd))
                if options.all or why != "equal":
                    first = min(family)[:36]
                    print(f"{name} {first} +{len(family) - 1}  {mine.tokens} ${mine.usd:.4f}  "
                          f"{other.tokens} ${other.usd:.4f}  {why}")  # fmt: skip
    print(f"\n{'sessions':>8}  {'recollect':>12}  {'ccusage':>12}  cause")
    for why, pairs in sorted(causes.items(), key=lambda item: -len(item[1])):
        mine_usd, their_usd = (sum(column) for column in zip(*pairs, strict=True))
        print(f"{len(pairs):>8}  {mine_usd:>12,.4f}  {their_usd:>12,.4f}  {why}")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
