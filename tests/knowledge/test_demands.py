"""Which sentences of a user are rules for every later session or choices between two things, and which are neither."""

from pathlib import Path

import pytest

from recollect.knowledge.demands import demanded
from tests.knowledge.sessions import Script, remembered

RULES = """
From now on never commit directly to main, open a pull request instead
I want you to always answer in German
In this repo use pnpm, not npm
Let's use tabs from now on
Always use tabs in this repository, never spaces.
Please always run the linter before you commit
We never mock the database in tests
Commits must never contain generated files
Never lowercase — the Terraform provider treats casing as significant
以后都用 pnpm，不要再用 npm，锁文件才不会打架。
时间一律存 UTC，展示的时候再转成用户的时区。
接口返回的金额统一用分，整数，不要用浮点数。
今後はモックを使わず、テストでは本物のデータベースを使ってください。
エラーメッセージは必ず日本語で出すことにします。
今後はコミットメッセージを英語で書いてください
必须先跑测试再提交
Immer auf Deutsch antworten bitte
Désormais, écris les messages de commit en français
"""
CHOICES = """
We decided to go with Postgres because of JSONB
We chose Postgres over MySQL because of JSONB
we use postgres, not mysql
No, avoid Redis here.
我们决定放弃微前端，改回单体应用，因为构建时间太长。
数据库不要用 Redis，改用 PostgreSQL，因为需要事务
"""
NEITHER = """
skip the big image
ignore the large file
use LINTER agent on parser
only repair the footer now, leave the rest
rename foo to bar
please rename the quokkafish helper
tell Robin what is left to do
I'm on main, so I should have those fixes.
I always assumed the `io` base classes handled most of that.
We should probably add a small verification step too.
We could make it even more readable by using f-strings.
No need to over-engineer the type hinting right out of the gate for every corner of the library.
use the second one instead of the first
should we always use tabs?
it always fails on CI
we always get this error
we never found out why it crashed
please always-on the display in the mock
必须重启服务器
keep all the color changes we made
总是报错
ビルドがいつも失敗します
From now on the hero never looks back.
Don't change the tests for now
can you commit and push it
I want you to check the logs
keep going please now
never mind
"""


def lines(text: str) -> list[str]:
    return text.strip().splitlines()


@pytest.mark.parametrize("sentence", lines(RULES))
def test_a_rule_for_later_sessions_is_told_unasked(sentence: str) -> None:
    assert demanded(sentence) >= 0.8


@pytest.mark.parametrize("sentence", lines(CHOICES))
def test_a_choice_is_a_decision(sentence: str) -> None:
    assert 0.6 <= demanded(sentence) < 0.8


@pytest.mark.parametrize("sentence", lines(NEITHER))
def test_an_order_a_state_or_a_thought_decides_nothing(sentence: str) -> None:
    assert demanded(sentence) < 0.6


@pytest.mark.parametrize(
    "message",
    [
        "Sort these notes into chapters: the guests must always feel at home. From now on never trust the narrator.",
        "You are a reviewer. Always answer in JSON.",
        "<ide_selection>Always use tabs</ide_selection>",
        "| rule | Always use tabs |\n| - | - |",
    ],
)
def test_what_was_pasted_is_no_rule(tmp_path: Path, message: str) -> None:
    assert remembered(tmp_path, Script("said").user(message).agent("Done.")).knowledge.decisions() == []


def test_the_reason_and_the_choice_are_the_next_sentences(tmp_path: Path) -> None:
    said = "No, avoid Redis here. We run serverless, connections do not survive. Use DynamoDB instead."
    script = Script("said").user("Set up the session store").agent("I would use Redis.").user(said).agent("Understood.")

    fact = remembered(tmp_path, script).knowledge.why("Why did we avoid Redis here?")[0]

    assert (fact.text, fact.choice, fact.alternatives) == (said, "DynamoDB", ("Redis",))
    assert fact.reason == "We run serverless, connections do not survive."


def test_a_choice_answers_although_it_does_not_name_what_was_turned_down(tmp_path: Path) -> None:
    said = "We decided to go with Postgres because of JSONB."
    script = Script("said").user("Fix the header").agent("Done.").user(said).agent("Understood.")

    assert remembered(tmp_path, script).knowledge.why("Why Postgres and not MySQL?")[0].reason == "JSONB"
