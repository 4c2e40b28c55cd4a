"""The two small files beside Codex's rollouts: titles and typed prompts."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from recollect.agentkit.content import summarise
from recollect.agentkit.log import NOTHING, Log, Unreadable
from recollect.agentkit.protocol import EventRecord, Record, SessionInfo
from recollect.agentkit.values import remember
from recollect.kinds import HISTORY_LANE, PROMPTS_ONLY, USER_MSG
from recollect.text import cut_short

KEPT_SESSIONS = 200
TITLE_CHARS = 500


class Title(msgspec.Struct, gc=False):
    id: str
    thread_name: str


class Prompt(msgspec.Struct, gc=False):
    session_id: str
    text: str
    ts: int


_decode_title = msgspec.json.Decoder(Title).decode
_decode_prompt = msgspec.json.Decoder(Prompt).decode


class Titles(Log):
    """Names of threads; the last one of a thread holds."""

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        title = _decode_title(raw)
        name = title.thread_name.strip()
        if not title.id or not name:
            self.skip("empty")
            return NOTHING
        self.skip("session_index (no event)")
        return [SessionInfo(title.id, title=cut_short(name, TITLE_CHARS), title_rank=2)]


class Prompts(Log):
    """Prompts typed in the terminal, which Codex keeps longer than the rollouts.

    Codex may cut the file's old end off, so no prompt is named by its offset.
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()
        # Per session the second of its last prompt, and how many came in that second before it.
        self._last: dict[str, list[int]] = dict(state.get("last", {}))

    def dump(self) -> Mapping[str, Any]:
        return {"last": dict(self._last)}

    def read(self, offset: int, raw: bytes, is_lossy: bool = False) -> Sequence[Record]:
        prompt = _decode_prompt(raw)
        session, ts = prompt.session_id, prompt.ts
        if not prompt.text.strip():
            self.skip("empty")
            return NOTHING
        if not 0 < ts < 2**38 or len(session) > 128:
            raise Unreadable("not a prompt")
        before = self._last.get(session)
        number = before[1] + 1 if before and before[0] == ts else 0
        remember(self._last, session, [ts, number], KEPT_SESSIONS)
        event = EventRecord(
            session,
            f"history:{ts}:{number}",
            ts * 256 + min(number, 255),
            ts * 1000,
            USER_MSG,
            {"text": prompt.text},
            summarise(prompt.text),
            lane=HISTORY_LANE,
            role="user",
        )
        return [event] if before else [SessionInfo(session, session_class=PROMPTS_ONLY), event]
