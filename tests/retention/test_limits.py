"""The settings of `[retention]` and `[notify]`, and what is wrong with them."""

import re
from pathlib import Path

import pytest

from recollect.config import Settings, load_settings
from recollect.lifecycle.budget import Limits, parse_size
from recollect.model.errors import BadConfig


def load(tmp_path: Path, text: str) -> Settings:
    (tmp_path / "config.toml").write_text(text)
    return load_settings(environment={"RECOLLECT_HOME": str(tmp_path)})


def test_without_a_section_the_limits_are_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "").limits == Limits()
    assert load(tmp_path, "").notify == ()


def test_sizes_are_texts_with_a_unit_or_bytes(tmp_path: Path) -> None:
    limits = load(
        tmp_path, '[retention]\nraw_soft_cap = "1.5GB"\nraw_hard_cap = 2147483648\ndistilled_cap = "10 mib"'
    ).limits

    assert (limits.raw_soft_cap, limits.raw_hard_cap, limits.distilled_cap) == (1_500_000_000, 2**31, 10 * 2**20)


@pytest.mark.parametrize("text", ["GiB", "4", "4 GiBs", "-1GB", "4,5GB", "1e3MB", "4XB", "four GB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_size(text)


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("raw_soft_cap = 0", "raw_soft_cap"),
        ('raw_soft_cap = "0GiB"', "raw_soft_cap"),
        ("raw_hard_cap = -1", "raw_hard_cap"),
        ("raw_max_age_days = 0", "raw_max_age_days"),
        ("raw_max_age_days = 1.5", "raw_max_age_days"),
        ("distilled_cap = true", "distilled_cap"),
        ('raw_hard_cap = "6 gibbons"', "raw_hard_cap"),
        ('raw_soft_cap = "7GiB"', "raw_soft_cap"),
        ('evict_last_copy = "yes"', "evict_last_copy"),
        ('cadence = "hourly"', "hourly"),
        ("raw_cap = 5", "raw_cap"),
    ],
)
def test_a_wrong_limit_is_one_clear_line(tmp_path: Path, line: str, named: str) -> None:
    with pytest.raises(BadConfig) as error:
        load(tmp_path, f"[retention]\n{line}")

    assert named in error.value.message
    assert error.value.hint


def test_a_command_is_a_list_or_one_text(tmp_path: Path) -> None:
    assert load(tmp_path, "[notify]\ncommand = ['mail', '-s', 'lost it']").notify == ("mail", "-s", "lost it")
    assert load(tmp_path, "[notify]\ncommand = \"mail -s 'lost it'\"").notify == ("mail", "-s", "lost it")


@pytest.mark.parametrize("line", ["command = 5", "command = ['a', 5]", 'command = "mail \'x"', "commands = []"])
def test_what_is_no_command_is_refused(tmp_path: Path, line: str) -> None:
    with pytest.raises(BadConfig):
        load(tmp_path, f"[notify]\n{line}")
