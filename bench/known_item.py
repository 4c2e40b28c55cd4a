"""Known-item retrieval: the title an agent gave a session, as a query, must find that session.

    python bench/known_item.py [--shared ../shared] [--agentsview PATH]

Titles are in no index here: they are taken out of ours. Three baselines run beside it on the same sessions: BM25 over
whole sessions, plain FTS5 over events, and agentsview's full text where it is installed. A title that several sessions
carry, of whatever agent, is answered by any of them. A summary counts for the session that its leaf is in, be it told
in the file of another one; those of which no leaf is at hand are of sessions that nobody has. Prints MRR and recall@5
by agent, and of all titles, each counted once, with intervals from resampling the titles.
"""

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import apsw
import orjson

from recollect.memory import open_memory
from recollect.recall.search import Options, search
from recollect.recall.texts import Texts
from recollect.store import Store

LIMIT = 20
RESAMPLES = 2000
HOMES = {"claude": ".claude", "codex": ".codex", "grok": ".grok"}
NO_SUMMARY = "Invalid API key"  # what the agent wrote where it could not make one
LEAF = "SELECT DISTINCT stream FROM events WHERE native_id = ? AND copy_of IS NULL"
TITLED = (
    "SELECT t.rowid, t.text FROM digest_text t JOIN digests d ON d.id = t.rowid"
    " JOIN sessions s USING (agent, native_session_id) WHERE s.title IS NOT NULL"
)
AGENT_MADE = ("title_2", "title_1")  # the agent's title, its summary; `title_3` is the user's own

Search = Callable[[str], list[str]]  # a query -> session uids, best first


@dataclass(frozen=True)
class Item:
    """A title and the sessions that carry it."""

    agent: str
    title: str
    sessions: frozenset[str]


def roots(shared: Path) -> list[str]:
    """AGENT=PATH of every home in the folder of real sessions."""
    found = [f"{agent}={shared / 'corpus' / agent}" for agent in HOMES if (shared / "corpus" / agent).is_dir()]
    for agent, name in HOMES.items():
        found += [f"{agent}={path / name}" for path in sorted((shared / "genuine").glob(f"{agent}-*"))]
    return found


def items(store: Store, shared: Path) -> list[Item]:
    """Every title an agent made, once for each agent, with its sessions; a sub-agent's counts for its root."""
    told = [*_stored_titles(store), *_summaries(store, shared)]
    carrying: dict[str, set[str]] = {}
    for _, title, session in told:
        carrying.setdefault(title, set()).add(session)
    names = sorted({(agent, title) for agent, title, _ in told})
    return [Item(agent, title, frozenset(carrying[title])) for agent, title in names]


def _stored_titles(store: Store) -> Iterator[tuple[str, str, str]]:
    """(agent, title, root session) of every session that has one."""
    for agent, native_id in store.streams.names():
        lasts = [info["last"] for info in store.streams.infos(agent, native_id)]
        title = next((last[rank] for last in lasts for rank in AGENT_MADE if last.get(rank)), None)
        card = store.cards.of([(agent, native_id)]).get((agent, native_id))
        if card and title:
            yield agent, title, card.root_session_uid


def _summaries(store: Store, shared: Path) -> Iterator[tuple[str, str, str]]:
    """The same of summaries, each by the session that holds the record it was made of."""
    keys = {stream: key for key, stream in store.streams.names().items()}
    for agent, path in (root.split("=", 1) for root in roots(shared)):
        for leaf, title in (found for file in sorted(Path(path).rglob("*.jsonl")) for found in _summaries_in(file)):
            streams = [stream for (stream,) in store._cache.rows(LEAF, (leaf,)) if keys[stream][0] == agent]
            cards = store.cards.of([keys[stream] for stream in streams])
            yield from ((agent, title, card.root_session_uid) for card in cards.values())


