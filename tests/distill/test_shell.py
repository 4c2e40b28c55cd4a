"""What a command is about."""

import pytest

from recollect.digest import shell

PULL = "https://git.example/o/r/pull/17"
MERGE = "https://git.example/o/r/-/merge_requests/3"


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
        ("cd web && \\\n  CI=1 \\\n  npm run lint", "npm run lint"),
        ("git \\\n  commit -m x", "git commit"),
        ("", "shell"),
        ("&& ||", "shell"),
    ],
)
def test_runs_of_the_same_thing_have_one_family(command: str, family: str) -> None:
    assert shell.family(command) == family


def test_of_a_chain_that_runs_tests_the_tests_count() -> None:
    assert shell.test_family("npm ci && npm run build && npm test -- --watch=false") == "npm test"


@pytest.mark.parametrize("command", ["pytest | tail -3", "pytest; echo done", "pytest || true", "npm test &"])
def test_an_exit_code_may_be_another_programs(command: str) -> None:
    assert shell.exit_of_tests(command) == (False, False)


@pytest.mark.parametrize("command", ["npm run lint && npm test", "pytest && ruff check", "make build && go test ./..."])
def test_a_chain_that_succeeds_has_tests_that_passed_but_may_fail_elsewhere(command: str) -> None:
    assert shell.exit_of_tests(command) == (True, False)


@pytest.mark.parametrize(
    "command",
    ["pytest -q", "cd x && pytest", "pytest -k 'a|b'", 'pytest -m "a; b"', "go test ./... 2>&1", "cd x; go test"],
)
def test_the_exit_code_of_tests_is_their_own(command: str) -> None:
    assert shell.exit_of_tests(command) == (True, True)


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
        ("grep -rn 'git commit' scripts/", None),
        ("git commit-graph write --reachable", None),
        ("git commit --dry-run -m 'try it'", None),
        ("git commit --dry-run -m 'try it' && git commit -m 'make it'", "make it"),
        ("git commit -m 'refuse --dry-run'", "refuse --dry-run"),
        ("git -c user.name='A B' -c commit.gpgsign=false commit -m 'Signed by none'", "Signed by none"),
        ("python - <<'EOF'\nprint('git commit -m x')\nEOF", None),
        ("cat > a.py <<'EOF'\nit's a text\nEOF\ngit add a.py && git commit -m 'Add a text'", "Add a text"),
        ("cat > a.py <<'EOF' it's a text EOF git add a.py && git commit -m 'Add a text'", "Add a text"),
        ("cat <<< word && git commit -m 'Say a word'", "Say a word"),
    ],
)
def test_the_message_of_a_commit_is_found(command: str, message: str | None) -> None:
    assert shell.commit_message(command) == message


@pytest.mark.parametrize(
    ("command", "hides"),
    [
        ("git commit -m x || true", True),
        ("git commit -m x; git status", True),
        ("git commit -m x 2>&1 | tail -3", True),
        ("git commit -m x 2>&1 && git push", False),
        ("git status; git commit -m x", False),
        ("git commit -m 'this; that | those'", False),
        ('git commit -m "$(cat <<\'EOF\'\nSay "a"; or "b\nEOF\n)"', False),
        ('git add . && git commit -m "this; and tha…', False),  # cut in a summary
    ],
)
def test_a_commit_is_hidden_by_what_follows_it(command: str, hides: bool) -> None:
    assert shell.hides_commit(command) == hides


@pytest.mark.parametrize(
    ("command", "lists"),
    [
        ("pytest --collect-only -q", True),
        ("ls tests && pytest --co", True),
        ("cargo test --no-run", True),
        ("pytest --collect-only -q && pytest", False),
        ("pytest -k 'a --collect-only b'", False),
        ("pytest --cov", False),
        ("ls --help", False),
    ],
)
def test_tests_that_are_only_listed_are_not_run(command: str, lists: bool) -> None:
    assert shell.only_lists_tests(command) == lists


@pytest.mark.parametrize(
    ("given", "command"),
    [
        ({"command": "rm a\nls"}, "rm a\nls"),
        ({"cmd": "rm a"}, "rm a"),
        ({"command": ["bash", "-lc", "rm a"]}, "rm a"),
        ({"command": ["rm", "a"]}, "rm a"),
        ({"command": 3}, None),
        ("rm a", "rm a"),
        (None, None),
    ],
)
def test_a_command_is_taken_as_it_was_given(given: object, command: str | None) -> None:
    assert shell.command_given({"input": given}) == command


def test_a_script_of_calls_is_no_command() -> None:
    assert shell.command_of("ran script: await tools.exec()") is None


