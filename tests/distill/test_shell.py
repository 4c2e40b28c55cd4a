"""What a command is about."""

import pytest

from recollect.distill import shell


@pytest.mark.parametrize(
    ("command", "family"),
    [
        ("npm test", "npm test"),
        ("cd web && CI=1 npm run lint -- --fix", "npm run lint"),
        ("git -C /tmp/x commit -m 'a && b'", "git commit"),
        ("git add -A && git commit -m x", "git commit"),
        ("git add -A", "git add"),
        ("pwd; git checkout main", "git checkout"),
        ("sudo /usr/bin/systemctl restart nginx", "systemctl restart"),
        ("timeout 60 uv run pytest -q", "pytest"),
        ("python3 -m http.server", "http.server"),
        ("python script.py --flag", "python"),
        ("cat <<'EOF' > x\nrm -rf /\nEOF", "cat"),
        ("docker compose up -d", "docker compose up"),
        ("rg 'foo; npm test' src", "rg"),
        ("FOO=bar BAZ=1 ./run.sh", "run.sh"),
        ("", "shell"),
        ("&& ||", "shell"),
    ],
)
def test_runs_of_the_same_thing_have_one_family(command: str, family: str) -> None:
    assert shell.family(command) == family


def test_of_a_chain_that_runs_tests_the_tests_count() -> None:
    assert shell.test_family("npm ci && npm run build && npm test -- --watch=false") == "npm test"


@pytest.mark.parametrize("command", ["pytest | tail -3", "pytest; echo done", "pytest || true"])
def test_an_exit_code_may_be_another_programs(command: str) -> None:
    assert shell.hides_exit(command)


@pytest.mark.parametrize("command", ["pytest -q", "cd x && pytest", "pytest -k 'a|b'", 'pytest -m "a; b"'])
def test_quoted_marks_hide_nothing(command: str) -> None:
    assert not shell.hides_exit(command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("git commit -m 'Fix the parser'", "Fix the parser"),
        ('git add -A && git commit -am "Fix \\"it\\""', 'Fix \\"it\\"'),
        ("git commit -m \"$(cat <<'EOF' Fix the parser EOF )\"", "Fix the parser"),
        ("git commit --amend --no-edit", ""),
        ("git log --grep commit", None),
        ("cd /tmp && git init x && cd x && git commit -m init", None),
        ("echo commit", None),
    ],
)
def test_the_message_of_a_commit_is_found(command: str, message: str | None) -> None:
    assert shell.commit_message(command) == message


def test_a_script_of_calls_is_no_command() -> None:
    assert shell.command_of("ran script: await tools.exec()") is None
