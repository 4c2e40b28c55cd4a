"""The counts of docs/internal/size.md find what they should."""

from pathlib import Path

from tools.size import BARS, import_cycles, names_used_twice, read_modules, stale


def _modules(folder: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = folder / "shop" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return folder


def test_modules_that_need_each_other_to_be_loaded_are_a_cycle(tmp_path: Path) -> None:
    later = "def sell():\n    from shop.stock import count\n"
    checked = "if TYPE_CHECKING:\n    from shop.stock import count\n"
    folder = _modules(tmp_path, __init__="", stock="import shop.till\n", till="from shop import stock\n")
    _modules(folder, later=later, checked=checked, door="from shop.later import sell\n")

    assert import_cycles(read_modules(folder)) == [{"shop.stock", "shop.till"}]


def test_a_class_name_in_two_modules_is_used_twice(tmp_path: Path) -> None:
    step = "class Step: ...\nclass _Own: ...\n"
    folder = _modules(tmp_path, one=step, two=f"{step}class Only: ...\n")

    assert names_used_twice(read_modules(folder)) == ["Step"]


def test_a_page_is_stale_if_a_count_differs_by_more_than_the_tolerance() -> None:
    counts = dict.fromkeys(BARS, 1000)
    page = "".join(f"| {name} | 1,000 | ≤ 2,000 |\n" for name in counts)

    assert stale(page, counts) == []
    assert stale(page, counts | {"lines": 1020, "modules": 979}) == ["modules: 1000 written, 979 now"]
    assert len(stale("", counts)) == len(counts)


def test_a_bar_of_none_is_missed_by_one() -> None:
    counts = dict.fromkeys(BARS, 0)
    page = "".join(f"| {name} | 0 | 0 |\n" for name in counts)

    assert stale(page, counts | {"run-time import cycles": 1}) == ["run-time import cycles: 0 written, 1 now"]
