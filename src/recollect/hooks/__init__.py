"""What agents' hooks are told, and what they leave behind for the next sweep.

An agent waits for its hooks, so the modules here load next to nothing: no store, no settings file, no adapter.
"""
