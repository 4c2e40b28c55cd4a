"""Settings: which one wins, and what is said about one that cannot be read."""

from pathlib import Path

import pytest

from recollect.agents import adapters
from recollect.config import Settings, load_settings
from recollect.model.errors import BadConfig, NotFound, RecollectError, UsageError

AGENT = next(iter(adapters()))
VARIABLE = adapters()[AGENT].home_variable


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "recollect"


def load(home: Path, toml: str = "", flags: tuple[str, ...] = (), variable: str = "") -> Settings:
    """The settings with this config.toml, as RECOLLECT_HOME moves it; `variable` is the agent's own."""
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text(toml)
    return load_settings(roots=flags, environment={"RECOLLECT_HOME": str(home), VARIABLE: variable})


def refused(home: Path, toml: str) -> RecollectError:
    with pytest.raises(BadConfig) as error:
        load(home, toml)
    return error.value


def test_recollect_home_moves_store_and_settings(home: Path) -> None:
    settings = load(home, '[domains]\n"acme/shop" = "payments"\n')

    assert settings.folder == home
    assert settings.domains == {"acme/shop": "payments"}


def test_a_tilde_in_recollect_home_moves_both_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    load(tmp_path / "recollect", '[domains]\n"a" = "b"\n')

    settings = load_settings(environment={"RECOLLECT_HOME": "~/recollect"})

    assert settings.folder == tmp_path / "recollect"
    assert settings.domains == {"a": "b"}


def test_a_folder_given_in_code_wins_over_the_environment(home: Path, tmp_path: Path) -> None:
    settings = load_settings(tmp_path / "other", environment={"RECOLLECT_HOME": str(home)})

    assert settings.folder == tmp_path / "other"


def test_an_empty_variable_counts_as_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    settings = load_settings(environment={"RECOLLECT_HOME": "", VARIABLE: ""})

    assert settings.folder.is_relative_to(tmp_path)
    assert settings.roots[AGENT] == (Path(adapters()[AGENT].home).expanduser(),)


def test_without_settings_every_agent_is_looked_for_in_its_usual_home(home: Path) -> None:
    settings = load(home)

    assert set(settings.roots) == set(adapters())
    assert settings.roots[AGENT] == (Path(adapters()[AGENT].home).expanduser(),)


def test_the_agents_own_variable_moves_its_home(home: Path) -> None:
    assert load(home, variable="/elsewhere").roots[AGENT] == (Path("/elsewhere"),)


def test_several_homes_of_one_agent_are_all_read(home: Path) -> None:
    settings = load(home, f'[agents.{AGENT}]\nroots = ["/one", "/two"]\n')

    assert settings.roots[AGENT] == (Path("/one"), Path("/two"))


def test_an_agent_with_an_empty_list_of_homes_is_left_out(home: Path) -> None:
    assert load(home, f"[agents.{AGENT}]\nroots = []\n").roots[AGENT] == ()


def test_the_environment_wins_over_the_settings_file(home: Path) -> None:
    settings = load(home, f'[agents.{AGENT}]\nroots = ["/of-the-file"]\n', variable="/of-the-environment")

    assert settings.roots[AGENT] == (Path("/of-the-environment"),)


def test_a_flag_wins_over_environment_and_file_and_leaves_other_agents_out(home: Path) -> None:
    toml = f'[agents.{AGENT}]\nroots = ["/of-the-file"]\n'

    settings = load(home, toml, (f"{AGENT}=/flag", f"{AGENT}=/second"), variable="/of-the-environment")

    assert settings.roots == {AGENT: (Path("/flag"), Path("/second"))}


def test_a_path_of_a_flag_may_hold_an_equals_sign_and_a_tilde(home: Path) -> None:
    settings = load(home, flags=(f"{AGENT}=~/a=b",))

    assert settings.roots[AGENT] == (Path("~/a=b").expanduser(),)


@pytest.mark.parametrize("flag", ["/path", f"{AGENT}", f"{AGENT}=", ""])
def test_a_flag_without_agent_or_path_is_wrong_usage(home: Path, flag: str) -> None:
    with pytest.raises(UsageError, match="AGENT=PATH"):
        load(home, flags=(flag,))


