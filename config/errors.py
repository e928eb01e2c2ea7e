"""The error hierarchy. Adapters translate what their client libraries raise into these."""


class SkillbusError(Exception):
    """Anything skillbus raises on purpose; its message says what was wrong and what to do."""


class TransientError(SkillbusError):
    """May pass on its own (a busy store, a missed deadline): the task is retried."""


class PermanentError(SkillbusError):
    """Will fail the same way again: the event or query is recorded as failed with this reason."""


class StaleError(SkillbusError):
    """A newer revision has already won: the work is done, nothing is written."""


class UsageError(PermanentError):
    """The caller asked for something that cannot be (exit code 2, HTTP 400)."""


class MisconfiguredError(TransientError, UsageError):
    """A server and the settings do not fit (a login, a model, a version): somebody has to put it
    right. Who asks is told at once (exit code 2); what is recorded waits until then."""


class NotFoundError(UsageError):
    """The caller named something that is not there (exit code 2, HTTP 404)."""
