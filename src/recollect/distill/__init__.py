"""What outlives the raw: exchanges, digest, outcome, signals and tallies of a session, made without a model.

Everything but `analysis` is pure: a session's row, its events and a few payloads in, records out. No agent is
known here, only kinds, roles, statuses, tools and texts, so that all agents are judged alike.
"""
