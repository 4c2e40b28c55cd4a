"""Bits of an event's `flags`."""

IS_ERROR = 1
IS_RETRY = 2
IS_ABANDONED = 4
IS_PROVISIONAL = 8
HIDES_LEARNED = 32  # a secret that another event of its batch names: read with others, it may show it
TOLD_RETRY = 16  # the log itself says so; IS_RETRY is then never taken back
