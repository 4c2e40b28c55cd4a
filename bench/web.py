"""How long each page takes on the server: p50 and p99, fifty at once, and memory over many requests.

    python bench/web.py                     about 100,000 events
    python bench/web.py --events 1000000
    python bench/web.py --store FOLDER      a store that there is
    python bench/web.py --store FOLDER --peer http://127.0.0.1:8080

With `--peer`, the address of an agentsview that has synced the same sessions (`agentsview serve --no-sync`), the same
pages are asked of both servers in turn, over HTTP.

The store is made of sessions by bench/generate.py. Times are the server's own, from request to rendered answer,
without a browser and without the network.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import Request, urlopen

import orjson

from recollect.api import Memory, open_memory
from recollect.web.app import PAGES, Live, Readers, Site
from recollect.web.guard import Tokens
from recollect.web.pages import Params

EVENTS_PER_MB = 185  # of generated logs
PEER = "agentsview"


def requests(memory: Memory) -> Iterator[tuple[str, str, Params]]:
    """A name, a route and parameters for each page."""
    session = max(memory.sessions(limit=200), key=lambda session: session.event_count)
    repo, uid = memory.names("repo")[0], {"uid": session.session_uid}
    digest = memory.digest(session)
    yield "home", "/", Params()
    yield "search", "/search", Params(query={"q": "timeout"})
    yield "sessions", "/sessions", Params()
    yield "transcript", "/session/{uid:path}", Params(uid)
    yield "summary", "/session/{uid:path}", Params(uid, {"view": "summary"})
    yield "changes", "/session/{uid:path}", Params(uid, {"view": "changes"})
    yield "cost", "/session/{uid:path}", Params(uid, {"view": "cost"})
    yield "related", "/session/{uid:path}", Params(uid, {"view": "related"})
    yield "repository", "/repository/{name:path}", Params({"name": repo})
    if digest.files:
        yield "file", "/file", Params(query={"path": digest.files[0].name})
    yield "stats", "/stats", Params()
    yield "stats, year", "/stats", Params(query={"since": "1y"})
    yield "fixes", "/fixes", Params(query={"error": "ModuleNotFoundError: No module named 'x'"})
    yield "known fixes", "/fixes", Params()
    yield "decisions", "/decisions", Params()
    yield "graph", "/graph", Params()
    yield "workflows", "/workflows", Params()
    yield "care", "/care", Params()
    yield "settings", "/settings", Params()


def measure(folder: Path, rounds: int, many: int) -> None:
    readers = Readers(lambda: open_memory(folder, read_only=True))
    site = Site(readers, Tokens(), Live(readers, may_sweep=False), True)
    routes = {page.path: page for page in PAGES}
    with open_memory(folder, read_only=True) as memory:
        asked = list(requests(memory))
        events = sum(agent.events for agent in memory.status().agents)
    print(f"{events:,} events; milliseconds on the server: of the processor at best and at the median, by the clock")
    print(f"{'page':<12} {'best cpu':>8} {'cpu':>8} {'first':>8} {'p50':>8} {'p99':>8} {'KB':>7}")
    for name, path, params in asked:
        times, spent = [], []
        for _ in range(rounds):
            begin, busy = time.perf_counter(), time.process_time()
            answer = site.show(routes[path], params, as_json=False)
            times.append((time.perf_counter() - begin) * 1000)
            spent.append((time.process_time() - busy) * 1000)
        p99 = sorted(times)[int(len(times) * 0.99)]
        figures = (min(spent), statistics.median(spent), times[0], statistics.median(times), p99)
        print(f"{name:<12}" + "".join(f" {figure:8.1f}" for figure in figures) + f" {len(answer.body) / 1000:7.0f}")
    mixed = [one for one in asked if one[0] in ("home", "sessions", "transcript", "summary", "cost", "settings")]
    at_once(site, routes, mixed)
    memory_over(site, routes, mixed, many)


def at_once(site: Site, routes: dict, asked: list) -> None:
    """Fifty requests that arrive together."""
    with ThreadPoolExecutor(50) as pool:
        begin = time.perf_counter()
        work = [pool.submit(site.show, routes[path], params, as_json=False) for _, path, params in asked * 50][:50]
        for done in work:
            done.result()
    print(f"fifty at once: {(time.perf_counter() - begin) * 1000:.0f} ms for all")


def memory_over(site: Site, routes: dict, asked: list, many: int) -> None:
    """The memory in use before, at each quarter of so many requests, and after."""
    in_use = [megabytes_in_use()]
    for number in range(many):
        _, path, params = asked[number % len(asked)]
        site.show(routes[path], params, as_json=False)
        if (number + 1) % max(1, many // 4) == 0:
            in_use.append(megabytes_in_use())
    print(f"memory over {many:,} more requests: {', '.join(f'{megabytes:.0f}' for megabytes in in_use)} MB")


def megabytes_in_use() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1_000_000


def beside_peer(folder: Path, peer: str, rounds: int) -> None:
    """The same pages of both, in turn: of theirs, the answers that its page is made from."""
    with open_memory(folder, read_only=True) as memory:
        session = max(memory.sessions(limit=200), key=lambda session: session.event_count)
    theirs = f"/api/v1/sessions/{session.native_session_id}"
    analytics = [f"/api/v1/analytics/{name}" for name in ("summary", "activity", "heatmap")]
    pages = {
        "sessions": ("/sessions", ["/api/v1/sessions?limit=50"]),
        "search": ("/search?q=timeout", ["/api/v1/search?q=timeout&limit=12"]),
        "session": (f"/session/{session.session_uid}", [theirs, f"{theirs}/messages?limit=100"]),
        "stats": ("/stats?since=1y", [*analytics, "/api/v1/usage/summary"]),
    }
    print(f"{'page':<12} {'ours':>8} {PEER:>12}   milliseconds over HTTP, the median of {rounds}")
    with serving(folder) as (base, headers):
        for name, (ours, parts) in pages.items():
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds):
                times[0].append(asked_for([base + ours], headers))
                times[1].append(asked_for([peer + part for part in parts], {}))
            print(f"{name:<12} {statistics.median(times[0]):8.1f} {statistics.median(times[1]):12.1f}")


@contextmanager
def serving(folder: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A running `recollect web`: its address, and the headers that it answers to."""
    command = [sys.executable, "-u", "-m", "recollect", "web", "--no-open", "--read-only"]
    environment = os.environ | {"RECOLLECT_HOME": str(folder)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as server:
        assert server.stdout is not None
        server.stdout.readline()
        base, _, code = server.stdout.readline().strip().partition("/#code=")
        time.sleep(2)  # until it answers
        exchange = Request(f"{base}/exchange", method="POST", headers={"Recollect-Code": code})
        with urlopen(exchange) as answer:
            token = orjson.loads(answer.read())["token"]
        try:
            yield base, {"Authorization": f"Bearer {token}", "Accept": "text/html", "HX-Request": "true"}
        finally:
            server.terminate()


def asked_for(addresses: list[str], headers: dict[str, str]) -> float:
    begin = time.perf_counter()
    for address in addresses:
        with urlopen(Request(address, headers=headers)) as answer:
            answer.read()
    return (time.perf_counter() - begin) * 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=100_000)
    parser.add_argument("--store", type=Path)
    parser.add_argument("--peer", help=f"address of a running {PEER}")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--requests", type=int, default=10_000)
    options = parser.parse_args()
    if options.store and options.peer:
        beside_peer(options.store, options.peer, options.rounds)
        return
    if options.store:
        measure(options.store, options.rounds, options.requests)
        return
    with TemporaryDirectory(prefix="recollect-") as folder:
        home, store = Path(folder) / "home", Path(folder) / "store"
        script = Path(__file__).with_name("generate.py")
        megabytes = str(max(1, options.events // EVENTS_PER_MB))
        subprocess.run([sys.executable, script, home, "--mb", megabytes, "--agent", "claude"], check=True)
        with open_memory(store, [f"claude={home}"]) as memory:
            memory.sweep()
        measure(store, options.rounds, options.requests)


if __name__ == "__main__":
    main()
