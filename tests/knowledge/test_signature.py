"""Two errors are the same if they say the same, wherever and whenever they happened."""

import subprocess
import sys

import pytest

from recollect.knowledge.signature import headline_of, signature_of

GO = "[lint] $ golangci-lint run ./...\ncmd/{file}.go:{line}:15: os/exec.Command must not be called (noctx)\n1 issues:"
PYTEST = """
    def test_{name}():
>       assert add(1, 2) == 3
E       AssertionError: pool is exhausted after {count} ms

{path}/test_pool.py:{count}: AssertionError
=========================== short test summary info ============================
FAILED {path}/test_pool.py::test_{name} - AssertionError: pool is exhausted after {count} ms
1 failed, 2 passed in 0.05s
"""


@pytest.mark.parametrize(
    "one, other",
    [
        (GO.format(file="entire/a", line=3), GO.format(file="x/y/z", line=977)),
        (
            PYTEST.format(name="x", path="/home/ann/app/tests", count=5000),
            PYTEST.format(name="x", path="C:/app", count=31),
        ),
        ("Error: connect ECONNREFUSED 10.0.0.7:5432", "\x1b[31mError: connect ECONNREFUSED 127.0.0.1:5433\x1b[0m"),
        ("/bin/bash: line 1: mise: command not found", "(eval):1: mise: command not found"),
        (
            '2026-01-03T10:11:12Z [worker] fatal: job 7f3a91c2d4e5 of "/srv/a/b" failed',
            '2026-02-08T01:02:03Z [worker] fatal: job 0011223344ff of "/home/x/y" failed',
        ),
    ],
)
def test_paths_numbers_times_hashes_and_colours_make_no_difference(one: str, other: str) -> None:
    assert signature_of(one) == signature_of(other) != ""


def test_different_errors_have_different_signatures() -> None:
    outputs = [
        "ModuleNotFoundError: No module named 'redis'",
        "ModuleNotFoundError: No module named 'numpy'",
        "src/a.ts(3,4): error TS2345: Argument of type 'string' is not assignable",
        "src/a.ts(3,4): error TS2322: Type 'string' is not assignable",
        "FAILED tests/test_a.py::test_add - assert 1 == 2",
        "FAILED tests/test_a.py::test_subtract - assert 1 == 2",
    ]

    assert len({signature_of(output) for output in outputs}) == len(outputs)


def test_the_headline_is_the_line_that_says_what_is_wrong() -> None:
    output = (
        "[fmt] $ gofmt -w .\n[lint] Finished in 12ms\nok  \tapp/a\t0.2s\n"
        "app/b.go:12:3: undefined: setupRepo (typecheck)\n1 issues:\n* typecheck: 1\n[lint] ERROR task failed"
    )

    assert headline_of(output) == "app/b.go:12:3: undefined: setupRepo (typecheck)"


@pytest.mark.parametrize(
    "output", ["", "done", "Error", "exit 1", "[lint] ERROR task failed", "1 failed, 2 passed", "12"]
)
def test_what_names_no_error_has_no_signature(output: str) -> None:
    assert signature_of(output) == ""


def test_a_hook_can_use_it_without_loading_the_library() -> None:
    code = (
        "import sys; from recollect.knowledge.signature import signature_of\n"
        "heavy = {'msgspec', 'orjson', 'apsw', 'click', 'recollect.store'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )

    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("output", "headline"),
    [
        ("FAIL\tgithub.com/acme/shop/cart [build failed]\nFAIL", ""),
        ("1 failed, 2 passed", ""),
        ("    Error Trace:\t/srv/shop/cart_test.go:248\n    Error:      \tNot equal:", ""),
        (
            "    Error Trace:\t/srv/cart_test.go:248\n    Error:      \tNot equal:\n--- FAIL: TestCart (0.01s)",
            "--- FAIL: TestCart (0.01s)",
        ),
        ("gh: Not Found (HTTP 404)", ""),
        ("cart_test.go:12: Cart A has 3 item(s)", ""),
        ("hint: Use -f if you really want to add them.\nerror: the paths are ignored", "error: the paths are ignored"),
    ],
)
def test_the_headline_is_a_line_that_carries_the_message(output: str, headline: str) -> None:
    assert headline_of(output) == headline


def test_a_missing_file_is_known_by_its_name_not_by_its_folder() -> None:
    one, same, other = (
        signature_of(f"cat: {path}: No such file or directory")
        for path in ("/a/b/cart.json", "x/cart.json", "/a/b/c.md")
    )

    assert one == same != other


def test_a_failed_test_file_keeps_its_name() -> None:
    assert signature_of("FAIL: web/cart.test.ts") != signature_of("FAIL: web/order.test.ts")


@pytest.mark.parametrize(
    "output",
    [
        "SyntaxError: invalid syntax",
        "Failed to compile.",
        "Error Context: test-results/login/error-context.md",
        "0 upgraded, 0 newly installed, 0 to remove and 12 not upgraded.",
        "DeprecationWarning: `walrus` must be fed",
        "Error: context deadline exceeded",
        "Command timed out after 2m 0.0s",
    ],
)
def test_a_line_that_names_nothing_of_its_own_identifies_no_error(output: str) -> None:
    assert signature_of(f"Exit code 1\n{output}") == ""


def test_what_a_linter_says_of_any_code_identifies_an_error_with_its_file_only() -> None:
    said = "pool/till.go:{}:2: Error return value is not checked (errcheck)"

    assert signature_of(said.format(3)) == signature_of(said.format(9))
    assert signature_of(said.format(3)) != signature_of(said.format(3).replace("till", "shop"))


def test_the_last_line_that_names_an_error_counts() -> None:
    output = "Exit code 1\n○ Palisade Relay: Not found\nline 31: TINT: unbound variable"

    assert "TINT" in signature_of(output)


@pytest.mark.parametrize(
    ("line", "name"),
    [
        ("bash: gh: 未找到命令", "gh"),
        ("bash: gh：未找到命令", "gh"),
        ("'gh' 不是内部或外部命令，也不是可运行的程序", "gh"),
        ('"gh" no se reconoce como un comando interno o externo,', "gh"),
        ("'gh' は、内部コマンドまたは外部コマンド、操作可能なプログラムとして認識されていません。", "gh"),
        ("/bin/bash: 行 1: gh: 未找到命令", "gh"),
        ("sudo: 需要密码", "sudo"),
        ("bash: Zeile 1: gh: Kommando nicht gefunden.", "gh"),
        ("bash: ligne 1: gh : commande introuvable", "gh"),
        ("ls: no se puede acceder a 'report.txt': No existe el fichero o el directorio", "report.txt"),
        ("rm: 'report.txt' を削除できません: そのようなファイルやディレクトリはありません", "report.txt"),
        ("sh: 1: gh: not found", "gh"),
        ("gh : The term 'gh' is not recognized as the name of a cmdlet, function, script file.", "gh"),
    ],
)
def test_shells_of_other_languages_have_fingerprints(line: str, name: str) -> None:
    assert name in signature_of(f"Exit code 127\n{line}")
