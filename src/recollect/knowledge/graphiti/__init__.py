"""Graphiti as a place to push to: facts as they are, without a model, or exchanges as episodes for the user's model.

Everything but `client` works without the library, which only an extra installs.
"""
