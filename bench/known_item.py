"""Known-item retrieval: what somebody would type to find a session again must find that session.

    python bench/known_item.py [--shared ../shared] [--items FILE]... [--store FOLDER]
                               [--agentsview PATH] [--fast-resume PATH]

Two sets. The titles that agents gave to the sessions of `corpus` and `genuine`; and, on the large corpus, its own
`known-items.json` with those of `--items`: a list of {"query", "sessions", "kind"}, each also by the three rarest of
its words. Neither titles nor summaries are in any index here: titles are taken out of our digests and sessions,
`summary` records out of a copy of the logs. `--store` keeps the swept copy of the large corpus for the next run.

Baselines on the same sessions: plain FTS5 over events (OR of the words, best event of a session), BM25 over whole
sessions, our digests alone, agentsview and fast-resume where they are installed. Prints MRR and recall@5 by kind, with
intervals from resampling the items, and for each baseline the difference item by item.
"""

import argparse
import os
import random
import re
import shutil
import statistics
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import apsw
import orjson

from recollect.api import open_memory
from recollect.recall import Options, search
from recollect.recall.snippets import Texts
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
DIGESTED = "SELECT d.id, s.root_session_uid FROM digests d JOIN sessions s USING (agent, native_session_id)"
AGENT_MADE = ("title_2", "title_1")  # the agent's title, its summary; `title_3` is the user's own

Search = Callable[[str], list[str]]  # a query -> session uids, best first


@dataclass(frozen=True)
class Item:
    """A query and the sessions that it should find."""

    kind: str
    query: str
    sessions: frozenset[str]


class Programs(NamedTuple):
    """Where other programs are, if they are installed."""

    agentsview: str | None
    fast_resume: str | None


def roots(shared: Path) -> list[str]:
    """AGENT=PATH of every home in the folder of real sessions."""
    found = [f"{agent}={shared / 'corpus' / agent}" for agent in HOMES if (shared / "corpus" / agent).is_dir()]
    for agent, name in HOMES.items():
        found += [f"{agent}={path / name}" for path in sorted((shared / "genuine").glob(f"{agent}-*"))]
    return found


def titles(store: Store, shared: Path) -> list[Item]:
    """Every title an agent made, once for each agent, with its sessions; a sub-agent's counts for its root.

    A title that several sessions carry, of whatever agent, is answered by any of them. A summary counts for the session
    that its leaf is in, be it in the file of another one.
    """
    told = [*_stored_titles(store), *_summaries(store, shared)]
    carrying: dict[str, set[str]] = {}
    for _, title, session in told:
        carrying.setdefault(title, set()).add(session)
    names = sorted({(agent, title) for agent, title, _ in told})
    return [Item(agent, title, frozenset(carrying[title])) for agent, title in names]


def _stored_titles(store: Store) -> Iterator[tuple[str, str, str]]:
    """(agent, title, root session) of every session that has one."""
    for key in store.streams.names():
        lasts = [info["last"] for info in store.streams.infos_of([key]).get(key, ())]
        title = next((last[rank] for last in lasts for rank in AGENT_MADE if last.get(rank)), None)
        header = store.sessions.of([key]).get(key)
        if header and title:
            yield key.agent, title, header.root_session_uid


def _summaries(store: Store, shared: Path) -> Iterator[tuple[str, str, str]]:
    """The same of summaries, each by the session that holds the record it was made of."""
    keys = {stream: key for key, stream in store.streams.names().items()}
    for agent, path in (root.split("=", 1) for root in roots(shared)):
        for leaf, title in (found for file in sorted(Path(path).rglob("*.jsonl")) for found in _summaries_in(file)):
            streams = [stream for (stream,) in store._cache.rows(LEAF, (leaf,)) if keys[stream][0] == agent]
            headers = store.sessions.of([keys[stream] for stream in streams])
            yield from ((agent, title, header.root_session_uid) for header in headers.values())


def _summaries_in(file: Path) -> Iterator[tuple[str, str]]:
    for line in file.read_bytes().split(b"\n"):
        if b'"summary"' in line[:40] and b'"leafUuid"' in line:
            record = orjson.loads(line)
            if not record["summary"].startswith(NO_SUMMARY):
                yield record["leafUuid"], record["summary"]


def forget_titles(store: Store) -> None:
    """Take titles out of the sessions, and of the words digests are found by: they are the first line."""
    with store._memory.transaction() as connection:
        for number, text in list(connection.execute(TITLED)):
            connection.execute("UPDATE digest_text SET text = ? WHERE rowid = ?", (text.partition("\n")[2], number))
        connection.execute("UPDATE sessions SET title = NULL")