def _summaries_in(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_bytes().split(b"\n"):
        if b'"summary"' in line[:40] and b'"leafUuid"' in line:
            record = orjson.loads(line)
            if not record["summary"].startswith(NO_SUMMARY):
                yield record["leafUuid"], record["summary"]


def forget_titles(store: Store) -> None:
    """Take titles out of the words digests are found by: they are the first line."""
    with store._memory.transaction() as connection:
        for number, text in list(connection.execute(TITLED)):
            connection.execute("UPDATE digest_text SET text = ? WHERE rowid = ?", (text.partition("\n")[2], number))


def ours(store: Store) -> Search:
    def run(query: str) -> list[str]:
        return [hit.session_uid for hit in search(store, query, Options(limit=LIMIT, context=0)).hits]

    return run


def _documents(store: Store) -> list[tuple[str, str]]:
    """(root session, text) of every event that is no copy."""
    texts, found = Texts(store), []
    for key, stream in store.streams.names().items():
        card = store.cards.of([key]).get(key)
        events = [mark.id for mark in store.streams.events(stream) if mark.copy_of is None]
        texts.read(events)
        found += [(card.root_session_uid if card else str(key), texts[event]) for event in events if event in texts]
    return found


def _words(query: str) -> str:
    return " OR ".join(f'"{word}"' for word in re.findall(r"\w+", query))


def plain_events(documents: Sequence[tuple[str, str]]) -> Search:
    """FTS5 as it comes: an event is a row, a session is as good as its best one."""
    return _plain(documents)


def whole_sessions(documents: Sequence[tuple[str, str]]) -> Search:
    """BM25 with a session as one document."""
    joined: dict[str, list[str]] = {}
    for session, text in documents:
        joined.setdefault(session, []).append(text)
    return _plain([(session, "\n".join(texts)) for session, texts in joined.items()])


def _plain(rows: Sequence[tuple[str, str]]) -> Search:
    database = apsw.Connection(":memory:")
    database.execute("CREATE VIRTUAL TABLE t USING fts5(session UNINDEXED, body)")
    with database:
        database.executemany("INSERT INTO t VALUES (?, ?)", rows)

    def run(query: str) -> list[str]:
        found = database.execute("SELECT session FROM t WHERE t MATCH ? ORDER BY rank LIMIT 2000", (_words(query),))
        return list(dict.fromkeys(session for (session,) in found))[:LIMIT]

    return run


def agentsview(program: str, shared: Path, known: Sequence[str], folder: Path) -> Search:
    """Its full text over messages, of the same homes gathered in one."""
    for agent, name in HOMES.items():
        for root in roots(shared):
            told, _, path = root.partition("=")
            if told == agent:
                shutil.copytree(path, folder / name, dirs_exist_ok=True, symlinks=True)
    environment = {**os.environ, "HOME": str(folder), "AGENTSVIEW_DATA_DIR": str(folder / "av")}
    subprocess.run([program, "sync"], env=environment, capture_output=True, timeout=300, check=False)

    def run(query: str) -> list[str]:
        command = [program, "session", "search", "--fts", "--json", "--include-children", "--include-one-shot"]
        command += ["--include-automated", "--limit", "500", " ".join(re.findall(r"\w+", query))]
        told = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).stdout
        text = told.decode("utf-8", "replace")
        places = {uid: text.find(uid.partition(":")[2].partition("/")[0]) for uid in known}
        return sorted((uid for uid, place in places.items() if place >= 0), key=lambda uid: places[uid])[:LIMIT]

    return run


def reciprocal_rank(item: Item, answer: Sequence[str]) -> float:
    return next((1 / place for place, uid in enumerate(answer, start=1) if uid in item.sessions), 0.0)


def interval(values: Sequence[float]) -> tuple[float, float]:
    chance = random.Random(1)
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def report(name: str, wanted: Sequence[Item], run: Search) -> list[float]:
    """Print how well a search does by agent; return the rank of each title, which all together count once."""
    ranks = [(item, reciprocal_rank(item, run(item.title))) for item in wanted]
    once = {item.title: rank for item, rank in ranks}
    by_agent = {
        agent: [rank for item, rank in ranks if item.agent == agent] for agent in {item.agent for item in wanted}
    }
    for agent, some in (*sorted(by_agent.items()), ("all", list(once.values()))):
        low, high = interval(some)
        recall = statistics.fmean(rank >= 1 / 5 for rank in some)
        found = f"MRR {statistics.fmean(some):.3f} [{low:.3f}, {high:.3f}]  recall@5 {recall:.3f}"
        print(f"{name:<24} {agent:<8} n={len(some):<4} {found}")
    return list(once.values())


def compare(ours: Sequence[float], others: Mapping[str, Sequence[float]]) -> None:
    """Against the best of the others, title by title."""
    best = max(others, key=lambda name: statistics.fmean(others[name]))
    more = [mine - theirs for mine, theirs in zip(ours, others[best], strict=True)]
    low, high = interval(more)
    ratio = statistics.fmean(ours) / statistics.fmean(others[best])
    print(f"{'ok  ' if ratio >= 1 else 'MISS'} MRR {ratio:.2f} of {best}; title by title [{low:+.3f}, {high:+.3f}]")


def main() -> None:
    parser = argparse.ArgumentParser()
    beside = Path(__file__).parent.parent.parent / "shared"
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("RECOLLECT_SHARED", beside)))
    parser.add_argument("--agentsview", default=shutil.which("agentsview"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_memory(Path(folder) / "store", roots(options.shared)) as memory:
        memory.sweep()
        store = memory._store
        wanted = items(store, options.shared)
        forget_titles(store)
        documents = _documents(store)
        systems: dict[str, Search] = {
            "recollect": ours(store),
            "BM25 over sessions": whole_sessions(documents),
            "plain FTS5 over events": plain_events(documents),
        }
        if options.agentsview:
            known = sorted({session for session, _ in documents})
            systems["agentsview full text"] = agentsview(
                options.agentsview, options.shared, known, Path(folder) / "home"
            )
        ranks = {name: report(name, wanted, run) for name, run in systems.items()}
        compare(ranks.pop("recollect"), ranks)


if __name__ == "__main__":
    main()
