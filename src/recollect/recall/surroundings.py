"""What stands round an event, and at a session's ends: pure, from the outline of a session."""

from collections.abc import Sequence

from recollect.kinds import (
    ASSISTANT_MSG,
    COMPLETION,
    ERROR,
    FILES_LANE,
    HISTORY_LANE,
    HUMAN_INTERVENTION,
    USER_MSG,
)
from recollect.store.excerpts import Outline

_TELLING = (USER_MSG, ASSISTANT_MSG, COMPLETION, ERROR, HUMAN_INTERVENTION)


class Surroundings:
    """Finds neighbours by number. A window stays in its lane: what a side file holds did not happen next."""

    def __init__(self, outline: Sequence[Outline], context: int) -> None:
        self._outline = outline
        self._context = context
        self._places = {event.id: place for place, event in enumerate(outline)}

    def around(self, event: int) -> tuple[list[int], list[int]]:
        """The events before and after one, in reading order."""
        place = self._places.get(event)
        if place is None:
            return [], []
        lane = self._outline[place].lane
        before = self._outline[max(0, place - self._context) : place]
        after = self._outline[place + 1 : place + 1 + self._context]
        return [item.id for item in before if item.lane == lane], [item.id for item in after if item.lane == lane]

    @property
    def ends(self) -> tuple[int | None, int | None]:
        """The first request, and the last event that says how things stand."""
        events = [item for item in self._outline if item.lane not in (FILES_LANE, HISTORY_LANE)]
        first = next((item.id for item in events if item.kind == USER_MSG), None)
        last = next((item.id for item in reversed(events) if item.kind in _TELLING), None)
        return first, last