def ours(store: Store) -> Search:
    def run(query: str) -> list[str]:
        return [hit.session_uid for hit in search(store, query, Options(limit=LIMIT, context=0)).hits]

    return run


def digests(store: Store) -> Search:
    """BM25 over our digests alone."""
    roots_of = dict(store._memory.rows(DIGESTED))

    def run(query: str) -> list[str]:
        match = " OR ".join(f'"{token}"' for token in store.words.tokens(query))
        rows = store._memory.rows("SELECT rowid FROM digest_text WHERE digest_text MATCH ? ORDER BY rank", (match,))
        return list(dict.fromkeys(roots_of[number] for (number,) in rows))[:LIMIT]

    return run


def documents(store: Store) -> list[tuple[str, str]]:
    """(root session, text) of every event that is no copy."""
    texts, found = Texts(store), []
    for key in store.streams.names():
        header = store.sessions.of([key]).get(key)
        events = [step.id for session in store.steps.read([key]) for step in session.steps if step.copy_of is None]
        texts.read(events)
        found += [(header.root_session_uid if header else str(key), texts[event]) for event in events if event in texts]
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


def agentsview(program: str, home: Path, known: Sequence[str]) -> Search:
    """Its full text over messages, OR of the words."""
    environment = {**os.environ, "HOME": str(home), "AGENTSVIEW_DATA_DIR": str(home / "av")}
    subprocess.run([program, "sync"], env=environment, capture_output=True, timeout=600, check=False)

    def run(query: str) -> list[str]:
        command = [program, "session", "search", "--fts", "--json", "--include-children", "--include-one-shot"]
        command += ["--include-automated", "--limit", "500", " OR ".join(re.findall(r"\w+", query))]
        return _named(command, environment, known)

    return run


def fast_resume(program: str, home: Path, known: Sequence[str]) -> Search:
    """Its index of sessions, words as it takes them."""
    environment = {**os.environ, "HOME": str(home)}
    subprocess.run([program, "--rebuild", "--json"], env=environment, capture_output=True, timeout=600, check=False)

    def run(query: str) -> list[str]:
        command = [program, "--json", "--no-refresh", "--limit", "200", "--", query]
        return _named(command, environment, known)

    return run


def _named(command: Sequence[str], environment: Mapping[str, str], known: Sequence[str]) -> list[str]:
    """The sessions that a program's answer names, in its order."""
    answer = subprocess.run(command, env=environment, capture_output=True, timeout=60, check=False).stdout
    text = answer.decode("utf-8", "replace")
    places = {uid: text.find(uid.partition(":")[2].partition("/")[0]) for uid in known}
    return sorted((uid for uid, place in places.items() if place >= 0), key=lambda uid: places[uid])[:LIMIT]


def gather(homes: Sequence[str], folder: Path) -> None:
    """Copy several homes into one, as programs that take no folders expect them."""
    for agent, _, path in (home.partition("=") for home in homes):
        shutil.copytree(path, folder / HOMES[agent], dirs_exist_ok=True, symlinks=True)


def without_summaries(home: Path, copy: Path) -> None:
    """Copy the logs of a home, less the records that hold a session's title."""
    for path in (path for path in home.rglob("*") if path.is_file()):
        lines = path.read_bytes().split(b"\n")
        target = copy / path.relative_to(home)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"\n".join(line for line in lines if not line.startswith(b'{"type":"summary"')))


def large_home(shared: Path, folder: Path) -> Path:
    """The home of the large corpus without summaries, unpacked into a folder once."""
    copy = folder / "home"
    if not copy.exists():
        archive = next((shared / "corpus-large").glob("*.tar.zst"))
        (folder / "raw").mkdir(parents=True)
        subprocess.run(["tar", "--zstd", "-xf", archive, "-C", folder / "raw"], check=True)
        without_summaries(folder / "raw" / "home", copy)
        shutil.rmtree(folder / "raw")
    return copy


def reciprocal_rank(item: Item, answer: Sequence[str]) -> float:
    return next((1 / place for place, uid in enumerate(answer, start=1) if uid in item.sessions), 0.0)


def interval(values: Sequence[float]) -> tuple[float, float]:
    chance = random.Random(1)
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(RESAMPLES))
    return means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)]


