"""Small frames of live sessions, put together by sweeps that are struck."""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from recollect.api import open_memory
from recollect.live import Live
from tests.faults.crashes import Case
from tests.faults.rig import Held, problems, sweep, swept_sessions
from tests.faults.work import Writers

_CHATTED = {f"chat:{number}": [f"said{number}x{part} {'x' * 200}" for part in range(40)] for number in range(3)}
_HOUR_NS = 3_600_000_000_000


def repacking(folder: Path, bug: str | None) -> Case:
    """One session's frames were put together and the old ones are to go; now it is the turn of another."""
    writers, template = swept_sessions(folder, 41), folder / "template"
    _chat(template, "chat:0")
    sweep(template, *writers.roots)
    _chat(template, "chat:1", "chat:2")
    return Case("repack", ["sweep", *writers.root_flags], writers, template, bug, _judge_repacking)


def _chat(store: Path, *keys: str) -> None:
    """Have sessions that fell idle after the last sweep, but for one, which goes on."""
    with open_memory(store) as memory:
        live = Live(memory)
        for key in keys:
            for text in _CHATTED[key]:
                live.append_message(key, "user", text)
        with memory._store._cache.transaction() as connection:
            connection.execute(f"UPDATE live SET updated_ms = updated_ms - {_HOUR_NS // 10**6} WHERE key <> 'chat:2'")
    long_ago = time.time_ns() - 3 * _HOUR_NS
    os.utime(store / "sweep.lock", ns=(long_ago, long_ago))


def _judge_repacking(store: Path, writers: Writers, clean: Held | None, bug: str | None) -> list[str]:
    """Whether every message is there, and the next two sweeps leave few frames and nothing of the old ones."""
    findings = [*_unlike(store, "after the fault")]
    for _ in range(2):
        sweep(store, *writers.roots)
    findings += [*_unlike(store, "after two sweeps"), *problems(store)]
    with open_memory(store) as memory:
        cache = memory._store._cache
        sql = "SELECT key, count(*) FROM live JOIN streams s USING (agent, native_id) JOIN frames ON stream = s.id"
        frames = dict(cache.rows(f"{sql} GROUP BY key"))
        stale = cache.value("SELECT count(*) FROM shared_packs WHERE blank_bytes < 0")
    if max(frames["chat:0"], frames["chat:1"]) > 10 or frames["chat:2"] < 40 or stale:
        findings.append(f"frames: {frames}, packs with old ones: {stale}")
    return findings


def _unlike(store: Path, moment: str) -> Iterator[str]:
    with open_memory(store) as memory:
        live = Live(memory)
        for key, texts in _CHATTED.items():
            if [message.content for message in live.get_history(key, None)] != texts:
                yield f"{key} is not what was said {moment}"
            if not live.search(f"said{key[-1]}x39", session=key).hits:
                yield f"{key} is not found {moment}"
