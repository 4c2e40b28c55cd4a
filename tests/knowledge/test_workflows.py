"""Orders of steps that several exchanges took."""

import random

from recollect.knowledge.workflows import find_workflows
from recollect.store import StoredExchange


def _exchange(steps: str) -> StoredExchange:
    return StoredExchange(1, "ab" * 16, "a goal", steps, 1, 10, 1000, None, "scripted:s", "scripted", None)


def _is_piece(piece: tuple[str, ...], whole: tuple[str, ...]) -> bool:
    steps = iter(whole)
    return len(piece) < len(whole) and all(step in steps for step in piece)


def test_a_piece_of_a_longer_order_that_is_nearly_as_frequent_is_left_out() -> None:
    exchanges = [_exchange("read edit test commit")] * 4 + [_exchange("read edit")] * 6

    found = {flow.steps: flow.support for flow in find_workflows(exchanges)}

    assert found[("read", "edit", "test", "commit")] == 4
    assert found[("read", "edit")] == 10
    assert ("edit", "test") not in found


def test_no_order_is_listed_beside_one_that_covers_it() -> None:
    chance = random.Random(4)
    exchanges = [_exchange(" ".join(chance.choices("abcde", k=chance.randint(2, 8)))) for _ in range(60)]

    found = find_workflows(exchanges)

    assert len(found) > 20
    for one in found:
        covering = [other for other in found if _is_piece(one.steps, other.steps)]
        assert all(other.support < 0.8 * one.support for other in covering), one
