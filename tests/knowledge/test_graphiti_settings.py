"""Nothing is sent anywhere unless `[graphiti]` says where, and its settings are checked; needs no extra."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from recollect.api import open_memory
from recollect.cli import main
from recollect.config import load_settings
from recollect.knowledge.graphiti import GraphitiSettings, TokenMeter
from recollect.knowledge.graphiti.plan import BudgetReached
from recollect.model.errors import BadConfig, RecollectError
from recollect.store import read_tokens


@pytest.mark.parametrize(
    "setting",
    ['url = "http://127.0.0.1"', 'graph = "my graph"', 'after_sweep = "always"', "tokens_per_day = 0", "model = 3"],
)
def test_an_invalid_setting_is_named(tmp_path: Path, setting: str) -> None:
    (tmp_path / "config.toml").write_text(f"[graphiti]\n{setting}\n")

    with pytest.raises(BadConfig, match=setting.partition(" ")[0]):
        load_settings(tmp_path)


def test_without_a_database_nothing_is_pushed(tmp_path: Path) -> None:
    with open_memory(tmp_path / "store") as memory, pytest.raises(RecollectError) as error:
        _ = memory.graphiti

    assert error.value.message in ("No graph database is configured", "Graphiti is not installed")


def test_a_budget_for_facts_is_wrong_usage(tmp_path: Path) -> None:
    open_memory(tmp_path / "store").close()

    result = CliRunner().invoke(main, ["knowledge", "graphiti", "push", "--budget", "5", "--json"])

    assert (result.exit_code, json.loads(result.stdout)["error"]["code"]) == (2, "usage")


def test_groups_have_graphs_of_their_own() -> None:
    settings = GraphitiSettings(graph="mine")

    names = [settings.group_id(group) for group in ("main", "work", "a.b", "a-b", "a_b")]

    assert names[:2] == ["mine", "mine_work"]
    assert len(set(names)) == 5
    assert all(name.replace("_", "").isalnum() for name in names)


def test_what_a_call_may_cost_is_on_the_disk_before_it_is_made(tmp_path: Path) -> None:
    meter = TokenMeter(tmp_path, 1000)

    meter.reserve(600)

    assert list(read_tokens(tmp_path).values()) == [600]
    meter.settle(600, {"prompt_tokens": 100, "completion_tokens": 20})
    assert list(read_tokens(tmp_path).values()) == [120]
    assert TokenMeter(tmp_path, 1000).budget == 880


def test_after_a_refusal_no_smaller_call_is_made(tmp_path: Path) -> None:
    meter = TokenMeter(tmp_path, 1000)

    for tokens in (1001, 1):
        with pytest.raises(BudgetReached):
            meter.reserve(tokens)

    meter = TokenMeter(tmp_path, 1000)
    meter.reserve(1000)
    assert not meter.is_spent
