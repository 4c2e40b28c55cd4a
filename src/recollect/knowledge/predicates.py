"""What facts say, their ids, and how sure they are: all that asking for facts needs of how they are found."""

from hashlib import blake2b

from recollect.store import PINNED, PROMOTED

CAUSED_BY, FIXED_BY, REQUIRES, CONFLICTS_WITH = "caused_by", "fixed_by", "requires", "conflicts_with"
PREFERS, DECIDED, FAILS_WITH, TOUCHES, HAS_VALUE = "prefers", "decided", "fails_with", "touches", "has_value"
FOLLOWS = "follows"  # of steps in a workflow: made of exchanges when it is asked for
PREDICATES = (
    CAUSED_BY, FIXED_BY, REQUIRES, CONFLICTS_WITH, PREFERS, DECIDED, FAILS_WITH, TOUCHES, HAS_VALUE
)  # fmt: skip
SURE = 0.99
GONE = "the error was gone in the next run, which failed otherwise"
PASSED = "then passed: "  # and the command: the receipt of a fix
STANDING = 0.8  # how sure a rule is that a user states for all that follows
LEAST_CONFIDENCE = 0.6  # of what is shown unasked


def fact_uid(*parts: str) -> str:
    return blake2b("\0".join(parts).encode(), digest_size=8).hexdigest()


def judged(confidence: float, verdict: str | None) -> float:
    """How sure a fact is with what the user said of it."""
    return SURE if verdict in (PROMOTED, PINNED) else confidence
