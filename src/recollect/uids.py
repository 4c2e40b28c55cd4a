"""The ids by which everything cites events."""

from hashlib import blake2b


def event_uid(agent: str, native_session_id: str, native_id: str, block: int = 0) -> bytes:
    """The id by which everything cites an event; never made from content, path or arrival.

    One half identifies the session, so that its events are adjacent in an index; the other half the record, so that
    its copies in other sessions can be recognised.
    """
    return name_half(agent, native_session_id) + name_half(agent, f"{native_id}\x1f{block}")


def name_half(agent: str, name: str) -> bytes:
    return blake2b(f"{agent}\x1f{name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
