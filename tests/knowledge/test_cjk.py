"""Goals, decisions and reminders in languages that put no spaces between words."""

from pathlib import Path

import pytest

from tests.knowledge.sessions import Script, remembered


@pytest.mark.parametrize(
    ("goal", "said"),
    [
        ("发布移动端", "在预览环境里发布移动端应用"),
        ("订单导出怎么加分页", "帮我给订单导出功能加上分页，数据太多的时候页面会卡死"),
        ("請求書 改ページ", "請求書のPDF出力に明細の改ページを追加してください"),
    ],
)
def test_how_finds_a_goal_by_a_part_of_it(tmp_path: Path, goal: str, said: str) -> None:
    other = Script("other").user("修复登录页面的按钮").run("make test", "3 passed", is_test=True).agent("好了。")
    script = Script("right").user(said).run("make test", "3 passed", is_test=True).agent("好了。")

    routes = remembered(tmp_path, other, script).knowledge.how(goal)

    assert [route.session_uid for route in routes] == ["scripted:right"]


@pytest.mark.parametrize("topic", ["需要事务", "为什么用 PostgreSQL", "数据库用什么"])
def test_why_finds_a_decision_by_a_part_of_it_or_of_its_reason(tmp_path: Path, topic: str) -> None:
    script = Script("s").user("把订单存起来").agent("可以用 Redis 或 PostgreSQL。")
    script.ask("数据库用哪一个？", ["PostgreSQL，因为需要事务", "Redis"], "PostgreSQL，因为需要事务")

    answers = remembered(tmp_path, script).knowledge.why(topic)

    assert "PostgreSQL" in answers[0].text


def test_why_not_asks_for_what_was_turned_down(tmp_path: Path) -> None:
    script = Script("s").user("我们决定用 SQLite 而不是 Postgres，因为部署简单").agent("好的。")

    assert "SQLite" in remembered(tmp_path, script).knowledge.why("为什么不用Postgres")[0].text
