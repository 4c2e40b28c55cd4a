"""Every error Recollect raises on purpose.

    RecollectError        the user can act on it                            exit 1
      UsageError          wrong usage                                       exit 2
      NotFound            nothing has this id or name                       exit 4
      Ambiguous           several things have this id or name               exit 5
      Busy                another process holds the lock                    exit 6
      StoreUnusable       this version cannot use the store                 exit 7
        StoreTooNew       written by a newer version
        StoreDamaged      a file of the store is damaged
      StoreUnwritable     disk full or read-only                            exit 1
      NotInGroup          a group sees and changes only its own data        exit 1
      NeedsAnswer         confirmation needed, but there is no terminal     exit 1
      Unsupported         the agent does not support this                   exit 1
      BadConfig           a setting is invalid                              exit 1
      BadBackup           a backup or export is incomplete or damaged       exit 1
      SourceUnreadable    a source could not be read; the sweep records it and continues

`message` is one sentence without a full stop, the value last; `hint` says what to do.
"""


class RecollectError(Exception):
    """Base class of all errors a user can act on."""

    code = "error"
    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.choices: tuple[dict[str, str | None], ...] = ()


class UsageError(RecollectError):
    code = "usage"
    exit_code = 2


class NotFound(RecollectError):
    code = "not_found"
    exit_code = 4


class Ambiguous(RecollectError):
    """`choices` are the sessions that may be meant: session_uid, ended_at, repo, title."""

    code = "ambiguous"
    exit_code = 5

    def __init__(self, message: str, hint: str | None = None, choices: tuple[dict[str, str | None], ...] = ()) -> None:
        super().__init__(message, hint)
        self.choices = choices


class Busy(RecollectError):
    code = "busy"
    exit_code = 6


class StoreUnusable(RecollectError):
    code = "store_unusable"
    exit_code = 7


class StoreTooNew(StoreUnusable):
    code = "store_too_new"


class StoreDamaged(StoreUnusable):
    code = "store_damaged"


class StoreUnwritable(RecollectError):
    code = "store_unwritable"


class NotInGroup(RecollectError):
    code = "not_in_group"


class NeedsAnswer(RecollectError):
    code = "needs_answer"


class Unsupported(RecollectError):
    code = "unsupported"


class BadConfig(RecollectError):
    code = "bad_config"


class BadBackup(RecollectError):
    code = "bad_backup"


class SourceUnreadable(RecollectError):
    code = "source_unreadable"