def report(name: str, items: Sequence[Item], run: Search) -> list[float]:
    """Print how well a search does by kind; return the reciprocal rank of each item."""
    ranks = [reciprocal_rank(item, run(item.query)) for item in items]
    by_kind: dict[str, list[float]] = {}
    for item, rank in zip(items, ranks, strict=True):
        by_kind.setdefault(item.kind, []).append(rank)
    for kind, values in (*sorted(by_kind.items()), ("all", ranks)):
        low, high = interval(values)
        recall = statistics.fmean(rank >= 1 / 5 for rank in values)
        figures = f"MRR {statistics.fmean(values):.3f} [{low:.3f}, {high:.3f}]  recall@5 {recall:.3f}"
        print(f"{name:<24} {kind:<20} n={len(values):<4} {figures}", flush=True)
    return ranks


def compare(items: Sequence[Item], ours: Sequence[float], others: Mapping[str, Sequence[float]]) -> None:
    """Against each of the others item by item, by kind and all together."""
    for name, theirs in others.items():
        for kind in (*sorted({item.kind for item in items}), "all"):
            pairs = zip(items, ours, theirs, strict=True)
            more = [mine - other for item, mine, other in pairs if kind in (item.kind, "all")]
            low, high = interval(more)
            mean = statistics.fmean(more)
            print(f"{'ok  ' if mean >= 0 else 'MISS'} {mean:+.3f} [{low:+.3f}, {high:+.3f}] against {name}: {kind}")


def measure(store: Store, items: Sequence[Item], homes: Sequence[str], programs: Programs, folder: Path) -> None:
    texts = documents(store)
    known = sorted({uid for uid, _ in texts})
    systems: dict[str, Search] = {
        "recollect": ours(store),
        "digests alone": digests(store),
        "BM25 over sessions": whole_sessions(texts),
        "plain FTS5 over events": plain_events(texts),
    }
    if any(programs):
        gather(homes, folder)
    if programs.agentsview:
        systems["agentsview full text"] = agentsview(programs.agentsview, folder, known)
    if programs.fast_resume:
        systems["fast-resume"] = fast_resume(programs.fast_resume, folder, known)
    ranks = {name: report(name, items, run) for name, run in systems.items()}
    compare(items, ranks.pop("recollect"), ranks)


def read_items(files: Sequence[Path]) -> list[Item]:
    told = [item for file in files for item in orjson.loads(file.read_bytes())]
    return [Item(item["kind"], item["query"], frozenset(item["sessions"])) for item in told]


def rarest(items: Sequence[Item], store: Store) -> list[Item]:
    """The same items, asked for by the three rarest of their words, as somebody who remembers little types them."""
    counts: Counter[str] = Counter()
    words = {item: list(dict.fromkeys(re.findall(r"\w+", item.query.lower()))) for item in items}
    for month in store.words.frequencies({word for asked in words.values() for word in asked}).values():
        counts.update(month)
    few = {item: sorted(asked, key=lambda word: counts[word])[:3] for item, asked in words.items()}
    asked_by = {item: " ".join(word for word in words[item] if word in few[item]) for item in items}
    return [Item(f"{item.kind}, rarest", query, item.sessions) for item, query in asked_by.items()]


def main() -> None:
    parser = argparse.ArgumentParser()
    beside = Path(__file__).parent.parent.parent / "shared"
    parser.add_argument("--shared", type=Path, default=Path(os.environ.get("RECOLLECT_SHARED", beside)))
    parser.add_argument("--items", type=Path, action="append", default=[])
    parser.add_argument("--store", type=Path)
    parser.add_argument("--agentsview", default=shutil.which("agentsview"))
    parser.add_argument("--fast-resume", default=shutil.which("fr"))
    options = parser.parse_args()
    programs = Programs(options.agentsview, options.fast_resume)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        memory = stack.enter_context(open_memory(folder / "store", roots(options.shared)))
        memory.sweep()
        items = titles(memory._store, options.shared)
        forget_titles(memory._store)
        print("Titles of corpus and genuine")
        measure(memory._store, items, roots(options.shared), programs, folder / "av-titles")
        kept = options.store or folder / "large"
        homes = [f"claude={large_home(options.shared, kept) / '.claude'}"]
        memory = stack.enter_context(open_memory(kept / "store", homes))
        memory.sweep()
        items = read_items([options.shared / "corpus-large" / "known-items.json", *options.items])
        items += rarest(items, memory._store)
        print("\nKnown items of the large corpus")
        measure(memory._store, items, homes, programs, folder / "av-large")


if __name__ == "__main__":
    main()
