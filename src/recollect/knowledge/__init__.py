"""What sessions teach: which errors were fixed and how, what was decided and why, what works here.

All of it is derived by pure functions from what a session's events show, stored with its evidence, and joined across
sessions when it is asked for, so that the order in which sessions were read makes no difference.
"""

VERSION = 7  # of the rules: what another one derived is derived again
