"""Names from titles, and files that never replace another one nor go where a link leads."""

import os
from pathlib import Path

import pytest

from recollect.archive.documents import slug, write_new
from recollect.model.errors import UsageError


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Fix the failing test!", "fix-the-failing-test"),
        ("../../etc/passwd", "etc-passwd"),
        ("CON", "con"),
        ("a\x00b\nc\x1b[31m", "a-b-c-31m"),
        ("日本語のタイトル", "日本語のタイトル"),
        ("Größe ändern", "größe-ändern"),
        ("🔥🔥", ""),
        ("word " * 40, "-".join(["word"] * 12)),
        ("界" * 100, "界" * 40),
        ("..", ""),
        ("\ud800x", "x"),
    ],
)
def test_titles_become_names_that_every_file_system_takes(title: str, name: str) -> None:
    assert slug(title) == name
    assert len(name.encode()) <= 120


def test_another_file_of_the_name_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("mine")

    paths = [write_new(tmp_path, "a.md", content) for content in (b"one", b"two", b"one")]

    assert [path.name for path in paths] == ["a-2.md", "a-3.md", "a-2.md"]
    assert (tmp_path / "a.md").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a-2.md", "a-3.md", "a.md"]


@pytest.mark.parametrize("target", ["secret", "nowhere"])
def test_a_link_of_the_name_is_not_followed(tmp_path: Path, target: str) -> None:
    folder = tmp_path / "conversations"
    folder.mkdir()
    (tmp_path / "secret").write_text("text")
    (folder / "a.md").symlink_to(tmp_path / target)

    path = write_new(folder, "a.md", b"text")

    assert path.name == "a-2.md"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conversations", "secret"]


def test_a_folder_that_is_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "conversations").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(UsageError, match="A link, not a folder"):
        write_new(tmp_path / "conversations", "a.md", b"text")

    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_pipe_of_the_name_is_stepped_over(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.md")

    assert write_new(tmp_path, "a.md", b"text").name == "a-2.md"
