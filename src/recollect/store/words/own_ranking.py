"""BM25 by the rows of one group: FTS5's own counts the words of all, which would show in a group's scores and order."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import apsw
import orjson

_K1, _B = 1.2, 0.75  # as FTS5 has them
_USUAL_TOKENS = 100  # of a row; the average is one over all groups


class _Query(NamedTuple):
    """What one query needs for every row."""

    rarities: Sequence[float]
    weights: Sequence[float]


def rank_by_own_rows(connection: apsw.Connection, rows: str, size: Callable[[], int]) -> None:
    """Have `bm25()` and `rank` of this connection know only the rows whose number is an `id` of the view `rows`.

    `size` is how many rows the group has.
    """
    own = f"SELECT count(*) FROM json_each(?) k CROSS JOIN {rows} r ON r.id = k.value"

    def count(api: apsw.FTS5ExtensionApi, phrase: int) -> int:
        found: list[int] = []
        api.query_phrase(phrase, lambda row, _: found.append(row.rowid), None)
        return int(connection.execute(own, (orjson.dumps(found).decode(),)).get)

    def bm25(api: apsw.FTS5ExtensionApi, *weights: Any) -> float:
        query: _Query | None = api.aux_data
        if query is None:
            total = size()
            rarities = [_rarity(count(api, phrase), total) for phrase in range(api.phrase_count)]
            query = api.aux_data = _Query(rarities, [*weights, *[1.0] * (api.column_count - len(weights))])
        return -_score(api, query)

    connection.register_fts5_function("bm25", bm25)


def _score(api: apsw.FTS5ExtensionApi, query: _Query) -> float:
    length = _K1 * (1 - _B + _B * api.column_size(-1) / _USUAL_TOKENS)
    score = 0.0
    for phrase, rarity in enumerate(query.rarities):
        places = api.phrase_locations(phrase)
        times = sum(weight * len(found) for weight, found in zip(query.weights, places, strict=True))
        score += rarity * times * (_K1 + 1) / (times + length)
    return score


def _rarity(having: int, total: int) -> float:
    return max(math.log((max(total - having, 0) + 0.5) / (having + 0.5)), 1e-6)
