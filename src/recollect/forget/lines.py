"""A sub-agent's line in the digest of an evicted root. That digest cannot be made again, so the line is taken out."""

from collections.abc import Collection, Sequence

import orjson

from recollect.kinds import SessionKey, session_uid
from recollect.redact import KnownValues
from recollect.store import Store

_FORGOTTEN = "[forgotten]"


class _Lines(KnownValues):
    """Replaces whole lines and nothing else."""

    def __init__(self, lines: Collection[str]) -> None:
        self._lines = lines

    def payloads(self, payloads: Sequence[bytes]) -> dict[int, bytes]:
        texts = self._replaced([payload.decode() for payload in payloads], [_in_json(line) for line in self._lines])
        return {number: text.encode() for number, text in texts.items()}

    def texts(self, texts: Sequence[str]) -> dict[int, str]:
        return self._replaced(texts, self._lines)

    def _replaced(self, texts: Sequence[str], lines: Collection[str]) -> dict[int, str]:
        changed = {}
        for number, text in enumerate(texts):
            for line in lines:
                if line in text:
                    changed[number] = text = text.replace(line, _FORGOTTEN)
        return changed


def _in_json(line: str) -> str:
    return orjson.dumps(line).decode()[1:-1]


def drop_lines(store: Store, keys: Collection[SessionKey]) -> None:
    """Take the lines of sub-agents out of the digests of evicted sessions that stay."""
    uids, roots = {session_uid(*key) for key in keys}, {session_uid(*key): key for key in store.evictions.names()}
    for root, lines in store.digest_rows.lines(sorted(roots)).items():
        if root not in uids and (gone := [line for uid, (_, line) in lines.items() if uid in uids]):
            store.redaction.hide_in_session(roots[root], _Lines(gone))
            store.evictions.redact_records(_Lines(gone), of=roots[root])
