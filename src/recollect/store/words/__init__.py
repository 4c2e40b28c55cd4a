"""The full-text index: written while events are stored, read by searches."""
