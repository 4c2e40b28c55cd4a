"""Damage that no public call can do."""

from recollect.api import Memory


def damage_digest(memory: Memory, name: str) -> None:
    """Change a stored digest behind its hash."""
    with memory._store.databases[1].transaction() as connection:
        connection.execute("UPDATE digests SET digest = digest || ' ' WHERE native_session_id = ?", (name,))