def test_a_flag_with_an_unknown_agent_names_the_known_ones(home: Path) -> None:
    with pytest.raises(NotFound) as error:
        load(home, flags=("nobody=/x",))

    assert "nobody" in error.value.message
    assert AGENT in (error.value.hint or "")


def test_an_unknown_section_is_named(home: Path) -> None:
    error = refused(home, "[colours]\nx = 1\n")

    assert error.message.endswith(": colours")
    assert "domains" in (error.hint or "")


def test_a_key_outside_of_a_section_is_refused(home: Path) -> None:
    assert "domains" in refused(home, "domains = 1\n").message


def test_an_agent_nobody_knows_is_named(home: Path) -> None:
    assert "nobody" in refused(home, '[agents.nobody]\nroots = ["/x"]\n').message


@pytest.mark.parametrize(
    ("toml", "word"),
    [
        ("[tasks]\npattern = ['x']\n", "pattern"),
        (f'[agents.{AGENT}]\nroot = ["/x"]\n', "root"),
        ('[agents]\nx = "/x"\n', "x"),
        (f'[agents]\n{AGENT} = "/x"\n', AGENT),
    ],
)
def test_an_unknown_key_is_named(home: Path, toml: str, word: str) -> None:
    assert word in refused(home, toml).message


@pytest.mark.parametrize(
    "toml",
    [
        "[tasks]\npatterns = 'one text'\n",
        "[tasks]\npatterns = [1]\n",
        f'[agents.{AGENT}]\nroots = "/x"\n',
        f"[agents.{AGENT}]\nroots = [1]\n",
        '[domains]\n"acme/shop" = 5\n',
    ],
)
def test_a_value_of_the_wrong_kind_is_refused(home: Path, toml: str) -> None:
    assert refused(home, toml).hint


def test_settings_are_looked_at_even_if_flags_make_them_useless(home: Path) -> None:
    with pytest.raises(BadConfig, match="roots"):
        load(home, f"[agents.{AGENT}]\nroots = 1\n", flags=(f"{AGENT}=/x",))


def test_a_file_that_is_no_toml_is_named(home: Path) -> None:
    assert refused(home, "[domains\n").message.endswith(str(home / "config.toml"))


def test_a_file_that_is_nested_too_deeply_is_named(home: Path) -> None:
    assert refused(home, f"a = {'[' * 500}\n").message.endswith(str(home / "config.toml"))


def test_a_pattern_that_is_no_regular_expression_is_refused(home: Path) -> None:
    error = refused(home, "[tasks]\npatterns = ['(']\n")

    assert "Invalid regular expression" in error.message


def test_a_settings_file_that_is_a_folder_is_refused(home: Path) -> None:
    (home / "config.toml").mkdir(parents=True)

    with pytest.raises(BadConfig):
        load_settings(environment={"RECOLLECT_HOME": str(home)})


def test_no_settings_file_is_no_error(home: Path) -> None:
    assert load_settings(environment={"RECOLLECT_HOME": str(home)}).domains == {}


def test_rules_of_redaction_are_read(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text(
        "[redact]\nallow = ['x1', '/y+/']\n[redact.rules]\nbadge = 'badge-(\\d{6})'\n"
    )

    redaction = load_settings(tmp_path, environment={}).redaction

    assert redaction.rules == {"badge": r"badge-(\d{6})"}
    assert redaction.allow == ("x1", "/y+/")


@pytest.mark.parametrize(
    "text",
    [
        "[redact]\nrules = 'x'",
        "[redact.rules]\nbadge = 5",
        "[redact.rules]\nbadge = '('",
        "[redact.rules]\nBadge = 'x'",
        "[redact.rules]\nbadge = 'x*'",
        "[redact]\nallow = 'x'",
        "[redact]\nallow = ['/(/']",
        "[redact]\nnonsense = 1",
    ],
)
def test_rules_of_redaction_that_cannot_work_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.toml").write_text(text)

    with pytest.raises(BadConfig):
        load_settings(tmp_path, environment={})
