"""A store with sessions small and large, whose home can be taken away."""

from pathlib import Path

import pytest

from recollect.agents import adapters
from tests.builders import AGENT, Home, ScriptedAdapter, event, sweep, usage
from tests.store.rows import noise


@pytest.fixture(autouse=True)
def scripted_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(adapters(), AGENT, ScriptedAdapter())


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """Sessions whose payloads lie in the database (small), in a pack (large), and in both (mixed, in two files)."""
    home = Home(tmp_path / "home")
    home.write("small", *(event("small", number, text=f"small words {number}") for number in range(1, 6)))
    texts = [noise(100_000, number) for number in range(1, 12)]
    home.write("large", *(event("large", number, text=text) for number, text in enumerate(texts, start=1)))
    home.write("mixed-1", event("mixed", 1), None, event("mixed", 2, text=noise(90_000, 90)), usage("mixed", "u1"))
    home.write("mixed-2", event("mixed", 3), event("mixed", 4))
    return home


@pytest.fixture
def store(tmp_path: Path, home: Home) -> Path:
    """Swept and closed."""
    sweep(tmp_path / "store", home).close()
    return tmp_path / "store"
