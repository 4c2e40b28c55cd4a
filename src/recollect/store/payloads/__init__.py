"""The full content of events: compressed frames in pack files."""