@pytest.mark.parametrize(
    ("command", "error", "failed"),
    [
        ("cd web && npm test", "exit 1", "npm test"),
        ("cd web && npm test", "exit 1: bash: line 1: cd: web: No such file or directory", None),
        ("cd web && npm test", "exit 1: (eval):cd:1: no such file or directory: web", None),
        ("go build ./a && go build ./b && ls", "exit 1: undefined: x", "go build"),
        ("grep -rn x . | head", "exit 1", None),
        ("npm run fmt && npm run lint", "exit 1: 3 problems", None),
        ("cat notes && go build", "exit 1: undefined: x", "go build"),
        ("cat notes && go build", "exit 1: cat: notes: No such file or directory", "cat"),
        ("git add -A && git commit -m x", "exit 128: fatal: pathspec 'x' did not match any files", "git add"),
        ("git add -A && git commit -m x", "exit 1: lint failed", "git commit"),
        ("git add -A && git commit -m x && git push", "failed: fatal: no upstream", None),
        ("mkdir -p /srv/x; ls /srv/x", "exit 2: ls: cannot access '/srv/x'", "ls"),
        ("rg x && make", "exit 127: zsh:1: command not found: rg", "rg"),
        ("rm -f a && ls *.txt", "exit 1: (eval):1: no matches found: *.txt", None),
        ("echo done", "exit 1", None),
        ("make || ls", "exit 2: ls: cannot access 'x'", None),
    ],
)
def test_a_failure_is_of_the_program_that_it_names_or_that_alone_can_have_failed(
    command: str, error: str, failed: str | None
) -> None:
    assert shell.failed_program(command, error) == failed


@pytest.mark.parametrize(
    ("command", "names"),
    [
        ("git add -A && git commit -m x", ("git add", "git commit")),
        ("cat x | grep y | head", ("cat",)),
        ("make || echo no; ls", ("make", "ls")),
        ("# look\nls -la\ngit status", ("ls", "git status")),
        ("export A=1 && \\\n  ./run.sh", ("run.sh",)),
        ("export A=1 && \\ ./run.sh", ("run.sh",)),
        ("{ ls; }", ("ls",)),
        ("cd x", ()),
    ],
)
def test_each_program_of_a_chain_counts_but_filters_and_the_shells_own_words(
    command: str, names: tuple[str, ...]
) -> None:
    assert shell.programs(command) == names


@pytest.mark.parametrize(
    ("command", "deleted"),
    [
        ("rm docs/color.md", ["docs/color.md"]),
        ("git rm -q a.py b.py && git commit -m 'rm c.py'", ["a.py", "b.py"]),
        ("cd /proj && rm /proj/a.py b.py", ["/proj/a.py"]),
        ("rm -f a.py", []),  # succeeds where there is none
        ("rm a.py; true", []),  # succeeds whatever became of it
        ("rm -r build", []),
        ("git rm --cached a.py", []),
        ("rm *.log $FILE 'my file' /tmp/x", []),
        ("cat > clean.sh << 'EOF' && rm a.py EOF", []),
        ("docker rm web", []),
        ("rm old.txt\nnpm run build\nls dist", []),
        ("rm old.txt\n", ["old.txt"]),
        ("rm a.txt # was unused in src", ["a.txt"]),
        ("rm c.txt > /dev/null", []),
        ("rm c.txt 2>&1 && ls", []),
        ("ls 2>&1 && rm c.txt", ["c.txt"]),
        ("rm notes.txt & wait", []),
        ("rm a.txt && cat > b.txt <<'EOF'\nb\nEOF", ["a.txt"]),
        ("rm a.txt && cat > b.txt <<'EOF'\nb\nEOF\nls", []),
        ("pushd web && rm a.txt", []),
    ],
)
def test_deleted_files_are_those_that_must_have_been_there(command: str, deleted: list[str]) -> None:
    assert shell.removed_files(command) == deleted


@pytest.mark.parametrize(
    ("command", "output", "made"),
    [
        ('gh pr create --draft --title "Fix it"', PULL, (PULL, "Fix it")),
        ("git push && glab mr create -t 'One'", f"!3 {MERGE}", (MERGE, "One")),
        ("gh pr create --fill", PULL, (PULL, "")),
        ("gh pr create --fill", "a pull request already exists", None),
        ("gh pr create --fill", f"Warning: follows {MERGE}\n{PULL}", (PULL, "")),
        ("gh pr view 17", PULL, None),
        ("git commit -m 'run gh pr create'", PULL, None),
    ],
)
def test_a_pull_request_is_told_by_its_address(command: str, output: str, made: tuple[str, str] | None) -> None:
    assert shell.pull_request(command, output) == made
