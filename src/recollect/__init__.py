"""Recollect: everything your coding agents did, in one local store."""

__version__ = "0.1.0"
